//! VMs of control nodes that are newer than the control cluster's database, which was restored from a snapshot: what is kept of them says
//! too little, and whoever went by it would do again what was done since, or undo it. So nothing is done, until a person has them taken as
//! they are.

use fleet::deploy::{DeployStatus, Guests};
use fleet::hypervisor::Vm;

use super::super::maintain::STUCK;
use super::super::place::Opened;
use super::super::{After, Work};
use crate::context::{Attempt, Trouble};
use crate::decisions::{
    Doing, ahead, are_bare, drifted, is_open_swap, is_to_adopt, last_swap, may_adopt, why_not_adopted,
};
use crate::objects::{ADOPT, Deployment, Machine, NodePool, NodePoolReason, Reason as _, TenantCluster};
use crate::reach::kinds;

impl Work<'_> {
    /// What is done where VMs are newer than the database, or a person has asked for them to be adopted; none where neither is so.
    pub(in crate::reconcilers::tenant_cluster) async fn drifts(
        &self,
        cluster: &TenantCluster,
        (deployment, machines): (&Deployment, &[Machine]),
        (opened, guests): (&Opened, &dyn Guests),
        (seen, newer): (&DeployStatus, &[Vm]),
    ) -> Result<Option<After>, Trouble> {
        if let Some(words) = drifted(newer) {
            // Whoever is told to adopt them is not refused for what they are then.
            if are_bare(newer)
                && let Some(why) = why_not_adopted(self.ahead(cluster, opened).await?.as_deref())
            {
                return self.has_drifted(cluster, machines, seen, format!("{words}. {why}")).await.map(Some);
            }
            if !is_to_adopt(cluster) {
                return self.has_drifted(cluster, machines, seen, may_adopt(&words, cluster)).await.map(Some);
            }
            return match self.adopts(cluster, (deployment, machines), (opened, guests)).await? {
                // What is left is seen by the next look: the word is taken away once that is nothing.
                Ok(()) => Ok(Some(After::Again)),
                // It stays asked for: what is in the way may pass by itself, and may be mended.
                Err(why) => {
                    let words = format!("{words}. They are not adopted yet: {why}");
                    self.has_drifted(cluster, machines, seen, words).await.map(Some)
                }
            };
        }
        if !is_to_adopt(cluster) {
            return Ok(None);
        }
        // What nodes are only ready for no VM shows.
        match self.cancels_prepared(cluster, deployment, (opened, guests)).await? {
            Some(Ok(())) => {}
            Some(Err(words)) => return self.has_drifted(cluster, machines, seen, words).await.map(Some),
            // It stays asked for, and keeps nothing else from being done.
            None => return Ok(None),
        }
        // Workers are their pools' to adopt, which say so once they have looked at them.
        if self.pools(cluster).await?.iter().any(|pool| self.pool_may_have_drifted(pool)) {
            return Ok(None);
        }
        self.has_adopted(cluster).await?;
        Ok(Some(After::Again))
    }

    /// Whether a pool has workers that are newer than the database, as it says itself, or nobody could look at them last; or nobody has in
    /// this term, for what it says then may be of before the database was turned back.
    fn pool_may_have_drifted(&self, pool: &NodePool) -> bool {
        let (uid, generation) = (pool.metadata.uid.as_deref().unwrap_or_default(), pool.metadata.generation);
        let is_known = self.term.has_looked_at(uid, generation.unwrap_or_default());
        let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
        let reasons = [NodePoolReason::Drifted, NodePoolReason::NotReached];
        let says_so = conditions.any(|condition| {
            reasons.iter().any(|reason| condition.about == reason.condition() && condition.reason == reason.word())
        });
        // One that goes and has no worker is looked at no more.
        says_so || (!is_known && pool.metadata.deletion_timestamp.is_none())
    }

    /// Says that VMs are newer than what is kept of them.
    async fn has_drifted(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        seen: &DeployStatus,
        words: String,
    ) -> Result<After, Trouble> {
        let is_at_hand = self.kubeconfig_ends(cluster).await?.is_some();
        self.say(cluster, machines, seen, Doing::HasDrifted(words), is_at_hand).await?;
        Ok(After::Rest(STUCK))
    }

    /// Takes away that a person has asked for VMs to be adopted: it is noted.
    async fn has_adopted(&self, cluster: &TenantCluster) -> Result<(), Trouble> {
        let Some(now) = self.find(cluster).await?.filter(is_to_adopt) else { return Ok(()) };
        kinds::remove_annotation(self.objects, &now, ADOPT).await.attempting("taking away that VMs are to be adopted")
    }

    /// The VMs that are newer than what is kept of the cluster, or than the journal of a swap that is open; none at all where the place
    /// does not say.
    pub(in crate::reconcilers::tenant_cluster) async fn newer(
        &self,
        cluster: &TenantCluster,
        opened: &Opened,
        seen: &DeployStatus,
    ) -> Result<Option<Vec<Vm>>, Trouble> {
        if !seen.looked {
            return Ok(None);
        }
        if !seen.newer.is_empty() {
            return Ok(Some(seen.newer.clone()));
        }
        self.ahead(cluster, opened).await
    }

    /// The VMs that are newer than the journal of a swap that is open; none at all where the place does not say.
    async fn ahead(&self, cluster: &TenantCluster, opened: &Opened) -> Result<Option<Vec<Vm>>, Trouble> {
        let operations = self.operations(cluster).await?;
        let Some(open) = last_swap(&operations).filter(is_open_swap) else { return Ok(Some(Vec::new())) };
        let vms = opened.hypervisor.vms().await.inspect_err(|error| log::debug!("looking for VMs: {error}"));
        self.term.may()?;
        Ok(vms.ok().map(|vms| ahead(open, &vms)))
    }
}
