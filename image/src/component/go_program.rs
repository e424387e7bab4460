//! Reads the metadata of a built Go program: the linked modules and the names of its functions. Both survive
//! `-ldflags=-s -w`. Sources: Go's runtime/debug `BuildInfo` and runtime/symtab.go.

use std::path::Path;

use anyhow::{Context, Result};
use memchr::memmem;

use super::build::Built;

/// The marks around the list of modules (cmd/go/internal/modload, `infoStart` and `infoEnd`).
const START: [u8; 16] =
    [0x30, 0x77, 0xaf, 0x0c, 0x92, 0x74, 0x08, 0x02, 0x41, 0xe1, 0xc1, 0x07, 0xe6, 0xd6, 0x18, 0xe6];
const END: [u8; 16] = [0xf9, 0x32, 0x43, 0x31, 0x86, 0x18, 0x20, 0x72, 0x00, 0x82, 0x42, 0x10, 0x41, 0x16, 0xd8, 0xf2];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    pub path: String,
    /// With the leading v.
    pub version: String,
}

/// The programs of a component that was built from Go modules.
pub fn of(built: &Built) -> Result<Vec<GoProgram>> {
    let programs = built.component.programs().into_iter();
    programs.map(|program| GoProgram::read(&built.directory.join(&program.output))).collect()
}

pub struct GoProgram {
    bytes: Vec<u8>,
    /// The path of the main package. Its functions are named `main.…`.
    main: String,
    /// The linked modules, sorted. A replacement is listed in place of the replaced module. The main module is listed if it
    /// has a version: a program that is built from an upstream's own main package.
    pub modules: Vec<Module>,
}

impl GoProgram {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let (main, modules) =
            modules(&bytes).with_context(|| format!("{} does not list the modules of a Go program", path.display()))?;
        Ok(Self { bytes, main, modules })
    }

    /// Whether the table of functions is readable: without it [`GoProgram::links`] proves nothing.
    pub fn names_functions(&self) -> bool {
        self.finds("runtime.main")
    }

    /// Whether the linker kept a function or method such as `Parse` or `Decoder.Decode` of a package, as its own code or
    /// inlined. Without a symbol: anything of the package. An instance of a generic type counts as all its methods.
    pub fn links(&self, package: &str, symbol: Option<&str>) -> bool {
        let packages = if package == self.main { vec!["main".to_owned()] } else { packages(package) };
        let Some(symbol) = symbol else {
            return packages.iter().any(|package| self.begins(&format!("{package}.")).next().is_some());
        };
        packages.iter().any(|package| match symbol.split_once('.') {
            None => self.finds(&format!("{package}.{symbol}")),
            Some((kind, method)) => [format!("{package}.{kind}"), format!("{package}.(*{kind})")].iter().any(|kind| {
                let generic = kind.replace(')', "");
                self.finds(&format!("{kind}.{method}")) || self.begins(&format!("{generic}[")).next().is_some()
            }),
        })
    }

    /// The bytes after each name that begins so. In the table a zero byte ends each name.
    fn begins<'a>(&'a self, start: &str) -> impl Iterator<Item = u8> + use<'a> {
        let needle = [b"\0", start.as_bytes()].concat();
        let found: Vec<usize> = memmem::find_iter(&self.bytes, &needle).collect();
        found.into_iter().filter_map(move |at| self.bytes.get(at + needle.len()).copied())
    }

    /// Whether a function is named so, or is a part of one such as a closure (`F.func1`) or an instance (`F[...]`).
    fn finds(&self, name: &str) -> bool {
        self.begins(name).any(|next| !next.is_ascii_alphanumeric() && next != b'_')
    }
}

/// A package's path as the names of its functions may begin: the linker writes dots of the last element as %2e.
fn packages(path: &str) -> Vec<String> {
    let (start, last) = path.rsplit_once('/').map_or(("", path), |(start, _)| path.split_at(start.len() + 1));
    if last.contains('.') {
        vec![path.to_owned(), format!("{start}{}", last.replace('.', "%2e"))]
    } else {
        vec![path.to_owned()]
    }
}

/// The main package, and the modules.
fn modules(bytes: &[u8]) -> Option<(String, Vec<Module>)> {
    let start = memmem::find(bytes, &START)? + START.len();
    let length = memmem::find(&bytes[start..], &END)?;
    let text = std::str::from_utf8(&bytes[start..start + length]).ok()?;
    let (mut main, mut modules) = (String::new(), Vec::<Module>::new());
    for line in text.lines() {
        let mut words = line.split('\t');
        let kind = words.next()?;
        let mut word = || words.next().unwrap_or_default().to_owned();
        let module = Module { path: word(), version: word() };
        match kind {
            "path" => main = module.path,
            // A module of our own has no version.
            "mod" if module.version == "(devel)" => {}
            "mod" | "dep" => modules.push(module),
            "=>" => *modules.last_mut()? = module,
            _ => {}
        }
    }
    modules.sort();
    Some((main, modules))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file as the linker writes it, with these lines about modules and these names of functions.
    pub(crate) fn program(lines: &str, functions: &[&str]) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.extend([&START[..], lines.as_bytes(), &END[..], b"\0"].concat());
        functions.iter().for_each(|name| bytes.extend([name.as_bytes(), b"\0"].concat()));
        bytes
    }

    #[test]
    fn a_stripped_program_has_modules_and_functions() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("p");
        let lines = "path\tx\nmod\tx\t(devel)\t\ndep\tb.org/b\tv1.2.0\th1:b=\ndep\ta.org/a\tv1.0.0\n=>\tc.org/c\tv1.1.0\th1:c=\n";
        let functions = [
            "runtime.main",
            "b.org/b.Parse",
            "b.org/b.(*D).Read",
            "b.org/b.Own.func1",
            "c.org/c%2ev2.F[...]",
            "b.org/b.(*G[...]).M",
        ];
        std::fs::write(&file, program(lines, &functions)).unwrap();
        let read = GoProgram::read(&file).unwrap();
        let module = |path: &str, version: &str| Module { path: path.into(), version: version.into() };
        assert_eq!(read.modules, [module("b.org/b", "v1.2.0"), module("c.org/c", "v1.1.0")]);
        assert!(read.names_functions());
        for (package, symbol, expected) in [
            ("b.org/b", Some("Parse"), true),
            ("b.org/b", Some("Pars"), false),
            ("b.org/b", Some("D.Read"), true),
            ("b.org/b", Some("D.Write"), false),
            ("b.org/b", Some("Own"), true),
            ("b.org/b", Some("G.Other"), true),
            ("b.org/b", None, true),
            ("b.org/b/sub", None, false),
            ("org/b", Some("Parse"), false),
            ("c.org/c.v2", Some("F"), true),
        ] {
            assert_eq!(read.links(package, symbol), expected, "{package} {symbol:?}");
        }
        let upstream = "path\tb.org/b/cmd\nmod\tb.org/b\tv1.2.0\th1:b=\n";
        std::fs::write(&file, program(upstream, &["runtime.main", "main.Parse"])).unwrap();
        let read = GoProgram::read(&file).unwrap();
        assert_eq!(read.modules, [module("b.org/b", "v1.2.0")]);
        assert!(read.links("b.org/b/cmd", Some("Parse")) && !read.links("b.org/b/cmd", Some("Other")));
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(GoProgram::read(&file).is_err());
    }
}
