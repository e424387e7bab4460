//! The place of a data disk's identity: two checksummed slots outside any file system, readable before anything is
//! mounted.
//!
//! A write goes to the older slot, is flushed and read back. A power cut therefore loses at most the new content, never
//! the old one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use contract::bios_uuid::BiosUuid;
use contract::json;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::frame::{self, Frame};
use super::identity::{DiskState, Identity};
use super::layout;
use crate::host::files::power;

const MAGIC: &[u8; 8] = b"KaaSIDNT";
const PREPARATION_MAGIC: &[u8; 8] = b"KaaSPREP";

/// The used part of a slot, in bytes. The rest of its MiB stays zero.
pub const SLOT_SIZE: usize = 16 * 1024;

/// One sector, because its write is atomic.
const PREPARATION_SIZE: usize = 512;

/// The record of a begun preparation. It is written in one sector before anything else, onto a disk that was proved
/// blank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// The future GPT disk GUID.
    pub disk: Uuid,
    /// The future UUID of the data file system.
    pub data: Uuid,
    /// BIOS UUID of the VM that prepares the disk.
    pub holder: Option<BiosUuid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// All zeros: it was never written.
    Empty,
    Damaged,
    /// An identity that this program cannot fully read.
    Newer(NewerIdentity),
    Whole {
        /// Counts the writes. The higher one is newer.
        sequence: u64,
        identity: Box<Identity>,
    },
}

/// Information about an identity that only a newer image can read. No decision depends on its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewerIdentity {
    Format(u32),
    /// The identity has a known format, but unknown content.
    Content {
        /// Counts the writes. The higher one is newer.
        sequence: u64,
        /// The node's name and the version of the image that last used the disk, if they are in the known fields.
        last_use: Option<(String, String)>,
    },
}

impl NewerIdentity {
    fn of(sequence: u64, content: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Said {
            node: String,
            image_version: String,
        }
        let said = serde_json::from_slice(content).ok().map(|said: Said| (said.node, said.image_version));
        Self::Content { sequence, last_use: said }
    }

    /// The order in which such identities are reported. The sequence of a later format is unknown.
    fn rank(&self) -> u64 {
        match self {
            Self::Format(_) => u64::MAX,
            Self::Content { sequence, .. } => *sequence,
        }
    }
}

impl fmt::Display for NewerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(version) => write!(f, "its identity is in format {version}"),
            Self::Content { last_use: Some((node, image)), .. } => {
                write!(f, "it was last used by node {node} with image {image}, and its identity has unknown fields")
            }
            Self::Content { last_use: None, .. } => write!(f, "its identity has unknown content"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slot in partition 1.
    pub a: Slot,
    /// The slot in partition 2.
    pub b: Slot,
    /// The content of slot A while a preparation is not finished.
    pub preparation: Option<Preparation>,
    /// Whether one of the slots begins with a magic of the appliance, valid or not.
    pub bears_our_mark: bool,
}

impl Slots {
    /// The places are fixed, so that neither a partition table nor a partition's device node is needed.
    pub fn read(disk: &Path) -> io::Result<Self> {
        let file = File::open(disk)?;
        let mut blocks = [vec![0; SLOT_SIZE], vec![0; SLOT_SIZE]];
        file.read_exact_at(&mut blocks[0], layout::IDENTITY_A)?;
        file.read_exact_at(&mut blocks[1], layout::IDENTITY_B)?;
        Ok(Self::of_blocks(&blocks[0], &blocks[1]))
    }

    fn of_blocks(a: &[u8], b: &[u8]) -> Self {
        let preparation = match frame::decode(PREPARATION_MAGIC, &a[..PREPARATION_SIZE]) {
            Frame::Whole { content, .. } => serde_json::from_slice(&content).ok(),
            _ => None,
        };
        let bears_our_mark =
            [a, b].into_iter().any(|block| frame::bears(MAGIC, block) || frame::bears(PREPARATION_MAGIC, block));
        Self { a: slot(a), b: slot(b), preparation, bears_our_mark }
    }

    pub fn newest(&self) -> Option<&Identity> {
        self.whole().map(|(_, identity)| identity)
    }

    /// Whether each slot holds an identity.
    pub fn is_redundant(&self) -> bool {
        matches!((&self.a, &self.b), (Slot::Whole { .. }, Slot::Whole { .. }))
    }

    /// The identity that only a newer image can read, if a slot has one. The newer one of two.
    pub fn later(&self) -> Option<&NewerIdentity> {
        let later = [&self.a, &self.b].into_iter().filter_map(|slot| match slot {
            Slot::Newer(later) => Some(later),
            _ => None,
        });
        later.max_by_key(|later| later.rank())
    }

    fn whole(&self) -> Option<(u64, &Identity)> {
        [&self.a, &self.b]
            .into_iter()
            .filter_map(|slot| match slot {
                Slot::Whole { sequence, identity } => Some((*sequence, identity.as_ref())),
                _ => None,
            })
            .max_by_key(|(sequence, _)| *sequence)
    }
}

fn slot(block: &[u8]) -> Slot {
    match frame::decode(MAGIC, block) {
        Frame::Empty => Slot::Empty,
        Frame::Damaged => Slot::Damaged,
        Frame::Later(version) => Slot::Newer(NewerIdentity::Format(version)),
        Frame::Whole { sequence, content } => match json::read_strictly(&content) {
            Ok(identity) => Slot::Whole { sequence, identity: Box::new(identity) },
            // Its digest is valid, so a newer program wrote it.
            Err(_) => Slot::Newer(NewerIdentity::of(sequence, &content)),
        },
    }
}

/// Writes a new identity into the older slot, or into the invalid one, and reads it back. After an error the newest
/// identity is still in the other slot. A mark to be erased cannot be removed.
pub fn write(disk: &Path, identity: &Identity) -> io::Result<()> {
    let slots = Slots::read(disk)?;
    if identity.state != DiskState::Erasing && slots.newest().is_some_and(|newest| newest.state == DiskState::Erasing) {
        return Err(io::Error::other("the disk is marked to be erased"));
    }
    if slots.later().is_some() {
        return Err(io::Error::other("it holds an identity that only a newer image can read"));
    }
    // While a preparation is not finished, its record is in slot A. Then slot B is written first, and A by the next
    // write.
    let sequence_of = |slot: &Slot| match slot {
        Slot::Whole { sequence, .. } => Some(*sequence),
        _ => None,
    };
    let place = match (sequence_of(&slots.a), sequence_of(&slots.b)) {
        (Some(a), Some(b)) if a <= b => layout::IDENTITY_A,
        (None, Some(_)) => layout::IDENTITY_A,
        _ => layout::IDENTITY_B,
    };
    let sequence = slots.whole().map_or(0, |(sequence, _)| sequence) + 1;
    let content = serde_json::to_vec(identity)?;
    let block = frame::encode(MAGIC, sequence, &content, SLOT_SIZE)
        .ok_or_else(|| io::Error::other("the identity does not fit its slot"))?;
    write_block(disk, place, &block)
}

/// Marks a blank disk as being prepared: writes one sector and flushes it.
pub(super) fn write_preparation(disk: &Path, preparation: &Preparation) -> io::Result<()> {
    let content = serde_json::to_vec(preparation)?;
    let block = frame::encode(PREPARATION_MAGIC, 1, &content, PREPARATION_SIZE)
        .ok_or_else(|| io::Error::other("the preparation record does not fit its sector"))?;
    write_block(disk, layout::IDENTITY_A, &block)
}

fn write_block(disk: &Path, place: u64, block: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(disk)?;
    power::step()?;
    file.write_all_at(block, place)?;
    file.sync_all()?;
    let mut back = vec![0; block.len()];
    super::device::forget_cached(&file, place, block.len() as u64);
    file.read_exact_at(&mut back, place)?;
    if back == block { Ok(()) } else { Err(io::Error::other("the disk does not give back what was written")) }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::identity;
    use super::super::identity::Swap;
    use super::*;
    use contract::swap::VmImage;
    use std::path::PathBuf;

    fn disk(directory: &Path) -> PathBuf {
        let path = directory.join("disk");
        File::create(&path).unwrap().set_len(8 << 20).unwrap();
        path
    }

    fn numbered(generation: u64) -> Identity {
        Identity { generation, ..identity() }
    }

    fn flip(disk: &Path, place: u64) {
        let file = OpenOptions::new().read(true).write(true).open(disk).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
    }

    /// Arbitrary slots of an attached disk, and arbitrary contents of valid slots.
    #[test]
    fn fuzz_of_identity_slots() {
        use crate::fuzz::{Example, fuzz};

        let read = |a: &[u8], b: &[u8]| {
            let slots = Slots::of_blocks(a, b);
            let whole = matches!(slots.a, Slot::Whole { .. }) || matches!(slots.b, Slot::Whole { .. });
            assert_eq!(slots.newest().is_some(), whole);
            let _ = slots.later().map(ToString::to_string);
        };
        let block = |bytes: &[u8]| {
            let mut block = bytes[..bytes.len().min(SLOT_SIZE)].to_vec();
            block.resize(SLOT_SIZE, 0);
            block
        };
        let content = |identity: &Identity| serde_json::to_vec(identity).unwrap();
        let framed = |content: &[u8]| frame::encode(MAGIC, 7, content, SLOT_SIZE);
        let good = framed(&content(&numbered(3))).unwrap();
        let preparation = Preparation { disk: Uuid::max(), data: Uuid::max(), holder: Some(Uuid::max().into()) };
        let preparation = serde_json::to_vec(&preparation).unwrap();
        let prepared = frame::encode(PREPARATION_MAGIC, 1, &preparation, PREPARATION_SIZE).unwrap();
        let frames = [good.clone(), block(&prepared)].map(|bytes| Example::changed_in(bytes, 0..PREPARATION_SIZE));
        fuzz("frames of identity slots", 1 << 20, &frames, |bytes| read(&block(bytes), &good));

        // With a valid digest, so that the content is parsed.
        let swapped =
            Identity { publisher: Some("SHA256:key".to_owned()), cluster_id: Some(Uuid::max()), ..identity() };
        let contents = [content(&numbered(3)), content(&swapped), preparation.clone()].map(Example::new);
        fuzz("contents of identity slots", 1 << 20, &contents, |bytes| {
            if let Some(block) = framed(bytes) {
                read(&block, &good);
            }
            if let Some(sector) = frame::encode(PREPARATION_MAGIC, 1, bytes, PREPARATION_SIZE) {
                read(&block(&sector), &good);
            }
        });
    }

    #[test]
    fn writes_alternate_and_the_newest_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        for generation in 1..6 {
            write(&disk, &numbered(generation)).unwrap();
            let slots = Slots::read(&disk).unwrap();
            assert_eq!(slots.newest().unwrap().generation, generation);
            assert_eq!(slots.is_redundant(), generation > 1);
        }
    }

    #[test]
    fn damaged_newest_slot_is_written_next() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        for generation in 1..=3 {
            write(&disk, &numbered(generation)).unwrap();
        }
        // B, A, B: the third is in slot B.
        flip(&disk, layout::IDENTITY_B + 300);
        let slots = Slots::read(&disk).unwrap();
        assert_eq!((slots.newest().unwrap().generation, &slots.b), (2, &Slot::Damaged));
        write(&disk, &numbered(4)).unwrap();
        let slots = Slots::read(&disk).unwrap();
        assert_eq!(slots.newest().unwrap().generation, 4);
        assert!(
            slots.is_redundant() && matches!(slots.a, Slot::Whole { ref identity, .. } if identity.generation == 2)
        );
    }

    #[test]
    fn two_damaged_slots_still_have_the_mark() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        write(&disk, &numbered(1)).unwrap();
        write(&disk, &numbered(2)).unwrap();
        flip(&disk, layout::IDENTITY_A + 100);
        flip(&disk, layout::IDENTITY_B + 100);
        let slots = Slots::read(&disk).unwrap();
        assert_eq!(slots.newest(), None);
        assert!(slots.bears_our_mark);
    }

    #[test]
    fn identity_with_unknown_fields_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let own = VmImage { vm: None, version: "1".into(), build: "b".into() };
        let swap = Swap { id: Uuid::nil(), from: own, to: None, released: None, forced: false, publisher: None };
        let content = serde_json::to_value(Identity { swap: Some(swap), ..identity() }).unwrap();
        for place in ["", "/swap", "/swap/from"] {
            let disk = disk(directory.path());
            write(&disk, &numbered(1)).unwrap();
            let mut more = content.clone();
            more.pointer_mut(place).unwrap()["new"] = 1.into();
            let block = frame::encode(MAGIC, 2, more.to_string().as_bytes(), SLOT_SIZE).unwrap();
            write_block(&disk, layout::IDENTITY_A, &block).unwrap();
            let said = Some((identity().node, identity().image_version));
            let later = NewerIdentity::Content { sequence: 2, last_use: said };
            assert_eq!(Slots::read(&disk).unwrap().later(), Some(&later), "{place}");
            let before = std::fs::read(&disk).unwrap();
            assert!(write(&disk, &numbered(3)).unwrap_err().to_string().contains("newer image"));
            assert!(std::fs::read(&disk).unwrap() == before, "{place}: nothing is written");
        }
    }

    #[test]
    fn newer_of_two_later_identities_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        for (sequence, place, image) in [(5, layout::IDENTITY_A, "9.1.0"), (4, layout::IDENTITY_B, "9.0.0")] {
            let mut later = serde_json::to_value(Identity { image_version: image.into(), ..identity() }).unwrap();
            later["new"] = 1.into();
            let block = frame::encode(MAGIC, sequence, later.to_string().as_bytes(), SLOT_SIZE).unwrap();
            write_block(&disk, place, &block).unwrap();
        }
        let said = Slots::read(&disk).unwrap().later().unwrap().to_string();
        assert!(said.starts_with(&format!("it was last used by node {} with image 9.1.0,", identity().node)), "{said}");
        // Content of another kind gives no information.
        let block = frame::encode(MAGIC, 6, br#"{"node": 1}"#, SLOT_SIZE).unwrap();
        write_block(&disk, layout::IDENTITY_B, &block).unwrap();
        let later = NewerIdentity::Content { sequence: 6, last_use: None };
        assert_eq!(Slots::read(&disk).unwrap().later(), Some(&later));
    }

    #[test]
    fn preparation_record_stays_until_slot_b_is_valid() {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk(directory.path());
        let preparation =
            Preparation { disk: Uuid::from_u128(1), data: Uuid::from_u128(9), holder: Some(BiosUuid::from_u128(2)) };
        write_preparation(&disk, &preparation).unwrap();
        assert_eq!(Slots::read(&disk).unwrap().preparation, Some(preparation.clone()));
        write(&disk, &identity()).unwrap();
        let slots = Slots::read(&disk).unwrap();
        assert!(slots.preparation.is_some() && slots.newest().is_some());
        write(&disk, &identity()).unwrap();
        let slots = Slots::read(&disk).unwrap();
        assert!(slots.preparation.is_none() && slots.is_redundant());
    }
}
