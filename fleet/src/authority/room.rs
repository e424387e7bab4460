//! Room for files that come from others, in directories beside each other of which all together have a bound. It is judged and taken in
//! one: who takes some meanwhile, and has nothing on the disk yet, is seen by all others of the process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use nix::sys::statvfs::statvfs;

/// What directories beside each other may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In bytes. What is about to be replaced does not count.
    pub most: u64,
    /// How much of the file system stays free for others, in per cent.
    pub reserve: u64,
}

impl Budget {
    /// How many bytes there are for one more file where a file system has `size` bytes in all and `free` ones, and the other directories
    /// have `others`.
    fn room(self, size: u64, free: u64, others: u64) -> u64 {
        let reserved = size / 100 * self.reserve;
        free.saturating_sub(reserved).min(self.most.saturating_sub(others))
    }
}

/// What is promised to files that are on their way, by the directories that they are for. Clones are the same: all who share a file system
/// share it.
#[derive(Clone, Debug, Default)]
pub struct Promised(Arc<Mutex<BTreeMap<PathBuf, u64>>>);

impl Promised {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for a file of which only he who sends it knows how large it is.
#[derive(Clone, Debug, Default)]
pub struct Room(Option<Bounded>);

impl Room {
    /// As much as there is.
    pub fn unbounded() -> Self {
        Self(None)
    }

    /// For a file of a directory, which is there once it is taken, beside others.
    pub(super) fn within(directory: PathBuf, budget: Budget, promised: Promised) -> Self {
        Self(Some(Bounded { directory, budget, promised }))
    }

    /// Takes the room for so many bytes by what `make` does, which sees to it that the file system has them. It is the file's until the
    /// value goes that comes with it. Blocks.
    ///
    /// # Errors
    /// When there is no room: nothing is made then. Or it cannot be measured or made.
    pub(crate) fn take<T>(
        &self,
        bytes: u64,
        make: impl FnOnce() -> io::Result<T>,
    ) -> anyhow::Result<(T, Option<Taken>)> {
        let Some(bounded) = &self.0 else { return Ok((make()?, None)) };
        let mut promised = bounded.promised.lock();
        let room = bounded.room(&promised)?;
        ensure!(bytes <= room, "the snapshot has {bytes} bytes, and there is room for {room}");
        let made = make()?;
        *promised.entry(bounded.directory.clone()).or_default() += bytes;
        drop(promised);
        Ok((made, Some(Taken { bytes, bounded: bounded.clone() })))
    }

    /// How many bytes there are now. Blocks.
    ///
    /// # Errors
    /// When that cannot be told.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> anyhow::Result<u64> {
        self.0.as_ref().map_or(Ok(u64::MAX), |bounded| bounded.room(&bounded.promised.lock()))
    }
}

/// Room that is taken, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Taken {
    bytes: u64,
    bounded: Bounded,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut promised = self.bounded.promised.lock();
        if let Some(all) = promised.get_mut(&self.bounded.directory) {
            *all = all.saturating_sub(self.bytes);
            if *all == 0 {
                promised.remove(&self.bounded.directory);
            }
        }
    }
}

/// A directory, and what it shares with those beside it.
#[derive(Clone, Debug)]
struct Bounded {
    directory: PathBuf,
    budget: Budget,
    promised: Promised,
}

impl Bounded {
    fn room(&self, promised: &BTreeMap<PathBuf, u64>) -> anyhow::Result<u64> {
        let seen = statvfs(&self.directory).with_context(|| format!("measuring {}", self.directory.display()))?;
        let block = seen.fragment_size();
        let others = others(&self.directory)?;
        // What is on its way has no name in any directory, also in one's own.
        let is_beside = |to: &Path| to.parent() == self.directory.parent();
        let coming: u64 = promised.iter().filter(|(to, _)| is_beside(to)).map(|(_, bytes)| bytes).sum();
        let others = others.saturating_add(coming);
        Ok(self.budget.room(seen.blocks() * block, seen.blocks_available() * block, others))
    }
}

/// What the directories beside one have, in bytes.
pub(super) fn others(directory: &Path) -> anyhow::Result<u64> {
    let shared = directory.parent().context("a directory without one above")?;
    let mut bytes = 0;
    for entry in fs::read_dir(shared).with_context(|| format!("reading {}", shared.display()))? {
        let other = entry?.path();
        if other != directory {
            bytes += weight(&other).with_context(|| format!("measuring {}", other.display()))?;
        }
    }
    Ok(bytes)
}

/// What a file has, or a directory with all that is in it, in bytes. What is removed meanwhile has nothing.
fn weight(path: &Path) -> io::Result<u64> {
    match weighed(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        weighed => weighed,
    }
}

fn weighed(path: &Path) -> io::Result<u64> {
    let seen = fs::symlink_metadata(path)?;
    if !seen.is_dir() {
        return Ok(seen.len());
    }
    fs::read_dir(path)?.map(|entry| weight(&entry?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_file_system_stays_free_for_others() {
        let budget = Budget { most: 60, reserve: 25 };
        assert_eq!(budget.room(1000, 1000, 0), 60);
        assert_eq!(budget.room(1000, 1000, 50), 10);
        assert_eq!(budget.room(1000, 290, 0), 40);
        assert_eq!((budget.room(1000, 240, 0), budget.room(1000, 1000, 70)), (0, 0));
    }

    #[test]
    fn room_that_one_has_taken_is_no_others_before_anything_of_it_is_on_the_disk() {
        let shared = tempfile::tempdir().unwrap();
        let promised = Promised::default();
        let of = |name: &str| {
            let directory = shared.path().join(name);
            fs::create_dir(&directory).unwrap();
            Room::within(directory, Budget { most: 3000, reserve: 0 }, promised.clone())
        };
        let (one, other) = (of("team.shop"), of("team.bank"));
        // Both have looked, and both are told the same.
        assert_eq!((one.bytes().unwrap(), other.bytes().unwrap()), (3000, 3000));
        let (_, taken) = one.take(2000, || Ok(())).unwrap();
        let error = other.take(2000, || -> io::Result<()> { panic!("it is made") }).unwrap_err().to_string();
        assert_eq!(error, "the snapshot has 2000 bytes, and there is room for 1000");
        assert!(one.take(2000, || Ok(())).is_err(), "a second one for the same directory");
        assert!(one.take(1, || io::Result::<()>::Err(io::ErrorKind::StorageFull.into())).is_err());
        drop(taken);
        let (_, taken) = other.take(3000, || Ok(())).unwrap();
        assert_eq!(one.bytes().unwrap(), 0);
        drop(taken);
        assert!(promised.lock().is_empty(), "what has gone is forgotten");
    }
}
