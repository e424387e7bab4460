//! Cleans the cache: removes results, packages and other entries that no build has used for a time. Knows their names
//! and locks only. All other files stay.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::compiled::GO;
use super::{
    Cache, Discarded, PACKAGES, PendingRemoval, Spared, Stage, age, entries, failed, is_directory, lock_of, results,
};

/// Output of compilers: Cargo's for clones and for images, go's for components.
const COMPILED: [&str; 3] = ["target", "cargo", GO];
/// A new entry is locked within this time.
const MOMENT: Duration = Duration::from_secs(60);
/// Packages unused for this time are removed during builds.
const UNUSED: Duration = Duration::from_secs(60 * 24 * 3600);

/// A directory of the cache that stages do not fill. A process that uses an entry holds a lock on the entry's
/// directory (flock(2)).
struct Place {
    directory: &'static str,
    is_entry: fn(&str) -> bool,
    /// Whether an entry is useless when it is not locked. For other entries, the time of the last use is their
    /// modification time.
    temporary: bool,
}

const PLACES: [Place; 4] = [
    // Trees of commits that upgrades start from, and incomplete ones: `.ci/earlier`.
    Place { directory: "earlier", is_entry: is_commit, temporary: false },
    Place { directory: "earlier", is_entry: |name| name.starts_with(".work-"), temporary: true },
    // One for each version: `.ci/deny`.
    Place { directory: "cargo-deny", is_entry: is_version, temporary: false },
    // Trees of the machines of `make cold` and scenarios: `trixie-1234-AbCdEf`, by PID.
    Place { directory: "lab/bare", is_entry: is_machine, temporary: true },
];

fn is_commit(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_version(name: &str) -> bool {
    semver::Version::parse(name).is_ok()
}

fn is_machine(name: &str) -> bool {
    let process = name.split('-').nth(1).unwrap_or_default();
    name.split('-').count() == 3 && process.parse::<u32>().is_ok()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Number of removed results by stage, and of removed entries by directory.
    pub removed: Vec<(&'static str, usize)>,
    /// Their size on the disk, in bytes.
    pub bytes: u64,
    /// Stages and directories with old entries that are in use.
    pub in_use: Vec<&'static str>,
}

impl Cleaned {
    fn note(&mut self, name: &'static str, discarded: Discarded) -> Option<PendingRemoval> {
        let (is_gone, removed) = match discarded {
            Discarded::Out(removed) => (true, Some(removed)),
            Discarded::InUse => (false, None),
            // Another command has removed it, and reports it.
            Discarded::Vanished => return None,
        };
        let known = self.removed.iter_mut().find(|(known, _)| *known == name);
        match known {
            Some((_, count)) if is_gone => *count += 1,
            None if is_gone => self.removed.push((name, 1)),
            _ if self.in_use.contains(&name) => {}
            _ => self.in_use.push(name),
        }
        removed
    }
}

impl Cache {
    /// Removes every result, every package and every other growing entry that no build has used for `unused`. Entries
    /// in use stay, and so do all other files in the cache, such as Cargo's builds and the lab's unpacked OVAs. Fails
    /// if the entries in use are unknown.
    pub fn clean(&self, unused: Duration) -> Result<Cleaned> {
        let spared = self.spared()?;
        let mut cleaned = Cleaned::default();
        for name in Stage::ALL.iter().map(|stage| stage.name).chain([PACKAGES]) {
            let directory = self.root.join(name);
            if !directory.is_dir() {
                continue;
            }
            let lock = lock_of(&directory)?;
            let is_free = lock.try_lock().is_ok();
            let mut removed = Vec::new();
            // Under the lock, no other command begins to use a result or removes one.
            for result in results(&directory)?.iter().filter(|result| age(result) >= unused) {
                let goes = if is_free && !spared.has(result) { self.discard(result)? } else { Discarded::InUse };
                removed.extend(cleaned.note(name, goes));
            }
            drop(lock);
            cleaned.bytes += removed.iter().map(PendingRemoval::bytes).sum::<u64>();
        }
        for place in &PLACES {
            self.clean_place(place, unused, &spared, &mut cleaned)?;
        }
        // A failed build may have left it.
        let compiled = self.root.join(GO);
        if is_directory(&compiled) && age(&compiled) >= unused {
            self.clean_compiled(GO, &mut cleaned)?;
        }
        Ok(cleaned)
    }

    fn clean_place(&self, place: &Place, unused: Duration, spared: &Spared, cleaned: &mut Cleaned) -> Result<()> {
        let directory = self.root.join(place.directory);
        if !directory.is_dir() {
            return Ok(());
        }
        let limit = if place.temporary { MOMENT } else { unused };
        for entry in entries(&directory)? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            if (place.is_entry)(&name) && is_directory(&entry) && age(&entry) >= limit {
                let goes = if spared.has(&entry) { Discarded::InUse } else { self.discard(&entry)? };
                cleaned.bytes += cleaned.note(place.directory, goes).map_or(0, |removed| removed.bytes());
            }
        }
        Ok(())
    }

    /// As [`Cache::clean`] of everything, and also removes the output of Cargo and go, unless they run.
    pub fn clean_all(&self) -> Result<Cleaned> {
        let mut cleaned = self.clean(Duration::ZERO)?;
        for name in COMPILED {
            if is_directory(&self.root.join(name)) {
                self.clean_compiled(name, &mut cleaned)?;
            }
        }
        Ok(cleaned)
    }

    /// Removes the output of go only, unless it runs. Built components stay.
    pub fn clean_compiled_by_go(&self) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        if is_directory(&self.root.join(GO)) {
            self.clean_compiled(GO, &mut cleaned)?;
        }
        Ok(cleaned)
    }

    fn clean_compiled(&self, name: &'static str, cleaned: &mut Cleaned) -> Result<()> {
        let lock = self.compiler_lock(name)?;
        let is_free = lock.try_lock().is_ok();
        let goes = if is_free { self.discard(&self.root.join(name))? } else { Discarded::InUse };
        drop(lock);
        cleaned.bytes += cleaned.note(name, goes).map_or(0, |removed| removed.bytes());
        Ok(())
    }

    /// The lock of a compiler's directory. `.ci/cargo` and builds of components lock a file next to the directory,
    /// the build of the agent locks its sources.
    fn compiler_lock(&self, name: &str) -> Result<File> {
        if name == "cargo" {
            let sources = self.root.join("sources");
            fs::create_dir_all(&sources).map_err(|error| failed(error, &format!("making {}", sources.display())))?;
            return lock_of(&sources);
        }
        self.lock_beside(name)
    }

    /// Removes packages that no build has used for two months, except those that are `wanted`. Does nothing while
    /// another command uses packages.
    pub fn prune_packages(&self, wanted: impl Fn(&Path) -> bool) -> Result<()> {
        let directory = self.packages();
        let lock = lock_of(&directory)?;
        if lock.try_lock().is_ok() {
            for package in results(&directory)?.into_iter().filter(|file| age(file) >= UNUSED && !wanted(file)) {
                match fs::remove_file(&package) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.with_context(|| format!("removing {}", package.display()))?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::tests::{USED, build, make_older, used};
    use super::*;

    #[test]
    fn clean_removes_only_stages_and_packages() {
        let directory = tempfile::tempdir().unwrap();
        let mut made = 0;
        let (old, new) = {
            let cache = Cache::at(directory.path()).unwrap();
            (build(&cache, "old", &mut made), build(&cache, "new", &mut made))
        };
        let digest = "0123456789abcdef".repeat(4);
        let write = |path: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, vec![1; 5000]).unwrap();
            path
        };
        let package = write(&format!("packages/{digest}.deb"));
        // Files of the lab and of Cargo, unknown files, and files of a stage without a digest.
        let foreign: Vec<_> = [
            &format!("lab/{digest}/disk.raw"),
            "target/debug/kaas",
            "cargo/appliance/kaas-agent",
            &format!("notes/{digest}"),
            "tools/notes.txt",
        ]
        .map(write)
        .to_vec();
        for place in foreign.iter().flat_map(|path| [path.as_path(), path.parent().unwrap()]).chain([&*old, &package]) {
            make_older(place);
        }

        let cleaned = Cache::at(directory.path()).unwrap().clean(Duration::from_secs(60)).unwrap();
        assert_eq!((cleaned.removed, cleaned.in_use), (vec![("tools", 1), ("packages", 1)], vec![]));
        assert!(cleaned.bytes >= 5000, "{}", cleaned.bytes);
        assert!(!old.exists() && !package.exists() && new.exists());
        assert!(foreign.iter().all(|path| path.exists()));

        let cleaned = Cache::at(directory.path()).unwrap().clean(Duration::ZERO).unwrap();
        assert_eq!(cleaned.removed, [("tools", 1)]);
        assert!(!new.exists() && foreign.iter().all(|path| path.exists()));
    }

    #[test]
    fn clean_keeps_results_of_running_commands() {
        let directory = tempfile::tempdir().unwrap();
        let running = Cache::at(directory.path()).unwrap();
        let place = build(&running, "a", &mut 0);
        let package = running.packages().join("0123456789abcdef".repeat(4));
        fs::write(&package, "").unwrap();
        running.use_packages().unwrap();
        let clean = || Cache::at(directory.path()).unwrap().clean(Duration::ZERO).unwrap();
        assert_eq!(clean(), Cleaned { in_use: vec!["tools", "packages"], ..Cleaned::default() });
        assert!(place.exists() && package.exists());

        // A running stage without a result.
        drop(running);
        let lock = lock_of(&directory.path().join("tools")).unwrap();
        lock.lock().unwrap();
        assert_eq!(clean().in_use, ["tools"]);
        drop(lock);
        assert_eq!(clean().removed, [("tools", 1)]);
    }

    #[test]
    fn clean_keeps_results_that_labs_use() {
        let directory = tempfile::tempdir().unwrap();
        let cache = || Cache::sparing(directory.path(), used).unwrap();
        let place = build(&cache(), "a", &mut 0);
        fs::create_dir(place.join("root")).unwrap();
        std::os::unix::fs::symlink(&place, directory.path().join("link")).unwrap();
        USED.set(vec![directory.path().join("link/root"), PathBuf::from("/elsewhere")]);
        let cleaned = cache().clean(Duration::ZERO).unwrap();
        assert_eq!((cleaned.removed, cleaned.in_use), (vec![], vec!["tools"]));
        assert!(place.exists());
        USED.set(Vec::new());
        assert_eq!(cache().clean(Duration::ZERO).unwrap().removed, [("tools", 1)]);
    }

    #[test]
    fn a_result_that_vanished_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let gone = make(directory.path(), "lab/bare/trixie-7-abc");
        fs::remove_dir_all(&gone).unwrap();
        let goes = cache.discard(&gone).unwrap();
        assert!(matches!(goes, Discarded::Vanished));
        let mut cleaned = Cleaned::default();
        assert!(cleaned.note("lab/bare", goes).is_none());
        assert_eq!(cleaned, Cleaned::default());
    }

    /// Creates a directory with a file in the cache, one hour old.
    fn make(root: &Path, place: &str) -> PathBuf {
        let place = root.join(place);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("file"), vec![1; 5000]).unwrap();
        make_older(&place);
        place
    }

    #[test]
    fn old_entries_of_other_directories_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (one, other) = ("ab".repeat(20), "cd".repeat(20));
        let [one, other] = [one, other].map(|commit| make(root, &format!("earlier/{commit}")));
        let [dead, living] = [".work-a", ".work-b"].map(|work| make(root, &format!("earlier/{work}")));
        let [old, new] = ["0.20.1", "0.20.2"].map(|version| make(root, &format!("cargo-deny/{version}")));
        let [ended, running] = ["trixie-7-abc", "trixie-8-abc"].map(|name| make(root, &format!("lab/bare/{name}")));
        let foreign: Vec<_> = ["earlier/notes", "cargo-deny/target", "lab/bare/mine", "lab/labs/trixie-7-abc"]
            .into_iter()
            .chain(["target/debug", "cargo/appliance", "sources/workspace"])
            .map(|place| make(root, place))
            .collect();
        std::os::unix::fs::symlink(&foreign[0], root.join("lab/bare/trixie-9-abc")).unwrap();
        let held = [&other, &living, &new, &running].map(|place| File::open(place).unwrap());
        held.iter().for_each(|lock| lock.lock().unwrap());

        let cache = Cache::at(root).unwrap();
        let cleaned = cache.clean(Duration::from_secs(2 * 3600)).unwrap();
        // Unlocked temporary entries.
        assert_eq!(cleaned.removed, [("earlier", 1), ("lab/bare", 1)]);
        assert!(!dead.exists() && !ended.exists() && one.exists() && old.exists());
        let cleaned = cache.clean(Duration::ZERO).unwrap();
        assert_eq!(cleaned.removed, [("earlier", 1), ("cargo-deny", 1)]);
        assert_eq!(cleaned.in_use, ["earlier", "cargo-deny", "lab/bare"]);
        assert!(cleaned.bytes >= 10_000 && !one.exists() && !old.exists());
        assert!([other, living, new, running].iter().chain(&foreign).all(|place| place.exists()));
        // A new entry may not be locked yet.
        let made = root.join("lab/bare/trixie-10-abc");
        fs::create_dir(&made).unwrap();
        cache.clean(Duration::ZERO).unwrap();
        assert!(made.exists());
    }

    #[test]
    fn clean_all_removes_idle_compiler_output() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let place = build(&cache, "a", &mut 0);
        drop(cache);
        let [target, cargo, go] = ["target", "cargo", GO].map(|name| make(directory.path(), name));
        let cache = Cache::at(directory.path()).unwrap();
        let compiles = cache.lock_beside(GO).unwrap();
        compiles.lock_shared().unwrap();
        let clone = File::create(directory.path().join("target.lock")).unwrap();
        clone.lock().unwrap();
        let sources = cache.sources(&crate::progress::Progress::silent()).unwrap();
        let cleaned = cache.clean_all().unwrap();
        assert_eq!((cleaned.removed, cleaned.in_use), (vec![("tools", 1)], vec![GO, "target", "cargo"]));
        assert!(!place.exists() && target.exists() && cargo.exists() && go.exists());
        drop((clone, sources));
        assert_eq!(cache.clean_all().unwrap().removed, [("target", 1), ("cargo", 1)]);
        drop(compiles);
        assert_eq!(cache.clean_all().unwrap().removed, [(GO, 1)]);
        assert!(!target.exists() && !cargo.exists() && !go.exists() && directory.path().join("target.lock").exists());
        assert_eq!(cache.clean_all().unwrap(), Cleaned::default());
    }

    #[test]
    fn gos_output_is_removed_alone_or_when_old() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let [target, go] = ["target", GO].map(|name| make(directory.path(), name));
        // One hour old.
        assert_eq!(cache.clean(Duration::from_secs(2 * 3600)).unwrap(), Cleaned::default());
        let compiles = cache.lock_beside(GO).unwrap();
        compiles.lock_shared().unwrap();
        for clean in [cache.clean(Duration::from_secs(60)), cache.clean_compiled_by_go()] {
            assert_eq!(clean.unwrap(), Cleaned { in_use: vec![GO], ..Cleaned::default() });
        }
        drop(compiles);
        let cleaned = cache.clean(Duration::from_secs(60)).unwrap();
        assert_eq!(cleaned.removed, [(GO, 1)]);
        assert!(cleaned.bytes >= 5000 && !go.exists());
        make(directory.path(), GO);
        assert_eq!(cache.clean_compiled_by_go().unwrap().removed, [(GO, 1)]);
        assert_eq!(cache.clean_compiled_by_go().unwrap(), Cleaned::default());
        assert!(!go.exists() && target.exists());
    }

    #[test]
    fn unused_old_packages_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let [old, wanted, new] =
            ["a", "b", "c"].map(|digit| cache.packages().join(format!("{}.deb", digit.repeat(64))));
        for package in [&old, &wanted, &new] {
            fs::write(package, "").unwrap();
        }
        for package in [&old, &wanted] {
            let long_ago = std::time::SystemTime::now() - UNUSED - Duration::from_secs(1);
            File::open(package).unwrap().set_modified(long_ago).unwrap();
        }
        let other = Cache::at(directory.path()).unwrap();
        other.use_packages().unwrap();
        cache.prune_packages(|package| package == wanted).unwrap();
        assert!(old.exists(), "another command may use it");
        drop(other);
        cache.prune_packages(|package| package == wanted).unwrap();
        assert!(!old.exists() && wanted.exists() && new.exists());
    }
}
