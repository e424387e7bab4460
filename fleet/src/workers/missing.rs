//! Since when VMs are not seen: a VM that one inventory lacks is not gone. Kept for one command. The next command waits as long
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::inventory::Inventory;
use super::worker_record::WorkerRecord;

/// How long a VM must be missing, by the monotonic clock, before it counts as gone. The proof is required too. A hypervisor may
/// hide a VM from an account for a while, and an API server that has just started knows no node yet.
const GONE: Duration = Duration::from_secs(60);

/// VMs that are not seen, over several inventories.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Since when, by worker.
    since: BTreeMap<String, Instant>,
    /// Workers whose VMs this command has removed.
    destroyed: BTreeSet<String>,
}

impl Missing {
    /// Adds an inventory, and sets in it which VMs are gone.
    pub(super) fn note(&mut self, machines: &[WorkerRecord], seen: &mut Inventory) {
        let missing = |machine: &&WorkerRecord| seen.is_missing(machine);
        let names: BTreeSet<String> = machines.iter().filter(missing).map(|machine| machine.name.clone()).collect();
        self.since.retain(|name, _| names.contains(name));
        self.destroyed.retain(|name| names.contains(name));
        for name in names {
            let since = *self.since.entry(name.clone()).or_insert_with(Instant::now);
            let is_proved = since.elapsed() >= GONE && !seen.unproved.contains_key(&name);
            if is_proved || self.destroyed.contains(&name) {
                seen.gone.insert(name);
            }
        }
    }

    /// Nothing could be read: a VM that was not seen before may have existed meanwhile.
    pub(super) fn blind(&mut self) {
        self.since.clear();
    }

    /// The VM of a worker was removed. For a disowned VM, the inventory says whether it may run.
    pub(super) fn destroyed(&mut self, machine: &str) {
        self.destroyed.insert(machine.to_owned());
    }
}
