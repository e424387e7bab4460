//! What comes next for a cluster whose control nodes serve and whose spec names another image or minor than they are on. Pure: it is
//! decided by what was looked at, and looked at again once it is done, so that whoever takes over decides the same.
//!
//! | What is so | What follows |
//! |---|---|
//! | a swap is open | it goes on; a person's word turns it, and so does the former image, named again before the commit |
//! | nothing of it has moved, and its image or size is not wanted any more | it ends there, and what is wanted by now is planned |
//! | nothing of it has moved, there is no room for its size, and an image or a minor needs none | the same |
//! | it has come to the new image | it is committed once all is good for ten minutes (`commit: Auto`), or by a person's word |
//! | the spec does not want that image any more | it is committed or goes back by a person's word alone |
//! | it is committed | the new image and size are pinned: pools see the image from then on |
//! | it went back, or was abandoned | nothing, before a person asks for it again or the spec is another one |
//! | one was abandoned and none committed since, or nothing is noted of a node's VM, and the pinned image is wanted | nodes are asked |
//! | all of them run it, in VMs of the pinned size | that is noted with what was abandoned, and nobody is asked any more |
//! | another image is named | what is in the way is said; else a swap begins, with its plan as an Operation |
//! | the size of control nodes is another one | with the next image, or by itself, if there is room: `resize.rs` |
//! | the minor is behind | the same for Kubernetes, once the image is as it is named |
//!
//! What is paused is planned and not begun; a swap comes to a step at which no node is away, and says that it rests. What a person asks of
//! it there is refused: it would be done at the unpausing, which may be somebody else's. While the control cluster is being changed it is
//! the same, and nothing is planned: another version of the controller may lead afterwards. But the way back is taken then, for that lasts
//! as long as somebody else takes; and `abandon`, which moves no VM, is heard always.

mod begins;
mod conditions;
mod image;
mod open;
mod operator_action;
mod raises;
mod shown;
#[cfg(test)]
pub(super) mod tests;

pub use self::operator_action::asked;
pub use self::raises::{lowest_minor, raise_name};
pub use self::shown::blocked;

use contract::minor::Minor;
use fleet::upgrade::Request;
use k8s_openapi::jiff::Timestamp;

use self::image::WantedImage;
use self::shown::{is_shown, outcome};
use super::obstacle::Obstacle;
use super::pause_reason::PauseReason;
use super::swap_progress::{Ending, SwapProgress};
use crate::objects::{ControlPlaneSize, NodeImage, Operation, Resolved, TenantCluster, TenantClusterReason};

#[derive(Debug)]
pub struct ObservedCluster<'a> {
    pub cluster: &'a TenantCluster,
    /// The last swap whose journal was begun, and how far it is.
    pub swap: Option<(&'a Operation, SwapProgress)>,
    /// The last one that was abandoned, if nothing has said since that all control nodes are alike.
    pub abandoned: Option<(&'a Operation, SwapProgress)>,
    /// The Operation that raises Kubernetes and has not ended; else the one to the minor that the spec names, if it was made.
    pub raise: Option<&'a Operation>,
    /// All NodeImages.
    pub images: &'a [NodeImage],
    /// The lowest minor of Kubernetes that a control node is at.
    pub minor: Option<Minor>,
    /// How large control nodes are to be, or why nobody knows it.
    pub size: Result<ControlPlaneSize, Obstacle>,
    /// Why the Provider has no room for that; none if it has.
    pub room: Option<Obstacle>,
    /// Why it has none for the size of a swap that is only planned yet; none if it has, or there is none.
    pub plan_room: Option<Obstacle>,
    /// Why nothing is begun now; none if it may be.
    pub rests: Option<PauseReason>,
    /// Whether nothing is noted of the VM that a control node runs in: another image may be in it than is pinned, and it may have another
    /// size.
    pub has_drifted: bool,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing: all is as the spec has it.
    Nothing,
    /// Nothing, before something that is in the way is gone.
    Blocked(Obstacle),
    /// Nothing now, for this reason of the condition `UpToDate`.
    Waits(TenantClusterReason, String),
    /// The Operation says where it stands: whoever has brought it there did not come to that.
    Show(String),
    /// What a person has asked of an Operation is taken away; with words it is not to be had.
    Answer(String, Option<String>),
    /// What control nodes have come to is pinned: image and size. With the Operation that notes it: the swap that has brought them there,
    /// or the one that was abandoned before they were found to be alike. None where nodes are so by themselves.
    Pin(Box<Resolved>, Option<String>),
    /// A swap to this image begins, with new VMs of this size; if the cluster is paused it is only planned. With the Operation of an
    /// earlier one that a person wants tried again.
    Swap(Box<NodeImage>, Option<String>, ControlPlaneSize),
    /// The swap of this Operation goes on.
    Go(String, Request),
    /// Nodes are asked whether all of them run this image, which is the pinned one, in VMs of this size, if it is said: then comes this.
    /// No object says what they run: the last swap was abandoned, or objects are older than VMs.
    Judge(Box<NodeImage>, Option<ControlPlaneSize>, Box<Change>),
    /// Control nodes are taken to this minor of Kubernetes. With the Operation, if a person wants it tried again.
    Raise(Minor, Option<String>),
    /// The Operation that raises Kubernetes ends where it stands.
    Abandon(String),
}

fn name(operation: &Operation) -> String {
    operation.metadata.name.clone().unwrap_or_default()
}

impl ObservedCluster<'_> {
    pub fn next(&self) -> Change {
        let pinned = self.cluster.status.as_ref().and_then(|status| status.resolved.as_ref());
        let Some((pinned, current)) = pinned.and_then(|pinned| Some((pinned, pinned.image.as_deref()?))) else {
            return Change::Nothing;
        };
        if let Some((operation, swapping)) = &self.swap {
            if swapping.is_open() {
                let gives_way = self.yields(operation, swapping, (pinned, current));
                return self.with_room(self.open(operation, swapping, current), swapping, gives_way);
            }
            if !is_shown(operation, swapping) {
                return Change::Show(name(operation));
            }
            // Of an earlier version's it is noted nowhere whether it is.
            let is_pinned =
                swapping.is_pinned || (operation.spec.to_image.as_deref() == Some(current) && swapping.size.is_none());
            if swapping.ending() == Some(Ending::Committed) && !is_pinned {
                return Change::Pin(Box::new(as_after(pinned, operation, swapping)), Some(name(operation)));
            }
        }
        if let Some(operation) = self.raise.filter(|operation| outcome(operation).is_none()) {
            return self.raising(operation);
        }
        match self.wanted(pinned, current) {
            WantedImage::Missing(name) => {
                let words = format!("there is no NodeImage {name}");
                Change::Blocked(Obstacle::new(TenantClusterReason::ReferenceMissing, words))
            }
            WantedImage::Other(image, named) => self.begins(image, named, current),
            WantedImage::Same => {
                let resize = self.resizes(pinned, current);
                match (resize.filter(Change::is_to_do), self.answered()) {
                    (Some(resize), _) => resize,
                    (None, Some(answer)) => answer,
                    (None, None) => self.stays(pinned, current),
                }
            }
        }
    }
}

fn as_after(pinned: &Resolved, operation: &Operation, swapping: &SwapProgress) -> Resolved {
    let digest = crate::records::digest(&swapping.digest);
    with_size(Resolved { image: operation.spec.to_image.clone(), digest, ..pinned.clone() }, swapping.size)
}

/// The same with control nodes of this size, if it is said.
pub fn with_size(pinned: Resolved, size: Option<ControlPlaneSize>) -> Resolved {
    match size {
        Some(size) => Resolved { processors: Some(size.processors), memory_mib: Some(size.memory_mib), ..pinned },
        None => pinned,
    }
}
