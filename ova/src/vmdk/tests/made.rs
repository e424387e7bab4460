//! Disks made by hand, so that any part of them can be wrong.

use std::io::Write;
use std::ops::Range;

use crate::vmdk::format::{self, Header, Metadata, SECTOR_BYTES, TABLE_ENTRIES, TABLE_SECTORS};
use crate::vmdk::{GRAIN_BYTES, tables};

/// Bytes of a grain.
pub(crate) const GRAIN: usize = GRAIN_BYTES as usize;
const DESCRIPTOR_SECTORS: u64 = 20;

/// A streamOptimized VMDK with the positions of its parts, in bytes.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) bytes: Vec<u8>,
    /// The markers of the grains.
    pub(crate) grains: Vec<usize>,
    /// The positions of the grain tables, behind their markers.
    pub(crate) tables: Vec<usize>,
    /// The grain directory, behind its marker.
    pub(crate) directory: usize,
}

/// A grain to add to a disk.
pub(crate) struct MadeGrain {
    pub(crate) number: u64,
    /// The size in its marker.
    pub(crate) claimed: u32,
    pub(crate) compressed: Vec<u8>,
}

impl MadeGrain {
    /// A good grain.
    pub(crate) fn new(number: u64, content: &[u8]) -> MadeGrain {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(content).unwrap();
        let compressed = encoder.finish().unwrap();
        MadeGrain { number, claimed: compressed.len() as u32, compressed }
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&format::grain_marker(self.number * format::GRAIN_SECTORS, self.claimed));
        bytes.extend_from_slice(&self.compressed);
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    }
}

/// Bytes that deflate compresses in part.
pub(crate) fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            b"abcdefgh"[(state >> 61) as usize]
        })
        .collect()
}

/// Good grains: two in table 0, one in each of tables 1 and 3 of four.
pub(crate) fn grains() -> Vec<MadeGrain> {
    [0, 2, 512, 4 * 512 - 1].map(|number| MadeGrain::new(number, &text(number, GRAIN))).into()
}

/// A good disk of 128 MiB with four grains.
pub(crate) fn whole() -> Made {
    Made::new(4 * 512, &grains())
}

fn front(header: &Header) -> Vec<u8> {
    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=00000001\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\n\
         RDONLY {} SPARSE \"made.vmdk\"\n",
        header.capacity
    );
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(descriptor.as_bytes());
    bytes.resize(header.overhead as usize * SECTOR_BYTES, 0);
    bytes
}

fn sector(bytes: &[u8]) -> u32 {
    (bytes.len() / SECTOR_BYTES) as u32
}

impl Made {
    /// A disk with room for `room` grains, written without seeking: tables behind their grains, then directory and
    /// footer. The grains are not checked.
    pub(crate) fn new(room: u64, grains: &[MadeGrain]) -> Made {
        let header = Header::stream_optimized(room * format::GRAIN_SECTORS, DESCRIPTOR_SECTORS, 128);
        let mut made = Made { bytes: front(&header), grains: Vec::new(), tables: Vec::new(), directory: 0 };
        let mut directory = vec![0; format::directory_entries(room) as usize];
        for own in grains.chunk_by(|one, other| one.number / 512 == other.number / 512) {
            let mut table = [0; TABLE_ENTRIES];
            for grain in own {
                table[grain.number as usize % TABLE_ENTRIES] = sector(&made.bytes);
                made.grains.push(made.bytes.len());
                grain.append_to(&mut made.bytes);
            }
            made.bytes.extend_from_slice(&format::metadata_marker(Metadata::Table, TABLE_SECTORS));
            made.tables.push(made.bytes.len());
            if let Some(entry) = directory.get_mut(own[0].number as usize / TABLE_ENTRIES) {
                *entry = sector(&made.bytes);
            }
            made.bytes.extend_from_slice(&tables::encode(&table));
        }
        let directory = tables::encode(&directory);
        made.bytes.extend_from_slice(&format::metadata_marker(Metadata::Directory, sector(&directory).into()));
        made.directory = made.bytes.len();
        made.bytes.extend_from_slice(&directory);
        made.bytes.extend_from_slice(&format::metadata_marker(Metadata::Footer, 1));
        let footer = Header { directory: (made.directory / SECTOR_BYTES) as u64, ..header };
        made.bytes.extend_from_slice(&footer.encode());
        made.bytes.extend_from_slice(&format::metadata_marker(Metadata::EndOfStream, 0));
        made
    }

    /// A disk as qemu-img and open-vmdk make it, with room for 513 grains and without a footer. The tables are before
    /// the grains, twice if `redundant`. `end` sectors of zeros follow: open-vmdk writes one, the end-of-stream marker;
    /// qemu-img writes none or many.
    pub(crate) fn with_tables_in_front(grains: &[MadeGrain], redundant: bool, end: usize) -> Made {
        const PLACES: [(usize, [u32; 2]); 2] = [(21, [22, 26]), (30, [31, 35])];
        let mut header = Header::stream_optimized(513 * format::GRAIN_SECTORS, DESCRIPTOR_SECTORS, 128);
        header.directory = PLACES[0].0 as u64;
        if redundant {
            header.flags |= 2;
            header.redundant_directory = PLACES[1].0 as u64;
        }
        let mut bytes = front(&header);
        let mut markers = Vec::new();
        let mut entries = [[0; TABLE_ENTRIES]; 2];
        for grain in grains {
            let number = grain.number as usize;
            entries[number / TABLE_ENTRIES][number % TABLE_ENTRIES] = sector(&bytes);
            markers.push(bytes.len());
            grain.append_to(&mut bytes);
        }
        for (directory, places) in &PLACES[..if redundant { 2 } else { 1 }] {
            bytes[directory * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&tables::encode(places));
            for (&place, entries) in places.iter().zip(&entries) {
                let table = tables::encode(entries);
                bytes[place as usize * SECTOR_BYTES..][..table.len()].copy_from_slice(&table);
            }
        }
        bytes.resize(bytes.len() + end * SECTOR_BYTES, 0);
        let tables = vec![22 * SECTOR_BYTES, 26 * SECTOR_BYTES];
        Made { bytes, grains: markers, tables, directory: 21 * SECTOR_BYTES }
    }

    /// Bytes of the disk.
    pub(crate) fn capacity(&self) -> u64 {
        u64::from(self.u32(12)) * SECTOR_BYTES as u64
    }

    /// The expected position of the footer.
    pub(crate) fn footer(&self) -> usize {
        self.bytes.len() - 2 * SECTOR_BYTES
    }

    /// The position of the end-of-stream marker.
    pub(crate) fn end(&self) -> usize {
        self.bytes.len() - SECTOR_BYTES
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        format::le_u32(&self.bytes[at..])
    }

    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Removes sectors from the file.
    pub(crate) fn remove(&mut self, bytes: Range<usize>) {
        self.bytes.drain(bytes);
    }

    /// Replaces a text in the descriptor.
    pub(crate) fn replace_in_descriptor(&mut self, from: &str, to: &str) {
        let range = SECTOR_BYTES..(1 + DESCRIPTOR_SECTORS as usize) * SECTOR_BYTES;
        let old = String::from_utf8(self.bytes[range.clone()].to_vec()).unwrap();
        assert!(old.contains(from), "{from:?} is not in the descriptor");
        let mut new = old.replace(from, to).into_bytes();
        new.resize(range.len(), 0);
        self.bytes[range].copy_from_slice(&new);
    }
}
