//! The next step of a cluster whose control-plane nodes serve and whose spec names another image or minor version than the
//! current one. Pure: it is decided from an observation, and observed again once it is done. So another controller decides the
//! same.
//!
//! | State | Next step |
//! |---|---|
//! | a swap is open | it continues; a request changes its direction, and so does the former image, named again before the commit
//! |
//! | it has not begun, and its image or size is no longer wanted | it ends, and the spec is planned again |
//! | it has not begun, lacks room for its size, and blocks an image or a minor version that needs none | the same |
//! | all nodes run the new image | commit once all are healthy for ten minutes (`commit: Auto`), or on request |
//! | the spec no longer wants that image | commit or rollback on request only |
//! | it is committed | the new image and size go into `status.resolved`, where pools see the image |
//! | it was rolled back or abandoned | nothing, until a request or a change of the spec |
//! | one was abandoned and none committed since, or a node's VM has no record, and the current image is wanted | nodes are asked
//! |
//! | all of them run it, in VMs of the resolved size | this is recorded with the abandoned swap, and nodes are not asked again |
//! | another image is named | the obstacle is reported; otherwise a swap begins, with its plan as an Operation |
//! | the size of control-plane nodes differs | with the next image, or by itself, if there is room: `resize.rs` |
//! | the minor version is behind | the same for Kubernetes, once the named image is in use and no worker is too old for it |
//!
//! In a paused cluster, a swap is planned and not begun. A running one continues to a step at which no node is missing, and
//! reports that it is paused. Requests are rejected then: they would run at the end of the pause, which may be another user's
//! decision.
//!
//! The same applies while the control cluster is being changed, and nothing is planned: another version of the controller may
//! lead afterwards. But a rollback runs then, because the change may last long. `abandon` moves no VM and is always accepted.

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
use super::health::ClusterCondition;
use super::obstacle::Obstacle;
use super::pause_reason::PauseReason;
use super::swap_progress::{Ending, SwapProgress};
use crate::objects::{ControlPlaneSize, Machine, NodeImage, Operation, Resolved, TenantCluster, TenantClusterReason};

#[derive(Debug)]
pub struct ObservedCluster<'a> {
    pub cluster: &'a TenantCluster,
    /// The last swap whose journal has begun, and its progress.
    pub swap: Option<(&'a Operation, SwapProgress)>,
    /// The last abandoned swap, if nothing has proved since that all control-plane nodes are alike.
    pub abandoned: Option<(&'a Operation, SwapProgress)>,
    /// The Operation that upgrades Kubernetes and has not ended. Otherwise the one to the minor version of the spec, if it
    /// exists.
    pub raise: Option<&'a Operation>,
    pub images: &'a [NodeImage],
    /// The lowest minor version of Kubernetes of a control-plane node.
    pub minor: Option<Minor>,
    /// The Machines of the cluster's workers.
    pub workers: &'a [Machine],
    /// The wanted size of control-plane nodes, or why it is unknown.
    pub size: Result<ControlPlaneSize, Obstacle>,
    /// Why the Provider has no room for that size, if it has none.
    pub room: Option<Obstacle>,
    /// Why the Provider has no room for the size of a swap that is only planned, if it has none.
    pub plan_room: Option<Obstacle>,
    /// Why nothing begins now, if so.
    pub rests: Option<PauseReason>,
    /// Whether a control-plane node runs in a VM without a record: it may have another image and size than the resolved ones.
    pub has_drifted: bool,
    pub now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing: all matches the spec.
    Nothing,
    /// Nothing until the obstacle is removed.
    Blocked(Obstacle),
    /// Nothing now, for this reason of the condition `UpToDate`.
    Waits(TenantClusterReason, String),
    /// Write the state of the Operation into its status: an earlier controller did not come to that.
    Show(String),
    /// Remove the request of an Operation. With a message it is rejected.
    Answer(String, Option<String>),
    /// Write image and size of the control-plane nodes into `status.resolved`. With the Operation that records this: the swap
    /// that has brought the nodes there, or the abandoned one before they were seen to be alike. `None` if nodes are so by
    /// themselves.
    Pin(Box<Resolved>, Option<String>),
    /// Begin a swap to this image, with new VMs of this size. In a paused cluster it is only planned. With the Operation of an
    /// earlier swap that is to be retried.
    Swap(Box<NodeImage>, Option<String>, ControlPlaneSize),
    Go(String, Request),
    /// Ask nodes whether all of them run this image, which is the current one, in VMs of this size, if it is given. Then follows
    /// this change. No object says what they run: the last swap was abandoned, or objects are older than VMs.
    Judge(Box<NodeImage>, Option<ControlPlaneSize>, Box<Change>),
    /// Upgrade control-plane nodes to this minor version of Kubernetes. With the Operation, if it is to be retried.
    Raise(Minor, Option<String>),
    /// End the Operation that upgrades Kubernetes where it is.
    Abandon(String),
}

impl Change {
    /// The reason and message of `UpToDate`. `None` if all matches the spec.
    pub fn said(&self) -> Option<(TenantClusterReason, String)> {
        use TenantClusterReason::{ChangeBlocked, ChangeFailed, Changing};
        let changing = |words: String| Some((Changing, words));
        match self {
            Self::Nothing => None,
            Self::Blocked(obstacle) => Some((ChangeBlocked, obstacle.message.clone())),
            Self::Waits(reason, words) => Some((*reason, words.clone())),
            Self::Show(name) | Self::Go(name, _) | Self::Abandon(name) | Self::Answer(name, _) => {
                changing(name.clone())
            }
            Self::Judge(image, ..) => {
                let image = image.metadata.name.as_deref().unwrap_or_default();
                let words = format!(
                    "no object records what control-plane nodes run: the controller asks them whether it is {image}"
                );
                Some((ChangeFailed, words))
            }
            Self::Pin(resolved, _) => changing(format!("to {}", resolved.image.as_deref().unwrap_or_default())),
            Self::Swap(image, _, size) => {
                changing(format!("to {} with {size}", image.metadata.name.as_deref().unwrap_or_default()))
            }
            Self::Raise(to, _) => changing(format!("to Kubernetes {to}")),
        }
    }

    pub fn obstacle(&self) -> Option<&Obstacle> {
        if let Self::Blocked(obstacle) = self { Some(obstacle) } else { None }
    }

    pub fn doing(&self) -> ClusterCondition {
        use TenantClusterReason::{
            AwaitingCommit, ChangeBlocked, ChangeFailed, ImageUnsuitable, NotSupported, ReferenceMissing,
        };
        match self {
            // A user has to change the spec. All other obstacles may pass by themselves.
            Self::Blocked(Obstacle { reason: ImageUnsuitable | NotSupported | ReferenceMissing, message }) => {
                (TenantClusterReason::Blocked, message.clone())
            }
            Self::Waits(ChangeBlocked | ChangeFailed, words) => (TenantClusterReason::Blocked, words.clone()),
            Self::Waits(AwaitingCommit, words) => (TenantClusterReason::OperationRuns, words.clone()),
            Self::Nothing | Self::Blocked(_) | Self::Waits(..) => (TenantClusterReason::Idle, String::new()),
            _ => (TenantClusterReason::OperationRuns, self.said().map(|(_, words)| words).unwrap_or_default()),
        }
    }

    pub fn is_to_do(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Blocked(_) | Self::Waits(..))
    }
}

fn name(operation: &Operation) -> String {
    operation.metadata.name.clone().unwrap_or_default()
}

impl ObservedCluster<'_> {
    pub fn next(&self) -> Change {
        let pinned = self.cluster.resolved();
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
            if swapping.ending() == Some(Ending::Committed) && !swapping.is_pinned {
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

/// The values with control-plane nodes of this size, if it is given.
pub fn with_size(pinned: Resolved, size: Option<ControlPlaneSize>) -> Resolved {
    match size {
        Some(size) => Resolved { processors: Some(size.processors), memory_mib: Some(size.memory_mib), ..pinned },
        None => pinned,
    }
}
