//! Room for files that come from others, in directories beside each other: all of them together have a bound, and those of one owner. It
//! is judged and taken in one: who takes some meanwhile, and has nothing on the disk yet, is seen by all others of the process.

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

/// What directories beside each other may have together. What their names have before the first dot is whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All of them, in bytes. What is about to be replaced does not count.
    pub most: u64,
    /// The same, in per cent of the file system: the less counts.
    pub part: u64,
    /// Those of one owner, in per cent of what all may have.
    pub share: u64,
    /// How much of the file system stays free for others, in per cent.
    pub reserve: u64,
}

/// How many bytes there are for one more file, by what bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// What the file system has beyond its reserve.
    free: u64,
    /// What all directories together may still have.
    all: u64,
    /// What those of the same owner may still have.
    own: u64,
    /// What they may have where there is nothing else.
    share: u64,
}

impl Left {
    /// How much may be kept.
    fn kept(self) -> u64 {
        self.all.min(self.own)
    }

    /// How much may come.
    fn room(self) -> u64 {
        self.free.min(self.kept())
    }
}

/// What a file system has, and what is in directories of it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    /// The file system in all.
    size: u64,
    free: u64,
    /// What the other directories have.
    others: u64,
    /// What those of the same owner have of that.
    own: u64,
}

impl Used {
    /// The same without some files of the other directories.
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
    /// What is left where so much is used.
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

/// What is promised to files that are on their way, and what there was no room for. Clones are the same: all who share a file system
/// share it.
#[derive(Clone, Debug, Default)]
pub struct Promised(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// In bytes, by the directories that they are for.
    coming: BTreeMap<PathBuf, u64>,
    /// How large the file was that was refused last, by the directory that it was for.
    lacked: BTreeMap<PathBuf, u64>,
    /// What cannot be read, and was named.
    unread: BTreeSet<PathBuf>,
}

impl Known {
    /// Says in the log what cannot be read beside a directory, once for as long as that is so.
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

/// What is younger than this goes for nobody's sake: it may be of an upgrade that has begun since its owner was last seen at rest.
const YOUNG: Duration = Duration::from_secs(60 * 60);

/// Room for a file of which only he who sends it knows how large it is.
#[derive(Clone, Debug, Default)]
pub struct SpaceQuota(Option<Bounded>);

impl SpaceQuota {
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
        let mut known = bounded.promised.lock();
        let left = bounded.left(&mut known)?;
        if bytes > left.room() {
            // Who promises more than there can be makes nobody else give way.
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

    /// Refuses to keep so many bytes where there are more than there may be. Blocks.
    ///
    /// # Errors
    /// When there are, or that cannot be told.
    pub(super) fn may_keep(&self, bytes: u64) -> anyhow::Result<()> {
        let Some(bounded) = &self.0 else { return Ok(()) };
        let left = bounded.left(&mut bounded.promised.lock())?.kept();
        ensure!(bytes <= left, "the snapshot has {bytes} bytes, and there is room for {left}");
        Ok(())
    }

    /// How large the file was for which there was no room, if there was none for the last one: it is said once.
    pub(super) fn lacked(&self) -> Option<u64> {
        let bounded = self.0.as_ref()?;
        bounded.promised.lock().lacked.remove(&bounded.directory)
    }

    /// Removes files of directories of these names, beside this one, so that there is room for so many bytes: those of the same owner
    /// first, the oldest ones of each, and none that is not needed for that. Where all of them are not enough none goes; nor does one that
    /// is younger than [`YOUNG`], or is in a directory to which one is coming. One that cannot be removed stays, and others go. Blocks.
    ///
    /// # Errors
    /// When it cannot be measured how much room there is.
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

    /// How many bytes there are now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |bounded| bounded.left(&mut bounded.promised.lock()).unwrap().room())
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
        let mut known = self.bounded.promised.lock();
        if let Some(all) = known.coming.get_mut(&self.bounded.directory) {
            *all = all.saturating_sub(self.bytes);
            if *all == 0 {
                known.coming.remove(&self.bounded.directory);
            }
        }
    }
}

/// Removes a file for a newer one of another cluster. False if it cannot be.
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

/// A directory, and what it shares with those beside it.
#[derive(Clone, Debug)]
struct Bounded {
    directory: PathBuf,
    budget: Budget,
    promised: Promised,
}

impl Bounded {
    /// The directory that it is in with all others.
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
        // What is on its way has no name in any directory, also in one's own.
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

    /// What others beside it have, in bytes, as far as it can be read: what cannot, as what somebody else has put there, stops nobody.
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

    /// Says in the log who has most: that is for nobody else to know.
    fn tell(&self, known: &mut Known) -> anyhow::Result<()> {
        const SAID: usize = 5;
        let mut all = self.beside(known)?;
        all.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let said = all.iter().take(SAID).map(|(path, bytes)| format!("{}: {bytes} bytes", path.display()));
        log::warn!("no room in {}; {}", self.directory.display(), said.collect::<Vec<_>>().join(", "));
        Ok(())
    }

    /// The files of directories of these names that may go.
    fn old(&self, known: &Known, spare: &BTreeSet<String>) -> anyhow::Result<Vec<EvictionCandidate>> {
        let (shared, mut files) = (self.shared()?, Vec::new());
        for directory in spare.iter().map(|name| shared.join(name)) {
            if directory == self.directory || known.coming.contains_key(&directory) {
                continue;
            }
            // What is not there takes no room, and what cannot be read is named where that is measured.
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

/// Whose a directory is.
fn owner(directory: &Path) -> Option<&str> {
    directory.file_name().and_then(OsStr::to_str)?.split('.').next()
}

/// What a file has, or a directory with all that is in it, in bytes. What is removed meanwhile has nothing, and of what cannot be read
/// nobody can count anything: it is noted, with the reason.
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
#[path = "room_tests.rs"]
mod tests;
