//! The interface of an engine, which runs a lab's VMs: system containers or QEMU. The lab owns the inventory, the
//! disks and the network.

use std::process::Command;

use contract::deployer::Fingerprints;
use contract::statement::Statement;

use super::process::ProcessId;
use super::records::VmRecord;

/// Runs VMs of one lab.
pub trait Engine {
    /// Starts a VM that is off. Returns its process. After an error, [`Engine::release`] cleans up.
    fn start(&self, vm: &VmRecord) -> anyhow::Result<ProcessId>;

    /// Asks the guest to shut down, as a press of the power button does. `false` if nothing in it handles such a
    /// request, perhaps not yet.
    fn ask_to_shut_down(&self, vm: &VmRecord) -> anyhow::Result<bool>;

    /// Ends a VM as a power cut does and waits until it is off.
    fn cut(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Whether any process of the VM runs.
    fn is_on(&self, vm: &VmRecord) -> bool;

    /// Releases what a VM that is off used on the host. Can be called at any time while it is off, also after a crash
    /// of this command.
    fn release(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Ejects the CD-ROM of a VM that is on.
    fn eject_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Inserts the lab's CD-ROM of a VM that is on. Replaces one that is in the drive.
    fn insert_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Announces the new size of a data disk to a VM that is on. The disk's file is already larger. `number` counts
    /// from 0.
    fn enlarge_disk(&self, vm: &VmRecord, number: usize) -> anyhow::Result<()>;

    /// Presses keys of a VM that is on, all at once, by QEMU's names (`QKeyCode` of its `qapi/ui.json`).
    fn press(&self, vm: &VmRecord, keys: &[&str]) -> anyhow::Result<()>;

    /// The fingerprints that the guest has shown since its power-on.
    fn fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>>;

    /// The statement that the guest has shown since its power-on.
    fn statement(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>>;

    /// A program inside the guest as root, started through the program `by` outside if that is not empty. The caller
    /// starts it.
    fn command_inside(&self, vm: &VmRecord, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command>;
}
