//! A raw disk image as the input of a VMDK: its data and its holes, by grain.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::error::Error;
use super::format::{GRAIN_BYTES, MAX_CAPACITY, SECTOR};

/// A raw disk image. Holes of a sparse file are never read.
pub struct RawDisk {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl RawDisk {
    /// Opens a raw image. Fails if it is not a regular file, is empty or too large, or is not a multiple of 64 KiB.
    pub fn open(path: &Path) -> Result<RawDisk, Error> {
        let refused = |reason: String| Error::Source { path: path.into(), reason };
        let file = File::open(path).map_err(Error::file("opening", path))?;
        let metadata = file.metadata().map_err(Error::file("looking at", path))?;
        if !metadata.is_file() {
            return Err(refused("it is not a regular file; copy it into one".into()));
        }
        let bytes = metadata.len();
        if bytes == 0 || !bytes.is_multiple_of(GRAIN_BYTES) {
            return Err(refused(format!(
                "its {bytes} bytes are not a multiple of 64 KiB; lengthen it with truncate(1)"
            )));
        }
        if bytes / SECTOR > MAX_CAPACITY {
            return Err(refused(format!("its {bytes} bytes are more than 64 TiB; use a smaller disk")));
        }
        Ok(RawDisk { file, path: path.into(), bytes })
    }

    /// Bytes of the disk, holes included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The grains that may have data, in order; the rest are holes.
    pub fn data(&self) -> Result<Vec<Range<u64>>, Error> {
        let mut grains: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while let Some(data) = self.next_data(at)? {
            let range = data.start / GRAIN_BYTES..data.end.div_ceil(GRAIN_BYTES);
            match grains.last_mut() {
                // Two extents may be in one grain, which is read once.
                Some(last) if range.start <= last.end => last.end = range.end,
                _ => grains.push(range),
            }
            at = data.end;
        }
        Ok(grains)
    }

    /// The first extent of data at or after `at`, in bytes (lseek(2), SEEK_DATA and SEEK_HOLE).
    fn next_data(&self, at: u64) -> Result<Option<Range<u64>>, Error> {
        if at >= self.bytes {
            return Ok(None);
        }
        let seek = |from: u64, whence| lseek(&self.file, from as i64, whence).map(|position| position as u64);
        let start = match seek(at, Whence::SeekData) {
            Ok(start) => start,
            Err(Errno::ENXIO) => return Ok(None),
            // A file system without holes: the whole file may be data.
            Err(Errno::EINVAL) => return Ok(Some(at..self.bytes)),
            Err(errno) => return Err(Error::file("searching data in", &self.path)(errno.into())),
        };
        let end = seek(start, Whence::SeekHole)
            .map_err(|errno| Error::file("searching holes in", &self.path)(errno.into()))?
            .min(self.bytes);
        // Prevents an endless loop if the file changes meanwhile.
        Ok((start < end).then_some(start..end))
    }

    /// Reads one grain into `buffer`, which has the size of a grain.
    pub fn read_grain(&self, grain: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(buffer, grain * GRAIN_BYTES).map_err(Error::file("reading", &self.path))
    }
}
