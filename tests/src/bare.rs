//! A newcomer's machine: a bare Debian system with `make` in a container, made from this host's mirrors. It shares the
//! host's network, and uses the host's sources of packages, crates and modules. Nothing is booted: tests run
//! commands in it. This module does not know the commands.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use image::cache::{file_digest, hex};
use image::debian::lock::Pocket;
use image::debian::sources::{Settings, Sources};
use image::process::Tool;
use image::progress::Progress;
use lab::{RaisedLimit, cache_directory};
use nix::unistd::{Uid, User};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::places::workspace;

/// An ordinary user of the machine.
pub const USER: &str = "builder";
/// That user gets the first of these numbers that no user of this host has. So the files of a killed run belong to no other
/// user.
const USER_IDS: std::ops::Range<u32> = 30_000..60_000;
/// The directory of the project in the home directory of the user who builds it.
pub const PROJECT: &str = "kaas";
/// Debian's PATH for root and for ordinary users.
const PATHS: [&str; 2] =
    ["/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/usr/local/bin:/usr/bin:/bin:/usr/games"];
/// Where the host's Rust is seen in the container when it is lent.
pub const LENT_RUST: &str = "/opt/rust";
/// Each machine brings itself up to date, so the tree that it starts from need not be of today.
const FRESH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Makes the lent kernel's interfaces usable. A loop device needs a file to be opened. systemd-nspawn mounts cgroups read-only.
/// The machine's processes leave its topmost cgroup, because a cgroup with processes hands no controllers down (cgroup v2, "No
/// Internal Process Constraint").
const TAKE_KERNEL: &str = r#"for n in $(seq 0 63); do mknod -m 600 /dev/loop$n b 7 $n; done
sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - cgroup2\{0,1\} .*/\2/p' /proc/self/mountinfo |
while read -r place; do mount -o remount,bind,rw "$place"; done
sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - cgroup2 .*/\2/p' /proc/self/mountinfo |
while read -r place; do
    mkdir -p "$place/machine"
    for process in $(cat "$place/cgroup.procs"); do echo "$process" >"$place/machine/cgroup.procs" 2>/dev/null || true; done
done
"#;

/// The variables that clients of registries read, by the beginnings of their names.
const REGISTRIES: [&str; 12] = [
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "RUSTUP_DIST_",
    "RUSTUP_UPDATE_ROOT",
    "GOPROXY",
    "GOSUMDB",
    "GONO",
    "GOPRIVATE",
    "GOINSECURE",
    "KAAS_DEBIAN_",
];

/// A bare machine. It goes when the value is dropped.
pub struct BareMachine {
    directory: Own,
    tree: PathBuf,
    user_id: u32,
    shown: Vec<(PathBuf, String)>,
    has_kernel: bool,
    limit: Option<RaisedLimit>,
}

/// The result of a command in the machine.
#[derive(Debug)]
pub struct ScriptOutput {
    /// Whether it ended well.
    pub succeeded: bool,
    /// Standard output and errors, in their order.
    pub text: String,
}

impl ScriptOutput {
    /// The lines that begin with `start`.
    pub fn lines(&self, start: &str) -> Vec<&str> {
        self.text.lines().filter(|line| line.starts_with(start)).collect()
    }
}

impl BareMachine {
    /// A machine with Debian's release `suite`, such as `trixie`.
    ///
    /// # Errors
    /// When this host's apt configuration names no mirror, or the tree cannot be made.
    pub fn new(suite: &str) -> anyhow::Result<Self> {
        let directory = cache_directory()?.join("bare");
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        let sources = Sources::find(&Settings::of_environment(), Path::new("/"))?;
        remove_abandoned(&directory)?;
        let base = base(suite, &sources, &directory).with_context(|| format!("making a bare {suite}"))?;
        let directory = Own::new(suite, &directory)?;
        // Programs with root's rights are in the tree: no other user of this host may pass the directory above it. The
        // machine's own users must.
        let tree = directory.path().join("root");
        fs::create_dir(&tree)?;
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))?;
        unpack(&base, &tree)?;
        let bare =
            Self { directory, tree, user_id: free_user_id()?, shown: Vec::new(), has_kernel: false, limit: None };
        bare.carry_in_settings(&sources)?;
        Ok(bare)
    }

    /// Says where this host's packages, crates and modules come from, and whom it trusts.
    fn carry_in_settings(&self, sources: &Sources) -> anyhow::Result<()> {
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        self.write("etc/hosts", &format!("{hosts}\n127.0.1.1 bare\n"))?;
        self.write("etc/apt/apt.conf.d/90host", &apt_options()?)?;
        self.copy_in(&sources.keyring, &sources.keyring)?;
        let trusted = Path::new("/usr/local/share/ca-certificates");
        for entry in walkdir::WalkDir::new(trusted).into_iter().flatten().filter(|entry| entry.file_type().is_file()) {
            self.copy_in(entry.path(), entry.path())?;
        }
        let number = format!("--uid={}", self.user_id);
        let useradd = ["useradd", "--create-home", "--user-group", "--shell=/bin/bash", &number, USER];
        checked(Command::new("chroot").arg(&self.tree).args(useradd))?;
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let home = variable("HOME").unwrap_or_default();
        let cargo = variable("CARGO_HOME").unwrap_or_else(|| home.join(".cargo"));
        let go = variable("GOENV").unwrap_or_else(|| home.join(".config/go/env"));
        for user in ["root", USER] {
            for (file, place) in [(cargo.join("config.toml"), ".cargo/config.toml"), (go.clone(), ".config/go/env")] {
                if file.is_file() {
                    self.copy_in(&file, &home_of(user).join(place))?;
                }
            }
        }
        self.own_home()
    }

    /// Copies this project's present files into the home directories of both users.
    ///
    /// # Errors
    /// When git does not list them, or they cannot be copied.
    pub fn copy_in_project(&self) -> anyhow::Result<()> {
        let mut list = Command::new("git");
        list.arg("-C").arg(workspace()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let list = checked(&mut list)?;
        for name in list.split('\0').filter(|name| !name.is_empty()) {
            let file = workspace().join(name);
            for user in ["root", USER] {
                // One that git knows may have been removed.
                if file.is_symlink() || file.is_file() {
                    self.copy_in(&file, &home_of(user).join(PROJECT).join(name))?;
                }
            }
        }
        self.own_home()
    }

    /// Lays a clean clone of what is committed in the home directory of a user.
    ///
    /// # Errors
    /// When git fails.
    pub fn clone_in_project(&self, user: &str) -> anyhow::Result<()> {
        let place = self.inside(&home_of(user).join(PROJECT));
        let from = workspace().canonicalize()?;
        checked(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(from).arg(place))?;
        self.own_home()
    }

    /// Lends the machine this host's Rust, read-only, at [`LENT_RUST`].
    ///
    /// # Errors
    /// When this host's Rust does not say where it is.
    pub fn lend_rust(&mut self) -> anyhow::Result<()> {
        let place = checked(Command::new("rustc").current_dir(workspace()).args(["--print", "sysroot"]))?;
        fs::create_dir_all(self.inside(Path::new(LENT_RUST)))?;
        self.shown.push((PathBuf::from(place.trim()), LENT_RUST.to_owned()));
        Ok(())
    }

    /// Lends the machine what labs take of this host's kernel: loop devices, KVM if it exists, cgroups and settings.
    /// Only its root has them.
    ///
    /// # Errors
    /// When the host's limit that labs raise cannot be read or raised.
    pub fn lend_kernel(&mut self) -> anyhow::Result<()> {
        self.has_kernel = true;
        // Labs in the machine do not see other labs of this host.
        self.limit = Some(RaisedLimit::raised()?);
        Ok(())
    }

    /// Leaves the machine behind when the value is dropped; the next run removes it. Returns its root tree.
    pub fn keep(mut self) -> PathBuf {
        self.directory.place.disable_cleanup(true);
        self.tree.clone()
    }

    /// Writes a file by its path in the machine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let place = self.inside(Path::new(path));
        fs::create_dir_all(place.parent().context("a file without a directory")?)?;
        fs::write(&place, text).with_context(|| format!("writing {}", place.display()))
    }

    /// A shell script as a user in the project's directory.
    pub fn command(&self, user: &str, script: &str) -> Command {
        // Mounts end with the namespace, and the container ends with the process that waits for it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=slave", "setpriv", "--pdeathsig=TERM", "systemd-nspawn"]);
        command.args([
            "--quiet",
            "--as-pid2",
            "--register=no",
            "--keep-unit",
            // The builds in it make their own namespaces and root trees.
            "--capability=all",
            "--private-users=no",
            "--system-call-filter=@keyring bpf @mount",
            "--resolv-conf=copy-host",
            "--timezone=off",
            "--link-journal=no",
            "--console=pipe",
            "--hostname=bare",
        ]);
        command.arg(format!("--directory={}", self.tree.display())).arg(format!("--user={user}"));
        command.arg(format!("--setenv=PATH={}", PATHS[usize::from(user != "root")]));
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_carried(name))
        {
            // The value is taken from the environment, where not everybody can read it.
            command.arg(format!("--setenv={name}"));
        }
        for (place, at) in &self.shown {
            command.arg(format!("--bind-ro={}:{at}", place.display()));
        }
        let has_kernel = self.has_kernel && user == "root";
        if has_kernel {
            remove_left_cgroups();
            command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "yes");
            let devices = ["/dev/kmsg", "/dev/loop-control", "/dev/kvm"].into_iter();
            command.args(devices.filter(|device| Path::new(device).exists()).map(|device| format!("--bind={device}")));
        }
        let prepare = if has_kernel { TAKE_KERNEL } else { "" };
        let script = format!("{prepare}cd ~/{PROJECT} 2>/dev/null\n{script}");
        command.args(["/bin/sh", "-c", &script]).stdin(Stdio::null());
        command
    }

    /// Runs a shell script as a user in the project's directory.
    ///
    /// # Errors
    /// When the container does not start.
    pub fn run(&self, user: &str, script: &str) -> anyhow::Result<ScriptOutput> {
        const BEGUN: &str = "the container has begun";
        let output = self.command(user, &format!("exec 2>&1; echo {BEGUN}\n{script}")).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some((_, text)) = text.split_once(&format!("{BEGUN}\n")) else {
            bail!("starting a container in {}: {}", self.tree.display(), String::from_utf8_lossy(&output.stderr));
        };
        Ok(ScriptOutput { succeeded: output.status.success(), text: text.to_owned() })
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.tree.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn copy_in(&self, file: &Path, to: &Path) -> anyhow::Result<()> {
        let place = self.inside(to);
        fs::create_dir_all(place.parent().context("a file without a directory")?)?;
        let copied = match fs::read_link(file) {
            Ok(target) if file.starts_with(workspace()) => std::os::unix::fs::symlink(target, &place),
            _ => fs::copy(file, &place).map(drop),
        };
        copied.with_context(|| format!("copying {} to {}", file.display(), place.display()))
    }

    fn own_home(&self) -> anyhow::Result<()> {
        for entry in walkdir::WalkDir::new(self.inside(&home_of(USER))) {
            lchown(entry?.path(), Some(self.user_id), Some(self.user_id))?;
        }
        Ok(())
    }
}

fn home_of(user: &str) -> PathBuf {
    if user == "root" { PathBuf::from("/root") } else { Path::new("/home").join(user) }
}

fn is_carried(name: &str) -> bool {
    let proxy = name.to_ascii_lowercase().ends_with("_proxy");
    proxy || REGISTRIES.iter().any(|start| name.starts_with(start))
}

/// Removes the cgroup that systemd-nspawn makes next to its own, and leaves. After it has handed controllers down, it accepts no
/// process, and no further machine would start. A cgroup in use stays.
fn remove_left_cgroups() {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    let mounted = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let (Some(mounted), Some(own)) = (mounted, own) else { return };
    let left = Path::new(mounted).join(own).join("payload");
    let directories = walkdir::WalkDir::new(left).contents_first(true).into_iter().flatten();
    for directory in directories.filter(|entry| entry.file_type().is_dir()) {
        let _ = fs::remove_dir(directory.path());
    }
}

/// Removes the machines of processes that were killed. `kaas-dev image clean` does so, too.
fn remove_abandoned(directory: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_machine = entry.file_name().to_string_lossy().contains('-') && entry.file_type()?.is_dir();
        if is_machine && File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok()) {
            gone(fs::remove_dir_all(entry.path())).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The result of a removal. Another run may have removed the file already.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Unpacks an archive of a tree. A damaged archive is removed: the next run creates it again.
fn unpack(archive: &Path, tree: &Path) -> anyhow::Result<()> {
    let unpacked = checked(Command::new("tar").args(["--numeric-owner", "-xf"]).arg(archive).arg("-C").arg(tree));
    if unpacked.is_err() {
        gone(fs::remove_file(archive)).with_context(|| format!("removing {}", archive.display()))?;
    }
    unpacked.map(drop)
}

/// How apt on this host fetches: proxies and the like.
fn apt_options() -> anyhow::Result<String> {
    checked(Command::new("apt-config").args(["dump", "Acquire"]))
}

/// A directory of this process, which goes with the value. It is locked as long as the process lives: a later run
/// removes it if this one is killed.
struct Own {
    place: TempDir,
    _lock: File,
}

impl Own {
    /// No other user of this host may open it.
    fn new(suite: &str, directory: &Path) -> anyhow::Result<Self> {
        let prefix = format!("{suite}-{}-", std::process::id());
        let own = fs::Permissions::from_mode(0o700);
        let place = tempfile::Builder::new().prefix(&prefix).permissions(own).tempdir_in(directory)?;
        let lock = File::open(place.path())?;
        lock.lock().with_context(|| format!("locking {}", place.path().display()))?;
        Ok(Self { place, _lock: lock })
    }

    fn path(&self) -> &Path {
        self.place.path()
    }
}

/// A number that no user of this host has.
fn free_user_id() -> anyhow::Result<u32> {
    for number in USER_IDS {
        if User::from_uid(Uid::from_raw(number)).context("asking whose a user's number is")?.is_none() {
            return Ok(number);
        }
    }
    bail!("all numbers from {} to {} are users' of this host", USER_IDS.start, USER_IDS.end)
}

/// The parts of a tree that machines start from.
struct Recipe {
    arguments: Vec<String>,
    apt: String,
    keyring: String,
}

impl Recipe {
    fn of(suite: &str, sources: &Sources) -> anyhow::Result<Self> {
        let lists = sources.lists(suite, &Pocket::ALL)?;
        let list = lists.first().context("this host's apt configuration names no mirror")?;
        let certificates = if list.contains(" https:") { ",ca-certificates" } else { "" };
        let mut arguments =
            ["--mode=root", "--variant=minbase", "--architectures=amd64", "--format=tar", "--dpkgopt=force-unsafe-io"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(format!("--include=make{certificates}"));
        arguments.extend(list.lines().map(|line| format!("source {line}")));
        Ok(Self { arguments, apt: apt_options()?, keyring: file_digest(&sources.keyring)? })
    }

    /// The name of the archive: another recipe has another. It has no dash, unlike the directories of processes.
    fn file_name(&self, suite: &str) -> String {
        let digest = Sha256::digest(format!("{:?}\n{}\n{}", self.arguments, self.apt, self.keyring));
        format!("{suite}.{}.tar", &hex(&digest)[..16])
    }
}

fn is_fresh(file: &Path) -> bool {
    let made = fs::metadata(file).and_then(|metadata| metadata.modified());
    made.is_ok_and(|made| SystemTime::now().duration_since(made).unwrap_or_default() < FRESH)
}

/// The tree that machines start from, as a tar archive in `directory`: created again when it is old, and for another recipe.
fn base(suite: &str, sources: &Sources, directory: &Path) -> anyhow::Result<PathBuf> {
    let recipe = Recipe::of(suite, sources)?;
    let place = directory.join(recipe.file_name(suite));
    if is_fresh(&place) {
        return Ok(place);
    }
    let work = Own::new(suite, directory)?;
    let (options, tree) = (work.path().join("apt.conf"), work.path().join("tree.tar"));
    fs::write(&options, &recipe.apt)?;
    let (list, flags): (Vec<_>, Vec<_>) = recipe.arguments.iter().partition(|argument| argument.starts_with("source "));
    Tool::on_host("mmdebstrap")
        .args(flags)
        .args([OsString::from("--aptopt"), options.into()])
        .args([OsString::from(suite), tree.clone().into()])
        .args(list.iter().filter_map(|line| line.strip_prefix("source ")))
        .run(&Progress::on_stderr())?;
    // On the disk before it can be found, or a power cut would leave half of it under its name.
    File::open(&tree)?.sync_all()?;
    fs::rename(&tree, &place).with_context(|| format!("keeping {}", place.display()))?;
    File::open(directory)?.sync_all()?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tar") && !is_fresh(&path) {
            gone(fs::remove_file(&path)).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(place)
}

fn checked(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("reading what {name} says"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn another_recipe_is_kept_under_another_name() {
        let recipe = |source: &str, apt: &str, keyring: &str| {
            let arguments = vec!["--format=tar".to_owned(), format!("source {source}")];
            Recipe { arguments, apt: apt.to_owned(), keyring: keyring.to_owned() }.file_name("trixie")
        };
        let first = recipe("deb a", "", "key");
        assert_eq!(recipe("deb a", "", "key"), first);
        for other in [recipe("deb b", "", "key"), recipe("deb a", "Proxy", "key"), recipe("deb a", "", "other")] {
            assert_ne!(other, first);
        }
        assert!(first.starts_with("trixie.") && !first.contains('-'), "{first}");
    }

    #[test]
    fn only_trees_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mine = Own::new("trixie", directory.path()).unwrap();
        assert_eq!(fs::metadata(mine.path()).unwrap().mode() & 0o777, 0o700);
        // By a number alone it would be this process's.
        let left = directory.path().join(format!("trixie-{}-abc", std::process::id()));
        fs::create_dir_all(left.join("root")).unwrap();
        let archive = directory.path().join("trixie.0123456789abcdef.tar");
        fs::write(&archive, "").unwrap();
        remove_abandoned(directory.path()).unwrap();
        assert!(mine.path().exists() && archive.exists() && !left.exists());
    }

    #[test]
    fn damaged_archive_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (archive, tree) = (directory.path().join("trixie.0.tar"), directory.path().join("root"));
        fs::create_dir(&tree).unwrap();
        let pack = |what: &str| {
            checked(Command::new("tar").arg("-cf").arg(&archive).args(["-C", "/etc", what])).unwrap();
        };
        pack("hostname");
        unpack(&archive, &tree).unwrap();
        assert!(archive.exists() && tree.join("hostname").exists());
        let whole = fs::metadata(&archive).unwrap().len();
        File::options().write(true).open(&archive).unwrap().set_len(whole.min(600)).unwrap();
        assert!(unpack(&archive, &tree).is_err());
        assert!(!archive.exists());
        assert!(unpack(&archive, &tree).unwrap_err().to_string().contains("trixie.0.tar"));
    }

    #[test]
    fn missing_file_counts_as_removed() {
        gone(Err(io::ErrorKind::NotFound.into())).unwrap();
        assert!(gone(Err(io::ErrorKind::PermissionDenied.into())).is_err());
    }

    #[test]
    fn user_id_of_the_machine_is_free() {
        let number = free_user_id().unwrap();
        let known = Command::new("getent").args(["passwd", &number.to_string()]).output().unwrap();
        assert!(!known.status.success(), "{number} is somebody's");
    }
}
