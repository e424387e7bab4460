//! The sectors of the file with the grains: from the markers, and from grain directory and tables.
//!
//! A table between the grains is compared when it is read, and not kept. The tables of a hostile file could be as large
//! as the file.

use std::collections::BTreeMap;

use crate::vmdk::error::Error;
use crate::vmdk::format::{SECTOR, TABLE_ENTRIES};

/// The grains and tables that were found so far.
pub struct GrainMap {
    /// The number of grain tables in the disk's directory.
    most_tables: u64,
    /// In ascending order of numbers, and so of sectors.
    grains: Vec<GrainLocation>,
    /// The tables between the grains, by their first sector.
    tables: BTreeMap<u32, Table>,
    /// One more than the highest number of a table that was read. Grains with lower table numbers would be in no table.
    closed: u32,
    /// The grain directory and its first sector.
    directory: Option<(u32, Vec<u32>)>,
}

/// A grain found in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrainLocation {
    /// Its number on the disk.
    number: u32,
    /// The sector of the file with its marker.
    sector: u32,
}

/// A grain table that agrees with the grains before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    /// The one with this number.
    Of(u32),
    /// It lists no grain, so it can have any number without grains.
    Empty,
}

/// An entry of a grain directory that points to a table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number of the table.
    pub number: u32,
    /// The expected first sector of the table.
    pub sector: u32,
    /// The place of the entry in the file, in bytes.
    pub offset: u64,
}

impl GrainMap {
    /// The map of a disk with `most_tables` grain tables.
    pub fn new(most_tables: u64) -> GrainMap {
        GrainMap { most_tables, grains: Vec::new(), tables: BTreeMap::new(), closed: 0, directory: None }
    }

    /// The number of grain tables of the disk, missing ones included.
    pub fn tables(&self) -> u64 {
        self.most_tables
    }

    /// The number of grains that were found.
    pub fn grains(&self) -> u64 {
        self.grains.len() as u64
    }

    /// Adds a grain whose marker is at `offset`. Its number is one of the disk's. Fails if a grain with a higher
    /// number, or the table that would list it, came before.
    pub fn add_grain(&mut self, number: u64, offset: u64) -> Result<(), Error> {
        let beyond = |_| Error::damaged(offset, "no table can list what lies beyond 2 TiB");
        let sector = u32::try_from(offset / SECTOR).map_err(beyond)?;
        let number = u32::try_from(number).map_err(beyond)?;
        if let Some(last) = self.grains.last()
            && last.number >= number
        {
            return Err(Error::damaged(offset, format!("grain {number} comes after grain {}", last.number)));
        }
        if number / (TABLE_ENTRIES as u32) < self.closed {
            return Err(Error::damaged(offset, format!("grain {number} comes after grain table {}", self.closed - 1)));
        }
        self.grains.push(GrainLocation { number, sector });
        Ok(())
    }

    /// Compares the grain table that begins at `sector` with the grains before it.
    pub fn add_table(&mut self, sector: u32, table: &[u32]) -> Result<(), Error> {
        let offset = u64::from(sector) * SECTOR;
        if self.tables.len() as u64 == self.most_tables {
            return Err(Error::damaged(offset, format!("this is one grain table more than {}", self.most_tables)));
        }
        let known = match self.number_of(table) {
            Some(number) => {
                compare_table(number, sector, table, self.grains_of(number))?;
                self.closed = self.closed.max(number + 1);
                Table::Of(number)
            }
            None if table.iter().all(|&entry| is_absent(entry)) => Table::Empty,
            None => return Err(Error::damaged(offset, "the grain table lists none of the grains in the file")),
        };
        self.tables.insert(sector, known);
        Ok(())
    }

    /// Adds the grain directory that begins at `sector`. Fails if there already is one.
    pub fn add_directory(&mut self, sector: u32, mut directory: Vec<u32>) -> Result<(), Error> {
        if self.directory.is_some() {
            return Err(Error::damaged(u64::from(sector) * SECTOR, "this is a second grain directory"));
        }
        directory.truncate(self.most_tables as usize);
        self.directory = Some((sector, directory));
        Ok(())
    }

    /// The grain directory after a marker, if it begins at `sector`.
    pub fn directory_at(&self, sector: u64) -> Option<&[u32]> {
        self.directory.as_ref().filter(|(at, _)| u64::from(*at) == sector).map(|(_, directory)| directory.as_slice())
    }

    /// Checks that the directory at `sector` has a table for each grain that was found. Calls `compare` for each entry
    /// that points to a table, with the table's grains.
    pub fn compare(
        &self,
        sector: u64,
        directory: &[u32],
        compare: impl Fn(Entry, &[GrainLocation]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (number, &table) in (0..).zip(directory) {
            let grains = self.grains_of(number);
            let offset = sector * SECTOR + u64::from(number) * 4;
            if table != 0 {
                compare(Entry { number, sector: table, offset }, grains)?;
            } else if !grains.is_empty() {
                let reason = format!("grain table {number} is missing, though {} of its grains exist", grains.len());
                return Err(Error::damaged(offset, reason));
            }
        }
        Ok(())
    }

    /// Checks that an entry points to the right table between the grains.
    pub fn expect_table(&self, entry: Entry, grains: &[GrainLocation]) -> Result<(), Error> {
        let Entry { number, sector, offset } = entry;
        let reason = match self.tables.get(&sector) {
            Some(Table::Of(found)) if *found == number => return Ok(()),
            Some(Table::Empty) if grains.is_empty() => return Ok(()),
            Some(Table::Of(found)) => format!("the table at sector {sector} is grain table {found}, not {number}"),
            Some(Table::Empty) => format!("grain table {number} at sector {sector} lists none of its grains"),
            None => format!("there is no grain table at sector {sector}"),
        };
        Err(Error::damaged(offset, reason))
    }

    /// The number of a table, from its first entry that is a known grain at the right index.
    fn number_of(&self, table: &[u32]) -> Option<u32> {
        (0..).zip(table).find_map(|(index, &sector)| {
            let found = self.grains.binary_search_by_key(&sector, |placed| placed.sector).ok()?;
            let grain = self.grains[found].number;
            (grain % TABLE_ENTRIES as u32 == index).then_some(grain / TABLE_ENTRIES as u32)
        })
    }

    /// The grains that the table has to list.
    fn grains_of(&self, table: u32) -> &[GrainLocation] {
        let until =
            |table: u64| self.grains.partition_point(|placed| u64::from(placed.number) < table * TABLE_ENTRIES as u64);
        &self.grains[until(table.into())..until(u64::from(table) + 1)]
    }
}

/// Checks that the grain table `number`, which begins at `sector`, lists exactly `grains`.
pub fn compare_table(number: u32, sector: u32, table: &[u32], grains: &[GrainLocation]) -> Result<(), Error> {
    let first = u64::from(number) * TABLE_ENTRIES as u64;
    let mut expected = [0; TABLE_ENTRIES];
    for placed in grains {
        expected[placed.number as usize % TABLE_ENTRIES] = placed.sector;
    }
    for (index, (&found, &expected)) in (0..).zip(table.iter().zip(&expected)) {
        if found != expected && !(expected == 0 && is_absent(found)) {
            let place = if expected == 0 { "not there".into() } else { format!("at {expected}") };
            let reason = format!("the grain table puts grain {} at sector {found}, it is {place}", first + index);
            return Err(Error::damaged(u64::from(sector) * SECTOR + index * 4, reason));
        }
    }
    Ok(())
}

/// Whether an entry means a missing grain: 0, or 1 for a grain of zeros (since version 2).
fn is_absent(entry: u32) -> bool {
    entry <= 1
}
