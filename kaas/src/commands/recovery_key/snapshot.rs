//! Finds the nodes' sealed copies in a snapshot of etcd. Reads only values of the nodes' own keys, in each revision that the
//! store still has: users can store similar values under other keys. Does not open the copies.
//!
//! A snapshot is a database of bbolt (`go.etcd.io/bbolt`, `internal/common`: page.go, meta.go, bucket.go), a tree of pages,
//! little-endian. Its bucket `key` has one `mvccpb.KeyValue` for each revision (etcd, `api/mvccpb/kv.proto`).

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use contract::recovery::{KEPT_BELOW, Sealed};

/// The size of a page in bytes: the memory page size of the nodes.
const PAGE: usize = 4096;
/// The size of a page's header in bytes: page number, kind, count of elements, count of overflow pages.
const HEADER: usize = 16;
/// The kind of a page that refers to other pages.
const BRANCH: u16 = 1;
/// The kind of a page with content.
const LEAF: u16 = 2;
/// The size of an element's header in bytes, on both kinds.
const ELEMENT: usize = 16;
/// The kind of an element that is a bucket.
const BUCKET: u32 = 1;
/// The length of a revision's key that records a deletion. Other keys are shorter by one byte.
const REMOVAL: usize = 18;

#[derive(Debug, PartialEq, Eq)]
pub struct SealedCopy {
    pub node: String,
    /// `None` if the copy is damaged.
    pub sealed: Option<Sealed>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SealedCopies {
    /// All copies, the newest first.
    pub copies: Vec<SealedCopy>,
    /// How many parts of the snapshot cannot be read: copies may be missing.
    pub damaged: usize,
}

/// Reads all sealed copies of a snapshot.
pub fn look(file: &File) -> io::Result<SealedCopies> {
    let root =
        newest_root(file)?.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no snapshot of etcd"))?;
    let mut tree = Tree { file, damaged: 0, visited: HashSet::new() };
    let (mut bucket, mut copies) = (None, Vec::new());
    tree.walk(root, &mut |element| {
        if element.kind == BUCKET && element.key == b"key" {
            bucket = Some(element.value.to_vec());
        }
    })?;
    let mut take = |element: &Element<'_>| copies.extend(copy(element));
    if let Some(bucket) = bucket {
        match number::<8>(&bucket, 0).map(u64::from_le_bytes) {
            // An inline bucket: its only page follows the header.
            Some(0) => tree.read(bucket.get(HEADER..).unwrap_or_default(), &mut Vec::new(), &mut take),
            Some(root) => tree.walk(root, &mut take)?,
            None => tree.damaged += 1,
        }
    }
    copies.reverse();
    Ok(SealedCopies { copies, damaged: tree.damaged })
}

/// The page number of the tree's root, from the newer one of the two valid meta pages.
fn newest_root(file: &File) -> io::Result<Option<u64>> {
    const MAGIC: u32 = 0xED0C_DAED;
    const VERSION: u32 = 2;
    const SUMMED: usize = 56;
    let mut newest: Option<(u64, u64)> = None;
    for at in [0, PAGE] {
        let Some(page) = bytes(file, at as u64, PAGE)? else { continue };
        let meta = &page[HEADER..];
        let word = |at| number(meta, at).map_or(0, u32::from_le_bytes);
        let long = |at| number(meta, at).map_or(0, u64::from_le_bytes);
        let whole =
            (word(0), word(4), word(8)) == (MAGIC, VERSION, PAGE as u32) && fnv(&meta[..SUMMED]) == long(SUMMED);
        let (root, transaction) = (long(16), long(48));
        if whole && newest.is_none_or(|(last, _)| last < transaction) {
            newest = Some((transaction, root));
        }
    }
    Ok(newest.map(|(_, root)| root))
}

/// FNV-1a of 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

struct Element<'a> {
    kind: u32,
    key: &'a [u8],
    value: &'a [u8],
}

/// The pages of a snapshot. A damaged page is counted and skipped, with all pages below it.
struct Tree<'a> {
    file: &'a File,
    damaged: usize,
    visited: HashSet<u64>,
}

impl Tree<'_> {
    /// Visits all leaves below a page, in order.
    fn walk(&mut self, root: u64, each: &mut dyn FnMut(&Element<'_>)) -> io::Result<()> {
        let mut waiting = vec![root];
        while let Some(id) = waiting.pop() {
            match self.page(id)? {
                Some(page) if self.visited.insert(id) => self.read(&page, &mut waiting, each),
                _ => self.damaged += 1,
            }
        }
        Ok(())
    }

    /// A page with its overflow pages. `None` if it is damaged.
    fn page(&self, id: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(at) = id.checked_mul(PAGE as u64) else { return Ok(None) };
        let Some(head) = bytes(self.file, at, HEADER)? else { return Ok(None) };
        let own = number(&head, 0).map(u64::from_le_bytes);
        let more = number(&head, 12).map_or(0, u32::from_le_bytes);
        let length = (more as usize + 1).saturating_mul(PAGE);
        if own != Some(id) { Ok(None) } else { bytes(self.file, at, length) }
    }

    /// Reads a page. Pages that it refers to are pushed on `waiting`, the first one last.
    fn read(&mut self, page: &[u8], waiting: &mut Vec<u64>, each: &mut dyn FnMut(&Element<'_>)) {
        let half = |at| number(page, at).map_or(0, u16::from_le_bytes);
        let elements = (0..usize::from(half(10))).map(|index| HEADER + index * ELEMENT);
        match half(8) {
            BRANCH => {
                for at in elements.rev() {
                    match number(page, at + 8).map(u64::from_le_bytes) {
                        Some(child) => waiting.push(child),
                        None => self.damaged += 1,
                    }
                }
            }
            LEAF => elements.for_each(|at| match element(page, at) {
                Some(element) => each(&element),
                None => self.damaged += 1,
            }),
            _ => self.damaged += 1,
        }
    }
}

fn element(page: &[u8], at: usize) -> Option<Element<'_>> {
    let word = |at| number(page, at).map(u32::from_le_bytes);
    let size = |at| Some(word(at)? as usize);
    let rest = page.get(at + size(at + 4)?..)?;
    let (key, rest) = rest.split_at_checked(size(at + 8)?)?;
    Some(Element { kind: word(at)?, key, value: rest.get(..size(at + 12)?)? })
}

/// Reads `length` bytes at `at`. `None` if the file is shorter.
fn bytes(file: &File, at: u64, length: usize) -> io::Result<Option<Vec<u8>>> {
    if at.checked_add(length as u64).is_none_or(|end| end > i64::MAX as u64)
        || at + length as u64 > file.metadata()?.len()
    {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(Some(bytes))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The sealed copy of a revision. `None` for other revisions.
fn copy(element: &Element<'_>) -> Option<SealedCopy> {
    if element.key.len() >= REMOVAL {
        return None;
    }
    let (key, value) = pair(element.value)?;
    let node = std::str::from_utf8(key).ok()?.strip_prefix(KEPT_BELOW)?;
    Some(SealedCopy { node: node.to_owned(), sealed: Sealed::of_line(value) })
}

/// Key and value of a `mvccpb.KeyValue`.
fn pair(mut message: &[u8]) -> Option<(&[u8], &[u8])> {
    const KEY: u64 = 1;
    const VALUE: u64 = 5;
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let content = varint(&mut message)?;
        match tag & 7 {
            0 => {}
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(content).ok()?)?;
                message = rest;
                match tag >> 3 {
                    KEY => key = bytes,
                    VALUE => value = bytes,
                    _ => {}
                }
            }
            _ => return None,
        }
    }
    Some((key, value))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
