//! Notices of a run to its caller.

use super::entry::Direction;
use super::kubernetes_plan::KubernetesNode;
use super::order::Order;
use super::plan::{Plan, Step};
use crate::engine::Reason;
use crate::hypervisor::Vm;

#[derive(Clone, Debug)]
pub enum Notice<'a> {
    /// A step is being taken.
    Step {
        plan: &'a Plan,
        /// The step of `plan`.
        step: Step,
        /// Its number on this way, from 0.
        index: usize,
        /// How many steps the way has.
        total: usize,
        /// Whether it was begun before and interrupted.
        again: bool,
    },
    Done {
        note: &'a str,
    },
    /// A node is about to be drained, and that deletes something for good.
    Losses {
        node: &'a str,
        /// The deleted data, or that it cannot be known, in words for users.
        words: &'a str,
    },
    /// Something is waited for within a step.
    Waiting {
        what: &'a str,
        why: &'a Reason,
    },
    /// The step cannot be taken now; it is tried again.
    Paused {
        reason: &'a Reason,
    },
    /// From here on it goes in another direction.
    DirectionChanged {
        /// The plan that names the nodes.
        plan: &'a Plan,
        direction: Direction,
        /// The one node that it is for; none for all.
        only: Option<usize>,
        /// In which order nodes go back.
        order: &'a Order,
        /// The cause of the turn: a node that is not healthy, or the operator.
        reason: &'a Reason,
    },
    /// The deployment is taken over from a command that may be alive, which takes a moment.
    TakingOver {
        /// From whom, and how long it takes.
        words: &'a str,
    },
    /// A VM is stamped as a node's.
    Stamped {
        node: &'a str,
        /// The VM that it runs in, as it was before the stamp.
        vm: &'a Vm,
    },
    /// A snapshot of etcd is kept before an upgrade of Kubernetes.
    Snapshot {
        /// Where it is kept, in words for people.
        place: &'a str,
        bytes: u64,
    },
    /// An upgrade of Kubernetes goes on whose snapshot is not kept here. No new one is taken: a new API server may have
    /// written in the store.
    NoSnapshot {
        name: &'a str,
    },
    /// A node is taken to another version of Kubernetes.
    Kubernetes {
        /// The node, and what it runs before.
        node: &'a KubernetesNode,
        /// The minor version that it is taken to.
        to: &'a str,
        /// Its number, from 0.
        index: usize,
        /// How many nodes there are.
        total: usize,
    },
    /// A node runs it, and is healthy.
    KubernetesRuns {
        /// The version that it runs now, such as `1.36.3`.
        version: &'a str,
        seconds: u64,
    },
}
