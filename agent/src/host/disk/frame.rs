//! A checksummed block of bytes on a raw disk: the frame around identities and preparation records. It does not depend
//! on its content.
//!
//! The fields, little-endian:
//!
//! 1. magic (8)
//! 2. format version (u32)
//! 3. length of the content (u32)
//! 4. sequence (u64)
//! 5. zero (8)
//! 6. SHA-256 of the whole block with this field zero (32)
//! 7. content
//! 8. zeros to the end of the block
//!
//! The digest does not depend on the version, so that a block of a later format differs from a damaged one.

use sha2::{Digest, Sha256};

const LENGTH: std::ops::Range<usize> = 12..16;
const SEQUENCE: std::ops::Range<usize> = 16..24;
const DIGEST: std::ops::Range<usize> = 32..64;
const CONTENT: usize = 64;

/// The format that this program writes, and the latest that it reads.
pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// All zeros: it was never written.
    Empty,
    /// Not a block of this kind, or a block with lost bits.
    Damaged,
    /// A later image wrote it, in this format version.
    Later(u32),
    Whole {
        /// Counts the writes. The higher one is newer.
        sequence: u64,
        content: Vec<u8>,
    },
}

/// Frames `content` in a block of `size` bytes. `None` if it does not fit.
pub fn encode(magic: &[u8; 8], sequence: u64, content: &[u8], size: usize) -> Option<Vec<u8>> {
    let length = u32::try_from(content.len()).ok()?;
    let end = CONTENT.checked_add(content.len()).filter(|end| *end <= size)?;
    let mut block = vec![0; size];
    block[..8].copy_from_slice(magic);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[LENGTH].copy_from_slice(&length.to_le_bytes());
    block[SEQUENCE].copy_from_slice(&sequence.to_le_bytes());
    block[CONTENT..end].copy_from_slice(content);
    let digest = digest(&block);
    block[DIGEST].copy_from_slice(&digest);
    Some(block)
}

/// Reads a block of at least 64 bytes.
pub fn decode(magic: &[u8; 8], block: &[u8]) -> Frame {
    if block.iter().all(|byte| *byte == 0) {
        return Frame::Empty;
    }
    if block[..8] != *magic || block[DIGEST] != digest(block) {
        return Frame::Damaged;
    }
    match u32::from_le_bytes(field(&block[8..12])) {
        0 => return Frame::Damaged,
        VERSION => {}
        later => return Frame::Later(later),
    }
    let length = u32::from_le_bytes(field(&block[LENGTH])) as usize;
    match block[CONTENT..].get(..length) {
        Some(content) => {
            Frame::Whole { sequence: u64::from_le_bytes(field(&block[SEQUENCE])), content: content.to_vec() }
        }
        None => Frame::Damaged,
    }
}

/// Whether the block begins with the magic, valid or not.
pub fn bears(magic: &[u8; 8], block: &[u8]) -> bool {
    block.starts_with(magic)
}

fn field<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(bytes);
    field
}

fn digest(block: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&block[..DIGEST.start]);
    hash.update([0; 32]);
    hash.update(&block[DIGEST.end..]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"testtest";

    #[test]
    fn every_flipped_bit_is_found() {
        let block = encode(MAGIC, 7, b"content", 512).unwrap();
        assert_eq!(decode(MAGIC, &block), Frame::Whole { sequence: 7, content: b"content".to_vec() });
        for bit in 0..512 * 8 {
            let mut flipped = block.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(MAGIC, &flipped), Frame::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn later_format_differs_from_damage() {
        let mut block = encode(MAGIC, 1, b"x", 512).unwrap();
        block[8] = 9;
        let digest = digest(&block);
        block[DIGEST].copy_from_slice(&digest);
        assert_eq!(decode(MAGIC, &block), Frame::Later(9));
    }

    #[test]
    fn length_beyond_the_block_is_damage() {
        let mut block = encode(MAGIC, 1, b"x", 512).unwrap();
        block[LENGTH].copy_from_slice(&449u32.to_le_bytes());
        let digest = digest(&block);
        block[DIGEST].copy_from_slice(&digest);
        assert_eq!(decode(MAGIC, &block), Frame::Damaged);
        assert_eq!(encode(MAGIC, 1, &[1; 449], 512), None);
    }
}
