//! Asks apt for the packages of a set, in the archive's current state. apt uses separate directories: the host's
//! package state does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};

use super::PackageSet;
use super::lock::{Index, Lock, Package, Pocket};
use super::sources::Sources;
use crate::cache::{Cache, Work, file_digest};
use crate::process::Tool;
use crate::progress::Progress;

/// Resolves a package set against the current archive. Fails if apt cannot trust it, or a package is missing.
pub fn resolve(set: &PackageSet, sources: &Sources, cache: &Cache, progress: &Progress) -> Result<Lock> {
    let archive = Archive::open(&set.suite, &Pocket::ALL, sources, cache, progress)?;
    archive.resolve(set, set.request(), None, progress)
}

/// A release of the archive in one state.
pub struct Archive {
    suite: String,
    apt: Apt,
    indexed: Indexed,
    indexes: Vec<Index>,
    _work: Work,
}

impl Archive {
    /// Reads the current archive. Unstable has only the pocket of the release.
    pub fn open(
        suite: &str,
        pockets: &[Pocket],
        sources: &Sources,
        cache: &Cache,
        progress: &Progress,
    ) -> Result<Self> {
        let work = cache.work()?;
        let running = progress.begin(&format!("index of {suite}"));
        let lists = sources.lists(suite, pockets)?;
        let apt = update(work.path(), &lists, progress).context("reading the archive's index")?;
        running.done();
        let (indexed, indexes) = (apt.indexed(suite, pockets)?, apt.indexes(suite, pockets)?);
        Ok(Self { suite: suite.to_owned(), apt, indexed, indexes, _work: work })
    }

    /// The newest version of a package, with the name of its source package.
    pub fn newest(&self, name: &str) -> Result<Option<(&Package, &str)>> {
        Ok(self.indexed.newest(name)?.map(|entry| (&entry.package, entry.source.as_str())))
    }

    /// The packages of a source at its newest version. An archive may still have packages of an earlier one.
    pub fn of_source(&self, source: &str) -> Result<Vec<&Package>> {
        self.indexed.of_source(source)
    }

    /// The newest kernel of a metapackage. Each build of a kernel is a package with another name.
    pub fn kernel(&self, name: &str) -> Result<Package> {
        self.indexed.kernel(name)
    }

    /// Resolves a package set, or the packages that it adds to those in `below`, which keep their versions. Fails if
    /// one is missing.
    pub fn resolve(
        &self,
        set: &PackageSet,
        request: String,
        below: Option<&Lock>,
        progress: &Progress,
    ) -> Result<Lock> {
        let indexed = &self.indexed;
        let below = below.map(|lock| lock.packages.as_slice()).unwrap_or_default();
        let names = asked_for(set, indexed, below);
        let chosen = self.apt.simulate(&names, progress)?;
        let added = chosen.iter().filter(|(name, _)| !below.iter().any(|package| package.name == **name));
        let packages = added.map(|(name, version)| indexed.package(name, version)).collect::<Result<Vec<_>>>()?;
        let kernel = set.kernel.as_deref().map(|name| indexed.kernel(name)).transpose()?;
        Ok(Lock { suite: self.suite.clone(), request, indexes: self.indexes.clone(), packages, kernel })
    }
}

/// Whether a version of a package is older than another one (deb-version(7)).
pub fn is_older(version: &str, than: &str) -> Result<bool> {
    let status = Command::new("dpkg").args(["--compare-versions", version, "lt", than]).status();
    Ok(status.context("running dpkg")?.success())
}

/// The arguments of apt's installation: the packages of the set, the essential ones, and those below with their
/// versions.
fn asked_for(set: &PackageSet, indexed: &Indexed, below: &[Package]) -> BTreeSet<String> {
    let fixed = |name: &str| below.iter().any(|package| package.name == name);
    let named = set.packages.iter().map(String::as_str).chain(indexed.essential()).filter(|name| !fixed(name));
    let below = below.iter().map(|package| format!("{}={}", package.name, package.version));
    named.map(str::to_owned).chain(below).collect()
}

/// Runs `apt-get update` with the first list of sources that works.
fn update(directory: &Path, lists: &[String], progress: &Progress) -> Result<Apt> {
    let mut failed = None;
    for (attempt, list) in lists.iter().enumerate() {
        let apt = Apt::prepare(&directory.join(attempt.to_string()), list)?;
        match apt.tool("apt-get").args(["update", "--error-on=any"]).run(progress) {
            Ok(()) => return Ok(apt),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| anyhow!("there is no mirror")))
}

/// Settings that have priority over the host's configuration of apt.
const OVERRIDES: [&str; 8] = [
    "Acquire::GzipIndexes=false",
    "Acquire::Languages=none",
    "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    "Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled=false",
    "Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled=false",
    "APT::Install-Recommends=false",
    "APT::Install-Suggests=false",
    "APT::Sandbox::User=root",
];

/// An apt with a separate state directory.
struct Apt {
    directory: PathBuf,
}

impl Apt {
    fn prepare(directory: &Path, sources: &str) -> Result<Self> {
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(part)).context("making directories for apt")?;
        }
        let path = directory.display();
        let configuration = format!(
            "Dir::State \"{path}/state\";\nDir::State::status \"{path}/status\";\nDir::Cache \"{path}/cache\";\n\
             Dir::Etc::sourcelist \"{path}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             #clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
        );
        for (name, text) in
            [("apt.conf", configuration), ("sources.list", sources.to_owned()), ("status", String::new())]
        {
            fs::write(directory.join(name), text).with_context(|| format!("writing apt's {name}"))?;
        }
        Ok(Self { directory: directory.to_owned() })
    }

    fn tool(&self, program: &str) -> Tool {
        let tool = Tool::on_host(program).env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        // The host's apt.conf.d is read too, for proxies and credentials. It is read after APT_CONFIG, so settings
        // with priority over it are on the command line.
        OVERRIDES.iter().fold(tool, |tool, option| tool.arg("-o").arg(option))
    }

    fn lists(&self) -> PathBuf {
        self.directory.join("state/lists")
    }

    /// The file in apt's lists whose name ends like this.
    fn list(&self, ending: &str) -> Result<PathBuf> {
        let entries = fs::read_dir(self.lists()).context("reading apt's lists")?;
        let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let found = paths.find(|path| path.to_string_lossy().ends_with(ending));
        found.with_context(|| format!("apt has fetched no file …{ending}"))
    }

    fn indexes(&self, release: &str, pockets: &[Pocket]) -> Result<Vec<Index>> {
        let index = |pocket: Pocket| {
            let path = self.list(&format!("_dists_{}_InRelease", pocket.suite(release)))?;
            let text = fs::read_to_string(&path).context("reading a signed index")?;
            let date = signed_part(&text).and_then(|signed| {
                signed.lines().find_map(|line| line.strip_prefix("Date: ")).context("it has no date")
            });
            let date = date.with_context(|| format!("reading the signed index of {}", pocket.suite(release)))?;
            let date = parse_date(date).with_context(|| format!("a signed index has the date {date:?}"))?;
            Ok(Index { pocket, date, sha256: file_digest(&path)? })
        };
        pockets.iter().copied().map(index).collect()
    }

    fn indexed(&self, release: &str, pockets: &[Pocket]) -> Result<Indexed> {
        let mut indexed = Indexed::default();
        for &pocket in pockets {
            let path = self.list(&format!("_dists_{}_main_binary-amd64_Packages", pocket.suite(release)))?;
            let text = fs::read_to_string(&path).context("reading the archive's list of packages")?;
            indexed.add(pocket, &text);
        }
        Ok(indexed)
    }

    /// The packages that apt would install on an empty system: names and versions, sorted.
    fn simulate(&self, names: &BTreeSet<String>, progress: &Progress) -> Result<BTreeMap<String, String>> {
        let running = progress.begin("resolve");
        let output = self
            .tool("apt-get")
            .args(["--simulate", "--quiet", "install"])
            .args(names)
            .output(progress)
            .context("choosing the packages")?;
        running.done();
        let chosen: BTreeMap<_, _> = String::from_utf8_lossy(&output).lines().filter_map(installed).collect();
        if chosen.is_empty() {
            bail!("apt chose no package at all");
        }
        Ok(chosen)
    }
}

/// The signed part of a signed index (RFC 9580, section 7). apt ignores headers before it, and a mirror can add some.
/// Only the header of the format is accepted.
fn signed_part(text: &str) -> Result<&str> {
    let text = text.strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----").context("it does not begin as one")?;
    let (headers, rest) = text.split_once("\n\n").context("its signed part has no beginning")?;
    if let Some(header) = headers.lines().skip(1).find(|header| !header.starts_with("Hash: ")) {
        bail!("it has the line {header:?}, which is not signed: choose another mirror");
    }
    let (signed, _) = rest.split_once("\n-----BEGIN PGP SIGNATURE-----").context("its signed part has no end")?;
    Ok(signed)
}

/// `Inst NAME (VERSION …`
fn installed(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
    let version = rest.trim_start_matches(|c| c != '(').strip_prefix('(')?.split([' ', ')']).next()?;
    Some((name.split(':').next()?.to_owned(), version.to_owned()))
}

#[derive(Default)]
struct Indexed {
    packages: BTreeMap<(String, String), Entry>,
    essential: BTreeSet<String>,
}

struct Entry {
    package: Package,
    depends: String,
    source: String,
}

impl Indexed {
    fn add(&mut self, pocket: Pocket, text: &str) {
        for stanza in text.split("\n\n") {
            let field = |name: &str| {
                stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                    .unwrap_or_default()
                    .to_owned()
            };
            let (name, version) = (field("Package"), field("Version"));
            if name.is_empty() {
                continue;
            }
            if field("Essential") == "yes" {
                self.essential.insert(name.clone());
            }
            let package = Package {
                name: name.clone(),
                version: version.clone(),
                pocket,
                path: field("Filename"),
                size: field("Size").parse().unwrap_or(0),
                sha256: field("SHA256"),
            };
            // `Source: glibc (2.41-12)` where its name or version differ.
            let source =
                field("Source").split(' ').next().filter(|source| !source.is_empty()).unwrap_or(&name).to_owned();
            self.packages.entry((name, version)).or_insert(Entry { package, depends: field("Depends"), source });
        }
    }

    fn essential(&self) -> impl Iterator<Item = &str> {
        self.essential.iter().map(String::as_str)
    }

    fn package(&self, name: &str, version: &str) -> Result<Package> {
        let found = self.packages.get(&(name.to_owned(), version.to_owned()));
        let Entry { package, .. } =
            found.with_context(|| format!("the archive's lists do not have {name} {version}"))?;
        if package.sha256.len() != 64 || package.size == 0 || package.path.is_empty() {
            bail!("the archive's list gives no digest, size or path for {name} {version}");
        }
        Ok(package.clone())
    }

    /// The kernel of the newest version of a metapackage: its first dependency, which has an exact version.
    fn kernel(&self, name: &str) -> Result<Package> {
        let newest = self.newest(name)?.with_context(|| format!("the archive has no kernel package {name}"))?;
        let Entry { package, depends, .. } = newest;
        let Some((real, rest)) = depends.split_once(" (= ") else { return self.package(name, &package.version) };
        let version = rest.split(')').next().unwrap_or_default();
        self.package(real, version).with_context(|| format!("finding the kernel that {name} stands for"))
    }

    fn of_source(&self, source: &str) -> Result<Vec<&Package>> {
        let all = self.packages.values().filter(|entry| entry.source == source).map(|entry| &entry.package);
        let mut newest: Vec<&Package> = Vec::new();
        for package in all {
            // A rebuild without a change (`+b1`) concerns only some architectures and packages.
            let version = |package: &Package| package.version.split("+b").next().unwrap_or_default().to_owned();
            match newest.first() {
                Some(first) if is_older(&version(package), &version(first))? => {}
                Some(first) if !is_older(&version(first), &version(package))? => newest.push(package),
                _ => newest = vec![package],
            }
        }
        Ok(newest)
    }

    fn newest(&self, name: &str) -> Result<Option<&Entry>> {
        let mut newest: Option<&Entry> = None;
        let from = (name.to_owned(), String::new());
        for (_, entry) in self.packages.range(from..).take_while(|((own, _), _)| own == name) {
            if newest.map_or(Ok(true), |newest| is_older(&newest.package.version, &entry.package.version))? {
                newest = Some(entry);
            }
        }
        Ok(newest)
    }
}

/// `Sat, 15 Nov 2025 08:21:45 UTC` in seconds since 1970 (RFC 5322, as the archive writes it).
fn parse_date(text: &str) -> Option<u64> {
    let mut words = text.split_once(", ")?.1.split_whitespace();
    let day: u64 = words.next()?.parse().ok()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = words.next()?;
    let month = months.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let time: Vec<u64> = words.next()?.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hour, minute, second] = time[..] else { return None };
    // Days from the civil calendar. Years begin in March.
    let (shifted_year, shifted_month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = shifted_year / 4 - shifted_year / 100 + shifted_year / 400;
    let days = shifted_year * 365 + leap_days + (153 * shifted_month + 2) / 5 + day;
    // 1 January 1970 is day 719469 of this count.
    Some(days.checked_sub(719_469)? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apts_simulation_is_parsed() {
        let line = "Inst libc6 (2.41-12 Debian:13.2/stable [amd64]) []";
        assert_eq!(installed(line), Some(("libc6".to_owned(), "2.41-12".to_owned())));
        assert_eq!(installed("Conf libc6 (2.41-12 Debian [amd64])"), None);
    }

    #[test]
    fn dates_of_the_archive_are_read() {
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 UTC"), Some(0));
        assert_eq!(parse_date("Sat, 29 Feb 2020 12:30:05 UTC"), Some(1_582_979_405));
        assert_eq!(parse_date("Sat, 15 Nov 2025 08:21:45 UTC"), Some(1_763_194_905));
        assert_eq!(parse_date("yesterday"), None);
    }

    #[test]
    fn the_date_of_an_index_must_be_signed() {
        let date_of = |headers: &str, body: &str, end: &str| {
            let directory = tempfile::tempdir().unwrap();
            let apt = Apt { directory: directory.path().to_owned() };
            fs::create_dir_all(apt.lists()).unwrap();
            for pocket in Pocket::ALL {
                let path = apt.lists().join(format!("mirror_dists_{}_InRelease", pocket.suite("trixie")));
                let text = format!("-----BEGIN PGP SIGNED MESSAGE-----\n{headers}\n{body}{end}");
                fs::write(path, text).unwrap();
            }
            let indexes = apt.indexes("trixie", &Pocket::ALL).map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>(indexes[0].date)
        };
        let (hash, signed) = ("Hash: SHA256\n", "Suite: stable\nDate: Sat, 15 Nov 2025 08:21:45 UTC\n");
        let end = "-----BEGIN PGP SIGNATURE-----\n\nDate: Fri, 15 Nov 2030 08:21:45 UTC\n";
        assert_eq!(date_of(hash, signed, end), Ok(1_763_194_905));
        assert_eq!(date_of("", signed, end), Ok(1_763_194_905));
        for added in ["Date: Fri, 15 Nov 2030 08:21:45 UTC\n", " \n", "Comment: x\n"] {
            let error = date_of(&format!("{hash}{added}"), signed, end).unwrap_err();
            assert!(error.contains("is not signed"), "{error}");
        }
        let error = date_of(hash, "Suite: stable\n", end).unwrap_err();
        assert!(error.contains("it has no date"), "what follows the signature is not signed: {error}");
        assert!(date_of(hash, signed, "").unwrap_err().contains("no end"));
    }

    #[test]
    fn versions_compare_as_in_debian() {
        for (older, newer) in [("1.0~rc1-1", "1.0-1"), ("1.9-1", "1.10-1"), ("9-1", "1:1-1"), ("13", "13+deb13u1")] {
            assert!(is_older(older, newer).unwrap() && !is_older(newer, older).unwrap(), "{older} {newer}");
        }
        assert!(!is_older("1.0-1", "1.0-1").unwrap());
    }

    #[test]
    fn a_metapackage_leads_to_the_newest_kernel() {
        let stanza = |name: &str, version: &str, more: &str| {
            format!(
                "Package: {name}\nVersion: {version}\n{more}Filename: pool/{name}.deb\nSize: 5\nSHA256: {}\n\n",
                "a".repeat(64)
            )
        };
        let mut indexed = Indexed::default();
        let old = stanza("linux-image-cloud-amd64", "6.12.9-1", "Depends: linux-image-6.12.9 (= 6.12.9-1)\n")
            + &stanza("linux-image-6.12.9", "6.12.9-1", "")
            + &stanza("base-files", "13", "Essential: yes\n");
        let new = stanza("linux-image-cloud-amd64", "6.12.11-1", "Depends: linux-image-6.12.11 (= 6.12.11-1)\n")
            + &stanza("linux-image-6.12.11", "6.12.11-1", "");
        indexed.add(Pocket::Release, &old);
        indexed.add(Pocket::Security, &new);
        let kernel = indexed.kernel("linux-image-cloud-amd64").unwrap();
        assert_eq!((kernel.name.as_str(), kernel.pocket), ("linux-image-6.12.11", Pocket::Security));
        assert_eq!(indexed.essential().collect::<Vec<_>>(), ["base-files"]);
        assert!(indexed.kernel("linux-image-rt").is_err());
        indexed.add(Pocket::Security, &stanza("base-files", "13+deb13u1", "Source: base (13+deb13u1)\n"));
        let newest = indexed.newest("base-files").unwrap().unwrap();
        assert_eq!((newest.package.version.as_str(), newest.source.as_str()), ("13+deb13u1", "base"));
    }

    #[test]
    fn packages_of_a_source_have_its_newest_version() {
        let stanza = |name: &str, version: &str| format!("Package: {name}\nVersion: {version}\nSource: libxml2\n\n");
        let mut indexed = Indexed::default();
        let text =
            stanza("libxml2-16", "2.15.1-1+b1") + &stanza("libxml2-doc", "2.15.1-1") + &stanza("libxml2", "2.12.7-3");
        indexed.add(Pocket::Release, &text);
        let names =
            |source| indexed.of_source(source).unwrap().iter().map(|found| found.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("libxml2"), ["libxml2-16", "libxml2-doc"]);
        assert!(names("libxml").is_empty());
    }
}
