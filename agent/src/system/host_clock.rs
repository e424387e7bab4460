//! The clock of the ESXi host, through VMware Tools. Without time servers the
//! VM follows it; with them it does not, because two that correct one clock
//! work against each other.
//!
//! The host keeps the setting with the VM (`tools.syncTime`) and tells it to the
//! daemon of VMware Tools, whose plugin `timeSync` then corrects the clock once
//! a minute.

use crate::codes;
use crate::command::{Command, Error, Runner};
use crate::finding::Finding;
use crate::platform::Platform;

const TOOLS: &str = "vmware-toolbox-cmd";

/// The daemon of VMware Tools.
const UNIT: &str = "open-vm-tools.service";

/// The exit status of `timesync status` while it is off: `EX_UNAVAILABLE` of
/// sysexits(3), as vmware-toolbox-cmd(1) has it.
const OFF: i32 = 69;

/// Switches periodic time synchronization with the host on where there are no
/// time `servers`, else off. On other hypervisors and in a container nothing is
/// done. Says whether something was changed.
///
/// # Errors
/// A warning that says what could not be done.
pub fn ensure(platform: &Platform, runner: &dyn Runner, servers: &[String]) -> Result<bool, Finding> {
    if !platform.is_vmware() {
        return Ok(false);
    }
    let wanted = servers.is_empty();
    set(runner, wanted).map_err(|seen| {
        let (purpose, action) = match wanted {
            true => (
                "without time servers the VM is to follow the clock of its ESXi host",
                "Switch on \"Synchronize time periodically\" in the VM's options of VMware Tools, or give time servers",
            ),
            false => (
                "with time servers the clock of the ESXi host is not to be followed as well",
                "Switch off \"Synchronize time periodically\" in the VM's options of VMware Tools",
            ),
        };
        codes::CLOCK_HOST.finding("clock", format!("{purpose}, but {seen}"), action)
    })
}

/// Without the daemon, to have it switched on changes nothing.
fn set(runner: &dyn Runner, wanted: bool) -> Result<bool, String> {
    let started = wanted && start_daemon(runner)?;
    if is_on(runner)? == wanted {
        return Ok(started);
    }
    runner.run(&timesync(if wanted { "enable" } else { "disable" })).map_err(|error| error.to_string())?;
    Ok(true)
}

fn start_daemon(runner: &dyn Runner) -> Result<bool, String> {
    let runs = || match runner.run(&Command::new("systemctl").args(["is-active", UNIT])) {
        Ok(_) => Ok(true),
        Err(Error::Failed { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    };
    if runs()? {
        return Ok(false);
    }
    // It also succeeds where a condition of the unit is not met.
    runner.run(&Command::new("systemctl").args(["start", UNIT])).map_err(|error| error.to_string())?;
    if runs()? { Ok(true) } else { Err(format!("{UNIT} does not run")) }
}

fn is_on(runner: &dyn Runner) -> Result<bool, String> {
    match runner.run(&timesync("status")) {
        Ok(_) => Ok(true),
        Err(Error::Failed { status, .. }) if status.code() == Some(OFF) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn timesync(verb: &str) -> Command {
    Command::new(TOOLS).args(["timesync", verb])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::ExitStatus;
    use std::sync::Mutex;

    use super::*;
    use crate::files;
    use crate::platform::CONTAINER_FILE;

    /// The host's setting and the daemon, as they answer; and the changes made.
    struct Host {
        on: Mutex<bool>,
        daemon: Mutex<bool>,
        /// The verb that fails, with this exit status.
        fails: Option<(&'static str, i32)>,
        changes: Mutex<Vec<String>>,
    }

    fn host(on: bool, daemon: bool) -> Host {
        Host { on: on.into(), daemon: daemon.into(), fails: None, changes: Mutex::default() }
    }

    impl Runner for Host {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            let verb = line.split(' ').nth(if line.starts_with(TOOLS) { 2 } else { 1 }).unwrap();
            let ended = |code: i32| match code {
                0 => Ok(Vec::new()),
                _ => Err(Error::Failed {
                    command: line.clone(),
                    status: ExitStatus::from_raw(code << 8),
                    tail: "no".to_owned(),
                }),
            };
            if let Some((_, code)) = self.fails.filter(|(fails, _)| *fails == verb) {
                return ended(code);
            }
            let changed = || self.changes.lock().unwrap().push(verb.to_owned());
            match verb {
                "status" => ended(if *self.on.lock().unwrap() { 0 } else { OFF }),
                "is-active" => ended(if *self.daemon.lock().unwrap() { 0 } else { 3 }),
                "enable" | "disable" => {
                    changed();
                    *self.on.lock().unwrap() = verb == "enable";
                    ended(0)
                }
                "start" => {
                    changed();
                    *self.daemon.lock().unwrap() = true;
                    ended(0)
                }
                other => panic!("{other}"),
            }
        }
    }

    fn platform(root: &Path, carrier: &str) -> Platform {
        let (file, text) = match carrier {
            "container" => (
                CONTAINER_FILE,
                r#"{"cdrom": null, "data_disks": [], "bios_uuid": "420f1a2b-0000-4000-8000-000000000001"}"#,
            ),
            vendor => ("/sys/class/dmi/id/sys_vendor", vendor),
        };
        let file = files::below(root, file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        Platform::detect(root).unwrap()
    }

    #[test]
    fn the_hosts_clock_is_followed_on_vmware_without_time_servers_and_nowhere_else() {
        let none: &[&str] = &[];
        for (carrier, servers, on, daemon, expected) in [
            ("VMware, Inc.", none, false, true, &["enable"][..]),
            ("VMware, Inc.", none, true, true, &[]),
            ("VMware, Inc.", none, false, false, &["start", "enable"]),
            ("VMware, Inc.", none, true, false, &["start"]),
            ("VMware, Inc.", &["10.0.0.1"], true, true, &["disable"]),
            ("VMware, Inc.", &["10.0.0.1"], false, true, &[]),
            ("VMware, Inc.", &["10.0.0.1"], true, false, &["disable"]),
            ("QEMU", none, false, false, &[]),
            ("QEMU", &["10.0.0.1"], true, true, &[]),
            ("container", none, false, false, &[]),
            ("container", &["10.0.0.1"], true, true, &[]),
        ] {
            let root = tempfile::tempdir().unwrap();
            let platform = platform(root.path(), carrier);
            let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
            let host = host(on, daemon);
            let case = format!("{carrier} {servers:?} on: {on} daemon: {daemon}");
            assert_eq!(ensure(&platform, &host, &servers), Ok(!expected.is_empty()), "{case}");
            assert_eq!(*host.changes.lock().unwrap(), expected, "{case}");
            // Again: everything is as it should be.
            assert_eq!(ensure(&platform, &host, &servers), Ok(false), "{case}");
            assert_eq!(host.changes.lock().unwrap().len(), expected.len(), "{case}");
        }
    }

    #[test]
    fn it_follows_a_change_of_the_time_servers_in_both_directions() {
        let root = tempfile::tempdir().unwrap();
        let platform = platform(root.path(), "VMware, Inc.");
        let (host, servers) = (host(false, true), ["10.0.0.1".to_owned()]);
        for (servers, on) in [(&[][..], true), (&servers[..], false), (&[][..], true)] {
            assert_eq!(ensure(&platform, &host, servers), Ok(true));
            assert_eq!(*host.on.lock().unwrap(), on);
        }
    }

    #[test]
    fn what_fails_is_a_warning_that_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let platform = platform(root.path(), "VMware, Inc.");
        let servers = ["10.0.0.1".to_owned()];
        for (servers, fails, expected) in [
            (&[][..], ("status", 1), "vmware-toolbox-cmd timesync status: exit status: 1: no"),
            (&[], ("enable", 1), "vmware-toolbox-cmd timesync enable: exit status: 1: no"),
            (&[], ("start", 1), "systemctl start open-vm-tools.service: exit status: 1: no"),
            (&[], ("is-active", 3), "open-vm-tools.service does not run"),
            (&servers, ("disable", 1), "vmware-toolbox-cmd timesync disable: exit status: 1: no"),
        ] {
            let host = Host { fails: Some(fails), ..host(!servers.is_empty(), false) };
            let finding = ensure(&platform, &host, servers).unwrap_err();
            assert!(finding.seen.contains(expected), "{finding}");
            assert_eq!(finding.code, "clock.host");
            assert_eq!(finding.severity, crate::finding::Severity::Warning);
            let asked = if servers.is_empty() { "Switch on" } else { "Switch off" };
            assert!(finding.action.starts_with(asked), "{finding}");
        }
    }
}
