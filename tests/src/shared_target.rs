//! Tests of `.ci/cargo` with a stand-in for Cargo: how clones share one target directory, and of the Makefile: that none
//! gets around it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::places::workspace;

/// Prints its arguments, whether another process could take the lock now, and whether it could hold the lock for longer.
const CARGO: &str = r#"#!/bin/sh
flock -n "$CARGO_TARGET_DIR.lock" true && free=free || free=held
[ -e /proc/$$/fd/9 ] && free="$free inherited"
echo "$* $free"
exit 7
"#;

/// Two clones and the directory that they share.
struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().unwrap());
        for clone in ["a", "b"] {
            fs::create_dir_all(stage.path(clone).join(".ci")).unwrap();
            fs::create_dir_all(stage.path(clone).join("src")).unwrap();
            fs::create_dir_all(stage.path(clone).join("build")).unwrap();
            fs::copy(workspace().join(".ci/cargo"), stage.path(clone).join(".ci/cargo")).unwrap();
            for file in ["src/lib.rs", "build/kept.rs"] {
                fs::write(stage.path(clone).join(file), "").unwrap();
            }
        }
        let cargo = stage.path("cargo");
        fs::write(&cargo, CARGO).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, clone: &str) -> Command {
        let mut script = Command::new(self.path(clone).join(".ci/cargo"));
        let path = format!("{}:{}", self.0.path().display(), std::env::var("PATH").unwrap());
        script.args(["test", "--locked"]).env("PATH", path).env("CARGO_TARGET_DIR", self.path("cache/target/"));
        script.stdout(Stdio::piped()).stderr(Stdio::piped());
        script
    }

    /// Runs the script in a clone whose sources are old, and says whether they are taken for new ones.
    fn renews(&self, clone: &str) -> bool {
        let old = SystemTime::now() - Duration::from_secs(3600);
        let time = |file: &str| File::open(self.path(clone).join(file)).unwrap();
        for file in ["src/lib.rs", "build/kept.rs"] {
            time(file).set_modified(old).unwrap();
        }
        let output = self.script(clone).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "test --locked held\n");
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(7), &b""[..]));
        let modified = |file: &str| time(file).metadata().unwrap().modified().unwrap();
        assert_eq!(modified("build/kept.rs"), old, "no source of the clone's");
        modified("src/lib.rs") > old
    }
}

#[test]
fn sources_are_read_again_after_another_clone_compiled() {
    let stage = Stage::new();
    let renewed = ["a", "a", "b", "b", "a"].map(|clone| stage.renews(clone));
    assert_eq!(renewed, [true, false, true, false, true]);
    fs::remove_dir_all(stage.path("cache/target")).unwrap();
    assert!(stage.renews("a"), "the directory is made anew");
}

#[test]
fn clone_waits_for_another_and_says_so_once() {
    let stage = Stage::new();
    stage.renews("a");
    let first = File::open(stage.path("cache/target.lock")).unwrap();
    first.lock().unwrap();
    let mut second = stage.script("b").spawn().unwrap();
    let mut errors = BufReader::new(second.stderr.take().unwrap());
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    let (place, target) = (stage.path("a"), stage.path("cache/target"));
    let expected = format!("cargo: waiting for {}, which compiles or tests in {}\n", place.display(), target.display());
    assert_eq!(said, expected);
    let last = || fs::read_to_string(stage.path("cache/target/last-clone")).unwrap();
    assert_eq!(last(), format!("{}\n", place.display()), "the directory is the first clone's");
    drop(first);
    let mut more = String::new();
    errors.read_line(&mut more).unwrap();
    let output = second.wait_with_output().unwrap();
    assert_eq!((more.as_str(), &output.stdout[..]), ("", &b"test --locked held\n"[..]));
    assert_eq!(last(), format!("{}\n", stage.path("b").display()));
}

#[test]
fn the_makefile_starts_cargo_in_no_other_way() {
    let makefile = fs::read_to_string(workspace().join("Makefile")).unwrap();
    let code: Vec<_> = makefile.lines().map(|line| line.split('#').next().unwrap()).collect();
    let words = code.iter().flat_map(|line| line.split_whitespace());
    let calls: Vec<_> = words.filter(|word| Path::new(word).file_name().is_some_and(|name| name == "cargo")).collect();
    assert!(calls.len() > 5 && calls.iter().all(|call| *call == ".ci/cargo"), "{calls:?}");
    assert!(!makefile.contains("CARGO_TARGET_DIR"), "what is compiled there may be another clone's a moment later");
}
