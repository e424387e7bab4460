//! Small OVAs of nodes. Nothing on their disk starts, but they can be verified and imported.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use contract::role::Role;
use ova::archive::Package;
use ova::ovf::{
    CdRomController, Descriptor, Disk, DiskFile, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Property, PropertyGroup, PropertyType, Qualifier, Size, Sizing, Transport,
};
use ova::signature::Signer;
use ova::vmdk;

/// An OVA of version 0.2.0 with one adapter, a system disk and a blank data disk of 64 MiB.
pub struct Appliance<'a> {
    /// Its name, as in the images: `kaas-control-plane` or `kaas-tenant`.
    pub name: &'a str,
    /// As in the description of an image: version, build identifier, and etcd's version.
    pub full_version: &'a str,
    pub properties: Vec<Property>,
    /// Entries of `extraConfig` that its VMs are created with.
    pub extra_config: Vec<(String, String)>,
    /// The key that signs it.
    pub signer: Option<&'a Signer>,
}

impl Appliance<'_> {
    /// Writes it as `appliance.ova` into a directory. The file of its disk is written there, too.
    pub fn write(self, directory: &Path) -> PathBuf {
        static DISK: LazyLock<(vmdk::WrittenDisk, Vec<u8>)> = LazyLock::new(disk);
        let (written, bytes) = &*DISK;
        let disk = directory.join("disk");
        fs::write(&disk, bytes).unwrap();
        let ova = directory.join("appliance.ova");
        let signer = self.signer;
        let descriptor = self.descriptor(written);
        let package =
            Package { name: "appliance", descriptor: &descriptor, disks: &[disk], modified: 1_700_000_000, signer };
        ova::archive::write(&ova, &package, &mut |_| {}).unwrap();
        ova
    }

    fn descriptor(self, disk: &vmdk::WrittenDisk) -> Descriptor {
        Descriptor {
            name: self.name.into(),
            annotation: None,
            eula: None,
            operating_system: OperatingSystem { cim_type: 96, vmware_type: None, description: "Debian".into() },
            product: Product {
                name: "KaaS control plane".into(),
                vendor: "KaaS".into(),
                version: "0.2.0".into(),
                full_version: Some(self.full_version.into()),
                groups: vec![PropertyGroup { category: None, properties: self.properties }],
                ..Product::default()
            },
            disks: vec![
                Disk {
                    id: "system".into(),
                    capacity: disk.capacity,
                    file: Some(DiskFile {
                        name: "appliance-disk1.vmdk".into(),
                        size: Some(disk.size),
                        populated: Some(disk.populated),
                    }),
                },
                Disk { id: "data".into(), capacity: 64 << 20, file: None },
            ],
            networks: vec![Network { name: "VM Network".into(), description: "Nodes".into() }],
            sizing: Sizing::Fixed(Size { cpus: 2, memory_mib: 2048 }),
            hardware: Hardware {
                version: 15,
                transports: vec![Transport::GuestInfo, Transport::Iso],
                disks: vec![
                    HardDisk { disk: "system".into(), unit: 0, profiles: vec![] },
                    HardDisk { disk: "data".into(), unit: 1, profiles: vec![] },
                ],
                adapters: vec![NetworkAdapter { network: "VM Network".into() }],
                cd_rom: Some(CdRomController::Sata),
                firmware: Firmware::Efi { secure_boot: false },
                extra_config: self.extra_config,
            },
        }
    }
}

/// A disk that starts nothing.
fn disk() -> (vmdk::WrittenDisk, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let (raw, disk) = (directory.path().join("raw"), directory.path().join("disk.vmdk"));
    fs::write(&raw, [7; 64 << 10]).unwrap();
    let written = vmdk::from_raw(&raw, &disk, &vmdk::Options::default(), &mut |_| {}).unwrap();
    (written, fs::read(disk).unwrap())
}

/// The Kubernetes minor versions in the image of these OVAs, the newest first.
const MINORS: [&str; 2] = ["1.36", "1.35"];

/// The fewest properties with which nodes differ: `kubernetes-version`, `node-name`, `deployment-secret`.
pub fn few_properties() -> Vec<Property> {
    let minor = Property {
        key: "kubernetes-version".into(),
        kind: PropertyType::String,
        qualifiers: Qualifier::parse_list(&format!("ValueMap{{{:?},{:?}}}", MINORS[0], MINORS[1])),
        default: Some(MINORS[0].into()),
        user_configurable: true,
        password: false,
        label: "Kubernetes".into(),
        description: "Minor".into(),
    };
    let text = |key: &str, password| Property {
        key: key.into(),
        kind: PropertyType::String,
        qualifiers: Vec::new(),
        default: None,
        user_configurable: true,
        password,
        label: key.into(),
        description: key.into(),
    };
    vec![minor, text("node-name", false), text("deployment-secret", true)]
}

/// The properties in the OVA of a role's nodes.
pub fn form(role: Role) -> Vec<Property> {
    let field = |property: contract::properties::FormProperty| Property {
        key: property.key.to_owned(),
        kind: PropertyType::from_name(property.ovf_type),
        qualifiers: property.qualifiers.as_deref().map(Qualifier::parse_list).unwrap_or_default(),
        default: property.default,
        user_configurable: true,
        password: property.password,
        label: property.label,
        description: property.description,
    };
    let minors = ["1.35".to_owned(), "1.36".to_owned()];
    contract::properties::form(&role.into(), &minors).into_iter().map(field).collect()
}
