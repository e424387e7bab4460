//! Programs of the tools tree: QEMU, firmware, erofs-utils. They run in the tree through bubblewrap and can access
//! only the named directories of the host.

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
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A data file of the tree, such as firmware, by its path in the tree.
    pub fn file(&self, path: &str) -> anyhow::Result<PathBuf> {
        let place = self.root.join(path);
        std::fs::metadata(&place).with_context(|| format!("the tools tree {} has no {path}", self.root.display()))?;
        Ok(place)
    }

    /// A program of the tree that may read and write `directories` of the host and use its devices. It continues when
    /// this command ends.
    pub fn command(&self, name: &str, directories: &[&Path]) -> Command {
        self.run(&[], name, directories)
    }

    /// As [`Tools::command`], but it ends when the started process is killed, or the thread that started it ends.
    pub fn short_command(&self, name: &str, directories: &[&Path]) -> Command {
        // A killed bubblewrap ends the first process of the namespace, and with it all others.
        self.run(&["--die-with-parent", "--unshare-pid"], name, directories)
    }

    fn run(&self, how: &[&str], name: &str, directories: &[&Path]) -> Command {
        let mut command = program("bwrap", how);
        command.args(["--cap-add", "ALL", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]);
        for directory in ["usr", "etc"] {
            command.arg("--ro-bind").arg(self.root.join(directory)).arg(Path::new("/").join(directory));
        }
        for (target, link) in [("usr/bin", "/bin"), ("usr/sbin", "/sbin"), ("usr/lib", "/lib"), ("usr/lib64", "/lib64")]
        {
            command.args(["--symlink", target, link]);
        }
        command.args(["--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"]);
        for directory in directories {
            command.arg("--bind").arg(directory).arg(directory);
        }
        command.args(["--setenv", "PATH", "/usr/sbin:/usr/bin", "--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/", "--"]);
        command.arg(name);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::process::ProcessId;
    use crate::wait::until;

    /// Starts `sleep` of this host, kills the started process, and returns the program's process.
    fn killed(command: impl Fn(&Tools) -> Command, argument: &str) -> ProcessId {
        let mut child = command(&Tools::at(Path::new("/"))).arg(argument).spawn().unwrap();
        let is_sleep = |id: &ProcessId| {
            std::fs::read_link(format!("/proc/{}/exe", id.number())).is_ok_and(|program| program.ends_with("sleep"))
        };
        let mut sleeping = None;
        until("the program to run", Duration::from_secs(60), || {
            sleeping = ProcessId::with_argument(argument).into_iter().find(is_sleep);
            Ok(sleeping.is_some())
        })
        .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        sleeping.unwrap()
    }

    #[test]
    fn a_short_command_ends_and_another_continues() {
        let argument = |number: u32| format!("{number}.{}", std::process::id());
        let lasting = killed(|tools| tools.command("sleep", &[]), &argument(3601));
        assert!(lasting.is_running());
        lasting.kill().unwrap();
        let short = killed(|tools| tools.short_command("sleep", &[]), &argument(3602));
        until("it to end", Duration::from_secs(60), || Ok(!short.is_running())).unwrap();
    }
}
