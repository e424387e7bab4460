//! VMs of control-plane nodes that are newer than the control cluster's database, which was restored from a snapshot. The stored
//! record is incomplete: acting on it would repeat or undo later changes. So nothing is done until the operator has them adopted.

use fleet::control_plane::DeployStatus;
use fleet::hypervisor::Vm;
use kube::ResourceExt;

use super::{Round, STUCK, StepOutcome};
use crate::context::{Attempt, Halt, ReconcileError};
use crate::decisions::{
    ahead, are_bare, drifted, is_one_too_many, is_open_swap, is_to_adopt, last_swap, may_adopt, why_not_adopted,
    without_disk,
};
use crate::objects::{
    ADOPT, ConditionStatus, NodePool, NodePoolReason, Reason as _, TenantCluster, TenantClusterReason,
};
use crate::reach::kinds;
use crate::term::ObservedGenerations;

/// The number of characters of a reason that is quoted. Its source has the whole text.
const MOST: usize = 120;
/// The number of pools whose reason is in the message, to leave room for the rest.
const REASONS: usize = 3;

/// The result of a check for VMs that are newer than the database, and for the operator's request to adopt.
pub(super) enum Drift {
    /// Nothing else is done before the next look.
    Ends(StepOutcome),
    /// All else is done. Contains why the operator's request is still open. `None` without a request.
    Passes(Option<String>),
}

/// The result of cancelling swaps that nodes have prepared, or failed to prepare.
pub(super) enum CancelResult {
    /// None is left.
    All,
    /// Swaps that were not cancelled, with the reason.
    Refused(String),
    /// It is unknown whether there are any, with the reason. The next look tries again.
    Waits(String),
    /// The desired state has changed, or the term is closing.
    Otherwise,
}

impl Round<'_> {
    /// Handles VMs that are newer than the database, and the operator's request to adopt.
    pub(super) async fn handle_drift(&self, seen: &DeployStatus, newer: &[Vm]) -> Result<Drift, ReconcileError> {
        let cluster = self.cluster;
        let drifted = match drifted(newer) {
            None if !is_to_adopt(cluster) => return Ok(Drift::Passes(None)),
            None => match self.cancel_prepared().await? {
                // A swap that nodes have only prepared is not visible in their VMs.
                CancelResult::All => return self.ends_adoption(seen).await,
                CancelResult::Waits(why) => return Ok(waits(&why)),
                CancelResult::Otherwise => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                CancelResult::Refused(words) => words,
            },
            Some(words) => {
                // These VMs cannot be adopted as they are, so the message does not suggest it.
                let refused = match are_bare(newer) {
                    true => why_not_adopted(self.ahead().await?.as_deref()),
                    false => None,
                };
                match refused {
                    Some(why) => format!("{words}. {why}"),
                    None if !is_to_adopt(cluster) => may_adopt(&words, cluster),
                    None => match self.adopt_nodes().await {
                        // The next look finds what is left, and ends the request if there is nothing.
                        Ok(()) => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                        Err(Halt::Failed(error)) => return Err(error),
                        // The request stays open: the obstacle may pass, or the operator fixes it.
                        Err(Halt::Refused(why)) => format!("{words}. They are not adopted yet: {why}"),
                    },
                }
            }
        };
        self.say(seen, (TenantClusterReason::AdoptionRequired, drifted), waits_for(cluster, "this blocks it")).await?;
        Ok(Drift::Ends(StepOutcome::RequeueAfter(STUCK)))
    }

    /// Ends the request once nothing is left to adopt. Workers are adopted by their pools, which report it after a look.
    async fn ends_adoption(&self, seen: &DeployStatus) -> Result<Drift, ReconcileError> {
        // Read before the list: a pool may be looked at in between, and its listed status is from before that.
        let looks = self.term.observed_generations();
        let pools = self.pools(self.cluster).await?;
        let mut awaited = Vec::new();
        if seen.waits.iter().any(|wait| wait.lasting) {
            awaited.extend(self.without_disk().await?);
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
        if let Some(now) = self.find(self.cluster).await?.filter(is_to_adopt) {
            let removed = kinds::remove_annotation(self.objects, &now, ADOPT).await;
            removed.attempting("taking away that VMs are to be adopted")?;
        }
        Ok(Drift::Ends(StepOutcome::RequeueNow))
    }

    /// Why control-plane nodes that have VMs, but run in none, are not given up. A swap may be moving their data disks, or the
    /// VMs cannot be listed. No VM counts as newer there, as long as no other node has moved. `None` without such nodes.
    async fn without_disk(&self) -> Result<Option<String>, ReconcileError> {
        let operations = self.operations(self.cluster).await?;
        if last_swap(&operations).filter(is_open_swap).is_some() {
            return Ok(None);
        }
        let kept = self.record()?;
        let vms = self.opened.hypervisor.vms().await;
        self.term.ensure_active()?;
        Ok(match vms {
            Ok(vms) => without_disk(kept, &vms),
            Err(error) => Some(format!("VMs could not be listed: {}", shortened(&error.to_string()))),
        })
    }

    /// The VMs that are newer than the cluster's record, or than the journal of an open swap. `None` if the VMs cannot be listed.
    pub(super) async fn newer(&self, seen: &DeployStatus) -> Result<Option<Vec<Vm>>, ReconcileError> {
        if !seen.looked {
            return Ok(None);
        }
        if !seen.newer.is_empty() {
            return Ok(Some(seen.newer.clone()));
        }
        self.ahead().await
    }

    /// The VMs that are newer than the journal of an open swap. `None` if they cannot be listed.
    async fn ahead(&self) -> Result<Option<Vec<Vm>>, ReconcileError> {
        let operations = self.operations(self.cluster).await?;
        let Some(open) = last_swap(&operations).filter(is_open_swap) else { return Ok(Some(Vec::new())) };
        let vms = self.opened.hypervisor.vms().await.inspect_err(|error| log::debug!("looking for VMs: {error}"));
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

/// Why the operator's request stays open while VMs cannot be listed. `None` without a request.
pub(super) fn waits_for_a_look(cluster: &TenantCluster) -> Option<String> {
    waits_for(cluster, "the VMs of its control-plane nodes could not be listed")
}

/// As `waits_for_a_look`, for this reason.
pub(super) fn waits_for(cluster: &TenantCluster, why: &str) -> Option<String> {
    is_to_adopt(cluster).then(|| stays(why))
}

/// A message, after why the operator's request is still open, if there is one.
pub(super) fn after_word(adopts: Option<&str>, words: &str) -> String {
    match adopts {
        Some(adopts) => format!("{adopts}; {words}"),
        None => words.to_owned(),
    }
}

/// Why a request is still open, and how to withdraw it. The reason is last, because the end of a long message is cut.
fn stays(why: &str) -> String {
    format!(
        "the adoption was requested, and stays so until it is done, or until the annotation {ADOPT} is removed. It is \
         not done yet: {why}"
    )
}

pub(super) fn shortened(why: &str) -> String {
    match why.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &why[..end]),
        None => why.to_owned(),
    }
}
