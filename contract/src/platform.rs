//! The parameters of a container engine for a node that it runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bios_uuid::BiosUuid;

/// The file with the parameters of the container engine. Its presence makes the node a container.
pub const CONTAINER_FILE: &str = "/run/host/kaas/platform.json";

/// The parameters from a container engine, as JSON in [`CONTAINER_FILE`]. Paths are as the node sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The ISO 9660 image with the OVF environment. `None` for an empty drive.
    pub cdrom: Option<PathBuf>,
    /// Block devices in place of the VM's disks, without the system disk.
    pub data_disks: Vec<PathBuf>,
    /// The content of `product_uuid`. Without `dmi`, it is the BIOS UUID.
    pub bios_uuid: Uuid,
    /// The firmware's data of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi: Option<Dmi>,
    /// The cgroup below which the kubelet makes its own, such as `/kaas-lab/node1`. `None` if the node has its own hierarchy.
    #[serde(default)]
    pub cgroup_root: Option<String>,
    /// Whether the kubelet refuses cgroup v1, which is its default. `false` on lab hosts that have only cgroup v1.
    #[serde(default = "yes")]
    pub fail_cgroup_v1: bool,
    /// Whether containers must keep the agent's OOM score, because the host
    /// withholds `CAP_SYS_RESOURCE`.
    #[serde(default)]
    pub restrict_oom_score_adj: bool,
    /// The file in which the node writes the fingerprints of its cluster's CA and of its endpoint for the engine
    /// ([`crate::deployer::Fingerprints`]). It replaces guestinfo.
    #[serde(default)]
    pub fingerprints: Option<PathBuf>,
    /// The file in which the node writes its status for the engine ([`crate::statement::Statement`]), as above.
    #[serde(default)]
    pub statement: Option<PathBuf>,
}

/// The firmware's data of a VM in `/sys/class/dmi/id` (SMBIOS, DSP0134 3.7, 7.2), trimmed. A text is empty if the firmware does
/// not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dmi {
    /// The vendor of the machine.
    pub sys_vendor: String,
    /// Its serial number.
    pub product_serial: String,
    /// Its UUID as the kernel shows it.
    pub product_uuid: String,
}

impl Dmi {
    /// The data of a VMware VM with this BIOS UUID, of hardware version 13 and later. With `in_order`, as earlier hardware
    /// versions and some imported VMs show it (kubernetes-archived/#450).
    pub fn of_vmware(vm: BiosUuid, in_order: bool) -> Self {
        let shown = if in_order { vm } else { vm.swapped() };
        Self { sys_vendor: "VMware, Inc.".to_owned(), product_serial: vm.serial(), product_uuid: shown.to_string() }
    }

    /// Whether the machine is VMware's.
    pub fn is_vmware(&self) -> bool {
        self.sys_vendor.starts_with("VMware")
    }

    /// The BIOS UUID of this machine. The second value says why it is not that of VMware's serial number, if it should be.
    ///
    /// VMware's serial number has the order that vCenter shows. With `serialNumber.reflectHost`, a VM has the serial number of
    /// its host, which may be a VM as well. Then serial number and UUID name two machines, and the UUID is the VM's.
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

    /// The text of the UUID that is found, because equal UUIDs may have two orders.
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
    fn uuid_is_used_without_a_vm_serial() {
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
