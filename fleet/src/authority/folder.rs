//! A store in a directory of this machine: the lab's.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;

use super::Store;
use crate::files;

/// A directory with numbered directories.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The store in a directory, which is made when something is first kept.
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// A numbered directory. Leading zeros let listings sort.
    fn numbered(&self, number: u64) -> PathBuf {
        self.0.join(format!("{number:06}"))
    }
}

#[async_trait]
impl Store for Folder {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let attempt = || format!("reading {}", self.0.display());
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(attempt)?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            numbers.extend(entry.with_context(attempt)?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        Ok(numbers)
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let path = self.numbered(number);
        let make = || -> io::Result<bool> {
            fs::create_dir_all(&self.0)?;
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                made => made.and_then(|()| File::open(&self.0)?.sync_all()).map(|()| true),
            }
        };
        make().with_context(|| format!("making {}", path.display()))
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        let path = self.numbered(number).join(file);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => text.map(Some).with_context(|| format!("reading {}", path.display())),
        }
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        files::write(&self.numbered(number).join(file), text)
    }

    async fn kept(&self, name: &str) -> anyhow::Result<Option<String>> {
        let path = self.0.join(name);
        let there = path.try_exists().with_context(|| format!("looking for {}", path.display()))?;
        Ok(there.then(|| path.display().to_string()))
    }

    async fn keep(&self, name: &str, file: &Path) -> anyhow::Result<String> {
        let path = self.0.join(name);
        let keep = || -> io::Result<()> {
            fs::create_dir_all(&self.0)?;
            let mut kept = files::create(&path)?;
            io::copy(&mut File::open(file)?, &mut kept)?;
            kept.commit()
        };
        keep().with_context(|| format!("keeping {}", path.display()))?;
        Ok(path.display().to_string())
    }
}
