//! Tests of `.ci/setup` with stand-ins for apt and its kin: what it waits for, and what not; and of what `.ci/as-root` has
//! root make.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::places::workspace;

/// Its lists are locked as often as the file `locked` has lines.
const APT_GET: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/calls"
[ "$1" = update ] || exit 0
[ ! -s "$here/broken" ] || { cat "$here/broken" >&2; exit 100; }
[ -s "$here/locked" ] || exit 0
sed -i 1d "$here/locked"
echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)" >&2
exit 100
"#;

fn set_up(locked: usize, broken: &str) -> (String, bool, Vec<String>) {
    let machine = Machine::default();
    fs::write(machine.at("locked"), "once\n".repeat(locked)).unwrap();
    fs::write(machine.at("broken"), broken).unwrap();
    machine.set_up()
}

/// A machine that lacks everything.
struct Machine {
    directory: tempfile::TempDir,
    /// The MiB of disk that are free, as df says them.
    free: String,
    /// How many are wanted where caches are empty.
    room: Option<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), free: "100000".to_owned(), room: None }
    }
}

impl Machine {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The output of the script, whether it succeeded, and the calls of apt-get.
    fn set_up(&self) -> (String, bool, Vec<String>) {
        let programs = [
            ("apt-get", APT_GET),
            ("apt-cache", "#!/bin/sh\necho Package: it\n"),
            ("cargo", "#!/bin/sh\necho cargo 99.0.0\n"),
            ("df", &format!("#!/bin/sh\necho Filesystem\necho /dev/disk 9 9 {} 9% /\n", self.free)),
            ("dpkg-query", "#!/bin/sh\nexit 1\n"),
            ("go", "#!/bin/sh\n"),
            ("rustup", "#!/bin/sh\n"),
            ("sleep", "#!/bin/sh\n"),
        ];
        for (name, text) in programs {
            let program = self.at(name);
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", self.directory.path().display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(workspace().join(".ci/setup"));
        script.env("PATH", path).env_remove("KAAS_ROOM").envs(self.room.iter().map(|room| ("KAAS_ROOM", room)));
        let output = script.env("XDG_CACHE_HOME", self.at("cache")).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.at("calls"));
        (String::from_utf8(said).unwrap(), output.status.success(), calls.lines().map(str::to_owned).collect())
    }
}

#[test]
fn another_apt_is_waited_for() {
    let (said, well, calls) = set_up(3, "");
    assert!(well && calls.len() == 5, "{said} {calls:?}");
    assert_eq!(said.matches("waiting for another apt").count(), 1, "{said}");
    assert!(calls[4].starts_with("-o DPkg::Lock::Timeout=300 install "), "{calls:?}");
    let (said, well, _) = set_up(0, "");
    assert!(well && !said.contains("waiting"), "{said}");
}

#[test]
fn another_apt_is_not_waited_for_without_end() {
    let (said, well, calls) = set_up(1000, "");
    assert!(!well && said.contains("another process keeps apt's lists locked"), "{said}");
    assert!(calls.len() < 100, "{}", calls.len());
}

#[test]
fn nothing_else_is_waited_for() {
    let (said, well, calls) = set_up(0, "E: The repository is not signed.");
    assert!(!well && said.contains("apt-get update failed: E: The repository is not signed."), "{said}");
    assert_eq!(calls, ["update -qq"]);
}

#[test]
fn nearly_full_disk_is_named_before_installations() {
    let machine = |free: &str, room: Option<&str>| Machine {
        free: free.to_owned(),
        room: room.map(str::to_owned),
        ..Machine::default()
    };
    let (said, well, calls) = machine("4095", None).set_up();
    assert!(!well && said.contains("setup: 4095 MiB are free for /"), "{said}");
    assert!(calls.is_empty(), "{calls:?}");
    let (said, well, _) = machine("4096", None).set_up();
    assert!(well, "{said}");
    // A first build takes more.
    let (said, well, _) = machine("19999", Some("20000")).set_up();
    assert!(!well && said.contains("19999 MiB are free for /") && said.contains("20000 MiB"), "{said}");
    let (said, well, _) = machine("20000", Some("20000")).set_up();
    assert!(well, "{said}");
}

#[test]
fn interrupted_first_build_needs_its_space() {
    let machine = Machine { free: "19999".to_owned(), room: Some("20000".to_owned()), ..Machine::default() };
    fs::create_dir_all(machine.at("cache/kaas/components")).unwrap();
    fs::write(machine.at("cache/kaas/components/.lock"), "").unwrap();
    let (said, well, _) = machine.set_up();
    assert!(!well && said.contains("19999 MiB are free for /"), "{said}");
    fs::create_dir(machine.at("cache/kaas/components").join("0123456789abcdef".repeat(4))).unwrap();
    let (said, well, _) = machine.set_up();
    assert!(well, "{said}");
}

#[test]
fn malformed_number_is_refused_as_space() {
    let (said, well, _) = Machine { room: Some("plenty".to_owned()), ..Machine::default() }.set_up();
    assert!(!well && said.contains("KAAS_ROOM is `plenty`: give a number of MiB"), "{said}");
    let (said, well, _) = Machine { free: "-".to_owned(), ..Machine::default() }.set_up();
    assert!(well && said.contains("setup: whether 4096 MiB are free for /") && said.contains("df says `-`"), "{said}");
}

/// All targets of one line are set up once, before the first target.
#[test]
fn first_build_checks_space_for_each_target_order() {
    let room = |goals: &[&str]| {
        let mut make = Command::new("make");
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env("ROOM", "plenty").arg("-C").arg(workspace());
        let output = make.args(["--dry-run", "--print-data-base"]).args(goals).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        said.lines().find(|line| line.starts_with("KAAS_ROOM := ")).unwrap().to_owned()
    };
    let first = room(&["ova"]);
    assert_eq!((room(&["setup", "ova"]), room(&["lint", "test"])), (first.clone(), first.clone()));
    assert_ne!(room(&["lint"]), first);
}

/// `.ci/as-root` as root calls it who was called by sudo: by Debian's user 2, bin.
fn as_root(home: &Path) -> Command {
    let mut script = Command::new(workspace().join(".ci/as-root"));
    script.env("HOME", home).env("SUDO_UID", "2").env("SUDO_COMMAND", "/usr/bin/make ova");
    script
}

fn home_of_root() -> PathBuf {
    nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(0)).unwrap().unwrap().dir
}

#[test]
fn make_with_sudo_works_as_in_root_shells() {
    let environment = |home: &Path| {
        let output = as_root(home).args(["sh", "-c", "echo $SUDO_UID $SUDO_COMMAND"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(environment(&home_of_root()), "2 /bin/sh");
    assert_eq!(environment(Path::new("/home/of-the-caller")), "2 /usr/bin/make ova");
}

#[test]
fn root_reads_the_clone_of_the_sudo_user() {
    let directory = tempfile::tempdir().unwrap();
    let clone = directory.path().join("clone");
    let git = |git: &mut Command| {
        let output = git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{git:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(Command::new("git").args(["init", "--quiet"]).arg(&clone));
    for entry in walkdir::WalkDir::new(&clone) {
        std::os::unix::fs::lchown(entry.unwrap().path(), Some(2), Some(2)).unwrap();
    }
    git(as_root(&home_of_root()).arg("git").arg("-C").arg(&clone).args(["ls-files"]));
    git(as_root(&home_of_root()).args(["git", "clone", "--quiet"]).arg(&clone).arg(directory.path().join("another")));
}

#[test]
fn files_of_root_can_be_read_by_others() {
    let script = format!("umask 077; {} sh -c umask", workspace().join(".ci/as-root").display());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0022", "{output:?}");
}

/// The commands of the Makefile for a target, in their order.
fn recipe(target: &str) -> String {
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").arg("-C").arg(workspace()).args(["--dry-run", target]);
    let output = make.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The earlier version has most of what the others are compiled from, and lints and tests want the room.
#[test]
fn go_results_are_removed_after_the_earlier_version() {
    let said = recipe("test");
    let last = said.rfind(" image build ").unwrap();
    assert!(
        said[last..].starts_with(" image build image/specs/control-plane.toml --to-directory build/earlier"),
        "{said}"
    );
    let goes = said.find(" image clean --go-cache").unwrap();
    assert!(last < goes && goes < said.find(" clippy ").unwrap(), "{said}");
    let fast = recipe("test-fast");
    assert!(fast.find(" image clean --go-cache").unwrap() < fast.find(" test --locked").unwrap(), "{fast}");
}

/// The host's own Go may be too old. A Go without a lock may be removed from the cache during the tests.
#[test]
fn vcenter_tests_use_the_pinned_go() {
    let said = recipe("vcenter");
    let (_, command) = said.split_once("/build/kaas-dev\" image go ").unwrap();
    let (spec, command) = command.split_once(" -- ").unwrap();
    assert!(spec.ends_with("/image/specs/control-plane.toml\""), "{said}");
    assert!(command.contains("gofmt ") && command.contains(" go test ./..."), "{said}");
}

#[test]
fn failed_test_stops_no_other_test() {
    for target in ["test-fast", "test-long"] {
        let said = recipe(target);
        let run = said.lines().find(|line| line.contains(" test --locked --workspace")).unwrap();
        assert!(run.contains(" --no-fail-fast"), "{run}");
    }
}

#[test]
fn long_tests_try_vcenter_faults_after_failed_scenarios() {
    let said = recipe("test-long");
    let (scenarios, points) = said.split_once("KAAS_TEST_VCENTER_EACH=1 ").unwrap();
    assert!(scenarios.contains(" -- ::long:: || failed="), "{said}");
    let (points, end) = points.split_once('\n').unwrap();
    let (what, tried) = points.split_once(" --lib -- --nocapture vcenter::tests::each_ ").unwrap();
    assert!(what.contains("KAAS_TEST_CONTROLLER_EACH=1 ") && tried.contains(" || failed="), "{said}");
    assert!(end.contains("exit 1"), "{said}");
    let (_, seventh) = end.split_once("KAAS_TEST_CONTROLLER_EACH=7 ").unwrap();
    let (tried, _) = seventh.split_once(" || failed=").unwrap();
    for tests in ["tenant_cluster::tests::upgrades::", "node_pool::tests::deaths::"] {
        assert!(tried.contains(tests), "{tests}: {said}");
    }
    for file in ["each_deploy.rs", "each_swap.rs"] {
        let points = workspace().join("fleet/src/vcenter/tests").join(file);
        assert!(points.is_file(), "{}: its tests are named so that the long tests have them", points.display());
    }
}
