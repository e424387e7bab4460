//! Which modules of a crate name which others, as their sources say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A module: the names that lead to it from the crate's root.
pub type Module = Vec<String>;

/// The content of a module's file, without its tests.
pub struct Source {
    /// Below the crate's `src`.
    pub file: String,
    /// Each path within the crate that it names, and whether it hands it on to others (`pub use`).
    pub paths: Vec<(Module, bool)>,
}

/// All files of a crate but tests: those may take their fixtures from anywhere. `source` is the crate's `src`.
pub fn sources(source: &Path) -> BTreeMap<Module, Source> {
    let root = ["lib.rs", "main.rs"].map(|root| source.join(root)).into_iter().find(|root| root.is_file()).unwrap();
    let mut found = BTreeMap::new();
    add(source, &root, source, &[], &mut found);
    found
}

/// Adds the file of a module, and those of its modules in `directory`.
fn add(source: &Path, file: &Path, directory: &Path, module: &[String], found: &mut BTreeMap<Module, Source>) {
    let (paths, children) = said(&fs::read_to_string(file).unwrap(), module);
    let named = file.strip_prefix(source).unwrap().to_str().unwrap().to_owned();
    found.insert(module.to_vec(), Source { file: named, paths });
    for child in children {
        let below = directory.join(&child);
        let file = [below.with_extension("rs"), below.join("mod.rs")].into_iter().find(|file| file.is_file());
        if let Some(file) = file {
            add(source, &file, &below, &[module, &[child]].concat(), found);
        }
    }
}

/// The paths that the code of a module names, and the modules that it declares.
pub fn said(text: &str, module: &[String]) -> (Vec<(Module, bool)>, Vec<String>) {
    let statements = statements(&without_tests(text));
    let declared = statements.iter().filter_map(|statement| bare(statement).strip_prefix("mod ")?.strip_suffix(';'));
    let children: Vec<String> = declared.map(str::to_owned).collect();
    let mut paths = Vec::new();
    for statement in &statements {
        let bare = bare(statement);
        let (named, is_public) = match bare.strip_prefix("use ") {
            Some(tree) => {
                let mut spelled = Vec::new();
                spread(tree.trim_end_matches(';'), "", &mut spelled);
                (spelled, bare.len() < statement.len())
            }
            None => (spelled_out(statement), false),
        };
        let within = named.iter().filter_map(|path| absolute(path, module, &children));
        paths.extend(within.map(|path| (path, is_public)));
    }
    (paths, children)
}

/// Code without comments, and without items for tests only.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") {
            code += line.split(" // ").next().unwrap();
            code.push('\n');
            continue;
        }
        // The item that it is for: to the `;` of a declaration, or to the brace that closes it, as far in as it is.
        let margin = line.len() - line.trim_start().len();
        for line in lines.by_ref() {
            let is_its = line.len() - line.trim_start().len() == margin;
            let ends = line.ends_with(';') || line.ends_with(',') || line.trim_end().ends_with('}');
            if is_its && ends && !line.trim_start().starts_with('#') {
                break;
            }
        }
    }
    code
}

/// Each `use` and `mod` as one line, and all else line by line.
fn statements(code: &str) -> Vec<String> {
    let (mut said, mut open) = (Vec::new(), String::new());
    for line in code.lines().map(str::trim) {
        if open.is_empty() && !bare(line).starts_with("use ") {
            said.push(line.to_owned());
            continue;
        }
        open += line;
        if open.ends_with(';') {
            said.push(std::mem::take(&mut open));
        }
    }
    said
}

/// A statement without its visibility.
fn bare(statement: &str) -> &str {
    let Some(rest) = statement.strip_prefix("pub") else { return statement };
    match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(statement, |(_, rest)| rest),
        None => rest.strip_prefix(' ').unwrap_or(statement),
    }
}

/// Adds the paths of a `use` tree below `stem`.
fn spread(tree: &str, stem: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        paths.extend((!tree.is_empty()).then(|| format!("{stem}{tree}")));
        return;
    };
    let stem = format!("{stem}{}", head.trim());
    let (mut depth, mut begin) = (0, 0);
    for (at, sign) in group.char_indices() {
        match sign {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                spread(&group[begin..at], &stem, paths);
                begin = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The paths within a line of code, but for visibilities.
fn spelled_out(line: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = line.split("in crate::").flat_map(|part| part.split(|c| !is_path(c)));
    words.filter(|word| word.contains("::")).map(str::to_owned).collect()
}

/// A path from the crate's root; none if it leads to another crate.
fn absolute(path: &str, module: &[String], children: &[String]) -> Option<Module> {
    let path = path.split(" as ").next().unwrap();
    let mut names = path.split("::").map(str::to_owned).peekable();
    let mut from = match names.peek()?.as_str() {
        "crate" => {
            names.next();
            Vec::new()
        }
        "self" | "super" => module.to_vec(),
        name if children.iter().any(|child| child == name) => module.to_vec(),
        _ => return None,
    };
    for name in names {
        match &*name {
            "self" => {}
            "super" => drop(from.pop()),
            _ => from.push(name),
        }
    }
    Some(from)
}

/// The module whose file defines what a path names: what a module hands on is followed to where it comes from.
pub fn defining(path: &[String], all: &BTreeMap<Module, Source>, steps: usize) -> Module {
    let depth = (0..=path.len()).rev().find(|depth| all.contains_key(&path[..*depth])).unwrap();
    let (module, rest) = path.split_at(depth);
    let handed_on = all[module]
        .paths
        .iter()
        .find(|(from, is_public)| *is_public && from.last() == rest.first() && !rest.is_empty() && from[..] != *path);
    match handed_on {
        Some((from, _)) if steps > 0 => defining(&[from, &rest[1..]].concat(), all, steps - 1),
        _ => module.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(code: &str) -> Vec<String> {
        let module = ["node", "endpoint"].map(str::to_owned);
        said(code, &module).0.into_iter().map(|(path, _)| path.join("::")).collect()
    }

    #[test]
    fn a_path_is_seen_however_it_is_written() {
        for code in [
            "use crate::boot::run;",
            "use crate::{files, boot::run};",
            "pub(crate) use crate::{\n    boot::run as other,\n};",
            "crate::boot::run()",
            "let a = [crate::boot::run(1), 2];",
            "use crate::{\n    host::{self, files},\n    // Why.\n    boot::{self, run},\n};",
            "use crate::{\n    files, // Why: a reason.\n    boot::run,\n};",
            "use super::super::boot::run;",
            "super::super::boot::run()",
            "use super::{\n    files,\n    super::boot::run,\n};",
            "use super::super::super::boot::run;",
            "pub state: u8, // in use by\ncrate::boot::run()\nuse crate::host;",
            "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\nuse crate::boot::run;",
            "#[cfg(test)]\n#[path = \"tests/a.rs\"]\nmod tests;\nuse crate::boot::run;",
        ] {
            assert!(named(code).contains(&"boot::run".to_owned()), "{code}: {:?}", named(code));
        }
        for code in [
            "use crate::booted::run;",
            "use super::boot::run;",
            "use boot::run;",
            "pub(in crate::boot::run) fn a()",
            "// use crate::boot::run;",
            "#[cfg(test)]\nmod tests {\n    use crate::boot::run;\n}",
            "#[cfg(test)]\nuse crate::boot::run;",
        ] {
            assert!(!named(code).contains(&"boot::run".to_owned()), "{code}: {:?}", named(code));
        }
        // A module's own modules are named without a root.
        assert_eq!(named("mod boot;\nuse boot::run;"), ["node::endpoint::boot::run"]);
        assert_eq!(named("use crate::*;"), ["*"]);
    }

    #[test]
    fn re_exported_item_is_defined_in_its_module() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(directory.path().join(file), text).unwrap();
        write("lib.rs", "mod a;\nmod b;\npub use a::Thing;\n");
        write("a.rs", "pub struct Thing;\n");
        write("b.rs", "use crate::Thing;\n");
        let all = sources(directory.path());
        let path = &all[&["b".to_owned()][..]].paths[0].0;
        assert_eq!(defining(path, &all, 8), ["a"]);
    }
}
