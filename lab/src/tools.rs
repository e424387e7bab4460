//! Programs from the tools tree: QEMU, firmware, erofs-utils. They run in the
//! tree through bubblewrap and see of the host only what they are shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::host::program;

/// A Debian tree with the lab's programs.
#[derive(Clone, Debug)]
pub struct Tools {
    root: PathBuf,
}

impl Tools {
    /// The tree at `root`.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A data file of the tree, such as firmware, by its path in the tree.
    ///
    /// # Errors
    /// When the tree has no such file.
    pub fn file(&self, path: &str) -> anyhow::Result<PathBuf> {
        let place = self.root.join(path);
        std::fs::metadata(&place).with_context(|| format!("the tools tree {} has no {path}", self.root.display()))?;
        Ok(place)
    }

    /// One of the tree's programs, which may read and write `folders` of the
    /// host and use its devices. It lives on when this command ends.
    pub fn command(&self, name: &str, folders: &[&Path]) -> Command {
        let mut command = program("bwrap", ["--cap-add", "ALL", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]);
        for folder in ["usr", "etc"] {
            command.arg("--ro-bind").arg(self.root.join(folder)).arg(Path::new("/").join(folder));
        }
        for (target, link) in [("usr/bin", "/bin"), ("usr/sbin", "/sbin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64")]
        {
            command.args(["--symlink", target, link]);
        }
        command.args(["--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]);
        for folder in folders {
            command.arg("--bind").arg(folder).arg(folder);
        }
        command.args(["--setenv", "PATH", "/usr/sbin:/usr/bin", "--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/", "--"]);
        command.arg(name);
        command
    }
}
