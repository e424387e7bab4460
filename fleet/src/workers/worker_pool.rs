//! The inputs of a run, and its results.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use super::action::Action;
use super::cluster::Cluster;
use super::site::Site;
use super::wait::Wait;
use crate::hypervisor::{Hypervisor, Placement, Vm};
use crate::lease::Store;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The goal is reached.
    Done,
    /// The run waits for something. Resuming continues.
    Paused(Vec<Wait>),
    /// Workers did not join: no further one is created or replaced until the operator continues.
    Stopped(Vec<Wait>),
    /// The run was cancelled. Resuming continues.
    Cancelled,
}

/// Where a worker is placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub placement: Placement,
    /// Labels of its node that follow from that. Labels of the pool with the same keys take precedence.
    pub labels: BTreeMap<String, String>,
}

pub type Notice<'a> = crate::Notice<'a, Action, Wait>;

/// The workers of one pool.
pub struct Workers<'a> {
    /// The hypervisor of the VMs. Its deployment is [`super::deployment`]'s.
    pub hypervisor: &'a dyn Hypervisor,
    pub cluster: &'a dyn Cluster,
    /// The store of leases and journals, never in the cluster, next to that of its control-plane nodes.
    pub store: &'a dyn Store,
    /// A VM of the cluster's control plane: workers are placed next to it, on its networks. Without it no worker is created.
    pub beside: Option<Vm>,
    /// The placement of each worker, by its name.
    pub placed: &'a (dyn Fn(&str) -> Placed + Sync),
    pub site: Site,
    /// The caller's activity, such as the name of its command.
    pub what: &'a str,
    /// Receives progress.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// Seconds of Unix time.
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// The pause between two rounds.
    pub pace: Duration,
    /// How long a run waits for what cannot be done now, before it ends paused.
    pub pause_limit: Duration,
    /// Whether the record may be restored to an earlier moment without the VMs, such as a database from a snapshot. Then nothing
    /// is done while newer VMs exist, whenever they are first seen.
    pub restorable: bool,
    /// Becomes true if the run should end at the next moment from which it can continue.
    pub cancelled: watch::Receiver<bool>,
}
