//! The engine of a VM, as its record has it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum EngineRecord {
    Container,
    Qemu {
        /// Whether KVM runs guests here. Otherwise processors are emulated.
        kvm: bool,
        hardware: Hardware,
    },
}

impl EngineRecord {
    pub fn is_emulated(&self) -> bool {
        matches!(self, EngineRecord::Qemu { kvm: false, .. })
    }

    /// Whether both are the same kind with the same devices. KVM is a property of the host, so it is not compared.
    pub fn is_alike(self, other: Self) -> bool {
        match (self, other) {
            (Self::Container, Self::Container) => true,
            (Self::Qemu { hardware, .. }, Self::Qemu { hardware: other, .. }) => hardware == other,
            (Self::Container | Self::Qemu { .. }, _) => false,
        }
    }

    pub fn timeout_factor(&self) -> u32 {
        if self.is_emulated() { 5 } else { 1 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hardware {
    /// Fastest in QEMU: NVMe system disk, virtio network interface.
    #[default]
    Quick,
    /// As vSphere runs the OVA: pvscsi for every disk, vmxnet3. The firmware cannot read pvscsi, so it gets the
    /// image's kernel image.
    Vsphere,
}
