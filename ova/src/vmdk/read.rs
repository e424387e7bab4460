//! streamOptimized VMDK → raw disk, in one pass from the front, as an import does.
//!
//! Everything the format says twice is compared: descriptor and header, header
//! and footer, markers and tables. Memory stays within what the file really
//! contains, whatever its headers claim.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use libdeflater::Decompressor;

use super::descriptor;
use super::error::Error;
use super::format::{
    self, DIRECTORY_AT_END, GRAIN_BYTES, GRAIN_MARKER_BYTES, GRAIN_SECTORS, Header, Marker, Metadata, SECTOR,
    SECTOR_BYTES, TABLE_SECTORS,
};
use super::input::Input;
use super::tables::{self, Placed};
use super::write::is_zero;
use crate::Progress;
use crate::new_file::NewFile;

/// Granularity of holes in the raw image: the block size of most file systems.
const HOLE_BYTES: usize = 4096;
/// No compressor makes a grain much larger than it was (RFC 1951 §3.2.4: 5 bytes for each 64 KiB stored).
const LARGEST_COMPRESSED: u32 = GRAIN_BYTES as u32 + 4096;
/// The largest part before the grains that is read: the tables of a 64 TiB disk, twice.
const LARGEST_OVERHEAD: u64 = (1 << 30) / SECTOR;

/// What a VMDK contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of the disk as a guest sees it.
    pub capacity: u64,
    /// Bytes of the grains that are stored, uncompressed.
    pub populated: u64,
}

/// Turns the streamOptimized VMDK `vmdk` into the sparse raw image `raw`.
///
/// `progress` counts bytes of `vmdk`. On failure `raw` is as it was. It is not
/// waited until `raw` has reached its disk.
///
/// # Errors
/// As [`read_stream`], and when a file cannot be opened or created.
pub fn to_raw(vmdk: &Path, raw: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Contents, Error> {
    let input = File::open(vmdk).map_err(Error::file("opening", vmdk))?;
    let size = input.metadata().map_err(Error::file("looking at", vmdk))?.len();
    read_stream(input, size, raw, progress)
}

/// Turns a streamOptimized VMDK of `size` bytes, such as a member of an OVA,
/// into the sparse raw image `raw`.
///
/// `progress` counts bytes of `input`. On failure `raw` is as it was. It is not
/// waited until `raw` has reached its disk.
///
/// # Errors
/// [`Error::Unsupported`] for other kinds of file, [`Error::Damaged`] for one
/// that ends early, goes on after its end, or contradicts itself, and what
/// reading and writing can fail with.
pub fn read_stream(
    input: impl Read,
    size: u64,
    raw: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Contents, Error> {
    let mut output = NewFile::create(raw).map_err(Error::file("creating", raw))?;
    let writing = |source| Error::file("writing", raw)(source);
    let file = output.file();
    let mut begun = false;
    let contents = scan(Input::new(input, size), progress, &mut |header, grain| {
        if !std::mem::replace(&mut begun, true) {
            file.set_len(header.capacity * SECTOR).map_err(writing)?;
        }
        let Some((number, data)) = grain else { return Ok(()) };
        for (block, bytes) in data.chunks(HOLE_BYTES).enumerate() {
            if !is_zero(bytes) {
                let at = number * GRAIN_BYTES + (block * HOLE_BYTES) as u64;
                file.write_all_at(bytes, at).map_err(writing)?;
            }
        }
        Ok(())
    })?;
    output.commit_without_sync().map_err(Error::file("finishing", raw))?;
    Ok(contents)
}

/// Reads all of the streamOptimized VMDK `vmdk` and verifies it, without keeping its data.
///
/// # Errors
/// As [`read_stream`].
pub fn inspect(vmdk: &Path) -> Result<Contents, Error> {
    let input = File::open(vmdk).map_err(Error::file("opening", vmdk))?;
    let size = input.metadata().map_err(Error::file("looking at", vmdk))?.len();
    scan(Input::new(input, size), &mut |_| {}, &mut |_, _| Ok(()))
}

/// Where grains go: once with `None` when the header is known, then each grain with its number, in rising order.
type Sink<'a> = &'a mut dyn FnMut(&Header, Option<(u64, &[u8])>) -> Result<(), Error>;

fn scan<R: Read>(mut input: Input<R>, progress: &mut dyn FnMut(Progress), sink: Sink<'_>) -> Result<Contents, Error> {
    let (header, front) = read_front(&mut input)?;
    sink(&header, None)?;
    let mut found = Found::default();
    let mut decompressor = Decompressor::new();
    let mut compressed = Vec::new();
    let mut data = vec![0; GRAIN_BYTES as usize];
    let footer = loop {
        progress(Progress { done: input.offset(), total: input.size() });
        let offset = input.offset();
        // Writers that keep the tables in front may leave out the end-of-stream marker.
        if header.directory != DIRECTORY_AT_END && input.is_at_end() {
            break None;
        }
        let sector = input.sector()?;
        match Marker::decode(&sector).map_err(|reason| Error::damaged(offset, reason))? {
            Marker::Grain { lba, compressed: size } => {
                let number = found.place(&header, offset, lba, size)?;
                read_rest(&mut input, &sector, size, &mut compressed)?;
                let wanted = (header.capacity - lba).min(GRAIN_SECTORS) * SECTOR;
                let bytes = decompress(&mut decompressor, &compressed, &mut data)
                    .filter(|&bytes| bytes as u64 == wanted || bytes as u64 == GRAIN_BYTES)
                    .ok_or_else(|| {
                        Error::damaged(offset, format!("grain {number} does not decompress to {wanted} bytes"))
                    })?;
                sink(&header, Some((number, &data[..bytes.min(wanted as usize)])))?;
            }
            Marker::Metadata { kind: Metadata::Table, sectors } => {
                let sector = input.sector_number()?;
                let table = read_entries(&mut input, offset, "grain table", sectors, TABLE_SECTORS)?;
                found.tables.insert(sector, table);
            }
            Marker::Metadata { kind: Metadata::Directory, sectors } => {
                let wanted = format::directory_sectors(format::directory_entries(header.grains()));
                let sector = input.sector_number()?;
                let entries = read_entries(&mut input, offset, "grain directory", sectors, wanted)?;
                found.directory = Some((sector, entries));
            }
            Marker::Metadata { kind: Metadata::Footer, .. } => break Some(read_footer(&mut input, &header)?),
            Marker::Metadata { kind: Metadata::EndOfStream, .. } => {
                if header.directory == DIRECTORY_AT_END {
                    return Err(Error::damaged(offset, "the stream ends without a footer"));
                }
                break None;
            }
        }
    };
    // Such writers also fill up the last grain.
    input.expect_end(if header.directory == DIRECTORY_AT_END { 0 } else { GRAIN_BYTES })?;
    progress(Progress { done: input.size(), total: input.size() });
    verify_tables(&header, footer, &front, &found)?;
    Ok(Contents { capacity: header.capacity * SECTOR, populated: found.grains.len() as u64 * GRAIN_BYTES })
}

/// What the markers showed.
#[derive(Default)]
struct Found {
    grains: Vec<Placed>,
    tables: BTreeMap<u32, Vec<u32>>,
    directory: Option<(u32, Vec<u32>)>,
}

impl Found {
    /// Takes note of a grain's marker at `offset` and gives the grain's number.
    fn place(&mut self, header: &Header, offset: u64, lba: u64, size: u32) -> Result<u64, Error> {
        let refused = |reason: String| Err(Error::damaged(offset, reason));
        if size > LARGEST_COMPRESSED {
            return refused(format!("a grain claims {size} bytes of compressed data"));
        }
        if lba >= header.capacity || !lba.is_multiple_of(GRAIN_SECTORS) {
            return refused(format!("a grain claims sector {lba} of a disk of {} sectors", header.capacity));
        }
        let grain = lba / GRAIN_SECTORS;
        if let Some(last) = self.grains.last()
            && last.grain >= grain
        {
            return refused(format!("grain {grain} comes after grain {}", last.grain));
        }
        let sector = u32::try_from(offset / SECTOR)
            .map_err(|_| Error::damaged(offset, "no table can list what lies beyond 2 TiB"))?;
        self.grains.push(Placed { grain, sector });
        Ok(grain)
    }
}

/// Reads header, descriptor, and the tables if they come first: all that lies before the grains.
fn read_front<R: Read>(input: &mut Input<R>) -> Result<(Header, Vec<u8>), Error> {
    let first = input.sector()?;
    let header = Header::decode(&first).map_err(|reason| Error::Unsupported { reason })?;
    let descriptor_end = header.descriptor_offset.saturating_add(header.descriptor_size);
    if header.descriptor_offset == 0 || descriptor_end > header.overhead || header.overhead > LARGEST_OVERHEAD {
        return Err(Error::damaged(0, "its descriptor does not lie between header and grains"));
    }
    let mut front = first.to_vec();
    input.append(&mut front, (header.overhead - 1) * SECTOR)?;
    let descriptor = (header.descriptor_offset * SECTOR) as usize..(descriptor_end * SECTOR) as usize;
    descriptor::check(&front[descriptor], header.capacity).map_err(|reason| Error::Unsupported { reason })?;
    Ok((header, front))
}

/// Reads what a grain has after the sector of its marker.
fn read_rest<R: Read>(
    input: &mut Input<R>,
    first: &[u8; SECTOR_BYTES],
    size: u32,
    compressed: &mut Vec<u8>,
) -> Result<(), Error> {
    compressed.clear();
    compressed.extend_from_slice(&first[GRAIN_MARKER_BYTES..]);
    let whole = (GRAIN_MARKER_BYTES as u64 + u64::from(size)).next_multiple_of(SECTOR);
    input.append(compressed, whole - SECTOR)?;
    compressed.truncate(size as usize);
    Ok(())
}

fn decompress(decompressor: &mut Decompressor, compressed: &[u8], data: &mut [u8]) -> Option<usize> {
    decompressor.zlib_decompress(compressed, data).ok()
}

fn read_entries<R: Read>(
    input: &mut Input<R>,
    offset: u64,
    what: &str,
    sectors: u64,
    wanted: u64,
) -> Result<Vec<u32>, Error> {
    if sectors != wanted {
        return Err(Error::damaged(offset, format!("the {what} claims {sectors} sectors, {wanted} are right")));
    }
    let mut bytes = Vec::new();
    input.append(&mut bytes, sectors * SECTOR)?;
    Ok(tables::decode(&bytes))
}

/// Reads the footer and the end-of-stream marker behind it.
fn read_footer<R: Read>(input: &mut Input<R>, header: &Header) -> Result<Header, Error> {
    let offset = input.offset();
    let footer =
        Header::decode(&input.sector()?).map_err(|reason| Error::damaged(offset, format!("footer: {reason}")))?;
    // The places of the tables are the footer's own; all else repeats the header.
    let own = Header { directory: header.directory, redundant_directory: header.redundant_directory, ..footer.clone() };
    if own != *header {
        return Err(Error::damaged(offset, "header and footer contradict each other"));
    }
    let offset = input.offset();
    match Marker::decode(&input.sector()?) {
        Ok(Marker::Metadata { kind: Metadata::EndOfStream, .. }) => Ok(footer),
        _ => Err(Error::damaged(offset, "no end-of-stream marker follows the footer")),
    }
}

fn verify_tables(header: &Header, footer: Option<Header>, front: &[u8], found: &Found) -> Result<(), Error> {
    let entries = format::directory_entries(header.grains()) as usize;
    let place = footer.as_ref().map_or(header.directory, |footer| footer.directory);
    if let Some((sector, directory)) = &found.directory
        && u64::from(*sector) == place
    {
        let table_at = |sector: u32| found.tables.get(&sector).map(Vec::as_slice);
        return tables::verify(&directory[..entries], place, table_at, &found.grains);
    }
    let front_entries = |sector: u64, count: usize| {
        let start = usize::try_from(sector.checked_mul(SECTOR)?).ok()?;
        front.get(start..start.checked_add(count * 4)?).map(tables::decode)
    };
    let Some(directory) = front_entries(place, entries) else {
        return Err(Error::damaged(0, format!("there is no grain directory at sector {place}")));
    };
    let tables: BTreeMap<u32, Vec<u32>> = directory
        .iter()
        .filter_map(|&sector| Some((sector, front_entries(u64::from(sector), format::TABLE_ENTRIES)?)))
        .collect();
    tables::verify(&directory, place, |sector| tables.get(&sector).map(Vec::as_slice), &found.grains)
}
