//! The rooms of a crate form layers: none calls one above it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::sources;
use crate::places::workspace;

const AGENT: [&str; 10] =
    ["host", "intake", "system", "cluster", "status", "upgrade", "node", "maintenance", "boot", "faces"];

const CONTROLLER: [&str; 10] =
    ["objects", "records", "decisions", "documents", "term", "reach", "leadership", "context", "reconcilers", "run"];

/// The rooms of each crate from the ground up, as its `lib.rs` lists them.
const CRATES: [(&str, &[&str]); 4] =
    [("agent", &AGENT), ("controller", &CONTROLLER), ("kube-rest", &["status", "list"]), ("tls-pin", &[])];

fn source(name: &str) -> PathBuf {
    workspace().join(name).join("src")
}

#[test]
fn no_room_calls_one_above_it() {
    let calls: Vec<String> = CRATES.iter().flat_map(|(name, rooms)| calls_upwards(&source(name), rooms)).collect();
    assert!(calls.is_empty(), "{}", calls.join("\n"));
}

fn calls_upwards(source: &Path, rooms: &[&str]) -> Vec<String> {
    let mut calls = Vec::new();
    let all = sources(source);
    for (floor, room) in rooms.iter().enumerate() {
        let files: Vec<_> = all.iter().filter(|(module, _)| module.first().is_some_and(|name| name == room)).collect();
        assert!(!files.is_empty(), "{room} is empty");
        for (_, said) in files {
            // A glob of the root names every room.
            let is_above = |name: &String| name == "*" || rooms[floor + 1..].contains(&name.as_str());
            let above = said.paths.iter().map(|(path, _)| path).filter(|path| path.first().is_some_and(is_above));
            calls.extend(above.map(|path| format!("{} calls {}", said.file, path.join("::"))));
        }
    }
    calls
}

#[test]
fn every_room_has_its_floor() {
    for (name, rooms) in CRATES {
        for entry in fs::read_dir(source(name)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let room = name.strip_suffix(".rs").unwrap_or(&name);
            assert!(rooms.contains(&room) || ["fuzz", "lib", "main", "tests"].contains(&room), "{name}");
        }
    }
}

/// An upgrade of Kubernetes rests on swaps, and a swap on nothing of it.
#[test]
fn swap_uses_nothing_of_kubernetes_upgrades() {
    let all = sources(&source("agent"));
    let mut swap =
        all.iter().filter(|(module, _)| module.starts_with(&["upgrade", "swap"].map(str::to_owned))).peekable();
    assert!(swap.peek().is_some());
    for (_, said) in swap {
        let kubernetes = ["upgrade", "kubernetes"].map(str::to_owned);
        let calls = said.paths.iter().find(|(path, _)| path.starts_with(&kubernetes));
        assert!(calls.is_none(), "{}: {calls:?}", said.file);
    }
}
