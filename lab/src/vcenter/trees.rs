//! Root trees of the system disks that were uploaded: taken out once for each image, by what its root partition holds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use super::super::disk::FileId;
use super::super::system_disk;
use super::super::tools::Tools;

/// What the names of directories begin with that are being made.
const NEW: &str = "new-";

/// The trees of one vCenter.
pub struct Trees {
    directory: PathBuf,
    tools: Tools,
    /// What was read of a file as it is.
    known: Mutex<BTreeMap<Version, Option<PathBuf>>>,
}

/// A file, and as which it was written last: size and time of the last change, in seconds and nanoseconds.
type Version = (FileId, u64, i64, i64);

impl Trees {
    /// Keeps trees in a directory.
    pub fn at(directory: PathBuf, tools: Tools) -> Self {
        Self { directory, tools, known: Mutex::default() }
    }

    /// The root tree of a raw disk; none if it is no system disk.
    ///
    /// # Errors
    /// When it cannot be read, or its root not be taken out; nothing of that is left under its name then.
    pub fn of(&self, raw: &Path) -> anyhow::Result<Option<PathBuf>> {
        let metadata = fs::metadata(raw).with_context(|| format!("looking at {}", raw.display()))?;
        let version = (FileId::of(raw)?, metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        // One is taken out at a time, and nobody takes out the same twice.
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
    fn a_disk_that_is_none_of_an_image_has_no_tree_until_it_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let raw = directory.path().join("disk.raw");
        // There are no tools: whoever needs them fails.
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
