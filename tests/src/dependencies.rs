//! Licences, sources and names of all crates, by the rules in `deny.toml`. `make deny` checks more with cargo-deny, which
//! takes minutes to build.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::places::workspace;

/// One line for each rule that a crate breaks. `tree` has a line `NAME vVERSION (REMARK)|LICENCE` for each crate. The remark is the
/// directory of a workspace member, the URL of a Git repository, `proc-macro` or missing.
fn refusals(rules: &Value, tree: &str) -> Vec<String> {
    let list = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).expect("a list of names") };
    let (licences, banned) = (list(&rules["licenses"]["allow"]), list(&rules["bans"]["deny"]));
    let refusals = tree.lines().flat_map(|line| {
        let (package, licence) = line.split_once('|').expect("a package and its licence");
        let name = package.split(' ').next().unwrap_or_default();
        let is_allowed = Expression::parse_mode(licence, ParseMode::LAX)
            .is_ok_and(|licence| licence.evaluate(|required| licences.contains(&required.to_string())));
        [
            (!is_allowed, format!("{package}: deny.toml does not allow the licence `{licence}`")),
            (package.contains("://"), format!("{package}: not from crates.io")),
            (banned.iter().any(|banned| banned == name), format!("{package}: deny.toml bans it")),
        ]
    });
    refusals.filter_map(|(is_refused, line)| is_refused.then_some(line)).collect()
}

fn rules() -> Value {
    let text = std::fs::read_to_string(workspace().join("deny.toml")).expect("deny.toml");
    toml::from_str(&text).expect("deny.toml is TOML")
}

#[test]
fn every_crate_keeps_the_rules() {
    let rules = rules();
    let target = rules["graph"]["targets"][0].as_str().expect("a target");
    // Unlike `cargo metadata`, `cargo tree` leaves out crates of features that are off.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--locked", "--offline", "--workspace", "--edges=all", "--prefix=none"]);
    let output =
        cargo.args(["--format={p}|{l}", "--target", target]).current_dir(workspace()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    // Other lines are headings such as `[dev-dependencies]`.
    let crates: BTreeSet<&str> =
        lines.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| line.contains('|')).collect();
    assert!(crates.len() > 300, "only {} crates", crates.len());
    let tree: Vec<&str> = crates.into_iter().collect();
    assert_eq!(refusals(&rules, &tree.join("\n")), [""; 0]);
}

#[test]
fn each_rule_refuses_its_crate() {
    let tree = "allowed v1.0.0|GPL-2.0-only OR Apache-2.0/MIT
        ours v0.1.0 (/kaas/ours)|Apache-2.0 WITH LLVM-exception
        copyleft v1.0.0|MIT AND GPL-3.0-only
        unknown v1.0.0|
        elsewhere v1.0.0 (https://localhost/elsewhere#1)|MIT
        openssl v0.10.0 (proc-macro)|MIT";
    let refused = [
        "copyleft v1.0.0: deny.toml does not allow the licence `MIT AND GPL-3.0-only`",
        "unknown v1.0.0: deny.toml does not allow the licence ``",
        "elsewhere v1.0.0 (https://localhost/elsewhere#1): not from crates.io",
        "openssl v0.10.0 (proc-macro): deny.toml bans it",
    ];
    assert_eq!(refusals(&rules(), &tree.replace("        ", "")), refused);
}
