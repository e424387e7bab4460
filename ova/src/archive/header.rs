//! Tar headers of an OVA's members.

use tar::{EntryType, Header};

use crate::InvalidName;

/// The size in bytes of the blocks of headers and content.
pub(super) const BLOCK: u64 = 512;
/// The first size that the eleven octal digits of a ustar header cannot hold: 8 GiB.
pub(super) const SIZE_LIMIT: u64 = 8 << 30;

/// Checks the name of a member.
pub(super) type CheckName = fn(&str) -> Result<(), InvalidName>;

/// Bytes of content that fill up the last block.
pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK) - size
}

/// The ustar header of a plain file of `size` bytes, readable by all and owned by root.
///
/// `name` has been checked and `size` is below [`SIZE_LIMIT`].
pub(super) fn encode(name: &str, size: u64, modified: u64) -> Header {
    debug_assert!(size < SIZE_LIMIT);
    let mut header = Header::new_ustar();
    header.set_path(name).expect("a checked name fits the header");
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(modified);
    header.set_size(size);
    header.set_cksum();
    header
}

/// A member's name and size.
pub(super) fn decode(block: &[u8; BLOCK as usize], check: CheckName) -> Result<(String, u64), String> {
    let header = Header::from_byte_slice(block);
    let sum: u32 = block[..148].iter().chain(&block[156..]).map(|&byte| u32::from(byte)).sum::<u32>() + 8 * 32;
    if header.cksum().ok() != Some(sum) {
        return Err("there is no tar header with a right checksum".into());
    }
    match header.entry_type() {
        EntryType::Regular => {}
        EntryType::XHeader | EntryType::XGlobalHeader => {
            return Err("it has a PAX header, which importers refuse; make it with the ustar format".into());
        }
        EntryType::GNULongName | EntryType::GNULongLink => {
            return Err("it has a GNU long name, which importers refuse; make it with the ustar format".into());
        }
        other => return Err(format!("it has a member of type {other:?}, which is not a plain file")),
    }
    let bytes = header.path_bytes();
    let name = std::str::from_utf8(&bytes).map_err(|_| "a member's name is not text")?;
    check(name).map_err(|error| error.to_string())?;
    let size = header.entry_size().map_err(|_| format!("the size of {name:?} is not a number"))?;
    Ok((name.into(), size))
}
