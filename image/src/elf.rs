//! The libraries that an ELF file needs. Source: Tool Interface Standard, ELF 1.2, and the System V ABI's `Elf64_*`
//! structures. Little-endian only.

use anyhow::{Context, Result};

/// Magic, 64-bit class, little-endian data.
const START: &[u8] = b"\x7fELF\x02\x01";
const PROGRAM_DYNAMIC: u64 = 2;
const SECTION_DYNAMIC: u32 = 6;
const TAG_NEEDED: u64 = 1;

/// The names of the libraries that a 64-bit ELF file needs. Empty for other files. Fails if an ELF file is damaged.
pub fn needed(bytes: &[u8]) -> Result<Vec<String>> {
    if !bytes.starts_with(START) {
        return Ok(Vec::new());
    }
    read(bytes).context("a damaged ELF file")
}

/// Whether a file may need libraries, by its first bytes. They include the program headers, unless it is damaged.
pub fn is_dynamic(start: &[u8]) -> bool {
    start.starts_with(START) && has_dynamic_header(start).unwrap_or(true)
}

fn has_dynamic_header(start: &[u8]) -> Option<bool> {
    let table = number(start, 0x20, 8)? as usize;
    let entry = number(start, 0x36, 2)? as usize;
    for index in 0..number(start, 0x38, 2)? as usize {
        if number(start, table.checked_add(index * entry)?, 4)? == PROGRAM_DYNAMIC {
            return Some(true);
        }
    }
    Some(false)
}

fn read(bytes: &[u8]) -> Option<Vec<String>> {
    let table = number(bytes, 0x28, 8)? as usize;
    let entry = number(bytes, 0x3a, 2)? as usize;
    let count = number(bytes, 0x3c, 2)? as usize;
    let section = |index: usize| bytes.get(table.checked_add(index.checked_mul(entry)?)?..);
    let body = |section: &[u8]| {
        let offset = number(section, 0x18, 8)? as usize;
        bytes.get(offset..offset.checked_add(number(section, 0x20, 8)? as usize)?)
    };
    let mut names = Vec::new();
    for index in 0..count {
        let header = section(index)?;
        if number(header, 4, 4)? != u64::from(SECTION_DYNAMIC) {
            continue;
        }
        let strings = body(section(number(header, 0x28, 4)? as usize)?)?;
        for dynamic in body(header)?.chunks_exact(16) {
            if number(dynamic, 0, 8)? == TAG_NEEDED {
                let name = strings.get(number(dynamic, 8, 8)? as usize..)?;
                let end = name.iter().position(|&byte| byte == 0)?;
                names.push(String::from_utf8(name[..end].to_vec()).ok()?);
            }
        }
    }
    Some(names)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..length].copy_from_slice(bytes.get(at..at.checked_add(length)?)?);
    Some(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = needed(&own).unwrap();
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
        assert!(is_dynamic(&own[..4096]));
    }

    #[test]
    fn damaged_files_are_refused_and_others_need_nothing() {
        assert_eq!(needed(b"#!/bin/sh\n").unwrap(), Vec::<String>::new());
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(needed(&own[..1000]).is_err());
        assert!(needed(&own[..7]).is_err());
        assert!(is_dynamic(&own[..100]) && !is_dynamic(b"#!/bin/sh\n"));
        // A static program has a loaded part (1) alone.
        let mut header = [0; 120];
        header[..6].copy_from_slice(START);
        (header[0x20], header[0x36], header[0x38], header[64]) = (64, 56, 1, 1);
        assert!(!is_dynamic(&header));
    }
}
