//! What a run works with, and what it tells.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use super::action::Action;
use super::cluster::Cluster;
use super::site::Site;
use super::wait::Wait;
use crate::hypervisor::{Hypervisor, Placement, Vm};
use crate::lease::Store;

/// Where a run has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Everything is as it is wanted.
    Done,
    /// It waits for something or somebody; resuming goes on.
    Paused(Vec<Wait>),
    /// Workers did not join: no further one is made or replaced until a person goes on.
    Stopped(Vec<Wait>),
    /// It was asked to end; resuming goes on.
    Cancelled,
}

/// Where a worker is put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub placement: Placement,
    /// Labels of its node that follow from that. Those that the pool has of the same keys count more.
    pub labels: BTreeMap<String, String>,
}

pub type Notice<'a> = crate::Notice<'a, Action, Wait>;

/// The workers of one pool.
pub struct Workers<'a> {
    /// Where the VMs are; its deployment is [`super::deployment`]'s.
    pub hypervisor: &'a dyn Hypervisor,
    pub cluster: &'a dyn Cluster,
    /// Where holds and journals are kept: never in the cluster, and beside those of its control nodes.
    pub store: &'a dyn Store,
    /// A VM of the cluster's control plane: workers are put beside it, on its networks. Where there is none, none is made.
    pub beside: Option<Vm>,
    /// Where each is put otherwise, by its name.
    pub placed: &'a (dyn Fn(&str) -> Placed + Sync),
    pub site: Site,
    /// What the caller does, such as the name of its command.
    pub what: &'a str,
    /// Told what is happening.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// Seconds of Unix time.
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// The pause between two looks.
    pub pace: Duration,
    /// How long a run waits for what cannot be done now, before it ends paused.
    pub pause_limit: Duration,
    /// Whether what is kept may have been turned back to an earlier moment without the VMs, such as a database that was restored from a
    /// snapshot. Nothing is done beside VMs that are newer then, whenever these are seen first.
    pub restorable: bool,
    /// Becomes true when a run is to end at the next moment at which it can be continued.
    pub cancelled: watch::Receiver<bool>,
}
