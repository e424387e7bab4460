//! The lock file of a package set: the exact packages, by version and digest, and the state of the archive that they
//! are from. Independent of the archive's mirrors.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// A part of the archive with a separate place on mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pocket {
    Release,
    /// Updates between point releases.
    Updates,
    Security,
}

impl Pocket {
    pub const ALL: [Pocket; 3] = [Pocket::Release, Pocket::Updates, Pocket::Security];

    /// The name of the pocket's suite, such as `trixie-security`.
    pub fn suite(self, release: &str) -> String {
        match self {
            Pocket::Release => release.to_owned(),
            Pocket::Updates => format!("{release}-updates"),
            Pocket::Security => format!("{release}-security"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub pocket: Pocket,
    /// Path below the pocket's place on a mirror.
    pub path: String,
    /// Size of the package file in bytes.
    pub size: u64,
    /// SHA-256 of the package file in hexadecimal.
    pub sha256: String,
}

/// A signed index of the archive when the lock was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    pub pocket: Pocket,
    /// The date in the index, in seconds since 1970.
    pub date: u64,
    /// SHA-256 of the signed file in hexadecimal.
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Debian's release, by code name.
    pub suite: String,
    /// SHA-256 of the package set's request. It shows whether the lock fits its spec.
    pub request: String,
    pub indexes: Vec<Index>,
    pub packages: Vec<Package>,
    /// The kernel's package, which is unpacked but not installed.
    #[serde(default)]
    pub kernel: Option<Package>,
}

impl Lock {
    /// Path of a spec's lock, next to the spec.
    pub fn path_for(spec: &Path) -> PathBuf {
        spec.with_extension("lock")
    }

    /// Reads the lock of a package set. An error, also for another `request`, names `kaas-dev image lock` as the remedy.
    pub fn read(path: &Path, request: &str, spec: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("reading {}: {}", path.display(), advice(spec)))?;
        Self::parse(&text, path, request, spec)
    }

    /// As [`Lock::read`], from its text.
    pub fn parse(text: &str, path: &Path, request: &str, spec: &Path) -> Result<Self> {
        let lock: Self = toml::from_str(text).with_context(|| format!("{}: {}", path.display(), advice(spec)))?;
        if lock.request != request {
            bail!("{} was made for another list of packages: {}", path.display(), advice(spec));
        }
        Ok(lock)
    }

    /// Reads the lock to renew, whatever its request. `None` if it does not exist.
    pub fn read_former(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        let understood = toml::from_str(&text);
        let lock = understood.with_context(|| {
            format!("understanding {}, which a new lock is compared with: remove it to do without", path.display())
        })?;
        Ok(Some(lock))
    }

    /// Refuses a renewed lock from an index of the archive that is older than this lock's. Signatures of old indexes
    /// stay valid, so an attacker could withhold fixes with them. `path` is this lock's.
    pub fn refuse_older(&self, renewed: &Self, path: &Path) -> Result<()> {
        if self.suite != renewed.suite {
            return Ok(());
        }
        for former in &self.indexes {
            let index = renewed.indexes.iter().find(|index| index.pocket == former.pocket);
            if let Some(index) = index.filter(|index| index.date < former.date) {
                bail!(
                    "the mirror's index of {} is of {}, but {place} was made from one of {}: the mirror is behind, or \
                     gives out an old index. Try again later or with another mirror; to take \
                     the old one, remove {place} first",
                    former.pocket.suite(&self.suite),
                    time(index.date),
                    time(former.date),
                    place = path.display(),
                );
            }
        }
        Ok(())
    }

    /// The text of the file, with one line for each package, for readable diffs.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# Written by `kaas-dev image lock`. The build takes exactly these packages; run the command again for newer ones.\n",
        );
        let _ = writeln!(text, "suite = {:?}\nrequest = {:?}\n\nindexes = [", self.suite, self.request);
        for index in &self.indexes {
            let pocket = pocket_name(index.pocket);
            let _ =
                writeln!(text, "    {{ pocket = {pocket:?}, date = {}, sha256 = {:?} }},", index.date, index.sha256);
        }
        text.push_str("]\n\n");
        if let Some(kernel) = &self.kernel {
            let _ = writeln!(text, "kernel = {}\n", line(kernel));
        }
        text.push_str("packages = [\n");
        for package in &self.packages {
            let _ = writeln!(text, "    {},", line(package));
        }
        text.push_str("]\n");
        text
    }

    /// The newest date of the archive's indexes, in seconds since 1970. Builds use it as their time.
    pub fn epoch(&self) -> u64 {
        self.indexes.iter().map(|index| index.date).max().unwrap_or(0)
    }
}

/// A date of the archive for messages.
fn time(seconds: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}

fn line(package: &Package) -> String {
    let Package { name, version, pocket, path, size, sha256 } = package;
    let pocket = pocket_name(*pocket);
    format!(
        "{{ name = {name:?}, version = {version:?}, pocket = {pocket:?}, path = {path:?}, size = {size}, sha256 = {sha256:?} }}"
    )
}

fn pocket_name(pocket: Pocket) -> &'static str {
    match pocket {
        Pocket::Release => "release",
        Pocket::Updates => "updates",
        Pocket::Security => "security",
    }
}

pub fn advice(spec: &Path) -> String {
    format!("run `kaas-dev image lock {}`, with sudo if builds run with it", spec.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        let package = |name: &str| Package {
            name: name.to_owned(),
            version: "1:2.0+x~y-1".to_owned(),
            pocket: Pocket::Security,
            path: format!("pool/{name}_2.deb"),
            size: 7,
            sha256: "ab".repeat(32),
        };
        Lock {
            suite: "trixie".to_owned(),
            request: "r1".to_owned(),
            indexes: vec![
                Index { pocket: Pocket::Release, date: 10, sha256: "cd".repeat(32) },
                Index { pocket: Pocket::Security, date: 30, sha256: "ef".repeat(32) },
            ],
            packages: vec![package("bash"), package("zstd")],
            kernel: Some(package("linux-image")),
        }
    }

    #[test]
    fn a_lock_reads_back_unchanged() {
        let text = lock().text();
        let read = Lock::parse(&text, Path::new("s.lock"), "r1", Path::new("s.toml")).unwrap();
        assert_eq!(read, lock());
        assert_eq!(read.epoch(), 30);
    }

    #[test]
    fn an_index_older_than_the_locks_is_refused() {
        let path = Path::new("s.lock");
        let mut renewed = lock();
        lock().refuse_older(&renewed, path).unwrap();
        renewed.indexes[0].date = 86_400;
        lock().refuse_older(&renewed, path).unwrap();
        renewed.indexes[1].date = 29;
        let error = lock().refuse_older(&renewed, path).unwrap_err().to_string();
        let expected = "the mirror's index of trixie-security is of 1970-01-01T00:00:29Z, but s.lock was made from one of \
                        1970-01-01T00:00:30Z: the mirror is behind";
        assert!(error.starts_with(expected) && error.ends_with("remove s.lock first"), "{error}");
        // Another release has other dates.
        renewed.suite = "forky".to_owned();
        lock().refuse_older(&renewed, path).unwrap();
    }

    #[test]
    fn former_locks_may_be_missing_or_different() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.lock");
        assert_eq!(Lock::read_former(&path).unwrap(), None);
        fs::write(&path, lock().text()).unwrap();
        assert_eq!(Lock::read_former(&path).unwrap(), Some(lock()));
        fs::write(&path, "suite = 3").unwrap();
        let error = Lock::read_former(&path).unwrap_err().to_string();
        assert!(error.ends_with("remove it to do without"), "{error}");
    }

    #[test]
    fn a_lock_for_another_list_names_the_remedy() {
        let error = Lock::parse(&lock().text(), Path::new("s.lock"), "r2", Path::new("s.toml")).unwrap_err();
        let expected = "s.lock was made for another list of packages: run `kaas-dev image lock s.toml`, with sudo if builds run with it";
        assert_eq!(error.to_string(), expected);
    }
}
