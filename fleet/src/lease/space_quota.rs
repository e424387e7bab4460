//! Room for files of several owners, in directories with a common parent. The total size is bounded, and the size per
//! owner. Room is checked and reserved in one step: all others of the process see a reservation before the file is on
//! the disk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::sys::statvfs::statvfs;

use super::eviction::{EvictionCandidate, select_for_eviction};

/// The bounds of directories with a common parent. The part of a directory's name before the first dot is the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All of them, in bytes. A file that is about to be replaced does not count.
    pub most: u64,
    /// The same in per cent of the file system. The lower bound counts.
    pub part: u64,
    /// Those of one owner, in per cent of the bound for all.
    pub share: u64,
    /// The part of the file system that stays free for others, in per cent.
    pub reserve: u64,
}

/// How many bytes are left for one more file, by bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// The free space of the file system beyond its reserve.
    free: u64,
    /// The bytes left for all directories together.
    all: u64,
    /// The bytes left for those of the same owner.
    own: u64,
    /// The bytes left for that owner if there were no other files.
    share: u64,
}

impl Left {
    /// How many bytes may be stored.
    fn kept(self) -> u64 {
        self.all.min(self.own)
    }

    /// How many bytes may be received.
    fn room(self) -> u64 {
        self.free.min(self.kept())
    }
}

/// The usage of a file system and of its directories, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// The size of the file system.
    size: u64,
    free: u64,
    /// The size of the other directories.
    others: u64,
    /// The part of `others` of the same owner.
    own: u64,
}

impl Used {
    /// The usage after the removal of some files of the other directories.
    fn without(self, gone: &[&EvictionCandidate]) -> Self {
        let (all, own) = gone.iter().fold((0_u64, 0_u64), |(all, own), file| {
            let of_own = if file.is_of_another { 0 } else { file.bytes };
            (all.saturating_add(file.bytes), own.saturating_add(of_own))
        });
        Self {
            free: self.free.saturating_add(all),
            others: self.others.saturating_sub(all),
            own: self.own.saturating_sub(own),
            ..self
        }
    }
}

impl Budget {
    /// The room that is left at this usage.
    fn left(self, Used { size, free, others, own }: Used) -> Left {
        let of =
            |size: u64, percent: u64| u64::try_from(u128::from(size) * u128::from(percent) / 100).unwrap_or(u64::MAX);
        let most = self.most.min(of(size, self.part));
        let share = of(most, self.share);
        Left {
            free: free.saturating_sub(of(size, self.reserve)),
            all: most.saturating_sub(others),
            own: share.saturating_sub(own),
            share,
        }
    }
}

/// The room that is promised to incoming files, and the sizes that were refused. Clones share one value: use the same
/// for all directories of a file system.
#[derive(Clone, Debug, Default)]
pub struct Promised(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// In bytes, by the directory of the incoming file.
    coming: BTreeMap<PathBuf, u64>,
    /// The size of the last refused file, by its directory.
    lacked: BTreeMap<PathBuf, u64>,
    /// The paths that cannot be read and were logged.
    unread: BTreeSet<PathBuf>,
}

impl Known {
    /// Logs the unreadable paths next to a directory, once until they can be read.
    fn names(&mut self, own: &Path, unread: BTreeMap<PathBuf, io::Error>) {
        self.unread.retain(|path| path.starts_with(own) || unread.contains_key(path));
        for (path, error) in unread {
            if !self.unread.contains(&path) {
                let words = "what it has is not counted. Remove it, or give it to the user that this process runs as";
                log::warn!("{} cannot be read ({error}): {words}", path.display());
                self.unread.insert(path);
            }
        }
    }
}

impl Promised {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Younger files are never evicted: such a file may be of an upgrade that has begun since its owner was last seen idle.
const YOUNG: Duration = Duration::from_secs(60 * 60);

/// Room for a file whose size only its sender knows.
#[derive(Clone, Debug, Default)]
pub struct SpaceQuota(Option<Bounded>);

impl SpaceQuota {
    /// As much as the disk has.
    pub fn unbounded() -> Self {
        Self(None)
    }

    /// For a file in a directory, which must exist when the room is taken.
    pub(super) fn within(directory: PathBuf, budget: Budget, promised: Promised) -> Self {
        Self(Some(Bounded { directory, budget, promised }))
    }

    /// Takes room for this many bytes. `make` must reserve them in the file system. The file has the room until the
    /// returned value is dropped. Blocks.
    ///
    /// # Errors
    /// There is no room, and nothing was made. Or the room cannot be measured or made.
    pub(crate) fn take<T>(
        &self,
        bytes: u64,
        make: impl FnOnce() -> io::Result<T>,
    ) -> anyhow::Result<(T, Option<Taken>)> {
        let Some(bounded) = &self.0 else { return Ok((make()?, None)) };
        let mut known = bounded.promised.lock();
        let left = bounded.left(&mut known)?;
        if bytes > left.room() {
            // A size that never fits evicts no files of others.
            if bytes <= left.share {
                known.lacked.insert(bounded.directory.clone(), bytes);
            }
            bounded.tell(&mut known)?;
            bail!("the snapshot has {bytes} bytes, and there is room for {}", left.room());
        }
        let made = make()?;
        *known.coming.entry(bounded.directory.clone()).or_default() += bytes;
        drop(known);
        Ok((made, Some(Taken { bytes, bounded: bounded.clone() })))
    }

    /// Fails if this many bytes exceed the bounds. Blocks.
    ///
    /// # Errors
    /// They do, or the room cannot be measured.
    pub(super) fn may_keep(&self, bytes: u64) -> anyhow::Result<()> {
        let Some(bounded) = &self.0 else { return Ok(()) };
        let left = bounded.left(&mut bounded.promised.lock())?.kept();
        ensure!(bytes <= left, "the snapshot has {bytes} bytes, and there is room for {left}");
        Ok(())
    }

    /// The size of the last file, in bytes, if there was no room for it. Returned once.
    pub(super) fn lacked(&self) -> Option<u64> {
        let bounded = self.0.as_ref()?;
        bounded.promised.lock().lacked.remove(&bounded.directory)
    }

    /// Removes files from directories of these names, next to this one, to make room for this many bytes. It removes
    /// those of the same owner first, the oldest first, and only as many as needed. If all of them are not enough, none
    /// is removed. Files stay that are younger than [`YOUNG`], or in a directory that gets a new file. If one cannot be
    /// removed, others are. Blocks.
    pub(super) fn make(&self, bytes: u64, spare: &BTreeSet<String>) -> anyhow::Result<()> {
        let Some(bounded) = &self.0 else { return Ok(()) };
        let mut known = bounded.promised.lock();
        let mut old = bounded.old(&known, spare)?;
        loop {
            let used = bounded.used(&mut known)?;
            let going = select_for_eviction(&old, |gone| bytes <= bounded.budget.left(used.without(gone)).room());
            let going: BTreeSet<PathBuf> = going.into_iter().map(|file| file.path.clone()).collect();
            if going.iter().filter(|path| !is_removed(path)).count() == 0 {
                return Ok(());
            }
            old.retain(|file| !going.contains(&file.path));
        }
    }

    /// How many bytes are available now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |bounded| bounded.left(&mut bounded.promised.lock()).unwrap().room())
    }
}

/// Room that is reserved until the value is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    bytes: u64,
    bounded: Bounded,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut known = self.bounded.promised.lock();
        if let Some(all) = known.coming.get_mut(&self.bounded.directory) {
            *all = all.saturating_sub(self.bytes);
            if *all == 0 {
                known.coming.remove(&self.bounded.directory);
            }
        }
    }
}

/// Removes a file for a newer one of another cluster. False if that fails.
fn is_removed(path: &Path) -> bool {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("{} takes room that is needed, and cannot be removed: {error}", path.display());
            false
        }
        _ => {
            log::info!("{} is removed: there is no room for a newer one of another cluster", path.display());
            true
        }
    }
}

/// A directory with the bounds that it shares with its siblings.
#[derive(Clone, Debug)]
struct Bounded {
    directory: PathBuf,
    budget: Budget,
    promised: Promised,
}

impl Bounded {
    /// The parent of all these directories.
    fn shared(&self) -> anyhow::Result<&Path> {
        self.directory.parent().context("a directory without one above")
    }

    fn left(&self, known: &mut Known) -> anyhow::Result<Left> {
        Ok(self.budget.left(self.used(known)?))
    }

    fn used(&self, known: &mut Known) -> anyhow::Result<Used> {
        let seen = statvfs(&self.directory).with_context(|| format!("measuring {}", self.directory.display()))?;
        let block = seen.fragment_size();
        let shared = self.shared()?;
        let beside = self.beside(known)?;
        // An incoming file has no name yet, not even in its own directory.
        let coming = known.coming.iter().filter(|(to, _)| to.parent() == Some(shared));
        let coming = coming.map(|(to, bytes)| (to.clone(), *bytes));
        let (mut others, mut own) = (0_u64, 0_u64);
        for (path, bytes) in beside.into_iter().chain(coming) {
            others = others.saturating_add(bytes);
            if owner(&path) == owner(&self.directory) {
                own = own.saturating_add(bytes);
            }
        }
        Ok(Used { size: seen.blocks() * block, free: seen.blocks_available() * block, others, own })
    }

    /// The sizes of the directories next to this one, in bytes. Content that cannot be read, such as files of another
    /// user, counts nothing and blocks nothing.
    fn beside(&self, known: &mut Known) -> anyhow::Result<Vec<(PathBuf, u64)>> {
        let shared = self.shared()?;
        let (mut all, mut unread) = (Vec::new(), BTreeMap::new());
        for entry in fs::read_dir(shared).with_context(|| format!("reading {}", shared.display()))? {
            let path = entry?.path();
            if path != self.directory {
                let bytes = weight(&path, &mut unread);
                all.push((path, bytes));
            }
        }
        known.names(&self.directory, unread);
        Ok(all)
    }

    /// Logs the largest directories. Only the log may show them.
    fn tell(&self, known: &mut Known) -> anyhow::Result<()> {
        const SAID: usize = 5;
        let mut all = self.beside(known)?;
        all.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let said = all.iter().take(SAID).map(|(path, bytes)| format!("{}: {bytes} bytes", path.display()));
        log::warn!("no room in {}; {}", self.directory.display(), said.collect::<Vec<_>>().join(", "));
        Ok(())
    }

    /// The files that may be removed from directories of these names.
    fn old(&self, known: &Known, spare: &BTreeSet<String>) -> anyhow::Result<Vec<EvictionCandidate>> {
        let (shared, mut files) = (self.shared()?, Vec::new());
        for directory in spare.iter().map(|name| shared.join(name)) {
            if directory == self.directory || known.coming.contains_key(&directory) {
                continue;
            }
            // A missing directory takes no room. One that cannot be read is logged where it is measured.
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let Ok(seen) = entry.metadata() else { continue };
                let Ok(modified) = seen.modified() else { continue };
                if seen.is_file() && modified.elapsed().is_ok_and(|age| age >= YOUNG) {
                    let is_of_another = owner(&directory) != owner(&self.directory);
                    files.push(EvictionCandidate { is_of_another, modified, path: entry.path(), bytes: seen.len() });
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

fn owner(directory: &Path) -> Option<&str> {
    directory.file_name().and_then(OsStr::to_str)?.split('.').next()
}

/// The size of a file, or of a directory with its content, in bytes. A file that is removed meanwhile counts 0. One
/// that cannot be read counts 0 and is noted in `unread`, with the reason.
fn weight(path: &Path, unread: &mut BTreeMap<PathBuf, io::Error>) -> u64 {
    match weighed(path, unread) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                unread.insert(path.to_owned(), error);
            }
            0
        }
    }
}

fn weighed(path: &Path, unread: &mut BTreeMap<PathBuf, io::Error>) -> io::Result<u64> {
    let seen = fs::symlink_metadata(path)?;
    if !seen.is_dir() {
        return Ok(seen.len());
    }
    fs::read_dir(path)?.map(|entry| Ok(weight(&entry?.path(), unread))).sum()
}

#[cfg(test)]
mod tests;
