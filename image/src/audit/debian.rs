//! Debian's locked packages against the archive as it is now. A newer version in the release's own suites is a finding.
//! Debian's security tracker is not part of the archive. A CVE that the changelog of unstable's package names, and that of
//! the locked one does not, is a hint.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

use super::{Report, Row};
use crate::cache::Cache;
use crate::debian::fetch;
use crate::debian::lock::{Lock, Package, Pocket};
use crate::debian::resolve::{Archive, is_older};
use crate::debian::sources::{Settings, Sources};
use crate::process::Tool;
use crate::progress::Progress;

/// The suite that gets fixes first.
const UNSTABLE: &str = "sid";

/// Adds rows for the packages of locks, and for the kernel that a metapackage names. The kernel is compared with the release
/// alone: the changelog of unstable's kernel is that of another branch.
pub fn check(
    locks: &[Lock],
    kernel: Option<&str>,
    settings: &Settings,
    cache: &Cache,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    let first = locks.first().context("there is no lock")?;
    let sources = Sources::find(settings, Path::new("/"))?;
    let release = Archive::open(&first.suite, &Pocket::ALL, &sources, cache, progress)?;
    let unstable = Archive::open(UNSTABLE, &[Pocket::Release], &sources, cache, progress)?;
    for (locked, name) in locks.iter().filter_map(|lock| lock.kernel.as_ref()).zip(kernel) {
        report.rows.extend(newer_kernel(locked, &release.kernel(name)?)?);
    }
    let all = locks.iter().flat_map(|lock| &lock.packages);
    let packages: BTreeMap<&str, &Package> = all.map(|package| (package.name.as_str(), package)).collect();
    let mut by_source: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for (name, package) in &packages {
        let Some((own, source)) = release.newest(name)? else {
            report.unchecked.push(format!("debian/{name}: {} no longer has the package", first.suite));
            continue;
        };
        if is_older(&package.version, &own.version)? {
            let id = format!("{}-{name}-{}", own.pocket.suite(&first.suite), own.version);
            report.rows.push(row(source, package, id, "run `kaas-dev image lock`", own));
        }
        by_source.entry(source).or_default().push(package);
    }
    let running = progress.begin("changelogs of unstable");
    // All packages of a source have the same changelog. Some leave it to another package, so smaller ones come first.
    let changelog = |suite: &str, packages: &[&Package]| -> Result<Option<BTreeSet<String>>> {
        let mut packages = packages.to_vec();
        packages.sort_by_key(|package| package.size);
        for package in packages {
            let lock = Lock { suite: suite.to_owned(), packages: vec![package.clone()], kernel: None, ..first.clone() };
            fetch::fetch(&lock, settings, cache, progress, "run `kaas-dev image lock`")?;
            if let Some(named) = named_by_changelog(package, cache, progress)? {
                return Ok(Some(named));
            }
        }
        Ok(None)
    };
    for (source, locked) in by_source {
        let (own, others) = (locked[0], unstable.of_source(source)?);
        let Some(other) = others.first() else {
            report.unchecked.push(format!("debian/{source}: {UNSTABLE} does not have this source"));
            continue;
        };
        if !is_older(&own.version, &other.version)? {
            continue;
        }
        let Some(fixed) = changelog(UNSTABLE, &others)? else {
            report.unchecked.push(format!("debian/{source}: no package of {UNSTABLE} has a changelog"));
            continue;
        };
        for id in fixed.difference(&changelog(&first.suite, &locked)?.unwrap_or_default()) {
            report.rows.push(row(source, own, id.clone(), "named by the changelog of unstable", other));
        }
    }
    running.done();
    report.checked.push(format!("the kernel against {}", first.suite));
    report.checked.push(format!("{} packages of Debian against {} and {UNSTABLE}", packages.len(), first.suite));
    Ok(())
}

fn newer_kernel(locked: &Package, newest: &Package) -> Result<Option<Row>> {
    let id = format!("linux-{}", newest.version);
    let row = || row("linux", locked, id, "run `kaas-dev image lock`", newest);
    Ok(is_older(&locked.version, &newest.version)?.then(row))
}

fn row(source: &str, package: &Package, id: String, text: &str, fixed: &Package) -> Row {
    Row {
        component: format!("debian/{source}"),
        id,
        part: format!("{} {}", package.name, package.version),
        fixed: Some(fixed.version.clone()),
        text: text.to_owned(),
        ..Row::default()
    }
}

/// The CVEs that the changelog in a package file names, if it has one.
fn named_by_changelog(package: &Package, cache: &Cache, progress: &Progress) -> Result<Option<BTreeSet<String>>> {
    let work = cache.work()?;
    let files = work.path().join("files");
    let file = fetch::cached(cache, package);
    Tool::on_host("dpkg-deb").arg("--extract").arg(file).arg(&files).run(progress)?;
    let documents = files.join("usr/share/doc").join(&package.name);
    // Packages that are Debian's own have the second one alone.
    let names = ["changelog.Debian.gz", "changelog.gz"].map(|name| documents.join(name));
    let Some(path) = names.iter().find(|path| path.is_file()) else { return Ok(None) };
    let mut text = Vec::new();
    let file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    GzDecoder::new(file).read_to_end(&mut text).with_context(|| format!("reading {}", path.display()))?;
    Ok(Some(cves(&String::from_utf8_lossy(&text))))
}

fn cves(text: &str) -> BTreeSet<String> {
    let numbers = text.split("CVE-").skip(1).filter_map(|rest| {
        let (year, rest) = rest.split_once('-')?;
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (year.len() == 4 && number.len() >= 4).then(|| format!("CVE-{year}-{number}"))
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_kernel_under_another_name_is_found() {
        let kernel = |version: &str| Package {
            name: format!("linux-image-{version}-cloud-amd64"),
            version: format!("{version}-1"),
            pocket: Pocket::Security,
            path: String::new(),
            size: 0,
            sha256: String::new(),
        };
        let row = newer_kernel(&kernel("6.12.118"), &kernel("6.12.119")).unwrap().unwrap();
        assert_eq!((row.component.as_str(), row.fixed.as_deref()), ("debian/linux", Some("6.12.119-1")));
        assert_eq!(newer_kernel(&kernel("6.12.118"), &kernel("6.12.118")).unwrap(), None);
    }

    #[test]
    fn cves_of_a_changelog_are_read() {
        let text =
            "runc (1.3.3+ds1-1) unstable; urgency=high\n\n  * Fix (CVE-2025-31133), CVE-2025-52565.\n  * CVE-2024-1\n";
        assert_eq!(cves(text).into_iter().collect::<Vec<_>>(), ["CVE-2025-31133", "CVE-2025-52565"]);
    }
}
