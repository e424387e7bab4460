//! Control-plane nodes of another size: a swap with the current image to VMs of another size. Everything else is as for any
//! image. Pure.
//!
//! | The wanted size differs from the resolved one | Next step |
//! |---|---|
//! | another image is wanted too | new VMs get the size with the image |
//! | the spec names another class | a swap with the same image begins at once |
//! | `auto`, and the workers have outgrown it | the same, in the maintenance window; without a window with the next image |
//! | the Provider has no room for it | it waits; another image or minor version does not, and new VMs have the resolved size |
//! | it is planned, as in a cluster that was paused | it takes its room when it continues, and waits if there is no room then |
//! | there is no room then, and an image or a minor version waits for it | the plan ends; the image is planned again with the
//! resolved size |
//! | the size is unknown, because its class is missing | its plan waits and does not end |

use fleet::upgrade::Request;

use super::change::{Change, ObservedCluster};
use super::obstacle::Obstacle;
use super::sizes::pinned_size;
use super::swap_progress::{SwapProgress, is_of_size};
use crate::objects::{AUTO, ControlPlaneSize, Operation, Resolved, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Whether the number of workers decides the size: the spec names no class.
    pub(super) fn is_automatic(&self) -> bool {
        self.cluster.spec.control_plane.vm_class == AUTO
    }

    /// Whether the size is automatic and no window allows a swap for the size alone.
    fn is_nobodys(&self) -> bool {
        self.is_automatic() && self.cluster.spec.maintenance.window.is_none()
    }

    fn former_size(&self) -> Option<ControlPlaneSize> {
        self.cluster.resolved().and_then(pinned_size)
    }

    /// The size of new VMs of another image: without room for the wanted size, the current one. An image does not wait for room.
    pub(super) fn size_with_image(&self) -> Result<ControlPlaneSize, Obstacle> {
        match &self.room {
            Some(obstacle) => self.former_size().ok_or_else(|| obstacle.clone()),
            None => self.size.clone(),
        }
    }

    /// The next step of an open swap, except that a planned one continues only with room for its size: it holds none before.
    /// Without room it ends if it `gives_way` to something else, whatever the former spec was.
    pub(super) fn with_room(&self, change: Change, swapping: &SwapProgress, gives_way: bool) -> Change {
        let Some(obstacle) = self.plan_room.as_ref().filter(|_| swapping.is_planned()) else { return change };
        match change {
            Change::Go(name, Request::Resume) if gives_way => Change::Go(name, Request::Withdraw),
            Change::Go(_, Request::Resume) => Change::Blocked(obstacle.clone()),
            change => change,
        }
    }

    /// Whether a swap of another image is only planned, the spec is newer, and new VMs would now have another size, which is
    /// given. Then it is planned again.
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

    /// Why the wanted size waits while something else comes next. `None` if that has the size, or reports the obstacle itself.
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

    /// The next step for another size with the same image. `None` if there is nothing to do.
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

    /// Whether neither a swap's size nor the current one is named: an automatic choice stays.
    fn is_chosen(&self, operation: &Operation) -> bool {
        self.is_automatic() && operation.spec.to_class.is_none()
    }

    /// Whether the spec names no other image than that of a swap.
    fn is_its_image(&self, operation: &Operation) -> bool {
        let image = self.cluster.spec.image.as_ref();
        image.is_none_or(|image| operation.spec.to_image.as_ref() == Some(image))
    }

    /// Whether size and image of a swap with the same image are still what the spec asks for.
    pub(super) fn is_size_wanted(&self, operation: &Operation, swapping: &SwapProgress) -> bool {
        let is_size = self.size.is_ok() && self.size.as_ref().ok() == swapping.size.as_ref();
        (is_size || self.is_chosen(operation)) && self.is_its_image(operation)
    }

    /// Why it is unknown whether the size of a swap with the same image is still wanted: its class may be deleted and created
    /// again.
    pub(super) fn unknown_size(&self, operation: &Operation) -> Option<&Obstacle> {
        self.size.as_ref().err().filter(|_| is_of_size(operation) && self.is_its_image(operation))
    }

    /// Whether the spec wants the former size of a swap with the same image again. It does by a class, or by `auto` if the swap's
    /// class was named. Fewer workers start no rollback.
    pub(super) fn is_former_size(&self, operation: &Operation, swapping: &SwapProgress) -> bool {
        let former = self.former_size();
        !self.is_chosen(operation)
            && former.is_some()
            && self.size.as_ref().ok() == former.as_ref()
            && swapping.size != former
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSizes {
    /// The size in its Machine, which limits count.
    pub noted: ControlPlaneSize,
    /// The resolved size of its cluster, which it may have again at any time without a check for room. `None` if it is unset.
    pub pinned: Option<ControlPlaneSize>,
    /// The size of the VM that it runs in. `None` if it was not observed.
    pub seen: Option<ControlPlaneSize>,
}

impl Change {
    /// The size that a control-plane node counts with. It is that of its VM, or the resolved one if that is larger. From before
    /// the first new VM of a swap until no rollback is possible, it is the largest that it may have. If it is not observed, the
    /// recorded size counts. A plan takes no room.
    pub fn holds(&self, node: NodeSizes, swap: Option<&SwapProgress>, is_paused: bool) -> ControlPlaneSize {
        let begins = match self {
            // That is recorded with the rest.
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
mod tests;
