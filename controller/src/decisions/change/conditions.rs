//! The condition of a cluster for the next step of its control-plane nodes.

use super::Change;
use crate::decisions::health::OperationPhase;
use crate::decisions::obstacle::Obstacle;
use crate::objects::TenantClusterReason;

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
                let words =
                    format!("no object says what control-plane nodes run: they are asked whether that is {image}");
                Some((ChangeFailed, words))
            }
            Self::Pin(resolved, _) => changing(format!("to {}", resolved.image.as_deref().unwrap_or_default())),
            Self::Swap(image, _, size) => {
                changing(format!("to {} with {size}", image.metadata.name.as_deref().unwrap_or_default()))
            }
            Self::Raise(to, _) => changing(format!("to Kubernetes {to}")),
        }
    }

    /// The obstacle, if there is one.
    pub fn obstacle(&self) -> Option<&Obstacle> {
        if let Self::Blocked(obstacle) = self { Some(obstacle) } else { None }
    }

    pub fn doing(&self) -> OperationPhase {
        use TenantClusterReason::{AwaitingCommit, ChangeFailed, ImageUnsuitable, NotSupported, ReferenceMissing};
        match self {
            // A user has to change the spec. All other obstacles may pass by themselves.
            Self::Blocked(Obstacle { reason: ImageUnsuitable | NotSupported | ReferenceMissing, message }) => {
                OperationPhase::Blocked(message.clone())
            }
            Self::Waits(ChangeFailed, words) => OperationPhase::Blocked(words.clone()),
            Self::Waits(AwaitingCommit, words) => OperationPhase::Operating(words.clone()),
            Self::Nothing | Self::Blocked(_) | Self::Waits(..) => OperationPhase::Idle,
            _ => OperationPhase::Operating(self.said().map(|(_, words)| words).unwrap_or_default()),
        }
    }

    /// Whether there is something to do now.
    pub fn is_to_do(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Blocked(_) | Self::Waits(..))
    }
}
