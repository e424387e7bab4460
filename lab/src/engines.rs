//! Both engines of a lab, for each VM the one that it was imported for, all on one network.

use super::container::Containers;
use super::engine::Engine;
use super::engine_record::EngineRecord;
use super::qemu::VirtualMachines;
use super::records::VmRecord;

/// Both engines of one lab.
pub struct Engines {
    /// What runs VMs that note nothing else.
    pub usual: EngineRecord,
    /// Runs the system containers.
    pub containers: Containers,
    /// Runs the virtual machines.
    pub virtual_machines: VirtualMachines,
}

impl Engines {
    /// The engine that runs a VM.
    pub fn of(&self, vm: &VmRecord) -> &dyn Engine {
        match vm.engine.unwrap_or(self.usual) {
            EngineRecord::Container => &self.containers,
            EngineRecord::Qemu { .. } => &self.virtual_machines,
        }
    }
}
