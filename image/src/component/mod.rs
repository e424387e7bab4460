//! The upstream parts of an image: what each is and where it comes from. Knows
//! nothing of their places in the image.

pub mod build;
mod download;
mod go;
mod module_file;
pub mod toolchain;
mod upstream;

use std::fs;
use std::path::{Path, PathBuf};

use crate::document::{Document, Located, Mistake, Mistakes, Table};
use toolchain::Pin;

/// One part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name in the description.
    pub name: String,
    /// Upstream's version, without a leading v.
    pub version: String,
    /// SPDX expression.
    pub licence: String,
    /// Where it comes from.
    pub source: Source,
}

/// Where a part comes from. Each kind gives the same programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built here from Go modules, whose sums are beside the module file.
    GoModule(GoModule),
    /// Upstream's release files, each with its SHA-256.
    Url(Vec<Download>),
    /// Files of this host.
    File(Vec<LocalFile>),
}

/// A folder with a Go module and what to build in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoModule {
    /// The Go that builds it.
    pub go: Pin,
    /// The folder.
    pub folder: PathBuf,
    /// The module file in it, if it is not go.mod.
    pub modfile: Option<String>,
    /// Build tags.
    pub tags: Vec<String>,
    /// Linker flags beyond the standard ones.
    pub ldflags: Vec<String>,
    /// The programs.
    pub packages: Vec<GoPackage>,
}

/// A program and the Go package it is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoPackage {
    /// What is handed to `go build`.
    pub package: String,
    /// The program.
    pub program: Program,
}

/// A program of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file name.
    pub output: String,
    /// Further names by which it does something else.
    pub names: Vec<String>,
}

/// A program in a release file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Where the file is.
    pub url: String,
    /// SHA-256 of the file in hexadecimal.
    pub sha256: String,
    /// The program's path in the file, if that is a tar archive compressed by gzip.
    pub member: Option<String>,
    /// The program.
    pub program: Program,
}

/// A program that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFile {
    /// Its path.
    pub path: PathBuf,
    /// SHA-256 in hexadecimal, if it is to be checked.
    pub sha256: Option<String>,
    /// The program.
    pub program: Program,
}

impl Component {
    /// Its programs.
    pub fn programs(&self) -> Vec<&Program> {
        match &self.source {
            Source::GoModule(module) => module.packages.iter().map(|package| &package.program).collect(),
            Source::Url(downloads) => downloads.iter().map(|download| &download.program).collect(),
            Source::File(files) => files.iter().map(|file| &file.program).collect(),
        }
    }

    /// The Go that builds it, if it is built from Go modules.
    pub fn go(&self) -> Option<&Pin> {
        match &self.source {
            Source::GoModule(module) => Some(&module.go),
            Source::Url(_) | Source::File(_) => None,
        }
    }

    /// Whether its version was checked against its source. Programs that were built elsewhere are of the version that
    /// their description says; nothing here can tell.
    pub fn version_is_checked(&self) -> bool {
        self.go().is_some()
    }
}

/// The minor of a version: `1.36` of `1.36.3`.
pub fn minor(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let numbers = [major, minor].iter().all(|part| part.parse::<u32>().is_ok());
    numbers.then(|| format!("{major}.{minor}"))
}

/// Reads the description of components.
///
/// # Errors
/// [`Mistakes`] with everything that is wrong.
pub fn read(file: &Path) -> Result<Vec<Component>, Mistakes> {
    let text = fs::read_to_string(file).map_err(|error| {
        let message = format!("cannot be read: {error}");
        Mistakes(vec![Mistake { file: file.to_owned(), line: 1, key: String::new(), message }])
    })?;
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    Document::new(file, &text).read(|top| {
        let go = top.table("go").map(|table| Pin::read(&table));
        top.required_table("components", |all| {
            all.tables()
                .iter()
                .map(|(name, table)| {
                    let component = component(name, table, &folder, go.as_ref());
                    table.finish();
                    component
                })
                .collect()
        })
    })
}

fn component(name: &str, table: &Table<'_, '_>, folder: &Path, go: Option<&Pin>) -> Component {
    let version = table.required_text("version", "upstream's version").value;
    let licence = table.required_text("licence", "an SPDX expression").value;
    let source = table.required_table("source", |source| read_source(source, folder, go, &version));
    Component { name: name.to_owned(), version, licence, source }
}

fn read_source(table: &Table<'_, '_>, folder: &Path, go: Option<&Pin>, version: &str) -> Source {
    let kind = table.required_text("kind", "go-module, url or file");
    let packages = table.table_list("packages");
    if packages.is_empty() && !kind.value.is_empty() {
        table.mistake_here("has no packages: give one entry for each program");
    }
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let expand = |text: String| text.replace("{version}", version).replace("{major}", major).replace("{minor}", minor);
    match kind.value.as_str() {
        "url" => Source::Url(packages.iter().map(|package| download(package, &expand)).collect()),
        "file" => Source::File(packages.iter().map(|package| local_file(package, folder, &expand)).collect()),
        other => {
            if other != "go-module" && !other.is_empty() {
                table.mistake(&kind, format!("`{other}` is none of go-module, url, file"));
            }
            Source::GoModule(go_module(table, folder, go, version, &packages, &expand))
        }
    }
}

fn go_module(
    table: &Table<'_, '_>,
    folder: &Path,
    go: Option<&Pin>,
    version: &str,
    packages: &[Table<'_, '_>],
    expand: &dyn Fn(String) -> String,
) -> GoModule {
    if go.is_none() {
        table.mistake_here("is built with Go: give a table [go] with its version and sum");
    }
    let module = table.required_text("module", "the folder that holds the go.mod");
    let place = folder.join(&module.value);
    let modfile = table.text("modfile");
    let needed = place.join(modfile.as_ref().map_or("go.mod", |modfile| modfile.value.as_str()));
    if !module.value.is_empty() && !needed.is_file() {
        table.mistake(modfile.as_ref().unwrap_or(&module), format!("there is no file {}", needed.display()));
    }
    let upstream = table.required_texts("upstream", "the Go modules that the part is made from, its own name for one");
    let texts = |key: &str| -> Vec<_> {
        table.texts(key).into_iter().map(|item| item.with(expand(item.value.clone()))).collect()
    };
    let (tags, ldflags) = (texts("tags"), texts("ldflags"));
    let (names, programs): (Vec<_>, Vec<_>) = packages
        .iter()
        .map(|package| {
            let name = package.required_text("package", "what to hand to go build");
            let program = program(package);
            package.finish();
            (name, program)
        })
        .unzip();
    if needed.is_file() {
        let claims = upstream::Claims { version, upstream: &upstream, packages: &names, ldflags: &ldflags };
        upstream::check(table, &claims, modfile.as_ref().unwrap_or(&module), &needed);
    }
    let values = |list: Vec<Located<String>>| list.into_iter().map(|item| item.value);
    GoModule {
        go: go.cloned().unwrap_or_default(),
        folder: place,
        modfile: modfile.map(|modfile| modfile.value),
        tags: values(tags).collect(),
        ldflags: values(ldflags).collect(),
        packages: values(names).zip(programs).map(|(package, program)| GoPackage { package, program }).collect(),
    }
}

fn download(table: &Table<'_, '_>, expand: &dyn Fn(String) -> String) -> Download {
    let url = table.required_text("url", "where the file is");
    if !url.value.is_empty() && !["http://", "https://"].iter().any(|scheme| url.value.starts_with(scheme)) {
        table.mistake(&url, format!("`{}` is no http or https URL", url.value));
    }
    let sha256 = table.required_text("sha256", "the file's SHA-256");
    check_sha256(table, &sha256);
    let member = table.text("member").map(|member| expand(member.value));
    let program = program(table);
    table.finish();
    Download { url: expand(url.value), sha256: sha256.value, member, program }
}

fn local_file(table: &Table<'_, '_>, folder: &Path, expand: &dyn Fn(String) -> String) -> LocalFile {
    let path = table.required_text("path", "the program's path");
    let place = folder.join(expand(path.value.clone()));
    if !path.value.is_empty() && !place.is_file() {
        table.mistake(&path, format!("there is no file {}", place.display()));
    }
    let sha256 = table.text("sha256");
    if let Some(sha256) = &sha256 {
        check_sha256(table, sha256);
    }
    let program = program(table);
    table.finish();
    LocalFile { path: place, sha256: sha256.map(|sha256| sha256.value), program }
}

fn program(table: &Table<'_, '_>) -> Program {
    let output = table.required_text("output", "the program's file name");
    let names = table.texts("names");
    for name in names.iter().chain([&output]) {
        if name.value.contains('/') || name.value == "." || name.value == ".." {
            table.mistake(name, format!("`{}` is no file name", name.value));
        }
    }
    Program { output: output.value, names: names.into_iter().map(|name| name.value).collect() }
}

fn check_sha256(table: &Table<'_, '_>, at: &Located<String>) {
    let fine = at.value.len() == 64 && at.value.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    if !at.value.is_empty() && !fine {
        table.mistake(at, "is no SHA-256: give 64 lower-case hexadecimal digits");
    }
}
