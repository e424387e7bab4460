//! No files import each other in a circle, in any crate: each can be read and tested above those that it uses.
//! Only the file of a module may be used by files below it, as items of a block are used within the block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::modules::{Module, defining, sources};
use crate::places::workspace;

/// The circles: of each the files, and which others of it they use.
fn circles(source: &Path) -> BTreeSet<Vec<String>> {
    let all = sources(source);
    let uses: BTreeMap<&Module, BTreeSet<Module>> = all
        .iter()
        .map(|(module, said)| {
            // A re-export is no use.
            let used = said.paths.iter().filter(|(_, is_public)| !is_public).map(|(path, _)| defining(path, &all, 8));
            (module, used.filter(|used| !module.starts_with(used)).collect())
        })
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = uses.keys().map(|from| (*from, reach(from, &uses))).collect();
    let mut circles = BTreeSet::new();
    for (module, seen) in &reached {
        let circle: BTreeSet<&Module> =
            seen.iter().filter(|other| reached[*other].contains(*module)).copied().collect();
        let line = |file: &&Module| {
            let used = uses[*file].iter().filter(|used| circle.contains(used)).map(|used| &*all[used].file);
            format!("{} uses {}", all[*file].file, used.collect::<Vec<_>>().join(", "))
        };
        circles.extend((!circle.is_empty()).then(|| circle.iter().map(line).collect()));
    }
    circles
}

/// All that a module uses, directly or through others.
fn reach<'m>(from: &'m Module, uses: &'m BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<&'m Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(uses[next].iter().filter(|used| seen.insert(*used)));
    }
    seen
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let (mut looked_at, mut found) = (0, String::new());
    for package in fs::read_dir(workspace()).unwrap().map(|entry| entry.unwrap().path()) {
        let source = package.join("src");
        if !package.join("Cargo.toml").is_file() || !source.is_dir() {
            continue;
        }
        looked_at += 1;
        for circle in circles(&source) {
            found += &format!("\n{}:\n  {}", source.display(), circle.join("\n  "));
        }
    }
    assert!(looked_at >= 10, "only {looked_at} crates were looked at");
    assert!(found.is_empty(), "these files import each other:{found}");
}

#[test]
fn a_circle_is_seen_directly_and_through_others() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(directory.path().join(file), text).unwrap();
    fs::create_dir(directory.path().join("d")).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod d;\npub use d::Deep;\n");
    write("a.rs", "use super::b::go;\n");
    write("b.rs", "use crate::Deep;\n");
    write("d/mod.rs", "mod below;\npub use below::Deep;\npub struct Shared;\n");
    // It may use what the module above it defines.
    write("d/below.rs", "use super::Shared;\n");
    assert!(circles(directory.path()).is_empty());
    write("d/below.rs", "use crate::a::go;\n");
    let expected = ["a.rs uses b.rs", "b.rs uses d/below.rs", "d/below.rs uses a.rs"].map(str::to_owned).to_vec();
    assert_eq!(circles(directory.path()), BTreeSet::from([expected]));
}
