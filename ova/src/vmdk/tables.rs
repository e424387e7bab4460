//! The bytes of grain directory and grain tables.

use super::format::{SECTOR, le_u32};

/// The bytes of the entries of a directory or table, filled up to whole sectors.
pub fn encode(entries: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
    bytes
}

/// The entries in whole sectors of a file.
pub fn decode(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(le_u32).collect()
}
