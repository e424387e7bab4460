//! Power of a lab's VMs: on, off, cut, and which of them is so.

use std::time::Duration;

use anyhow::{Context, bail};

use super::Lab;
use super::process::ProcessId;
use super::records::VmRecord;
use super::wait::until;
use fleet::hypervisor::PowerState;
use ova::ovf::environment::UnconfiguredProperties;

impl VmRecord {
    /// Whether vCenter would power it on.
    ///
    /// # Errors
    /// When properties that need a value have none: they are named.
    pub(crate) fn is_configured(&self) -> anyhow::Result<()> {
        if self.unconfigured.is_empty() {
            return Ok(());
        }
        let refused = UnconfiguredProperties { labels: self.unconfigured.clone() };
        Err(refused).with_context(|| format!("powering {} on: vCenter would refuse it", self.name))
    }
}

impl Lab {
    /// Powers a VM on; nothing happens when it is on already.
    ///
    /// # Errors
    /// When vCenter would refuse it for want of properties, its network cannot be made, or it does not start; it is off then.
    pub fn power_on(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.power_on_locked(vm)
    }

    /// The same, of whoever has the lab's lock.
    pub(crate) fn power_on_locked(&self, vm: &str) -> anyhow::Result<()> {
        let record = self.directory.load_vm(vm)?;
        let engine = self.engines.of(&record);
        if self.is_half_started(&record) {
            self.end_half_start(&record)?;
        } else if engine.is_on(&record) {
            // Whoever has powered it on may have been killed before that was noted.
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

    /// Notes the process that a VM is now, of whoever has the lab's lock.
    pub(crate) fn has_started(&self, mut record: VmRecord, process: ProcessId) -> anyhow::Result<()> {
        record.process = Some(process);
        self.directory.save_vm(&record)?;
        self.cancel_removal()
    }

    /// A lab that was to be removed, and of which no VM has gone, is not to go any more once one runs: somebody wants it on.
    fn cancel_removal(&self) -> anyhow::Result<()> {
        if self.directory.is_noted_to_go()? && self.has_all_nodes()? { self.directory.cancel_removal() } else { Ok(()) }
    }

    /// Asks the guest to shut down and waits until the VM is off, at most `limit`.
    ///
    /// # Errors
    /// When nothing in the guest takes such a request, or it is still on after `limit`; it then goes on running.
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

    /// Asks the guest to shut down, of whoever has the lab's lock; none if nothing in it takes such a request.
    pub(crate) fn ask_to_shut_down(&self, vm: &str) -> anyhow::Result<Option<VmRecord>> {
        let record = self.directory.load_vm(vm)?;
        let asked = self.engines.of(&record).ask_to_shut_down(&record);
        Ok(asked.with_context(|| format!("shutting {vm} down"))?.then_some(record))
    }

    /// Waits until a VM is off that was asked to shut down, at most `limit`.
    pub(crate) fn is_shut_down(&self, record: &VmRecord, limit: Duration) -> anyhow::Result<()> {
        let vm = &record.name;
        // Meanwhile somebody may lose patience and cut its power: the lab is not locked.
        until(&format!("{vm} to shut down"), limit, || Ok(!self.engines.of(record).is_on(record)))
    }

    /// Gives back what a VM had from the host that has shut down, of whoever has the lab's lock.
    pub(crate) fn tidy_after(&self, record: &VmRecord) -> anyhow::Result<()> {
        let vm = &record.name;
        match self.directory.load_vm(vm)? {
            record if self.engines.of(&record).is_on(&record) => bail!("{vm} was off and is on again"),
            record => self.is_off_now(record),
        }
    }

    /// Cuts the power: what the guest had not written to a disk is lost.
    ///
    /// # Errors
    /// When the VM does not end.
    pub fn cut_power(&self, vm: &str) -> anyhow::Result<()> {
        let _lock = self.directory.lock()?;
        self.cut_power_locked(vm)
    }

    /// The same, of whoever has the lab's lock.
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

    /// Looks up whether a VM is on; changes nothing. What a command that was killed while it powered a VM on has left
    /// running is neither on nor off; whoever may change the VM next ends it.
    ///
    /// # Errors
    /// When the VM is unknown.
    pub fn power_state(&self, vm: &str) -> anyhow::Result<PowerState> {
        let record = self.directory.load_vm(vm)?;
        if !self.engines.of(&record).is_on(&record) {
            return Ok(PowerState::Off);
        }
        if record.process.is_some() {
            return Ok(PowerState::On);
        }
        // Somebody is powering it on, and has the lock meanwhile.
        let _lock = self.directory.lock()?;
        let record = self.directory.load_vm(vm)?;
        Ok(match self.engines.of(&record).is_on(&record) {
            false => PowerState::Off,
            true if record.process.is_some() => PowerState::On,
            true => PowerState::Unknown,
        })
    }

    /// Whether a command was killed while it powered a VM on, asked with the lab locked: something of it runs, and misses
    /// what is given to it last.
    pub(crate) fn is_half_started(&self, record: &VmRecord) -> bool {
        record.process.is_none() && self.engines.of(record).is_on(record)
    }

    /// Ends what such a command has left running, with the lab locked.
    pub(crate) fn end_half_start(&self, record: &VmRecord) -> anyhow::Result<()> {
        self.engines.of(record).cut(record).with_context(|| format!("ending the half-started {}", record.name))?;
        self.is_off_now(record.clone())
    }
}
