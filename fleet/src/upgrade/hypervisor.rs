//! What an upgrade asks of a hypervisor: calls that vSphere and the lab both
//! keep. VMs are named by BIOS UUID and disks by their own, never by name or position.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Whether a VM runs, as far as it can be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerState {
    /// Nothing of the VM runs.
    Off,
    /// Something of it does.
    On,
}

/// A VM as the hypervisor's inventory shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Name in the inventory.
    pub name: String,
    /// BIOS UUID.
    pub uuid: Uuid,
    /// Whether it runs.
    pub power: PowerState,
    /// Data disks that it holds.
    pub disks: Vec<Uuid>,
    /// Whether its network interface is connected, now and at power-on.
    pub nic_connected: bool,
}

/// A VM that is to take another one's place.
#[derive(Clone, Copy, Debug)]
pub struct ReplacementVm<'a> {
    /// Its name in the inventory.
    pub name: &'a str,
    /// The OVA that it is made from.
    pub ova: &'a Path,
    /// The VM whose place it takes: it gets the same size, networks and properties.
    pub like: Uuid,
    /// The node that both are.
    pub node: &'a str,
}

/// Runs the VMs.
pub trait Hypervisor {
    /// All VMs.
    ///
    /// # Errors
    /// When the inventory cannot be read.
    fn vms(&self) -> anyhow::Result<Vec<Vm>>;

    /// Makes a VM, powered off and without a data disk, and returns its BIOS UUID.
    ///
    /// # Errors
    /// When the name is taken or the hypervisor refuses; half a VM of this
    /// name may then be there, for [`Hypervisor::destroy`] to remove.
    fn import(&self, replacement: &ReplacementVm<'_>) -> anyhow::Result<Uuid>;

    /// Powers a VM on; nothing happens when it is on already.
    ///
    /// # Errors
    /// When it does not start.
    fn power_on(&self, vm: Uuid) -> anyhow::Result<()>;

    /// Asks the guest to shut down and waits until the VM is off, at most `limit`.
    ///
    /// # Errors
    /// When it is still on then; it goes on running.
    fn shut_down(&self, vm: Uuid, limit: Duration) -> anyhow::Result<()>;

    /// Cuts the power.
    ///
    /// # Errors
    /// When the VM does not end.
    fn cut_power(&self, vm: Uuid) -> anyhow::Result<()>;

    /// Looks up whether a VM runs: a fact, not the answer to a request.
    ///
    /// # Errors
    /// When the VM is unknown.
    fn power_state(&self, vm: Uuid) -> anyhow::Result<PowerState>;

    /// Connects or fences a VM's network interface, now and at later power-ons.
    ///
    /// # Errors
    /// When it cannot be changed.
    fn connect_nic(&self, vm: Uuid, connected: bool) -> anyhow::Result<()>;

    /// Takes a data disk away from a VM that is off; its content stays.
    ///
    /// # Errors
    /// When the VM is on or does not hold the disk.
    fn detach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()>;

    /// Gives a data disk to a VM that is off.
    ///
    /// # Errors
    /// When the VM is on, or a VM holds the disk.
    fn attach_disk(&self, vm: Uuid, disk: Uuid) -> anyhow::Result<()>;

    /// Removes a VM that is off and holds no data disk.
    ///
    /// # Errors
    /// When it is on or holds a data disk: a disk must never go with its VM.
    fn destroy(&self, vm: Uuid) -> anyhow::Result<()>;
}
