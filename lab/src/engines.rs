//! The two engines of a lab, on one network. Each VM has the engine of its import.

use super::container::Containers;
use super::engine::Engine;
use super::engine_record::EngineRecord;
use super::qemu::VirtualMachines;
use super::records::VmRecord;

/// The two engines of one lab.
pub struct Engines {
    /// Runs the system containers.
    pub containers: Containers,
    /// Runs the virtual machines.
    pub virtual_machines: VirtualMachines,
}

impl Engines {
    /// The engine that runs a VM.
    pub fn of(&self, vm: &VmRecord) -> &dyn Engine {
        match vm.engine {
            EngineRecord::Container => &self.containers,
            EngineRecord::Qemu { .. } => &self.virtual_machines,
        }
    }
}
