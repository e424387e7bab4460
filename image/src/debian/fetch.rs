//! Brings the locked packages into the cache, each under its SHA-256: what is
//! there already needs no network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::lock::{Lock, Package};
use super::sources::{Settings, Sources};
use crate::cache::{Cache, file_digest, touch, write_out};
use crate::process::Tool;
use crate::progress::Progress;

/// How many files apt's downloader is asked for at a time.
const BATCH: usize = 40;

/// Where a package is in the cache once it was fetched.
pub fn cached(cache: &Cache, package: &Package) -> PathBuf {
    cache.packages().join(format!("{}.deb", package.sha256))
}

/// Fetches those packages of the lock that are not in the cache, through apt's own downloader, so that the host's
/// proxies and credentials apply. The mirrors are looked for only if something is missing.
///
/// # Errors
/// When a mirror does not have a package any more, or gives another file under its name.
pub fn fetch(lock: &Lock, settings: &Settings, cache: &Cache, progress: &Progress, renew: &str) -> Result<()> {
    // Before it is looked what is there: nobody cleans it away from then on.
    cache.use_packages()?;
    let wanted = lock.packages.iter().chain(&lock.kernel);
    let (there, missing): (Vec<_>, Vec<_>) = wanted.partition(|package| cached(cache, package).is_file());
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
            // Its time is the mirror's until then, and may be years ago.
            touch(&place);
            fs::rename(&place, cached(cache, package)).context("keeping a package in the cache")?;
        }
    }
    running.done();
    Ok(())
}

/// Downloads packages into `directory`, each under its SHA-256. What the first address of a package does not give is
/// looked for at the next one.
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
            place.is_file() && file_digest(&place).is_ok_and(|digest| digest == package.sha256)
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
    fn what_one_mirror_does_not_have_comes_from_the_next() {
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
