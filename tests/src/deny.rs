//! Tests of `.ci/deny` with a stand-in for cargo: what it takes for checked, and what not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::scenario::workspace;

/// Installs as `install` says, knows its crates once they are fetched, and reaches no database.
const CARGO: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$1 $2" in
"install "*)
    [ ! -s "$here/install" ] || { cat "$here/install" >&2; exit 101; }
    while [ "$1" != --root ]; do shift; done
    mkdir -p "$2/bin" && cp "$0" "$2/bin/cargo-deny" ;;
"fetch "*) touch "$here/fetched" ;;
"deny "*)
    case "$*" in
    *"fetch db") exit 1 ;;
    *--offline*) [ -e "$here/fetched" ] || { echo "no crates here" >&2; exit 1; }; echo "licenses ok" ;;
    esac ;;
esac
"#;

/// What the script says and whether it ends well, when the installation fails with these words; without any it works.
fn deny(install: &str, strict: bool) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, CARGO).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("install"), install).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut script = Command::new(workspace().join(".ci/deny"));
    script.arg(folder.path().join("cache")).args(strict.then_some("--strict")).env("PATH", path);
    let output = script.output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
}

#[test]
fn an_installation_that_fails_here_is_not_taken_for_one_that_cannot_be_had() {
    for strict in [false, true] {
        let (said, well) = deny("error: failed to compile `cargo-deny v0.20.2`: linker `cc` not found", strict);
        assert!(!well && said.contains("linker `cc` not found"), "{said}");
        let (said, well) =
            deny("error: failed to download\n  failed to verify the checksum of `semver v1.0.0`", strict);
        assert!(!well, "{said}");
    }
}

#[test]
fn what_was_not_checked_passes_but_for_strict() {
    for absent in [
        "error: could not find `cargo-deny` in registry `crates-io` with version `=0.20.2`",
        "error: failed to download from a registry\n\nCaused by:\n  [6] Could not resolve hostname",
    ] {
        let (said, well) = deny(absent, false);
        assert!(well && said.contains("NOT CHECKED"), "{said}");
        let (said, well) = deny(absent, true);
        assert!(!well && said.contains("NOT CHECKED"), "{said}");
    }
    let (said, well) = deny("", false);
    assert!(well && said.contains("licenses ok") && said.contains("weaknesses are not checked"), "{said}");
    let (said, well) = deny("", true);
    assert!(!well && said.contains("weaknesses are not checked"), "{said}");
}
