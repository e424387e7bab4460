//! Power of a lab's VMs: on, off, cut, and its state.

use std::time::Duration;

use anyhow::{Context, bail};

use super::Lab;
use super::process::ProcessId;
use super::records::VmRecord;
use super::wait::until;
use fleet::hypervisor::PowerState;
use ova::ovf::environment::UnconfiguredProperties;

impl VmRecord {
    /// Checks that vCenter would power the VM on. The error names required properties that have no value.
    pub(crate) fn is_configured(&self) -> anyhow::Result<()> {
        if self.unconfigured.is_empty() {
            return Ok(());
        }
        let refused = UnconfiguredProperties { labels: self.unconfigured.clone() };
        Err(refused).with_context(|| format!("powering {} on: vCenter would refuse it", self.name))
    }
}

impl Lab {
    /// Powers a VM on. Does nothing if it is already on. Fails if required properties have no value. After an error, it
    /// is off.
    pub fn power_on(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.power_on_locked(vm)
    }

    /// As [`Lab::power_on`]. The caller holds the lab's lock.
    pub(crate) fn power_on_locked(&self, vm: &str) -> anyhow::Result<()> {
        let record = self.directory.load_vm(vm)?;
        let engine = self.engines.of(&record);
        if self.is_half_started(&record) {
            self.end_half_start(&record)?;
        } else if engine.is_on(&record) {
            // The command that powered it on may have been killed before it cancelled the removal.
            return self.cancel_removal();
        }
        record.is_configured()?;
        self.make_network().with_context(|| format!("powering {vm} on"))?;
        engine.release(&record)?;
        if record.by_dhcp {
            self.serve_leases().with_context(|| format!("powering {vm} on"))?;
        }
        self.directory.mark_power_on(vm)?;
        let started = engine.start(&record).with_context(|| format!("powering {vm} on"));
        match started {
            Ok(process) => self.has_started(record, process),
            Err(error) => {
                engine
                    .cut(&record)
                    .and_then(|()| engine.release(&record))
                    .map_err(|cleanup| anyhow::anyhow!("{error:#}; and cleaning up after it: {cleanup:#}"))?;
                Err(error)
            }
        }
    }

    /// Records the process of a VM. The caller holds the lab's lock.
    pub(crate) fn has_started(&self, mut record: VmRecord, process: ProcessId) -> anyhow::Result<()> {
        record.process = Some(process);
        self.directory.save_vm(&record)?;
        self.cancel_removal()
    }

    /// Cancels the lab's removal if it has removed no VM: an operator has powered a VM on.
    fn cancel_removal(&self) -> anyhow::Result<()> {
        if self.directory.is_noted_to_go()? && self.has_all_nodes()? { self.directory.cancel_removal() } else { Ok(()) }
    }

    /// Asks the guest to shut down and waits until the VM is off, at most `limit`. Fails at once if nothing in the
    /// guest handles such a request. After an error, the VM continues to run.
    pub fn shut_down(&self, vm: &str, limit: Duration) -> anyhow::Result<()> {
        let asked = {
            let _lock = self.directory.lock()?;
            self.ask_to_shut_down(vm)?
        };
        let record = asked.with_context(|| format!("the guest of {vm} cannot be asked to shut down"))?;
        self.is_shut_down(&record, limit)?;
        let _lock = self.directory.lock()?;
        self.tidy_after(&record)
    }

    /// Asks the guest to shut down. `None` if nothing in it handles such a request. The caller holds the lab's lock.
    pub(crate) fn ask_to_shut_down(&self, vm: &str) -> anyhow::Result<Option<VmRecord>> {
        let record = self.directory.load_vm(vm)?;
        let asked = self.engines.of(&record).ask_to_shut_down(&record);
        Ok(asked.with_context(|| format!("shutting {vm} down"))?.then_some(record))
    }

    /// Waits until a VM is off that was asked to shut down, at most `limit`.
    pub(crate) fn is_shut_down(&self, record: &VmRecord, limit: Duration) -> anyhow::Result<()> {
        let vm = &record.name;
        // The lab is not locked meanwhile, so that another command can cut the power.
        until(&format!("{vm} to shut down"), limit, || Ok(!self.engines.of(record).is_on(record)))
    }

    /// Releases what a VM used on the host before its shutdown. The caller holds the lab's lock.
    pub(crate) fn tidy_after(&self, record: &VmRecord) -> anyhow::Result<()> {
        let vm = &record.name;
        match self.directory.load_vm(vm)? {
            record if self.engines.of(&record).is_on(&record) => bail!("{vm} was off and is on again"),
            record => self.is_off_now(record),
        }
    }

    /// Cuts the power. Data that the guest had not written to a disk is lost.
    pub fn cut_power(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.cut_power_locked(vm)
    }

    /// As [`Lab::cut_power`]. The caller holds the lab's lock.
    pub(crate) fn cut_power_locked(&self, vm: &str) -> anyhow::Result<()> {
        let record = self.directory.load_vm(vm)?;
        self.engines.of(&record).cut(&record).with_context(|| format!("cutting {vm}'s power"))?;
        self.is_off_now(record)
    }

    fn is_off_now(&self, mut record: VmRecord) -> anyhow::Result<()> {
        self.engines.of(&record).release(&record)?;
        record.process = None;
        self.directory.save_vm(&record)
    }

    /// The power state of a VM. Changes nothing. A VM whose power-on was interrupted is [`PowerState::Unknown`]. The
    /// next command that may change it ends it.
    pub fn power_state(&self, vm: &str) -> anyhow::Result<PowerState> {
        let record = self.directory.load_vm(vm)?;
        if !self.engines.of(&record).is_on(&record) {
            return Ok(PowerState::Off);
        }
        if record.process.is_some() {
            return Ok(PowerState::On);
        }
        // Another command is powering it on, and holds the lock.
        let _lock = self.directory.lock()?;
        let record = self.directory.load_vm(vm)?;
        Ok(match self.engines.of(&record).is_on(&record) {
            false => PowerState::Off,
            true if record.process.is_some() => PowerState::On,
            true => PowerState::Unknown,
        })
    }

    /// Whether a power-on was interrupted: a process of the VM runs, but lacks the last steps. The caller holds the
    /// lab's lock.
    pub(crate) fn is_half_started(&self, record: &VmRecord) -> bool {
        record.process.is_none() && self.engines.of(record).is_on(record)
    }

    /// Ends a VM whose power-on was interrupted. The caller holds the lab's lock.
    pub(crate) fn end_half_start(&self, record: &VmRecord) -> anyhow::Result<()> {
        self.engines.of(record).cut(record).with_context(|| format!("ending the half-started {}", record.name))?;
        self.is_off_now(record.clone())
    }
}
