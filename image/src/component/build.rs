//! Makes the programs of a component, whatever its kind of source.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Component, GoModule, Source, go, toolchain};
use crate::cache::{Cache, Key, Stage, file_digest};
use crate::progress::Progress;
use crate::tools::ToolsTree;

/// A component whose programs are made.
#[derive(Clone, Debug)]
pub struct Built {
    pub component: Component,
    /// The directory with its programs and their further names.
    pub directory: PathBuf,
    /// The inputs that decided its bytes.
    pub key: Key,
}

/// Builds the programs of a component, or finds them in the cache. `tools` has the C compiler for Go programs with parts in C.
///
/// # Errors
/// When its source cannot be fetched or does not build.
pub fn build(component: &Component, tools: Option<&ToolsTree>, cache: &Cache, progress: &Progress) -> Result<Built> {
    let key = key(component, tools.map(ToolsTree::key))?;
    let named = format!("components {}", component.name);
    let directory = cache.stage_named(&named, &key, progress, |directory| {
        make(component, tools, directory, cache, progress)
            .with_context(|| format!("building {} {}", component.name, component.version))
    })?;
    Ok(Built { component: component.clone(), directory, key })
}

/// Whether the programs of a component are made already.
///
/// # Errors
/// When its source cannot be read.
pub fn is_made(component: &Component, tools: Option<&ToolsTree>, cache: &Cache) -> Result<bool> {
    Ok(cache.has(&key(component, tools.map(ToolsTree::key))?))
}

fn key(component: &Component, compiler: Option<&Key>) -> Result<Key> {
    let key = Key::of(Stage::COMPONENTS).text("name", &component.name).text("version", &component.version);
    let key = match &component.source {
        Source::GoModule(module) => {
            let GoModule { go, directory, modfile, cgo, stamped: _, tags, ldflags, packages } = module;
            let key = key
                .text("go", &go.version)
                .text("go sum", &go.sum)
                .text("module", format!("{modfile:?} {tags:?} {ldflags:?} {packages:?}"))
                .directory("source", directory)?;
            match compiler.filter(|_| *cgo) {
                Some(compiler) => key.key("C compiler", compiler),
                None => key,
            }
        }
        Source::File(files) => {
            let mut key = key;
            for file in files {
                let digest = file_digest(&file.path)?;
                if let Some(expected) = file.sha256.as_ref().filter(|expected| **expected != digest) {
                    bail!("{} has SHA-256 {digest}, not {expected}", file.path.display());
                }
                key = key.text("file", digest).text("as", format!("{:?}", file.program));
            }
            key
        }
    };
    Ok(key.finish())
}

fn make(
    component: &Component,
    tools: Option<&ToolsTree>,
    directory: &Path,
    cache: &Cache,
    progress: &Progress,
) -> Result<()> {
    match &component.source {
        Source::GoModule(module) => {
            let go = toolchain::ensure(&module.go, cache, progress)?;
            go::build(module, &go, tools, directory, cache, progress)?;
        }
        Source::File(files) => {
            for file in files {
                let place = directory.join(&file.program.output);
                fs::copy(&file.path, &place).with_context(|| format!("copying {}", file.path.display()))?;
            }
        }
    }
    for program in component.programs() {
        let place = directory.join(&program.output);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&place, executable).with_context(|| format!("making {} executable", place.display()))?;
        for name in &program.names {
            symlink(&program.output, directory.join(name)).with_context(|| format!("naming {name}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::toolchain::Pin;
    use crate::component::{GoPackage, LocalFile, Program};
    use std::process::Command;

    fn component(path: &Path, sha256: Option<String>) -> Component {
        let program = Program { output: "greet".to_owned(), names: vec!["hello".to_owned()] };
        Component {
            name: "greeter".to_owned(),
            version: "1.0".to_owned(),
            licence: "Apache-2.0".to_owned(),
            source: Source::File(vec![LocalFile { path: path.to_owned(), sha256, program }]),
        }
    }

    #[test]
    fn a_host_file_becomes_a_program() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, progress) = (Cache::at(&directory.path().join("cache")).unwrap(), Progress::silent());
        let file = directory.path().join("greet.sh");
        fs::write(&file, "#!/bin/sh\necho hello\n").unwrap();
        let digest = file_digest(&file).unwrap();

        let built = build(&component(&file, Some(digest)), None, &cache, &progress).unwrap();
        let output = Command::new(built.directory.join("hello")).output().unwrap();
        assert_eq!(output.stdout, b"hello\n");

        // Files that are already in the cache are checked as well.
        let error = build(&component(&file, Some("0".repeat(64))), None, &cache, &progress).unwrap_err();
        assert!(error.to_string().contains("has SHA-256"), "{error:#}");
        fs::write(&file, "#!/bin/sh\necho other\n").unwrap();
        let other = build(&component(&file, None), None, &cache, &progress).unwrap();
        assert_ne!(other.directory, built.directory);
    }
    #[test]
    fn another_go_or_module_makes_other_programs() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("go.mod"), "module m\n").unwrap();
        let module = || GoModule {
            go: Pin { version: "1.26.8".to_owned(), sum: "h1:a".to_owned() },
            directory: directory.path().to_owned(),
            modfile: None,
            cgo: false,
            stamped: false,
            tags: Vec::new(),
            ldflags: Vec::new(),
            packages: Vec::new(),
        };
        let key = |module: GoModule| {
            key(&Component { source: Source::GoModule(module), ..component(Path::new(""), None) }, None).unwrap()
        };
        let first = key(module());
        assert_eq!(key(module()), first);
        let program = Program { output: "p".to_owned(), names: Vec::new() };
        for other in [
            GoModule { go: Pin { version: "1.26.9".to_owned(), ..module().go }, ..module() },
            GoModule { go: Pin { sum: "h1:b".to_owned(), ..module().go }, ..module() },
            GoModule { modfile: Some("1.36.mod".to_owned()), ..module() },
            GoModule { tags: vec!["t".to_owned()], ..module() },
            GoModule { ldflags: vec!["-X".to_owned()], ..module() },
            GoModule { packages: vec![GoPackage { package: ".".to_owned(), program }], ..module() },
        ] {
            assert_ne!(key(other.clone()), first, "{other:?}");
        }
        fs::write(directory.path().join("go.mod"), "module n\n").unwrap();
        assert_ne!(key(module()), first);
    }

    #[test]
    fn another_c_compiler_makes_other_programs() {
        let directory = tempfile::tempdir().unwrap();
        let compilers = ["one", "two"].map(|name| Key::of(Stage::TOOLS).text("name", name).finish());
        let keys = |cgo: bool| {
            let module = GoModule {
                go: Pin::default(),
                directory: directory.path().to_owned(),
                modfile: None,
                cgo,
                stamped: false,
                tags: Vec::new(),
                ldflags: Vec::new(),
                packages: Vec::new(),
            };
            let component = Component { source: Source::GoModule(module), ..component(Path::new(""), None) };
            compilers.each_ref().map(|compiler| key(&component, Some(compiler)).unwrap())
        };
        let [one, two] = keys(true);
        assert_ne!(one, two);
        let [one, two] = keys(false);
        assert_eq!(one, two, "Go alone makes them");
    }
}
