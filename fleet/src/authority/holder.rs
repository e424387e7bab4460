//! Who holds a deployment, so that a person knows whom to ask, and a command on the same machine whether it is dead.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// A command that holds a deployment, or held it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its user and host.
    pub who: String,
    /// What it does, such as "upgrade apply".
    pub what: String,
    /// Its process.
    pub process: u32,
    /// When the process began, in clock ticks after the boot: a process identifier alone is used again.
    pub began: u64,
    /// The boot and the process namespace that its number is of.
    pub boot: String,
    /// When it took the deployment: seconds of Unix time.
    pub since: u64,
    /// When it last confirmed that it holds it: seconds of Unix time.
    pub seen: u64,
}

impl Holder {
    /// This process, doing `what`.
    pub fn this(what: &str, now: u64) -> Self {
        let process = std::process::id();
        let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER"));
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            who: format!("{}@{}", user.as_deref().unwrap_or("root"), host.trim()),
            what: what.to_owned(),
            process,
            began: began(process).unwrap_or_default(),
            boot: boot(),
            since: now,
            seen: now,
        }
    }

    /// Whether its process is known to have ended. Of another machine's, or one of before a restart, nobody can say.
    pub fn is_dead(&self) -> bool {
        if self.boot.is_empty() || self.boot != boot() {
            return false;
        }
        let gone = || i32::try_from(self.process).is_ok_and(|id| kill(Pid::from_raw(id), None) == Err(Errno::ESRCH));
        began(self.process).map_or_else(gone, |began| began != self.began)
    }
}

/// For "… is at work".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.seen));
        write!(f, "{} (process {}, {}; last seen {seen})", self.who, self.process, self.what)
    }
}

/// The random identifier of this boot (proc(5)), and the namespace of its process numbers (namespaces(7)). Empty if it
/// cannot be told.
fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = fs::read_link("/proc/self/ns/pid");
    boot.ok()
        .zip(namespace.ok())
        .map_or_else(String::new, |(boot, namespace)| format!("{} {}", boot.trim(), namespace.display()))
}

/// When a process began, in clock ticks after the boot: field 22 of its stat, counted behind the name, which may hold
/// anything (proc_pid_stat(5)). None if that cannot be
/// read; 0 if it has ended and nobody has asked for its status.
fn began(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return Some(0);
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_dead_when_it_is_gone_or_another_has_its_number() {
        let own = Holder::this("a test", 0);
        assert!(!own.is_dead(), "{own:?}");
        assert!(Holder { began: own.began + 1, ..own.clone() }.is_dead());
        assert!(!Holder { began: 1, boot: "another machine's".to_owned(), ..own }.is_dead());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let holder = Holder { process: child.id(), began: began(child.id()).unwrap(), ..Holder::this("a test", 0) };
        assert!(!holder.is_dead());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(holder.is_dead());
    }
}
