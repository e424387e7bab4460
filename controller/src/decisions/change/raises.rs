//! Kubernetes is raised: from which minor, by which Operation, when that begins, and what comes next of it.

use contract::minor::Minor;
use kube::ResourceExt;

use super::operator_action::{OperatorAction, ended, word};
use super::shown::{blocked, says};
use super::{Change, ObservedCluster, name};
use crate::decisions::obstacle::Obstacle;
use crate::decisions::swap_progress::Ending;
use crate::objects::{DO, Machine, Operation, OperationReason, TenantCluster, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Kubernetes is raised, or why it is not.
    pub(super) fn raises(&self, current: &str) -> Change {
        let spec = &self.cluster.spec;
        let (Some(minor), Ok(to)) = (self.minor, spec.version.parse::<Minor>()) else { return Change::Nothing };
        if minor == to {
            return self.raise.and_then(answered_raise).unwrap_or(Change::Nothing);
        }
        if to < minor {
            let words = format!("control nodes run Kubernetes {minor}, and there is no way back to {to}");
            return Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
        }
        let image = self.images.iter().find(|image| image.metadata.name.as_deref() == Some(current));
        let carried = image.and_then(|image| image.status.as_ref()).map(|status| status.kubernetes.as_slice());
        if !carried.is_some_and(|carried| carried.contains(&spec.version)) {
            let words = format!("the image {current} does not carry Kubernetes {to}: name one that does");
            return Change::Blocked(Obstacle::new(TenantClusterReason::ImageUnsuitable, words));
        }
        let mut again = None;
        if let Some(operation) = self.raise {
            match word(operation) {
                Some(Ok(OperatorAction::Resume)) => again = Some(name(operation)),
                Some(word) => return Change::Answer(name(operation), ended(word, Some(Ending::Abandoned))),
                None if !self.is_newer_than(operation) => {
                    let words = format!(
                        "going to Kubernetes {to} was abandoned. Ask for it again with {DO}: resume on the Operation {}",
                        name(operation)
                    );
                    return Change::Waits(TenantClusterReason::ChangeFailed, words);
                }
                None => {}
            }
        }
        if let Some(rest) = &self.rests {
            return match again {
                Some(name) => Change::Answer(name, Some(rest.refuses(None))),
                None => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        Change::Raise(to, again)
    }

    /// What comes next of an Operation that raises Kubernetes and has not ended.
    pub(super) fn raising(&self, operation: &Operation) -> Change {
        let to = operation.spec.to_version.as_deref().and_then(|to| to.parse::<Minor>().ok());
        let Some(to) = to else { return Change::Abandon(name(operation)) };
        if let Some(rest) = &self.rests {
            let says_so = [rest.reason(), OperationReason::Rejected].map(|it| says(operation, it).is_some());
            return match (word(operation), blocked(operation)) {
                // Nothing moves by that.
                (Some(Ok(OperatorAction::Abandon)), _) => Change::Abandon(name(operation)),
                (Some(_), _) => Change::Answer(name(operation), Some(rest.refuses(None))),
                (None, Some(words)) => Change::Waits(TenantClusterReason::ChangeFailed, words),
                (None, None) if !says_so.contains(&true) => Change::Show(name(operation)),
                (None, None) => Change::Waits(TenantClusterReason::Changing, rest.words()),
            };
        }
        match word(operation) {
            Some(Ok(OperatorAction::Resume)) => return Change::Raise(to, Some(name(operation))),
            Some(Ok(OperatorAction::Abandon)) => return Change::Abandon(name(operation)),
            Some(Ok(OperatorAction::Rollback | OperatorAction::Commit)) => {
                let words = format!("there is no way back from Kubernetes {to}, nor a commit: resume or abandon it");
                return Change::Answer(name(operation), Some(words));
            }
            Some(Err(words)) => return Change::Answer(name(operation), Some(words)),
            None => {}
        }
        if operation.spec.to_version.as_ref() != Some(&self.cluster.spec.version) {
            let words = format!(
                "control nodes may be at Kubernetes {to} already, and there is no way back: name it again, or abandon the Operation {}",
                name(operation)
            );
            return Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
        }
        match blocked(operation) {
            Some(words) => Change::Waits(TenantClusterReason::ChangeFailed, words),
            None => Change::Raise(to, None),
        }
    }
}

/// The lowest minor of Kubernetes that control nodes are at.
pub fn lowest_minor(machines: &[Machine]) -> Option<Minor> {
    machines.iter().filter_map(|machine| machine.spec.kubernetes.parse().ok()).min()
}

/// The name of the Operation that takes a cluster to a minor.
pub fn raise_name(cluster: &TenantCluster, to: &str) -> String {
    format!("{}-kubernetes-{}", cluster.name_any(), to.replace('.', "-"))
}

/// The word of a person to an Operation that has raised Kubernetes.
fn answered_raise(operation: &Operation) -> Option<Change> {
    let words = ended(word(operation)?, Some(Ending::Committed));
    Some(Change::Answer(name(operation), words))
}
