//! A cluster from its first VM on: `fleet` creates its control-plane nodes, and they are looked at while the cluster exists.

use std::time::Duration;

use fleet::control_plane::{DeployStatus, Goal, Lifecycle, RunOutcome};
use fleet::hypervisor::PowerState;
use kube::ResourceExt;

use super::begin::{node_settings, pin_told};
use super::drift::{Drift, after_word, waits_for, waits_for_a_look};
use super::fleet_run::DeployResult;
use super::own_nodes::{ClusterAccess, issued, nodes};
use super::place::{ProviderSession, unavailable};
use super::replace::LostNodeResult;
use super::settings::SettingsOutcome;
use super::upgrade::UpgradeContext;
use super::{Reconciler, Round, STUCK, StepOutcome, WAITING};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER_FINALIZER, Change, ClusterCondition, Keys, KeysSeen, Obstacle, joined, keys_secret, kubeconfig_secret,
    misnamed_node, with_lost,
};
use crate::objects::{Deployment, Machine, SYSTEM, TenantCluster, TenantClusterReason};
use crate::reach::kinds;

/// The interval of looks at a settled cluster.
const WATCHING: Duration = Duration::from_secs(60);

impl Reconciler<'_> {
    /// Reconciles a cluster whose control-plane nodes were begun:
    ///
    /// 1. Reads its record, its Machines and its keys. If one is missing, the status says what to do.
    /// 2. Creates nodes that have not formed yet ([`Self::form`]).
    /// 3. Renews the kubeconfigs of nodes that have formed, and asks their API ([`Self::access`]). That needs neither vCenter nor a
    ///    cluster that may be changed.
    /// 4. Asks vCenter. Without it, the status is what the API said ([`Self::unreached`]).
    /// 5. Watches the nodes, and changes them ([`Round::watch`]).
    pub(super) async fn maintain(&self, cluster: &TenantCluster) -> Result<StepOutcome, ReconcileError> {
        let Some(deployment) = cluster.deployment() else { return Ok(StepOutcome::RequeueNow) };
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
        let (keys, missing) = match self.keys(cluster).await? {
            Ok(keys) if !deployment.record.formed && !cluster.spec.paused => {
                return match self.session(cluster).await? {
                    Ok(opened) => self.form(cluster, deployment, &machines, &opened, keys).await,
                    Err(obstacle) => self.unreached(cluster, &machines, &obstacle, &ClusterAccess::default()).await,
                };
            }
            Ok(keys) => (Some(keys.deployer), None),
            Err(seen) => (None, Some(seen)),
        };
        let mut guests = self.guests(cluster, keys);
        let mut access = self.access(cluster, &guests).await?;
        let opened = match self.session(cluster).await? {
            Ok(opened) => opened,
            Err(obstacle) => return self.unreached(cluster, &machines, &obstacle, &access).await,
        };
        let now = self.clock.time();
        if deployment.record.formed && access.is_due(&now) {
            // The first contact: vCenter shows the fingerprints of nodes.
            match issued(&opened, &guests, &deployment.record).await {
                Ok(given) => self.take(cluster, &mut access, given).await?,
                Err(error) => log::debug!("renewing the kubeconfig: {error:#}"),
            }
        }
        guests.held = access.kubeconfig.clone().filter(|_| !access.is_due(&now));
        let (reconciler, machines) = (*self, &machines[..]);
        let round = Round { reconciler, cluster, machines, opened: &opened, guests: &guests, access: &access };
        match missing {
            Some(seen) => round.locked_out(seen).await,
            None => round.watch().await,
        }
    }

    /// A session on the cluster's Provider, or why no session is possible.
    async fn session(&self, cluster: &TenantCluster) -> Result<Result<ProviderSession, Obstacle>, ReconcileError> {
        let Some(provider) = self.provider(cluster).await? else {
            let words = format!("there is no Provider {}: create it again", cluster.spec.provider_ref.name);
            return Ok(Err(Obstacle::new(TenantClusterReason::ReferenceMissing, words)));
        };
        Ok(self.open(cluster, &provider, true).await.map_err(|why| unavailable(&why)))
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
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let Some(told) = node_settings(cluster, &around, &pinned, &nodes) else {
            let words = "the IPPool of the control-plane nodes no longer exists";
            return self.cannot_form(cluster, words).await;
        };
        let wanted = match told.wanted(&keys, opened.networks.clone(), &opened.placements) {
            Ok(wanted) => wanted,
            Err(error) => return self.cannot_form(cluster, &format!("{error:#}")).await,
        };
        let guests = self.guests(cluster, Some(keys.deployer));
        let access = ClusterAccess::default();
        let round = Round { reconciler: *self, cluster, machines, opened, guests: &guests, access: &access };
        let mut adopts = None;
        if let Some(seen) = round.seen().await? {
            if !seen.looked {
                // It is unknown whether VMs are newer than the record.
                let (doing, adopts) =
                    ((TenantClusterReason::ControlPlaneChanges, joined(&seen.waits)), waits_for_a_look(cluster));
                round.say(&seen, doing, adopts).await?;
                return Ok(StepOutcome::RequeueAfter(WAITING));
            }
            match round.handle_drift(&seen, &seen.newer).await? {
                Drift::Ends(after) => return Ok(after),
                Drift::Passes(waits) => adopts = waits,
            }
        }
        // Existing VMs were created with the same settings, or the run is rejected.
        self.note(cluster, &[], |status| pin_told(status, &cluster.spec, &around)).await?;
        let ran = round.run_deploy(Goal::Deploy(&wanted)).await?;
        round.after(ran, adopts, None).await
    }
}

impl Round<'_> {
    /// Looks at control-plane nodes that have formed, and takes the next step:
    ///
    /// 1. Resolve: reads the state of VMs and nodes.
    /// 2. VMs that are newer than the record block all else, until the operator has them adopted (`drift.rs`).
    /// 3. Plan: decides the next change (`change.rs`).
    /// 4. Replaces a lost node, or says what that waits for (`replace.rs`). Meanwhile former VMs of replaced nodes are shut out, and
    ///    nothing else changes. If nothing is done about the lost node now, the other steps follow.
    /// 5. Powers on VMs that are off, and shuts former VMs of replaced nodes out, as far as an open swap allows it. Also if no
    ///    node has renewed the kubeconfig before.
    /// 6. Checks nodes and VMs for the change, and reserves the size of its VMs (`change.rs`, `size.rs`).
    /// 7. Takes the next step towards the settings of the spec, if no other change runs (`settings.rs`).
    /// 8. Report: writes the status (`report.rs`).
    /// 9. Run: runs the change until it ends or waits (`upgrade.rs`).
    async fn watch(self) -> Result<StepOutcome, ReconcileError> {
        let Self { cluster, .. } = self;
        let kept = self.record()?;
        let Some(seen) = self.seen().await? else { return Ok(StepOutcome::RequeueNow) };
        let newer = self.newer(&seen).await?;
        let adopts = match &newer {
            Some(newer) => match self.handle_drift(&seen, newer).await? {
                Drift::Ends(after) => return Ok(after),
                Drift::Passes(adopts) => adopts,
            },
            None => waits_for_a_look(cluster),
        };
        let is_off = seen.nodes.iter().any(|node| node.power == Some(PowerState::Off));
        // A renewal before this look may have failed: a run gives a kubeconfig, or says why none can be written.
        let is_due = self.access.is_due(&self.clock.time()) || self.wants_handed_over(cluster).await?;
        let mut decision = self.decide_change(&seen).await?;
        let has_returned = !seen.returned.is_empty();
        let misnamed = misnamed_node(cluster, &seen);
        let mut lost = misnamed.map(|words| (TenantClusterReason::NodeLostAwaitingOperator, words));
        if newer.is_some() {
            match self.replace_lost(&seen).await? {
                LostNodeResult::None => {}
                LostNodeResult::Held(words) => lost = Some(with_lost((TenantClusterReason::NodeLost, words), lost)),
                LostNodeResult::Ran(after) => return Ok(after),
                LostNodeResult::Says(doing) => {
                    let doing = with_lost(doing, lost);
                    // A VM that has returned has the address of another node, and the lost one may be awaited for long.
                    if has_returned && !cluster.spec.paused && (decision.is_left() || !decision.is_open()) {
                        let ran = self.run_deploy(Goal::Continue).await?;
                        return self.after(ran, adopts, Some(doing)).await;
                    }
                    decision.adopts = adopts;
                    self.report(&seen, self.with_returned(doing, &seen), &decision).await?;
                    return Ok(StepOutcome::RequeueAfter(WAITING));
                }
            }
        }
        // While a swap is open only its Operation creates VMs or powers them on. Exceptions are an Operation that waits for its
        // commit or for the operator, or that has not begun: it runs no steps, and may wait for days.
        let is_left = decision.is_left() && (is_off || has_returned);
        let is_wanting = !decision.is_open() && (is_off || is_due || has_returned);
        // While it is unknown whether VMs are newer than the record, nothing is done.
        if !cluster.spec.paused && newer.is_some() && (is_left || is_wanting) {
            if is_left {
                if is_off {
                    self.report_powered_off(&decision, &seen).await?;
                }
                // The node may be healthy at the next look, but it was not in between: it was off, or its address was used twice.
                self.record_health(decision, false).await?;
            }
            let ran = self.run_deploy(Goal::Continue).await?;
            return self.after(ran, adopts, lost).await;
        }
        let are_good = seen.looked && seen.nodes.iter().all(|node| node.ready);
        let is_idle = !decision.is_open() && !decision.change.is_to_do();
        if are_good && newer.is_some() && !cluster.spec.paused && is_idle {
            self.replace_exposed_key().await?;
        }
        let mut decision = self.record_health(decision, are_good).await?;
        let mut upgrade: Option<UpgradeContext<'_>> = None;
        if decision.change.is_to_do() {
            let context = self.upgrade_context(kept).await?;
            let Some(checked) = self.check_change(decision, &context).await? else {
                return Ok(StepOutcome::RequeueNow);
            };
            (decision, upgrade) = (checked, Some(context));
        }
        // The size that counts for limits is stored before the first new VM is created, and limits are checked again with it.
        if self.reserve_size(&seen, &decision).await? {
            return Ok(StepOutcome::RequeueNow);
        }
        self.report_wait(&decision).await?;
        decision.adopts = adopts;
        if newer.is_some() && seen.looked && !decision.is_open() && !decision.change.is_to_do() {
            let outcome = match decision.operations() {
                Some(all) => self.configure(&seen, all).await?,
                None => SettingsOutcome::Current,
            };
            match outcome {
                SettingsOutcome::Current => {}
                SettingsOutcome::Recorded => return Ok(StepOutcome::RequeueNow),
                SettingsOutcome::Pending(pending) => decision.await_settings(pending),
            }
        }
        let is_between = decision.is_open() && !decision.is_held_up();
        let stuck = seen.waits.iter().find(|wait| wait.lasting && !is_between).map(ToString::to_string);
        let doing = match (&decision.drifted, stuck) {
            _ if cluster.spec.paused => (TenantClusterReason::Paused, String::new()),
            (Some(words), Some(other)) => (TenantClusterReason::AdoptionRequired, format!("{words}; {other}")),
            (Some(words), None) => (TenantClusterReason::AdoptionRequired, words.clone()),
            (None, Some(words)) => (TenantClusterReason::Blocked, words),
            (None, None) => decision.doing(),
        };
        self.report(&seen, self.with_returned(with_lost(doing, lost), &seen), &decision).await?;
        // An Operation is not resumed while VMs may be newer than its journal.
        if let Some(upgrade) = upgrade.filter(|_| newer.is_some() && decision.change.is_to_do()) {
            let swap = decision.swap.as_ref().map(|(_, swapping)| swapping.id);
            return self.run_change(&decision.change, swap, upgrade).await;
        }
        let is_settled = seen.done && decision.change == Change::Nothing;
        let rest = if is_settled { WATCHING } else { WAITING };
        Ok(StepOutcome::RequeueAfter(decision.settings.map_or(rest, |pending| pending.rest().min(rest))))
    }

    /// Adds the former VMs of replaced nodes that have returned to a paused cluster: nothing is done about them.
    fn with_returned(&self, (reason, words): ClusterCondition, seen: &DeployStatus) -> ClusterCondition {
        if !self.cluster.spec.paused || seen.returned.is_empty() {
            return (reason, words);
        }
        let names: Vec<&str> = seen.returned.iter().map(|vm| vm.name.as_str()).collect();
        let returned = format!(
            "former VMs of replaced nodes have returned with the addresses of the nodes, and are shut out after the pause: {}",
            names.join(", ")
        );
        (reason, if words.is_empty() { returned } else { format!("{returned}; {words}") })
    }

    /// Looks at control-plane nodes without the deployer's key: they cannot be called, and a cluster that has not formed cannot
    /// continue.
    async fn locked_out(self, keys: KeysSeen) -> Result<StepOutcome, ReconcileError> {
        let words = match keys {
            KeysSeen::Damaged(words) => words,
            KeysSeen::Missing | KeysSeen::There => {
                let name = keys_secret(self.cluster);
                format!("the Secret {name} in {SYSTEM} is gone: put it back, for nodes accept no other key")
            }
        };
        let Some(seen) = self.seen().await? else { return Ok(StepOutcome::RequeueNow) };
        let adopts = waits_for(self.cluster, "its control-plane nodes cannot be asked without their key");
        self.say(&seen, (TenantClusterReason::Blocked, words), adopts).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }

    /// Writes the result of a run. `adopts` is why the operator's request to adopt is still open, `lost` is the message about a
    /// lost node, as for [`with_lost`].
    pub(super) async fn after(
        self,
        ran: DeployResult,
        adopts: Option<String>,
        lost: Option<ClusterCondition>,
    ) -> Result<StepOutcome, ReconcileError> {
        let Self { cluster, .. } = self;
        // With the record of the run, whose nodes and CA identify the kubeconfig. The spec is the one that the run used.
        let Some(noted) = self.find(cluster).await? else { return Ok(StepOutcome::RequeueNow) };
        let mut noted = TenantCluster { spec: cluster.spec.clone(), ..noted };
        noted.metadata.generation = cluster.metadata.generation;
        let access = ClusterAccess::default();
        let round = Round { cluster: &noted, access: &access, ..self };
        let (arrived, seen) = match ran {
            DeployResult::Arrived(arrived, seen) => (arrived, *seen),
            DeployResult::Cancelled => return Ok(StepOutcome::RequeueNow),
            DeployResult::Refused(words) => {
                let words = after_word(adopts.as_deref(), &words);
                let (reason, words) = with_lost((TenantClusterReason::Blocked, words), lost);
                return self.stuck(&noted, reason, &words).await;
            }
        };
        let (doing, rest) = match &arrived {
            RunOutcome::Up(kubeconfig) if self.hand_over(&noted, kubeconfig).await? => {
                ((TenantClusterReason::Idle, String::new()), WATCHING)
            }
            RunOutcome::Up(_) => {
                let name = kubeconfig_secret(&noted.name_any());
                let words = format!("there is a Secret {name} that was not made for this cluster: remove it");
                ((TenantClusterReason::Blocked, words), STUCK)
            }
            RunOutcome::Paused(waits) => ((TenantClusterReason::ControlPlaneChanges, joined(waits)), WAITING),
            RunOutcome::Stopped(waits) => ((TenantClusterReason::Blocked, joined(waits)), STUCK),
            RunOutcome::Cancelled | RunOutcome::Gone => return Ok(StepOutcome::RequeueNow),
        };
        round.say(&seen, with_lost(doing, lost), adopts).await?;
        Ok(StepOutcome::RequeueAfter(rest))
    }
}
