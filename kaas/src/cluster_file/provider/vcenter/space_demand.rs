//! The space that a cluster takes on a datastore. Pure. Writes no messages.

use fleet::vcenter::Clones;

use super::inventory::DatacenterInventory;
use super::requirements::Requirements;

/// Space on a datastore, in bytes.
pub struct SpaceDemand {
    /// Written at once: images, and the swap file of each running VM, as large as its memory.
    pub at_once: u64,
    /// Once growing disks are full.
    pub at_most: u64,
}

impl SpaceDemand {
    /// The space of what does not exist yet.
    pub fn of(asked: &Requirements, seen: &DatacenterInventory, clones: Clones) -> Self {
        let vms = asked.nodes.iter().filter(|(name, _)| !seen.own.contains(name)).count() as u64;
        let memory = u64::from(asked.size.memory) << 20;
        // The template is needed only for new VMs.
        let template = if vms == 0 || seen.staged { 0 } else { 1 };
        let copies = template + if clones == Clones::Full { vms } else { 0 };
        // A linked clone grows up to the capacity of its disk.
        let disks = template + vms;
        Self {
            at_once: copies * asked.image + vms * memory,
            at_most: disks * asked.system + vms * (memory + asked.size.data_disk.unwrap_or_default()),
        }
    }
}

/// Bytes in GiB, rounded up.
pub fn gib_up(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 30)
}

/// Bytes in GiB, rounded down.
pub fn gib_down(bytes: u64) -> u64 {
    bytes >> 30
}
