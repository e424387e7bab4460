//! The tools tree: programs that the build host need not have (systemd-repart,
//! ukify, mkfs.erofs, QEMU, firmware), in versions that the lock fixes. They run
//! in it through bubblewrap and see only what they are shown of the host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cache::{Cache, Key, Stage};
use crate::debian::bootstrap::{self, Form};
use crate::debian::lock::Lock;
use crate::debian::sources::Settings;
use crate::debian::{PackageSet, fetch};
use crate::document::Document;
use crate::process::Tool;
use crate::progress::Progress;

const STAGE: Stage = Stage { name: "tools", keep: 2 };
const SPEC: &str = include_str!("../specs/tools.toml");
const LOCK: &str = include_str!("../specs/tools.lock");
const SPEC_NAME: &str = "image/specs/tools.toml";

/// A tools tree on this host.
#[derive(Clone, Debug)]
pub struct ToolsTree {
    root: PathBuf,
    key: Key,
}

/// The tools tree that this program was built with: as it stands in the cache, or made now.
///
/// # Errors
/// When its packages cannot be had, or mmdebstrap fails.
pub fn ensure(settings: &Settings, cache: &Cache, progress: &Progress) -> Result<ToolsTree> {
    let spec = Path::new(SPEC_NAME);
    let document = Document::new(spec, SPEC);
    let set = document.read(|top| top.required_table("debian", |table| PackageSet::read(table, None)))?;
    let lock = Lock::parse(LOCK, &Lock::path_for(spec), &set.request(), spec)?;
    let key = bootstrap::key(&lock);
    let root = cache.stage(STAGE, &key, progress, |result| {
        let renew = crate::debian::lock::advice(spec);
        fetch::fetch(&lock, settings, cache, progress, &renew)?;
        let place = result.join("root");
        bootstrap::bootstrap(&lock, Form::Folder, &place, cache, progress)
    })?;
    Ok(ToolsTree { root: root.join("root"), key })
}

impl ToolsTree {
    /// The folder with the tree: firmware and other data are read from it directly.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the tree was made of: part of the key of everything that its tools make.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// A run of one of the tree's programs, to be shown what it needs.
    pub fn run(&self, program: &str) -> ToolRun<'_> {
        ToolRun { tree: self, program: program.to_owned(), shown: Vec::new(), outlives: false }
    }
}

/// A run of one of the tree's programs. It sees the tree's files, an empty /tmp and what it is shown.
pub struct ToolRun<'t> {
    tree: &'t ToolsTree,
    program: String,
    shown: Vec<(&'static str, PathBuf, PathBuf)>,
    outlives: bool,
}

impl ToolRun<'_> {
    /// Shows a file or folder of the host at its own path, to be read.
    pub fn reads(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--ro-bind", path.clone(), path)
    }

    /// Shows a file or folder of the host at its own path, to be read and written.
    pub fn writes(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--bind", path.clone(), path)
    }

    /// Shows a device of the host.
    pub fn device(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--dev-bind", path.clone(), path)
    }

    /// Shows a file or folder of the host at another path, to be read and written.
    pub fn writes_at(self, path: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        self.show("--bind", path.into(), at.into())
    }

    /// Shows a file or folder of the host at another path, to be read.
    pub fn reads_at(self, path: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        self.show("--ro-bind", path.into(), at.into())
    }

    /// Lets the program live on when the process that started it ends. Without this it is killed then.
    pub fn outlives_starter(mut self) -> Self {
        self.outlives = true;
        self
    }

    fn show(mut self, how: &'static str, path: PathBuf, at: PathBuf) -> Self {
        self.shown.push((how, path, at));
        self
    }

    /// The command; arguments are added to it.
    pub fn command(self) -> Command {
        let mut command = Command::new("bwrap");
        if !self.outlives {
            command.args(["--die-with-parent", "--unshare-pid"]);
        }
        if nix::unistd::geteuid().is_root() {
            command.args(["--cap-add", "ALL"]);
        }
        // The root is a tmpfs, so that places for what is shown can be made.
        for name in ["usr", "etc", "var"] {
            command.arg("--ro-bind").arg(self.tree.root.join(name)).arg(Path::new("/").join(name));
        }
        for (target, link) in [("usr/bin", "/bin"), ("usr/sbin", "/sbin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64")]
        {
            command.args(["--symlink", target, link]);
        }
        command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]);
        for (how, path, at) in self.shown {
            command.arg(how).arg(path).arg(at);
        }
        command.args(["--setenv", "PATH", "/usr/sbin:/usr/bin", "--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/", "--"]);
        command.arg(self.program);
        command
    }

    /// The command as a tool of the build.
    pub fn tool(self) -> Tool {
        let name = self.program.clone();
        Tool::prepared(&name, self.command())
    }
}

/// The programs of the build host itself that a build runs, each with the Debian package that has it.
pub const HOST_PROGRAMS: [(&str, &str); 4] =
    [("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap"), ("dpkg-deb", "dpkg"), ("apt-get", "apt")];

/// Says which of the programs that a build runs on the host are missing, and what to install.
///
/// # Errors
/// When one is missing.
pub fn check_host(more: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> =
        HOST_PROGRAMS.iter().chain(more).filter(|(program, _)| !crate::process::is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs = missing.iter().map(|(program, _)| *program).collect::<Vec<_>>().join(", ");
    let packages = missing.iter().map(|(_, package)| *package).collect::<Vec<_>>().join(" ");
    anyhow::bail!("this host lacks {programs}: install {packages}")
}
