//! The partitions of a data disk: their places and types. This module does not depend on their content.
//!
//! The places are fixed, so that the identity can be read before partitions have device nodes. Therefore sfdisk writes
//! the table. The places of systemd-repart depend for example on the disk's reported I/O size. It also discards their
//! content, but the first partition contains the preparation record while the table is written.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::Deserialize;
use uuid::{Uuid, uuid};

use crate::host::command::{Command, Error, Runner};

const MIB: u64 = 1 << 20;

/// Start of identity slot A, in bytes.
pub const IDENTITY_A: u64 = MIB;
/// Start of identity slot B, in bytes.
pub const IDENTITY_B: u64 = 2 * MIB;
/// Start of the space for a LUKS header, in bytes.
pub const LUKS_HEADER: u64 = 3 * MIB;
/// Start of the data partition, in bytes.
pub const DATA: u64 = 19 * MIB;
/// Free space at the end of the disk, for the backup table, in bytes.
const TAIL: u64 = MIB;

/// Size of the partition table's entries, in bytes.
const ENTRIES: usize = 16 * 1024;

pub const DATA_NUMBER: u32 = 4;

/// The appliance's own partition types, so that no other program mounts, grows or discards these.
const TYPES: [Uuid; 3] = [
    uuid!("f4cc1aa5-0941-4bd5-b4bb-1ad2e0f631b3"),
    uuid!("a3da47c3-5130-4b9b-98bd-4b8fcd4dd181"),
    uuid!("19a1a9ba-72be-4125-8c82-2060c3286daa"),
];

struct Planned {
    label: &'static str,
    kind: Uuid,
    start: u64,
    end: u64,
}

fn planned(size: u64) -> [Planned; 4] {
    let end = (size - TAIL) / MIB * MIB;
    [
        Planned { label: "kaas-identity-a", kind: TYPES[0], start: IDENTITY_A, end: IDENTITY_B },
        Planned { label: "kaas-identity-b", kind: TYPES[0], start: IDENTITY_B, end: LUKS_HEADER },
        Planned { label: "kaas-luks-header", kind: TYPES[1], start: LUKS_HEADER, end: DATA },
        Planned { label: "kaas-data", kind: TYPES[2], start: DATA, end },
    ]
}

/// The range of the data partition on a disk of `size` bytes, in bytes.
pub fn data_range(size: u64) -> Range<u64> {
    let [.., data] = planned(size);
    data.start..data.end
}

/// Writes the partition table onto a disk of `size` bytes with sectors of `sector` bytes. The content of partitions
/// does not change. If sfdisk fails, the table may be incomplete.
pub fn write_table(disk: &Path, guid: Uuid, size: u64, sector: u64, runner: &dyn Runner) -> Result<(), Error> {
    let mut script = format!("label: gpt\nlabel-id: {guid}\nunit: sectors\n");
    for part in planned(size) {
        let (start, length) = (part.start / sector, (part.end - part.start) / sector);
        // Partition UUIDs are derived from the disk's, so that a repeated write gives the same table.
        let own = Uuid::new_v5(&guid, part.label.as_bytes());
        let _ = writeln!(
            script,
            "start={start}, size={length}, type={}, uuid={own}, name=\"{}\"",
            part.kind.to_string().to_uppercase(),
            part.label
        );
    }
    // partx informs the kernel afterwards: reading the table again fails if the kernel has no parser for it.
    let options = ["--quiet", "--wipe=never", "--wipe-partitions=never", "--no-reread", "--no-tell-kernel"];
    runner.run(&Command::new("sfdisk").args(options).arg(disk).env("LC_ALL", "C").input(script)).map(drop)
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Listing {
    partitiontable: Table,
}

#[derive(Deserialize)]
struct Table {
    label: String,
    id: String,
    sectorsize: Option<u64>,
    #[serde(default)]
    partitions: Vec<Partition>,
}

#[derive(Deserialize)]
struct Partition {
    start: u64,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
}

/// Returns the range of the data partition in bytes. The disk may have grown since. The error describes the actual
/// table.
pub fn check_table(disk: &Path, guid: Uuid, size: u64, runner: &dyn Runner) -> Result<Range<u64>, String> {
    let listing = runner
        .run(&Command::new("sfdisk").arg("--json").arg(disk).env("LC_ALL", "C"))
        .map_err(|error| format!("its partition table cannot be read: {error}"))?;
    let listing: Listing = serde_json::from_slice(&listing)
        .map_err(|error| format!("its partition table cannot be understood: {error}"))?;
    let table = listing.partitiontable;
    if table.label != "gpt" || Uuid::parse_str(&table.id) != Ok(guid) {
        return Err(format!("its partition table is another one ({} {})", table.label, table.id));
    }
    let sector = table.sectorsize.unwrap_or(512);
    let wanted = planned(size);
    let matches = table.partitions.len() == wanted.len()
        && table.partitions.iter().zip(&wanted).all(|(found, wanted)| {
            let end = found.start.saturating_add(found.size).saturating_mul(sector);
            let placed = match wanted.start {
                DATA => end <= size && end > DATA,
                _ => end == wanted.end,
            };
            found.start.saturating_mul(sector) == wanted.start
                && placed
                && Uuid::parse_str(&found.kind) == Ok(wanted.kind)
        });
    match table.partitions.last() {
        Some(data) if matches => Ok(DATA..DATA + data.size * sector),
        _ => Err("its partitions are not those of a data disk".to_owned()),
    }
}

/// How far the appliance's table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Both ends of the disk are zero or part of the appliance's table.
    Ours,
    /// The ends have other content.
    Foreign,
}

/// Checks that the ends of a disk, outside all partitions, are zero or part of the appliance's table with this GUID.
/// UEFI 2.10, 5.3: a protective MBR in block 0, headers in block 1 and the last one, 16 KiB of entries after and before
/// these.
pub fn table_progress(disk: &Path, guid: Uuid, size: u64, sector: u64) -> io::Result<Progress> {
    let sector = sector as usize;
    let file = File::open(disk)?;
    let mut head = vec![0; MIB as usize];
    file.read_exact_at(&mut head, 0)?;
    let mut tail = vec![0; (sector + ENTRIES) as u64 as usize];
    let tail_start = size - tail.len() as u64;
    file.read_exact_at(&mut tail, tail_start)?;
    let mut gap = vec![0; (tail_start - (size - TAIL)) as usize];
    file.read_exact_at(&mut gap, size - TAIL)?;

    let (mbr, rest) = head.split_at(sector);
    let (header, rest) = rest.split_at(sector);
    let (entries, rest) = rest.split_at(ENTRIES);
    let (backup_entries, backup_header) = tail.split_at(ENTRIES);
    let ours = is_protective(mbr)
        && [header, backup_header].into_iter().all(|header| is_header(header, guid))
        && [entries, backup_entries].into_iter().all(are_entries)
        && is_zero(rest)
        && is_zero(&gap);
    Ok(if ours { Progress::Ours } else { Progress::Foreign })
}

/// Whether both tables of a disk are valid and in their places, the backup at the disk's very end (UEFI 2.10, 5.3.2).
/// False if the disk has grown since, or after a power cut while they were written.
pub fn tables_are_whole(disk: &Path, size: u64, sector: u64) -> io::Result<bool> {
    let file = File::open(disk)?;
    let last = size / sector - 1;
    for (own, other) in [(1, last), (last, 1)] {
        let mut block = vec![0; sector as usize];
        file.read_exact_at(&mut block, own * sector)?;
        let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
        let short = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap_or_default());
        // A header of 92 bytes and 128 entries of 128 bytes, as sfdisk writes them.
        let known = block.starts_with(b"EFI PART") && short(12) == 92 && short(80) == 128 && short(84) == 128;
        if !known || number(24) != own || number(32) != other {
            return Ok(false);
        }
        let mut header = block[..92].to_vec();
        header[16..20].fill(0);
        let mut entries = vec![0; ENTRIES];
        file.read_exact_at(&mut entries, number(72).min(last) * sector)?;
        if checksum(&header) != short(16) || checksum(&entries) != short(88) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn is_protective(block: &[u8]) -> bool {
    // No boot code, one entry of type EEh, the signature.
    is_zero(block)
        || (is_zero(&block[..446]) && block[450] == 0xee && is_zero(&block[462..510]) && is_zero(&block[512..]))
}

fn is_header(block: &[u8], guid: Uuid) -> bool {
    is_zero(block) || (block.starts_with(b"EFI PART") && block[56..72] == guid.to_bytes_le())
}

fn are_entries(entries: &[u8]) -> bool {
    entries.chunks(128).all(|entry| is_zero(entry) || TYPES.iter().any(|kind| entry[..16] == kind.to_bytes_le()))
}

/// Whether a disk has a partition of one of the appliance's types, for messages only. An unreadable table has none.
pub fn bears_our_table(disk: &super::Disk, runner: &dyn Runner) -> bool {
    let Ok(listing) = runner.run(&Command::new("sfdisk").arg("--json").arg(&disk.path).env("LC_ALL", "C")) else {
        return false;
    };
    serde_json::from_slice::<Listing>(&listing).is_ok_and(|listing| {
        let partitions = &listing.partitiontable.partitions;
        partitions.iter().any(|found| Uuid::parse_str(&found.kind).is_ok_and(|kind| TYPES.contains(&kind)))
    })
}
