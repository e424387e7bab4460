//! The inputs of a run, and its results.

use std::time::Duration;

use tokio::sync::watch;
use zeroize::Zeroizing;

use super::action::Action;
use super::guests::Guests;
use super::unfinished::Unfinished;
use super::wait::Wait;
use crate::hypervisor::{DiskRef, Hypervisor, Placement};
use crate::lease::Store;

/// How a run ended.
#[derive(Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// The cluster runs. This is a kubeconfig for it, valid for a day.
    Up(Zeroizing<String>),
    /// Nothing of the cluster is left, except what its status names.
    Gone,
    /// The run waits for something. Running the command again continues.
    Paused(Vec<Wait>),
    /// The operator must act. Then running the command again continues.
    Stopped(Vec<Wait>),
    /// The run was cancelled. Running the command again continues.
    Cancelled,
}

/// Without the kubeconfig, which is a secret.
impl std::fmt::Debug for RunOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up(_) => f.write_str("Up"),
            Self::Gone => f.write_str("Gone"),
            Self::Paused(waits) => f.debug_tuple("Paused").field(waits).finish(),
            Self::Stopped(waits) => f.debug_tuple("Stopped").field(waits).finish(),
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

/// The cluster's disks that none of its VMs holds, as shown to an operator who removes its data disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnattachedDisk {
    /// Disks that are removed with it.
    pub goes: Vec<DiskRef>,
    /// Disks whose removal was requested, and that are missing: each is gone, or elsewhere. A VM may still name one at its former
    /// place.
    pub doubtful: Vec<DiskRef>,
    /// Disks whose removal was requested, and that a seen VM holds at another place than recorded. Also disks that were to be
    /// removed, and that a VM outside the cluster holds.
    pub held: Vec<HeldDisk>,
}

/// A disk that was to be removed, and which a VM holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDisk {
    /// The disk, at its present place.
    pub disk: DiskRef,
    /// The VM that holds it, for messages.
    pub by: String,
}

pub type Notice<'a> = crate::Notice<'a, Action, Wait>;

/// The control-plane nodes of one cluster.
pub struct Deploy<'a> {
    pub hypervisor: &'a dyn Hypervisor,
    /// The new nodes.
    pub guests: &'a dyn Guests,
    /// The store of leases and journals, never in the cluster. Its upgrades use the same one.
    pub store: &'a dyn Store,
    /// Where VMs are placed.
    pub placement: Placement,
    /// The caller's activity, such as the name of its command.
    pub what: &'a str,
    /// Receives progress.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two rounds.
    pub pace: Duration,
    /// How long a run waits for what cannot be done now, before it ends paused.
    pub pause_limit: Duration,
    /// Removes the place of the cluster with all its files, if it has a separate one. Called under the lease, once nothing of the
    /// cluster is left.
    pub empties: &'a (dyn Fn() -> anyhow::Result<()> + Sync),
    /// Receives each kubeconfig that a node of a formed cluster gives, valid for a day. The run may still end waiting for another
    /// node: the last kubeconfig gives access meanwhile.
    pub renewed: &'a (dyn Fn(&str) + Sync),
    /// The VMs that this process has begun. Set if the record may be restored to an earlier moment without the VMs, such as a
    /// database from a snapshot. Then nothing is done while newer VMs exist, whenever they are first seen. The data disk of an
    /// incomplete VM of another process is retained. After three failed attempts, the process creates a VM once an hour.
    ///
    /// `None` if the record is trusted.
    pub restorable: Option<&'a Unfinished>,
    /// Becomes true if the run should end at the next moment from which it can continue.
    pub cancelled: watch::Receiver<bool>,
}
