//! The last upgrade in a cluster's store, as it concerns that cluster. Only its records of the cluster's own VMs and disks are
//! used. Another deployment's upgrade is ignored, and an unreadable one may be of any deployment.

use anyhow::bail;
use uuid::Uuid;

use super::deployment_record::{DeploymentRecord, OtherDeployment};
use crate::lease::Store;
use crate::upgrade::{Damaged, DiskCopy, LastUpgrade, UpgradeSummary};

/// The last upgrade, as it concerns a cluster.
pub(super) struct Upgraded {
    /// Its ID, if that is known.
    pub(super) id: Option<Uuid>,
    /// Its records of the cluster's VMs and disks. `None` for another deployment's upgrade, and for one that ended with a removed
    /// cluster.
    pub(super) own: Option<UpgradeSummary>,
    /// Why the journals stay once nothing of the cluster is left. `None` if they can be removed.
    pub(super) stays: Option<&'static str>,
    hinders: Option<BlockedBy>,
}

enum BlockedBy {
    /// An upgrade of the cluster itself. `is_at_rest`: nodes may be in their VMs as long as it is open.
    Open {
        is_at_rest: bool,
    },
    Another(OtherDeployment),
    Damaged(Damaged),
}

impl Upgraded {
    /// Reads it. `kept` is the former record of the cluster.
    pub(super) async fn find(
        store: &dyn Store,
        deployment: Uuid,
        kept: Option<&DeploymentRecord>,
    ) -> anyhow::Result<Self> {
        let last = LastUpgrade::find(store).await?;
        let noted = last.noted();
        // An upgrade of a cluster that was destroyed since has ended with it. A later one is of VMs that replaced it.
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

    /// The recorded copies of the cluster's data disks.
    pub(super) fn copies(&self) -> &[DiskCopy] {
        self.own.as_ref().map(|own| own.copies.as_slice()).unwrap_or_default()
    }

    /// Refuses to create a cluster, or to continue that, while VMs may be an upgrade's. A formed cluster that is not removed is
    /// only powered on: an upgrade that waits for the operator, or has begun no node, permits that.
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
