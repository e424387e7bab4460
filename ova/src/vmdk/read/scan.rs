//! Reads the parts of a streamOptimized file marker by marker from the front.

use std::io::Read;

use super::batch::Batch;
use super::grain_map::{self, Entry, GrainMap};
use super::input::Input;
use crate::vmdk::descriptor;
use crate::vmdk::error::Error;
use crate::vmdk::format::{
    self, DIRECTORY_AT_END, GRAIN_BYTES, GRAIN_MARKER_BYTES, GRAIN_SECTORS, Header, Marker, Metadata, SECTOR,
    SECTOR_BYTES, TABLE_ENTRIES, TABLE_SECTORS,
};
use crate::vmdk::tables;

/// The largest compressed grain. No compressor makes a grain much larger (RFC 1951 §3.2.4: 5 bytes for each 64 KiB
/// stored).
const LARGEST_COMPRESSED: u32 = GRAIN_BYTES as u32 + 4096;
/// Sectors of the largest descriptor that is read: 1 MiB. All known writers use 20.
const LARGEST_DESCRIPTOR: u64 = (1 << 20) / SECTOR;
/// Sectors of the largest part before the grains that is read into memory: 256 MiB, twice the tables of a disk of
/// 2 TiB.
const LARGEST_FRONT: u64 = (256 << 20) / SECTOR;

/// A file being read.
pub struct Scan<R> {
    input: Input<R>,
    header: Header,
    /// The part before the grains, with the header.
    front: Vec<u8>,
    places: GrainMap,
    end: Option<End>,
}

/// The end of a file.
enum End {
    /// A footer, which has the place of the grain directory, and a marker.
    Footer(Header),
    /// An end-of-stream marker only.
    Marker,
    /// A grain.
    NoMarker,
}

impl<R: Read> Scan<R> {
    /// Reads the part before the grains: header, descriptor, and perhaps the tables.
    pub fn begin(input: R, size: u64) -> Result<Scan<R>, Error> {
        let mut input = Input::new(input, size);
        let first = input.sector()?;
        let header = Header::decode(&first).map_err(|reason| Error::Unsupported { reason })?;
        let descriptor_end = header.descriptor_offset.saturating_add(header.descriptor_size);
        if header.descriptor_offset == 0 {
            return Err(Error::Unsupported { reason: "it has no descriptor, as a part of a larger disk".into() });
        }
        if descriptor_end > header.overhead {
            return Err(Error::damaged(0, "its descriptor does not lie between header and grains"));
        }
        check_overhead(&header)?;
        let mut front = first.to_vec();
        input.append(&mut front, (header.overhead - 1) * SECTOR)?;
        let descriptor = (header.descriptor_offset * SECTOR) as usize..(descriptor_end * SECTOR) as usize;
        descriptor::check(&front[descriptor], header.capacity).map_err(|reason| Error::Unsupported { reason })?;
        let places = GrainMap::new(format::directory_entries(header.grains()));
        Ok(Scan { input, header, front, places, end: None })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Puts the next grains into `batch`. It stays empty at the end of the file.
    pub fn fill(&mut self, batch: &mut Batch) -> Result<(), Error> {
        batch.clear();
        while self.end.is_none() && !batch.is_full() {
            self.end = self.next(batch)?;
        }
        Ok(())
    }

    /// Compares the tables with the grains that were found, at the end of the file. Returns the number of grains, and
    /// whether the file ends with an end-of-stream marker.
    pub fn finish(&mut self) -> Result<(u64, bool), Error> {
        // Writers that put the tables in front also fill up the last grain.
        let padding = self.input.expect_end(if self.is_streamed() { 0 } else { GRAIN_BYTES })?;
        let (last, has_marker) = match &self.end {
            Some(End::Footer(footer)) => (footer, true),
            Some(End::Marker) => (&self.header, padding == 0),
            _ => (&self.header, false),
        };
        self.compare_tables("grain directory", last.directory)?;
        if let Some(redundant) = last.redundant_directory() {
            self.compare_tables("redundant grain directory", redundant)?;
        }
        Ok((self.places.grains(), has_marker))
    }

    /// Whether the tables are among and behind the grains: the writer did not seek.
    fn is_streamed(&self) -> bool {
        self.header.directory == DIRECTORY_AT_END
    }

    /// Reads a marker and its grain or metadata.
    fn next(&mut self, batch: &mut Batch) -> Result<Option<End>, Error> {
        let offset = self.input.offset();
        // Writers that put the tables in front may leave out the end-of-stream marker.
        if !self.is_streamed() && self.input.is_at_end() {
            return Ok(Some(End::NoMarker));
        }
        let sector = self.input.sector()?;
        match Marker::decode(&sector).map_err(|reason| Error::damaged(offset, reason))? {
            Marker::Grain { lba, compressed } => self.grain(offset, lba, compressed, &sector, batch)?,
            Marker::Metadata { kind: Metadata::Table, sectors } => {
                let sector = self.input.sector_number()?;
                let table = self.entries(offset, "grain table", sectors, TABLE_SECTORS)?;
                self.places.add_table(sector, &table)?;
            }
            Marker::Metadata { kind: Metadata::Directory, sectors } => {
                let wanted = format::directory_sectors(self.places.tables());
                let sector = self.input.sector_number()?;
                let directory = self.entries(offset, "grain directory", sectors, wanted)?;
                self.places.add_directory(sector, directory)?;
            }
            Marker::Metadata { kind: Metadata::Footer, sectors } => return self.footer(offset, sectors).map(Some),
            Marker::Metadata { kind: Metadata::EndOfStream, sectors } => {
                if self.is_streamed() {
                    return Err(Error::damaged(offset, "the stream ends without a footer"));
                }
                check_end_of_stream(offset, sectors)?;
                return Ok(Some(End::Marker));
            }
        }
        Ok(None)
    }

    /// Reads the grain whose marker is at `offset`, at the beginning of the sector `first`.
    fn grain(
        &mut self,
        offset: u64,
        lba: u64,
        size: u32,
        first: &[u8; SECTOR_BYTES],
        batch: &mut Batch,
    ) -> Result<(), Error> {
        if size > LARGEST_COMPRESSED {
            return Err(Error::damaged(offset, format!("a grain claims {size} bytes of compressed data")));
        }
        let capacity = self.header.capacity;
        if lba >= capacity || !lba.is_multiple_of(GRAIN_SECTORS) {
            return Err(Error::damaged(offset, format!("a grain claims sector {lba} of a disk of {capacity} sectors")));
        }
        let number = lba / GRAIN_SECTORS;
        self.places.add_grain(number, offset)?;
        let whole = (GRAIN_MARKER_BYTES as u64 + u64::from(size)).next_multiple_of(SECTOR);
        batch.push(number, offset, size as usize, |bytes| {
            bytes.extend_from_slice(&first[GRAIN_MARKER_BYTES..]);
            self.input.append(bytes, whole - SECTOR)
        })
    }

    /// Reads the entries of a directory or table, which a marker at `offset` announces.
    fn entries(&mut self, offset: u64, what: &str, sectors: u64, wanted: u64) -> Result<Vec<u32>, Error> {
        if sectors != wanted {
            return Err(Error::damaged(offset, format!("the {what} claims {sectors} sectors, {wanted} are right")));
        }
        let mut bytes = Vec::new();
        self.input.append(&mut bytes, sectors * SECTOR)?;
        Ok(tables::decode(&bytes))
    }

    /// Reads the footer and the end-of-stream marker behind it.
    fn footer(&mut self, marker: u64, sectors: u64) -> Result<End, Error> {
        if sectors != 1 {
            return Err(Error::damaged(marker, format!("the footer claims {sectors} sectors, it has one")));
        }
        let offset = self.input.offset();
        let footer = Header::decode(&self.input.sector()?)
            .map_err(|reason| Error::damaged(offset, format!("footer: {reason}")))?;
        // The footer has its own places of the tables. The rest repeats the header.
        let &Header { directory, redundant_directory, .. } = &self.header;
        if (Header { directory, redundant_directory, ..footer.clone() }) != self.header {
            return Err(Error::damaged(offset, "header and footer contradict each other"));
        }
        let offset = self.input.offset();
        match Marker::decode(&self.input.sector()?) {
            Ok(Marker::Metadata { kind: Metadata::EndOfStream, sectors }) => check_end_of_stream(offset, sectors)?,
            _ => return Err(Error::damaged(offset, "no end-of-stream marker follows the footer")),
        }
        Ok(End::Footer(footer))
    }

    /// Checks that the directory at the sector `place` and its tables list exactly the grains that were found.
    fn compare_tables(&self, what: &str, place: u64) -> Result<(), Error> {
        if let Some(directory) = self.places.directory_at(place) {
            return self.places.compare(place, directory, |entry, grains| self.places.expect_table(entry, grains));
        }
        let Some(directory) = self.in_front(place, self.places.tables() as usize) else {
            return Err(Error::damaged(0, format!("there is no {what} at sector {place}")));
        };
        self.places.compare(place, &directory, |Entry { number, sector, offset }, grains| {
            let table = self
                .in_front(u64::from(sector), TABLE_ENTRIES)
                .ok_or_else(|| Error::damaged(offset, format!("there is no grain table at sector {sector}")))?;
            grain_map::compare_table(number, sector, &table, grains)
        })
    }

    /// `count` entries of a directory or table at a sector before the grains.
    fn in_front(&self, sector: u64, count: usize) -> Option<Vec<u32>> {
        let start = usize::try_from(sector.checked_mul(SECTOR)?).ok()?;
        self.front.get(start..start.checked_add(count * 4)?).map(tables::decode)
    }
}

/// Checks that the part before the grains is not larger than possible for a disk of this capacity. It has the
/// descriptor, and twice the tables, each filled up to a whole grain.
fn check_overhead(header: &Header) -> Result<(), Error> {
    let tables = format::directory_entries(header.grains());
    let once = format::directory_sectors(tables) + tables * TABLE_SECTORS + GRAIN_SECTORS;
    let most = 1 + LARGEST_DESCRIPTOR + GRAIN_SECTORS + 2 * once;
    if header.overhead > most {
        let reason = format!("its header claims {} sectors before the grains, {most} are the most", header.overhead);
        return Err(Error::damaged(0, reason));
    }
    if header.overhead > LARGEST_FRONT {
        let reason = format!("it keeps {} MiB of tables before the grains", (header.overhead * SECTOR) >> 20);
        return Err(Error::Unsupported { reason });
    }
    Ok(())
}

fn check_end_of_stream(offset: u64, sectors: u64) -> Result<(), Error> {
    match sectors {
        0 => Ok(()),
        _ => Err(Error::damaged(offset, format!("the end-of-stream marker claims {sectors} sectors, it has none"))),
    }
}
