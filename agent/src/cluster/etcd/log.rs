//! Whether an etcd member has ever taken part, from the beginning of its log.
//!
//! etcd first creates its log. A moment later it saves the first batch: the members it was started with and its first
//! state. A power cut between the two leaves a log without members. Then etcd takes itself for a restarted member and
//! waits for a leader forever. Such a member has sent nothing to other members, because each message waits until its
//! content has been saved. It may therefore start over. This module only reads.
//!
//! The log's format is that of etcd 3.6 (`server/storage/wal`, `encoder.go` and `walpb/record.proto`). Each record is a
//! length field and a message. The length field has eight bytes, little-endian; its highest byte tells the padding to
//! the next multiple of eight. The message has the fields type (1), checksum (2) and data (3). The checksum is the
//! CRC-32C of the data of all records so far.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// How much of the log is read, in bytes. The first batch is far smaller.
const BEGINNING: u64 = 256 << 10;

/// The type of a record that holds the member's term, vote and commit index.
const STATE: u64 = 3;
/// The type of a record that only repeats the checksum.
const CHECKSUM: u64 = 4;

/// Whether the member in `data` has begun a log and certainly never took part. Returns `false` if the log is missing or
/// cannot be judged.
pub(super) fn never_took_part(data: &Path) -> io::Result<bool> {
    let directory = data.join("member/wal");
    let mut logs = Vec::new();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wal") {
            logs.push(path);
        }
    }
    // etcd begins a second file when the first one is full.
    let [log] = logs.as_slice() else { return Ok(false) };
    let mut beginning = Vec::new();
    File::open(log)?.take(BEGINNING).read_to_end(&mut beginning)?;
    Ok(!holds_state(&beginning))
}

/// Whether a complete state record is among the complete records at the beginning of a log.
fn holds_state(mut log: &[u8]) -> bool {
    let mut checksum = !0;
    while let Some((record, rest)) = frame(log) {
        let Some(record) = Record::parse(record) else { return false };
        checksum = record.data.iter().fold(checksum, |checksum, byte| update(checksum, *byte));
        let whole = match record.kind {
            CHECKSUM => true,
            _ => record.checksum == u64::from(!checksum),
        };
        if !whole {
            return false;
        }
        if record.kind == STATE {
            return true;
        }
        log = rest;
    }
    false
}

/// One step of CRC-32C (RFC 3720, appendix B.4), bits reversed.
fn update(checksum: u32, byte: u8) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    (0..8).fold(checksum ^ u32::from(byte), |rest, _| if rest & 1 == 1 { (rest >> 1) ^ POLYNOMIAL } else { rest >> 1 })
}

/// The first record of a log and the rest. `None` at the end of the log: the file is longer and filled with zeros.
fn frame(log: &[u8]) -> Option<(&[u8], &[u8])> {
    let (field, rest) = log.split_first_chunk::<8>()?;
    let field = u64::from_le_bytes(*field);
    let length = usize::try_from(field & (u64::MAX >> 8)).ok()?;
    let padding = if field >> 63 == 1 { usize::try_from((field >> 56) & 7).ok()? } else { 0 };
    if length == 0 || length.checked_add(padding)? > rest.len() {
        return None;
    }
    Some((&rest[..length], &rest[length + padding..]))
}

struct Record<'a> {
    kind: u64,
    checksum: u64,
    data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a protocol buffers message with these three fields.
    fn parse(mut message: &'a [u8]) -> Option<Self> {
        let mut record = Self { kind: 0, checksum: 0, data: &[] };
        while !message.is_empty() {
            match number(&mut message)? {
                0x08 => record.kind = number(&mut message)?,
                0x10 => record.checksum = number(&mut message)?,
                0x1a => {
                    let length = usize::try_from(number(&mut message)?).ok()?;
                    (record.data, message) = message.split_at_checked(length)?;
                }
                _ => return None,
            }
        }
        Some(record)
    }
}

/// A varint: base 128, its lowest digits first.
fn number(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs that etcd 3.6.16 wrote: until a power cut, and until it had a leader.
    const CUT_OFF: &[u8] = include_bytes!("fixtures/cut-off-before-its-first-entry.wal");
    const TOOK_PART: &[u8] = include_bytes!("fixtures/took-part.wal");

    fn judged(log: &[u8]) -> bool {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join("member/wal");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("0.tmp"), "prepared for later").unwrap();
        fs::write(directory.join("0000000000000000-0000000000000000.wal"), log).unwrap();
        never_took_part(data.path()).unwrap()
    }

    #[test]
    fn log_without_state_never_took_part() {
        assert!(judged(CUT_OFF));
        assert!(judged(&[]));
    }

    #[test]
    fn log_with_state_took_part() {
        assert!(!judged(TOOK_PART));
    }

    #[test]
    fn partly_saved_first_batch_holds_no_state() {
        let state = (0..TOOK_PART.len()).rev().find(|end| !holds_state(&TOOK_PART[..*end])).unwrap();
        // A part of the log is missing, as after the loss of a sector. It is longer than any padding.
        for lost in (80..state - 16).step_by(8) {
            let mut log = TOOK_PART.to_vec();
            log[lost..lost + 16].fill(0);
            assert!(!holds_state(&log), "from byte {lost}");
        }
    }

    #[test]
    fn missing_log_is_not_judged() {
        let data = tempfile::tempdir().unwrap();
        assert!(!never_took_part(data.path()).unwrap());
        fs::create_dir_all(data.path().join("member/wal")).unwrap();
        assert!(!never_took_part(data.path()).unwrap());
    }
}
