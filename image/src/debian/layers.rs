//! Layers of package sets: packages that several specs share are locked once, and the lock of each spec has its
//! additional packages only. Independent of what else specs share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use sha2::{Digest, Sha256};

use super::PackageSet;
use super::lock::Lock;
use crate::cache::hex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub file: PathBuf,
    pub set: PackageSet,
}

impl Layer {
    pub fn lock_path(&self) -> PathBuf {
        Lock::path_for(&self.file)
    }

    /// The digest of the request in its lock. It covers the packages of the layers below too.
    pub fn request(&self, below: Option<&Lock>) -> String {
        let own = self.set.request();
        match below {
            None => own,
            Some(below) => hex(&Sha256::digest(format!("{own}\n{}", below.text()))),
        }
    }

    /// Reads its own lock. `spec` is the spec to lock again if the lock does not fit.
    pub fn read_lock(&self, below: Option<&Lock>, spec: &Path) -> Result<Lock> {
        Lock::read(&self.lock_path(), &self.request(below), spec)
    }
}

/// All locked packages of a spec: those of all layers.
pub fn read_locks(layers: &[Layer], spec: &Path) -> Result<Option<Lock>> {
    layers.iter().try_fold(None, |below: Option<Lock>, layer| {
        let own = layer.read_lock(below.as_ref(), spec)?;
        Ok(Some(over(below, own)))
    })
}

/// Joins a layer's lock with the joined locks below it.
pub fn over(below: Option<Lock>, own: Lock) -> Lock {
    let Some(below) = below else { return own };
    let Lock { suite, request, mut indexes, mut packages, kernel } = own;
    indexes.extend(below.indexes.into_iter().filter(|index| !indexes.contains(index)).collect::<Vec<_>>());
    packages.extend(below.packages);
    packages.sort();
    Lock { suite, request, indexes, packages, kernel: kernel.or(below.kernel) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::debian::lock::{Index, Package, Pocket};

    fn package(name: &str) -> Package {
        let (name, version) = (name.to_owned(), "1".to_owned());
        Package {
            pocket: Pocket::Release,
            path: format!("pool/{name}"),
            size: 1,
            sha256: "ab".repeat(32),
            name,
            version,
        }
    }

    fn layer(directory: &Path, name: &str, packages: &[&str]) -> Layer {
        let packages = packages.iter().map(|name| (*name).to_owned()).collect();
        Layer { file: directory.join(name), set: PackageSet { suite: "trixie".to_owned(), packages, kernel: None } }
    }

    fn lock(layer: &Layer, below: Option<&Lock>, names: &[&str]) -> Lock {
        let packages: Vec<Package> = names.iter().map(|name| package(name)).collect();
        let index = Index { pocket: Pocket::Release, date: 10, sha256: "cd".repeat(32) };
        let kernel = below.is_none().then(|| package("linux"));
        let lock =
            Lock { suite: "trixie".to_owned(), request: layer.request(below), indexes: vec![index], packages, kernel };
        fs::write(layer.lock_path(), lock.text()).unwrap();
        lock
    }

    #[test]
    fn locks_of_layers_are_joined() {
        let directory = tempfile::tempdir().unwrap();
        let spec = directory.path().join("tenant.toml");
        let (common, tenant) =
            (layer(directory.path(), "common.toml", &["zlib"]), layer(directory.path(), "tenant.toml", &["nfs"]));
        let below = lock(&common, None, &["bash", "zlib"]);
        lock(&tenant, Some(&below), &["nfs"]);
        assert_eq!(read_locks(&[], &spec).unwrap(), None);
        let alone = read_locks(std::slice::from_ref(&common), &spec).unwrap().unwrap();
        assert_eq!((&alone, common.request(None)), (&below, common.set.request()));
        let all = read_locks(&[common, tenant], &spec).unwrap().unwrap();
        let names: Vec<&str> = all.packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!((names, all.kernel, all.indexes.len()), (vec!["bash", "nfs", "zlib"], below.kernel, 1));
    }

    #[test]
    fn another_lock_below_makes_a_lock_invalid() {
        let directory = tempfile::tempdir().unwrap();
        let spec = directory.path().join("tenant.toml");
        let layers =
            [layer(directory.path(), "common.toml", &["zlib"]), layer(directory.path(), "tenant.toml", &["nfs"])];
        let below = lock(&layers[0], None, &["zlib"]);
        lock(&layers[1], Some(&below), &["nfs"]);
        assert!(read_locks(&layers, &spec).is_ok());
        lock(&layers[0], None, &["bash", "zlib"]);
        let error = read_locks(&layers, &spec).unwrap_err().to_string();
        let (lock, spec) = (layers[1].lock_path(), spec.display());
        let expected =
            format!("{} was made for another list of packages: run `kaas-dev image lock {spec}`", lock.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}
