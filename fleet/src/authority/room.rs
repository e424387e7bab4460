//! Room for files that come from others, in directories beside each other: all of them together have a bound, and those of one owner. It
//! is judged and taken in one: who takes some meanwhile, and has nothing on the disk yet, is seen by all others of the process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use nix::sys::statvfs::statvfs;

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

impl Budget {
    /// What is left where a file system has `size` bytes in all and `free` ones, the other directories have `others`, and of these those
    /// of the same owner `own`.
    fn left(self, size: u64, free: u64, others: u64, own: u64) -> Left {
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
        let mut known = bounded.promised.lock();
        let left = bounded.left(&known)?;
        if bytes > left.room() {
            // Who promises more than there can be makes nobody else give way.
            if bytes <= left.share {
                known.lacked.insert(bounded.directory.clone(), bytes);
            }
            bounded.tell()?;
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
        let left = bounded.left(&bounded.promised.lock())?.kept();
        ensure!(bytes <= left, "the snapshot has {bytes} bytes, and there is room for {left}");
        Ok(())
    }

    /// How large the file was for which there was no room, if there was none for the last one: it is said once.
    pub(super) fn lacked(&self) -> Option<u64> {
        let bounded = self.0.as_ref()?;
        bounded.promised.lock().lacked.remove(&bounded.directory)
    }

    /// Removes files of directories of these names, beside this one, until there is room for so many bytes: those of the same owner
    /// first, and the oldest ones of each. None goes that is younger than [`YOUNG`], and of a directory to which one is coming none. Blocks.
    ///
    /// # Errors
    /// When they cannot be looked at or removed. Some may be gone.
    pub(super) fn make(&self, bytes: u64, spare: &BTreeSet<String>) -> anyhow::Result<()> {
        let Some(bounded) = &self.0 else { return Ok(()) };
        let known = bounded.promised.lock();
        for Old { is_of_another, path, .. } in bounded.old(&known, spare)? {
            let left = bounded.left(&known)?;
            // Where one's own have too much others are no help.
            if bytes <= left.room() || (is_of_another && bytes > left.own) {
                break;
            }
            log::info!("{} is removed: there is no room for a newer one of another cluster", path.display());
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }

    /// How many bytes there are now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |bounded| bounded.left(&bounded.promised.lock()).unwrap().room())
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

/// A file that may go, in the order in which they do.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Old {
    is_of_another: bool,
    modified: SystemTime,
    path: PathBuf,
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

    fn left(&self, known: &Known) -> anyhow::Result<Left> {
        let seen = statvfs(&self.directory).with_context(|| format!("measuring {}", self.directory.display()))?;
        let block = seen.fragment_size();
        let shared = self.shared()?;
        // What is on its way has no name in any directory, also in one's own.
        let coming = known.coming.iter().filter(|(to, _)| to.parent() == Some(shared));
        let coming = coming.map(|(to, bytes)| (to.clone(), *bytes));
        let (mut others, mut own) = (0_u64, 0_u64);
        for (path, bytes) in self.beside()?.into_iter().chain(coming) {
            others = others.saturating_add(bytes);
            if owner(&path) == owner(&self.directory) {
                own = own.saturating_add(bytes);
            }
        }
        Ok(self.budget.left(seen.blocks() * block, seen.blocks_available() * block, others, own))
    }

    /// What others beside it have, in bytes.
    fn beside(&self) -> anyhow::Result<Vec<(PathBuf, u64)>> {
        let shared = self.shared()?;
        let mut all = Vec::new();
        for entry in fs::read_dir(shared).with_context(|| format!("reading {}", shared.display()))? {
            let path = entry?.path();
            if path != self.directory {
                let bytes = weight(&path).with_context(|| format!("measuring {}", path.display()))?;
                all.push((path, bytes));
            }
        }
        Ok(all)
    }

    /// Says in the log who has most: that is for nobody else to know.
    fn tell(&self) -> anyhow::Result<()> {
        const SAID: usize = 5;
        let mut all = self.beside()?;
        all.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let said = all.iter().take(SAID).map(|(path, bytes)| format!("{}: {bytes} bytes", path.display()));
        log::warn!("no room in {}; {}", self.directory.display(), said.collect::<Vec<_>>().join(", "));
        Ok(())
    }

    /// The files of directories of these names that may go.
    fn old(&self, known: &Known, spare: &BTreeSet<String>) -> anyhow::Result<Vec<Old>> {
        let (shared, mut files) = (self.shared()?, Vec::new());
        for directory in spare.iter().map(|name| shared.join(name)) {
            if directory == self.directory || known.coming.contains_key(&directory) {
                continue;
            }
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.with_context(|| format!("reading {}", directory.display()))?,
            };
            for entry in entries {
                let entry = entry?;
                let seen = entry.metadata()?;
                let modified = seen.modified()?;
                if seen.is_file() && modified.elapsed().is_ok_and(|age| age >= YOUNG) {
                    let is_of_another = owner(&directory) != owner(&self.directory);
                    files.push(Old { is_of_another, modified, path: entry.path() });
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

    /// The room of directories of these names, which are made beside each other.
    fn of(shared: &Path, budget: Budget, names: &[&str]) -> Vec<Room> {
        let promised = Promised::default();
        let room = |name: &&str| {
            let directory = shared.join(name);
            fs::create_dir(&directory).unwrap();
            Room::within(directory, budget, promised.clone())
        };
        names.iter().map(room).collect()
    }

    /// Puts a file of so many bytes and of this age there.
    fn keeps(shared: &Path, file: &str, bytes: usize, hours: u64) {
        fs::write(shared.join(file), vec![1; bytes]).unwrap();
        let modified = SystemTime::now() - Duration::from_secs(hours * 60 * 60);
        fs::File::options().write(true).open(shared.join(file)).unwrap().set_modified(modified).unwrap();
    }

    #[test]
    fn a_part_of_the_file_system_stays_free_for_others_and_a_part_of_all_for_other_owners() {
        let budget = Budget { most: 60, part: 100, share: 100, reserve: 25 };
        let room = |free, others| budget.left(1000, free, others, 0).room();
        assert_eq!((room(1000, 0), room(1000, 50), room(290, 0)), (60, 10, 40));
        assert_eq!((room(240, 0), room(1000, 70)), (0, 0));
        let budget = Budget { most: 6000, part: 5, share: 50, reserve: 25 };
        let room = |free, others, own| budget.left(100_000, free, others, own).room();
        assert_eq!((room(100_000, 0, 0), room(100_000, 3500, 0), room(26_000, 0, 0)), (2500, 1500, 1000));
        assert_eq!((room(24_000, 0, 0), room(100_000, 7000, 0), room(100_000, 2000, 2000)), (0, 0, 500));
    }

    #[test]
    fn room_that_one_has_taken_is_no_others_before_anything_of_it_is_on_the_disk() {
        let shared = tempfile::tempdir().unwrap();
        let budget = Budget { most: 3000, part: 100, share: 100, reserve: 0 };
        let rooms = of(shared.path(), budget, &["team.shop", "team.bank"]);
        let [one, other] = &rooms[..] else { panic!("two") };
        // Both have looked, and both are told the same.
        assert_eq!((one.bytes(), other.bytes()), (3000, 3000));
        let (_, taken) = one.take(2000, || Ok(())).unwrap();
        let error = other.take(2000, || -> io::Result<()> { panic!("it is made") }).unwrap_err().to_string();
        assert_eq!(error, "the snapshot has 2000 bytes, and there is room for 1000");
        assert!(one.take(2000, || Ok(())).is_err(), "a second one for the same directory");
        assert!(one.take(1, || io::Result::<()>::Err(io::ErrorKind::StorageFull.into())).is_err());
        drop(taken);
        let (_, taken) = other.take(3000, || Ok(())).unwrap();
        assert_eq!(one.bytes(), 0);
        drop(taken);
        assert_eq!((one.bytes(), other.bytes()), (3000, 3000), "what has gone is forgotten");
    }

    #[test]
    fn who_keeps_all_that_he_may_leaves_room_for_other_owners() {
        let shared = tempfile::tempdir().unwrap();
        let budget = Budget { most: 4000, part: 100, share: 50, reserve: 0 };
        let rooms = of(shared.path(), budget, &["red.shop", "red.bank", "blue.shop"]);
        keeps(shared.path(), "red.shop/before-1.db", 2000, 0);
        let bytes: Vec<u64> = rooms.iter().map(Room::bytes).collect();
        assert_eq!(bytes, [2000, 0, 2000], "what is replaced does not count");
    }

    #[test]
    fn where_room_is_short_the_oldest_of_those_that_nobody_needs_goes_and_no_other_one() {
        let shared = tempfile::tempdir().unwrap();
        let budget = Budget { most: 6000, part: 100, share: 50, reserve: 0 };
        let rooms = of(shared.path(), budget, &["a.open", "b.old", "c.older", "d.shop", "d.young"]);
        for (file, bytes, hours) in
            [("a.open/1.db", 2000, 9), ("b.old/1.db", 1500, 2), ("c.older/1.db", 1500, 3), ("d.young/1.db", 500, 0)]
        {
            keeps(shared.path(), file, bytes, hours);
        }
        let (shop, there) = (&rooms[3], |file: &str| shared.path().join(file).exists());
        assert_eq!(shop.lacked(), None);
        assert!(shop.take(4000, || Ok(())).is_err());
        assert_eq!(shop.lacked(), None, "so much there never is for it");
        assert!(shop.take(1000, || Ok(())).is_err());
        assert_eq!((shop.lacked(), shop.lacked()), (Some(1000), None));
        let spare: BTreeSet<String> = ["b.old", "c.older", "d.young", "gone"].map(str::to_owned).into();
        shop.make(1000, &spare).unwrap();
        assert!(there("a.open/1.db") && there("b.old/1.db") && there("d.young/1.db") && !there("c.older/1.db"));
        drop(shop.take(1000, || Ok(())).unwrap());
        // A directory that something comes to is left alone.
        let (_, taken) = rooms[1].take(1000, || Ok(())).unwrap();
        shop.make(2500, &spare).unwrap();
        assert!(there("b.old/1.db"));
        drop(taken);
        shop.make(2500, &spare).unwrap();
        assert!(!there("b.old/1.db") && there("d.young/1.db"));
    }
}
