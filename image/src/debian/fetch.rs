//! Brings the locked packages into the cache, each under its SHA-256: what is
//! there already needs no network.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

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
        let mut tool = Tool::on_host("/usr/lib/apt/apt-helper").args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Retries=3",
            "download-file",
        ]);
        for package in batch {
            let uri = format!("{}/{}", sources.mirror(package.pocket).trim_end_matches('/'), package.path);
            let place = work.path().join(&package.sha256);
            tool = tool.arg(uri).arg(place).arg(format!("SHA256:{}", package.sha256));
        }
        tool.run(progress).with_context(|| {
            format!("fetching locked packages, of which the archive may no longer have some: {renew}")
        })?;
        for package in batch {
            if file_digest(&work.path().join(&package.sha256))? != package.sha256 {
                bail!("the mirror gave another file for {} {}: {renew}", package.name, package.version);
            }
        }
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
