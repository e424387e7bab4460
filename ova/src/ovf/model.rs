//! A virtual system as a value.

use super::property::Property;

/// Everything an OVF descriptor says about one virtual system.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// Name of the virtual system, which the import dialog proposes for the VM. Also its `ovf:id`, so made of ASCII
    /// letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// One line about it, shown before the import.
    pub annotation: Option<String>,
    /// Licence that must be accepted before the import.
    pub eula: Option<Eula>,
    /// The installed operating system.
    pub operating_system: OperatingSystem,
    /// The product, and the form of its properties.
    pub product: Product,
    /// Disks, in the order of their files in the archive.
    pub disks: Vec<Disk>,
    /// Networks to be mapped at import. At least one for each adapter.
    pub networks: Vec<Network>,
    /// Processors and memory.
    pub sizing: Sizing,
    /// The virtual hardware.
    pub hardware: Hardware,
}

impl Descriptor {
    /// The disks of a VM that is imported with this profile: those of all profiles, and those of this one. An item that
    /// names profiles belongs to these only (`ovf:configuration`, DSP0243 §9.8).
    pub fn disks_of<'d>(&'d self, profile: &'d str) -> impl Iterator<Item = &'d Disk> {
        let of = move |place: &&HardDisk| place.profiles.is_empty() || place.profiles.iter().any(|id| id == profile);
        let places = self.hardware.disks.iter().filter(of);
        places.filter_map(|place| self.disks.iter().find(|disk| disk.id == place.disk))
    }
}

/// A licence (DSP0243 §9.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eula {
    /// Its text.
    pub licence: String,
}

/// The guest operating system (DSP0243 §9.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatingSystem {
    /// `CIM_OperatingSystem.OsType`: 96 is "Debian 64-Bit", 101 "Linux 64-Bit".
    pub cim_type: u16,
    /// VMware's guest identifier (`vmw:osType`), such as `debian11_64Guest`;
    /// hosts older than the identifier fall back to the CIM type.
    pub vmware_type: Option<String>,
    /// Description for operators.
    pub description: String,
}

/// The product (DSP0243 §9.5).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Product {
    /// `ovf:class`, the first part of each key in the environment. Written only if there is one: an empty class would
    /// make the keys `.key.`.
    pub class: Option<String>,
    /// `ovf:instance`, the last part of each key in the environment.
    pub instance: Option<String>,
    /// Name of the product.
    pub name: String,
    /// The manufacturer.
    pub vendor: String,
    /// Short version, such as `0.1.0`.
    pub version: String,
    /// Full version, such as one with a build number.
    pub full_version: Option<String>,
    /// A page about the product.
    pub url: Option<String>,
    /// The properties, in the order of the form.
    pub groups: Vec<PropertyGroup>,
}

impl Product {
    /// All properties, in the order of the form.
    pub fn properties(&self) -> impl Iterator<Item = &Property> {
        self.groups.iter().flat_map(|group| &group.properties)
    }

    /// A property's key in the environment: `[class.]key[.instance]` (DSP0243 §9.5.1).
    pub fn environment_key(&self, property: &Property) -> String {
        let class = self.class.iter().filter(|class| !class.is_empty());
        let instance = self.instance.iter().filter(|instance| !instance.is_empty());
        class.chain([&property.key]).chain(instance).map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Properties under one heading of the form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PropertyGroup {
    /// The heading. Only the first group may have none.
    pub category: Option<String>,
    /// The properties.
    pub properties: Vec<Property>,
}

/// A virtual disk (DSP0243 §9.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `ovf:diskId`.
    pub id: String,
    /// Size as the guest sees it, in bytes.
    pub capacity: u64,
    /// The file with its content. `None` for a disk that is empty at first.
    pub file: Option<DiskFile>,
}

/// The file with a disk's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFile {
    /// Its name in the archive (`ovf:href`).
    pub name: String,
    /// Its size in bytes (`ovf:size`), which importers compare. The product always writes it. Other vendors may leave
    /// it out.
    pub size: Option<u64>,
    /// Bytes of data in it (`ovf:populatedSize`). Importers show the needed space by it.
    pub populated: Option<u64>,
}

/// A logical network (DSP0243 §9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name, mapped to a network of the site at import.
    pub name: String,
    /// The purpose of the network.
    pub description: String,
}

/// Processors and memory: one size, or several to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// One size.
    Fixed(Size),
    /// Deployment options, in the order of the import dialog. Exactly one is the default.
    Profiles(Vec<Profile>),
}

impl Sizing {
    /// The profiles. Empty if there is only one size.
    pub fn profiles(&self) -> &[Profile] {
        match self {
            Sizing::Fixed(_) => &[],
            Sizing::Profiles(profiles) => profiles,
        }
    }
}

/// The size of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Virtual processors.
    pub cpus: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// A sizing profile: a deployment option (DSP0243 §9.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `ovf:id`: ASCII letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// Name in the import dialog.
    pub label: String,
    /// The purpose of the profile.
    pub description: String,
    /// Used if the operator selects none. True for exactly one.
    pub default: bool,
    /// Its processors and memory.
    pub size: Size,
}

/// Virtual hardware (DSP0243 §8).
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Virtual hardware version: 15 means `vmx-15`. At least 15.
    pub version: u32,
    /// The transports of the environment to the guest, in order of preference.
    pub transports: Vec<Transport>,
    /// Disks on the one paravirtual SCSI controller.
    pub disks: Vec<HardDisk>,
    /// Network adapters, in order. All are vmxnet3.
    pub adapters: Vec<NetworkAdapter>,
    /// An empty CD-ROM drive, which the ISO transport needs.
    pub cd_rom: Option<CdRomController>,
    /// The firmware.
    pub firmware: Firmware,
    /// `vmw:ExtraConfig`, such as `("disk.EnableUUID", "TRUE")`. Import dialogs warn about unusual keys.
    pub extra_config: Vec<(String, String)>,
}

/// The transport of the OVF environment to the guest (DSP0243 §11.2; the second one is VMware's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// As `ovf-env.xml` on a CD-ROM: `iso`.
    Iso,
    /// As the variable `guestinfo.ovfEnv`, which the guest reads from VMware: `com.vmware.guestInfo`.
    GuestInfo,
}

impl Transport {
    /// Its name in `ovf:transport`.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Iso => "iso",
            Transport::GuestInfo => "com.vmware.guestInfo",
        }
    }
}

/// A disk on the SCSI controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardDisk {
    /// Its identifier in [`Descriptor::disks`].
    pub disk: String,
    /// SCSI unit number: 0 to 15, without 7, which is the controller itself.
    pub unit: u32,
    /// Profiles with this disk; all if empty. A profile can thus have a larger disk at the same unit.
    pub profiles: Vec<String>,
}

/// A vmxnet3 network adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkAdapter {
    /// Its name in [`Descriptor::networks`].
    pub network: String,
}

/// The controller of the CD-ROM drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CdRomController {
    /// AHCI, the default of new VMs.
    Sata,
    /// The older kind.
    Ide,
}

/// How the VM starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// UEFI. No nvram file: it starts the program at the removable path.
    Efi {
        /// Whether it starts only programs that are signed with a known key.
        secure_boot: bool,
    },
    /// The old BIOS.
    Bios,
}

impl Firmware {
    /// The value of VMware's `firmware` option.
    pub fn name(self) -> &'static str {
        match self {
            Firmware::Efi { .. } => "efi",
            Firmware::Bios => "bios",
        }
    }
}
