//! The text descriptor embedded in a VMDK.
//!
//! Source: *Virtual Disk Format 5.0*, "The Descriptor File" and "Disk Database".

use super::format::{SECTOR, SECTOR_BYTES};

/// Sectors for the descriptor, as in vSphere's files.
pub const DESCRIPTOR_SECTORS: u64 = 20;
const DESCRIPTOR_BYTES: usize = DESCRIPTOR_SECTORS as usize * SECTOR_BYTES;

/// `ddb.adapterType`: the adapter that the disk was made for. The OVF descriptor has the real controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdapterType {
    /// SCSI disks. vSphere and its packaging tools also write this for disks of paravirtual (pvscsi) controllers.
    #[default]
    LsiLogic,
    /// Disks of an old BusLogic controller.
    BusLogic,
    /// IDE disks: the default of other tools, and a common reason for wrong geometries.
    Ide,
}

impl AdapterType {
    fn name(self) -> &'static str {
        match self {
            AdapterType::LsiLogic => "lsilogic",
            AdapterType::BusLogic => "buslogic",
            AdapterType::Ide => "ide",
        }
    }

    /// Cylinders, heads, sectors: 255/63 for SCSI disks, 16/63 and at most 16383 cylinders for IDE.
    fn geometry(self, capacity: u64) -> (u64, u64, u64) {
        let (heads, sectors, most) = match self {
            AdapterType::LsiLogic | AdapterType::BusLogic => (255, 63, 65535),
            AdapterType::Ide => (16, 63, 16383),
        };
        (capacity.div_ceil(heads * sectors).min(most), heads, sectors)
    }
}

pub struct Descriptor<'a> {
    /// Sectors of the disk.
    pub capacity: u64,
    /// File name in the extent line. Readers of disks in one file ignore it.
    pub extent_name: &'a str,
    pub adapter: AdapterType,
    /// Identifies the disk's content. Its last four bytes are the CID.
    pub content_id: [u8; 16],
}

impl Descriptor<'_> {
    /// The descriptor's sectors, filled up with zeros.
    pub fn encode(&self) -> Vec<u8> {
        let (cylinders, heads, sectors) = self.adapter.geometry(self.capacity);
        let text = format!(
            "# Disk DescriptorFile\n\
             version=1\n\
             encoding=\"UTF-8\"\n\
             CID={cid}\n\
             parentCID={NO_PARENT}\n\
             createType=\"streamOptimized\"\n\
             \n\
             # Extent description\n\
             RW {capacity} SPARSE \"{extent}\"\n\
             \n\
             # The Disk Data Base\n\
             #DDB\n\
             \n\
             ddb.adapterType = \"{adapter}\"\n\
             ddb.geometry.cylinders = \"{cylinders}\"\n\
             ddb.geometry.heads = \"{heads}\"\n\
             ddb.geometry.sectors = \"{sectors}\"\n\
             ddb.longContentID = \"{long}\"\n\
             ddb.toolsInstallType = \"{TOOLS_UNMANAGED}\"\n\
             ddb.toolsVersion = \"{TOOLS_VERSION_UNMANAGED}\"\n\
             ddb.virtualHWVersion = \"4\"\n",
            cid = crate::digest::to_hex(&self.content_id[12..]),
            capacity = self.capacity,
            extent = self.extent_name,
            adapter = self.adapter.name(),
            long = crate::digest::to_hex(&self.content_id),
        );
        let mut bytes = text.into_bytes();
        // The name has at most 100 bytes, and the numbers are few: far below the 10 KiB.
        bytes.resize(DESCRIPTOR_BYTES, 0);
        bytes
    }
}

/// `parentCID` of a whole disk, which is no difference to another.
const NO_PARENT: &str = "ffffffff";
/// `ddb.toolsInstallType`: the guest itself installs and updates them, such as open-vm-tools.
const TOOLS_UNMANAGED: u32 = 4;
/// `ddb.toolsVersion` of unmanaged tools. Without it, vSphere shows a guest as having no tools until its first run.
const TOOLS_VERSION_UNMANAGED: u32 = i32::MAX as u32;

/// The CID of a disk's content: the last four bytes, but never the values for "no parent" and "all zeros".
pub fn content_id(digest: &crate::Sha256) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&digest.0[..16]);
    if matches!(id[12..], [0xff, 0xff, 0xff, 0xfe | 0xff]) {
        id[12] = 0;
    }
    id
}

/// Checks that a descriptor is that of one streamOptimized extent of `capacity` sectors without a parent.
pub fn check(bytes: &[u8], capacity: u64) -> Result<(), String> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "its descriptor is not text")?;
    let mut create_type = None;
    let mut parent = None;
    let mut extents = Vec::new();
    for line in text.lines().map(str::trim) {
        let pair = line.split_once('=').map(|(key, value)| (key.trim(), value.trim().trim_matches('"')));
        if let Some((_, value)) = pair.filter(|(key, _)| key.eq_ignore_ascii_case("createType")) {
            create_type = Some(value);
        } else if let Some((_, value)) = pair.filter(|(key, _)| key.eq_ignore_ascii_case("parentCID")) {
            parent = Some(value);
        } else if ["RW ", "RDONLY ", "NOACCESS "].iter().any(|access| line.starts_with(access)) {
            extents.push(line);
        }
    }
    match create_type {
        Some("streamOptimized") => {}
        Some(other) => return Err(format!("its descriptor says createType {:?}", shortened(other))),
        None => return Err("its descriptor has no createType".into()),
    }
    if let Some(parent) = parent.filter(|parent| !parent.eq_ignore_ascii_case(NO_PARENT)) {
        return Err(format!("its descriptor says that it is a difference to the disk {:?}", shortened(parent)));
    }
    let [extent] = extents[..] else {
        return Err(format!("its descriptor lists {} extents, not one", extents.len()));
    };
    match extent.split_whitespace().nth(1).and_then(|sectors| sectors.parse::<u64>().ok()) {
        Some(sectors) if sectors == capacity => Ok(()),
        _ => Err(format!("its descriptor's extent {:?} is not the header's {capacity} sectors", shortened(extent))),
    }
}

/// A part of a descriptor's text, short enough for a message.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Sectors before the first grain: header and descriptor, filled up to a whole grain as vSphere does.
pub const OVERHEAD: u64 = super::format::GRAIN_SECTORS;

const _: () = assert!(DESCRIPTOR_SECTORS < OVERHEAD && DESCRIPTOR_BYTES as u64 == DESCRIPTOR_SECTORS * SECTOR);
