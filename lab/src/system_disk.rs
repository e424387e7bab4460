//! The raw system disk of an image: its partitions, and the root tree in one of them. Independent of OVAs and of who
//! uploaded it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, bail};
use ova::Sha256;
use serde::Deserialize;
use sha2::Digest;

use super::host::run;
use super::tools::Tools;

/// An EFI system partition (UEFI 2.10, section 5.3.3).
const EFI_SYSTEM: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
/// The root of an x86-64 system (Discoverable Partitions Specification).
const ROOT: &str = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709";
/// The first bytes of a GPT header, in the second sector (UEFI 2.10, section 5.3.2).
const GPT: &[u8; 8] = b"EFI PART";
const SECTOR: u64 = 512;

/// A partition in sfdisk's JSON. Its numbers are sectors of 512 bytes.
#[derive(Clone, Debug, Deserialize)]
pub struct Partition {
    start: u64,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
}

impl Partition {
    /// The offset in bytes.
    pub fn offset(&self) -> u64 {
        self.start * SECTOR
    }

    /// SHA-256 of its content.
    pub fn digest(&self, raw: &Path) -> anyhow::Result<Sha256> {
        let read = || -> io::Result<(u64, Sha256)> {
            let mut file = File::open(raw)?;
            file.seek(SeekFrom::Start(self.offset()))?;
            let mut hash = sha2::Sha256::new();
            let mut buffer = vec![0; 1 << 20];
            let mut rest = file.take(self.size * SECTOR);
            let mut length = 0;
            loop {
                match rest.read(&mut buffer)? {
                    0 => return Ok((length, Sha256(hash.finalize().into()))),
                    count => {
                        hash.update(&buffer[..count]);
                        length += count as u64;
                    }
                }
            }
        };
        let (length, digest) = read().with_context(|| format!("reading {}", raw.display()))?;
        if length != self.size * SECTOR {
            bail!("{} ends within a partition", raw.display());
        }
        Ok(digest)
    }
}

#[derive(Deserialize)]
struct Table {
    partitions: Vec<Partition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
struct Sfdisk {
    partitiontable: Table,
}

/// The partitions of a raw system disk.
pub fn partitions(raw: &Path, tools: &Tools) -> anyhow::Result<Vec<Partition>> {
    let directory = raw.parent().context("a disk without a directory")?;
    let text = run(tools.command("sfdisk", &[directory]).arg("--json").arg(raw))?;
    let sfdisk: Sfdisk = serde_json::from_str(&text).context("reading the partition table")?;
    Ok(sfdisk.partitiontable.partitions)
}

pub fn efi_system(partitions: &[Partition]) -> anyhow::Result<&Partition> {
    find(partitions, EFI_SYSTEM).context("its system disk has no EFI system partition")
}

pub fn root(partitions: &[Partition]) -> anyhow::Result<&Partition> {
    find(partitions, ROOT).context("its system disk has no root partition")
}

/// The root partition of any disk. `None` if it is blank or has other partitions.
pub fn root_of_any(raw: &Path, tools: &Tools) -> anyhow::Result<Option<Partition>> {
    if !has_gpt(raw).with_context(|| format!("reading {}", raw.display()))? {
        return Ok(None);
    }
    Ok(find(&partitions(raw, tools)?, ROOT).cloned())
}

fn has_gpt(raw: &Path) -> io::Result<bool> {
    let mut file = File::open(raw)?;
    file.seek(SeekFrom::Start(SECTOR))?;
    let mut begin = [0; GPT.len()];
    match file.read_exact(&mut begin) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| begin == *GPT),
    }
}

fn find<'a>(partitions: &'a [Partition], kind: &str) -> Option<&'a Partition> {
    partitions.iter().find(|partition| partition.kind.eq_ignore_ascii_case(kind))
}

/// Extracts the tree of a root partition into a directory that does not exist yet. An error can leave part of the tree.
pub fn extract(raw: &Path, root: &Partition, tree: &Path, tools: &Tools) -> anyhow::Result<()> {
    let directories = [raw.parent(), tree.parent()].map(|parent| parent.context("a path without a directory"));
    let [from, to] = directories;
    let mut extract = tools.command("fsck.erofs", &[from?, to?]);
    extract.arg(format!("--extract={}", tree.display())).arg("--xattrs");
    run(extract.arg(format!("--offset={}", root.offset())).arg(raw)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_disk_without_partition_table_has_no_root() {
        let directory = tempfile::tempdir().unwrap();
        let raw = directory.path().join("disk.raw");
        let tools = Tools::at(Path::new("/"));
        for content in [&[][..], &[0; 4096], b"EFI PART"] {
            fs::write(&raw, content).unwrap();
            assert!(root_of_any(&raw, &tools).unwrap().is_none());
        }
        fs::remove_file(&raw).unwrap();
        root_of_any(&raw, &tools).unwrap_err();
    }

    #[test]
    fn partitions_are_found_by_type() {
        let text = r#"{"partitiontable": {"label": "gpt", "partitions": [
            {"node": "x1", "start": 1, "size": 1, "type": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "uuid": "a"},
            {"node": "x2", "start": 2, "size": 2, "type": "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "uuid": "b"}]}}"#;
        let all = serde_json::from_str::<Sfdisk>(text).unwrap().partitiontable.partitions;
        assert_eq!((efi_system(&all).unwrap().offset(), root(&all).unwrap().offset()), (512, 1024));
        root(&all[..1]).unwrap_err();
        let directory = tempfile::tempdir().unwrap();
        let raw = directory.path().join("disk.raw");
        let bytes: Vec<u8> = (0..2048_u32).map(|place| place as u8 ^ (place >> 8) as u8).collect();
        fs::write(&raw, &bytes).unwrap();
        assert_eq!(root(&all).unwrap().digest(&raw).unwrap(), Sha256::of(&bytes[1024..]));
        fs::write(&raw, &bytes[..2000]).unwrap();
        let why = root(&all).unwrap().digest(&raw).unwrap_err().to_string();
        assert!(why.ends_with("ends within a partition"), "{why}");
    }
}
