//! Control nodes of another size: a swap of the image that they run, into VMs that are larger or smaller. What else there is to a swap is
//! that of any image. Pure.
//!
//! | The size is another one than is pinned | What follows |
//! |---|---|
//! | with another image | new VMs get it with the image |
//! | a person has named another class | a swap of the same image begins at once |
//! | `auto`, and its workers have outgrown it | the same, in the maintenance window; without one with the next image |
//! | the Provider has no room for it | it waits; another image or minor does not, and new VMs have the size that is pinned |
//! | it is planned, as in a cluster that was paused | it takes its room when it goes on, and waits if there is none by then |
//! | there is none by then, and an image or a minor waits for it | the plan ends; the image is planned anew with the size that is pinned |
//! | nobody knows it, for its class is not there | what is planned of it waits, and does not end |

use fleet::upgrade::Request;

use super::change::{Change, ObservedCluster};
use super::obstacle::Obstacle;
use super::sizes::pinned_size;
use super::swap_progress::{SwapProgress, is_of_size};
use crate::objects::{AUTO, ControlPlaneSize, Operation, Resolved, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Whether the size of control nodes is by the number of workers: nobody has named it.
    pub(super) fn is_automatic(&self) -> bool {
        self.cluster.spec.control_plane.vm_class == AUTO
    }

    /// Whether nobody has asked for another size on the same image, and nobody has said when it may be.
    fn is_nobodys(&self) -> bool {
        self.is_automatic() && self.cluster.spec.maintenance.window.is_none()
    }

    /// The size that is pinned, if there is one.
    fn former_size(&self) -> Option<ControlPlaneSize> {
        self.cluster.status.as_ref().and_then(|status| status.resolved.as_ref()).and_then(pinned_size)
    }

    /// The size of new VMs of another image: where there is no room for the one of the spec, as they are. An image waits for no room.
    ///
    /// # Errors
    /// Why nobody knows it.
    pub(super) fn size_with_image(&self) -> Result<ControlPlaneSize, Obstacle> {
        match &self.room {
            Some(obstacle) => self.former_size().ok_or_else(|| obstacle.clone()),
            None => self.size.clone(),
        }
    }

    /// What comes next of an open swap, but that one which is only planned goes on once there is room for its size: it has taken none before.
    /// Without room it ends where it `gives_way` to something else, whatever the spec was when it was made.
    pub(super) fn with_room(&self, change: Change, swapping: &SwapProgress, gives_way: bool) -> Change {
        let Some(obstacle) = self.plan_room.as_ref().filter(|_| swapping.is_planned()) else { return change };
        match change {
            Change::Go(name, Request::Resume) if gives_way => Change::Go(name, Request::Withdraw),
            Change::Go(_, Request::Resume) => Change::Blocked(obstacle.clone()),
            change => change,
        }
    }

    /// Whether a swap of another image is only planned, by a spec that is not the one of now, and new VMs would have another size by that
    /// one, which is given: it is planned anew.
    pub(super) fn is_outdated(
        &self,
        operation: &Operation,
        swapping: &SwapProgress,
        size: Result<ControlPlaneSize, Obstacle>,
    ) -> bool {
        let is_newer = self.cluster.metadata.generation > Some(operation.spec.cluster_generation);
        let is_other = |size| swapping.size.is_some_and(|planned| planned != size);
        let may_be = swapping.is_planned() && is_newer && !self.is_chosen(operation);
        may_be && size.is_ok_and(is_other)
    }

    /// Why the size of the spec is not to be had, where something else comes next; none if that has it, or says so itself.
    pub fn size_waits(&self, change: &Change) -> Option<String> {
        let (obstacle, size) = (self.room.as_ref()?, self.size.as_ref().ok()?);
        let open = self.swap.as_ref().map(|(_, swapping)| swapping).filter(|swapping| swapping.is_open());
        let has_it = match change {
            Change::Swap(_, _, of) => of == size,
            Change::Blocked(said) => said == obstacle,
            Change::Judge(_, _, then) => return self.size_waits(then),
            _ => open.is_some_and(|swapping| swapping.size == Some(*size)),
        };
        let comes_with_image = open.is_some() || matches!(change, Change::Swap(..));
        let waits = !has_it && (comes_with_image || !self.is_nobodys());
        waits.then(|| format!("the size that the spec wants waits: {}", obstacle.message))
    }

    /// What comes next for another size on the same image; none where there is nothing to do.
    pub(super) fn resizes(&self, pinned: &Resolved, current: &str) -> Option<Change> {
        let size = match &self.size {
            Ok(size) => *size,
            Err(obstacle) => return Some(Change::Blocked(obstacle.clone())),
        };
        if self.is_nobodys() || pinned_size(pinned).is_none_or(|had| had == size) {
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

    /// Whether nobody has named the size of a swap, and nobody names one now: what was chosen by the number of workers stays chosen.
    fn is_chosen(&self, operation: &Operation) -> bool {
        self.is_automatic() && operation.spec.to_class.is_none()
    }

    /// Whether the spec names no other image than that of a swap.
    fn is_its_image(&self, operation: &Operation) -> bool {
        let image = self.cluster.spec.image.as_ref();
        image.is_none_or(|image| operation.spec.to_image.as_ref() == Some(image))
    }

    /// Whether the size of a swap of the same image is still what the spec asks for, and the image too.
    pub(super) fn is_size_wanted(&self, operation: &Operation, swapping: &SwapProgress) -> bool {
        let is_size = self.size.is_ok() && self.size.as_ref().ok() == swapping.size.as_ref();
        (is_size || self.is_chosen(operation)) && self.is_its_image(operation)
    }

    /// Why nobody knows whether the size of a swap of the same image is still what the spec asks for: its class may be deleted and made anew.
    pub(super) fn unknown_size(&self, operation: &Operation) -> Option<&Obstacle> {
        self.size.as_ref().err().filter(|_| is_of_size(operation) && self.is_its_image(operation))
    }

    /// Whether the spec means the size again from which a swap of the same image leads away: by its class, or by `auto` where a class had
    /// been named. Fewer workers take nothing back.
    pub(super) fn is_former_size(&self, operation: &Operation, swapping: &SwapProgress) -> bool {
        let former = self.former_size();
        !self.is_chosen(operation)
            && former.is_some()
            && self.size.as_ref().ok() == former.as_ref()
            && swapping.size != former
    }
}

/// How large a control node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSizes {
    /// What its Machine says, by which limits count.
    pub noted: ControlPlaneSize,
    /// What is pinned of its cluster: it may have that again without anybody being asked for room. None where that does not say it.
    pub pinned: Option<ControlPlaneSize>,
    /// How large the VM is that it runs in; none where nobody could see that.
    pub seen: Option<ControlPlaneSize>,
}

impl Change {
    /// How large a control node counts as: as the VM that it runs in, whatever has brought it there, or as it is pinned if that is more. From
    /// before the first new VM of a swap is made until there is no way back, as the larger of all that it may have; and where nobody sees
    /// it, as it was noted. What is only planned takes no room.
    pub fn holds(&self, node: NodeSizes, swap: Option<&SwapProgress>, is_paused: bool) -> ControlPlaneSize {
        let begins = match self {
            // That is noted with the rest.
            Self::Pin(..) => return node.noted,
            Self::Swap(_, _, size) => Some(*size).filter(|_| !is_paused),
            _ => None,
        };
        let goes_on = matches!(self, Self::Go(_, Request::Resume));
        let moves = swap.filter(|swap| swap.moves() || (goes_on && swap.is_planned()));
        let has = match node.seen {
            Some(seen) if moves.is_none() => seen,
            Some(seen) => seen.larger(node.noted),
            None => node.noted,
        };
        let (goes, pinned) = (moves.and_then(|swap| swap.size), node.pinned.filter(|_| node.seen.is_some()));
        [begins, goes, pinned].into_iter().flatten().fold(has, ControlPlaneSize::larger)
    }
}

#[cfg(test)]
#[path = "resize_tests.rs"]
mod tests;
