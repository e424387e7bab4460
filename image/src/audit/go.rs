//! Go modules against the Go vulnerability database, which is the module golang.org/x/vulndb. Its advisories are OSV
//! files (https://ossf.github.io/osv-schema/, https://go.dev/doc/security/vuln/database).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use semver::Version;
use serde::Deserialize;
use serde_json::Value;

use super::{Advisory, Row, Status};
use crate::cache::Cache;
use crate::component::build;
use crate::component::module_file::ModuleFile;
use crate::component::{Component, GoModule, Source};
use crate::go_program::{self, GoProgram, Module};
use crate::process::Tool;
use crate::progress::Progress;
use crate::tools::ToolsTree;

/// The module of the database.
const DATABASE: &str = "golang.org/x/vulndb";
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
    #[serde(default)]
    affected: Vec<Affected>,
}

#[derive(Deserialize)]
struct Affected {
    package: Named,
    #[serde(default)]
    ranges: Vec<Range>,
    #[serde(default)]
    ecosystem_specific: Specific,
}

#[derive(Deserialize)]
struct Named {
    name: String,
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
struct Specific {
    #[serde(default)]
    imports: Vec<Import>,
}

#[derive(Deserialize)]
struct Import {
    path: String,
    #[serde(default)]
    symbols: Vec<String>,
    #[serde(default)]
    goos: Vec<String>,
    #[serde(default)]
    goarch: Vec<String>,
}

impl Import {
    fn is_of_the_image(&self) -> bool {
        let has = |list: &[String], ours: &str| list.is_empty() || list.iter().any(|name| name == ours);
        has(&self.goos, "linux") && has(&self.goarch, "amd64")
    }

    fn is_linked_into(&self, program: &GoProgram) -> bool {
        match self.symbols.is_empty() {
            true => program.links(&self.path, None),
            false => self.symbols.iter().any(|symbol| program.links(&self.path, Some(symbol))),
        }
    }
}

impl Affected {
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
        !program.names_functions()
            || imports.is_empty()
            || imports.iter().filter(|import| import.is_of_the_image()).any(|import| import.is_linked_into(program))
    }
}

/// A version of Go or of a module as a number that can be compared.
fn number(version: &str) -> Option<Version> {
    let version = version.strip_prefix("go").or(version.strip_prefix('v')).unwrap_or(version);
    Version::parse(version.split('+').next().unwrap_or_default()).ok()
}

/// The database.
pub struct Database {
    /// Its version.
    pub version: String,
    by_module: BTreeMap<String, Vec<(Advisory, Affected)>>,
}

impl Database {
    /// Reads the database that the go.mod and go.sum in `directory` pin. The host's `go` fetches it if the module cache
    /// lacks it, and compares it with its sum.
    ///
    /// # Errors
    /// When it cannot be fetched or read.
    pub fn fetch(directory: &Path, progress: &Progress) -> Result<Self> {
        let running = progress.begin("advisories go");
        let tool = Tool::as_caller("go")
            .current_dir(directory)
            .env("GOWORK", "off")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOTOOLCHAIN", "local");
        let said = tool
            .args(["mod", "download", "-json", DATABASE])
            .output(progress)
            .context("fetching Go's vulnerability database")?;
        let said: Value = serde_json::from_slice(&said).context("understanding what go mod download says")?;
        let text = |key: &str| said[key].as_str().with_context(|| format!("go mod download named no {key}"));
        let database = Self::read(&PathBuf::from(text("Dir")?).join("data/osv"), text("Version")?)?;
        running.done();
        Ok(database)
    }

    pub(super) fn read(files: &Path, version: &str) -> Result<Self> {
        let mut by_module: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for entry in walkdir::WalkDir::new(files).sort_by_file_name() {
            let path = entry.with_context(|| format!("reading {}", files.display()))?.into_path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let named = || format!("reading the advisory {}", path.display());
            let osv: Osv = serde_json::from_slice(&std::fs::read(&path).with_context(named)?).with_context(named)?;
            if osv.withdrawn.is_some() {
                continue;
            }
            let advisory = Advisory { id: osv.id, aliases: osv.aliases, summary: osv.summary };
            for affected in osv.affected {
                by_module.entry(affected.package.name.clone()).or_default().push((advisory.clone(), affected));
            }
        }
        anyhow::ensure!(!by_module.is_empty(), "{} has no advisories", files.display());
        Ok(Self { version: version.to_owned(), by_module })
    }

    /// Judges a component: with its programs in the cache by function, else by the modules that its module file requires.
    ///
    /// # Errors
    /// When its module file or a program cannot be read.
    pub fn check(
        &self,
        component: &Component,
        tools: Option<&ToolsTree>,
        cache: &Cache,
        progress: &Progress,
    ) -> Result<Vec<Row>> {
        let Source::GoModule(module) = &component.source else { return Ok(Vec::new()) };
        let programs = match build::is_made(component, tools, cache)? {
            true => Some(go_program::of(&build::build(component, tools, cache, progress)?)?),
            false => None,
        };
        self.decide(&component.name, module, programs.as_deref())
    }

    pub(super) fn decide(&self, name: &str, module: &GoModule, programs: Option<&[GoProgram]>) -> Result<Vec<Row>> {
        let modules = match programs {
            Some(programs) => programs.iter().flat_map(|program| program.modules.clone()).collect(),
            None => required(&module.directory.join(module.modfile.as_deref().unwrap_or("go.mod")))?,
        };
        let library = Module { path: LIBRARY.to_owned(), version: format!("go{}", module.go.version) };
        Ok(self.rows(name, [modules, vec![library]].concat(), programs))
    }

    fn rows(&self, component: &str, mut modules: Vec<Module>, programs: Option<&[GoProgram]>) -> Vec<Row> {
        modules.sort();
        modules.dedup();
        let mut rows = Vec::new();
        for module in &modules {
            for (advisory, affected) in self.by_module.get(&module.path).into_iter().flatten() {
                let Some(fixed) = affected.affects(&module.version) else { continue };
                let status = match programs {
                    None => Status::Undecided,
                    Some(programs) if programs.iter().any(|program| affected.is_linked_into(program)) => {
                        Status::Unjudged
                    }
                    Some(_) => Status::NotLinked,
                };
                let part = format!("{} {}", module.path, module.version);
                rows.push(Row {
                    component: component.to_owned(),
                    part,
                    advisory: advisory.clone(),
                    fixed,
                    status,
                    reason: None,
                });
            }
        }
        rows
    }
}

/// The modules that a module file requires, replaced as it says: more than are linked.
fn required(path: &Path) -> Result<Vec<Module>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let file =
        ModuleFile::parse(&text).map_err(|line| anyhow::anyhow!("{}:{line} is not understood", path.display()))?;
    let module = |(path, version): &(String, String)| {
        let replace = file
            .replaces
            .iter()
            .find(|replace| replace.path == *path && replace.version.as_ref().is_none_or(|of| of == version));
        let (path, version) = match replace {
            Some(replace) => (replace.by.clone(), replace.by_version.clone().unwrap_or_default()),
            None => (path.clone(), version.clone()),
        };
        Module { path, version }
    };
    Ok(file.requires.iter().map(module).collect())
}
