//! VMs of control-plane nodes that are newer than the control cluster's database, which was restored from a snapshot. The stored
//! record is incomplete: acting on it would repeat or undo later changes. So nothing is done until the operator has them adopted.

use fleet::control_plane::{DeployStatus, Guests};
use fleet::hypervisor::Vm;
use kube::ResourceExt;

use super::super::place::ProviderSession;
use super::super::{Reconciler, STUCK, StepOutcome};
use super::adopt::CancelResult;
use super::words::{shortened, stays, waits_for};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    OperationPhase, ahead, are_bare, drifted, is_one_too_many, is_open_swap, is_to_adopt, last_swap, may_adopt,
    why_not_adopted, without_disk,
};
use crate::objects::{
    ADOPT, ConditionStatus, Deployment, Machine, NodePool, NodePoolReason, Reason as _, TenantCluster,
};
use crate::reach::kinds;
use crate::term::ObservedGenerations;

/// The number of pools whose reason is in the message, to leave room for the rest.
const REASONS: usize = 3;

/// The result of a check for VMs that are newer than the database, and for the operator's request to adopt.
pub(in crate::reconcilers::tenant_cluster) enum Drift {
    /// Nothing else is done before the next look.
    Ends(StepOutcome),
    /// All else is done. Contains why the operator's request is still open. `None` without a request.
    Passes(Option<String>),
}

impl Reconciler<'_> {
    /// Handles VMs that are newer than the database, and the operator's request to adopt.
    pub(in crate::reconcilers::tenant_cluster) async fn drifts(
        &self,
        cluster: &TenantCluster,
        (deployment, machines): (&Deployment, &[Machine]),
        (opened, guests): (&ProviderSession, &dyn Guests),
        (seen, newer): (&DeployStatus, &[Vm]),
    ) -> Result<Drift, ReconcileError> {
        let drifted = match drifted(newer) {
            None if !is_to_adopt(cluster) => return Ok(Drift::Passes(None)),
            None => match self.cancels_prepared(cluster, deployment, (opened, guests)).await? {
                // A swap that nodes have only prepared is not visible in their VMs.
                CancelResult::All => return self.ends_adoption(cluster, deployment, (opened, seen)).await,
                CancelResult::Waits(why) => return Ok(waits(&why)),
                CancelResult::Otherwise => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                CancelResult::Refused(words) => words,
            },
            Some(words) => {
                // These VMs cannot be adopted as they are, so the message does not suggest it.
                let refused = match are_bare(newer) {
                    true => why_not_adopted(self.ahead(cluster, opened).await?.as_deref()),
                    false => None,
                };
                match refused {
                    Some(why) => format!("{words}. {why}"),
                    None if !is_to_adopt(cluster) => may_adopt(&words, cluster),
                    None => match self.adopts(cluster, (deployment, machines), (opened, guests)).await? {
                        // The next look finds what is left, and ends the request if there is nothing.
                        Ok(()) => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                        // The request stays open: the obstacle may pass, or the operator fixes it.
                        Err(why) => format!("{words}. They are not adopted yet: {why}"),
                    },
                }
            }
        };
        self.report_drift(cluster, machines, seen, drifted).await.map(Drift::Ends)
    }

    /// Ends the request once nothing is left to adopt. Workers are adopted by their pools, which report it after a look.
    async fn ends_adoption(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        (opened, seen): (&ProviderSession, &DeployStatus),
    ) -> Result<Drift, ReconcileError> {
        // Read before the list: a pool may be looked at in between, and its listed status is from before that.
        let looks = self.term.observed_generations();
        let pools = self.pools(cluster).await?;
        let mut awaited = Vec::new();
        if seen.waits.iter().any(|wait| wait.lasting) {
            awaited.extend(self.without_disk(cluster, deployment, opened).await?);
        }
        let (names, mut whys): (Vec<String>, Vec<String>) = pools
            .iter()
            .filter_map(|pool| awaits(pool, &pools, &looks).map(|why| (pool.name_any(), why)))
            .map(|(name, why)| (name.clone(), format!("{name}: {why}")))
            .unzip();
        if !names.is_empty() {
            let more = names.len().saturating_sub(REASONS);
            whys.truncate(REASONS);
            whys.extend((more > 0).then(|| format!("and {more} more")));
            awaited.push(format!("it waits for the NodePool {} ({})", names.join(", "), whys.join("; ")));
        }
        if !awaited.is_empty() {
            return Ok(waits(&awaited.join("; ")));
        }
        self.remove_adopt_annotation(cluster).await?;
        Ok(Drift::Ends(StepOutcome::RequeueNow))
    }

    /// Why control-plane nodes that have VMs, but run in none, are not given up. A swap may be moving their data disks, or the
    /// VMs cannot be listed. No VM counts as newer there, as long as no other node has moved. `None` without such nodes.
    async fn without_disk(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        opened: &ProviderSession,
    ) -> Result<Option<String>, ReconcileError> {
        let operations = self.operations(cluster).await?;
        if last_swap(&operations).filter(is_open_swap).is_some() {
            return Ok(None);
        }
        let vms = opened.hypervisor.vms().await;
        self.term.ensure_active()?;
        Ok(match vms {
            Ok(vms) => without_disk(&deployment.record, &vms),
            Err(error) => Some(format!("VMs could not be listed: {}", shortened(&error.to_string()))),
        })
    }

    /// Writes that VMs are newer than the record.
    async fn report_drift(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        seen: &DeployStatus,
        words: String,
    ) -> Result<StepOutcome, ReconcileError> {
        let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
        let adopts = waits_for(cluster, "this blocks it");
        self.say(cluster, machines, seen, OperationPhase::Drifted(words), is_at_hand, adopts).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }

    /// Removes the annotation that requests the adoption.
    async fn remove_adopt_annotation(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        let Some(now) = self.find(cluster).await?.filter(is_to_adopt) else { return Ok(()) };
        kinds::remove_annotation(self.objects, &now, ADOPT).await.attempting("taking away that VMs are to be adopted")
    }

    /// The VMs that are newer than the cluster's record, or than the journal of an open swap. `None` if the VMs cannot be listed.
    pub(in crate::reconcilers::tenant_cluster) async fn newer(
        &self,
        cluster: &TenantCluster,
        opened: &ProviderSession,
        seen: &DeployStatus,
    ) -> Result<Option<Vec<Vm>>, ReconcileError> {
        if !seen.looked {
            return Ok(None);
        }
        if !seen.newer.is_empty() {
            return Ok(Some(seen.newer.clone()));
        }
        self.ahead(cluster, opened).await
    }

    /// The VMs that are newer than the journal of an open swap. `None` if they cannot be listed.
    async fn ahead(
        &self,
        cluster: &TenantCluster,
        opened: &ProviderSession,
    ) -> Result<Option<Vec<Vm>>, ReconcileError> {
        let operations = self.operations(cluster).await?;
        let Some(open) = last_swap(&operations).filter(is_open_swap) else { return Ok(Some(Vec::new())) };
        let vms = opened.hypervisor.vms().await.inspect_err(|error| log::debug!("looking for VMs: {error}"));
        self.term.ensure_active()?;
        Ok(vms.ok().map(|vms| ahead(open, &vms)))
    }
}

/// Why workers of a pool may be newer than the database. The pool says so, its last look failed, or it was not looked at in this
/// term. Without a look its status may be from before a restore. `None` if they are not, or if the pool is one too many for its
/// cluster: such a pool is not looked at.
fn awaits(pool: &NodePool, all: &[NodePool], looks: &ObservedGenerations) -> Option<String> {
    let (uid, generation) = (pool.metadata.uid.as_deref().unwrap_or_default(), pool.metadata.generation);
    let is_known = looks.have(uid, generation.unwrap_or_default());
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.about == NodePoolReason::AdoptionRequired.condition());
    let says = |reason: NodePoolReason| ready.is_some_and(|ready| ready.reason == reason.word());
    if says(NodePoolReason::AdoptionRequired) {
        return Some("its workers are newer than the database".to_owned());
    }
    if says(NodePoolReason::TooMany) && is_one_too_many(pool, all) {
        return None;
    }
    // A pool without workers that is being deleted is no longer looked at.
    let is_unknown = !is_known && pool.metadata.deletion_timestamp.is_none();
    if !is_unknown && !says(NodePoolReason::NotReached) {
        return None;
    }
    let why = ready.filter(|ready| ready.status != ConditionStatus::True);
    let why = why.map(|ready| format!(", {}, {}", ready.reason, shortened(&ready.message))).unwrap_or_default();
    Some(format!("its workers were not looked at yet{why}"))
}

fn waits(why: &str) -> Drift {
    Drift::Passes(Some(stays(why)))
}
