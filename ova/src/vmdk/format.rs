//! The binary structures of a streamOptimized extent.
//!
//! Source: *Virtual Disk Format 5.0*, "Hosted Sparse Extents" (header, grain
//! directory and tables) and "Stream-Optimized Compressed Sparse Extents"
//! (markers, footer). All integers are little-endian, all offsets are sectors
//! from the beginning of the file.

/// Bytes of a sector, the unit of all offsets.
pub const SECTOR: u64 = 512;
/// The same, to size buffers.
pub const SECTOR_BYTES: usize = 512;
/// Sectors of a grain. VMware products read no other grain size in streamOptimized files.
pub const GRAIN_SECTORS: u64 = 128;
/// Bytes of a grain: 64 KiB. A disk's capacity is a multiple of this.
pub const GRAIN_BYTES: u64 = GRAIN_SECTORS * SECTOR;
/// Entries of a grain table ("numGTEsPerGT", "always 512").
pub const TABLE_ENTRIES: usize = 512;
/// Sectors of a grain table.
pub const TABLE_SECTORS: u64 = (TABLE_ENTRIES * 4) as u64 / SECTOR;
/// The place of the grain directory if it is not known when the header is written (`GD_AT_END`): the footer has it.
pub const DIRECTORY_AT_END: u64 = u64::MAX;
/// The largest disk that is read, in sectors: 64 TiB. vSphere's limit is 62 TB. The limit bounds the tables.
pub const MAX_CAPACITY: u64 = (64 << 40) / SECTOR;

/// The letters "KDMV" in the file.
const MAGIC: u32 = 0x564d_444b;
/// vSphere writes version 3, and requires it for compressed extents.
pub const VERSION: u32 = 3;
/// The header's four end-of-line bytes are valid.
const FLAG_NEWLINE_TEST: u32 = 1;
/// The file has a redundant grain table.
const FLAG_REDUNDANT_TABLE: u32 = 1 << 1;
/// Grain table entries of 1 mean grains of zeros.
const FLAG_ZERO_GRAINS: u32 = 1 << 2;
/// Grains are compressed.
const FLAG_COMPRESSED: u32 = 1 << 16;
/// Markers precede grains and metadata.
const FLAG_MARKERS: u32 = 1 << 17;
/// RFC 1951 data in RFC 1950 (zlib) framing.
const COMPRESSION_DEFLATE: u16 = 1;
/// Bytes 73 to 76 of the header, which a transfer in text mode would change.
const NEWLINE_TEST: [u8; 4] = *b"\n \r\n";

/// `SparseExtentHeader`, 512 bytes in the file; the footer has the same form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub flags: u32,
    /// Sectors of the disk.
    pub capacity: u64,
    /// Sectors of a grain.
    pub grain_size: u64,
    pub descriptor_offset: u64,
    pub descriptor_size: u64,
    pub table_entries: u32,
    pub redundant_directory: u64,
    pub directory: u64,
    /// Sectors before the first grain.
    pub overhead: u64,
    pub compression: u16,
}

impl Header {
    /// The header of a file of ours: one embedded descriptor, grain directory at the end.
    pub fn stream_optimized(capacity: u64, descriptor_size: u64, overhead: u64) -> Header {
        Header {
            version: VERSION,
            flags: FLAG_NEWLINE_TEST | FLAG_COMPRESSED | FLAG_MARKERS,
            capacity,
            grain_size: GRAIN_SECTORS,
            descriptor_offset: 1,
            descriptor_size,
            table_entries: TABLE_ENTRIES as u32,
            redundant_directory: 0,
            directory: DIRECTORY_AT_END,
            overhead,
            compression: COMPRESSION_DEFLATE,
        }
    }

    /// The 512 bytes of the file.
    pub fn encode(&self) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(4, &self.version.to_le_bytes());
        put(8, &self.flags.to_le_bytes());
        put(12, &self.capacity.to_le_bytes());
        put(20, &self.grain_size.to_le_bytes());
        put(28, &self.descriptor_offset.to_le_bytes());
        put(36, &self.descriptor_size.to_le_bytes());
        put(44, &self.table_entries.to_le_bytes());
        put(48, &self.redundant_directory.to_le_bytes());
        put(56, &self.directory.to_le_bytes());
        put(64, &self.overhead.to_le_bytes());
        // Byte 72, uncleanShutdown, stays 0.
        put(73, &NEWLINE_TEST);
        put(77, &self.compression.to_le_bytes());
        bytes
    }

    /// Reads a header or footer.
    pub fn decode(bytes: &[u8; SECTOR_BYTES]) -> Result<Header, String> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| le_u32(&bytes[at..]);
        let u64_at = |at: usize| le_u64(&bytes[at..]);
        if u32_at(0) != MAGIC {
            return Err("it does not begin with the letters KDMV".into());
        }
        let header = Header {
            version: u32_at(4),
            flags: u32_at(8),
            capacity: u64_at(12),
            grain_size: u64_at(20),
            descriptor_offset: u64_at(28),
            descriptor_size: u64_at(36),
            table_entries: u32_at(44),
            redundant_directory: u64_at(48),
            directory: u64_at(56),
            overhead: u64_at(64),
            compression: u16_at(77),
        };
        if header.flags & FLAG_NEWLINE_TEST != 0 && bytes[73..77] != NEWLINE_TEST {
            return Err("its end-of-line test bytes are changed, as by a transfer in text mode".into());
        }
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), String> {
        const KNOWN: u32 = FLAG_NEWLINE_TEST | FLAG_REDUNDANT_TABLE | FLAG_ZERO_GRAINS | FLAG_COMPRESSED | FLAG_MARKERS;
        let wanted = FLAG_COMPRESSED | FLAG_MARKERS;
        if !(1..=VERSION).contains(&self.version) {
            return Err(format!("its version is {}, known are 1 to {VERSION}", self.version));
        }
        if self.flags & wanted != wanted || self.flags & !KNOWN != 0 {
            return Err(format!("its flags are {:#x}, compressed grains with markers have {wanted:#x}", self.flags));
        }
        if self.compression != COMPRESSION_DEFLATE {
            return Err(format!("its compression method is {}, known is 1 (deflate)", self.compression));
        }
        if self.grain_size != GRAIN_SECTORS || self.table_entries != TABLE_ENTRIES as u32 {
            return Err(format!(
                "its grains have {} sectors and its tables {} entries, expected are {GRAIN_SECTORS} and {TABLE_ENTRIES}",
                self.grain_size, self.table_entries
            ));
        }
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(format!("its capacity is {} sectors, allowed are 1 to {MAX_CAPACITY}", self.capacity));
        }
        Ok(())
    }

    /// The place of a second grain directory with separate tables, if the file has one.
    pub fn redundant_directory(&self) -> Option<u64> {
        (self.flags & FLAG_REDUNDANT_TABLE != 0).then_some(self.redundant_directory)
    }

    /// The number of grains of the disk. The last one may be partial.
    pub fn grains(&self) -> u64 {
        self.capacity.div_ceil(GRAIN_SECTORS)
    }
}

/// Entries of the grain directory of a disk with `grains` grains.
pub fn directory_entries(grains: u64) -> u64 {
    grains.div_ceil(TABLE_ENTRIES as u64)
}

/// Sectors of a grain directory with `entries` entries.
pub fn directory_sectors(entries: u64) -> u64 {
    (entries * 4).div_ceil(SECTOR)
}

/// Bytes of the marker before a grain: its sector on the disk, and the size of the compressed data that follows.
pub const GRAIN_MARKER_BYTES: usize = 12;

/// The marker before a grain.
pub fn grain_marker(lba: u64, compressed: u32) -> [u8; GRAIN_MARKER_BYTES] {
    let mut bytes = [0; GRAIN_MARKER_BYTES];
    bytes[..8].copy_from_slice(&lba.to_le_bytes());
    bytes[8..].copy_from_slice(&compressed.to_le_bytes());
    bytes
}

/// The kinds of metadata that follow a metadata marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Metadata {
    /// Nothing follows: the file ends.
    EndOfStream = 0,
    Table = 1,
    Directory = 2,
    Footer = 3,
}

/// The sector that announces metadata: the number of its sectors, a size of 0 (which distinguishes it from a grain),
/// its kind.
pub fn metadata_marker(kind: Metadata, sectors: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    bytes[..8].copy_from_slice(&sectors.to_le_bytes());
    bytes[12..16].copy_from_slice(&(kind as u32).to_le_bytes());
    bytes
}

/// A sector that begins with a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The marker of a grain. The compressed data begins in the same sector.
    Grain { lba: u64, compressed: u32 },
    /// The marker of metadata, which begins in the next sector.
    Metadata { kind: Metadata, sectors: u64 },
}

impl Marker {
    /// Reads the marker at the beginning of a sector.
    pub fn decode(sector: &[u8; SECTOR_BYTES]) -> Result<Marker, String> {
        let value = le_u64(sector);
        let size = le_u32(&sector[8..]);
        if size != 0 {
            return Ok(Marker::Grain { lba: value, compressed: size });
        }
        let kind = match le_u32(&sector[12..]) {
            0 => Metadata::EndOfStream,
            1 => Metadata::Table,
            2 => Metadata::Directory,
            3 => Metadata::Footer,
            other => return Err(format!("there is no marker of type {other}")),
        };
        Ok(Marker::Metadata { kind, sectors: value })
    }
}

/// The first four bytes as a number.
pub fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn le_u64(bytes: &[u8]) -> u64 {
    u64::from(le_u32(bytes)) | u64::from(le_u32(&bytes[4..])) << 32
}
