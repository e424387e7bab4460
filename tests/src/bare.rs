//! A newcomer's machine: a bare Debian system with `make` in a container, made from this host's mirrors. It shares the
//! host's network and is told where the host's packages, crates and modules come from. Nothing is booted: what
//! is tried in it are commands. Knows nothing of what they are.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use fleet::lab::cache_folder;
use image::debian::sources::{Settings, Sources};
use image::process::Tool;
use image::progress::Progress;
use tempfile::TempDir;

use crate::scenario::workspace;

/// An ordinary user of the machine.
pub const USER: &str = "builder";
/// That user's number.
const USER_ID: u32 = 1000;
/// Where the project lies in the home folder of whoever builds it.
pub const PROJECT: &str = "kaas";
/// What Debian gives root and ordinary users for a PATH.
const PATHS: [&str; 2] =
    ["/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/usr/local/bin:/usr/bin:/bin:/usr/games"];
/// Where the host's Rust is seen in the container when it is lent.
pub const LENT_RUST: &str = "/opt/rust";
/// Each machine brings itself up to date, so the tree that it starts from need not be of today.
const FRESH: Duration = Duration::from_secs(30 * 24 * 3600);

/// What clients of registries read of the environment, by the beginnings of names.
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
pub struct Bare {
    tree: TempDir,
    shown: Vec<(PathBuf, String)>,
}

/// What a command in the machine did.
#[derive(Debug)]
pub struct Said {
    /// Whether it ended well.
    pub well: bool,
    /// Standard output and errors, in their order.
    pub text: String,
}

impl Said {
    /// The lines that begin with `start`.
    pub fn lines(&self, start: &str) -> Vec<&str> {
        self.text.lines().filter(|line| line.starts_with(start)).collect()
    }
}

impl Bare {
    /// A machine with Debian's release `suite`, such as `trixie`.
    ///
    /// # Errors
    /// When this host's apt configuration names no mirror, or the tree cannot be made.
    pub fn new(suite: &str) -> anyhow::Result<Self> {
        let folder = cache_folder()?.join("bare");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let sources = Sources::find(&Settings::of_environment(), Path::new("/"))?;
        let base = base(suite, &sources, &folder).with_context(|| format!("making a bare {suite}"))?;
        remove_abandoned(&folder)?;
        let prefix = format!("{suite}-{}-", std::process::id());
        let tree = tempfile::Builder::new().prefix(&prefix).tempdir_in(&folder)?;
        checked(Command::new("tar").args(["--numeric-owner", "-xf"]).arg(&base).arg("-C").arg(tree.path()))?;
        // systemd-nspawn wants to be let in.
        fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755))?;
        let bare = Self { tree, shown: Vec::new() };
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
        checked(Command::new("chroot").arg(self.tree.path()).args([
            "useradd",
            "--create-home",
            "--shell=/bin/bash",
            USER,
        ]))?;
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

    /// Lays this project's files as they stand in the home folders of both users.
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

    /// Lays a clean clone of what is committed in the home folder of a user.
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

    /// Writes a file by its path in the machine.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let place = self.inside(Path::new(path));
        fs::create_dir_all(place.parent().context("a file without a folder")?)?;
        fs::write(&place, text).with_context(|| format!("writing {}", place.display()))
    }

    /// A shell script as a user in the project's folder.
    pub fn command(&self, user: &str, script: &str) -> Command {
        // Mounts go with the namespace, and the container with whoever waits for it.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=slave", "setpriv", "--pdeathsig=TERM", "systemd-nspawn"]);
        command.args([
            "--quiet",
            "--as-pid2",
            "--register=no",
            "--keep-unit",
            // What is built in it makes namespaces and root trees of its own.
            "--capability=all",
            "--private-users=no",
            "--system-call-filter=@keyring bpf @mount",
            "--resolv-conf=copy-host",
            "--timezone=off",
            "--link-journal=no",
            "--console=pipe",
            "--hostname=bare",
        ]);
        command.arg(format!("--directory={}", self.tree.path().display())).arg(format!("--user={user}"));
        command.arg(format!("--setenv=PATH={}", PATHS[usize::from(user != "root")]));
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_carried(name))
        {
            // The value is taken from the environment, where not everybody can read it.
            command.arg(format!("--setenv={name}"));
        }
        for (place, at) in &self.shown {
            command.arg(format!("--bind-ro={}:{at}", place.display()));
        }
        let script = format!("cd ~/{PROJECT} 2>/dev/null\n{script}");
        command.args(["/bin/sh", "-c", &script]).stdin(Stdio::null());
        command
    }

    /// Runs a shell script as a user in the project's folder.
    ///
    /// # Errors
    /// When the container does not start.
    pub fn run(&self, user: &str, script: &str) -> anyhow::Result<Said> {
        const BEGUN: &str = "the container has begun";
        let output = self.command(user, &format!("exec 2>&1; echo {BEGUN}\n{script}")).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let Some((_, text)) = text.split_once(&format!("{BEGUN}\n")) else {
            bail!(
                "starting a container in {}: {}",
                self.tree.path().display(),
                String::from_utf8_lossy(&output.stderr)
            );
        };
        Ok(Said { well: output.status.success(), text: text.to_owned() })
    }

    fn inside(&self, path: &Path) -> PathBuf {
        self.tree.path().join(path.strip_prefix("/").unwrap_or(path))
    }

    fn copy_in(&self, file: &Path, to: &Path) -> anyhow::Result<()> {
        let place = self.inside(to);
        fs::create_dir_all(place.parent().context("a file without a folder")?)?;
        let copied = match fs::read_link(file) {
            Ok(target) if file.starts_with(workspace()) => std::os::unix::fs::symlink(target, &place),
            _ => fs::copy(file, &place).map(drop),
        };
        copied.with_context(|| format!("copying {} to {}", file.display(), place.display()))
    }

    fn own_home(&self) -> anyhow::Result<()> {
        for entry in walkdir::WalkDir::new(self.inside(&home_of(USER))) {
            lchown(entry?.path(), Some(USER_ID), Some(USER_ID))?;
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

/// Removes the machines of processes that were killed.
fn remove_abandoned(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.split('-').nth(1).and_then(|process| process.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// How apt on this host fetches: proxies and the like.
fn apt_options() -> anyhow::Result<String> {
    checked(Command::new("apt-config").args(["dump", "Acquire"]))
}

/// The tree that machines start from, as a tar archive in `folder`: made anew now and then.
fn base(suite: &str, sources: &Sources, folder: &Path) -> anyhow::Result<PathBuf> {
    let place = folder.join(format!("{suite}.tar"));
    let made = fs::metadata(&place).and_then(|metadata| metadata.modified());
    if made.is_ok_and(|made| SystemTime::now().duration_since(made).unwrap_or_default() < FRESH) {
        return Ok(place);
    }
    let work = tempfile::tempdir_in(folder)?;
    let (options, tree) = (work.path().join("apt.conf"), work.path().join("tree.tar"));
    fs::write(&options, apt_options()?)?;
    let lists = sources.lists(suite)?;
    let list = lists.first().context("this host's apt configuration names no mirror")?;
    let certificates = if list.contains(" https:") { ",ca-certificates" } else { "" };
    Tool::on_host("mmdebstrap")
        .args(["--mode=root", "--variant=minbase", "--architectures=amd64", "--format=tar"])
        .args(["--dpkgopt=force-unsafe-io", &format!("--include=make{certificates}")])
        .args([OsString::from("--aptopt"), options.into()])
        .args([OsString::from(suite), tree.clone().into()])
        .args(list.lines())
        .run(&Progress::on_stderr())?;
    fs::rename(&tree, &place).with_context(|| format!("keeping {}", place.display()))?;
    Ok(place)
}

fn checked(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("reading what {name} says"))
}
