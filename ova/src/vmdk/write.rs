//! Raw disk → streamOptimized VMDK, on all processors. Their number does not change the bytes.
//!
//! The threads of rayon compress a batch of grains while the batch before is written. Two batches are in memory at a
//! time.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::Path;

use libdeflater::{CompressionLvl, Compressor};
use rayon::prelude::*;

use super::descriptor::{AdapterType, DESCRIPTOR_SECTORS, Descriptor, OVERHEAD, content_id};
use super::error::Error;
use super::format::{
    self, GRAIN_BYTES, GRAIN_MARKER_BYTES, GRAIN_SECTORS, Header, Metadata, SECTOR, TABLE_ENTRIES, TABLE_SECTORS,
};
use super::source::RawDisk;
use super::tables;
use crate::digest::Hasher;
use crate::new_file::NewFile;
use crate::{Progress, Sha256};

/// libdeflate's level. Above it, the time doubles for one per cent of size.
const LEVEL: i32 = 6;
/// Grains of a batch for each thread: 2 MiB of data. With this size, threads seldom wait for the slowest.
const BATCH_PER_THREAD: usize = 32;

/// Options for writing a disk.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `ddb.adapterType`.
    pub adapter: AdapterType,
    /// Number of threads that compress. `None` uses rayon's global pool. Never changes the output.
    pub threads: Option<NonZeroUsize>,
}

/// The values of a written disk for the OVF's `Disk` and `File` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenDisk {
    /// Size of the disk for the guest, in bytes (`ovf:capacity`).
    pub capacity: u64,
    /// Bytes of the grains that are stored, uncompressed (`ovf:populatedSize`).
    pub populated: u64,
    /// Bytes of the VMDK file (`ovf:size`).
    pub size: u64,
}

/// Writes the raw image `raw` as the streamOptimized VMDK `vmdk`.
///
/// Equal images written under equal names give equal files. `progress` counts the bytes of `raw` that are not holes. On
/// failure, `vmdk` is unchanged.
///
/// # Errors
/// If `raw` cannot be read or is not a multiple of 64 KiB, or `vmdk` cannot be written or named.
pub fn from_raw(
    raw: &Path,
    vmdk: &Path,
    options: &Options,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<WrittenDisk, Error> {
    let disk = RawDisk::open(raw)?;
    let name = vmdk.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    crate::name::check(name)
        .map_err(|error| Error::Source { path: raw.into(), reason: format!("its VMDK's name does not do: {error}") })?;
    let mut output = NewFile::create(vmdk).map_err(Error::file("creating", vmdk))?;
    let writer = Writer { disk: &disk, path: vmdk, name, options };
    let file = output.file();
    let written = match options.threads {
        None => writer.write(file, progress)?,
        Some(threads) => rayon::ThreadPoolBuilder::new()
            .num_threads(threads.get())
            .build()
            .map_err(|error| Error::file("starting threads for", vmdk)(std::io::Error::other(error)))?
            .install(|| writer.write(file, progress))?,
    };
    output.commit().map_err(Error::file("finishing", vmdk))?;
    Ok(written)
}

struct Writer<'a> {
    disk: &'a RawDisk,
    path: &'a Path,
    name: &'a str,
    options: &'a Options,
}

impl Writer<'_> {
    fn write(&self, file: &mut File, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<WrittenDisk, Error> {
        let extents = self.disk.data()?;
        let total: u64 = extents.iter().map(|extent| (extent.end - extent.start) * GRAIN_BYTES).sum();
        let mut grains = extents.into_iter().flatten();

        let capacity = self.disk.bytes() / SECTOR;
        let mut stream = Stream::begin(file, self.path, capacity)?;
        let batch_size = rayon::current_num_threads() * BATCH_PER_THREAD;
        let mut done = 0;
        let mut ready: Vec<Grain> = Vec::new();
        progress(Progress { done, total });
        loop {
            let batch: Vec<u64> = grains.by_ref().take(batch_size).collect();
            let (compressed, appended) = rayon::join(|| compress_all(self.disk, &batch), || stream.append(&ready));
            appended?;
            ready = compressed?;
            if batch.is_empty() {
                break;
            }
            done += batch.len() as u64 * GRAIN_BYTES;
            progress(Progress { done, total });
        }
        let populated = stream.grains * GRAIN_BYTES;
        let size = stream.finish(|content_id| {
            Descriptor { capacity, extent_name: self.name, adapter: self.options.adapter, content_id }.encode()
        })?;
        Ok(WrittenDisk { capacity: self.disk.bytes(), populated, size })
    }
}

/// A compressed grain for the file.
struct Grain {
    number: u64,
    /// Marker, compressed data, and zeros up to a whole sector.
    bytes: Vec<u8>,
    /// The digest of `bytes`. The threads that compress compute it, not the one that writes.
    digest: Sha256,
}

/// Compresses the grains with data, in order. Grains of zeros are left out.
fn compress_all(disk: &RawDisk, grains: &[u64]) -> Result<Vec<Grain>, Error> {
    grains
        .par_iter()
        .map_init(Worker::new, |worker, &grain| worker.compress(disk, grain))
        .filter_map(Result::transpose)
        .collect()
}

struct Worker {
    compressor: Compressor,
    data: Vec<u8>,
}

impl Worker {
    fn new() -> Worker {
        let level = CompressionLvl::new(LEVEL).expect("the level is one of libdeflate's");
        Worker { compressor: Compressor::new(level), data: vec![0; GRAIN_BYTES as usize] }
    }

    fn compress(&mut self, disk: &RawDisk, number: u64) -> Result<Option<Grain>, Error> {
        disk.read_grain(number, &mut self.data)?;
        if is_zero(&self.data) {
            return Ok(None);
        }
        let bound = self.compressor.zlib_compress_bound(self.data.len());
        let mut bytes = vec![0; GRAIN_MARKER_BYTES + bound];
        let compressed = self
            .compressor
            .zlib_compress(&self.data, &mut bytes[GRAIN_MARKER_BYTES..])
            .expect("the buffer has the size that libdeflate asks for");
        bytes[..GRAIN_MARKER_BYTES].copy_from_slice(&format::grain_marker(number * GRAIN_SECTORS, compressed as u32));
        bytes.truncate(GRAIN_MARKER_BYTES + compressed);
        bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
        Ok(Some(Grain { number, digest: Sha256::of(&bytes), bytes }))
    }
}

/// Whether all bytes are zero.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Comparing slices is memcmp(3), fast in unoptimised builds as well.
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|block| *block == ZEROS[..block.len()])
}

/// The file being written, always at its end.
struct Stream<'a> {
    file: &'a mut File,
    path: &'a Path,
    header: Header,
    /// Sectors written.
    sector: u64,
    grains: u64,
    /// The table of the next grains, and its number.
    table: (usize, [u32; TABLE_ENTRIES]),
    directory: Vec<u32>,
    content: Hasher,
}

impl<'a> Stream<'a> {
    /// Writes the part before the grains. [`Stream::finish`] adds the descriptor, which names the content.
    fn begin(file: &'a mut File, path: &'a Path, capacity: u64) -> Result<Stream<'a>, Error> {
        let header = Header::stream_optimized(capacity, DESCRIPTOR_SECTORS, OVERHEAD);
        let directory = vec![0; format::directory_entries(header.grains()) as usize];
        let mut content = Hasher::new();
        content.update(&header.encode());
        let table = (0, [0; TABLE_ENTRIES]);
        let mut stream = Stream { file, path, header, sector: 0, grains: 0, table, directory, content };
        let mut front = stream.header.encode().to_vec();
        front.resize((OVERHEAD * SECTOR) as usize, 0);
        stream.put(&front)?;
        Ok(stream)
    }

    fn append(&mut self, grains: &[Grain]) -> Result<(), Error> {
        for grain in grains {
            let table = (grain.number / TABLE_ENTRIES as u64) as usize;
            if table != self.table.0 {
                self.end_table()?;
                self.table.0 = table;
            }
            self.table.1[(grain.number % TABLE_ENTRIES as u64) as usize] = self.entry()?;
            self.content.update(&grain.digest.0);
            self.grains += 1;
            self.put(&grain.bytes)?;
        }
        Ok(())
    }

    /// Writes the current table, unless it has no grains.
    fn end_table(&mut self) -> Result<(), Error> {
        let (number, entries) = std::mem::replace(&mut self.table, (0, [0; TABLE_ENTRIES]));
        if entries.iter().all(|&entry| entry == 0) {
            return Ok(());
        }
        self.put(&format::metadata_marker(Metadata::Table, TABLE_SECTORS))?;
        self.directory[number] = self.entry()?;
        self.put(&tables::encode(&entries))
    }

    /// Writes the part after the grains, then the descriptor. Returns the file's size in bytes.
    fn finish(mut self, descriptor: impl FnOnce([u8; 16]) -> Vec<u8>) -> Result<u64, Error> {
        self.end_table()?;
        let sectors = format::directory_sectors(self.directory.len() as u64);
        self.put(&format::metadata_marker(Metadata::Directory, sectors))?;
        let footer = Header { directory: u64::from(self.entry()?), ..self.header.clone() };
        let directory = tables::encode(&self.directory);
        self.put(&directory)?;
        self.put(&format::metadata_marker(Metadata::Footer, 1))?;
        self.put(&footer.encode())?;
        self.put(&format::metadata_marker(Metadata::EndOfStream, 0))?;

        let content = std::mem::replace(&mut self.content, Hasher::new()).finish();
        let descriptor = descriptor(content_id(&content));
        let size = self.sector * SECTOR;
        self.file
            .seek(SeekFrom::Start(self.header.descriptor_offset * SECTOR))
            .and_then(|_| self.file.write_all(&descriptor))
            .map_err(Error::file("writing", self.path))?;
        Ok(size)
    }

    /// The current position as an entry of a table.
    fn entry(&self) -> Result<u32, Error> {
        u32::try_from(self.sector).map_err(|_| Error::Source {
            path: self.path.into(),
            reason: "the file would grow beyond 2 TiB, which grain tables cannot address; use a smaller disk".into(),
        })
    }

    /// Appends whole sectors.
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        debug_assert!(bytes.len().is_multiple_of(SECTOR as usize));
        self.file.write_all(bytes).map_err(Error::file("writing", self.path))?;
        self.sector += bytes.len() as u64 / SECTOR;
        Ok(())
    }
}
