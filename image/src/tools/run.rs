//! Runs a program of the tools tree through bubblewrap, with access to the tree's files and to named paths of the
//! host.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::ToolsTree;
use crate::process::Tool;

/// A run of a program of the tree. It can access the tree's files, an empty /tmp and the added paths.
pub struct ToolRun<'t> {
    tree: &'t ToolsTree,
    program: String,
    shown: Vec<(&'static str, PathBuf, PathBuf)>,
}

impl<'t> ToolRun<'t> {
    pub(super) fn new(tree: &'t ToolsTree, program: &str) -> Self {
        Self { tree, program: program.to_owned(), shown: Vec::new() }
    }

    /// Adds a file or directory of the host at its own path, read-only.
    pub fn reads(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--ro-bind", path.clone(), path)
    }

    /// Adds a file or directory of the host at its own path, writable.
    pub fn writes(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--bind", path.clone(), path)
    }

    /// Adds a device of the host.
    pub fn device(self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.show("--dev-bind", path.clone(), path)
    }

    /// Adds a file or directory of the host at another path, writable.
    pub fn writes_at(self, path: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        self.show("--bind", path.into(), at.into())
    }

    /// Adds a file or directory of the host at another path, read-only.
    pub fn reads_at(self, path: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        self.show("--ro-bind", path.into(), at.into())
    }

    fn show(mut self, how: &'static str, path: PathBuf, at: PathBuf) -> Self {
        self.shown.push((how, path, at));
        self
    }

    /// The command. The caller adds arguments.
    pub fn command(self) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--die-with-parent", "--unshare-pid"]);
        if nix::unistd::geteuid().is_root() {
            command.args(["--cap-add", "ALL"]);
        }
        // The root is a tmpfs, so that mount points for added paths can be created.
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
