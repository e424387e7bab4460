//! What a cluster takes of a datastore. Pure; knows nothing of what is said of it.

use fleet::vcenter::Clones;

use super::inventory::DatacenterInventory;
use super::requirements::Requirements;

/// What is taken of a datastore, in bytes.
pub struct SpaceDemand {
    /// By what is written at once: images, and the files that each VM that is on swaps to, as large as its memory.
    pub at_once: u64,
    /// Once disks that grow are full.
    pub at_most: u64,
}

impl SpaceDemand {
    /// Of what is not there yet.
    pub fn of(asked: &Requirements, seen: &DatacenterInventory, clones: Clones) -> Self {
        let vms = asked.nodes.iter().filter(|(name, _)| !seen.own.contains(name)).count() as u64;
        let memory = u64::from(asked.size.memory) << 20;
        // The image lies ready for what is made of it: where all VMs are there nobody asks for it.
        let template = if vms == 0 || seen.staged { 0 } else { 1 };
        let copies = template + if clones == Clones::Full { vms } else { 0 };
        // A linked clone grows up to what its disk can hold.
        let disks = template + vms;
        Self {
            at_once: copies * asked.image + vms * memory,
            at_most: disks * asked.system + vms * (memory + asked.size.data_disk.unwrap_or_default()),
        }
    }
}

/// Whole GiB that these bytes take.
pub fn gib_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 30)
}

/// Whole GiB in these bytes.
pub fn gib_down(bytes: u64) -> u64 {
    bytes >> 30
}
