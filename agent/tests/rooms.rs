//! The agent's rooms stand on each other: none calls one above it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up, as `lib.rs` draws them.
const ROOMS: [&str; 10] =
    ["host", "intake", "system", "cluster", "status", "upgrade", "node", "maintenance", "boot", "faces"];

/// All sources in a room but tests: those may take their fixtures from anywhere.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
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

/// Whether a line names the room: `crate::room::…`, `crate::room;` or in a group `crate::{room, …}`.
fn names(line: &str, room: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let straight = line.split("crate::").skip(1).any(|rest| rest.strip_prefix(room).is_some_and(ends));
    let grouped = line.split_once("crate::{").is_some_and(|(_, group)| {
        group.split(['{', ',', '}']).any(|entry| entry.trim().strip_prefix(room).is_some_and(ends))
    });
    straight || grouped
}

#[test]
fn a_call_is_seen_however_it_is_written() {
    for line in ["use crate::boot::run;", "use crate::boot;", "use crate::{files, boot};", "crate::boot::run()"] {
        assert!(names(line, "boot"), "{line}");
    }
    for line in ["use crate::booted::x;", "use super::boot;", "use crate::host::{boot_time, files};"] {
        assert!(!names(line, "boot"), "{line}");
    }
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
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                let above = ROOMS[floor + 1..].iter().find(|above| names(line, above));
                if let Some(above) = above {
                    calls.push(format!("{} calls {above}: {}", file.display(), line.trim()));
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
        assert!(ROOMS.contains(&name.as_str()) || ["lib.rs", "main.rs"].contains(&name.as_str()), "{name}");
    }
}
