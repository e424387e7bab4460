//! The differences between a renewed lock and the former one.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::lock::{Lock, Package};

/// The differences between two locks of a package set, each list sorted by name. The kernel counts as a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    pub added: Vec<PackageVersion>,
    pub removed: Vec<PackageVersion>,
    /// Packages with another version, or the same version with another content.
    pub changed: Vec<ChangedPackage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PackageVersion {
    pub name: String,
    pub version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedPackage {
    pub name: String,
    pub from: String,
    pub to: String,
}

impl Changes {
    /// The differences from `old` to `new`. Without a former lock, all packages are added.
    pub fn between(old: Option<&Lock>, new: &Lock) -> Self {
        let (old, new) = (old.map(packages).unwrap_or_default(), packages(new));
        let named =
            |package: &&Package| PackageVersion { name: package.name.clone(), version: package.version.clone() };
        let only = |these: &BTreeMap<&str, &Package>, others: &BTreeMap<&str, &Package>| {
            these.values().filter(|package| !others.contains_key(package.name.as_str())).map(named).collect()
        };
        let changed = new.iter().filter_map(|(name, new)| {
            let old = old.get(name).filter(|old| (&old.version, &old.sha256) != (&new.version, &new.sha256))?;
            Some(ChangedPackage { name: (*name).to_owned(), from: old.version.clone(), to: new.version.clone() })
        });
        Self { changed: changed.collect(), added: only(&new, &old), removed: only(&old, &new) }
    }
}

fn packages(lock: &Lock) -> BTreeMap<&str, &Package> {
    lock.packages.iter().chain(&lock.kernel).map(|package| (package.name.as_str(), package)).collect()
}

/// A line of counts, then one line for each package: `+` added, `-` removed, `~` changed.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, removed, changed } = self;
        write!(f, "{} added, {} removed, {} changed", added.len(), removed.len(), changed.len())?;
        for (sign, packages) in [('+', added), ('-', removed)] {
            for PackageVersion { name, version } in packages {
                write!(f, "\n  {sign} {name} {version}")?;
            }
        }
        for ChangedPackage { name, from, to } in changed {
            match from == to {
                true => write!(f, "\n  ~ {name} {from}: the same version with another content")?,
                false => write!(f, "\n  ~ {name} {from} -> {to}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::lock::Pocket;

    fn lock(packages: &[(&str, &str, &str)], kernel: (&str, &str, &str)) -> Lock {
        let package = |(name, version, sha256): (&str, &str, &str)| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            pocket: Pocket::Release,
            path: format!("pool/{name}.deb"),
            size: 1,
            sha256: sha256.to_owned(),
        };
        Lock {
            suite: "trixie".to_owned(),
            request: String::new(),
            indexes: Vec::new(),
            packages: packages.iter().copied().map(package).collect(),
            kernel: Some(package(kernel)),
        }
    }

    #[test]
    fn added_removed_and_changed_packages_are_listed() {
        let old = lock(
            &[("bash", "5.1", "a"), ("gone", "1", "b"), ("same", "1", "c"), ("zlib", "1.3", "d")],
            ("linux", "6.1", "e"),
        );
        let new = lock(
            &[("bash", "5.2", "f"), ("come", "2", "g"), ("same", "1", "c"), ("zlib", "1.3", "h")],
            ("linux", "6.2", "i"),
        );
        let changes = Changes::between(Some(&old), &new);
        let expected = "1 added, 1 removed, 3 changed\n  + come 2\n  - gone 1\n  ~ bash 5.1 -> 5.2\n  \
                        ~ linux 6.1 -> 6.2\n  ~ zlib 1.3: the same version with another content";
        assert_eq!(changes.to_string(), expected);
        assert_eq!(Changes::between(Some(&new), &new), Changes::default());
        assert_eq!(Changes::between(None, &new).added.len(), 5);
    }
}
