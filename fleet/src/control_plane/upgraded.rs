//! What the last upgrade in a cluster's store is to that cluster. Only what it has noted of the cluster's own VMs and disks is handed
//! on; another deployment's upgrade is nothing to it, and what cannot be read may be anybody's.

use anyhow::bail;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, OtherDeployment};
use crate::lease::Store;
use crate::upgrade::{Damaged, DiskCopy, LastUpgrade, UpgradeSummary};

/// The last upgrade, as a cluster sees it.
pub(super) struct Upgraded {
    /// Its name, if that is known.
    pub(super) id: Option<Uuid>,
    /// What it has noted of the cluster's VMs and disks; none of another deployment's, nor of one that has ended with a cluster
    /// which is gone.
    pub(super) own: Option<UpgradeSummary>,
    /// Why the journals stay once nothing of the cluster is left; none if nothing keeps them.
    pub(super) stays: Option<&'static str>,
    hinders: Option<BlockedBy>,
}

enum BlockedBy {
    /// One of the cluster itself; whether nodes may be in their VMs for as long as it is open.
    Open {
        is_at_rest: bool,
    },
    Another(OtherDeployment),
    Damaged(Damaged),
}

impl Upgraded {
    /// Finds it. `kept` is what was begun for the cluster before.
    pub(super) async fn find(
        store: &dyn Store,
        deployment: Uuid,
        kept: Option<&DeploymentRecord>,
    ) -> anyhow::Result<Self> {
        let last = LastUpgrade::find(store).await?;
        let noted = last.noted();
        // One of a cluster that was destroyed since has ended with it; one that began later is of VMs that took its place.
        let goes_on = noted.filter(|noted| Some(noted.id) != kept.and_then(|kept| kept.upgrade));
        let (id, own) = (noted.map(|noted| noted.id), goes_on.filter(|noted| noted.deployment == deployment).cloned());
        let stays = match &last {
            LastUpgrade::Known(noted) if noted.deployment != deployment => {
                Some("the last upgrade in them is another deployment's")
            }
            LastUpgrade::Nothing | LastUpgrade::Known(_) => None,
            LastUpgrade::Unknown { .. } => Some("the last upgrade in them cannot be read"),
        };
        let open = goes_on.filter(|noted| noted.is_open);
        let hinders = match &last {
            LastUpgrade::Unknown { damage, .. } => damage.clone().map(BlockedBy::Damaged),
            LastUpgrade::Nothing | LastUpgrade::Known(_) => open.map(|open| match open.deployment {
                noted if noted == deployment => BlockedBy::Open { is_at_rest: open.is_at_rest },
                noted => {
                    let whose = "that of an upgrade".to_owned();
                    BlockedBy::Another(OtherDeployment { whose, noted, here: deployment })
                }
            }),
        };
        Ok(Self { id, own, stays, hinders })
    }

    /// The copies of the cluster's data disks that are noted.
    pub(super) fn copies(&self) -> &[DiskCopy] {
        self.own.as_ref().map(|own| own.copies.as_slice()).unwrap_or_default()
    }

    /// Refuses to make a cluster, or to go on making one, while VMs may be an upgrade's. One that has formed, and is not removed, is only
    /// powered on: that may be where an upgrade waits for a person, or has begun nothing of any node.
    pub(super) fn permits_deploy(&self, has_formed: bool) -> anyhow::Result<()> {
        match &self.hinders {
            None => Ok(()),
            Some(BlockedBy::Open { is_at_rest: true }) if has_formed => Ok(()),
            Some(BlockedBy::Open { .. }) => bail!("an upgrade of this cluster is open: end it first"),
            Some(BlockedBy::Another(other)) => Err(other.clone().into()),
            Some(BlockedBy::Damaged(damage)) => Err(damage.clone().into()),
        }
    }
}
