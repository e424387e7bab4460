//! The steps that prepare the host: data disk, network, access, images.

use std::time::Instant;

use anyhow::Context as _;
use contract::codes;
use contract::finding::{Finding, Findings};
use contract::image;

use super::{StepContext, StepError, StepOutcome};
use crate::cluster::addons;
use crate::cluster::firewall::Rules;
use crate::cluster::kubernetes::kubeadm;
use crate::cluster::payload::{self, Containerd, Payload};
use crate::cluster::reachability;
use crate::cluster::rendezvous::RendezvousRecord;
use crate::cluster::tenants;
use crate::host::disk::{self, DataDisk, DiskState, Identity, MachineId, Owner};
use crate::host::files;
use crate::host::vmware::backdoor::Port;
use crate::host::worker_state;
use crate::intake::config::Config;
use crate::intake::environment::guestinfo::{GuestInfo, Scrubbed};
use crate::intake::environment::medium;
use crate::intake::preflight::Clock;
use crate::node::reconfigure;
use crate::system::{access, clock, host_clock, hostname, network, proxy, time, trust};

impl StepContext {
    pub(super) fn prepare_data_disk(&mut self) -> Result<StepOutcome, StepError> {
        let Some(target) = self.node.data_disk.target() else { return Ok(StepOutcome::Unchanged) };
        if let Some(finding) = reachability::existing_cluster(&self.node.config) {
            return Err(finding.into());
        }
        let text = std::fs::read_to_string(self.node.path("/etc/machine-id")).context("reading the machine ID")?;
        let owner = Owner {
            cluster: self.node.config.cluster_name().to_owned(),
            node: self.node.config.node().name.clone(),
            image_version: self.node.image.version.clone(),
            machine_id: text.parse::<MachineId>().context("reading /etc/machine-id")?,
            local_volumes: None,
        };
        let (disk, identity) = disk::prepare(&target, &owner, &self.node.platform, self.node.runner())?;
        // If this step runs again, the disk is the node's own.
        self.node.data_disk = DataDisk::Ours { disk, identity };
        Ok(StepOutcome::Changed)
    }

    pub(super) fn mount_data_disk(&mut self) -> Result<StepOutcome, StepError> {
        let DataDisk::Ours { disk, identity } = &self.node.data_disk else {
            return Err(anyhow::anyhow!("there is no prepared data disk").into());
        };
        let identity = disk::mount(disk, identity, &self.node.platform, self.node.runner())?;
        // The name may have changed before the cluster formed.
        let named = Identity {
            cluster: self.node.config.cluster_name().to_owned(),
            node: self.node.config.node().name.clone(),
            member: self.node.config.node().name.clone(),
            host_name: self.node.config.node().name.clone(),
            ..identity.clone()
        };
        if identity.state == DiskState::Unformed && named != identity {
            disk::slots::write(&disk.path, &named).context("writing the node's name to the data disk")?;
        }
        self.identity = Some(if identity.state == DiskState::Unformed { named } else { identity });
        Ok(StepOutcome::Changed)
    }

    pub(super) fn keep_on_scratch(&mut self) -> Result<StepOutcome, StepError> {
        Ok(worker_state::mount(&self.node.platform)?.into())
    }

    pub(super) fn save_configuration(&mut self) -> Result<StepOutcome, StepError> {
        let mut changed = false;
        match &self.secret {
            Some(secret) => {
                changed |= self.node.records.save_config(&self.node.config, secret)?;
                reconfigure::forget(self.node.root())?;
            }
            None => self.secret = self.node.records.secret()?,
        }
        changed |= self.name_data_disk()?;
        changed |= self.decide_on_volumes()?;
        if let Some(environment) = &self.environment {
            changed |= self.node.records.save_environment(environment)?;
        }
        let plan = serde_json::to_vec_pretty(&self.plan).context("saving the plan")?;
        Ok((files::ensure_content(&self.node.records.plan(), &plan, 0o644)? || changed).into())
    }

    /// A node that belongs to no cluster yet may have another name than when its disk was prepared.
    fn name_data_disk(&mut self) -> anyhow::Result<bool> {
        let (Some(identity), Some(path)) = (&self.identity, self.plan.data_disk()) else { return Ok(false) };
        let node = &self.node.config.node().name;
        if (&identity.node, identity.cluster.as_str()) == (node, self.node.config.cluster_name()) {
            return Ok(false);
        }
        let named = disk::Identity {
            cluster: self.node.config.cluster_name().to_owned(),
            node: node.clone(),
            member: node.clone(),
            host_name: node.clone(),
            ..identity.clone()
        };
        disk::slots::write(path, &named).context("naming the data disk")?;
        self.identity = Some(named);
        Ok(true)
    }

    /// vCenter restores the secrets at each power-on. A failure is only a warning: the node is then as safe as any
    /// other appliance.
    pub(super) fn scrub(&mut self) -> Result<StepOutcome, StepError> {
        let (ejected, warnings) = medium::eject(&self.node.platform, self.node.runner());
        self.warn(warnings);
        let Some(mut guestinfo) = GuestInfo::of_this_machine() else { return Ok(ejected.into()) };
        match scrubbed(&mut guestinfo) {
            Ok(scrubbed) => Ok((ejected || scrubbed).into()),
            Err(finding) => {
                self.warn(finding.into());
                Ok(ejected.into())
            }
        }
    }

    pub(super) fn images(&mut self) -> Result<StepOutcome, StepError> {
        // containerd reads all of its database right after its start, and may end only then.
        self.runtime()?;
        let mut payload = Payload::open(self.node.root()).map_err(anyhow::Error::from)?;
        let tag = |version: &str| format!("v{version}");
        let version = tag(self.node.kubernetes_version()?);
        let (mut wanted, parts) = match &self.node.config {
            Config::ControlPlane(config) => {
                let components = kubeadm::COMPONENTS.iter().map(|name| image::reference(name, &version)).collect();
                (components, addons::images(config, &self.node.image))
            }
            Config::Worker(_) => (Vec::new(), addons::images_of_workers()),
        };
        for name in parts {
            wanted.extend(payload.carry(name).map_err(anyhow::Error::from)?);
        }
        wanted.push(image::reference("pause", &tag(&self.node.image.pause)));
        let laid = match &self.node.config {
            Config::ControlPlane(config) if addons::has_controller(config, &self.node.image) => {
                tenants::ensure(self.node.root())?
            }
            _ => false,
        };
        let loaded = payload::ensure(&payload, &Containerd::default(), self.node.runner(), &wanted);
        // A snapshotter opens its database at the first request only.
        self.runtime_failures = if loaded.is_err() { self.runtime_failures + 1 } else { 0 };
        Ok((!loaded.map_err(anyhow::Error::from)?.is_empty() || laid).into())
    }

    pub(super) fn host_name(&mut self) -> Result<StepOutcome, StepError> {
        Ok(hostname::ensure(&self.node.platform, self.node.bus(), &self.node.config)?.into())
    }

    pub(super) fn trust(&mut self) -> Result<StepOutcome, StepError> {
        Ok(trust::ensure(&self.node.platform, self.node.runner(), &self.node.config.node().extra_ca_certificates)?
            .into())
    }

    pub(super) fn proxy(&mut self) -> Result<StepOutcome, StepError> {
        Ok(proxy::ensure(&self.node.platform, &self.node.config)?.into())
    }

    pub(super) fn firewall(&mut self) -> Result<StepOutcome, StepError> {
        Ok(self.node.firewall.ensure(self.node.runner(), &Rules::of(&self.node.config))?.into())
    }

    pub(super) fn network(&mut self) -> Result<StepOutcome, StepError> {
        let formed = self.progress.formed;
        let changed =
            network::ensure(&self.node.platform, self.node.runner(), self.node.bus(), &self.node.config, formed)?;
        Ok((self.take_lease()? || changed).into())
    }

    /// Another step waits for control-plane nodes that have not met yet.
    pub(super) fn check_reachability(&mut self) -> Result<StepOutcome, StepError> {
        let seen = reachability::look(&self.node.config, self.progress.formed);
        self.passing = reachability::judge(&seen);
        Ok(StepOutcome::Unchanged)
    }

    pub(super) fn time(&mut self) -> Result<StepOutcome, StepError> {
        let servers = &self.node.config.node().time_servers();
        let changed = time::ensure(&self.node.platform, &self.node.services(), servers)?;
        let (followed, finding) = time::look(&self.node.platform, self.node.runner(), servers);
        let asked = *self.time_asked.get_or_insert_with(Instant::now);
        if !followed && finding.is_some() && asked.elapsed() < self.node.config.timeout(time::FIRST_ANSWER) {
            return Err(StepError::Waiting("waiting for a time server".to_owned()));
        }
        let now = Clock::of(self.node.root());
        // Certificates made at such a time would be useless.
        let forms = match &self.node.config {
            Config::ControlPlane(_) => self.node.records.rendezvous()? == RendezvousRecord::Unformed,
            Config::Worker(_) => !self.progress.formed,
        };
        let mut passing = Findings::from(finding);
        let earliest = clock::earliest(self.node.root(), now.image);
        let changed = match host_clock::ensure(&self.node.platform, self.node.runner(), servers, earliest) {
            Ok(switched) => changed || switched,
            Err(finding) => {
                passing.push(finding);
                changed
            }
        };
        let implausible = clock::judge(now, forms);
        let refused = implausible.clone().filter(|_| forms);
        if refused.is_none() {
            passing.extend(implausible.into());
        }
        // The findings are shown even if the step is refused, because they may be the reason.
        self.passing = renewed(&self.passing, passing);
        if let Some(finding) = refused {
            return Err(finding.into());
        }
        clock::keep(self.node.root(), now, followed)?;
        Ok(changed.into())
    }

    pub(super) fn access(&mut self) -> Result<StepOutcome, StepError> {
        Ok(access::ensure(&self.node.platform, self.node.runner(), &self.node.services(), self.node.config.node())?
            .into())
    }
}

/// The findings `before`, with those about the clock replaced by the present ones.
fn renewed(before: &Findings, clock: Findings) -> Findings {
    let mut all = Findings::default();
    before.iter().filter(|finding| !finding.code.starts_with("clock.")).for_each(|finding| all.push(finding.clone()));
    all.extend(clock);
    all
}

/// Removes the secrets from guestinfo. True if there were any.
fn scrubbed<P: Port>(guestinfo: &mut GuestInfo<P>) -> Result<bool, Finding> {
    guestinfo.scrub().map(|scrubbed| scrubbed != Scrubbed::Nothing).map_err(|error| {
        codes::GUESTINFO_NOT_SCRUBBED.finding(
            "guestinfo",
            format!("the secrets of the OVF environment were not removed: {error}"),
            "Remove guestinfo.ovfEnv from the VM's settings",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::vmware::backdoor::emulated::Hypervisor;

    #[test]
    fn clock_findings_replace_earlier_ones() {
        let gateway = codes::GATEWAY_SILENT.finding("gateway", "silent", "look");
        let host = codes::CLOCK_HOST.finding("clock", "behind", "set it");
        let before = Findings::from(gateway.clone());
        let mut both = before.clone();
        both.push(host.clone());
        let once = renewed(&before, host.clone().into());
        assert_eq!(once, both);
        assert_eq!(renewed(&once, host.into()), both, "a second attempt does not say it twice");
        assert_eq!(renewed(&both, Findings::default()), before, "it was mended meanwhile");
    }

    #[test]
    fn hypervisor_that_keeps_secrets_is_reported() {
        let secrets = include_str!("../../intake/environment/fixtures/three-nodes.xml");
        let mut hypervisor = Hypervisor::with("guestinfo.ovfEnv", secrets);
        hypervisor.writable = false;
        let finding = scrubbed(&mut GuestInfo::new(hypervisor)).unwrap_err();
        assert_eq!(finding.code, "guestinfo.not-scrubbed");
        assert!(finding.seen.contains("Permission denied"), "{finding}");
        assert!(scrubbed(&mut GuestInfo::new(Hypervisor::with("guestinfo.ovfEnv", secrets))).unwrap());
    }
}
