//! Commands in messages name their lab. An operator who copies one then changes the intended lab only.

use std::fs;
use std::path::{Path, PathBuf};

/// Commands that create a lab and do nothing to an existing one, or that use no lab.
const MAKES: [&str; 4] = ["up", "tenant up", "vcenter up", "example three"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("named_commands_tests.rs")
        {
            found.push(path);
        }
    }
}

/// The commands on labs in the strings of a source.
fn commands(source: &str) -> Vec<String> {
    let is_comment = |line: &&str| line.trim_start().starts_with("//");
    let code: Vec<&str> = source.lines().filter(|line| !is_comment(line)).collect();
    // A string continues in the next line.
    let joined = code.join("\n").split("\\\n").map(str::trim_start).collect::<String>();
    let told = joined.split('`').skip(1).filter_map(|told| told.strip_prefix("kaas-dev lab "));
    told.map(str::to_owned).collect()
}

#[test]
fn commands_in_messages_name_their_lab() {
    let mut all = Vec::new();
    for crate_of in ["lab", "kaas", "kaas-dev", "fleet"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_of).join("src"), &mut all);
    }
    let mut seen = 0;
    for path in &all {
        for command in commands(&fs::read_to_string(path).unwrap()) {
            seen += 1;
            let is_named = command.contains("--name") || command.contains("--lab");
            assert!(is_named || MAKES.contains(&command.trim()), "{}: {command}", path.display());
        }
    }
    assert!(seen > 10, "{seen} are found");
}

#[test]
fn commands_are_found_in_strings_only() {
    let source =
        "// `kaas-dev lab off x`\nfn f() { bail!(\"first `kaas-dev lab \\\n    off {vm}`, then `kaas-dev lab up`\") }";
    assert_eq!(commands(source), ["off {vm}", "up"]);
}
