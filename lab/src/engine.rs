//! What a lab asks of whatever runs its VMs: system containers or QEMU. The lab itself keeps the
//! inventory, the disks and the network.

use std::process::Command;

use contract::deployer::Fingerprints;
use contract::statement::Statement;

use super::process::ProcessId;
use super::records::VmRecord;

/// Runs VMs of one lab.
pub trait Engine {
    /// Starts a VM that is off and returns the process that is the VM.
    ///
    /// # Errors
    /// When it does not start; [`Engine::release`] then cleans up.
    fn start(&self, vm: &VmRecord) -> anyhow::Result<ProcessId>;

    /// Asks the guest to shut down, as a press of the power button does; false when nothing in it takes such a request,
    /// perhaps not yet.
    ///
    /// # Errors
    /// When the request cannot be made.
    fn ask_to_shut_down(&self, vm: &VmRecord) -> anyhow::Result<bool>;

    /// Ends a VM as a power cut does and waits until it is off.
    ///
    /// # Errors
    /// When something of it is still running after a while.
    fn cut(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Whether anything of the VM runs.
    fn is_on(&self, vm: &VmRecord) -> bool;

    /// Gives back what a VM that is off had taken from the host. Can be called
    /// at any time while it is off, also after a crash of this command.
    ///
    /// # Errors
    /// When the host does not take it back.
    fn release(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Takes the CD-ROM out of the drive of a VM that is on.
    ///
    /// # Errors
    /// When the VM does not let go of it.
    fn eject_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Puts the lab's CD-ROM of a VM that is on into its drive, in place of one that is in there.
    ///
    /// # Errors
    /// When the VM does not take it.
    fn insert_cdrom(&self, vm: &VmRecord) -> anyhow::Result<()>;

    /// Shows a VM that is on the new size of its data disk of this number, whose file has been made larger.
    ///
    /// # Errors
    /// When the VM's disk does not become larger.
    fn enlarge_disk(&self, vm: &VmRecord, number: usize) -> anyhow::Result<()>;

    /// Presses keys of a VM that is on, all at once, by QEMU's names of them (`QKeyCode` of its `qapi/ui.json`).
    ///
    /// # Errors
    /// When the VM has no such keys.
    fn press(&self, vm: &VmRecord, keys: &[&str]) -> anyhow::Result<()>;

    /// What the guest shows of its cluster, if it has shown something since its power-on.
    ///
    /// # Errors
    /// When what it shows cannot be looked at.
    fn fingerprints(&self, vm: &VmRecord) -> anyhow::Result<Option<Fingerprints>>;

    /// What the guest says of itself, if it has said something since its power-on.
    ///
    /// # Errors
    /// When what it says cannot be looked at.
    fn statement(&self, vm: &VmRecord) -> anyhow::Result<Option<Statement>>;

    /// A program inside the guest as root, begun by another one outside if there is one; not started yet.
    ///
    /// # Errors
    /// When the guest cannot be entered.
    fn command_inside(&self, vm: &VmRecord, by: &[&str], arguments: &[&str]) -> anyhow::Result<Command>;
}
