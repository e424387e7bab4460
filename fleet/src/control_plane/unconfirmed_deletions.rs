//! Updates the record of disks whose removal was requested without a known result, after a search for them. A disk that exists is
//! no longer in doubt once no removal is running.

use super::deployment_record::DeploymentRecord;
use super::go::Deploy;
use super::goal::Goal;
use super::inventory::Inventory;
use super::upgraded::Upgraded;
use crate::hypervisor::DiskRef;

impl Deploy<'_> {
    /// Searches for such disks. Returns the record, and the disks that are no longer listed.
    ///
    /// If a disk exists, or a VM holds it elsewhere, its removal did not happen. A missing disk may be gone or elsewhere. A
    /// removal of the cluster lists it as retained, until an operator who was shown that it is missing has confirmed it. If it is
    /// seen again after that, it was not shown as one to remove: it is retained. An unreadable disk stays as it is recorded.
    ///
    /// # Errors
    /// If the cluster is to be removed, and its VMs cannot be read.
    pub(super) async fn without_doubt(
        &self,
        wish: Goal<'_>,
        mut kept: DeploymentRecord,
        upgraded: &Upgraded,
    ) -> anyhow::Result<(DeploymentRecord, Vec<DiskRef>)> {
        let in_doubt = kept.in_doubt();
        let (vms, shown) = match wish {
            Goal::Destroy { doubtful, .. } if !in_doubt.is_empty() => {
                (self.seen_to_destroy(&kept, upgraded).await?, Some(doubtful))
            }
            Goal::Deploy(_) | Goal::Continue | Goal::Replace { .. } | Goal::Destroy { .. } => {
                (Inventory::default(), None)
            }
        };
        let mut forgotten = Vec::new();
        // Before the disks are searched: a disk that exists then, and that no client removes, stays.
        let may_go = !in_doubt.is_empty() && self.may_go_yet().await;
        for disk in in_doubt {
            let there = self.hypervisor.has_disk(&disk).await;
            if let Err(error) = &there {
                log::warn!("cannot read whether the disk {} is at {}: {error}", disk.uuid, disk.path);
            }
            let elsewhere = vms.holder_elsewhere(&disk).filter(|_| !matches!(there, Ok(true)));
            if let Some((_, now)) = elsewhere {
                kept = kept.moved(&disk, now);
                continue;
            }
            kept = match (there, shown.map(|shown| shown.contains(&disk))) {
                (Ok(true), Some(true)) if may_go => kept.leaving(&disk),
                (Ok(true), _) if may_go => kept,
                (Ok(true), Some(true)) => kept.leaving(&disk).not_removing(&disk),
                (Ok(true), _) => kept.not_removing(&disk),
                (Ok(false), Some(true)) => {
                    let without = kept.forgetting(&disk);
                    forgotten.push(disk);
                    without
                }
                (Ok(false), Some(false)) | (Err(_), Some(true)) => kept.leaving(&disk),
                (Ok(false), None) | (Err(_), _) => kept,
            };
        }
        Ok((kept, forgotten))
    }

    /// Whether an existing disk may still be removed by an earlier request. Requests of other accounts are not awaited. True if
    /// this is unknown.
    pub(super) async fn may_go_yet(&self) -> bool {
        self.hypervisor.has_pending_deletes().await.unwrap_or_else(|error| {
            log::warn!("cannot read whether a removal of a disk still runs: {error}");
            true
        })
    }
}
