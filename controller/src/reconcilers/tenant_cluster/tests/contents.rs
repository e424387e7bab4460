//! The data disks of the control-plane nodes in memory, and the faults of the nodes. Independent of VMs.

use std::collections::BTreeSet;

use contract::kubernetes_upgrade::UpgradeState;
use contract::swap::SwapState;
use uuid::Uuid;

/// The first Kubernetes version of nodes.
pub const FIRST: &str = "1.36.2";

#[derive(Clone, Debug)]
pub struct Content {
    pub disk: Uuid,
    pub swap: Option<SwapState>,
    pub evacuation: Option<Uuid>,
    pub kubernetes: String,
    pub upgrade: Option<UpgradeState>,
}

impl Content {
    pub fn on(disk: Uuid) -> Self {
        Self { disk, swap: None, evacuation: None, kubernetes: FIRST.to_owned(), upgrade: None }
    }
}

/// The faults of the control-plane nodes.
#[derive(Clone, Debug, Default)]
pub struct Ill {
    /// Nodes that never become healthy on another image than their first one.
    pub never_good: BTreeSet<String>,
    /// Nodes that give up upgrades to another minor version.
    pub stuck: BTreeSet<String>,
    /// Nodes whose pods cannot be evicted.
    pub undrained: BTreeSet<String>,
    /// Nodes that begin to prepare a swap, and give up.
    pub gives_up: BTreeSet<String>,
    /// The number of calls until the list of control-plane nodes fails once.
    pub silent_after: Option<usize>,
}
