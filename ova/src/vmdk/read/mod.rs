//! streamOptimized VMDK → raw disk, in one pass from the front, as an import does.
//!
//! All facts that the format repeats are compared: descriptor and header, header and footer, markers and tables. The
//! header's numbers are trusted only within the format's limits.

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

/// The contents of a VMDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Size of the disk for a guest, in bytes.
    pub capacity: u64,
    /// Bytes of the grains that are stored, uncompressed.
    pub populated: u64,
    /// Version of the format, 1 to 3. vSphere imports only [`IMPORTED_VERSION`], and refuses others as "sparse VMDK
    /// version too old".
    pub version: u32,
    /// Whether the file ends with an end-of-stream marker. In files of qemu-img it is missing, or zeros follow it. Some
    /// of VMware's importers then digest only a part of the file, and report it as changed.
    pub ends_with_marker: bool,
}

/// The version of the format that vSphere imports.
pub const IMPORTED_VERSION: u32 = VERSION;

/// Converts the streamOptimized VMDK `vmdk` to the sparse raw image `raw`.
///
/// On failure, `raw` is unchanged. The function does not wait until `raw` is on its disk.
pub fn to_raw(vmdk: &Path, raw: &Path) -> Result<Contents, Error> {
    let input = File::open(vmdk).map_err(Error::file("opening", vmdk))?;
    let size = input.metadata().map_err(Error::file("looking at", vmdk))?.len();
    read_stream(input, size, raw)
}

/// Converts a streamOptimized VMDK of `size` bytes, such as a member of an OVA, to the sparse raw image `raw`.
///
/// On failure, `raw` is unchanged. The function does not wait until `raw` is on its disk.
///
/// # Errors
/// [`Error::Unsupported`] for other kinds of file. [`Error::Damaged`] for a file that ends early, continues after its
/// end, or contradicts itself. Errors of reading and writing.
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

/// Reads all of a streamOptimized VMDK of `size` bytes and decodes each grain, but keeps no data.
///
/// The bytes of the file bound the memory, whatever its numbers claim. It is a few MiB of grains, the tables before the
/// grains (at most 256 MiB), and eight bytes for each grain. A grain takes at least 512 bytes of the file.
///
/// # Errors
/// As [`read_stream`]. A part of `input` may then have been read.
pub fn verify(input: impl Read + Send, size: u64) -> Result<Contents, Error> {
    read_all(Scan::begin(input, size)?, &|_, _| Ok(()))
}

/// Reads the part after the header. While it reads one batch of grains, it decodes the batch before.
fn read_all<R: Read + Send>(mut scan: Scan<R>, sink: Sink<'_>) -> Result<Contents, Error> {
    let (capacity, version) = (scan.header().capacity, scan.header().version);
    let (mut ready, mut next) = (Batch::default(), Batch::default());
    loop {
        let (read, decoded) = rayon::join(|| scan.fill(&mut next), || ready.decode(capacity, sink));
        // In this order: the decoded batch precedes the one that was read.
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
