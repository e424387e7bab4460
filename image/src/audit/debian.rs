//! Debian's locked packages against the archive as it is now. A newer version in the release's own suites is a finding.
//! Debian's security tracker is not part of the archive, so a CVE that only unstable fixes is found in the changelog of
//! unstable's package.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

use super::{Advisory, Report, Row, Status};
use crate::cache::Cache;
use crate::debian::fetch;
use crate::debian::lock::{Lock, Package};
use crate::debian::resolve::Archive;
use crate::debian::sources::Sources;
use crate::process::Tool;
use crate::progress::Progress;

/// The suite that gets fixes first.
const UNSTABLE: &str = "sid";
/// A larger package is not fetched for its changelog.
const LARGEST: u64 = 5 << 20;

/// Adds rows for the packages of locks.
///
/// # Errors
/// When the archive cannot be reached.
pub fn check(
    locks: &[Lock],
    sources: &Sources,
    cache: &Cache,
    progress: &Progress,
    report: &mut Report,
) -> Result<BTreeSet<String>> {
    let suite = &locks.first().context("there is no lock")?.suite;
    let current = Archive::open(suite, sources, cache, progress)?;
    let unstable = Archive::rolling(UNSTABLE, sources, cache, progress)?;
    let packages: BTreeMap<&str, &Package> = locks
        .iter()
        .flat_map(|lock| lock.packages.iter().chain(&lock.kernel))
        .map(|package| (package.name.as_str(), package))
        .collect();
    let mut components = BTreeSet::new();
    let mut newer: BTreeMap<String, Vec<(&Package, &Package)>> = BTreeMap::new();
    for (name, package) in &packages {
        let newest = |archive: &'_ Archive| {
            archive
                .versions(name)
                .max_by(|a, b| compare(&a.0.version, &b.0.version))
                .map(|(package, source)| (package.clone(), source.to_owned()))
        };
        let Some((own, source)) = newest(&current) else {
            report.unchecked.push(format!("debian/{name} {}: {suite} no longer has the package", package.version));
            continue;
        };
        components.insert(format!("debian/{source}"));
        if compare(&package.version, &own.version) == Ordering::Less {
            let advisory = Advisory {
                id: format!("{}-{name}", own.pocket.suite(suite)),
                aliases: Vec::new(),
                summary: format!("{suite} has a newer {name}: run `kaas image lock`"),
            };
            report.rows.push(row(&source, package, advisory, &own.version));
        }
        let of_unstable = unstable.versions(name).max_by(|a, b| compare(&a.0.version, &b.0.version));
        match of_unstable {
            Some((other, _)) if compare(&package.version, &other.version) == Ordering::Less => {
                newer.entry(source).or_default().push((package, other))
            }
            Some(_) => {}
            None => report.unchecked.push(format!("debian/{source}: {UNSTABLE} has no {name}")),
        }
    }
    report.checked.push(format!(
        "{} packages of Debian against {suite} of {} and {UNSTABLE} of {}",
        packages.len(),
        current.date(),
        unstable.date()
    ));

    // One package a source is enough, the smallest: all have the same changelog.
    let mut chosen = Vec::new();
    for (source, mut pairs) in newer {
        pairs.sort_by_key(|(_, other)| other.size);
        match pairs.first() {
            Some((own, other)) if other.size <= LARGEST => chosen.push((source, *own, *other)),
            _ => {
                report.unchecked.push(format!("debian/{source}: the changelog of {UNSTABLE} is in too large a package"))
            }
        }
    }
    let running = progress.begin("changelogs of unstable");
    let others: Vec<&Package> = chosen.iter().map(|(_, _, other)| *other).collect();
    let own: Vec<&Package> = chosen.iter().map(|(_, own, _)| *own).collect();
    fetch::bring(&others, UNSTABLE, sources, cache, progress)?;
    fetch::bring(&own, suite, sources, cache, progress)?;
    for (source, own, other) in chosen {
        let changelog = |package: &Package| changelog(&fetch::cached(cache, package), &package.name, progress);
        let Some(text) = changelog(other)? else {
            report.unchecked.push(format!("debian/{source}: {} of {UNSTABLE} has no changelog", other.name));
            continue;
        };
        let known = fixed_since(&changelog(own)?.unwrap_or_default(), None);
        for id in fixed_since(&text, Some(&own.version)).difference(&known) {
            let summary = format!("named by the changelog of {UNSTABLE}");
            report.rows.push(row(
                &source,
                own,
                Advisory { id: id.clone(), aliases: Vec::new(), summary },
                &other.version,
            ));
        }
    }
    running.done();
    Ok(components)
}

fn row(source: &str, package: &Package, advisory: Advisory, fixed: &str) -> Row {
    let part = format!("{} {}", package.name, package.version);
    Row {
        component: format!("debian/{source}"),
        part,
        advisory,
        fixed: Some(fixed.to_owned()),
        status: Status::Unjudged,
        reason: None,
    }
}

/// The changelog in a package file.
fn changelog(file: &Path, name: &str, progress: &Progress) -> Result<Option<String>> {
    let archive = Tool::on_host("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(file)
        .output(progress)
        .with_context(|| format!("unpacking {name}"))?;
    let mut native = None;
    for entry in tar::Archive::new(archive.as_slice()).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        let is = |end: &str| path == format!("./usr/share/doc/{name}/{end}") && entry.header().entry_type().is_file();
        let (debian, plain) = (is("changelog.Debian.gz"), is("changelog.gz"));
        if debian || plain && native.is_none() {
            let mut bytes = Vec::new();
            GzDecoder::new(&mut entry)
                .read_to_end(&mut bytes)
                .with_context(|| format!("reading the changelog of {name}"))?;
            native = Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        if debian {
            break;
        }
    }
    Ok(native)
}

/// The CVEs that a changelog names in entries later than a version, or in all.
fn fixed_since(changelog: &str, version: Option<&str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut counts = true;
    for line in changelog.lines() {
        // `bash (5.3-1) unstable; urgency=medium` begins an entry (deb-changelog(5)).
        if let Some((_, rest)) = line.split_once(" (").filter(|_| !line.starts_with(' ')) {
            let of = rest.split(')').next().unwrap_or_default();
            counts = version.is_none_or(|version| compare(version, of) == Ordering::Less);
        }
        for part in line.split("CVE-").skip(1).filter(|_| counts) {
            let end = part.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(part.len());
            let id = part[..end].trim_end_matches('-');
            if id.split_once('-').is_some_and(|(year, number)| year.len() == 4 && number.len() >= 4) {
                found.insert(format!("CVE-{id}"));
            }
        }
    }
    found
}

/// Compares versions of Debian (deb-version(7)).
fn compare(a: &str, b: &str) -> Ordering {
    let parts = |version: &str| {
        let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
        let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
        (epoch.parse::<u64>().unwrap_or(0), upstream.to_owned(), revision.to_owned())
    };
    let (a, b) = (parts(a), parts(b));
    a.0.cmp(&b.0).then_with(|| compare_part(&a.1, &b.1)).then_with(|| compare_part(&a.2, &b.2))
}

fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    // A tilde sorts before the end, letters before all else.
    let weight = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_digit() => 0,
        Some(c) if c.is_ascii_alphabetic() => c as i32,
        Some(c) => c as i32 + 256,
    };
    fn take<'t>(text: &mut &'t str, digits: bool) -> &'t str {
        let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
        let (taken, rest) = text.split_at(end);
        *text = rest;
        taken
    }
    while !a.is_empty() || !b.is_empty() {
        let (words, other) = (take(&mut a, false), take(&mut b, false));
        for at in 0..words.len().max(other.len()) {
            let order = weight(words.chars().nth(at)).cmp(&weight(other.chars().nth(at)));
            if order != Ordering::Equal {
                return order;
            }
        }
        let number = |text: &str| text.parse::<u128>().unwrap_or(0);
        let order = number(take(&mut a, true)).cmp(&number(take(&mut b, true)));
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_debian_are_compared() {
        for (less, more) in [
            ("1.0-1", "1.0-2"),
            ("1.0~rc1-1", "1.0-1"),
            ("1.9-1", "1.10-1"),
            ("9-1", "1:1-1"),
            ("1.0-1", "1.0-1+deb13u1"),
            ("1.0-1+deb13u1", "1.0-1+deb13u2"),
            ("1.0a", "1.0+"),
            ("3.5.7-1~deb13u3", "3.5.7-1"),
            ("1.1.15+ds1-2+b4", "1.3.3+ds1-1"),
        ] {
            assert_eq!(
                (compare(less, more), compare(more, less), compare(less, less)),
                (Ordering::Less, Ordering::Greater, Ordering::Equal),
                "{less} {more}"
            );
        }
    }

    #[test]
    fn a_changelog_names_what_is_fixed_since_a_version() {
        let text = "runc (1.3.3+ds1-1) unstable; urgency=high\n\n  * Fix (CVE-2025-31133), CVE-2025-52565.\n\n -- A B <a@b>  Wed, 05 Nov 2025 00:00:00 +0000\n\n\
                    runc (1.1.15+ds1-2) unstable; urgency=medium\n\n  * CVE-2024-45310, CVE-2024-1\n";
        let ids = |since: Option<&str>| fixed_since(text, since).into_iter().collect::<Vec<_>>();
        assert_eq!(ids(Some("1.1.15+ds1-2+b4")), ["CVE-2025-31133", "CVE-2025-52565"]);
        assert_eq!(ids(None), ["CVE-2024-45310", "CVE-2025-31133", "CVE-2025-52565"]);
    }
}
