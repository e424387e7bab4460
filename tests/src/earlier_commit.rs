//! Tests of `.ci/earlier` in clones of a small repository: the source of the commit that it pins, and the message if the commit is
//! missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::places::workspace;

/// A repository, a clone of it whose script pins the first of two commits, and a cache.
struct Stage {
    directory: TempDir,
    pinned: String,
}

impl Stage {
    /// The options are those of the clone.
    fn new(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stage = Self { pinned: String::new(), directory };
        let origin = stage.path("origin");
        fs::create_dir_all(origin.join(".ci")).unwrap();
        stage.git(&origin, &["init", "--quiet"]);
        let commit = |text: &str| {
            fs::write(origin.join("file"), text).unwrap();
            stage.git(&origin, &["add", "."]);
            let who = ["-c", "user.name=n", "-c", "user.email=e"];
            stage.git(&origin, &[&who[..], &["commit", "--quiet", "--message", text]].concat());
            stage.git(&origin, &["rev-parse", "HEAD"]).trim().to_owned()
        };
        let pinned = commit("before");
        let script = fs::read_to_string(workspace().join(".ci/earlier")).unwrap();
        let (start, rest) = script.split_once("\ncommit=").unwrap();
        let rest = rest.split_once('\n').unwrap().1;
        fs::write(origin.join(".ci/earlier"), format!("{start}\ncommit={pinned}\n{rest}")).unwrap();
        commit("now");
        let from = format!("file://{}", origin.display());
        stage.git(stage.directory.path(), &[&["clone", "--quiet"], options, &[&from, "clone"]].concat());
        Self { pinned, ..stage }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn git(&self, place: &Path, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").arg("-C").arg(place).args(arguments);
        let output = git.output().unwrap();
        assert!(output.status.success(), "{git:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn script(&self, command: &[&str]) -> Command {
        let mut script = Command::new("sh");
        script.arg(self.path("clone/.ci/earlier")).args(command);
        script.env("XDG_CACHE_HOME", self.path("cache")).env("GIT_CONFIG_GLOBAL", "/dev/null");
        script
    }

    /// The script's standard output, or else its errors.
    fn run(&self, command: &[&str]) -> Result<String, String> {
        let output = self.script(command).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn tree(&self) -> PathBuf {
        self.path("cache/kaas/earlier").join(&self.pinned)
    }

    fn has_the_tree_of_before(&self) {
        assert_eq!(self.run(&[]).unwrap(), format!("{}\n", self.tree().display()));
        assert_eq!(fs::read_to_string(self.tree().join("file")).unwrap(), "before");
        assert_eq!(fs::read_dir(self.path("cache/kaas/earlier")).unwrap().count(), 1, "work is left");
    }
}

#[test]
fn command_gets_the_tree_of_the_commit() {
    let stage = Stage::new(&[]);
    fs::rename(stage.path("origin"), stage.path("gone")).unwrap();
    let said = stage.run(&["echo", "image", "build"]).unwrap();
    let tree = stage.tree();
    assert!(said.starts_with("image build --version ") && said.contains(" --kubernetes "), "{said}");
    assert!(said.ends_with(&format!(" --agent-source {}\n", tree.display())), "{said}");
    stage.has_the_tree_of_before();
    let (old, directory) = (SystemTime::now() - Duration::from_secs(3600), File::open(&tree).unwrap());
    directory.set_modified(old).unwrap();
    stage.run(&[]).unwrap();
    assert!(directory.metadata().unwrap().modified().unwrap() > old, "its use is not noted");
    // It could be cleaned away at any moment but while it is built from.
    let cleans = format!("rm -r {}", tree.display());
    let script = fs::read_to_string(stage.path("clone/.ci/earlier")).unwrap();
    let late = script.replace("\nexec flock", &format!("\n{cleans}\nexec flock"));
    fs::write(stage.path("clone/.ci/earlier"), late).unwrap();
    assert!(stage.run(&["echo"]).is_err() && !tree.exists(), "a file in the place of the tree");
}

#[test]
fn a_second_build_waits_for_the_first_one() {
    let stage = Stage::new(&[]);
    stage.has_the_tree_of_before();
    let first = File::open(stage.tree()).unwrap();
    first.lock().unwrap();
    let mut second = stage.script(&["echo", "built"]).stdout(Stdio::piped()).spawn().unwrap();
    // proc_locks(5) marks who waits with an arrow.
    let id = second.id().to_string();
    let waits = |line: &str| line.contains("->") && line.split_whitespace().any(|word| word == id);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
        assert_eq!(second.try_wait().unwrap(), None, "it did not wait");
        thread::yield_now();
    }
    drop(first);
    let said = second.wait_with_output().unwrap();
    assert!(said.status.success() && said.stdout.starts_with(b"built --version "), "{said:?}");
}

#[test]
fn shallow_clone_fetches_only_the_commit_once() {
    let stage = Stage::new(&["--depth=1"]);
    stage.has_the_tree_of_before();
    assert_eq!(fs::read_to_string(stage.path("clone/file")).unwrap(), "now");
    assert_eq!(stage.git(&stage.path("clone"), &["rev-list", "--count", "HEAD"]).trim(), "1");
    fs::remove_dir_all(stage.path("origin")).unwrap();
    fs::remove_dir_all(stage.path("clone/.git")).unwrap();
    stage.has_the_tree_of_before();
}

#[test]
fn missing_commit_is_named_with_the_remedy() {
    let stage = Stage::new(&["--depth=1"]);
    fs::rename(stage.path("origin"), stage.path("gone")).unwrap();
    let error = stage.run(&["echo"]).unwrap_err();
    let pinned = &stage.pinned;
    assert!(
        error.contains(&format!(
            "the commit {pinned}, which upgrades are tried from, is not in this clone (shallow: true)"
        )),
        "{error}"
    );
    assert!(error.contains("git fetch --unshallow"), "{error}");
    assert!(!stage.tree().exists());
    // An archive of the sources has no history.
    fs::remove_dir_all(stage.path("clone/.git")).unwrap();
    let error = stage.run(&["echo"]).unwrap_err();
    assert!(error.contains("is looked for in a clone, and there is none: "), "{error}");
    assert!(error.contains("not a git repository"), "{error}");
}
