//! Disks whose removal was asked for by a command that was not told what came of it: what is kept of them once it was looked for them.

use super::go::Deploy;
use super::kept::Kept;
use super::wish::Wish;

impl Deploy<'_> {
    /// What is kept once it was looked for such disks. Of one that is there nothing has come. One that is not there may be gone or
    /// elsewhere: whoever has the cluster removed has it named as left, until a person has confirmed it who was shown that it is not there.
    /// One that is seen again after that was shown was not shown as what goes: it is left. What cannot be seen stays as it is noted.
    pub(super) async fn without_doubt(&self, wish: Wish<'_>, mut kept: Kept) -> Kept {
        for disk in kept.in_doubt() {
            let seen = self.hypervisor.has_disk(&disk).await;
            if let Err(error) = &seen {
                log::warn!("whether the disk {} is at {} nobody can say: {error}", disk.uuid, disk.path);
            }
            let shown_as_missing = match wish {
                Wish::Deploy(_) => None,
                Wish::Destroy { doubtful, .. } => Some(doubtful.contains(&disk)),
            };
            kept = match (seen, shown_as_missing) {
                (Ok(true), Some(true)) => kept.missing(&disk).not_removing(&disk),
                (Ok(true), _) => kept.not_removing(&disk),
                (Ok(false), Some(true)) => kept.forgetting(&disk),
                (Ok(false), Some(false)) | (Err(_), Some(true)) => kept.missing(&disk),
                (Ok(false), None) | (Err(_), _) => kept,
            };
        }
        kept
    }
}
