//! Go modules against the Go vulnerability database, which is the module golang.org/x/vulndb. Its advisories are OSV
//! files (https://ossf.github.io/osv-schema/, https://go.dev/doc/security/vuln/database).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use semver::Version;
use serde::Deserialize;

use super::{Row, Status};
use crate::component::go_program::{GoProgram, Module};
use crate::component::licences::download;
use crate::component::toolchain::Toolchain;
use crate::progress::Progress;

const DATABASE: &str = "golang.org/x/vulndb";
/// The age from which a database counts as old.
const OLD_DAYS: u64 = 45;
/// How the database calls the standard library.
const LIBRARY: &str = "stdlib";

#[derive(Deserialize)]
struct Osv {
    id: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    summary: String,
    withdrawn: Option<String>,
    affected: Vec<Affected>,
}

#[derive(Deserialize)]
struct Affected {
    package: BTreeMap<String, String>,
    #[serde(default)]
    ranges: Vec<Range>,
    #[serde(default)]
    ecosystem_specific: Specific,
}

#[derive(Deserialize)]
struct Range {
    events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    Introduced(String),
    Fixed(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Specific {
    imports: Vec<Import>,
}

/// An affected package. Empty lists mean all: of its symbols, operating systems and architectures.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Import {
    path: String,
    symbols: Vec<String>,
    goos: Vec<String>,
    goarch: Vec<String>,
}

impl Import {
    fn is_linked_into(&self, program: &GoProgram) -> bool {
        let has = |list: &[String], ours: &str| list.is_empty() || list.iter().any(|name| name == ours);
        let symbols = &self.symbols;
        has(&self.goos, "linux")
            && has(&self.goarch, "amd64")
            && (symbols.is_empty() && program.links(&self.path, None)
                || symbols.iter().any(|symbol| program.links(&self.path, Some(symbol))))
    }
}

impl Affected {
    /// Whether it names a module. Advisories of etcd's server have a name that no module of etcd has.
    fn is_of(&self, module: &str) -> bool {
        let name = self.package.get("name").map(String::as_str).unwrap_or_default();
        name == module || name == "go.etcd.io/etcd/v3" && module == "go.etcd.io/etcd/server/v3"
    }

    /// Whether a version is affected, and if so, by which version it is fixed.
    fn affects(&self, version: &str) -> Option<Option<String>> {
        // A version that cannot be compared counts as affected.
        let Some(version) = number(version) else { return Some(None) };
        self.ranges.iter().find_map(|range| {
            let mut affected = false;
            for event in &range.events {
                match event {
                    Event::Introduced(from) => {
                        affected = from == "0" || number(from).is_none_or(|from| from <= version)
                    }
                    Event::Fixed(by) if affected && number(by).is_none_or(|by| version < by) => {
                        return Some(Some(by.clone()));
                    }
                    Event::Fixed(_) => affected = false,
                }
            }
            affected.then_some(None)
        })
    }

    /// Whether a program has any of the affected code. Without a table of functions, and for an advisory without
    /// packages, it counts as linked.
    fn is_linked_into(&self, program: &GoProgram) -> bool {
        let imports = &self.ecosystem_specific.imports;
        !program.names_functions() || imports.is_empty() || imports.iter().any(|import| import.is_linked_into(program))
    }
}

/// A version of Go or of a module as a number that can be compared.
fn number(version: &str) -> Option<Version> {
    let version = version.strip_prefix("go").or(version.strip_prefix('v')).unwrap_or(version);
    Version::parse(version.split('+').next().unwrap_or_default()).ok()
}

pub struct Database {
    pub version: String,
    advisories: Vec<Osv>,
}

impl Database {
    /// Reads the database that the go.mod and go.sum in `directory` pin. `go` fetches it if the module cache lacks it, and
    /// compares it with its sum.
    pub fn fetch(directory: &Path, go: &Toolchain, progress: &Progress) -> Result<Self> {
        let running = progress.begin("advisories go");
        let found = download(go, directory, [DATABASE.to_owned()], progress)?;
        let module = found.first().context("go mod download names no module")?;
        let database = Self::read(&module.dir.join("data/osv"), &module.version)?;
        running.done();
        Ok(database)
    }

    pub(super) fn read(files: &Path, version: &str) -> Result<Self> {
        let mut advisories = Vec::new();
        for entry in std::fs::read_dir(files).with_context(|| format!("reading {}", files.display()))? {
            let path = entry.with_context(|| format!("reading {}", files.display()))?.path();
            let named = || format!("reading the advisory {}", path.display());
            let osv: Osv = serde_json::from_slice(&std::fs::read(&path).with_context(named)?).with_context(named)?;
            advisories.extend(osv.withdrawn.is_none().then_some(osv));
        }
        ensure!(!advisories.is_empty(), "{} has no advisories", files.display());
        Ok(Self { version: version.to_owned(), advisories })
    }

    /// A row if advisories of the last weeks can be missing: the version has the time of the last change, such as
    /// v0.0.0-20261105123456-abcdefabcdef.
    pub fn is_old(&self, now: SystemTime) -> Option<Row> {
        let days = self.version.split('-').nth(1).and_then(|time| {
            let day = format!("{}-{}-{}T00:00:00Z", time.get(..4)?, time.get(4..6)?, time.get(6..8)?);
            now.duration_since(humantime::parse_rfc3339(&day).ok()?).ok().map(|age| age.as_secs() / 86_400)
        });
        (days.is_none_or(|days| days > OLD_DAYS)).then(|| Row {
            status: Status::Expired,
            component: "audit".to_owned(),
            id: "database".to_owned(),
            part: format!("{DATABASE} {}", self.version),
            text: "renew the database: see docs/internals/advisories.md".to_owned(),
            ..Row::default()
        })
    }

    /// The advisories of a component that was built with a version of Go, if one of its programs has affected code.
    pub fn rows(&self, component: &str, go: &str, programs: &[GoProgram]) -> Vec<Row> {
        let library = Module { path: LIBRARY.to_owned(), version: format!("go{go}") };
        let modules: BTreeSet<&Module> =
            programs.iter().flat_map(|program| &program.modules).chain([&library]).collect();
        let mut rows = Vec::new();
        for osv in &self.advisories {
            for affected in &osv.affected {
                for module in modules.iter().filter(|module| affected.is_of(&module.path)) {
                    let Some(fixed) = affected.affects(&module.version) else { continue };
                    if programs.iter().any(|program| affected.is_linked_into(program)) {
                        rows.push(Row {
                            component: component.to_owned(),
                            id: osv.id.clone(),
                            part: format!("{} {}", module.path, module.version),
                            aliases: osv.aliases.clone(),
                            fixed,
                            text: osv.summary.clone(),
                            ..Row::default()
                        });
                    }
                }
            }
        }
        rows
    }
}
