//! What a container engine tells a node that it runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bios_uuid::BiosUuid;

/// Where a container engine tells the node what it gave it. Its presence makes
/// the node a container.
pub const CONTAINER_FILE: &str = "/run/host/kaas/platform.json";

/// What a container engine tells the node, as JSON in [`CONTAINER_FILE`].
/// Paths are as the node sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The ISO 9660 image with the OVF environment; none for an empty drive.
    pub cdrom: Option<PathBuf>,
    /// Block devices that stand for the VM's disks besides the system disk.
    pub data_disks: Vec<PathBuf>,
    /// What `product_uuid` shows. Agents that do not know `dmi` take it for the BIOS UUID, as those of released images take
    /// the file.
    pub bios_uuid: Uuid,
    /// What the firmware of a VM would show; none from engines of before: `bios_uuid` is the BIOS UUID then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi: Option<Dmi>,
    /// The cgroup below which the kubelet makes its own, such as
    /// `/kaas-lab/node1`; none where the node has a hierarchy to itself.
    #[serde(default)]
    pub cgroup_root: Option<String>,
    /// Whether the kubelet refuses cgroup v1, as it does unless told otherwise.
    /// `false` on lab hosts that have only cgroup v1.
    #[serde(default = "yes")]
    pub fail_cgroup_v1: bool,
    /// Whether containers must keep the agent's OOM score, because the host
    /// withholds `CAP_SYS_RESOURCE`.
    #[serde(default)]
    pub restrict_oom_score_adj: bool,
    /// Where the node writes the fingerprints of its cluster's authority and of its endpoint, for the engine to read
    /// ([`crate::deployer::Fingerprints`]): what stands in guestinfo elsewhere. Engines of before asked for none.
    #[serde(default)]
    pub fingerprints: Option<PathBuf>,
    /// Where the node writes what it says of itself ([`crate::statement::Statement`]), as above.
    #[serde(default)]
    pub statement: Option<PathBuf>,
}

/// What the firmware of a VM shows its guest in `/sys/class/dmi/id` (SMBIOS, DSP0134 3.7, 7.2), trimmed; an empty text for
/// what it does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dmi {
    /// Who made the machine.
    pub sys_vendor: String,
    /// Its serial number.
    pub product_serial: String,
    /// Its UUID as the kernel shows it.
    pub product_uuid: String,
}

impl Dmi {
    /// That of a VMware VM with this BIOS UUID: of hardware version 13 and later, or `in_order` as earlier ones and some
    /// imported VMs show it (kubernetes-archived/#450).
    pub fn of_vmware(vm: BiosUuid, in_order: bool) -> Self {
        let shown = if in_order { vm } else { vm.swapped() };
        Self { sys_vendor: "VMware, Inc.".to_owned(), product_serial: vm.serial(), product_uuid: shown.to_string() }
    }

    /// Whether the machine is VMware's.
    pub fn is_vmware(&self) -> bool {
        self.sys_vendor.starts_with("VMware")
    }

    /// The BIOS UUID of this machine, and why it is not that of VMware's serial number, where it should be.
    ///
    /// VMware's serial number has the order that vCenter shows. The number of a VM with `serialNumber.reflectHost` is the
    /// host's, which may be a VM as well: then the serial number and the UUID name two machines, and the UUID is the VM's.
    pub fn bios_uuid(&self) -> (Option<BiosUuid>, Option<&'static str>) {
        let product = BiosUuid::of_product(&self.product_uuid);
        match (BiosUuid::of_serial(&self.product_serial), product) {
            _ if !self.is_vmware() => (product, None),
            (None, _) => (product, Some("the serial number is not one that VMware gives a VM")),
            (Some(serial), Some(product)) if serial != product => {
                (Some(product), Some("the serial number is another machine's"))
            }
            (serial, _) => (serial, None),
        }
    }
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: BiosUuid = BiosUuid::from_u128(0x420e_3f74_ea84_f9a2_7736_6106_bb5d_bf6b);

    /// The text of what is found: equal UUIDs may have two orders.
    fn found(dmi: &Dmi) -> (Option<String>, bool) {
        let (uuid, doubt) = dmi.bios_uuid();
        (uuid.map(|uuid| uuid.to_string()), doubt.is_some())
    }

    #[test]
    fn vmware_serial_decides_whatever_order_the_uuid_has() {
        for in_order in [false, true] {
            let dmi = Dmi::of_vmware(VM, in_order);
            assert_eq!(dmi.product_uuid == VM.to_string(), in_order);
            assert_eq!(found(&dmi), (Some(VM.to_string()), false));
            assert_eq!(found(&Dmi { product_uuid: String::new(), ..dmi }), (Some(VM.to_string()), false));
        }
    }

    #[test]
    fn without_a_serial_of_the_vm_its_uuid_stays() {
        let dmi = Dmi::of_vmware(VM, false);
        let host = BiosUuid::from_u128(7).serial();
        for serial in ["", "None", "MXQ12345", "VMware-42 0e", &host] {
            let dmi = Dmi { product_serial: serial.to_owned(), ..dmi.clone() };
            assert_eq!(found(&dmi), (Some(VM.swapped().to_string()), true), "{serial}");
        }
        assert_eq!(found(&Dmi { product_serial: String::new(), product_uuid: String::new(), ..dmi }), (None, true));
    }

    #[test]
    fn the_serial_of_another_vendor_is_no_uuid() {
        let dmi = Dmi { sys_vendor: "QEMU".to_owned(), ..Dmi::of_vmware(VM, false) };
        assert_eq!(found(&dmi), (Some(VM.swapped().to_string()), false));
        let none = Dmi { product_uuid: "00000000-0000-0000-0000-000000000000".to_owned(), ..dmi };
        assert_eq!(found(&none), (None, false));
    }
}
