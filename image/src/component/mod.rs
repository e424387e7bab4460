//! The upstream components of an image: what each is and its source. Independent of their places in the image.

pub mod build;
mod go;
pub mod go_program;
pub(crate) mod licences;
mod module_file;
pub mod toolchain;
mod upstream;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cache::file_digest;
use crate::document::{Document, Mistake, Mistakes, Table, any, values};
use build::Built;
use toolchain::Pin;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name in the description.
    pub name: String,
    /// Upstream's version, without a leading v.
    pub version: String,
    /// SPDX expression.
    pub licence: String,
    pub source: Source,
}

/// The source of a component. Each kind results in the same programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Built here from Go modules. Their sums are next to the module file.
    GoModule(GoModule),
    /// Files of this host.
    File(Vec<LocalFile>),
}

/// A directory with a Go module, and what to build in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoModule {
    /// The Go that builds it.
    pub go: Pin,
    pub directory: PathBuf,
    /// The name of the module file, if it is not go.mod.
    pub modfile: Option<String>,
    /// Whether parts of the programs are in C.
    pub cgo: bool,
    /// Whether the programs report another version than that of their source.
    pub stamped: bool,
    pub tags: Vec<String>,
    /// Linker flags in addition to the standard ones.
    pub ldflags: Vec<String>,
    pub packages: Vec<GoPackage>,
}

/// A program and its Go package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoPackage {
    /// The argument of `go build`.
    pub package: String,
    pub program: Program,
}

/// A program of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file name.
    pub output: String,
    /// Further names that select another function of it.
    pub names: Vec<String>,
}

/// A program file of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFile {
    pub path: PathBuf,
    /// Expected SHA-256 in hexadecimal. `None` for no check.
    pub sha256: Option<String>,
    pub program: Program,
}

impl Component {
    pub fn programs(&self) -> Vec<&Program> {
        match &self.source {
            Source::GoModule(module) => module.packages.iter().map(|package| &package.program).collect(),
            Source::File(files) => files.iter().map(|file| &file.program).collect(),
        }
    }

    /// The Go that builds it, if it is built from Go modules.
    pub fn go(&self) -> Option<&Pin> {
        match &self.source {
            Source::GoModule(module) => Some(&module.go),
            Source::File(_) => None,
        }
    }

    /// Whether its version was checked against its source and is that of its source. The version of programs that
    /// were built elsewhere is only in the description.
    pub fn version_is_checked(&self) -> bool {
        matches!(&self.source, Source::GoModule(module) if !module.stamped)
    }
}

/// The minor version of a version: `1.36` of `1.36.3`.
pub fn minor(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let numbers = [major, minor].iter().all(|part| part.parse::<u32>().is_ok());
    numbers.then(|| format!("{major}.{minor}"))
}

/// Reads the description of components.
///
/// # Errors
/// [`Mistakes`] with all errors.
pub fn read(file: &Path) -> Result<Vec<Component>, Mistakes> {
    let text = fs::read_to_string(file).map_err(|error| {
        let message = format!("cannot be read: {error}");
        Mistakes(vec![Mistake { file: file.to_owned(), line: 1, key: String::new(), message }])
    })?;
    let directory = file.parent().unwrap_or(Path::new(""));
    Document::new(file, &text).read(|top| {
        let go = top.optional_table("go", Pin::read);
        top.table("components", |all| {
            let read = |name: String| all.table(&name, |table| component(&name, table, directory, go.as_ref()));
            Some(all.keys().into_iter().filter_map(read).collect())
        })
    })
}

/// Reads the description again after the build, and checks it against the module files. An edit during the build,
/// which can take half an hour, must not result in false versions in the image.
///
/// # Errors
/// When the description is invalid now, differs for one of these components, or a program is no longer equal to its
/// file of the host.
pub fn check_again(file: &Path, components: &[Built]) -> anyhow::Result<()> {
    let described = read(file).with_context(|| format!("{} was changed during the build", file.display()))?;
    for Built { component, directory, .. } in components {
        if !described.contains(component) {
            bail!(
                "{} says something else of {} than when the build began: build again",
                file.display(),
                component.name
            );
        }
        let Source::File(files) = &component.source else { continue };
        for LocalFile { path, program, .. } in files {
            if file_digest(path)? != file_digest(&directory.join(&program.output))? {
                bail!(
                    "{} was changed during the build: build again, and if that ends so too, remove {} before",
                    path.display(),
                    directory.display()
                );
            }
        }
    }
    Ok(())
}

fn component(name: &str, table: &Table<'_, '_>, directory: &Path, go: Option<&Option<Pin>>) -> Option<Component> {
    let version = table.required("version", "upstream's version", any);
    let stamp = table.optional("stamp", any);
    let licence = table.required("licence", "an SPDX expression", any);
    let of_source = version.as_deref().unwrap_or_default();
    let around = Around { directory, go, of_source, version: stamp.as_deref().unwrap_or(of_source) };
    let source = table.table("source", |source| read_source(source, &around));
    Some(Component { name: name.to_owned(), version: stamp.or(version)?, licence: licence?, source: source? })
}

/// Context of reading a source.
struct Around<'a> {
    /// The directory of the description.
    directory: &'a Path,
    /// The Go. The outer `None`: the description has none. The inner one: it is invalid.
    go: Option<&'a Option<Pin>>,
    /// The version of the source. Empty if the description has none.
    of_source: &'a str,
    /// The version that the programs report: that of the source, or the stamp.
    version: &'a str,
}

impl Around<'_> {
    /// Replaces `{version}`, `{major}` and `{minor}` in a text.
    fn expand(&self, text: &str) -> Result<String, String> {
        let mut parts = self.version.split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Ok(text.replace("{version}", self.version).replace("{major}", major).replace("{minor}", minor))
    }
}

fn read_source(table: &Table<'_, '_>, around: &Around<'_>) -> Option<Source> {
    let kinds = ["go-module", "file"];
    let kind = table.required("kind", "go-module or file", |text| {
        let found = kinds.iter().find(|kind| **kind == text);
        found.copied().ok_or_else(|| format!("`{text}` is not one of {}", kinds.join(", ")))
    });
    match kind {
        Some("file") => {
            Some(Source::File(table.tables("packages", NO_PACKAGES, |package| local_file(package, around))))
        }
        // Most components are built here, so without a kind this one's keys are the likeliest.
        _ => go_module(table, around).map(Source::GoModule),
    }
}

const NO_PACKAGES: &str = "has no packages: give one entry for each program";

fn go_module(table: &Table<'_, '_>, around: &Around<'_>) -> Option<GoModule> {
    if around.go.is_none() {
        table.mistake_here("is built with Go: give a table [go] with its version and sum");
    }
    let directory = |text: &str| Ok(around.directory.join(text));
    let directory = table.required("module", "the directory that holds the go.mod", directory);
    let modfile = table.optional("modfile", any);
    let cgo = table.flag("cgo").unwrap_or_default();
    let what = "the Go modules that the part is made from, its own name for one";
    let upstream = table.required_texts("upstream", what, any);
    let tags = table.texts("tags", |tag| around.expand(tag));
    let ldflags = table.texts("ldflags", |flag| around.expand(flag));
    let packages = table.tables("packages", NO_PACKAGES, |table| {
        let package = table.required("package", "what to hand to go build", |name| upstream::package(name, &upstream));
        let program = program(table);
        Some(GoPackage { package: package?, program: program? })
    });
    let directory = directory?;
    let needed = directory.join(modfile.as_deref().unwrap_or("go.mod"));
    let at = if modfile.is_some() { "modfile" } else { "module" };
    if needed.is_file() {
        let (version, stamp) = (around.of_source, around.version);
        let claims = upstream::Claims { version, stamp, upstream: &upstream, ldflags: &ldflags };
        upstream::check(table, &claims, at, &needed);
    } else {
        table.mistake_at(at, format!("there is no file {}", needed.display()));
    }
    let (tags, ldflags) = (values(tags), values(ldflags));
    let (go, stamped) = (around.go?.clone()?, around.version != around.of_source);
    Some(GoModule { go, directory, modfile, cgo, stamped, tags, ldflags, packages })
}

fn local_file(table: &Table<'_, '_>, around: &Around<'_>) -> Option<LocalFile> {
    let path = table.required("path", "the program's path", |path| {
        let place = around.directory.join(around.expand(path)?);
        if place.is_file() { Ok(place) } else { Err(format!("there is no file {}", place.display())) }
    });
    let sha256 = table.optional("sha256", sha256);
    let program = program(table);
    Some(LocalFile { path: path?, sha256, program: program? })
}

fn program(table: &Table<'_, '_>) -> Option<Program> {
    let file_name = |name: &str| {
        if name.contains('/') || name == "." || name == ".." {
            return Err(format!("`{name}` is no file name"));
        }
        Ok(name.to_owned())
    };
    let output = table.required("output", "the program's file name", file_name);
    let names = table.texts("names", file_name);
    Some(Program { output: output?, names: values(names) })
}

fn sha256(text: &str) -> Result<String, String> {
    if text.len() != 64 || !text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)) {
        return Err("is no SHA-256: give 64 lower-case hexadecimal digits".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str = r#"[go]
version = "1.26.8"
sum = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
[components.part]
version = "1.36.3"
licence = "Apache-2.0"
source = { kind = "go-module", module = "part", upstream = ["example.org/part"], packages = [{ package = "example.org/part", output = "p" }] }
[components.other]
version = "2.0.0"
licence = "Apache-2.0"
source = { kind = "file", packages = [{ path = "program", output = "o" }] }
"#;

    #[test]
    fn a_stamp_is_reported_but_not_checked() {
        let directory = tempfile::tempdir().unwrap();
        let module = directory.path().join("part");
        fs::create_dir(&module).unwrap();
        fs::write(directory.path().join("program"), "").unwrap();
        fs::write(module.join("go.mod"), "module example.net/build\n\nrequire example.org/part v1.36.3\n").unwrap();
        let file = directory.path().join("components.toml");
        let part = |stamp: &str, flag: &str| {
            let stamped = DESCRIPTION.replace("version = \"1.36.3\"\n", &format!("version = \"1.36.3\"\n{stamp}"));
            let flags = format!("ldflags = [\"-X a.gitVersion={flag}\"], packages = [{{ package = \"example");
            fs::write(&file, stamped.replacen("packages = [{ package = \"example", &flags, 1)).unwrap();
            read(&file).map(|components| components.into_iter().find(|component| component.name == "part").unwrap())
        };
        let flags = |component: &Component| match &component.source {
            Source::GoModule(module) => module.ldflags.clone(),
            _ => Vec::new(),
        };
        let own = part("", "v{version}").unwrap();
        assert_eq!((own.version.as_str(), own.version_is_checked()), ("1.36.3", true));
        let stamped = part("stamp = \"1.36.2\"\n", "v{version}").unwrap();
        assert_eq!((stamped.version.as_str(), stamped.version_is_checked()), ("1.36.2", false));
        assert_eq!(
            (flags(&own), flags(&stamped)),
            (vec!["-X a.gitVersion=v1.36.3".into()], vec!["-X a.gitVersion=v1.36.2".into()])
        );
        let mistakes = part("stamp = \"1.36.2\"\n", "v1.36.3").unwrap_err().to_string();
        assert!(mistakes.contains("sets a.gitVersion to v1.36.3, but by the version it is 1.36.2"), "{mistakes}");
    }

    #[test]
    fn components_edited_during_the_build_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (file, module) = (directory.path().join("components.toml"), directory.path().join("part"));
        fs::create_dir(&module).unwrap();
        fs::write(directory.path().join("program"), "").unwrap();
        let require = |version: &str| {
            let text = format!("module example.net/build\n\nrequire example.org/part {version}\n");
            fs::write(module.join("go.mod"), text).unwrap();
        };
        require("v1.36.3");
        fs::write(&file, DESCRIPTION).unwrap();
        let described = read(&file).unwrap();
        let built = |name: &str| {
            let component = described.iter().find(|component| component.name == name).unwrap().clone();
            let key = crate::cache::Key::of(crate::cache::Stage::TOOLS).finish();
            [Built { component, directory: directory.path().to_owned(), key }]
        };
        let part = built("part");
        check_again(&file, &part).unwrap();
        // Another component does not matter to this build.
        fs::write(&file, DESCRIPTION.replace("2.0.0", "2.0.1")).unwrap();
        check_again(&file, &part).unwrap();

        require("v1.36.4");
        let error = format!("{:#}", check_again(&file, &part).unwrap_err());
        assert!(error.contains("was changed during the build") && error.contains("v1.36.4"), "{error}");
        require("v1.36.3");
        fs::write(&file, DESCRIPTION).unwrap();
        // The program that was copied from a file of the host.
        fs::write(directory.path().join("o"), "").unwrap();
        check_again(&file, &built("other")).unwrap();
        fs::write(directory.path().join("program"), "edited").unwrap();
        let error = format!("{:#}", check_again(&file, &built("other")).unwrap_err());
        assert!(error.contains("/program was changed during the build: build again"), "{error}");

        require("v1.36.4");
        fs::write(&file, DESCRIPTION.replace("1.36.3", "1.36.4")).unwrap();
        let error = format!("{:#}", check_again(&file, &part).unwrap_err());
        assert!(error.ends_with("says something else of part than when the build began: build again"), "{error}");
    }
}
