//! Disks whose removal was asked for by a command that was not told what came of it: what is kept of them once it was looked for them. One that is
//! there is not in doubt any more once nobody's removal goes on.

use super::deployment_record::DeploymentRecord;
use super::go::Deploy;
use super::goal::Goal;
use super::inventory::Inventory;
use super::upgraded::Upgraded;
use crate::hypervisor::DiskRef;

impl Deploy<'_> {
    /// What is kept once it was looked for such disks, and which of them are named no more. Of one that is there nothing has come, nor of one
    /// that a VM holds elsewhere. One that is not there may be gone or elsewhere: whoever has the cluster removed has it named as left, until
    /// a person has confirmed it who was shown that it is not there. One that is seen again after that was shown was not shown as what
    /// goes: it is left. What cannot be seen stays as it is noted.
    ///
    /// # Errors
    /// When the cluster is to be removed, and its VMs cannot be looked at.
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
            Goal::Deploy(_) | Goal::Destroy { .. } => (Inventory::default(), None),
        };
        let mut forgotten = Vec::new();
        // Before it is looked for the disks: one that is there by then, and that nobody removes any more, stays there.
        let may_go = !in_doubt.is_empty() && self.may_go_yet().await;
        for disk in in_doubt {
            let there = self.hypervisor.has_disk(&disk).await;
            if let Err(error) = &there {
                log::warn!("whether the disk {} is at {} nobody can say: {error}", disk.uuid, disk.path);
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

    /// Whether a disk that is there may go yet by a removal that was asked for before: what other accounts have asked for is not waited for.
    /// So it may where nobody can say.
    pub(super) async fn may_go_yet(&self) -> bool {
        self.hypervisor.has_pending_deletes().await.unwrap_or_else(|error| {
            log::warn!("whether a removal of a disk still goes on nobody can say: {error}");
            true
        })
    }
}
