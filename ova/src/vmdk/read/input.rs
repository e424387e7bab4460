//! The bytes of a VMDK from front to back, counted.

use std::io::{BufReader, ErrorKind, Read};

use crate::vmdk::error::Error;
use crate::vmdk::format::{SECTOR, SECTOR_BYTES};

/// A stream that knows its position and its expected end.
pub struct Input<R> {
    inner: BufReader<R>,
    offset: u64,
    size: u64,
}

impl<R: Read> Input<R> {
    /// A stream of `size` bytes.
    pub fn new(inner: R, size: u64) -> Input<R> {
        Input { inner: BufReader::with_capacity(1 << 20, inner), offset: 0, size }
    }

    /// The number of bytes that were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The position as an entry of a table. Fails beyond 2 TiB.
    pub fn sector_number(&self) -> Result<u32, Error> {
        u32::try_from(self.offset / SECTOR)
            .map_err(|_| Error::damaged(self.offset, "no directory can list what lies beyond 2 TiB"))
    }

    pub fn is_at_end(&self) -> bool {
        self.offset >= self.size
    }

    /// The next sector.
    pub fn sector(&mut self) -> Result<[u8; SECTOR_BYTES], Error> {
        let mut sector = [0; SECTOR_BYTES];
        self.inner.read_exact(&mut sector).map_err(|error| self.failed(error))?;
        self.offset += SECTOR;
        Ok(sector)
    }

    /// Appends the next `count` bytes to `bytes`, which grows only as they are read.
    pub fn append(&mut self, bytes: &mut Vec<u8>, count: u64) -> Result<(), Error> {
        let read = self.inner.by_ref().take(count).read_to_end(bytes).map_err(|error| self.failed(error))? as u64;
        if read < count {
            self.offset += read;
            return Err(self.failed(ErrorKind::UnexpectedEof.into()));
        }
        self.offset += count;
        Ok(())
    }

    /// Checks that at most `padding` bytes are left, all zeros. Returns their number.
    pub fn expect_end(&mut self, padding: u64) -> Result<u64, Error> {
        let end = self.offset;
        let mut rest = Vec::new();
        self.inner.by_ref().take(padding + 1).read_to_end(&mut rest).map_err(|error| self.failed(error))?;
        self.offset += rest.len() as u64;
        if rest.len() as u64 > padding || rest.iter().any(|&byte| byte != 0) {
            return Err(Error::damaged(end, "something follows the end of the stream"));
        }
        if self.offset != self.size {
            return Err(Error::damaged(self.offset, format!("it ends here, {} bytes were expected", self.size)));
        }
        Ok(self.offset - end)
    }

    fn failed(&self, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::UnexpectedEof => Error::damaged(self.offset, "the file ends too early"),
            _ => Error::Stream { offset: self.offset, source: error },
        }
    }
}
