//! Reads and changes the power of VMs.

use std::fmt;
use std::time::{Duration, Instant};

use crate::changes::Changes;
use crate::client::Client;
use crate::collector::Watch;
use crate::error::{Error, Result};
use crate::method::{POWER_OFF_VM, POWER_ON_VM, SHUTDOWN_GUEST};
use crate::reference::MoRef;
use crate::treatment::Outcome;

/// The power state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It is powered off.
    Off,
    /// It is powered on.
    On,
    /// It is stopped, and its memory is kept.
    Suspended,
    /// vCenter does not know the state now: the host does not answer, or the files are inaccessible. It shows the last
    /// known state.
    Unknown,
}

impl Power {
    /// Reads `runtime.powerState` and `runtime.connectionState`.
    pub(super) fn read(state: &str, connection: &str) -> Self {
        match (connection, state) {
            ("connected", "poweredOff") => Self::Off,
            ("connected", "poweredOn") => Self::On,
            ("connected", "suspended") => Self::Suspended,
            _ => Self::Unknown,
        }
    }
}

/// For "the VM is …".
impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Suspended => "suspended",
            Self::Unknown => "in an unknown power state",
        })
    }
}

/// The result of a request to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutDown {
    /// The VM is off.
    Off,
    /// The guest got the request, and the VM is still on at the limit.
    StillOn,
    /// VMware Tools are missing or do not run, so nothing was done.
    CannotBeAsked,
}

const PATHS: &[&str] = &["runtime.powerState", "runtime.connectionState"];

impl Client {
    /// Waits until a VM has a power state, at most `limit`. Returns the state after the wait. Fails if that is
    /// unreadable.
    pub async fn wait_for_power(&self, vm: &MoRef, wanted: Power, limit: Duration) -> Result<Power> {
        let mut watch = Watch::new(self, vm.clone(), PATHS);
        let begin = Instant::now();
        let mut failures = 0;
        let end = loop {
            match watch.next(limit.saturating_sub(begin.elapsed())).await {
                Ok(seen) => {
                    failures = 0;
                    let power = Power::read(seen.text(PATHS[0]), seen.text(PATHS[1]));
                    if power == wanted || begin.elapsed() >= limit {
                        break Ok(power);
                    }
                }
                Err(error) if error.outcome() == Outcome::Transient && begin.elapsed() < limit => {
                    failures += 1;
                    tokio::time::sleep(self.settings().pause_before(failures)).await;
                }
                Err(error) => break Err(error),
            }
        };
        watch.close().await;
        end
    }
}

impl Changes<'_> {
    /// Powers a VM on. `InvalidPowerState` ([`Outcome::Changed`]) if it is on.
    pub async fn power_on(&self, vm: &MoRef) -> Result<()> {
        self.run(POWER_ON_VM, vm, Vec::new()).await.map(drop)
    }

    /// Powers a VM off, without its guest. `InvalidPowerState` ([`Outcome::Changed`]) if it is off.
    pub async fn power_off(&self, vm: &MoRef) -> Result<()> {
        self.run(POWER_OFF_VM, vm, Vec::new()).await.map(drop)
    }

    /// Requests a shutdown from a VM's guest, and waits until the VM is off, at most `limit`.
    ///
    /// # Errors
    /// `InvalidPowerState` ([`Outcome::Changed`]) if it is not on. [`Outcome::InDoubt`] if the guest got the request
    /// and the VM cannot be watched, or its state is unknown at the limit.
    pub async fn shut_down(&self, vm: &MoRef, limit: Duration) -> Result<ShutDown> {
        match self.change(SHUTDOWN_GUEST, vm, Vec::new()).await {
            Ok(_) => {}
            Err(error) if error.is_fault("ToolsUnavailable") => return Ok(ShutDown::CannotBeAsked),
            Err(error) => return Err(error),
        }
        match self.client.wait_for_power(vm, Power::Off, limit).await {
            Ok(Power::Off) => Ok(ShutDown::Off),
            Ok(Power::On | Power::Suspended) => Ok(ShutDown::StillOn),
            Ok(power @ Power::Unknown) => {
                Err(Error::in_doubt(format!("shutting down the guest of {vm}"), format!("it is {power}")))
            }
            Err(error) => Err(Error::in_doubt(format!("shutting down the guest of {vm}"), error)),
        }
    }
}
