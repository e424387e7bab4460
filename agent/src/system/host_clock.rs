//! The clock of the ESXi host, through VMware Tools. Without time servers the VM follows it. With time servers it does
//! not, because two programs that correct one clock disturb each other.
//!
//! The host stores the setting with the VM (`tools.syncTime`) and passes it to the daemon of VMware Tools. The daemon's
//! plugin `timeSync` then corrects the clock once a minute. It also sets the clock back, and does so at once when it is
//! enabled. Therefore the VM does not follow a host whose clock is behind.

use std::time::{Duration, SystemTime};

use contract::codes;
use contract::finding::Finding;

use crate::host::command::{Command, Error, Runner};
use crate::host::platform::Platform;
use crate::host::vmware::hardware::Hardware;
use crate::intake::preflight::show;

const TOOLS: &str = "vmware-toolbox-cmd";

const UNIT: &str = "open-vm-tools.service";

/// The exit status of `timesync status` while it is disabled: `EX_UNAVAILABLE` of sysexits(3), as in
/// vmware-toolbox-cmd(1).
const OFF: i32 = 69;

/// How far the host may be behind. The VM's clock drifts, and the last known time is the VM's.
const TOLERANCE: Duration = Duration::from_secs(60);

const SET_THE_HOST: &str = "Set the clock of the ESXi host, or give time servers";

/// Enables periodic time synchronization with the host if there are no time `servers`, and otherwise disables it. It is
/// not enabled if the host's clock is before `earliest`, the earliest plausible time. Nothing is done on other
/// hypervisors and in a container. True if something was changed. The error is a warning.
pub fn ensure(
    platform: &Platform,
    runner: &dyn Runner,
    servers: &[String],
    earliest: SystemTime,
) -> Result<bool, Finding> {
    // Firmware of another hypervisor may show VMware's strings. The lab's QEMU does.
    if Hardware::detect().is_none() {
        return Ok(false);
    }
    ensure_on(platform, runner, servers, earliest)
}

/// As [`ensure`], but detects VMware by the firmware only.
fn ensure_on(
    platform: &Platform,
    runner: &dyn Runner,
    servers: &[String],
    earliest: SystemTime,
) -> Result<bool, Finding> {
    if !platform.is_vmware() {
        return Ok(false);
    }
    let wanted = servers.is_empty();
    set(runner, wanted, earliest).map_err(|trouble| {
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
        let (seen, action) = match trouble {
            Problem::Tools(seen) => (seen, action),
            Problem::Host(seen) => (seen, SET_THE_HOST),
        };
        codes::CLOCK_HOST.finding("clock", format!("{purpose}, but {seen}"), action)
    })
}

/// Why the setting cannot be as required.
enum Problem {
    /// VMware Tools fail.
    Tools(String),
    /// The host's clock must not be followed.
    Host(String),
}

impl From<String> for Problem {
    fn from(seen: String) -> Self {
        Self::Tools(seen)
    }
}

/// Without the daemon, enabling it has no effect.
fn set(runner: &dyn Runner, wanted: bool, earliest: SystemTime) -> Result<bool, Problem> {
    let on = is_on(runner)?;
    if wanted && !on {
        is_not_behind(runner, earliest)?;
    }
    let started = wanted && start_daemon(runner)?;
    if on == wanted {
        return Ok(started);
    }
    runner.run(&timesync(if wanted { "enable" } else { "disable" })).map_err(|error| error.to_string())?;
    Ok(true)
}

/// Without the host's time it is unknown whether following it sets the clock back.
fn is_not_behind(runner: &dyn Runner, earliest: SystemTime) -> Result<(), Problem> {
    // The command prints local time, with month names in the locale's language.
    let command = Command::new(TOOLS).args(["stat", "hosttime"]).env("TZ", "UTC").env("LC_ALL", "C");
    let answer = runner.run(&command).map_err(|error| error.to_string())?;
    let Some(host) = host_time(&answer) else {
        let answer: String = String::from_utf8_lossy(&answer).trim().chars().take(80).collect();
        return Err(Problem::Host(format!("{command} answers {answer:?}, which is no time, so it is not followed")));
    };
    if host + TOLERANCE < earliest {
        return Err(Problem::Host(format!(
            "that says {}, and it is {} or later, as this node or its image knows: it is not followed",
            show(host),
            show(earliest)
        )));
    }
    Ok(())
}

/// Parses the output of `vmware-toolbox-cmd stat hosttime`: `%d %b %Y %H:%M:%S` of strftime(3) and a line break.
fn host_time(answer: &[u8]) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let line = std::str::from_utf8(answer).ok()?;
    let words: Vec<&str> = line.strip_suffix('\n').unwrap_or(line).split(' ').collect();
    let [day, month, year, time] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|name| name == month)? + 1;
    humantime::parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
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
    // The start also succeeds if a condition of the unit is not met.
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
    use crate::host::files;
    use contract::platform::CONTAINER_FILE;

    /// The host's setting and daemon, with the changes made.
    struct Host {
        on: Mutex<bool>,
        daemon: Mutex<bool>,
        /// The verb that fails, with this exit status.
        fails: Option<(&'static str, i32)>,
        time: &'static str,
        changes: Mutex<Vec<String>>,
    }

    /// The time known to this node. The default host is a second behind, which is harmless.
    fn earliest() -> SystemTime {
        humantime::parse_rfc3339("2026-11-22T12:00:01Z").unwrap()
    }

    fn host(on: bool, daemon: bool) -> Host {
        Host {
            on: on.into(),
            daemon: daemon.into(),
            fails: None,
            time: "22 Nov 2026 12:00:00\n",
            changes: Mutex::default(),
        }
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
                "hosttime" => Ok(self.time.as_bytes().to_vec()),
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
    fn only_vmware_without_time_servers_follows_the_host() {
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
            assert_eq!(ensure_on(&platform, &host, &servers, earliest()), Ok(!expected.is_empty()), "{case}");
            assert_eq!(*host.changes.lock().unwrap(), expected, "{case}");
            // The second call changes nothing.
            assert_eq!(ensure_on(&platform, &host, &servers, earliest()), Ok(false), "{case}");
            assert_eq!(host.changes.lock().unwrap().len(), expected.len(), "{case}");
        }
    }

    #[test]
    fn setting_follows_changes_of_the_time_servers() {
        let root = tempfile::tempdir().unwrap();
        let platform = platform(root.path(), "VMware, Inc.");
        let (host, servers) = (host(false, true), ["10.0.0.1".to_owned()]);
        for (servers, on) in [(&[][..], true), (&servers[..], false), (&[][..], true)] {
            assert_eq!(ensure_on(&platform, &host, servers, earliest()), Ok(true));
            assert_eq!(*host.on.lock().unwrap(), on);
        }
    }

    #[test]
    fn failure_is_a_warning_with_an_action() {
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
            let finding = ensure_on(&platform, &host, servers, earliest()).unwrap_err();
            assert!(finding.seen.contains(expected), "{finding}");
            assert_eq!(finding.code, "clock.host");
            assert_eq!(finding.severity, contract::finding::Severity::Warning);
            let asked = if servers.is_empty() { "Switch on" } else { "Switch off" };
            assert!(finding.action.starts_with(asked), "{finding}");
        }
    }

    #[test]
    fn late_or_unreadable_host_clock_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let platform = platform(root.path(), "VMware, Inc.");
        for (time, on, expected) in [
            ("22 Nov 2026 12:00:00\n", false, None),
            ("22 Nov 2026 11:59:02\n", false, None),
            ("01 Dec 2026 00:00:00", false, None),
            ("22 Nov 2026 11:58:59\n", false, Some("Nov 22 11:58:59 2026")),
            ("01 Jan 2010 00:00:00\n", false, Some("Jan  1 00:00:00 2010")),
            ("01 Jan 1970 00:00:00\n", false, Some("Jan  1 00:00:00 1970")),
            // The host is followed already. A report at each look would not help the operator.
            ("01 Jan 2010 00:00:00\n", true, None),
            ("", false, Some("which is no time")),
            ("\n", false, Some("which is no time")),
            ("1795348800\n", false, Some("which is no time")),
            ("22 nov. 2026 12:00:00\n", false, Some("which is no time")),
            ("22 Nov 2026 12:00:00 +01:00\n", false, Some("which is no time")),
            ("22 Nov 2026 12:00\n", false, Some("which is no time")),
            ("31 Feb 2026 12:00:00\n", false, Some("which is no time")),
            ("22 Nov 26 12:00:00\n", false, Some("which is no time")),
            ("22 Nov 2026 12:00:00\nmore\n", false, Some("which is no time")),
        ] {
            let host = Host { time, ..host(on, false) };
            let outcome = ensure_on(&platform, &host, &[], earliest());
            let Some(expected) = expected else {
                assert_eq!(outcome, Ok(true), "{time:?}");
                assert!(*host.on.lock().unwrap(), "{time:?}");
                continue;
            };
            let finding = outcome.unwrap_err();
            assert!(finding.seen.contains(expected), "{time:?}: {finding}");
            assert!(expected.starts_with("which") || finding.seen.contains("Nov 22 12:00:01 2026"), "{finding}");
            assert_eq!((finding.code.as_str(), finding.action.as_str()), ("clock.host", SET_THE_HOST));
            assert!(host.changes.lock().unwrap().is_empty(), "{time:?}: neither it nor the daemon is started");
        }
        let host = Host { fails: Some(("hosttime", 75)), ..host(false, true) };
        let finding = ensure_on(&platform, &host, &[], earliest()).unwrap_err();
        assert!(finding.seen.contains("vmware-toolbox-cmd stat hosttime: exit status: 75"), "{finding}");
        assert!(host.changes.lock().unwrap().is_empty());
    }
}
