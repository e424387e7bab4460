//! What a run works with, and what it tells.

use std::time::Duration;

use tokio::sync::watch;
use zeroize::Zeroizing;

use super::action::Action;
use super::guests::Guests;
use super::unfinished::Unfinished;
use super::wait::Wait;
use crate::hypervisor::{DiskRef, Hypervisor, Placement};
use crate::lease::Store;

/// Where a run has come to.
#[derive(Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// The cluster runs, and this is a kubeconfig for it, good for a day.
    Up(Zeroizing<String>),
    /// Nothing of it is left but what its status names.
    Gone,
    /// It waits for something; giving the command again goes on.
    Paused(Vec<Wait>),
    /// A person has to see to something; giving the command again goes on then.
    Stopped(Vec<Wait>),
    /// It was asked to end; giving the command again goes on.
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

/// The cluster's disks that none of its VMs holds, as they are shown to whoever has its data disks removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnattachedDisk {
    /// Those that go with it.
    pub goes: Vec<DiskRef>,
    /// Those whose removal was asked for, and that are not there: each is gone, or elsewhere. A VM may still name one there.
    pub doubtful: Vec<DiskRef>,
    /// Those whose removal was asked for, that are not where they were noted, and that a VM which was seen holds; and those that were to be
    /// removed and that a VM holds which is none of the cluster's.
    pub held: Vec<HeldDisk>,
}

/// A disk that was to be removed, and which a VM holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDisk {
    /// The disk, where it is now.
    pub disk: DiskRef,
    /// The VM that holds it, for people.
    pub by: String,
}

pub type Notice<'a> = crate::Notice<'a, Action, Wait>;

/// One cluster's control nodes.
pub struct Deploy<'a> {
    pub hypervisor: &'a dyn Hypervisor,
    /// The new nodes.
    pub guests: &'a dyn Guests,
    /// Where holds and journals are kept: never in the cluster. The same that its upgrades use.
    pub store: &'a dyn Store,
    /// Where VMs are put.
    pub placement: Placement,
    /// What the caller does, such as the name of its command.
    pub what: &'a str,
    /// Told what is happening.
    pub watch: &'a (dyn Fn(&Notice<'_>) + Sync),
    /// The pause between two looks.
    pub pace: Duration,
    /// How long a run waits for what cannot be done now, before it ends paused.
    pub pause_limit: Duration,
    /// Removes the place that the cluster was in, with all that is kept there, if it has one of its own: called under the hold,
    /// once nothing of the cluster is left.
    pub empties: &'a (dyn Fn() -> anyhow::Result<()> + Sync),
    /// Told the kubeconfig that a node of a cluster which has formed has given, good for a day, at each look that brings one: also where the run
    /// ends waiting for another node. Whoever keeps the last one has a way in meanwhile.
    pub renewed: &'a (dyn Fn(&str) + Sync),
    /// Where what is kept may have been turned back to an earlier moment without the VMs, such as a database that was restored from a
    /// snapshot: what this process has begun. Nothing is done beside VMs that are newer then, whenever these are seen first, and the data
    /// disk of half a VM that another process has begun is kept; and a VM that the process has made in vain three times is made once an hour.
    /// None where what is kept is believed.
    pub restorable: Option<&'a Unfinished>,
    /// Becomes true when a run is to end at the next moment at which it can be continued.
    pub cancelled: watch::Receiver<bool>,
}
