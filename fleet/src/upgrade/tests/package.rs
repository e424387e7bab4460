//! A small OVA: its disk holds nothing that starts, but everything about it can be verified.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use ova::archive::Package;
use ova::ovf::{
    CdRomController, Descriptor, Disk, DiskFile, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Property, PropertyGroup, PropertyType, Qualifier, Size, Sizing, Transport,
};
use ova::signature::Signer;
use ova::vmdk;
use tempfile::TempDir;

use super::fake::new;
use crate::upgrade::Target;

/// An OVA that the image of the fakes comes in, signed, and the directory that it goes with: read once for all tests
/// that run together.
pub fn shared() -> Arc<(TempDir, Target)> {
    static SHARED: Mutex<Weak<(TempDir, Target)>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let made = Arc::new(target());
        *shared = Arc::downgrade(&made);
        made
    })
}

fn target() -> (TempDir, Target) {
    // In memory where there is room: it is read thousands of times.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let ova = write(directory.path(), &format!("0.2.0+{} (etcd 3.6)", new().build), Some(&signer()));
    let target = Target::read(&ova).unwrap();
    (directory, target)
}

/// Somebody's key.
pub fn signer() -> Signer {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
    Signer::from_pem(&key.serialize_pem(), &certificate).unwrap()
}

/// Writes the OVA of version 0.2.0 into a directory.
pub fn write(directory: &Path, full_version: &str, signer: Option<&Signer>) -> PathBuf {
    write_with(directory, full_version, signer, Vec::new())
}

/// The same, with variables that its VMs have from their first moment.
pub fn write_with(
    directory: &Path,
    full_version: &str,
    signer: Option<&Signer>,
    extra_config: Vec<(String, String)>,
) -> PathBuf {
    static DISK: LazyLock<(vmdk::Written, Vec<u8>)> = LazyLock::new(disk);
    let (written, bytes) = &*DISK;
    let disk = directory.join("disk");
    fs::write(&disk, bytes).unwrap();
    let ova = directory.join("appliance.ova");
    let mut descriptor = descriptor(full_version, written);
    descriptor.hardware.extra_config = extra_config;
    let package =
        Package { name: "appliance", descriptor: &descriptor, disks: &[disk], modified: 1_700_000_000, signer };
    ova::archive::write(&ova, &package, &mut |_| {}).unwrap();
    ova
}

/// A disk with nothing on it that starts.
fn disk() -> (vmdk::Written, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let (raw, disk) = (directory.path().join("raw"), directory.path().join("disk.vmdk"));
    fs::write(&raw, [7; 64 << 10]).unwrap();
    let written = vmdk::from_raw(&raw, &disk, &vmdk::Options::default(), &mut |_| {}).unwrap();
    (written, fs::read(disk).unwrap())
}

fn descriptor(full_version: &str, disk: &vmdk::Written) -> Descriptor {
    let minor = Property {
        key: "kubernetes-version".into(),
        kind: PropertyType::String,
        qualifiers: Qualifier::parse_list("ValueMap{\"1.36\",\"1.35\"}"),
        default: Some("1.36".into()),
        user_configurable: true,
        password: false,
        label: "Kubernetes".into(),
        description: "Minor".into(),
    };
    let text = |key: &str| Property {
        key: key.into(),
        kind: PropertyType::String,
        qualifiers: Vec::new(),
        default: None,
        user_configurable: true,
        password: false,
        label: key.into(),
        description: key.into(),
    };
    Descriptor {
        name: "kaas-control-plane".into(),
        annotation: None,
        eula: None,
        operating_system: OperatingSystem { cim_type: 96, vmware_type: None, description: "Debian".into() },
        product: Product {
            name: "KaaS control plane".into(),
            vendor: "KaaS".into(),
            version: "0.2.0".into(),
            full_version: Some(full_version.into()),
            groups: vec![PropertyGroup {
                category: None,
                properties: vec![minor, text("node-name"), text("deployment-secret")],
            }],
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
        networks: vec![Network { name: "Management".into(), description: "Nodes".into() }],
        sizing: Sizing::Fixed(Size { cpus: 2, memory_mib: 2048 }),
        hardware: Hardware {
            version: 15,
            transports: vec![Transport::GuestInfo, Transport::Iso],
            disks: vec![
                HardDisk { disk: "system".into(), unit: 0, profiles: vec![] },
                HardDisk { disk: "data".into(), unit: 1, profiles: vec![] },
            ],
            adapters: vec![NetworkAdapter { network: "Management".into() }],
            cd_rom: Some(CdRomController::Sata),
            firmware: Firmware::Efi { secure_boot: false },
            extra_config: vec![],
        },
    }
}
