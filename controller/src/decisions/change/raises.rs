//! Upgrades of Kubernetes: the former minor version, the Operation, its beginning and its next step.

use contract::minor::Minor;
use kube::ResourceExt;

use super::operator_action::{OperatorAction, ended, word};
use super::shown::{blocked, says};
use super::{Change, ObservedCluster, name};
use crate::decisions::obstacle::Obstacle;
use crate::decisions::swap_progress::Ending;
use crate::objects::{DO, Machine, Operation, OperationReason, TenantCluster, TenantClusterReason};

impl ObservedCluster<'_> {
    /// Begins an upgrade of Kubernetes, or says why not.
    pub(super) fn raises(&self, current: &str) -> Change {
        let spec = &self.cluster.spec;
        let (Some(minor), Ok(to)) = (self.minor, spec.version.parse::<Minor>()) else { return Change::Nothing };
        if minor == to {
            return self.raise.and_then(answered_raise).unwrap_or(Change::Nothing);
        }
        if to < minor {
            let words = format!("control-plane nodes run Kubernetes {minor}, and no rollback to {to} is possible");
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
        match (self.left_behind(to), again) {
            (Some(words), Some(name)) => Change::Answer(name, Some(words)),
            (Some(words), None) => Change::Waits(TenantClusterReason::ChangeBlocked, words),
            (None, again) => Change::Raise(to, again),
        }
    }

    /// The message about the oldest worker, if its kubelet may not use API servers of this minor version.
    fn left_behind(&self, to: Minor) -> Option<String> {
        let workers = self.workers.iter().filter_map(|machine| Some((minor_of(machine)?, machine)));
        let (minor, oldest) = workers.min_by_key(|(minor, _)| *minor).filter(|(minor, _)| !minor.may_speak_to(to))?;
        let pool = oldest.spec.pool_ref.as_ref().map(|pool| pool.name.as_str()).unwrap_or_default();
        let name = oldest.name_any();
        Some(format!(
            "the Machine {name} of the NodePool {pool} runs Kubernetes {minor}, which is more than three minor versions behind {to}: let \
             the pool replace its workers first, or delete that Machine"
        ))
    }

    /// The next step of an Operation that upgrades Kubernetes and has not ended.
    pub(super) fn raising(&self, operation: &Operation) -> Change {
        let to = operation.spec.to_version.as_deref().and_then(|to| to.parse::<Minor>().ok());
        let Some(to) = to else { return Change::Abandon(name(operation)) };
        if let Some(rest) = &self.rests {
            let says_so = [rest.reason(), OperationReason::Rejected].map(|it| says(operation, it).is_some());
            return match (word(operation), blocked(operation)) {
                // No VM moves by that.
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
                let words =
                    format!("an upgrade to Kubernetes {to} has no rollback and no commit: resume or abandon it");
                return Change::Answer(name(operation), Some(words));
            }
            Some(Err(words)) => return Change::Answer(name(operation), Some(words)),
            None => {}
        }
        if operation.spec.to_version.as_ref() != Some(&self.cluster.spec.version) {
            let words = format!(
                "control-plane nodes may be at Kubernetes {to} already, and no rollback is possible: name it again, or abandon the Operation {}",
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

/// The minor version of Kubernetes that a node runs.
fn minor_of(machine: &Machine) -> Option<Minor> {
    let newer = machine.status.as_ref().and_then(|status| status.kubernetes.as_ref());
    newer.unwrap_or(&machine.spec.kubernetes).parse().ok()
}

/// The lowest minor version of Kubernetes of control-plane nodes.
pub fn lowest_minor(machines: &[Machine]) -> Option<Minor> {
    machines.iter().filter_map(|machine| machine.spec.kubernetes.parse().ok()).min()
}

/// The name of the Operation that upgrades a cluster to a minor version.
pub fn raise_name(cluster: &TenantCluster, to: &str) -> String {
    format!("{}-kubernetes-{}", cluster.name_any(), to.replace('.', "-"))
}

/// The answer to a request on an Operation that has upgraded Kubernetes.
fn answered_raise(operation: &Operation) -> Option<Change> {
    let words = ended(word(operation)?, Some(Ending::Committed));
    Some(Change::Answer(name(operation), words))
}
