//! The agent's rooms stand on each other: none calls one above it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up, as `lib.rs` draws them.
const ROOMS: [&str; 10] =
    ["host", "intake", "system", "cluster", "status", "upgrade", "node", "maintenance", "boot", "faces"];

/// All sources in a room but tests: those may take their fixtures from anywhere.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_test = ["tests", "fixture", "cuts"].contains(&name.as_str())
            || ["_tests", "_cuts"].iter().any(|end| name.ends_with(end))
            || name.starts_with("fake_");
        if path.is_dir() && !is_test {
            found.extend(sources(&path));
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// What code says: each `use` statement as its paths, written out, and all else line by line.
fn sayings(code: &str) -> Vec<String> {
    let (mut said, mut statement) = (Vec::new(), String::new());
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let bare = line.strip_prefix("pub(").and_then(|rest| Some(rest.split_once(") ")?.1)).unwrap_or(line);
        if statement.is_empty() && !bare.trim_start_matches("pub ").starts_with("use ") {
            said.push(line.to_owned());
            continue;
        }
        statement.push_str(line.split("//").next().unwrap());
        if let Some((whole, _)) = statement.split_once(';') {
            let tree = whole.split_once("use ").unwrap().1;
            spread(tree, "", &mut said);
            statement.clear();
        }
    }
    said
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

/// Whether a saying in a module so far below the crate's root names the room: `crate::room`, or as many `super` as lead
/// to the root. All that stands there names every room.
fn names(saying: &str, depth: usize, room: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_room = |rest: &str| rest.starts_with('*') || rest.strip_prefix(room).is_some_and(ends);
    ["crate::", &"super::".repeat(depth)].into_iter().any(|root| {
        // In a module within the file it takes one more.
        saying.match_indices(root).any(|(at, _)| is_room(saying[at + root.len()..].trim_start_matches("super::")))
    })
}

/// How far below the crate's root the module of a file is, whose path is that below `src`.
fn depth(file: &Path) -> usize {
    file.components().count() - usize::from(file.ends_with("mod.rs"))
}

#[test]
fn a_call_is_seen_however_it_is_written() {
    let sees = |code: &str| sayings(code).iter().any(|saying| names(saying, 2, "boot"));
    for code in [
        "use crate::boot::run;",
        "use crate::boot;",
        "use crate::{files, boot};",
        "pub(crate) use crate::{\n    boot as other,\n};",
        "pub use crate::{\n    boot,\n};",
        "crate::boot::run()",
        "use crate::{\n    host::{self, files},\n    // Why.\n    boot::{self, run},\n};",
        "use crate::{\n    files, // Why: a reason.\n    boot,\n};",
        "use super::super::boot;",
        "super::super::boot::run()",
        "use super::{\n    files,\n    super::boot::run,\n};",
        "use super::super::super::boot;",
        "use crate::*;",
        "pub state: u8, // in use by\ncrate::boot::run()\nuse crate::host;",
    ] {
        assert!(sees(code), "{code}");
    }
    for code in [
        "use crate::booted::x;",
        "use super::boot;",
        "use crate::host::{boot_time, files};",
        "use crate::{\n    host::{self, boot},\n    files,\n};",
        "use crate::files;\nuse super::boot;",
        "use super::*;",
        "// use crate::boot;",
    ] {
        assert!(!sees(code), "{code}");
    }
    assert_eq!(["boot/mod.rs", "boot/run.rs"].map(|file| depth(Path::new(file))), [1, 2]);
}

#[test]
fn no_room_calls_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut calls = Vec::new();
    for (floor, room) in ROOMS.iter().enumerate() {
        let files = sources(&source.join(room));
        assert!(!files.is_empty(), "{room} is empty");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let depth = depth(file.strip_prefix(&source).unwrap());
            for saying in sayings(code) {
                let above = ROOMS[floor + 1..].iter().find(|above| names(&saying, depth, above));
                if let Some(above) = above {
                    calls.push(format!("{} calls {above}: {saying}", file.display()));
                }
            }
        }
    }
    assert!(calls.is_empty(), "{}", calls.join("\n"));
}

#[test]
fn every_room_has_its_floor() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(source).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(ROOMS.contains(&name.as_str()) || ["fuzz.rs", "lib.rs", "main.rs"].contains(&name.as_str()), "{name}");
    }
}

/// An upgrade of Kubernetes rests on swaps, and a swap on nothing of it.
#[test]
fn within_upgrade_kubernetes_stands_above_swap() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&source.join("upgrade/swap"));
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let depth = depth(file.strip_prefix(&source).unwrap());
        let calls = sayings(&text).into_iter().find(|saying| {
            // From the crate's root, or from the room.
            names(saying, depth, "upgrade::kubernetes")
                || saying.contains(&format!("{}kubernetes", "super::".repeat(depth - 1)))
        });
        assert_eq!(calls, None, "{}", file.display());
    }
}
