//! The BIOS UUID by which a guest and vCenter name the same VM.
//!
//! vCenter's `config.uuid` and the guest's `product_serial` ("VMware-42 0e 3f 74 …") have one order of bytes. From hardware
//! version 13 on, `product_uuid` shows the first three groups in the other order. SMBIOS 2.6 made them little-endian (DSP0134
//! 3.7, 7.2.1), and the firmware writes them as before. Both forms of one VM are shown in kubernetes/kubernetes#58927,
//! vmware/pyvmomi#688 and rancher/rke#950. VMs of hardware 13 without the difference are shown in kubernetes-archived/#450.

use std::fmt;
use std::hash::{Hash, Hasher};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The beginning of a VM's serial number from VMware.
const SERIAL: &str = "VMware-";

/// The beginning of a machine's ID in Kubernetes from vSphere's cloud provider.
const PROVIDER: &str = "vsphere://";

/// The BIOS UUID of a VM as its guest reports it.
///
/// Two are equal if they name the same VM, in either order of bytes. A guest that cannot use the serial number reports
/// `product_uuid` as it reads it.
/// The JSON keeps the order that was read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BiosUuid(Uuid);

impl BiosUuid {
    /// The UUID of these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// Reads VMware's `product_serial`, such as `VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b`. `None` if the form is
    /// another.
    pub fn of_serial(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(SERIAL)?.replace([' ', '-'], "");
        named(Uuid::parse_str(&digits).ok()?).filter(|vm| vm.serial().eq_ignore_ascii_case(text))
    }

    /// Reads `product_uuid`. `None` if the firmware gives none (DSP0134 3.7, 7.2.1: all bits are zero, or all are one).
    pub fn of_product(text: &str) -> Option<Self> {
        named(Uuid::parse_str(text).ok()?)
    }

    /// Reads the ID of a machine in Kubernetes. `None` if it is not the ID of a VM.
    pub fn of_provider_id(id: &str) -> Option<Self> {
        let (start, uuid) = id.split_at_checked(PROVIDER.len())?;
        Some(Self(Uuid::parse_str(uuid).ok().filter(|_| start.eq_ignore_ascii_case(PROVIDER))?))
    }

    /// The ID in Kubernetes of a node's machine in this VM, in the form of vSphere's cloud provider.
    pub fn provider_id(self) -> String {
        format!("{PROVIDER}{self}")
    }

    /// The same VM in the other order of bytes.
    pub fn swapped(self) -> Self {
        Self(Uuid::from_bytes_le(*self.0.as_bytes()))
    }

    /// The two UUIDs, in vCenter's form, of which one is the VM's. The reported one is first.
    pub fn orders(self) -> [Uuid; 2] {
        [self.0, self.swapped().0]
    }

    /// The text with which an operator searches for the VM in vCenter, which may show either order.
    pub fn for_search(self) -> String {
        let [reported, other] = self.orders();
        if reported == other { reported.to_string() } else { format!("{reported} (or {other})") }
    }

    /// The serial number that VMware gives the VM with this BIOS UUID.
    pub fn serial(self) -> String {
        let bytes = self.0.as_bytes().map(|byte| format!("{byte:02x}"));
        format!("{SERIAL}{}-{}", bytes[..8].join(" "), bytes[8..].join(" "))
    }

    /// The bytes as they were reported.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    fn either(self) -> Uuid {
        self.0.min(self.swapped().0)
    }
}

fn named(uuid: Uuid) -> Option<BiosUuid> {
    Some(BiosUuid(uuid)).filter(|_| !uuid.is_nil() && !uuid.is_max())
}

impl From<Uuid> for BiosUuid {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for BiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for BiosUuid {
    fn eq(&self, other: &Self) -> bool {
        self.either() == other.either()
    }
}

impl Eq for BiosUuid {}

impl Hash for BiosUuid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.either().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kubernetes/kubernetes#58927: one VM, as `product_serial` and as `product_uuid`.
    const SERIAL: &str = "VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b";
    const PRODUCT: &str = "743F0E42-84EA-A2F9-7736-6106BB5DBF6B";
    const IN_ORDER: &str = "420e3f74-ea84-f9a2-7736-6106bb5dbf6b";

    #[test]
    fn both_forms_of_a_published_vm_are_equal() {
        let (serial, product) = (BiosUuid::of_serial(SERIAL).unwrap(), BiosUuid::of_product(PRODUCT).unwrap());
        assert_eq!((serial.to_string(), serial.serial()), (IN_ORDER.to_owned(), SERIAL.to_owned()));
        assert_eq!(product.to_string(), PRODUCT.to_lowercase());
        assert_eq!(product.swapped().to_string(), IN_ORDER);
        assert_eq!(serial, product);
        assert_eq!(product, Uuid::parse_str(IN_ORDER).unwrap().into());
        assert_eq!(product.orders().map(|uuid| uuid.to_string()), [PRODUCT.to_lowercase(), IN_ORDER.to_owned()]);
        assert_eq!(serial.for_search(), format!("{IN_ORDER} (or {})", PRODUCT.to_lowercase()));
        assert_eq!(BiosUuid::from_u128(7).for_search(), "00000000-0000-0000-0000-000000000007");
        // vmware/pyvmomi#688 cuts the last groups off.
        let other = BiosUuid::of_product("5C241F42-A87F-FA60-0000-000000000000").unwrap();
        assert_eq!(other.swapped().to_string(), "421f245c-7fa8-60fa-0000-000000000000");
        assert_ne!(other, serial);
    }

    #[test]
    fn serials_of_another_form_name_no_vm() {
        for wrong in [
            "",
            "VMware-",
            "None",
            "Parallels-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b",
            "vmware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b",
            "VMware-42 0e 3f 74 ea 84 f9 a2 77 36 61 06 bb 5d bf 6b",
            "VMware-42 0e 3f 74 ea 84 f9-a2 77 36 61 06 bb 5d bf 6b",
            "VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf",
            "VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b 00",
            "VMware-42 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b-00",
            "VMware-42  0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b",
            "VMware-+2 0e 3f 74 ea 84 f9 a2-77 36 61 06 bb 5d bf 6b",
            "VMware-420e3f74ea84f9a2-77366106bb5dbf6b",
            "VMware-00 00 00 00 00 00 00 00-00 00 00 00 00 00 00 00",
            "VMware-ff ff ff ff ff ff ff ff-ff ff ff ff ff ff ff ff",
        ] {
            assert!(BiosUuid::of_serial(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn provider_ids_name_the_vm_in_either_order() {
        let vm = BiosUuid::of_serial(SERIAL).unwrap();
        assert_eq!(vm.provider_id(), format!("vsphere://{IN_ORDER}"));
        for id in [vm.provider_id(), format!("vSphere://{PRODUCT}")] {
            assert_eq!(BiosUuid::of_provider_id(&id), Some(vm), "{id}");
        }
        for wrong in ["", "vsphere://", "vsphere:/", &format!("aws://{PRODUCT}"), IN_ORDER, "vsphère://x"] {
            assert_eq!(BiosUuid::of_provider_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn json_keeps_the_order_that_was_read() {
        let read: BiosUuid = serde_json::from_str(&format!("{PRODUCT:?}")).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), format!("{:?}", PRODUCT.to_lowercase()));
    }
}
