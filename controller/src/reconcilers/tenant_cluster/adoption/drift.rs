//! VMs of control nodes that are newer than the control cluster's database, which was restored from a snapshot: what is kept of them says
//! too little, and whoever went by it would do again what was done since, or undo it. So nothing is done, until a person has them taken as
//! they are.

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
use crate::records::deployment_record;
use crate::term::ObservedGenerations;

/// Of so many pools it is said beside their names why a person's word waits for them: there is to be room for all else.
const REASONS: usize = 3;

/// What comes of VMs that are newer than the database, and of a person's word to adopt what is there.
pub(in crate::reconcilers::tenant_cluster) enum Drift {
    /// Nothing else is done before the next look.
    Ends(StepOutcome),
    /// All else is done. Why the word stays, for people; none where there is none.
    Passes(Option<String>),
}

impl Reconciler<'_> {
    /// What is done where VMs are newer than the database, or a person has asked for them to be adopted.
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
                // What nodes are only ready for no VM shows.
                CancelResult::All => return self.ends_adoption(cluster, deployment, (opened, seen)).await,
                CancelResult::Waits(why) => return Ok(waits(&why)),
                CancelResult::Otherwise => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                CancelResult::Refused(words) => words,
            },
            Some(words) => {
                // Whoever is told to adopt them is not refused for what they are then.
                let refused = match are_bare(newer) {
                    true => why_not_adopted(self.ahead(cluster, opened).await?.as_deref()),
                    false => None,
                };
                match refused {
                    Some(why) => format!("{words}. {why}"),
                    None if !is_to_adopt(cluster) => may_adopt(&words, cluster),
                    None => match self.adopts(cluster, (deployment, machines), (opened, guests)).await? {
                        // What is left is seen by the next look: the word is taken away once that is nothing.
                        Ok(()) => return Ok(Drift::Ends(StepOutcome::RequeueNow)),
                        // It stays asked for: what is in the way may pass by itself, and may be mended.
                        Err(why) => format!("{words}. They are not adopted yet: {why}"),
                    },
                }
            }
        };
        self.report_drift(cluster, machines, seen, drifted).await.map(Drift::Ends)
    }

    /// Takes the word away once nothing is left to adopt. Workers are their pools' to adopt, which say so once they have looked at them.
    async fn ends_adoption(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        (opened, seen): (&ProviderSession, &DeployStatus),
    ) -> Result<Drift, ReconcileError> {
        // Before they are listed: one may be looked at meanwhile, and what is listed of it is of before.
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

    /// Why control nodes that have VMs and run in none are not given up: their data disks may be on their way, and not by a swap whose journal
    /// says so, or that nobody could look for them. Of these nothing is newer where no other node has moved. None where there are no such nodes.
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
        let kept = deployment_record(&cluster.name_any(), deployment).map_err(anyhow::Error::from)?;
        let vms = opened.hypervisor.vms().await;
        self.term.ensure_active()?;
        Ok(match vms {
            Ok(vms) => without_disk(&kept, &vms),
            Err(error) => Some(format!("nobody could look for VMs: {}", shortened(&error.to_string()))),
        })
    }

    /// Says that VMs are newer than what is kept of them.
    async fn report_drift(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        seen: &DeployStatus,
        words: String,
    ) -> Result<StepOutcome, ReconcileError> {
        let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
        let adopts = waits_for(cluster, "this is in the way");
        self.say(cluster, machines, seen, OperationPhase::Drifted(words), is_at_hand, adopts).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }

    /// Takes away that a person has asked for VMs to be adopted: it is noted.
    async fn remove_adopt_annotation(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        let Some(now) = self.find(cluster).await?.filter(is_to_adopt) else { return Ok(()) };
        kinds::remove_annotation(self.objects, &now, ADOPT).await.attempting("taking away that VMs are to be adopted")
    }

    /// The VMs that are newer than what is kept of the cluster, or than the journal of a swap that is open; none at all where the place
    /// does not say.
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

    /// The VMs that are newer than the journal of a swap that is open; none at all where the place does not say.
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

/// Why workers of a pool may be newer than the database: it says so itself, or nobody could look at them last; or nobody has in this term,
/// for what it says then may be of before the database was turned back. None where they are not, and for one that is one too many among all of
/// its cluster: it is not looked at for as long as it is one.
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
    // One that goes and has no worker is looked at no more.
    let is_unknown = !is_known && pool.metadata.deletion_timestamp.is_none();
    if !is_unknown && !says(NodePoolReason::NotReached) {
        return None;
    }
    let why = ready.filter(|ready| ready.status != ConditionStatus::True);
    let why = why.map(|ready| format!(", {}, {}", ready.reason, shortened(&ready.message))).unwrap_or_default();
    Some(format!("nobody has looked at its workers yet{why}"))
}

fn waits(why: &str) -> Drift {
    Drift::Passes(Some(stays(why)))
}
