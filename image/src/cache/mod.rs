//! Keeps the result of each stage under a key made of everything that went
//! into it. A result is whole or not there: it is made in a directory of its own
//! and put in place by one rename. Knows nothing of what the stages make.

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

/// The directory of the distribution's packages.
const PACKAGES: &str = "packages";
/// Up to so many files are written out one by one.
const FEW: usize = 200;
/// The file in each directory that is locked in the directory's stead.
const LOCK: &str = ".lock";

/// Says which results, or directories in them, others than builds work with.
pub type Used = fn() -> Result<Vec<PathBuf>>;

/// The cache directory. What a build takes from it counts as in use until the value and its clones are dropped.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    /// What is spared besides.
    used: Used,
    /// Shared locks on the results in use.
    in_use: Arc<Mutex<Vec<File>>>,
}

impl Cache {
    /// The user's cache: `kaas` in `$XDG_CACHE_HOME` or `~/.cache`. Clears away what builds left
    /// that were cut off. What `used` names is never removed from it: labs run from tools trees when no build does.
    ///
    /// # Errors
    /// When neither variable is set, or the directory cannot be made.
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

    /// A cache in this directory, which builds alone work with.
    pub fn at(root: &Path) -> Result<Self> {
        Self::sparing(root, || Ok(Vec::new()))
    }

    fn sparing(root: &Path, used: Used) -> Result<Self> {
        let making =
            |error, directory: &Path| failed(error, &format!("making the cache directory {}", directory.display()));
        let found = fs::create_dir_all(root).and_then(|()| root.canonicalize());
        // Whoever is told of a result may compare it with what was found another way.
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

    /// The directory of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the distribution's packages are kept, each under its SHA-256.
    pub fn packages(&self) -> PathBuf {
        self.root.join(PACKAGES)
    }

    /// Keeps the packages from being cleaned away as long as this cache is there.
    pub fn use_packages(&self) -> Result<()> {
        let lock = lock_of(&self.packages())?;
        lock.lock_shared().context("locking the packages")?;
        self.keep_in_use(lock);
        Ok(())
    }

    /// Where sources are laid out for Cargo, held until the value is dropped: another build waits here. Nobody but who
    /// runs this process writes there, since root may not write where a link of somebody else's could lead elsewhere.
    ///
    /// # Errors
    /// When the directory is somebody else's and cannot be made anew, or cannot be locked.
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

    /// Where Cargo keeps what it builds for images.
    pub fn programs(&self) -> PathBuf {
        self.root.join("cargo")
    }

    /// What stands for a file in a key: its place in the cache, which has a key in it, or else its digest.
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

    /// A directory for temporary files that goes when the value is dropped, or,
    /// if this process is killed, when the next build starts.
    pub fn work(&self) -> Result<Work> {
        Work::new(&self.work_directory()).map_err(|error| {
            failed(error, &format!("making a directory for temporary files in {}", self.root.display()))
        })
    }

    /// Whether there is a result for `key`.
    pub fn has(&self, key: &Key) -> bool {
        self.root.join(key.stage().name).join(key.as_str()).is_dir()
    }

    /// The result for `key`: as it stands, or made by `make` in the empty directory it is given. It is on the disk
    /// before it can be found, and stays as long as this cache is there.
    ///
    /// Builds that run at the same time wait for each other here, stage by stage, and say so.
    ///
    /// # Errors
    /// Those of `make`, and when a file that went into the key has changed meanwhile; nothing is then kept.
    pub fn stage(&self, key: &Key, progress: &Progress, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        self.stage_named(key.stage().name, key, progress, make)
    }

    /// As [`Cache::stage`], for a stage that is run for several things: `shown` says for which.
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
        // It may have waited for another build, and then worked for long: what it read need not be what the key says.
        key.check().with_context(|| format!("stage {}", stage.name))?;
        write_out(&result).with_context(|| format!("writing the result of stage {} to the disk", stage.name))?;
        fs::rename(&result, &place).with_context(|| format!("keeping the result of stage {}", stage.name))?;
        touch(&place);
        self.keep(&place)?;
        let old = self.prune(&directory, stage.keep);
        // Others need not wait until gigabytes are removed.
        drop(lock);
        drop(old);
        running.done();
        Ok(place)
    }

    /// Holds a result as long as this cache is there.
    fn keep(&self, place: &Path) -> Result<()> {
        let lock = File::open(place).with_context(|| format!("locking {}", place.display()))?;
        // Who removes results holds the stage's lock, and so do we.
        lock.lock_shared().with_context(|| format!("locking {}", place.display()))?;
        self.keep_in_use(lock);
        Ok(())
    }

    fn keep_in_use(&self, lock: File) {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    }

    /// Puts a result, or an entry of another place, out of the way, unless it is in use. The caller holds the lock of its
    /// directory, if that has one, and lets go of it before the value is dropped: only then it is removed, which can take
    /// long. A result that is cut off while it is removed is no result any more.
    fn discard(&self, result: &Path) -> Result<Discarded> {
        let removing = |error| anyhow::Error::new(error).context(format!("removing {}", result.display()));
        // Held until it is out of the way: whoever comes meanwhile waits, and finds that it is not there any more.
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
        // They may have been found through a link.
        Ok(Spared(used.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect()))
    }

    /// Puts the oldest results but for `keep` of them out of the way.
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

    /// A directory of temporary files is locked as long as its process lives.
    fn clear_abandoned(&self) {
        for entry in entries(&self.work_directory()).unwrap_or_default() {
            // Held until it is gone: whoever has made it just now waits for the lock, and then looks whether it is.
            let lock = File::open(entry.join(LOCK));
            let abandoned = match &lock {
                Ok(lock) => lock.try_lock().is_ok(),
                // Not even locked yet: it is being made, unless it is old.
                Err(_) => age(&entry) > Duration::from_secs(60),
            };
            if abandoned && let Err(error) = remove(&entry) {
                log::warn!("clearing {}: {error}", entry.display());
            }
        }
    }
}

/// Has everything below `directory` written to the disk, so that a power cut after the rename that puts it in place
/// leaves nothing half written under a valid key.
pub(crate) fn write_out(directory: &Path) -> Result<()> {
    let entries = walkdir::WalkDir::new(directory).contents_first(true);
    let entries = entries.into_iter().filter(|entry| !entry.as_ref().is_ok_and(|entry| entry.path_is_symlink()));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if entries.len() > FEW {
        // A call for each of ten thousand files takes minutes; one for the file system also waits for what others
        // write.
        return Ok(nix::unistd::syncfs(File::open(directory)?)?);
    }
    for entry in entries {
        let file = File::open(entry.path()).and_then(|file| file.sync_all());
        file.with_context(|| format!("writing {}", entry.path().display()))?;
    }
    Ok(())
}

/// What others than builds work with.
struct Spared(Vec<PathBuf>);

impl Spared {
    fn has(&self, result: &Path) -> bool {
        self.0.iter().any(|path| path.starts_with(result))
    }
}

/// The directory where sources are laid out for Cargo, held.
pub struct Sources {
    path: PathBuf,
    _lock: File,
}

impl Sources {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A directory for temporary files.
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

    /// Takes hold of a directory that was just made, unless another process has found it before it was locked, and removed
    /// it as one that was left behind.
    fn hold(directory: &Path, lock: File) -> io::Result<Option<Self>> {
        // Whoever removes it holds the lock until it is gone.
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

/// What became of an entry that was to be removed.
enum Discarded {
    /// It is out of the way.
    Out(PendingRemoval),
    /// It was not there any more: somebody else has removed it meanwhile.
    Vanished,
    /// Somebody works with it.
    InUse,
}

/// What is out of the way. It is removed when the value is dropped.
struct PendingRemoval(Work);

impl PendingRemoval {
    fn path(&self) -> PathBuf {
        self.0.path().join("removed")
    }

    /// The room that it takes, in bytes.
    fn bytes(&self) -> u64 {
        size_on_disk(&self.path())
    }
}

/// Locks for this process alone, and says so before it waits.
fn wait_for(lock: &File, say: impl FnOnce(&str)) -> io::Result<()> {
    match lock.try_lock() {
        Ok(()) => return Ok(()),
        Err(TryLockError::WouldBlock) => say("waiting for another build"),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    lock.lock()
}

/// Makes a directory in the home directory of the user who called sudo that user's, unless it is there.
fn lend_new(directory: &Path) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    caller::lend(directory)
}

/// Lets everybody pass a directory of root's: the compilers that root starts run as the user who called it, and a shell
/// that keeps all it makes from others may have made it.
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

/// Notes the use of a result or package: when it was last used is the time of its own directory or file.
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

/// The results in the directory of a stage, or the packages: what is named by a digest, and nothing else.
fn results(directory: &Path) -> Result<Vec<PathBuf>> {
    let is_digest = |name: &str| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_result = |entry: &PathBuf| entry.file_stem().and_then(|name| name.to_str()).is_some_and(is_digest);
    Ok(entries(directory)?.into_iter().filter(is_result).collect())
}

/// Whether it is a directory itself, and no link to one: that may be anywhere.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn lock_of(directory: &Path) -> Result<File> {
    let lock = File::create(directory.join(LOCK));
    lock.map_err(|error| failed(error, &format!("locking {}", directory.display())))
}

/// Says what failed in the cache, and what to do where builds with sudo have left results of root's.
fn failed(error: io::Error, what: &str) -> anyhow::Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let advice =
        if denied { ": it is another user's, as after a build with sudo: run the command with sudo" } else { "" };
    anyhow::Error::new(error).context(format!("{what}{advice}"))
}

/// The room that a file or a directory with all that is in it takes, in bytes; what cannot be read counts as nothing.
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
    fn what_is_made_of_other_sources_than_its_key_says_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let source = directory.path().join("source");
        fs::write(&source, "one").unwrap();
        let key = || Key::of(Stage::TOOLS).file("source", &source).unwrap().finish();
        let (first, silent) = (key(), Progress::silent());
        let make = |edited: &str, directory: &Path| {
            // By somebody else, while this waits.
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
    fn a_cache_behind_a_link_is_named_by_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        fs::create_dir(directory.path().join("place")).unwrap();
        std::os::unix::fs::symlink("place", &link).unwrap();
        let cache = Cache::at(&link.join("kaas")).unwrap();
        assert_eq!(cache.root(), directory.path().join("place/kaas").canonicalize().unwrap());
    }

    #[test]
    fn sources_are_laid_out_where_no_link_leads_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(&directory.path().join("cache")).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, cache.root().join("sources")).unwrap();
        let sources = cache.sources(&Progress::silent()).unwrap();
        fs::write(sources.path().join("file"), "").unwrap();
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        drop(sources);
        // What is laid out already stays: Cargo takes files that are written anew for changed.
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
    fn a_cache_of_root_is_said_with_what_to_do() {
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

    /// It is written out before it can be found.
    #[test]
    fn a_result_that_cannot_be_written_out_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let key = Key::of(Stage::TOOLS).finish();
        let result = cache.stage(&key, &Progress::silent(), |directory| {
            // Nobody can open it.
            std::os::unix::net::UnixListener::bind(directory.join("socket"))?;
            Ok(())
        });
        let error = format!("{:#}", result.unwrap_err());
        assert!(error.starts_with("writing the result of stage tools to the disk: writing "), "{error}");
        assert!(!directory.path().join("tools").join(key.as_str()).exists());
    }

    #[test]
    fn the_callers_compilers_get_to_what_a_shell_that_keeps_all_from_others_has_made() {
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
    fn results_of_few_and_of_many_files_are_written_out_and_links_to_nowhere_are_no_hindrance() {
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
    fn who_waits_for_another_build_says_so_and_who_does_not_is_silent() {
        let directory = tempfile::tempdir().unwrap();
        let open = || lock_of(directory.path()).unwrap();
        let held = open();
        wait_for(&held, |line| panic!("{line}")).unwrap();
        let mut said = Vec::new();
        // It ends as soon as it is said: nothing else would end the wait.
        wait_for(&open(), |line| {
            said.push(line.to_owned());
            drop(held);
        })
        .unwrap();
        assert_eq!(said, ["waiting for another build"]);
    }

    #[test]
    fn what_is_put_out_of_the_way_is_there_until_nobody_is_kept_waiting() {
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
    fn old_results_give_way() {
        let directory = tempfile::tempdir().unwrap();
        let mut made = 0;
        let mut build_one = |text: &str, cache: &Cache| {
            let place = build(cache, text, &mut made);
            // Ages differ by more than the clock's grain.
            results(&directory.path().join("tools")).unwrap().iter().for_each(|result| make_older(result));
            place
        };
        let places: Vec<_> =
            ["a", "b", "c"].iter().map(|text| build_one(text, &Cache::at(directory.path()).unwrap())).collect();
        let there = || places.iter().map(|place| place.exists()).collect::<Vec<_>>();
        assert_eq!(there(), [false, true, true]);

        // A build that runs uses the older of the two that are left.
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
        /// What of the cache a lab uses in the test of this thread.
        pub(super) static USED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    pub(super) fn used() -> Result<Vec<PathBuf>> {
        Ok(USED.with_borrow(Clone::clone))
    }

    #[test]
    fn what_labs_use_gives_way_to_nothing() {
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
    fn a_directory_that_was_taken_for_abandoned_before_it_was_locked_is_made_anew() {
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
        // Also when a third one has made it again.
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
    fn what_a_killed_build_left_is_cleared_and_a_living_one_is_spared() {
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
