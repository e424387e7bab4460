//! Control nodes of another size: a swap of the image that they run, into VMs that are larger or smaller. What else there is to a swap is
//! that of any image. Pure.
//!
//! | The size is another one than is pinned | What follows |
//! |---|---|
//! | with another image | new VMs get it with the image |
//! | a person has named another class | a swap of the same image begins at once |
//! | `auto`, and its workers have outgrown it | the same, in the maintenance window; without one with the next image |

use super::change::{Change, SeenCluster};
use super::obstacle::Obstacle;
use super::sizes::pinned_size;
use super::swapping::{Ending, Swapping};
use crate::objects::{AUTO, ControlPlaneSize, Operation, Resolved, TenantClusterReason};

impl SeenCluster<'_> {
    /// Whether the size of control nodes is by the number of workers: nobody has named it.
    pub(super) fn is_automatic(&self) -> bool {
        self.cluster.spec.control_plane.vm_class == AUTO
    }

    /// What comes next for another size on the same image; none where there is nothing to do.
    pub(super) fn resizes(&self, pinned: &Resolved, current: &str) -> Option<Change> {
        let size = match &self.size {
            Ok(size) => *size,
            Err(obstacle) => return Some(Change::Blocked(obstacle.clone())),
        };
        // Nobody has asked for it, and nobody has said when it may be.
        let is_nobodys = self.is_automatic() && self.cluster.spec.maintenance.window.is_none();
        if is_nobodys || pinned_size(pinned).is_none_or(|had| had == size) {
            return None;
        }
        let image = self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current));
        Some(match image {
            Some(image) => self.begins(image, !self.is_automatic(), current),
            None => {
                let words = format!("there is no NodeImage {current}, of which the new VMs would be made");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
        })
    }

    /// Whether the size of a swap of the same image is still what the spec asks for, and the image too. What was chosen by the number of
    /// workers stays chosen.
    pub(super) fn is_size_wanted(&self, operation: &Operation, swapping: &Swapping) -> bool {
        let image = self.cluster.spec.image.as_ref();
        let is_size = self.is_automatic() || (self.size.is_ok() && self.size.as_ref().ok() == swapping.size.as_ref());
        is_size && image.is_none_or(|image| operation.spec.to_image.as_ref() == Some(image))
    }

    /// Whether a person has named the size again from which a swap of the same image leads away.
    pub(super) fn is_former_size(&self, swapping: &Swapping) -> bool {
        let pinned = self.cluster.status.as_ref().and_then(|status| status.resolved.as_ref());
        let former = pinned.and_then(pinned_size);
        !self.is_automatic()
            && former.is_some()
            && self.size.as_ref().ok() == former.as_ref()
            && swapping.size != former
    }
}

impl Change {
    /// How large control nodes count as, from before the first VM of a swap is made until there is no way back: as the larger of those
    /// that they may have. None where it stays as it was noted.
    pub fn holds(&self, pinned: &Resolved, swap: Option<&Swapping>) -> Option<ControlPlaneSize> {
        let begins = match self {
            Self::Pin(..) => return None,
            Self::Swap(_, _, size) => Some(*size),
            _ => None,
        };
        let may_be = |swap: &&Swapping| match swap.ending() {
            None | Some(Ending::Abandoned) => true,
            Some(Ending::Committed) => !swap.is_pinned,
            Some(Ending::RolledBack) => false,
        };
        let goes = swap.filter(may_be).and_then(|swap| swap.size);
        let had = pinned_size(pinned)?;
        Some([begins, goes].into_iter().flatten().fold(had, ControlPlaneSize::larger))
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
