//! streamOptimized VMDK → raw disk, in one pass from the front, as an import does.
//!
//! Everything the format says twice is compared: descriptor and header, header
//! and footer, markers and tables. What a header claims is believed only within
//! the format's limits.

mod batch;
mod grain_map;
mod input;
mod scan;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::error::Error;
use super::format::{GRAIN_BYTES, SECTOR, VERSION};
use super::write::is_zero;
use crate::new_file::NewFile;
use batch::{Batch, Sink};
use scan::Scan;

/// Granularity of holes in the raw image: the block size of most file systems.
const HOLE_BYTES: usize = 4096;

/// What a VMDK contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of the disk as a guest sees it.
    pub capacity: u64,
    /// Bytes of the grains that are stored, uncompressed.
    pub populated: u64,
    /// Version of the format, 1 to 3. vSphere imports [`IMPORTED_VERSION`] alone, and refuses others as "sparse VMDK
    /// version too old".
    pub version: u32,
    /// Whether the file ends with an end-of-stream marker. Of a file without one, or with zeros behind it, as qemu-img
    /// makes it, some of VMware's importers digest a part only, and call it changed.
    pub ends_with_marker: bool,
}

/// The version of the format that vSphere imports.
pub const IMPORTED_VERSION: u32 = VERSION;

/// Turns the streamOptimized VMDK `vmdk` into the sparse raw image `raw`.
///
/// On failure `raw` is as it was. It is not waited until `raw` has reached its disk.
///
/// # Errors
/// As [`read_stream`], and when a file cannot be opened or created.
pub fn to_raw(vmdk: &Path, raw: &Path) -> Result<Contents, Error> {
    let input = File::open(vmdk).map_err(Error::file("opening", vmdk))?;
    let size = input.metadata().map_err(Error::file("looking at", vmdk))?.len();
    read_stream(input, size, raw)
}

/// Turns a streamOptimized VMDK of `size` bytes, such as a member of an OVA,
/// into the sparse raw image `raw`.
///
/// On failure `raw` is as it was. It is not waited until `raw` has reached its disk.
///
/// # Errors
/// [`Error::Unsupported`] for other kinds of file, [`Error::Damaged`] for one
/// that ends early, goes on after its end, or contradicts itself, and what
/// reading and writing can fail with.
pub fn read_stream(input: impl Read + Send, size: u64, raw: &Path) -> Result<Contents, Error> {
    let mut output = NewFile::create(raw).map_err(Error::file("creating", raw))?;
    let writing = |source| Error::file("writing", raw)(source);
    let scan = Scan::begin(input, size)?;
    let file: &File = output.file();
    file.set_len(scan.header().capacity * SECTOR).map_err(writing)?;
    let contents = read_all(scan, &|number, data| {
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

/// Reads all of a streamOptimized VMDK of `size` bytes, decodes each grain, and
/// keeps nothing of it.
///
/// Memory is bounded by what is really in the file, whatever its numbers claim:
/// a few MiB of grains, the tables that stand before the grains (at most
/// 256 MiB), and eight bytes for each grain, which takes at least 512 of the file.
///
/// # Errors
/// As [`read_stream`]. `input` may then have been read in part.
pub fn verify(input: impl Read + Send, size: u64) -> Result<Contents, Error> {
    read_all(Scan::begin(input, size)?, &|_, _| Ok(()))
}

/// Reads what follows the header: while one batch of grains is read, the one before it is decoded.
fn read_all<R: Read + Send>(mut scan: Scan<R>, sink: Sink<'_>) -> Result<Contents, Error> {
    let (capacity, version) = (scan.header().capacity, scan.header().version);
    let (mut ready, mut next) = (Batch::default(), Batch::default());
    loop {
        let (read, decoded) = rayon::join(|| scan.fill(&mut next), || ready.decode(capacity, sink));
        // In this order: what was decoded stands before what was read.
        decoded?;
        read?;
        if next.is_empty() {
            break;
        }
        std::mem::swap(&mut ready, &mut next);
    }
    let (grains, ends_with_marker) = scan.finish()?;
    Ok(Contents { capacity: capacity * SECTOR, populated: grains * GRAIN_BYTES, version, ends_with_marker })
}
