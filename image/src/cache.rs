//! Keeps the result of each stage under a key made of everything that went
//! into it. A result is whole or not there: it is made in a folder of its own
//! and put in place by one rename. Knows nothing of what the stages make.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::progress::Progress;

/// A stage of the build, as the cache sees it.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its name, also that of its folder.
    pub name: &'static str,
    /// How many results are kept; older ones go when a new one comes. Large
    /// results that every change makes anew are kept few.
    pub keep: usize,
}

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's cache: `kaas` in `$XDG_CACHE_HOME` or `~/.cache`. Clears away what builds left
    /// that were cut off.
    ///
    /// # Errors
    /// When neither variable is set, or the folder cannot be made.
    pub fn of_user() -> Result<Self> {
        let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
            Some(base) => PathBuf::from(base),
            None => {
                let home = std::env::var_os("HOME").filter(|value| !value.is_empty());
                PathBuf::from(home.context("finding the cache folder: neither XDG_CACHE_HOME nor HOME is set")?)
                    .join(".cache")
            }
        };
        Self::at(&base.join("kaas"))
    }

    /// A cache in this folder.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn at(root: &Path) -> Result<Self> {
        let cache = Self { root: root.to_owned() };
        for folder in [cache.work_folder(), cache.packages()] {
            fs::create_dir_all(&folder).with_context(|| format!("making the cache folder {}", folder.display()))?;
        }
        cache.clear_abandoned();
        Ok(cache)
    }

    /// Where the distribution's packages are kept, each under its SHA-256.
    pub fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    /// Where Cargo keeps what it builds for images.
    pub fn programs(&self) -> PathBuf {
        self.root.join("cargo")
    }

    /// What stands for a file in a key: its place in the cache, which has a key in it, or else its digest.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn name_of(&self, file: &Path) -> Result<String> {
        match file.strip_prefix(&self.root) {
            Ok(place) if !file.starts_with(self.programs()) && !file.starts_with(self.work_folder()) => {
                Ok(place.to_string_lossy().into_owned())
            }
            _ => file_digest(file),
        }
    }

    fn work_folder(&self) -> PathBuf {
        self.root.join("work")
    }

    /// A folder for temporary files that goes when the value is dropped, or,
    /// if this process is killed, when the next build starts.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn work(&self) -> Result<Work> {
        Work::new(&self.work_folder()).context("making a folder for temporary files in the cache")
    }

    /// The result of `stage` for `key`: as it stands, or made by `make` in the empty folder it is given.
    ///
    /// Builds that run at the same time wait for each other here, stage by stage.
    ///
    /// # Errors
    /// Those of `make`; nothing is then kept.
    pub fn stage(
        &self,
        stage: Stage,
        key: &Key,
        progress: &Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        self.stage_named(stage, stage.name, key, progress, make)
    }

    /// As [`Cache::stage`], for a stage that is run for several things: `shown` says for which.
    ///
    /// # Errors
    /// As [`Cache::stage`].
    pub fn stage_named(
        &self,
        stage: Stage,
        shown: &str,
        key: &Key,
        progress: &Progress,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let folder = self.root.join(stage.name);
        let place = folder.join(key.as_str());
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let lock = File::create(folder.join(".lock")).with_context(|| format!("locking {}", folder.display()))?;
        lock.lock().with_context(|| format!("locking {}", folder.display()))?;
        if place.is_dir() {
            touch(&place);
            progress.cached(shown);
            return Ok(place);
        }
        let running = progress.begin(shown);
        let work = self.work()?;
        let result = work.path().join("result");
        fs::create_dir(&result).with_context(|| format!("making {}", result.display()))?;
        make(&result).with_context(|| format!("stage {}", stage.name))?;
        fs::rename(&result, &place).with_context(|| format!("keeping the result of stage {}", stage.name))?;
        touch(&place);
        prune(&folder, stage.keep);
        running.done();
        Ok(place)
    }

    /// Removes every result that no build has used for `unused`. Packages go by the same rule.
    /// Returns how many went.
    ///
    /// # Errors
    /// When the cache cannot be read, or something in it cannot be removed.
    pub fn clean(&self, unused: Duration) -> Result<usize> {
        let mut removed = 0;
        for folder in entries(&self.root)? {
            if folder == self.work_folder() || folder == self.programs() || !folder.is_dir() {
                continue;
            }
            let Ok(lock) = File::create(folder.join(".lock")) else { continue };
            lock.lock().with_context(|| format!("locking {}", folder.display()))?;
            for entry in entries(&folder)? {
                let hidden = entry.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                if !hidden && age(&entry) >= unused {
                    remove(&entry).with_context(|| format!("removing {}", entry.display()))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// A folder of temporary files is locked as long as its process lives.
    fn clear_abandoned(&self) {
        for entry in entries(&self.work_folder()).unwrap_or_default() {
            let abandoned = match File::open(entry.join(".lock")) {
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

/// A folder for temporary files.
pub struct Work {
    folder: PathBuf,
    _lock: File,
}

impl Work {
    fn new(parent: &Path) -> io::Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = parent.join(format!("{}-{count}", std::process::id()));
        fs::create_dir(&folder)?;
        let lock = File::create(folder.join(".lock"))?;
        lock.lock()?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            log::warn!("clearing {}: {error}", self.folder.display());
        }
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut entries = read.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// When a result was last used is the time of its own folder or file.
fn touch(path: &Path) {
    let touched = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        log::debug!("noting the use of {}: {error}", path.display());
    }
}

fn age(path: &Path) -> Duration {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.ok().and_then(|time| time.elapsed().ok()).unwrap_or_default()
}

fn prune(folder: &Path, keep: usize) {
    let mut results: Vec<_> = entries(folder).unwrap_or_default().into_iter().filter(|entry| entry.is_dir()).collect();
    results.sort_by_key(|result| age(result));
    for old in results.into_iter().skip(keep.max(1)) {
        if let Err(error) = remove(&old) {
            log::warn!("removing the old result {}: {error}", old.display());
        }
    }
}

/// The key of a result: a digest of everything that went into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Begins a key.
    pub fn of(recipe: &str) -> KeyBuilder {
        let builder = KeyBuilder(Sha256::new());
        builder.text("recipe", recipe)
    }

    /// The digest in hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A key being made. Every part is named and delimited, so that no two lists of parts give the same key.
pub struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// Adds a text.
    pub fn text(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut digest = self.0;
        for part in [name.as_bytes(), value] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest)
    }

    /// Adds the source of a module that the stage shares with others and that shapes its result.
    pub fn recipe(self, source: &str) -> Self {
        self.text("recipe", source)
    }

    /// Adds the key of a stage that this one builds on.
    pub fn key(self, name: &str, key: &Key) -> Self {
        self.text(name, &key.0)
    }

    /// Adds a file by its content.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(self, name: &str, path: &Path) -> Result<Self> {
        let digest = file_digest(path)?;
        Ok(self.text(name, digest))
    }

    /// Adds a folder: the relative path, kind, executable bit and content of everything in it.
    ///
    /// # Errors
    /// When something in it cannot be read.
    pub fn folder(mut self, name: &str, path: &Path) -> Result<Self> {
        for entry in walkdir::WalkDir::new(path).sort_by_file_name() {
            let entry = entry.with_context(|| format!("reading {}", path.display()))?;
            let relative = entry.path().strip_prefix(path)?.to_string_lossy().into_owned();
            let kind = entry.file_type();
            self = if kind.is_symlink() {
                let target = fs::read_link(entry.path()).with_context(|| format!("reading {}", path.display()))?;
                let link = self.text(name, format!("link {relative} {}", target.display()));
                // A file that another folder lends counts by its content.
                let lent = target.starts_with("..") && entry.path().is_file();
                if lent { link.file(name, entry.path())? } else { link }
            } else if kind.is_file() {
                self.text(name, format!("file {relative} {}", is_executable(entry.path())?)).file(name, entry.path())?
            } else {
                self.text(name, format!("folder {relative}"))
            };
        }
        Ok(self)
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(hex(&self.0.finalize()))
    }
}

/// Whether a file is executable by its owner: the one mode bit that git keeps too.
pub fn is_executable(path: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o100 != 0)
}

/// The SHA-256 of a file in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub fn file_digest(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("reading {}", path.display()))?;
        if count == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&buffer[..count]);
    }
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    const STAGE: Stage = Stage { name: "stage", keep: 2 };

    fn build(cache: &Cache, text: &str, made: &mut usize) -> PathBuf {
        let key = Key::of("test").text("input", text).finish();
        cache
            .stage(STAGE, &key, &Progress::silent(), |folder| {
                *made += 1;
                Ok(fs::write(folder.join("out"), text)?)
            })
            .unwrap()
    }

    #[test]
    fn a_result_is_made_once_for_each_key() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let mut made = 0;
        let first = build(&cache, "a", &mut made);
        assert_eq!(build(&cache, "a", &mut made), first);
        assert_eq!(made, 1);
        let second = build(&cache, "b", &mut made);
        assert_ne!(first, second);
        assert_eq!((made, fs::read_to_string(second.join("out")).unwrap().as_str()), (2, "b"));
    }

    #[test]
    fn a_failed_stage_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let key = Key::of("test").finish();
        let result = cache.stage(STAGE, &key, &Progress::silent(), |folder| {
            fs::write(folder.join("half"), "")?;
            bail!("the tool failed")
        });
        assert_eq!(format!("{:#}", result.unwrap_err()), "stage stage: the tool failed");
        assert!(!folder.path().join("stage").join(key.as_str()).exists());
        assert_eq!(entries(&cache.work_folder()).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn old_results_give_way() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let mut made = 0;
        let places: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|text| {
                let place = build(&cache, text, &mut made);
                // Ages differ by more than the clock's grain.
                let hour = Duration::from_secs(3600);
                for entry in entries(&folder.path().join("stage")).unwrap().iter().filter(|entry| entry.is_dir()) {
                    let older = fs::metadata(entry).unwrap().modified().unwrap() - hour;
                    File::open(entry).unwrap().set_modified(older).unwrap();
                }
                place
            })
            .collect();
        assert_eq!(places.iter().map(|place| place.exists()).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn what_a_killed_build_left_is_cleared_and_a_living_one_is_spared() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let dead = cache.work_folder().join("1-0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(".lock"), "").unwrap();
        let living = cache.work().unwrap();
        Cache::at(folder.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists());
    }

    #[test]
    fn keys_keep_their_parts_apart() {
        let one = Key::of("r").text("a", "bc").finish();
        let other = Key::of("r").text("ab", "c").finish();
        assert_ne!(one, other);
    }

    #[test]
    fn a_folder_counts_by_names_contents_and_executable_bits() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("folder");
        fs::create_dir(&folder).unwrap();
        let key = || Key::of("r").folder("f", &folder).unwrap().finish();
        fs::write(folder.join("a"), "1").unwrap();
        let first = key();
        fs::write(folder.join("a"), "2").unwrap();
        let changed = key();
        fs::rename(folder.join("a"), folder.join("b")).unwrap();
        let renamed = key();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(folder.join("b"), fs::Permissions::from_mode(0o755)).unwrap();
        let executable = key();
        std::os::unix::fs::symlink("../lent", folder.join("c")).unwrap();
        fs::write(above.path().join("lent"), "1").unwrap();
        let linked = key();
        fs::write(above.path().join("lent"), "2").unwrap();
        let lends_another = key();
        let all = [&first, &changed, &renamed, &executable, &linked, &lends_another];
        assert!((0..6).all(|i| (0..i).all(|j| all[i] != all[j])));
    }
}
