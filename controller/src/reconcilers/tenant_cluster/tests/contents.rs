//! What is on the data disks of the control nodes in memory, and what is wrong with these. Knows nothing of VMs.

use std::collections::BTreeSet;

use contract::kubernetes_upgrade::UpgradeState;
use contract::swap::SwapState;
use uuid::Uuid;

/// The Kubernetes that nodes are made with.
pub const FIRST: &str = "1.36.2";

/// What is on a control node's data disk.
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

/// What is wrong with the control nodes.
#[derive(Clone, Debug, Default)]
pub struct Ill {
    /// Those that are not found good on another image than their first one.
    pub never_good: BTreeSet<String>,
    /// Those that give up to go to another minor.
    pub stuck: BTreeSet<String>,
    /// Those whose pods do not move away.
    pub undrained: BTreeSet<String>,
    /// Those that begin to make ready for a swap, and give up.
    pub gives_up: BTreeSet<String>,
    /// After so many further calls it is once not said which control nodes there are.
    pub silent_after: Option<usize>,
}
