//! Tests of `.ci/deny` with a fake cargo.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::places::workspace;

/// A fake of cargo and of cargo-deny. The files `install`, `check` and `database` have the errors that it prints. Without the
/// file `database`, the database of known weaknesses cannot be reached.
const CARGO: &str = r#"#!/bin/sh
here=$(dirname "$0")
fails() { [ ! -s "$1" ] || { cat "$1" >&2; exit "$2"; }; }
case "$1 $2" in
"--version ") echo "cargo-deny 1" ;;
"install "*)
    fails "$here/install" 101
    echo once >>"$here/installed"
    while [ "$1" != --root ]; do shift; done
    mkdir -p "$2/bin" && cp "$0" "$2/bin/cargo-deny" ;;
"fetch "*) touch "$here/fetched" ;;
"deny "*)
    flock --nonblock "$here/cache"/* true || echo once >>"$here/held"
    case "$*" in
    *--disable-fetch*) echo "error: unexpected argument '--disable-fetch' found" >&2; exit 2 ;;
    *"fetch db") [ -e "$here/database" ] || exit 1 ;;
    *" advisories") fails "$here/database" 1 ;;
    *--offline*)
        [ -e "$here/fetched" ] || { echo "no crates here" >&2; exit 1; }
        fails "$here/check" 1
        echo "licenses ok" ;;
    esac ;;
esac
"#;

/// A directory with the fake and its files.
struct Stage(TempDir);

impl Stage {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cargo = directory.path().join("cargo");
        fs::write(&cargo, CARGO).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Self(directory)
    }

    /// Runs the script. Returns its output, and whether it succeeded.
    fn deny(&self, audit: bool) -> (String, bool) {
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(workspace().join(".ci/deny"));
        script.arg(self.cache()).args(audit.then_some("--audit")).env("PATH", path);
        let output = script.output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join("cache")
    }

    fn installed(&self) -> usize {
        fs::read_to_string(self.0.path().join("installed")).unwrap_or_default().lines().count()
    }
}

/// Runs the script with an installation that fails with the error `install`, unless that is empty.
fn deny(install: &str, audit: bool) -> (String, bool) {
    Stage::new(&[("install", install)]).deny(audit)
}

#[test]
fn failed_installation_is_not_a_skipped_check() {
    for audit in [false, true] {
        let (said, well) = deny("error: failed to compile `cargo-deny v0.20.2`: linker `cc` not found", audit);
        assert!(!well && said.contains("linker `cc` not found"), "{said}");
        let (said, well) = deny("error: failed to download\n  failed to verify the checksum of `semver v1.0.0`", audit);
        assert!(!well, "{said}");
        let full = "error: failed to download from a registry\n\nCaused by:\n  No space left on device (os error 28)";
        let (said, well) = deny(full, audit);
        assert!(!well && said.contains("installing cargo-deny 0.20.2 failed"), "{said}");
        assert!(said.contains("No space left"), "{said}");
    }
}

#[test]
fn skipped_check_fails_except_for_the_audit() {
    for absent in [
        "error: could not find `cargo-deny` in registry `crates-io` with version `=0.20.2`",
        "error: failed to download from a registry\n\nCaused by:\n  [6] Could not resolve hostname",
    ] {
        let (said, well) = deny(absent, true);
        assert!(well && said.contains("deny: unchecked: dependencies are NOT CHECKED"), "{said}");
        let (said, well) = deny(absent, false);
        assert!(!well && said.contains("NOT CHECKED"), "{said}");
    }
    let (said, well) = deny("", true);
    assert!(well && said.contains("licenses ok") && said.contains("unchecked: known weaknesses"), "{said}");
    let (said, well) = deny("", false);
    assert!(!well && said.contains("weaknesses are not checked"), "{said}");
}

#[test]
fn refused_licence_fails() {
    for audit in [false, true] {
        let (said, well) = Stage::new(&[("check", "licence X is not allowed"), ("database", "")]).deny(audit);
        assert!(!well && said.contains("licence X is not allowed"), "{said}");
    }
}

#[test]
fn known_weakness_fails_except_for_the_audit() {
    for audit in [false, true] {
        let (said, well) = Stage::new(&[("database", "RUSTSEC-2026-0001")]).deny(audit);
        assert!(well == audit && said.contains("RUSTSEC-2026-0001"), "{said}");
        let (said, well) = Stage::new(&[("database", "")]).deny(audit);
        assert!(well && !said.contains("weaknesses"), "{said}");
    }
}

#[test]
fn installed_program_is_used_again_if_it_runs() {
    let stage = Stage::new(&[("database", "")]);
    for _ in 0..2 {
        assert!(stage.deny(false).1);
        assert_eq!(stage.installed(), 1);
    }
    let version = fs::read_dir(stage.cache()).unwrap().next().unwrap().unwrap().path();
    assert!(stage.0.path().join("held").exists(), "it could be cleaned away while it checks");
    let (old, directory) = (SystemTime::now() - Duration::from_secs(3600), File::open(&version).unwrap());
    directory.set_modified(old).unwrap();
    assert!(stage.deny(false).1);
    assert!(directory.metadata().unwrap().modified().unwrap() > old, "its use is not noted");
    let program = version.join("bin/cargo-deny");
    for broken in ["", "\x7fELF cut off", "#!/bin/sh\nexit 127\n"] {
        let before = stage.installed();
        fs::write(&program, broken).unwrap();
        let (said, well) = stage.deny(false);
        assert!(well && said.contains("installing") && stage.installed() == before + 1, "{broken:?}: {said}");
    }
}
