//! A cluster from its first VM on: `fleet` creates its control-plane nodes, and they are looked at while the cluster exists.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet::control_plane::{
    DeployStatus, DeploymentRecord, DesiredState, Goal, Lifecycle, Node, RunOutcome, Wait, WantedNode,
};
use fleet::hypervisor::{Placement, PowerState, Size};
use kube::ResourceExt;
use uuid::Uuid;

use super::adoption::{Drift, after_word, waits_for, waits_for_a_look};
use super::begin::{node_settings, pin_told};
use super::fleet_deploy::DeployResult;
use super::operations::ChangeDecision;
use super::own_guests::issued;
use super::place::{ProviderSession, unavailable};
use super::{Reconciler, STUCK, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER_FINALIZER, Change, ClusterCondition, ControlNode, Health, Keys, KeysSeen, Obstacle, OperationPhase, is_due,
    lowest_minor, unapplied_settings, unchanged,
};
use crate::objects::{Deployment, Machine, TenantCluster, TenantClusterReason};
use crate::reach::kinds;

/// The pause after a run that waits.
const WAITING: Duration = Duration::from_secs(15);
/// The interval of looks at a settled cluster.
const WATCHING: Duration = Duration::from_secs(60);

impl Reconciler<'_> {
    /// Reconciles a cluster whose control-plane nodes were begun.
    pub(super) async fn maintain(&self, cluster: &TenantCluster) -> Result<StepOutcome, ReconcileError> {
        let Some(deployment) = cluster.status.as_ref().and_then(|status| status.deployment.as_ref()) else {
            return Ok(StepOutcome::RequeueNow);
        };
        if deployment.record.lifecycle != Lifecycle::Active {
            // A deletion cannot be withdrawn: the database is older than the deletion.
            let words = "its control-plane nodes were being removed, and the TenantCluster is not being deleted";
            return self.stuck(cluster, TenantClusterReason::AdoptionRequired, words).await;
        }
        // Without the finalizer the object would be deleted, and its VMs would stay without it.
        if kinds::add_finalizer(self.objects, cluster, CLUSTER_FINALIZER)
            .await
            .attempting("noting that the cluster is kept")?
        {
            return Ok(StepOutcome::RequeueNow);
        }
        let machines = self.control_machines(cluster).await?;
        let Some(provider) = self.provider(cluster).await? else {
            let words = format!("there is no Provider {}", cluster.spec.provider_ref.name);
            return self.unreached(cluster, &Obstacle::new(TenantClusterReason::ReferenceMissing, words)).await;
        };
        let opened = match self.open(cluster, &provider, true).await {
            Ok(opened) => opened,
            Err(why) => return self.unreached(cluster, &unavailable(&why)).await,
        };
        let keys = match self.keys(cluster).await? {
            Ok(keys) => keys,
            Err(seen) => return self.locked_out(cluster, &machines, &opened, seen).await,
        };
        if !deployment.record.formed && !cluster.spec.paused {
            return self.form(cluster, deployment, &machines, &opened, keys).await;
        }
        self.watch(cluster, deployment, &machines, &opened, keys).await
    }

    /// Creates control-plane nodes that have not formed yet, as they were begun.
    async fn form(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        machines: &[Machine],
        opened: &ProviderSession,
        keys: Keys,
    ) -> Result<StepOutcome, ReconcileError> {
        let (nodes, around) = (nodes(deployment, machines), self.load_references(cluster).await?);
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let Some(told) = node_settings(cluster, &around, &pinned, &nodes) else {
            let words = "the IPPool of the control-plane nodes no longer exists";
            return self.cannot_form(cluster, words).await;
        };
        let wanted = match told.wanted(&keys, opened.networks.clone(), &opened.placements) {
            Ok(wanted) => wanted,
            Err(error) => return self.cannot_form(cluster, &format!("{error:#}")).await,
        };
        let guests = self.guests(cluster, Some(keys.deployer));
        let mut adopts = None;
        if let Some(seen) = self.seen(cluster, opened, &*guests).await? {
            if !seen.looked {
                // It is unknown whether VMs are newer than the record.
                let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
                let (doing, adopts) = (OperationPhase::Provisioning(words(&seen.waits)), waits_for_a_look(cluster));
                self.say(cluster, machines, &seen, doing, is_at_hand, adopts).await?;
                return Ok(StepOutcome::RequeueAfter(WAITING));
            }
            let (known, with) = ((deployment, machines), (opened, &*guests));
            match self.drifts(cluster, known, with, (&seen, &seen.newer)).await? {
                Drift::Ends(after) => return Ok(after),
                Drift::Passes(waits) => adopts = waits,
            }
        }
        // Existing VMs were created with the same settings, or the run is rejected.
        self.note(cluster, &[], |status| pin_told(status, &cluster.spec)).await?;
        let ran = self.run_deploy(cluster, opened, &*guests, Goal::Deploy(&wanted)).await?;
        self.after(cluster, machines, ran, adopts).await
    }

    /// Looks at control-plane nodes that have formed, and runs `fleet` only if there is work.
    async fn watch(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        machines: &[Machine],
        opened: &ProviderSession,
        keys: Keys,
    ) -> Result<StepOutcome, ReconcileError> {
        let kept = &deployment.record;
        let wanted = formed_desired_state(kept, &keys)?;
        let guests = self.guests(cluster, Some(keys.deployer));
        let Some(seen) = self.seen(cluster, opened, &*guests).await? else { return Ok(StepOutcome::RequeueNow) };
        let newer = self.newer(cluster, opened, &seen).await?;
        let (known, with) = ((deployment, machines), (opened, &*guests));
        let adopts = match &newer {
            Some(newer) => match self.drifts(cluster, known, with, (&seen, newer)).await? {
                Drift::Ends(after) => return Ok(after),
                Drift::Passes(adopts) => adopts,
            },
            None => waits_for_a_look(cluster),
        };
        let is_off = |seen: &DeployStatus| seen.nodes.iter().any(|node| node.power == Some(PowerState::Off));
        let ends = self.kubeconfig_ends(cluster).await?;
        let is_due = is_due(ends.as_ref(), &self.clock.time());
        let looked = (machines, &seen);
        let changing = self.changing(cluster, looked).await?;
        // While a swap is open only its Operation creates VMs or powers them on. Exceptions are an Operation that waits for its
        // commit or for the operator, or that has not begun: it runs no steps, and may wait for days.
        let is_left = changing.is_left() && is_off(&seen);
        let is_wanting = !changing.is_open() && (is_off(&seen) || is_due);
        // While it is unknown whether VMs are newer than the record, nothing is done.
        if !cluster.spec.paused && newer.is_some() && (is_left || is_wanting) {
            if is_left {
                self.says_what_is_off(cluster, &changing, &seen).await?;
                // The node may return before the next look, but it was not healthy in between.
                self.counts_good(cluster, changing, machines, false).await?;
            }
            let ran = self.run_deploy(cluster, opened, &*guests, Goal::Deploy(&wanted)).await?;
            return self.after(cluster, machines, ran, adopts).await;
        }
        if changing.is_open() && is_due {
            match issued(opened, &*guests, kept).await {
                Ok(kubeconfig) => drop(self.hand_over(cluster, &kubeconfig).await?),
                Err(error) => log::debug!("renewing the kubeconfig: {error:#}"),
            }
        }
        let are_good = seen.looked && seen.nodes.iter().all(|node| node.ready);
        let changing = self.counts_good(cluster, changing, machines, are_good).await?;
        let (mut changing, operator) = if changing.change.is_to_do() {
            let operator = self.upgrade_context(cluster, opened, &*guests, kept).await?;
            let judged = self.with_obstacles(cluster, machines, changing, opened, &operator).await?;
            let Some(judged) = judged else { return Ok(StepOutcome::RequeueNow) };
            (judged, Some(operator))
        } else {
            (changing, None)
        };
        // The size that counts for limits is stored before the first new VM is created, and limits are checked again with it.
        if self.holds_size(cluster, looked, &changing).await? {
            return Ok(StepOutcome::RequeueNow);
        }
        self.says_what_waits(cluster, &changing).await?;
        changing.adopts = adopts;
        let is_between = changing.is_open() && !changing.is_held_up();
        let stuck = seen.waits.iter().find(|wait| wait.lasting && !is_between).map(ToString::to_string);
        let doing = match (&changing.drifted, stuck) {
            _ if cluster.spec.paused => OperationPhase::Paused,
            (Some(words), Some(other)) => OperationPhase::Drifted(format!("{words}; {other}")),
            (Some(words), None) => OperationPhase::Drifted(words.clone()),
            (None, Some(words)) => OperationPhase::Blocked(words),
            (None, None) => changing.change.doing(),
        };
        self.say_with(cluster, machines, &seen, doing, ends.is_some(), &changing).await?;
        // An Operation is not resumed while VMs may be newer than its journal.
        if let Some(operator) = operator.filter(|_| newer.is_some() && changing.change.is_to_do()) {
            return self.operate(cluster, machines, &changing, operator).await;
        }
        let is_settled = seen.done && changing.change == Change::Nothing;
        Ok(StepOutcome::RequeueAfter(if is_settled { WATCHING } else { WAITING }))
    }

    /// Looks at control-plane nodes without the deployer's key: they cannot be called, and a cluster that has not formed cannot
    /// continue.
    async fn locked_out(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        opened: &ProviderSession,
        keys: KeysSeen,
    ) -> Result<StepOutcome, ReconcileError> {
        let words = match keys {
            KeysSeen::Damaged(words) => words,
            KeysSeen::Missing | KeysSeen::There => {
                let name = crate::decisions::keys_secret(&cluster.name_any());
                format!("the Secret {name} is gone: put it back, for nodes accept no other key")
            }
        };
        let guests = self.guests(cluster, None);
        let Some(seen) = self.seen(cluster, opened, &*guests).await? else { return Ok(StepOutcome::RequeueNow) };
        let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
        let adopts = waits_for(cluster, "its control-plane nodes cannot be asked without their key");
        self.say(cluster, machines, &seen, OperationPhase::Blocked(words), is_at_hand, adopts).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }

    /// Writes the result of a run. `adopts` is why the operator's request to adopt is still open.
    pub(super) async fn after(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        ran: DeployResult,
        adopts: Option<String>,
    ) -> Result<StepOutcome, ReconcileError> {
        // With the record of the run, whose nodes and CA identify the kubeconfig. The spec is the one that the run used.
        let Some(noted) = self.find(cluster).await? else { return Ok(StepOutcome::RequeueNow) };
        let mut noted = TenantCluster { spec: cluster.spec.clone(), ..noted };
        noted.metadata.generation = cluster.metadata.generation;
        let cluster = &noted;
        let (arrived, seen) = match ran {
            DeployResult::Arrived(arrived, seen) => (arrived, *seen),
            DeployResult::Cancelled => return Ok(StepOutcome::RequeueNow),
            DeployResult::Refused(words) => {
                let words = after_word(adopts.as_deref(), &words);
                return self.stuck(cluster, TenantClusterReason::Blocked, &words).await;
            }
        };
        let (doing, rest) = match &arrived {
            RunOutcome::Up(kubeconfig) => {
                if self.hand_over(cluster, kubeconfig).await? {
                    (OperationPhase::Idle, WATCHING)
                } else {
                    let name = crate::decisions::kubeconfig_secret(&cluster.name_any());
                    (
                        OperationPhase::Blocked(format!(
                            "there is a Secret {name} that was not made for this cluster: remove it"
                        )),
                        STUCK,
                    )
                }
            }
            RunOutcome::Paused(waits) => (OperationPhase::Provisioning(words(waits)), WAITING),
            RunOutcome::Stopped(waits) => (OperationPhase::Blocked(words(waits)), STUCK),
            RunOutcome::Cancelled | RunOutcome::Gone => return Ok(StepOutcome::RequeueNow),
        };
        let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
        self.say(cluster, machines, &seen, doing, is_at_hand, adopts).await?;
        Ok(StepOutcome::RequeueAfter(rest))
    }

    /// Writes the observed state of control-plane nodes, and why the operator's request to adopt is still open.
    pub(super) async fn say(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        seen: &DeployStatus,
        doing: OperationPhase,
        is_handed_over: bool,
        adopts: Option<String>,
    ) -> Result<(), ReconcileError> {
        let mut changing = self.changing(cluster, (machines, seen)).await?;
        changing.adopts = adopts;
        self.say_with(cluster, machines, seen, doing, is_handed_over, &changing).await
    }

    /// As `say`, with the next change of the control-plane nodes.
    async fn say_with(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        seen: &DeployStatus,
        doing: OperationPhase,
        is_handed_over: bool,
        changing: &ChangeDecision,
    ) -> Result<(), ReconcileError> {
        self.show(machines, seen).await?;
        let pools = self.pools(cluster).await?;
        let data_disk = self.class(cluster).await?.and_then(|class| class.spec.data_disk_gib);
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
        let unchanged = unchanged(&cluster.spec, &pinned, data_disk);
        let unchanged = unchanged.map(|words| (TenantClusterReason::ChangeNotSupported, words));
        let untold = unapplied_settings(&cluster.spec, &pinned.node_settings);
        let untold = untold.map(|words| (TenantClusterReason::ChangeNotSupported, words));
        let both = unchanged.into_iter().chain(untold);
        let both = both.reduce(|(reason, one), (_, other)| (reason, format!("{one}; {other}")));
        let comes = changing.change.said().map(|(reason, words)| match &changing.size_waits {
            Some(waits) => (reason, format!("{words}; {waits}")),
            None => (reason, words),
        });
        let (differs, obstacle) = match &doing {
            // The stored record does not describe the nodes.
            OperationPhase::Drifted(words) => (
                Some((TenantClusterReason::ChangeBlocked, words.clone())),
                Some(Obstacle::new(TenantClusterReason::ControlPlaneUnfit, words.as_str())),
            ),
            _ => (comes.or(both), changing.change.obstacle().cloned()),
        };
        let adopts = changing.adopts.clone();
        let health = Health { control_plane: seen, pools: &pools, doing, differs, obstacle, adopts, is_handed_over };
        let minor = lowest_minor(machines).filter(|_| seen.formed).map(|minor| minor.to_string());
        let version = if seen.nodes.iter().all(|node| node.ready) { self.version(cluster).await? } else { None };
        let add_ons = self.add_ons(cluster, seen.formed).await?;
        let said: Vec<ClusterCondition> = health.conditions().into_iter().chain(add_ons).collect();
        self.note(cluster, &said, |status| {
            (status.control_plane, status.nodes) = (health.control_plane(), health.nodes());
            if minor.is_some() {
                status.kubernetes.clone_from(&minor);
            }
            if let Some(version) = &version {
                status.version.clone_from(version);
            }
            status.operation.clone_from(&changing.operation);
        })
        .await
    }

    /// The Kubernetes version of all control-plane nodes. The inner `None` means that they differ, the outer one that it is
    /// unknown.
    async fn version(&self, cluster: &TenantCluster) -> Result<Option<Option<String>>, ReconcileError> {
        let Some(kubeconfig) = self.kubeconfig(cluster).await? else { return Ok(None) };
        let nodes = match self.places.cluster(&kubeconfig) {
            Ok(api) => api.nodes().await,
            Err(error) => Err(error),
        };
        let Ok(nodes) = nodes.inspect_err(|error| log::debug!("asking for versions: {error:#}")) else {
            return Ok(None);
        };
        let control = nodes.iter().filter(|node| node.control);
        let versions: BTreeSet<&str> = control.map(|node| node.kubelet.trim_start_matches('v')).collect();
        let mut versions = versions.into_iter().filter(|version| !version.is_empty());
        Ok(Some(versions.next().filter(|_| versions.next().is_none()).map(str::to_owned)))
    }

    /// Writes what the operator has to do before VMs of control-plane nodes that have not formed can be listed.
    async fn cannot_form(&self, cluster: &TenantCluster, words: &str) -> Result<StepOutcome, ReconcileError> {
        let words = after_word(waits_for_a_look(cluster).as_deref(), words);
        self.stuck(cluster, TenantClusterReason::Blocked, &words).await
    }

    /// Writes what the operator has to do.
    async fn stuck(
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

    /// Writes that the state of control-plane nodes is unknown.
    async fn unreached(&self, cluster: &TenantCluster, obstacle: &Obstacle) -> Result<StepOutcome, ReconcileError> {
        use TenantClusterReason::{Blocked, ControlPlaneNotReached, NotReached};
        let words = &obstacle.message;
        let reasons = [obstacle.reason, ControlPlaneNotReached, NotReached];
        let mut said: Vec<ClusterCondition> = reasons.map(|reason| (reason, words.clone())).into();
        if let Some(adopts) = waits_for_a_look(cluster) {
            said.push((Blocked, after_word(Some(&adopts), words)));
        }
        self.note(cluster, &said, |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }
}

fn words(waits: &[Wait]) -> String {
    waits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The control-plane nodes of a cluster as they were begun.
pub(in crate::reconcilers) fn nodes(deployment: &Deployment, machines: &[Machine]) -> Vec<ControlNode> {
    let node = |node: &Node| {
        let machine = machines.iter().find(|machine| machine.name_any() == node.name)?;
        Some(ControlNode {
            name: node.name.clone(),
            address: node.address,
            machine: machine.metadata.uid.as_deref()?.parse::<Uuid>().ok()?,
            zone: machine.spec.zone.clone(),
        })
    };
    deployment.record.nodes.iter().filter_map(node).collect()
}

/// The desired state of control-plane nodes that have formed: powered on. How they were created no longer matters, so it needs no
/// image, pool or class.
fn formed_desired_state(kept: &DeploymentRecord, keys: &Keys) -> anyhow::Result<DesiredState> {
    let node = |node: &Node| WantedNode {
        name: node.name.clone(),
        address: node.address,
        properties: Default::default(),
        drawn: node.allocated_uuid,
        placement: None,
    };
    Ok(DesiredState {
        cluster: kept.cluster.clone(),
        nodes: kept.nodes.iter().map(node).collect(),
        size: Size { processors: 0, memory: 0, data_disk: None },
        image: kept.image.clone(),
        ova: Default::default(),
        networks: Vec::new(),
        placement: Placement::default(),
        digests: keys.deployer.digests().map_err(anyhow::Error::from)?,
    })
}
