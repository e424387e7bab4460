//! Batches of compressed grains, for the threads that decode them.

use std::ops::Range;

use libdeflater::{DecompressionError, Decompressor, adler32};
use rayon::prelude::*;

use crate::vmdk::error::Error;
use crate::vmdk::format::{GRAIN_BYTES, GRAIN_SECTORS, SECTOR};

/// Compressed bytes of a batch, without its last grain. With this size, threads seldom wait for each other. It does not
/// depend on the number of processors.
const BATCH_BYTES: usize = 4 << 20;
/// Grains that a thread decodes at once.
const AT_A_TIME: usize = 8;

/// The receiver of decoded grains with their numbers, in any order and from several threads.
pub type Sink<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<(), Error> + Sync);

/// Grains of a file, in its order.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    grains: Vec<Compressed>,
}

/// A grain as it is in the file.
struct Compressed {
    number: u64,
    /// The place of its marker in the file, in bytes.
    offset: u64,
    /// The range of its data in the batch.
    data: Range<usize>,
}

impl Batch {
    /// Removes the grains, but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.grains.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.grains.is_empty()
    }

    /// Whether the batch has enough grains.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES
    }

    /// Adds a grain. `append` appends `size` bytes of compressed data, and the filling of their last sector. If it
    /// fails, the grain is not added.
    pub fn push(
        &mut self,
        number: u64,
        offset: u64,
        size: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = self.bytes.len();
        append(&mut self.bytes)?;
        self.grains.push(Compressed { number, offset, data: start..start + size });
        Ok(())
    }

    /// Decodes the grains of a disk of `capacity` sectors on all processors. The error is the first one in the order of
    /// the file.
    pub fn decode(&self, capacity: u64, sink: Sink<'_>) -> Result<(), Error> {
        self.grains
            .par_iter()
            .with_min_len(AT_A_TIME)
            .map_init(Decoder::new, |decoder, grain| {
                let data = decoder.decode(grain, &self.bytes[grain.data.clone()], capacity)?;
                sink(grain.number, data)
            })
            .filter_map(Result::err)
            .find_first(|_| true)
            .map_or(Ok(()), Err)
    }
}

struct Decoder {
    decompressor: Decompressor,
    data: Vec<u8>,
}

impl Decoder {
    fn new() -> Decoder {
        Decoder { decompressor: Decompressor::new(), data: vec![0; GRAIN_BYTES as usize] }
    }

    /// A grain's data up to the end of the disk. The buffer has room for one grain, so longer data is never made.
    fn decode(&mut self, grain: &Compressed, compressed: &[u8], capacity: u64) -> Result<&[u8], Error> {
        let &Compressed { number, offset, .. } = grain;
        let wrong = |reason: String| Error::damaged(offset, format!("grain {number} {reason}"));
        let wanted = (capacity - number * GRAIN_SECTORS).min(GRAIN_SECTORS) * SECTOR;
        let length = self.decompressor.zlib_decompress(compressed, &mut self.data).map_err(|error| match error {
            DecompressionError::InsufficientSpace => wrong(format!("goes on after {GRAIN_BYTES} bytes")),
            DecompressionError::BadData => wrong("does not decompress".into()),
        })?;
        // For a partial last grain, some writers store the part, others the whole grain.
        if length as u64 != wanted && length as u64 != GRAIN_BYTES {
            return Err(wrong(format!("holds {length} bytes, not {wanted}")));
        }
        let data = &self.data[..length];
        // A zlib stream ends with the checksum of its data (RFC 1950 §2.2). The marker counts the stream only.
        if !compressed.ends_with(&adler32(data).to_be_bytes()) {
            return Err(wrong(format!("ends before the {} bytes of its marker", compressed.len())));
        }
        Ok(&data[..length.min(wanted as usize)])
    }
}
