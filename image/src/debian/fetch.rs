//! Downloads the locked packages into the cache, each under its SHA-256. Packages in the cache need no network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::lock::{Lock, Package};
use super::sources::{Settings, Sources};
use crate::cache::{Cache, file_digest, touch, write_out};
use crate::process::Tool;
use crate::progress::Progress;

/// Number of files in one call of apt's downloader.
const BATCH: usize = 40;

pub fn cached(cache: &Cache, package: &Package) -> PathBuf {
    cache.packages().join(format!("{}.deb", package.sha256))
}

/// Downloads the packages of the lock that are missing in the cache or differ from the lock. The downloader of apt
/// uses the host's proxies and credentials. The mirrors are read only if a package is missing.
///
/// # Errors
/// When a mirror no longer has a package, or has another file under its name.
pub fn fetch(lock: &Lock, settings: &Settings, cache: &Cache, progress: &Progress, renew: &str) -> Result<()> {
    let wanted: BTreeMap<_, _> =
        lock.packages.iter().chain(&lock.kernel).map(|package| (cached(cache, package), package)).collect();
    cache.prune_packages(|file| wanted.contains_key(file))?;
    // Before the check: from then on, no other command removes packages.
    cache.use_packages()?;
    let (there, missing): (Vec<_>, Vec<_>) =
        wanted.values().copied().partition(|package| is_whole(&cached(cache, package), package));
    there.iter().for_each(|package| touch(&cached(cache, package)));
    if missing.is_empty() {
        return Ok(());
    }
    let sources = Sources::find(settings, std::path::Path::new("/"))?;
    let running = progress.begin("packages");
    let work = cache.work()?;
    for batch in missing.chunks(BATCH) {
        let addresses = |package: &Package| sources.addresses(package, &lock.suite);
        download(batch, &addresses, work.path(), progress).with_context(|| {
            format!("fetching locked packages, of which the archive may no longer have some: {renew}")
        })?;
        write_out(work.path()).context("writing the packages to the disk")?;
        for package in batch {
            let place = work.path().join(&package.sha256);
            // Its modification time is that of the mirror, perhaps years ago.
            touch(&place);
            fs::rename(&place, cached(cache, package)).context("keeping a package in the cache")?;
        }
    }
    running.done();
    Ok(())
}

/// Whether a file is the locked package. Later steps do not check it again.
fn is_whole(file: &Path, package: &Package) -> bool {
    match file_digest(file) {
        Ok(digest) if digest == package.sha256 => true,
        _ if !file.exists() => false,
        _ => {
            log::warn!(
                "{} is not {} {} as it was locked: fetching it again",
                file.display(),
                package.name,
                package.version
            );
            false
        }
    }
}

/// Downloads packages into `directory`, each under its SHA-256. If the first address of a package fails, the next one
/// is tried.
fn download(
    packages: &[&Package],
    addresses: &dyn Fn(&Package) -> Vec<String>,
    directory: &Path,
    progress: &Progress,
) -> Result<()> {
    let mut missing = packages.to_vec();
    let mut failed = None;
    for attempt in 0.. {
        let found: Vec<_> =
            missing.iter().filter_map(|package| Some((*package, addresses(package).get(attempt)?.clone()))).collect();
        if found.is_empty() {
            break;
        }
        let mut tool = Tool::on_host("/usr/lib/apt/apt-helper").args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Retries=3",
            "download-file",
        ]);
        for (package, address) in found {
            let place = directory.join(&package.sha256);
            tool = tool.arg(address).arg(place).arg(format!("SHA256:{}", package.sha256));
        }
        let result = tool.run(progress);
        let is_there = |package: &Package| {
            let place = directory.join(&package.sha256);
            file_digest(&place).is_ok_and(|digest| digest == package.sha256)
        };
        missing.retain(|package| !is_there(package));
        let Some(package) = missing.first() else { return Ok(()) };
        failed = result
            .err()
            .or(failed)
            .or_else(|| Some(anyhow!("the mirror gave another file for {} {}", package.name, package.version)));
    }
    let Some(package) = missing.first() else { return Ok(()) };
    let without = || anyhow!("no mirror in apt's list is for {} {}", package.name, package.version);
    Err(failed.unwrap_or_else(without))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::hex;
    use crate::debian::lock::Pocket;
    use sha2::{Digest, Sha256};

    #[test]
    fn changed_packages_in_the_cache_are_downloaded_again() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = directory.path().join("mirror");
        fs::create_dir(&mirror).unwrap();
        let keyring = directory.path().join("keyring");
        fs::write(&keyring, "").unwrap();
        let address = Some(format!("file:{}", mirror.display()));
        let settings = Settings { mirror: address.clone(), security_mirror: address, keyring: Some(keyring) };
        let package = |name: &str| {
            fs::write(mirror.join(name), name).unwrap();
            let sha256 = hex(&Sha256::digest(name));
            let (name, version, path) = (name.to_owned(), "1".to_owned(), name.to_owned());
            Package { name, version, pocket: Pocket::Release, path, size: 1, sha256 }
        };
        let (whole, changed) = (package("whole"), package("changed"));
        let lock = Lock {
            suite: "trixie".to_owned(),
            request: String::new(),
            indexes: Vec::new(),
            packages: vec![whole.clone()],
            kernel: Some(changed.clone()),
        };
        let cache = || Cache::at(&directory.path().join("cache")).unwrap();
        let fetch = || fetch(&lock, &settings, &cache(), &Progress::silent(), "lock it anew");
        fetch().unwrap();
        fs::remove_file(mirror.join("whole")).unwrap();
        for damaged in ["changer", "chan", ""] {
            fs::write(cached(&cache(), &changed), damaged).unwrap();
            fetch().unwrap();
            assert_eq!(fs::read_to_string(cached(&cache(), &changed)).unwrap(), "changed");
        }
        fs::remove_file(mirror.join("changed")).unwrap();
        fetch().unwrap();
        fs::write(cached(&cache(), &whole), "whale").unwrap();
        assert!(format!("{:#}", fetch().unwrap_err()).contains("lock it anew"));
    }

    #[test]
    fn missing_packages_come_from_the_next_mirror() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let places = |mirrors: &[&Path]| -> Vec<String> {
            mirrors.iter().map(|mirror| format!("copy:{}/a.deb", mirror.display())).collect()
        };
        let package = Package {
            name: "a".to_owned(),
            version: "1".to_owned(),
            pocket: Pocket::Release,
            path: "a.deb".to_owned(),
            size: 7,
            sha256: hex(&Sha256::digest(b"package")),
        };
        for (place, text) in [(&one, "changed"), (&two, "package")] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("a.deb"), text).unwrap();
        }
        let to = |name: &str| {
            let place = directory.path().join(name);
            fs::create_dir(&place).unwrap();
            place
        };
        let none = directory.path().join("none");
        let into = to("both");
        let addresses = |_: &Package| places(&[&none, &one, &two]);
        download(&[&package], &addresses, &into, &Progress::silent()).unwrap();
        assert_eq!(fs::read(into.join(&package.sha256)).unwrap(), b"package");

        let result = download(&[&package], &|_| places(&[&one]), &to("changed"), &Progress::silent());
        assert!(format!("{:#}", result.unwrap_err()).contains("apt-helper failed"));
        let result = download(&[&package], &|_| Vec::new(), &to("nowhere"), &Progress::silent());
        assert_eq!(result.unwrap_err().to_string(), "no mirror in apt's list is for a 1");
    }
}
