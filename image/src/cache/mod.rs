//! Stores the result of each stage under a key of all its inputs. A result is complete or missing: it is made in a
//! temporary directory and then renamed. Independent of what the stages make.

mod clean;
mod compiled;
mod key;
mod room;
mod stages;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::caller;
use crate::progress::Progress;

pub use clean::Cleaned;
pub use compiled::Compiled;
pub use key::{Key, KeyBuilder, Parts, file_digest, hex, is_executable};
pub use stages::Stage;

const PACKAGES: &str = "packages";
/// Up to this number of files, each is synced alone.
const FEW: usize = 200;
const LOCK: &str = ".lock";

/// Lists results, or directories in them, that are in use outside builds.
pub type Used = fn() -> Result<Vec<PathBuf>>;

/// The cache directory. Results that a build gets from it are in use until the value and its clones are dropped.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    used: Used,
    /// Shared locks on the results in use.
    in_use: Arc<Mutex<Vec<File>>>,
}

impl Cache {
    /// The user's cache: `kaas` in `$XDG_CACHE_HOME` or `~/.cache`. Removes temporary files of interrupted builds.
    /// Never removes what `used` lists: labs use tools trees outside builds. Fails if neither variable is set.
    pub fn of_user(used: Used) -> Result<Self> {
        let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
            Some(base) => PathBuf::from(base),
            None => {
                let home = std::env::var_os("HOME").filter(|value| !value.is_empty());
                PathBuf::from(home.context("finding the cache directory: neither XDG_CACHE_HOME nor HOME is set")?)
                    .join(".cache")
            }
        };
        let root = base.join("kaas");
        for directory in [&base, &root] {
            lend_new(directory).with_context(|| format!("making the cache directory {}", directory.display()))?;
        }
        Self::sparing(&root, used)
    }

    /// A cache in this directory, used by builds only.
    pub fn at(root: &Path) -> Result<Self> {
        Self::sparing(root, || Ok(Vec::new()))
    }

    fn sparing(root: &Path, used: Used) -> Result<Self> {
        let making =
            |error, directory: &Path| failed(error, &format!("making the cache directory {}", directory.display()));
        let found = fs::create_dir_all(root).and_then(|()| root.canonicalize());
        // A caller may compare the path of a result with another path, so links are resolved.
        let root = found.map_err(|error| making(error, root))?;
        let cache = Self { root, used, in_use: Arc::default() };
        for directory in [cache.work_directory(), cache.packages()] {
            fs::create_dir_all(&directory).map_err(|error| making(error, &directory))?;
        }
        for directory in [&cache.root, &cache.work_directory()] {
            let_in(directory).map_err(|error| making(error, directory))?;
        }
        cache.clear_abandoned();
        Ok(cache)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of the distribution's packages, each under its SHA-256.
    pub fn packages(&self) -> PathBuf {
        self.root.join(PACKAGES)
    }

    /// Protects the packages from removal while this cache exists.
    pub fn use_packages(&self) -> Result<()> {
        let lock = lock_of(&self.packages())?;
        lock.lock_shared().context("locking the packages")?;
        self.keep_in_use(lock);
        Ok(())
    }

    /// The directory for Cargo's copy of the sources, locked until the value is dropped. Another build waits here.
    /// Only the user of this process writes there: root must not write where a link of another user could lead
    /// elsewhere.
    ///
    /// # Errors
    /// When the directory is another user's and cannot be created again, or cannot be locked.
    pub fn sources(&self, progress: &Progress) -> Result<Sources> {
        let directory = self.root.join("sources");
        let making = || format!("making {} this user's own: run the command with sudo", directory.display());
        let own = nix::unistd::geteuid().as_raw();
        match fs::symlink_metadata(&directory) {
            Ok(metadata) if metadata.is_dir() && metadata.uid() == own => {}
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&directory).with_context(making)?,
            Ok(_) => fs::remove_file(&directory).with_context(making)?,
            Err(_) => {}
        }
        let path = directory.join("workspace");
        fs::create_dir_all(&path).with_context(making)?;
        for directory in [&directory, &path] {
            let_in(directory).with_context(making)?;
        }
        let lock = lock_of(&directory)?;
        wait_for(&lock, |line| progress.say(&format!("agent: {line}")))
            .with_context(|| format!("locking {}", directory.display()))?;
        Ok(Sources { path, _lock: lock })
    }

    /// Directory of Cargo's output for images.
    pub fn programs(&self) -> PathBuf {
        self.root.join("cargo")
    }

    /// The name of a file in a key: its path in the cache, which contains a key, or otherwise its digest.
    pub fn name_of(&self, file: &Path) -> Result<String> {
        if let Ok(place) = file.strip_prefix(&self.root) {
            let directory = place.iter().next().unwrap_or_default();
            if Stage::ALL.iter().any(|stage| directory == stage.name) {
                return Ok(place.to_string_lossy().into_owned());
            }
        }
        file_digest(file)
    }

    fn work_directory(&self) -> PathBuf {
        self.root.join("work")
    }

    /// A directory for temporary files. It is removed when the value is dropped, or if this process is killed, when
    /// the next build starts.
    pub fn work(&self) -> Result<Work> {
        Work::new(&self.work_directory()).map_err(|error| {
            failed(error, &format!("making a directory for temporary files in {}", self.root.display()))
        })
    }

    pub fn has(&self, key: &Key) -> bool {
        self.root.join(key.stage().name).join(key.as_str()).is_dir()
    }

    /// The result for `key`, from the cache or made by `make` in an empty directory. It is on the disk before another
    /// build can find it, and stays while this cache exists.
    ///
    /// Builds that run at the same time wait for each other at each stage, and report that.
    ///
    /// # Errors
    /// Errors of `make`. An error if an input file of the key has changed. Nothing is stored then.
    pub fn stage(&self, key: &Key, progress: &Progress, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        self.stage_named(key.stage().name, key, progress, make)
    }

    /// As [`Cache::stage`], for a stage that runs for several things. `shown` is its name in messages.
    pub fn stage_named(
        &self,
        shown: &str,
        key: &Key,
        progress: &Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let stage = key.stage();
        let directory = self.root.join(stage.name);
        let place = directory.join(key.as_str());
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let lock = lock_of(&directory)?;
        wait_for(&lock, |line| progress.say(&format!("{shown}: {line}")))
            .with_context(|| format!("locking {}", directory.display()))?;
        if place.is_dir() {
            touch(&place);
            self.keep(&place)?;
            progress.cached(shown);
            return Ok(place);
        }
        let running = progress.begin(shown);
        let work = self.work()?;
        let result = work.path().join("result");
        fs::create_dir(&result).with_context(|| format!("making {}", result.display()))?;
        make(&result).with_context(|| format!("stage {}", stage.name))?;
        // Inputs may have changed while this build waited or worked.
        key.check().with_context(|| format!("stage {}", stage.name))?;
        write_out(&result).with_context(|| format!("writing the result of stage {} to the disk", stage.name))?;
        fs::rename(&result, &place).with_context(|| format!("keeping the result of stage {}", stage.name))?;
        touch(&place);
        self.keep(&place)?;
        let old = self.prune(&directory, stage.keep);
        // Other builds do not wait for the removal of gigabytes.
        drop(lock);
        drop(old);
        running.done();
        Ok(place)
    }

    /// Locks a result while this cache exists.
    fn keep(&self, place: &Path) -> Result<()> {
        let lock = File::open(place).with_context(|| format!("locking {}", place.display()))?;
        // Removal needs the stage's lock, which this caller holds.
        lock.lock_shared().with_context(|| format!("locking {}", place.display()))?;
        self.keep_in_use(lock);
        Ok(())
    }

    fn keep_in_use(&self, lock: File) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    }

    /// Moves a result or another entry away, unless it is in use. The caller holds the lock of its directory, if that
    /// has one. The caller releases that lock and then drops the value, which removes the entry: that can take long.
    /// An interrupted removal leaves no result.
    fn discard(&self, result: &Path) -> Result<Discarded> {
        let removing = |error| anyhow::Error::new(error).context(format!("removing {}", result.display()));
        // Held until the entry is moved: another process waits, and then finds that it is missing.
        let lock = match File::open(result) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Discarded::Vanished),
            opened => opened.map_err(removing)?,
        };
        if result.is_dir() && lock.try_lock().is_err() {
            return Ok(Discarded::InUse);
        }
        let removed = PendingRemoval(self.work()?);
        match fs::rename(result, removed.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Discarded::Vanished),
            renamed => renamed.map(|()| Discarded::Out(removed)).map_err(removing),
        }
    }

    fn spared(&self) -> Result<Spared> {
        let used = (self.used)().context("asking what of the cache labs use")?;
        // They may be known by a path through a link.
        Ok(Spared(used.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect()))
    }

    /// Moves the oldest results away, all but `keep`.
    fn prune(&self, directory: &Path, keep: usize) -> Vec<PendingRemoval> {
        let mut results = results(directory).unwrap_or_default();
        results.sort_by_key(|result| age(result));
        let old = results.split_off(results.len().min(keep.max(1)));
        if old.is_empty() {
            return Vec::new();
        }
        let spared = match self.spared() {
            Ok(spared) => spared,
            Err(error) => {
                log::warn!("older results stay in the cache: {error:#}");
                return Vec::new();
            }
        };
        let discard = |result: PathBuf| match self.discard(&result) {
            Ok(Discarded::Out(removed)) => Some(removed),
            Ok(Discarded::Vanished | Discarded::InUse) => None,
            Err(error) => {
                log::warn!("{error:#}");
                None
            }
        };
        old.into_iter().filter(|result| !spared.has(result)).filter_map(discard).collect()
    }

    /// Removes abandoned temporary directories. A running process holds the locks of its directories.
    fn clear_abandoned(&self) {
        for entry in entries(&self.work_directory()).unwrap_or_default() {
            // Held until the entry is removed: a process that has just created it waits for the lock, and then checks
            // it.
            let lock = File::open(entry.join(LOCK));
            let abandoned = match &lock {
                Ok(lock) => lock.try_lock().is_ok(),
                // A new directory may not be locked yet.
                Err(_) => age(&entry) > Duration::from_secs(60),
            };
            if abandoned && let Err(error) = remove(&entry) {
                log::warn!("clearing {}: {error}", entry.display());
            }
        }
    }
}

/// Syncs everything below `directory` to the disk. A power cut after the rename then leaves no incomplete result
/// under a valid key.
pub(crate) fn write_out(directory: &Path) -> Result<()> {
    let entries = walkdir::WalkDir::new(directory).contents_first(true);
    let entries = entries.into_iter().filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.path_is_symlink()));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if entries.len() > FEW {
        // One call for each of ten thousand files takes minutes. One for the file system also waits for other
        // processes' writes.
        return Ok(nix::unistd::syncfs(File::open(directory)?)?);
    }
    for entry in entries {
        let file = File::open(entry.path()).and_then(|file| file.sync_all());
        file.with_context(|| format!("writing {}", entry.path().display()))?;
    }
    Ok(())
}

/// Results in use outside builds.
struct Spared(Vec<PathBuf>);

impl Spared {
    fn has(&self, result: &Path) -> bool {
        self.0.iter().any(|path| path.starts_with(result))
    }
}

/// The directory of Cargo's copy of the sources, locked.
pub struct Sources {
    path: PathBuf,
    _lock: File,
}

impl Sources {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

pub struct Work {
    directory: PathBuf,
    _lock: File,
}

impl Work {
    fn new(parent: &Path) -> io::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = parent.join(format!("{}-{count}", std::process::id()));
        loop {
            fs::create_dir(&directory)?;
            let lock = File::create(directory.join(LOCK))?;
            if let Some(work) = Self::hold(&directory, lock)? {
                return Ok(work);
            }
        }
    }

    /// Locks a new directory. `None` if another process has found it unlocked and removed it as abandoned.
    fn hold(directory: &Path, lock: File) -> io::Result<Option<Self>> {
        // The process that removes it holds the lock until it is removed.
        lock.lock()?;
        let ours = lock.metadata()?;
        match fs::metadata(directory.join(LOCK)) {
            Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => {
                Ok(Some(Self { directory: directory.to_owned(), _lock: lock }))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            log::warn!("clearing {}: {error}", self.directory.display());
        }
    }
}

enum Discarded {
    Out(PendingRemoval),
    /// It is missing: another process has removed it.
    Vanished,
    InUse,
}

/// An entry that was moved away. It is removed when the value is dropped.
struct PendingRemoval(Work);

impl PendingRemoval {
    fn path(&self) -> PathBuf {
        self.0.path().join("removed")
    }

    /// Its size on the disk, in bytes.
    fn bytes(&self) -> u64 {
        size_on_disk(&self.path())
    }
}

/// Takes an exclusive lock. Reports before it waits.
fn wait_for(lock: &File, say: impl FnOnce(&str)) -> io::Result<()> {
    match lock.try_lock() {
        Ok(()) => return Ok(()),
        Err(TryLockError::WouldBlock) => say("waiting for another build"),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    lock.lock()
}

/// Creates a directory if it is missing. It belongs to the user who called sudo, as does the home directory.
fn lend_new(directory: &Path) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    caller::lend(directory)
}

/// Makes a directory of root's readable for all users: compilers run as the user who called sudo, and root's umask
/// may be strict.
fn let_in(directory: &Path) -> io::Result<()> {
    let metadata = fs::metadata(directory)?;
    if metadata.uid() != 0 || metadata.mode() & 0o055 == 0o055 || !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode((metadata.mode() & 0o7777) | 0o055))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut entries = read.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Records the use of a result or package as the modification time of its directory or file.
pub(crate) fn touch(path: &Path) {
    let touched = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        log::debug!("noting the use of {}: {error}", path.display());
    }
}

fn age(path: &Path) -> Duration {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default()
}

/// The results in the directory of a stage, or the packages: entries that are named by a digest.
fn results(directory: &Path) -> Result<Vec<PathBuf>> {
    let is_digest = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_result = |entry: &PathBuf| entry.file_stem().and_then(|name| name.to_str()).is_some_and(is_digest);
    Ok(entries(directory)?.into_iter().filter(is_result).collect())
}

/// Whether it is a directory itself. The target of a link may be anywhere.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn lock_of(directory: &Path) -> Result<File> {
    let lock = File::create(directory.join(LOCK));
    lock.map_err(|error| failed(error, &format!("locking {}", directory.display())))
}

/// An error of the cache, with advice if a build with sudo has left root's results.
fn failed(error: io::Error, what: &str) -> anyhow::Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let advice =
        if denied { ": it is another user's, as after a build with sudo: run the command with sudo" } else { "" };
    anyhow::Error::new(error).context(format!("{what}{advice}"))
}

/// The size of a file or a directory on the disk, in bytes. Entries that cannot be read do not count.
fn size_on_disk(path: &Path) -> u64 {
    let entries = walkdir::WalkDir::new(path).into_iter().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    pub(super) fn build(cache: &Cache, text: &str, made: &mut usize) -> PathBuf {
        let key = Key::of(Stage::TOOLS).text("input", text).finish();
        cache
            .stage(&key, &Progress::silent(), |directory| {
                *made += 1;
                Ok(fs::write(directory.join("out"), text)?)
            })
            .unwrap()
    }

    #[test]
    fn a_result_is_made_once_for_each_key() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let mut made = 0;
        let first = build(&cache, "a", &mut made);
        assert_eq!(build(&cache, "a", &mut made), first);
        assert_eq!(made, 1);
        let second = build(&cache, "b", &mut made);
        assert_ne!(first, second);
        assert_eq!((made, fs::read_to_string(second.join("out")).unwrap().as_str()), (2, "b"));
    }

    #[test]
    fn results_of_changed_inputs_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let source = directory.path().join("source");
        fs::write(&source, "one").unwrap();
        let key = || Key::of(Stage::TOOLS).file("source", &source).unwrap().finish();
        let (first, silent) = (key(), Progress::silent());
        let make = |edited: &str, directory: &Path| {
            // Another process changes it while this one waits.
            fs::write(&source, edited)?;
            fs::copy(&source, directory.join("out"))?;
            Ok(())
        };
        let error = format!("{:#}", cache.stage(&first, &silent, |directory| make("two", directory)).unwrap_err());
        let expected = format!("stage tools: {} has changed while it was built from: build again", source.display());
        assert_eq!(error, expected);
        assert!(!cache.has(&first));
        let place = cache.stage(&key(), &silent, |directory| make("two", directory)).unwrap();
        assert_eq!(fs::read_to_string(place.join("out")).unwrap(), "two");
    }

    #[test]
    fn caches_behind_a_link_have_their_real_path() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        fs::create_dir(directory.path().join("place")).unwrap();
        std::os::unix::fs::symlink("place", &link).unwrap();
        let cache = Cache::at(&link.join("kaas")).unwrap();
        assert_eq!(cache.root(), directory.path().join("place/kaas").canonicalize().unwrap());
    }

    #[test]
    fn sources_are_not_copied_through_links() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, cache.root().join("sources")).unwrap();
        let sources = cache.sources(&Progress::silent()).unwrap();
        fs::write(sources.path().join("file"), "").unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        drop(sources);
        // Existing files stay: Cargo treats rewritten files as changed.
        assert!(cache.sources(&Progress::silent()).unwrap().path().join("file").exists());
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::lchown(cache.root().join("sources"), Some(65534), None).unwrap();
            assert!(
                !cache.sources(&Progress::silent()).unwrap().path().join("file").exists(),
                "somebody else could have put a link there"
            );
        }
    }

    #[test]
    fn errors_of_a_cache_of_root_have_advice() {
        let denied = failed(io::ErrorKind::PermissionDenied.into(), "locking /c/vmdk");
        let expected = "locking /c/vmdk: it is another user's, as after a build with sudo: run the command with sudo";
        assert_eq!(denied.to_string(), expected);
        assert_eq!(failed(io::ErrorKind::StorageFull.into(), "locking /c/vmdk").to_string(), "locking /c/vmdk");
    }

    #[test]
    fn a_failed_stage_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let key = Key::of(Stage::TOOLS).finish();
        let result = cache.stage(&key, &Progress::silent(), |directory| {
            fs::write(directory.join("half"), "")?;
            bail!("the tool failed")
        });
        assert_eq!(format!("{:#}", result.unwrap_err()), "stage tools: the tool failed");
        assert!(!directory.path().join("tools").join(key.as_str()).exists());
        assert_eq!(entries(&cache.work_directory()).unwrap(), Vec::<PathBuf>::new());
    }

    /// It is synced before another build can find it.
    #[test]
    fn results_that_cannot_be_synced_are_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let key = Key::of(Stage::TOOLS).finish();
        let result = cache.stage(&key, &Progress::silent(), |directory| {
            // No process can open it.
            std::os::unix::net::UnixListener::bind(directory.join("socket"))?;
            Ok(())
        });
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.starts_with("writing the result of stage tools to the disk: writing "), "{error}");
        assert!(!directory.path().join("tools").join(key.as_str()).exists());
    }

    #[test]
    fn directories_of_a_strict_shell_become_readable() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        Cache::at(&root).unwrap().sources(&Progress::silent()).unwrap();
        let inner = ["", "work", "sources", "sources/workspace"].map(|name| root.join(name));
        let mode = |place: &Path| fs::metadata(place).unwrap().mode() & 0o777;
        inner.iter().for_each(|place| fs::set_permissions(place, fs::Permissions::from_mode(0o700)).unwrap());
        Cache::at(&root).unwrap().sources(&Progress::silent()).unwrap();
        assert!(inner.iter().all(|place| mode(place) == 0o755), "{:?}", inner.each_ref().map(|place| mode(place)));
    }

    #[test]
    fn few_and_many_files_are_synced() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/nonexistent", directory.path().join("link")).unwrap();
        write_out(directory.path()).unwrap();
        for number in 0..=FEW {
            fs::write(directory.path().join(number.to_string()), "").unwrap();
        }
        write_out(directory.path()).unwrap();
        assert!(write_out(&directory.path().join("absent")).is_err());
    }

    #[test]
    fn only_a_build_that_waits_reports_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = || lock_of(directory.path()).unwrap();
        let held = open();
        wait_for(&held, |line| panic!("{line}")).unwrap();
        let mut said = Vec::new();
        // The lock is released by the report: nothing else would end the wait.
        wait_for(&open(), |line| {
            said.push(line.to_owned());
            drop(held);
        })
        .unwrap();
        assert_eq!(said, ["waiting for another build"]);
    }

    #[test]
    fn a_discarded_result_is_removed_after_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let place = build(&Cache::at(directory.path()).unwrap(), "a", &mut 0);
        let Discarded::Out(removed) = cache.discard(&place).unwrap() else { panic!("it stays") };
        assert!(!place.exists() && removed.path().join("out").exists() && removed.bytes() > 0);
        let kept = removed.path();
        drop(removed);
        assert!(!kept.exists());
    }

    #[test]
    fn old_results_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut made = 0;
        let mut build_one = |text: &str, cache: &Cache| {
            let place = build(cache, text, &mut made);
            // Ages differ by more than the clock's resolution.
            results(&directory.path().join("tools")).unwrap().iter().for_each(|result| make_older(result));
            place
        };
        let places: Vec<_> =
            ["a", "b", "c"].iter().map(|text| build_one(text, &Cache::at(directory.path()).unwrap())).collect();
        let there = || places.iter().map(|place| place.exists()).collect::<Vec<_>>();
        assert_eq!(there(), [false, true, true]);

        // A running build uses the older of the two that are left.
        let running = Cache::at(directory.path()).unwrap();
        build_one("b", &running);
        make_older(&places[1]);
        build_one("d", &Cache::at(directory.path()).unwrap());
        build_one("e", &Cache::at(directory.path()).unwrap());
        assert_eq!(there(), [false, true, false]);
    }

    pub(super) fn make_older(place: &Path) {
        let older = fs::metadata(place).unwrap().modified().unwrap() - Duration::from_secs(3600);
        File::open(place).unwrap().set_modified(older).unwrap();
    }

    thread_local! {
        /// Results that a lab uses in the test of this thread.
        pub(super) static USED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    pub(super) fn used() -> Result<Vec<PathBuf>> {
        Ok(USED.with_borrow(Clone::clone))
    }

    #[test]
    fn results_that_labs_use_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let build_one = |text: &str, used: Used| {
            let place = build(&Cache::sparing(directory.path(), used).unwrap(), text, &mut 0);
            results(&directory.path().join("tools")).unwrap().iter().for_each(|result| make_older(result));
            place
        };
        let place = build_one("a", used);
        USED.set(vec![place.join("root")]);
        for text in ["b", "c", "d"] {
            build_one(text, used);
        }
        assert!(place.exists());
        build_one("e", || bail!("a lab's record is damaged"));
        assert!(place.exists(), "it is not known what labs use");
        USED.set(Vec::new());
        build_one("f", used);
        assert!(!place.exists());
    }

    #[test]
    fn a_directory_taken_for_abandoned_is_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let fresh = cache.work_directory().join("1-0");
        let make = || {
            fs::create_dir(&fresh).unwrap();
            File::create(fresh.join(LOCK)).unwrap()
        };
        let lock = make();
        cache.clear_abandoned();
        assert!(!fresh.exists() && Work::hold(&fresh, lock).unwrap().is_none());
        // Also when a third process has created it again.
        let lock = make();
        cache.clear_abandoned();
        make();
        assert!(Work::hold(&fresh, lock).unwrap().is_none());
        fs::remove_dir_all(&fresh).unwrap();
        let work = Work::hold(&fresh, make()).unwrap().unwrap();
        cache.clear_abandoned();
        assert!(work.path().exists());
    }

    #[test]
    fn abandoned_directories_are_removed_and_used_ones_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let dead = cache.work_directory().join("1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(".lock"), "").unwrap();
        let living = cache.work().unwrap();
        Cache::at(directory.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists());
    }
}
