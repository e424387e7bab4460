//! Root trees of uploaded system disks: extracted once for each image, by the digest of its root partition.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use super::super::disk::FileId;
use super::super::system_disk;
use super::super::tools::Tools;

/// Name prefix of directories during their creation.
const NEW: &str = "new-";

pub struct Trees {
    directory: PathBuf,
    tools: Tools,
    /// The result for each version of a file.
    known: Mutex<BTreeMap<Version, Option<PathBuf>>>,
}

/// A version of a file: size and time of the last change, in seconds and nanoseconds.
type Version = (FileId, u64, i64, i64);

impl Trees {
    pub fn at(directory: PathBuf, tools: Tools) -> Self {
        Self { directory, tools, known: Mutex::default() }
    }

    /// The root tree of a raw disk. `None` if it is no system disk. An error leaves no tree under its final name.
    pub fn of(&self, raw: &Path) -> anyhow::Result<Option<PathBuf>> {
        let metadata = fs::metadata(raw).with_context(|| format!("looking at {}", raw.display()))?;
        let version = (FileId::of(raw)?, metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        // Extracts one tree at a time, and each one once.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tree) = known.get(&version) {
            return Ok(tree.clone());
        }
        let tree = self.take_out(raw).with_context(|| format!("taking the root tree out of {}", raw.display()))?;
        known.insert(version, tree.clone());
        Ok(tree)
    }

    fn take_out(&self, raw: &Path) -> anyhow::Result<Option<PathBuf>> {
        let Some(root) = system_disk::root_of_any(raw, &self.tools)? else { return Ok(None) };
        let tree = self.directory.join(root.digest(raw)?.to_string());
        if !tree.exists() {
            fs::create_dir_all(&self.directory)?;
            let new = tempfile::Builder::new().prefix(NEW).tempdir_in(&self.directory)?;
            system_disk::extract(raw, &root, &new.path().join("tree"), &self.tools)?;
            fs::rename(new.path().join("tree"), &tree)?;
        }
        Ok(Some(tree))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_disks_have_no_tree_until_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let raw = directory.path().join("disk.raw");
        // The tools are missing: a call that needs them fails.
        let trees = Trees::at(directory.path().join("trees"), Tools::at(&directory.path().join("none")));
        fs::write(&raw, [0; 4096]).unwrap();
        for _ in 0..2 {
            assert_eq!(trees.of(&raw).unwrap(), None);
        }
        assert_eq!(trees.known.lock().unwrap().len(), 1);
        let mut table = [0; 8192];
        table[512..520].copy_from_slice(b"EFI PART");
        fs::write(&raw, table).unwrap();
        let why = format!("{:#}", trees.of(&raw).unwrap_err());
        assert!(why.starts_with("taking the root tree out of "), "{why}");
        assert!(!directory.path().join("trees").exists());
    }
}
