//! Grain directory and grain tables: which sector of the file holds which grain.

use super::error::Error;
use super::format::{SECTOR, TABLE_ENTRIES, le_u32};

/// The entries of a directory or table as the file has them, filled up to whole sectors.
pub fn encode(entries: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
    bytes
}

/// The entries in whole sectors of a file.
pub fn decode(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(le_u32).collect()
}

/// A grain found in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Number of the grain on the disk.
    pub grain: u64,
    /// Sector of the file at which its marker stands.
    pub sector: u32,
}

/// Checks that `directory` and its tables list exactly the grains that were found.
///
/// `table_at` gives the table at a sector of the file. `grains` is in rising order.
///
/// # Errors
/// [`Error::Damaged`] at the first entry that differs.
pub fn verify<'a>(
    directory: &[u32],
    directory_sector: u64,
    table_at: impl Fn(u32) -> Option<&'a [u32]>,
    grains: &[Placed],
) -> Result<(), Error> {
    let mut rest = grains;
    for (number, &sector) in directory.iter().enumerate() {
        let first = (number * TABLE_ENTRIES) as u64;
        let split = rest.partition_point(|placed| placed.grain < first + TABLE_ENTRIES as u64);
        let (here, later) = rest.split_at(split);
        rest = later;
        let wrong = |reason: String| Err(Error::damaged(directory_sector * SECTOR + number as u64 * 4, reason));
        if sector == 0 {
            if here.is_empty() {
                continue;
            }
            return wrong(format!("grain table {number} is missing, though {} of its grains are there", here.len()));
        }
        let Some(table) = table_at(sector) else {
            return wrong(format!("there is no grain table at sector {sector}"));
        };
        verify_table(table, sector, first, here)?;
    }
    match rest.first() {
        None => Ok(()),
        Some(placed) => {
            Err(Error::damaged(directory_sector * SECTOR, format!("grain {} is in no table", placed.grain)))
        }
    }
}

fn verify_table(table: &[u32], table_sector: u32, first: u64, grains: &[Placed]) -> Result<(), Error> {
    let mut expected = [0; TABLE_ENTRIES];
    for placed in grains {
        expected[(placed.grain - first) as usize] = placed.sector;
    }
    for (entry, (&found, &expected)) in table.iter().zip(&expected).enumerate() {
        // 0: not there; 1: known to be zeros (version 2 on). Neither has a grain in the file.
        if found != expected && !(expected == 0 && found == 1) {
            return Err(Error::damaged(
                u64::from(table_sector) * SECTOR + entry as u64 * 4,
                format!("the grain table puts grain {} at sector {found}, it is at {expected}", first + entry as u64),
            ));
        }
    }
    Ok(())
}
