//! The top-level modules of a crate, its rooms, form layers: none uses one above it. The head of `lib.rs` or `main.rs` lists
//! them.

use std::collections::BTreeSet;
use std::fs;

use crate::modules::{defining, sources};
use crate::places::workspace;

const CRATES: [&str; 11] = [
    "agent",
    "contract",
    "controller",
    "fleet",
    "image",
    "kaas",
    "kaas-dev",
    "lab",
    "ova",
    "support-bundle",
    "vsphere",
];

/// The layers from the top down: the block `text` in the head of the root module. Each line has the rooms of a layer. Two
/// spaces separate them from a description.
fn layers(root: &str) -> Vec<Vec<String>> {
    let block = root.lines().skip_while(|line| *line != "//! ```text").skip(1);
    let lines = block.map_while(|line| line.strip_prefix("//! ").filter(|line| *line != "```"));
    let rooms = lines.map(|line| line.split("  ").next().unwrap_or_default());
    rooms.map(|rooms| rooms.split(' ').map(str::to_owned).collect()).collect()
}

#[test]
fn rooms_use_no_room_above_them() {
    let mut calls = Vec::new();
    for name in CRATES {
        let (source, all) = (workspace().join(name).join("src"), sources(&workspace().join(name).join("src")));
        let layers = layers(&fs::read_to_string(source.join(&all[&Vec::new()].file)).unwrap());
        let listed: BTreeSet<&String> = layers.iter().flatten().collect();
        assert_eq!(listed, all.keys().filter_map(|module| module.first()).collect(), "the rooms of {name}");
        let layer = |room: &String| layers.iter().position(|layer| layer.contains(room));
        for (module, said) in &all {
            let Some(own) = module.first().and_then(layer) else { continue };
            // `use crate::*` names every room.
            let is_above = |path: &&Vec<String>| {
                path[..] == ["*"] || defining(path, &all, 8).first().and_then(layer).is_some_and(|used| used < own)
            };
            let above = said.paths.iter().map(|(path, _)| path).filter(is_above);
            calls.extend(above.map(|path| format!("{name}: {} uses {}", said.file, path.join("::"))));
        }
    }
    assert!(calls.is_empty(), "{}", calls.join("\n"));
}

/// An upgrade of Kubernetes uses swaps, and a swap uses nothing of it.
#[test]
fn swap_uses_nothing_of_kubernetes_upgrades() {
    let all = sources(&workspace().join("agent/src"));
    let mut swap =
        all.iter().filter(|(module, _)| module.starts_with(&["upgrade", "swap"].map(str::to_owned))).peekable();
    assert!(swap.peek().is_some());
    for (_, said) in swap {
        let kubernetes = ["upgrade", "kubernetes"].map(str::to_owned);
        let calls = said.paths.iter().find(|(path, _)| path.starts_with(&kubernetes));
        assert!(calls.is_none(), "{}: {calls:?}", said.file);
    }
}
