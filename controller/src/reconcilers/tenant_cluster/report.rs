//! Writes the status of a cluster and of its control-plane nodes' Machines: what was observed, or what the operator has to do.

use std::collections::{BTreeMap, BTreeSet};

use fleet::control_plane::DeployStatus;
use kube::ResourceExt;

use super::change::ChangeDecision;
use super::drift::{after_word, waits_for_a_look};
use super::own_nodes::ClusterAccess;
use super::{Reconciler, Round, STUCK, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER, ClusterCondition, Health, Observed, Obstacle, add_ons, control_machine_status, is_leaving, kept_vips,
    lowest_minor, pending_settings, unchanged, with_api,
};
use crate::objects::{
    Machine, MachineRole, MachineStatus, Reason as _, TenantCluster, TenantClusterReason, TenantClusterStatus, set,
};
use crate::reach::{Failure, kinds};
use crate::reconcilers::log_unwritten;

/// The number of attempts of a write that conflicts with another one.
const TRIES: usize = 10;

impl Reconciler<'_> {
    /// Writes conditions, and other changes of the status. Without a change there is no request.
    pub(super) async fn note(
        &self,
        cluster: &TenantCluster,
        said: &[ClusterCondition],
        change: impl Fn(&mut TenantClusterStatus),
    ) -> Result<(), ReconcileError> {
        let mut now = cluster.clone();
        for attempt in 1.. {
            // With the generation that was judged: a newer one is judged later.
            let generation = cluster.metadata.generation.unwrap_or_default();
            let mut status = now.status.clone().unwrap_or_default();
            change(&mut status);
            for (reason, words) in said {
                set(&mut status.conditions, *reason, words, generation, &self.clock.time());
            }
            status.observed_generation = generation;
            match kinds::note(self.objects, &now, now.status.as_ref(), &status).await {
                Err(Failure::Changed) if attempt < TRIES => match self.find(cluster).await? {
                    Some(found) => now = found,
                    None => return Ok(()),
                },
                Err(Failure::Missing) => return Ok(()),
                written => return written.map(drop).attempting("writing the cluster's status"),
            }
        }
        Ok(())
    }

    /// The Machines that a cluster owns, of control-plane nodes and workers.
    pub(super) async fn machines(&self, cluster: &TenantCluster) -> Result<Vec<Machine>, ReconcileError> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let all = kinds::list::<Machine>(self.objects, namespace.as_deref(), Some((CLUSTER, &name))).await;
        let is_own = |machine: &Machine| {
            machine.owner_references().iter().any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref())
        };
        let all = all.attempting("looking for the cluster's Machines")?;
        Ok(all.into_iter().filter(|machine| is_own(machine)).collect())
    }

    pub(in crate::reconcilers) async fn control_machines(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Vec<Machine>, ReconcileError> {
        let all = self.machines(cluster).await?;
        Ok(all.into_iter().filter(|machine| machine.spec.role == MachineRole::ControlPlane).collect())
    }

    /// Writes the observed state of control-plane nodes to their Machines.
    async fn show(&self, machines: &[Machine], seen: &DeployStatus) -> Result<(), ReconcileError> {
        for machine in machines {
            self.note_machine(machine, &control_machine_status(machine, seen, &self.clock.time())).await?;
        }
        Ok(())
    }

    /// Writes a Machine's status. If the Machine was changed since it was read, the next look writes it.
    pub(in crate::reconcilers) async fn note_machine(
        &self,
        machine: &Machine,
        status: &MachineStatus,
    ) -> Result<(), ReconcileError> {
        match kinds::note(self.objects, machine, machine.status.as_ref(), status).await {
            Err(Failure::Changed | Failure::Missing) => Ok(()),
            written => written.map(drop).attempting("writing a Machine's status"),
        }
    }

    /// Whether the add-ons of a cluster that has formed run.
    async fn add_ons(&self, cluster: &TenantCluster, kubeconfig: Option<&str>) -> ClusterCondition {
        let Some(kubeconfig) = kubeconfig else {
            return add_ons(&cluster.spec, Err("its kubeconfig is not at hand".to_owned()));
        };
        let seen = self.places.add_ons(kubeconfig).await;
        add_ons(&cluster.spec, seen.as_deref().map_err(|error| format!("{error:#}")))
    }

    /// Writes what the operator has to do before VMs of control-plane nodes that have not formed can be listed.
    pub(super) async fn cannot_form(
        &self,
        cluster: &TenantCluster,
        words: &str,
    ) -> Result<StepOutcome, ReconcileError> {
        let words = after_word(waits_for_a_look(cluster).as_deref(), words);
        self.stuck(cluster, TenantClusterReason::Blocked, &words).await
    }

    /// Writes what the operator has to do.
    pub(super) async fn stuck(
        &self,
        cluster: &TenantCluster,
        reason: TenantClusterReason,
        words: &str,
    ) -> Result<StepOutcome, ReconcileError> {
        let said = [(reason, words.to_owned()), (TenantClusterReason::NotReady, words.to_owned())];
        // A cluster that serves keeps its other conditions.
        let served = cluster.status.as_ref().is_some_and(|status| status.kubernetes.is_some());
        self.note(cluster, if served { &said[..1] } else { &said }, |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }

    /// Writes that an object cannot be read that the cluster needs. A failed write is only logged: the caller returns the cause.
    pub(super) async fn report_unreadable(&self, cluster: &TenantCluster, words: &str) {
        let written = match is_leaving(cluster) {
            true => self.report_blocked(cluster, words).await,
            false => self.stuck(cluster, TenantClusterReason::Blocked, words).await,
        };
        log_unwritten(cluster, written);
    }

    /// Writes what is known without vCenter: what the cluster's own API says. Values that only vCenter knows are unknown, and
    /// numbers that are unknown stay as they were.
    pub(super) async fn unreached(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        obstacle: &Obstacle,
        access: &ClusterAccess,
    ) -> Result<StepOutcome, ReconcileError> {
        use TenantClusterReason::{Blocked, ControlPlaneNotReached, NotReached, PreflightNotKnown, ProviderNotReached};
        let Some(deployment) = cluster.deployment() else { return Ok(StepOutcome::RequeueNow) };
        let words = &obstacle.message;
        let reason = if obstacle.reason == PreflightNotKnown { ProviderNotReached } else { obstacle.reason };
        let seen = with_api(&DeployStatus::unlisted(&deployment.record, words), &access.api);
        let pools = self.pools(cluster).await?;
        let health = Health {
            control_plane: &seen,
            api: &access.api,
            pools: &pools,
            doing: (TenantClusterReason::Idle, String::new()),
            differs: None,
            obstacle: Some(Obstacle::new(reason, words.as_str())),
            adopts: None,
            is_handed_over: self.is_handed_over(cluster).await?,
        };
        let mut said = if deployment.record.formed {
            self.show(machines, &seen).await?;
            // Changes of the cluster are not judged without its VMs.
            let is_known = |(reason, _): &ClusterCondition| !["UpToDate", "Progressing"].contains(&reason.condition());
            let mut said: Vec<ClusterCondition> = health.conditions().into_iter().filter(is_known).collect();
            said.push(self.add_ons(cluster, access.kubeconfig.as_deref().map(String::as_str)).await);
            said
        } else {
            [reason, ControlPlaneNotReached, NotReached].map(|reason| (reason, words.clone())).into()
        };
        if let Some(adopts) = waits_for_a_look(cluster) {
            said.push((Blocked, after_word(Some(&adopts), words)));
        }
        let numbers = health.control_plane().filter(|_| deployment.record.formed);
        self.note(cluster, &said, |status| {
            status.nodes = health.nodes();
            if let Some(numbers) = &numbers {
                (status.control_plane.replicas, status.control_plane.ready) = (numbers.replicas, numbers.ready);
            }
        })
        .await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }
}

impl Round<'_> {
    /// Writes the observed state of control-plane nodes, and why the operator's request to adopt is still open.
    pub(super) async fn say(
        &self,
        seen: &DeployStatus,
        doing: ClusterCondition,
        adopts: Option<String>,
    ) -> Result<(), ReconcileError> {
        let mut decision = self.decide_change(seen).await?;
        decision.adopts = adopts;
        self.report(seen, doing, &decision).await
    }

    /// The Kubernetes version of all control-plane nodes. The inner `None` means that they differ, the outer one that it is
    /// unknown.
    async fn version(&self, kubeconfig: Option<&str>) -> Option<Option<String>> {
        let listed = match &self.access.api {
            Observed::Known(nodes) => Observed::Known(nodes.clone()),
            Observed::Unknown(_) => self.listed(kubeconfig).await,
        };
        let Observed::Known(nodes) = listed else { return None };
        let control = nodes.iter().filter(|node| node.control);
        let versions: BTreeSet<&str> = control.map(|node| node.kubelet.trim_start_matches('v')).collect();
        let mut versions = versions.into_iter().filter(|version| !version.is_empty());
        Some(versions.next().filter(|_| versions.next().is_none()).map(str::to_owned))
    }

    /// The settings that nodes do not have yet, at a look that does not change them.
    async fn pending(&self, recorded: &BTreeMap<String, String>) -> Result<Option<ClusterCondition>, ReconcileError> {
        let versions = self.named_secrets(self.cluster).await?.1.versions;
        let fields = pending_settings(&self.cluster.spec, &versions, recorded);
        let words = || format!("{}: nodes get it once no other change runs", fields.join(", "));
        Ok((!fields.is_empty()).then(|| (TenantClusterReason::Changing, words())))
    }

    /// As `say`, with the next change of the control-plane nodes.
    pub(super) async fn report(
        &self,
        seen: &DeployStatus,
        doing: ClusterCondition,
        decision: &ChangeDecision,
    ) -> Result<(), ReconcileError> {
        let Self { cluster, machines, access, .. } = *self;
        // After a run there is another kubeconfig.
        let kubeconfig = match &access.kubeconfig {
            Some(kubeconfig) => Some(kubeconfig.clone()),
            None => self.kubeconfig(cluster).await?,
        };
        let kubeconfig = kubeconfig.as_deref().map(String::as_str);
        let is_handed_over = self.is_handed_over(cluster).await?;
        let seen = &with_api(seen, &access.api);
        self.show(machines, seen).await?;
        let pools = self.pools(cluster).await?;
        let data_disk = self.class(cluster).await?.and_then(|class| class.spec.data_disk_gib);
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let fixed = [unchanged(&cluster.spec, &pinned, data_disk), kept_vips(cluster, &pinned.service_vips)];
        let fixed = fixed.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
        let fixed = fixed.map(|words| (TenantClusterReason::ChangeNotSupported, words));
        let settings = match &decision.settings {
            Some(pending) => Some(pending.said.clone()),
            None => self.pending(&pinned.node_settings).await?,
        };
        let comes = decision.change.said().map(|(reason, words)| match &decision.size_waits {
            Some(waits) => (reason, format!("{words}; {waits}")),
            None => (reason, words),
        });
        let (differs, obstacle) = match &doing {
            // The stored record does not describe the nodes.
            (TenantClusterReason::AdoptionRequired, words) => (
                Some((TenantClusterReason::ChangeBlocked, words.clone())),
                Some(Obstacle::new(TenantClusterReason::ControlPlaneUnfit, words.as_str())),
            ),
            _ => {
                let of_settings = decision.settings.as_ref().and_then(|pending| pending.obstacle.as_ref());
                (comes.or(settings).or(fixed), decision.change.obstacle().or(of_settings).cloned())
            }
        };
        let adopts = decision.adopts.clone();
        let api = &access.api;
        let health =
            Health { control_plane: seen, api, pools: &pools, doing, differs, obstacle, adopts, is_handed_over };
        let minor = lowest_minor(machines).filter(|_| seen.formed).map(|minor| minor.to_string());
        let version = if seen.nodes.iter().all(|node| node.ready) { self.version(kubeconfig).await } else { None };
        let mut said = health.conditions();
        if seen.formed {
            said.push(self.add_ons(cluster, kubeconfig).await);
        }
        let numbers = health.control_plane();
        self.note(cluster, &said, |status| {
            status.nodes = health.nodes();
            if let Some(numbers) = &numbers {
                status.control_plane.clone_from(numbers);
            }
            if minor.is_some() {
                status.kubernetes.clone_from(&minor);
            }
            if let Some(version) = &version {
                status.version.clone_from(version);
            }
            status.operation.clone_from(&decision.operation);
        })
        .await
    }
}
