//! systemd's units over D-Bus (`org.freedesktop.systemd1`). This module does not depend on what the units do.

use std::time::Duration;

use anyhow::{Context, bail};

use crate::host::bus::{self, Bus};
use crate::host::command::{Command, Runner};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const UNIT_OF_SERVICE: &str = "org.freedesktop.systemd1.Service";

/// This many failed starts are no accident.
pub const FAILED_STARTS: u32 = 5;

/// A service that has restarted within this time has not recovered. Reading a large etcd takes minutes.
const LATELY: Duration = Duration::from_secs(5 * 60);

/// The agent's own unit. At its start the agent reads the saved state, decides its plan again and runs it.
pub const AGENT: &str = "kaas-agent.service";

/// The context of a failed [`restart_agent`].
pub const NOT_TAKEN_UP: &str = "the change is saved, but the agent could not be restarted to take it up";

pub fn restart_agent() -> anyhow::Result<()> {
    restart(AGENT)
}

/// Also starts a stopped unit.
pub fn restart(unit: &str) -> anyhow::Result<()> {
    Services::new(&bus::system()?).restart(unit)
}

/// Stops the agent, which may write to the data disk too, runs `write`, and restarts the system. `then` describes the
/// effect of that start. If `write` fails, the agent is started again.
pub fn write_and_reboot(
    runner: &dyn Runner,
    write: impl FnOnce() -> anyhow::Result<()>,
    then: &'static str,
) -> anyhow::Result<()> {
    let tell = |verb: &str| {
        runner.run(&Command::new("systemctl").args([verb, AGENT])).with_context(|| format!("{verb} {AGENT}"))
    };
    tell("stop")?;
    if let Err(error) = write() {
        tell("start")?;
        return Err(error);
    }
    runner.run(&Command::new("systemctl").arg("reboot")).with_context(|| format!("restarting: {then}"))?;
    Ok(())
}

pub struct Services<'a> {
    bus: &'a Bus,
}

impl<'a> Services<'a> {
    pub fn new(bus: &'a Bus) -> Self {
        Self { bus }
    }

    /// True if the unit was not running. Does not wait for it: a service that restarts until a peer exists has not
    /// failed.
    pub fn start(&self, unit: &str) -> anyhow::Result<bool> {
        if matches!(self.state(unit)?.as_str(), "active" | "activating" | "reloading") {
            return Ok(false);
        }
        self.job("StartUnit", unit)?;
        Ok(true)
    }

    pub fn restart(&self, unit: &str) -> anyhow::Result<()> {
        self.job("RestartUnit", unit)
    }

    /// Starts a unit, or restarts it if its files have `changed`. True if it did either.
    pub fn start_with(&self, unit: &str, changed: bool) -> anyhow::Result<bool> {
        if self.start(unit)? {
            return Ok(true);
        }
        if changed {
            self.restart(unit)?;
        }
        Ok(changed)
    }

    /// Waits until the unit has stopped, at most `timeout`.
    pub fn stop(&self, unit: &str, timeout: Duration) -> anyhow::Result<()> {
        if matches!(self.state(unit)?.as_str(), "inactive" | "failed") {
            return Ok(());
        }
        self.job("StopUnit", unit)?;
        let deadline = std::time::Instant::now() + timeout;
        while !matches!(self.state(unit)?.as_str(), "inactive" | "failed") {
            if std::time::Instant::now() > deadline {
                bail!("stopping {unit}: it still runs after {} s", timeout.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// systemd's `ActiveState` of a unit, such as `active` or `failed`.
    pub fn state(&self, unit: &str) -> anyhow::Result<String> {
        self.bus.property(SERVICE, self.path(unit)?.as_str(), UNIT, "ActiveState")
    }

    /// Whether a service seems to end at each start: systemd has restarted it [`FAILED_STARTS`] times, and less than
    /// five minutes ago. The count is since the last manual start, not in succession: a working service may have failed
    /// months ago.
    pub fn ends_at_each_start(&self, service: &str) -> anyhow::Result<bool> {
        let path = self.path(service)?;
        let restarts: u32 = self.bus.property(SERVICE, path.as_str(), UNIT_OF_SERVICE, "NRestarts")?;
        // In microseconds of CLOCK_MONOTONIC.
        let started: u64 =
            self.bus.property(SERVICE, path.as_str(), UNIT_OF_SERVICE, "ExecMainStartTimestampMonotonic")?;
        let now = Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?);
        Ok(restarts >= FAILED_STARTS && now < Duration::from_micros(started) + LATELY)
    }

    /// Resets systemd's restart counter of a unit.
    pub fn forget_failures(&self, unit: &str) -> anyhow::Result<()> {
        self.bus.call(SERVICE, PATH, MANAGER, "ResetFailedUnit", &(unit,)).with_context(|| format!("resetting {unit}"))
    }

    /// Only systemd is involved, because programs may be unreadable.
    pub fn reboot(&self) -> anyhow::Result<()> {
        self.job_in("StartUnit", "reboot.target", "replace-irreversibly")
    }

    fn path(&self, unit: &str) -> anyhow::Result<zbus::OwnedObjectPath> {
        self.bus.call(SERVICE, PATH, MANAGER, "LoadUnit", &(unit,)).with_context(|| format!("finding {unit}"))
    }

    fn job(&self, method: &str, unit: &str) -> anyhow::Result<()> {
        self.job_in(method, unit, "replace")
    }

    fn job_in(&self, method: &str, unit: &str, mode: &str) -> anyhow::Result<()> {
        let _: zbus::OwnedObjectPath =
            self.bus.call(SERVICE, PATH, MANAGER, method, &(unit, mode)).with_context(|| format!("{method} {unit}"))?;
        Ok(())
    }
}
