//! A cpio archive of a tree in the new ASCII format, which the kernel unpacks. Source: Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tree::{Kind, Node, Tree};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// The archive of a tree. `epoch` is the time of all files, in seconds since 1970. Fails if a file is too large.
pub fn archive(tree: &Tree, epoch: u64) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    let time = u32::try_from(epoch).context("a time after 2106")?;
    for (index, (path, node)) in tree.iter().enumerate() {
        let (kind, body) = match &node.kind {
            Kind::Directory => (DIRECTORY, Vec::new()),
            Kind::Link(target) => (LINK, target.as_os_str().as_bytes().to_vec()),
            Kind::File(content) => {
                (FILE, content.read().with_context(|| format!("reading {} for the initial root", path.display()))?)
            }
        };
        let number = u32::try_from(index + 1).context("too many files")?;
        append(&mut archive, path, number, kind, Some(node), time, &body)?;
    }
    append(&mut archive, Path::new("TRAILER!!!"), 0, 0, None, 0, &[])?;
    archive.resize(archive.len().next_multiple_of(512), 0);
    Ok(archive)
}

fn append(
    archive: &mut Vec<u8>,
    path: &Path,
    number: u32,
    kind: u32,
    node: Option<&Node>,
    time: u32,
    body: &[u8],
) -> Result<()> {
    let name = path.as_os_str().as_bytes();
    let (mode, uid, gid) = node.map_or((0, 0, 0), |node| (node.mode | kind, node.uid, node.gid));
    let size = u32::try_from(body.len()).with_context(|| format!("{} is too large", path.display()))?;
    let name_size = u32::try_from(name.len() + 1)?;
    let links = if kind == DIRECTORY { 2 } else { 1 };
    // Magic, then inode, mode, owner, group, links, time, size, device and special device in two halves, length
    // of the name, checksum.
    archive.extend(b"070701");
    for field in [number, mode, uid, gid, links, time, size, 0, 0, 0, 0, name_size, 0] {
        archive.extend(format!("{field:08x}").as_bytes());
    }
    archive.extend(name);
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(body);
    archive.resize(archive.len().next_multiple_of(4), 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_kernels_format() {
        let mut tree = Tree::default();
        tree.text("etc/x", "hello");
        tree.link("init", "usr/lib/systemd/systemd");
        let archive = archive(&tree, 0x10).unwrap();
        // Zero bytes are replaced by dots.
        let text: String = archive.iter().map(|&byte| if byte == 0 { '.' } else { char::from(byte) }).collect();
        let etc = concat!(
            "070701000000010000",
            "41ed0000000000000000000000020000001000000000",
            "0000000000000000000000000000000000000004",
            "00000000etc.",
        );
        assert!(text.starts_with(etc), "{text}");
        assert!(text.contains("etc/x.hello...070701"), "{text}");
        assert!(text.contains("usr/lib/systemd/systemd.070701"), "{text}");
        assert_eq!(archive.len() % 512, 0);
    }
}
