//! What runs a VM, as its record says it.

use serde::{Deserialize, Serialize};

/// What runs a VM of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum EngineRecord {
    /// A system container.
    Container,
    /// A virtual machine.
    Qemu {
        /// Whether KVM runs guests here; emulation otherwise.
        kvm: bool,
        /// Which devices the VM has.
        hardware: Hardware,
    },
}

impl EngineRecord {
    /// Whether processors are emulated.
    pub fn is_emulated(&self) -> bool {
        matches!(self, EngineRecord::Qemu { kvm: false, .. })
    }

    /// Whether it is what somebody wants again: the same kind with the same devices. Whether KVM runs guests is no wish.
    pub fn is_alike(self, other: Self) -> bool {
        match (self, other) {
            (Self::Container, Self::Container) => true,
            (Self::Qemu { hardware, .. }, Self::Qemu { hardware: other, .. }) => hardware == other,
            (Self::Container | Self::Qemu { .. }, _) => false,
        }
    }

    /// How many times longer than usual the guest should wait for anything.
    pub fn timeout_factor(&self) -> u32 {
        if self.is_emulated() { 5 } else { 1 }
    }
}

/// The hardware that a lab's VMs have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hardware {
    /// What QEMU is quickest with: NVMe system disk, virtio network interface.
    #[default]
    Quick,
    /// What vSphere gives the OVA: pvscsi for every disk, vmxnet3. The firmware
    /// cannot read pvscsi: it is handed the image's own kernel image.
    Vsphere,
}
