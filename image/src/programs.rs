//! Checks of a complete tree's programs. Only programs in the spec's list run with another user's rights. Each script has
//! its interpreter, and each program its libraries. Updates of packages cannot change that unnoticed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::elf;
use crate::spec::Files;
use crate::tree::{Content, Kind, Node, Tree};

/// Set-user-ID and set-group-ID (chmod(2)). The latter is harmless on a directory.
const SET_ID: u32 = 0o6000;

/// Longest first line of a script, in bytes (execve(2), interpreter scripts).
const FIRST_LINE: u64 = 256;

/// Bytes at the start of an ELF file that have its program headers, which follow the file's header.
const ELF_HEADERS: u64 = 4096;

/// Longest chain of symbolic links (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Clears the bits of the spec's list, and checks the rest. The error has all problems with their remedies, one per
/// line.
pub fn settle(tree: &mut Tree, files: &Files) -> Result<()> {
    let mut wrong = Vec::new();
    for path in &files.clear_set_id {
        match tree.get(path).filter(|node| is_set_id(node)).cloned() {
            Some(node) => tree.insert(Path::new(path), Node { mode: node.mode & !SET_ID, ..node }),
            None => wrong.push(format!(
                "files.clear-set-id: {path} is no set-user-ID or set-group-ID program: take it out of the list"
            )),
        }
    }
    for path in files.set_id.iter().filter(|path| !tree.get(path).is_some_and(is_set_id)) {
        wrong.push(format!("files.set-id: {path} is no set-user-ID or set-group-ID program: take it out of the list"));
    }
    let listed = |path: &Path| files.set_id.iter().any(|listed| Path::new("/").join(path) == Path::new(listed));
    for (path, node) in tree.iter().filter(|(path, node)| is_set_id(node) && !listed(path)) {
        wrong.push(format!(
            "/{} has mode {:04o} and owner {}:{}: every user who starts it gets those rights. If the image does not need it, add \
             it to files.leave-out; if only root needs it, to files.clear-set-id; if others do, to files.set-id",
            path.display(),
            node.mode,
            node.uid,
            node.gid
        ));
    }
    wrong.extend(orphans(tree)?);
    wrong.extend(incomplete(tree)?);
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

fn is_set_id(node: &Node) -> bool {
    matches!(node.kind, Kind::File(_)) && node.mode & SET_ID != 0
}

/// The scripts whose interpreter is not in the tree.
fn orphans(tree: &Tree) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (path, node) in tree.iter() {
        let Kind::File(content) = &node.kind else { continue };
        if node.mode & 0o111 == 0 {
            continue;
        }
        let start = start(content, FIRST_LINE).with_context(|| format!("reading {} of the tree", path.display()))?;
        let Some(interpreter) = interpreter(&start) else { continue };
        if !is_program(tree, &interpreter) {
            found.push(format!(
                "/{} is a script for {}, which is not in the image: add it to files.leave-out, or bring the interpreter in",
                path.display(),
                interpreter.display()
            ));
        }
    }
    Ok(found)
}

/// The programs and libraries that need a library which the tree does not have under any path. Some find it in a directory
/// of their package.
fn incomplete(tree: &Tree) -> Result<Vec<String>> {
    let is_file = |path: &Path| matches!(target(tree, path), Some(Node { kind: Kind::File(_), .. }));
    let paths = tree.iter().map(|(path, _)| path).filter(|path| is_file(path));
    let names: BTreeSet<&OsStr> = paths.filter_map(Path::file_name).collect();
    let mut found = Vec::new();
    for (path, node) in tree.iter() {
        let Kind::File(content) = &node.kind else { continue };
        let reading = || format!("reading {} of the tree", path.display());
        // The largest programs are static: they are not read.
        if !elf::is_dynamic(&start(content, ELF_HEADERS).with_context(reading)?) {
            continue;
        }
        let needed = elf::needed(&content.read().with_context(reading)?).with_context(reading)?;
        for library in needed.iter().filter(|library| !names.contains(OsStr::new(library.as_str()))) {
            found.push(format!(
                "/{} needs the library {library}, which is not in the image: add it to files.leave-out, or bring the \
                 library in",
                path.display()
            ));
        }
    }
    Ok(found)
}

/// The first bytes of a file.
fn start(content: &Content, length: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    content.open()?.take(length).read_to_end(&mut start)?;
    Ok(start)
}

/// The interpreter in a script's first line. With `env`, the program that it looks for.
fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let program = Path::new(words.next()?);
    match words.find(|word| !word.starts_with('-')) {
        Some(word) if program.ends_with("bin/env") => Some(Path::new("/usr/bin").join(word)),
        _ => Some(program.to_owned()),
    }
}

/// Whether a path leads to a program, also through links.
fn is_program(tree: &Tree, path: &Path) -> bool {
    matches!(target(tree, path), Some(Node { kind: Kind::File(_), mode, .. }) if mode & 0o111 != 0)
}

/// The node that a path leads to, also through links.
fn target<'t>(tree: &'t Tree, path: &Path) -> Option<&'t Node> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let link = place.ancestors().find_map(|above| match tree.get(above).map(|node| &node.kind) {
            Some(Kind::Link(target)) => Some((above.to_owned(), target)),
            _ => None,
        });
        let Some((link, target)) = link else {
            return tree.get(&place);
        };
        let rest = place.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
        place = link.parent().unwrap_or(Path::new("/")).join(target);
        if !rest.as_os_str().is_empty() {
            place = place.join(rest);
        }
        place = normal(&place);
    }
    None
}

/// Resolves `.` and `..`, which paths of the tree do not have.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(tree: &mut Tree, path: &str, mode: u32, text: &str) {
        tree.file(path, Content::Bytes(text.into()), mode);
    }

    /// A tree like Debian's: merged /usr, sudo, mount and a shell.
    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.link("/bin", "usr/bin");
        program(&mut tree, "/usr/bin/dash", 0o755, "\x7fELF");
        tree.link("/usr/bin/sh", "dash");
        program(&mut tree, "/usr/bin/mawk", 0o755, "\x7fELF");
        tree.link("/etc/alternatives/awk", "/usr/bin/mawk");
        tree.link("/usr/bin/awk", "../../etc/alternatives/awk");
        program(&mut tree, "/usr/bin/sudo", 0o4755, "\x7fELF");
        program(&mut tree, "/usr/bin/mount", 0o4755, "\x7fELF");
        for (name, line) in
            [("sh", "#!/bin/sh"), ("awk", "#! /usr/bin/awk -f"), ("env", "#!/usr/bin/env -S awk"), ("none", "echo")]
        {
            program(&mut tree, &format!("/usr/bin/script.{name}"), 0o755, &format!("{line}\n"));
        }
        tree.insert(Path::new("var/mail"), Node { kind: Kind::Directory, mode: 0o2775, uid: 0, gid: 8 });
        tree
    }

    fn files(set_id: &[&str], clear: &[&str]) -> Files {
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        Files {
            workspace: PathBuf::new(),
            agent: PathBuf::new(),
            programs: Vec::new(),
            systemd: PathBuf::new(),
            roots: Vec::new(),
            authorities: Vec::new(),
            leave_out: Vec::new(),
            set_id: list(set_id),
            clear_set_id: list(clear),
            mount_points: Vec::new(),
            links: Vec::new(),
        }
    }

    /// The errors of a tree with sudo and mount in the list.
    fn settled(tree: &mut Tree) -> String {
        let result = settle(tree, &files(&["/usr/bin/sudo"], &["/usr/bin/mount"]));
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn only_listed_programs_keep_set_id_bits() {
        let mut tree = tree();
        assert_eq!(settled(&mut tree), "");
        assert_eq!(tree.get("/usr/bin/mount").unwrap().mode, 0o755);
        assert_eq!(tree.get("/usr/bin/sudo").unwrap().mode, 0o4755);
        assert_eq!(tree.get("var/mail").unwrap().mode, 0o2775);
    }

    #[test]
    fn an_unlisted_program_is_named_with_remedies() {
        for (mode, shown) in [(0o4755, "4755"), (0o2755, "2755"), (0o6711, "6711")] {
            let mut tree = tree();
            program(&mut tree, "/usr/bin/pkexec", mode, "\x7fELF");
            let wrong = settled(&mut tree);
            assert!(wrong.starts_with(&format!("/usr/bin/pkexec has mode {shown} and owner 0:0")), "{wrong}");
            assert!(wrong.contains("files.leave-out") && wrong.contains("files.set-id"), "{wrong}");
        }
    }

    #[test]
    fn an_entry_for_no_program_is_a_mistake() {
        let error =
            settle(&mut tree(), &files(&["/usr/bin/sudo", "/usr/bin/dash"], &["/usr/bin/mount", "/usr/bin/su"]));
        let error = error.unwrap_err().to_string();
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(error.contains("files.set-id: /usr/bin/dash is no"), "{error}");
        assert!(error.contains("files.clear-set-id: /usr/bin/su is no"), "{error}");
    }

    #[test]
    fn a_script_without_its_interpreter_is_named() {
        for line in ["#!/usr/bin/perl -w", "#! /usr/bin/env perl", "#!/bin/perl"] {
            let mut tree = tree();
            program(&mut tree, "/usr/sbin/adduser", 0o755, &format!("{line}\nexit;\n"));
            let wrong = settled(&mut tree);
            assert!(wrong.starts_with("/usr/sbin/adduser is a script for /"), "{wrong}");
            assert!(wrong.contains("bin/perl, which is not in the image"), "{wrong}");
            // A script that is not executable is no program.
            tree.remove(Path::new("usr/sbin/adduser"));
            program(&mut tree, "/usr/share/doc/example.pl", 0o644, line);
            assert_eq!(settle(&mut tree, &files(&["/usr/bin/sudo"], &[])).map_err(|error| error.to_string()), Ok(()));
        }
    }

    #[test]
    fn a_program_without_its_library_is_named() {
        let mut tree = tree();
        // This test is linked with the C library.
        tree.file("/usr/bin/own", Content::Host(std::env::current_exe().unwrap()), 0o755);
        for library in ["ld-linux-x86-64.so.2", "libgcc_s.so.1", "libm.so.6"] {
            tree.text(&format!("/usr/lib/own/{library}"), "library");
        }
        tree.link("/usr/lib/libc.so.6", "libc-2.so");
        let wrong = settled(&mut tree);
        assert!(wrong.starts_with("/usr/bin/own needs the library libc.so.6, which is not in the image"), "{wrong}");
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        tree.text("/usr/lib/libc-2.so", "library");
        settle(&mut tree, &files(&["/usr/bin/sudo"], &[])).unwrap();
    }

    #[test]
    fn circular_links_lead_to_no_program() {
        let mut tree = tree();
        tree.link("/usr/bin/a", "b");
        tree.link("/usr/bin/b", "a");
        assert!(!is_program(&tree, Path::new("/usr/bin/a")));
    }
}
