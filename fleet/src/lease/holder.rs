//! The holder of a lease. It tells the operator whom to ask, and a command on the same machine whether the holder is
//! dead.

use std::fmt;
use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::attempt::Attempt;

/// The holder of a lease, or a former one. All forms of holders have a name. Whether a holder is dead depends on its
/// form. A form that this version does not know may be alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// User and host, or another name.
    pub who: String,
    /// Its activity in the words of its program, such as the name of a command.
    #[serde(default)]
    pub what: String,
    #[serde(flatten)]
    pub process: Option<Process>,
    /// When it acquired the lease, in seconds of Unix time.
    #[serde(default)]
    pub since: u64,
    /// When it last confirmed the lease, in seconds of Unix time.
    #[serde(default)]
    pub seen: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub process: u32,
    /// When it began, in clock ticks after the boot: process identifiers are reused.
    pub began: u64,
    /// The boot and the process namespace of its process identifier.
    pub boot: String,
    /// The number of the attempt within the process, counted from 1. `None` from older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
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
            process: Some(Process { process, began: began(process).unwrap_or_default(), boot: boot(), attempt: None }),
            since: now,
            seen: now,
        }
    }

    pub fn is_dead(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_dead)
    }
}

impl Process {
    /// Whether the process is known to have ended, or, for this very process, its attempt. That is unknown for a
    /// process of another machine, or from before a reboot.
    fn is_dead(&self) -> bool {
        if self.boot.is_empty() || self.boot != boot() {
            return false;
        }
        let own = std::process::id() == self.process && began(self.process) == Some(self.began);
        if own {
            return self.attempt.is_some_and(|attempt| !Attempt::lives(attempt));
        }
        let gone = || i32::try_from(self.process).is_ok_and(|id| kill(Pid::from_raw(id), None) == Err(Errno::ESRCH));
        began(self.process).map_or_else(gone, |began| began != self.began)
    }
}

/// For "… is at work".
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.who)?;
        if let Some(Process { process, .. }) = &self.process {
            write!(f, "process {process}, ")?;
        }
        if !self.what.is_empty() {
            write!(f, "{}; ", self.what)?;
        }
        let seen = UNIX_EPOCH + Duration::from_secs(self.seen.max(self.since));
        write!(f, "last seen {})", humantime::format_rfc3339_seconds(seen))
    }
}

/// The random identifier of this boot (proc(5)) and the namespace of its process numbers (namespaces(7)). Empty if they
/// cannot be read.
fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = fs::read_link("/proc/self/ns/pid");
    boot.ok()
        .zip(namespace.ok())
        .map_or_else(String::new, |(boot, namespace)| format!("{} {}", boot.trim(), namespace.display()))
}

/// When a process began, in clock ticks after the boot. It is field 22 of the process's stat, counted after the name,
/// which may contain any character (proc_pid_stat(5)). `None` if that cannot be read. 0 if the process has ended and is
/// not yet reaped.
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
    fn process_is_dead_if_gone_or_number_reused() {
        let own = Holder::this("a test", 0).process.unwrap();
        assert!(!own.is_dead(), "{own:?}");
        assert!(Process { began: own.began + 1, ..own.clone() }.is_dead());
        assert!(!Process { began: 1, boot: "another machine's".to_owned(), ..own.clone() }.is_dead());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process { process: child.id(), began: began(child.id()).unwrap(), ..own };
        assert!(!process.is_dead());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.is_dead());
    }

    #[test]
    fn process_is_written_for_older_commands() {
        let holder = Holder {
            who: "ann@host".into(),
            process: Some(Process { process: 7, began: 8, boot: "b".into(), attempt: None }),
            ..Holder::this("upgrade apply", 9)
        };
        let text = r#"{"who":"ann@host","what":"upgrade apply","process":7,"began":8,"boot":"b","since":9,"seen":9}"#;
        assert_eq!(serde_json::to_string(&holder).unwrap(), text);
        assert_eq!(serde_json::from_str::<Holder>(text).unwrap(), holder);
    }

    #[test]
    fn unknown_form_of_holder_may_be_alive() {
        let text = r#"{"who":"controller kaas-fleet","controller":{"name":"kaas-fleet","pod":"6c1e"},"since":9}"#;
        let holder: Holder = serde_json::from_str(text).unwrap();
        assert!(!holder.is_dead());
        assert_eq!(holder.to_string(), "controller kaas-fleet (last seen 1970-01-01T00:00:09Z)");
        // An incomplete process: its state is unknown.
        let text = r#"{"who":"eve","what":"adopt","process":1,"began":"?","boot":"b"}"#;
        assert!(!serde_json::from_str::<Holder>(text).unwrap().is_dead());
    }
}
