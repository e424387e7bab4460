//! VMs of control nodes that are newer than the control cluster's database, which was restored from a snapshot: what is kept of them says
//! too little, and whoever went by it would do again what was done since, or undo it. So nothing is done.

use fleet::deploy::DeployStatus;
use fleet::hypervisor::Vm;

use super::change::last_swap;
use super::place::Opened;
use super::run::STUCK;
use super::{After, Work};
use crate::context::Trouble;
use crate::decisions::{Doing, ahead};
use crate::objects::{Machine, TenantCluster};

impl Work<'_> {
    /// Says that VMs are newer than what is kept of them.
    pub(super) async fn has_drifted(
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

    /// The VMs that are ahead of the journal of the last swap; none at all where the place does not say.
    pub(super) async fn ahead(&self, cluster: &TenantCluster, opened: &Opened) -> Result<Option<Vec<Vm>>, Trouble> {
        let operations = self.operations(cluster).await?;
        let Some(swap) = last_swap(&operations) else { return Ok(Some(Vec::new())) };
        let vms = opened.hypervisor.vms().await.inspect_err(|error| log::debug!("looking for VMs: {error}"));
        self.term.may()?;
        Ok(vms.ok().map(|vms| ahead(swap, &vms)))
    }
}
