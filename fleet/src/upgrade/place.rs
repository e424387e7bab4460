//! Whether the place of a deployment's journals permits its VMs to be upgraded, or adopted. Another deployment's place
//! does not, nor that of a cluster which is being destroyed. It is looked at before the lease is acquired, and again
//! under it: until then others may have begun something there.

use anyhow::{Context, bail};
use uuid::Uuid;

use super::deployment::Deployment;
use super::last_upgrade::LastUpgrade;
use crate::control_plane::{Lifecycle, OtherDeployment, begun, ended_with_its_cluster};

impl Deployment<'_> {
    /// Refuses to begin or continue an upgrade of a cluster that is being destroyed. A disk that it takes from a VM
    /// would have no owner once the VMs are gone, and what it needs may be gone already. Adopting VMs is refused, too:
    /// they are not noted, and the removal would wait for each.
    ///
    /// # Errors
    /// When it is so, what was begun there is another deployment's, or the store does not answer.
    pub(super) async fn may_be_upgraded(&self) -> anyhow::Result<()> {
        match begun(self.store, self.hypervisor.deployment()).await? {
            Some(kept) if kept.lifecycle == Lifecycle::Deleting => {
                bail!("the cluster {} is being deleted: finish that first; nothing was changed", kept.cluster)
            }
            _ => Ok(()),
        }
    }

    /// Refuses to begin an upgrade of a cluster whose VMs are noted, but not that it has formed. Until that is noted
    /// `kaas control create` works with the VMs that it has created itself. With those of an upgrade in their place it would be
    /// stuck forever. If one of its VMs is gone it is stuck already, and an upgrade does not make that worse.
    pub(super) async fn has_formed_if_begun(&self) -> anyhow::Result<()> {
        let Some(kept) = begun(self.store, self.hypervisor.deployment()).await? else { return Ok(()) };
        let noted: Vec<Uuid> = kept.nodes.iter().filter_map(|node| node.bios_uuid).collect();
        if kept.lifecycle != Lifecycle::Active || kept.formed || noted.is_empty() {
            return Ok(());
        }
        let vms = self.hypervisor.vms().await.context("reading the hypervisor's inventory")?;
        if !noted.iter().all(|noted| vms.iter().any(|vm| vm.uuid() == *noted)) {
            return Ok(());
        }
        bail!(
            "no record shows that the cluster {} has formed: finish its creation first, with the cluster file, the key and the \
             version of this program that it was begun with; nothing was changed",
            kept.cluster
        )
    }

    /// Refuses to continue an upgrade that has ended with its cluster: that one was destroyed, and the present one is
    /// another.
    pub(super) async fn has_not_ended_with_its_cluster(&self, upgrade: Uuid) -> anyhow::Result<()> {
        if ended_with_its_cluster(self.store).await? == Some(upgrade) {
            bail!(
                "the upgrade {upgrade} has ended with its cluster, which was deleted: nothing of it goes on, and it can be \
                 abandoned"
            );
        }
        Ok(())
    }

    /// Refuses a place with something of another deployment.
    pub(super) async fn is_its_place(&self) -> anyhow::Result<()> {
        begun(self.store, self.hypervisor.deployment()).await?;
        match LastUpgrade::find(self.store).await?.noted() {
            Some(last) => Ok(self.is_its_upgrade(last.deployment)?),
            None => Ok(()),
        }
    }

    /// Refuses an upgrade of another deployment.
    pub(super) fn is_its_upgrade(&self, noted: Uuid) -> Result<(), OtherDeployment> {
        let here = self.hypervisor.deployment();
        let whose = "that of an upgrade".to_owned();
        if noted == here { Ok(()) } else { Err(OtherDeployment { whose, noted, here }) }
    }
}
