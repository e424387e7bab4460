//! Processes that outlive the command that started them. PID and start time identify them, so that a reused PID is
//! never signalled.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::wait::until;

/// One process of this host. The kernel reuses PIDs, but never the pair of PID and start time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    number: i32,
    /// Clock ticks since the host's start (proc(5), stat field 22).
    started: u64,
    /// The boot ID of the host.
    boot: String,
}

impl ProcessId {
    /// The running process with this PID. `None` if it does not exist, or only its exit status is left.
    pub fn of(number: i32) -> Option<Self> {
        let (process, state) = Self::of_entry(number)?;
        (!matches!(state.as_str(), "Z" | "X")).then_some(process)
    }

    /// The process with this PID and its state. The entry exists until the parent has collected the exit status.
    fn of_entry(number: i32) -> Option<(Self, String)> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The second field is the program's name in parentheses and can have any character, so fields are counted
        // from its end.
        let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
        let state = fields.next()?.to_owned();
        let started = fields.nth(18)?.parse().ok()?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        Some((Self { number, started, boot }, state))
    }

    /// The PID, valid while the process runs.
    pub fn number(&self) -> i32 {
        self.number
    }

    pub fn is_running(&self) -> bool {
        Self::of(self.number).as_ref() == Some(self)
    }

    /// Sends a signal if the process still runs.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.number), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the process handles a signal (1 to 64), or has blocked it to read it. `true` if that is unknown.
    /// Source: proc(5), status fields SigCgt and SigBlk.
    pub fn takes(&self, signal: u32) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.number)) else { return true };
        let masks = status.lines().filter_map(|line| line.strip_prefix("SigCgt:").or(line.strip_prefix("SigBlk:")));
        let masks: Vec<u64> = masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).collect();
        masks.is_empty() || masks.iter().any(|mask| mask >> (signal - 1) & 1 == 1)
    }

    /// Kills the process and waits until it has ended, at most ten seconds.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        until(&format!("process {} to end", self.number), Duration::from_secs(10), || Ok(!self.is_running()))
    }

    /// All processes with exactly this argument. Finds processes of commands that were killed.
    pub fn with_argument(argument: &str) -> Vec<ProcessId> {
        let has_it = |number: &i32| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|one| one == argument.as_bytes())
        };
        numbers().into_iter().filter(has_it).filter_map(Self::of).collect()
    }

    pub fn children(&self) -> Vec<ProcessId> {
        let parent = self.number.to_string();
        numbers()
            .into_iter()
            .filter(|number| {
                fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| {
                    stat.rfind(')').and_then(|end| stat[end + 1..].split_ascii_whitespace().nth(1))
                        == Some(parent.as_str())
                })
            })
            .filter_map(Self::of)
            .collect()
    }
}

fn numbers() -> Vec<i32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Starts a program that continues after this command has ended, in a separate process group. Its output goes to
/// `log`. A program that has already ended is no error: the returned process does not run, and `log` has the reason.
pub fn start(command: &mut Command, log: fs::File) -> io::Result<ProcessId> {
    use std::os::unix::process::CommandExt;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("starting {program}: {error}")))?;
    let entry = ProcessId::of_entry(child.id() as i32);
    // A parent that outlives the process collects its exit status.
    std::thread::spawn(move || child.wait());
    entry.map(|(process, _)| process).ok_or_else(|| io::Error::other(format!("{program} is not in /proc")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> fs::File {
        fs::OpenOptions::new().write(true).open("/dev/null").unwrap()
    }

    #[test]
    fn a_killed_process_is_not_signalled_again() {
        let id = start(Command::new("sleep").arg("60"), null()).unwrap();
        assert!(id.is_running());
        id.kill().unwrap();
        assert!(!id.is_running());
        id.signal(Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_zombie_is_known_and_does_not_run() {
        let mut child = Command::new("true").spawn().unwrap();
        let number = child.id() as i32;
        let state = || Ok(ProcessId::of_entry(number).is_some_and(|(_, state)| state == "Z"));
        until("the process to end", Duration::from_secs(60), state).unwrap();
        assert!(ProcessId::of(number).is_none());
        assert!(!ProcessId::of_entry(number).unwrap().0.is_running());
        child.wait().unwrap();
    }

    #[test]
    fn handled_and_blocked_signals_are_taken() {
        let takes = |arguments: &[&str]| {
            let id = start(Command::new("env").args(arguments).args(["sleep", "60"]), null()).unwrap();
            let is_sleep =
                || fs::read_link(format!("/proc/{}/exe", id.number())).is_ok_and(|exe| !exe.ends_with("env"));
            until("the program to run", Duration::from_secs(60), || Ok(is_sleep())).unwrap();
            let takes = id.takes(38);
            id.kill().unwrap();
            takes
        };
        assert!(!takes(&[]));
        assert!(takes(&["--block-signal=RTMIN+4"]));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        let before = ProcessId { started: me.started - 1, ..me.clone() };
        assert!(me.is_running());
        assert!(!before.is_running());
    }

    #[test]
    fn children_are_found() {
        let child = start(Command::new("sleep").arg("60"), null()).unwrap();
        let me = ProcessId::of(std::process::id() as i32).unwrap();
        assert!(me.children().contains(&child));
        child.kill().unwrap();
    }
}
