//! VMs as vCenter shows them, in the types of the hypervisor contract.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;
use vsphere::{AdapterNetwork, MoRef, Outcome, Power, Running};

use super::VcenterHypervisor;
use super::disks::kind;
use super::question::asked;
use super::stamp::{self, STAMP};
use super::trouble::{changed, not_now};
use crate::hypervisor::{Adapter, Disk, DiskRef, Error, Host, PowerState, Result, Vm, VmRef, VmSize};

/// How often VMs are listed again because one of them disappeared meanwhile.
const TRIES: usize = 3;

/// The limit for a value that a guest sets, in bytes: a statement and fingerprints are a few KiB. Any program in the
/// guest may write 1 MB there.
const SAID: usize = 16 << 10;

impl VcenterHypervisor {
    /// The deployment's VMs in the searched folders.
    pub(super) async fn own_vms(&self) -> Result<Vec<Vm>> {
        let vms = self.all_own().await?;
        self.shown_all(vms).await
    }

    /// As [`Self::own_vms`], in vCenter's types.
    pub(super) async fn all_own(&self) -> Result<Vec<vsphere::Vm>> {
        for _ in 0..TRIES {
            let mut own = Vec::new();
            for (folder, _) in &self.places.folders {
                let listed = self.client.entries_in(folder, false, &[STAMP]).await?;
                for unread in &listed.unread {
                    log::debug!("{}; if it is the deployment's, nothing is done by its absence", unread.error);
                }
                for entry in listed.vms {
                    if !entry.is_template && stamp::is_own(&entry.name, &entry.extra, self.deployment)? {
                        own.push(entry.reference);
                    }
                }
            }
            match self.client.vms_with(&own, &stamp::READ).await {
                // One of them has disappeared: the next listing says which.
                Err(error) if error.outcome() == Outcome::NotFound => {}
                vms => return Ok(vms?),
            }
        }
        Err(not_now("the folders' VMs come and go: they cannot be listed now".to_owned()))
    }

    /// A VM, wherever it is.
    pub(super) async fn named(&self, vm: &VmRef) -> Result<vsphere::Vm> {
        self.named_with(vm, &stamp::READ).await
    }

    /// As [`Self::named`], with these entries.
    async fn named_with(&self, vm: &VmRef, keys: &[&str]) -> Result<vsphere::Vm> {
        let found = self.client.vm_with(&MoRef::vm(&vm.id), keys).await?;
        if uuid(&found)? == vm.uuid {
            return Ok(found);
        }
        Err(Error::not_found(format!("{} is another VM than the one with the BIOS UUID {}", vm.id, vm.uuid)))
    }

    /// A VM of any owner that has not changed since it was read.
    pub(super) async fn unchanged(&self, seen: &Vm) -> Result<vsphere::Vm> {
        let now = self.named(&seen.reference).await?;
        if now.change_version == seen.version {
            return Ok(now);
        }
        Err(changed(format!("the VM {seen} has changed since it was looked at")))
    }

    /// As [`Self::unchanged`], for a VM of the deployment.
    pub(super) async fn as_seen(&self, seen: &Vm) -> Result<vsphere::Vm> {
        let now = self.unchanged(seen).await?;
        self.is_own(seen, &now)?;
        Ok(now)
    }

    /// Refuses a VM that is not the deployment's, and a template.
    pub(super) fn is_own(&self, seen: &Vm, now: &vsphere::Vm) -> Result<()> {
        if now.is_template {
            return Err(Error::refused(format!("{seen} is a template")));
        }
        if stamp::is_of(stamp::read(&now.name, &now.extra)?.as_ref(), self.deployment) {
            return Ok(());
        }
        Err(Error::refused(format!("the VM {seen} is not stamped as this deployment's")))
    }

    pub(super) async fn host_of(&self, vm: &VmRef) -> Result<Host> {
        let found = self.named(vm).await?;
        let Some(host) = found.host else {
            return Err(Error::refused(format!("vCenter does not show the host of the VM {}", found.name)));
        };
        let host = self.client.hosts(&[host]).await?.into_iter().next();
        let host = host.ok_or_else(|| not_now(format!("the host of the VM {} is not shown now", found.name)))?;
        Ok(Host { name: host.name, responds: host.connected })
    }

    /// All VMs with a BIOS UUID, without templates.
    pub(super) async fn of_bios_uuid(&self, uuid: Uuid) -> Result<Vec<Vm>> {
        for _ in 0..TRIES {
            let found = self.client.vms_of_bios_uuid(&uuid.to_string()).await?;
            match self.client.vms_with(&found, &stamp::READ).await {
                // One of them has disappeared, such as a copy that a user removed.
                Err(error) if error.outcome() == Outcome::NotFound => {}
                vms => return self.shown_all(vms?.into_iter().filter(|vm| !vm.is_template).collect()).await,
            }
        }
        Err(not_now(format!("the VMs with the BIOS UUID {uuid} come and go: they cannot be listed now")))
    }

    /// The value that a VM's guest has set since its power-on. It is read for one VM and one entry, so a long value
    /// costs one answer. A value that is too long is ignored: no node writes it.
    pub(super) async fn said(&self, vm: &VmRef, key: &str) -> Result<Option<String>> {
        let found = self.named_with(vm, &[key]).await?;
        let runs = found.power == Power::On;
        let said = found.extra.get(key).filter(|_| runs);
        if let Some(text) = said.filter(|text| text.len() > SAID) {
            // Not at a higher level: the guest may write such a value at any time.
            log::debug!(
                "{key} of the VM {} has {} bytes: it is no node's word, and passed over",
                found.name,
                text.len()
            );
            return Ok(None);
        }
        Ok(said.map(str::to_owned))
    }

    pub(super) async fn given_to(&self, vm: &VmRef, key: &str) -> Result<Option<String>> {
        let mut form = self.named(vm).await?.properties.into_iter();
        Ok(form.find(|property| property.is_given && property.name() == key).map(|property| property.value))
    }

    /// The names of port groups that exist and that the account may see: a removed port group hides no VM.
    async fn names_of(&self, groups: Vec<MoRef>) -> Result<BTreeMap<MoRef, String>> {
        let is_hidden = |error: &vsphere::Error| matches!(error.outcome(), Outcome::NotFound | Outcome::Denied);
        let seen = match self.client.look_at(&groups, &["name"]).await {
            Err(error) if is_hidden(&error) => {
                let mut seen = Vec::new();
                for group in &groups {
                    match self.client.look(group, &["name"]).await {
                        Ok(group) => seen.push(group),
                        Err(error) if is_hidden(&error) => log::debug!("the port group {group} is not shown: {error}"),
                        Err(error) => return Err(error.into()),
                    }
                }
                seen
            }
            seen => seen?,
        };
        Ok(seen.into_iter().map(|group| (group.reference.clone(), group.text("name").to_owned())).collect())
    }

    pub(super) async fn shown(&self, vm: vsphere::Vm) -> Result<Vm> {
        let shown = self.shown_all(vec![vm]).await?;
        shown.into_iter().next().ok_or_else(|| not_now("vCenter shows nothing".to_owned()))
    }

    /// Converts VMs. Names of networks and running tasks are read for all of them at once.
    async fn shown_all(&self, vms: Vec<vsphere::Vm>) -> Result<Vec<Vm>> {
        let tasks: Vec<MoRef> = vms.iter().flat_map(|vm| vm.tasks.iter().cloned()).collect();
        let running = self.client.running(&tasks).await?;
        let groups: BTreeSet<MoRef> =
            vms.iter().flat_map(|vm| &vm.devices.adapters).filter_map(|adapter| group(&adapter.network)).collect();
        let names = self.names_of(groups.into_iter().collect()).await?;
        vms.iter().map(|vm| show(vm, &names, &running)).collect()
    }
}

/// The BIOS UUID of a VM.
pub(super) fn uuid(vm: &vsphere::Vm) -> Result<Uuid> {
    let odd = |error| not_now(format!("the VM {} has the BIOS UUID {:?}: {error}", vm.name, vm.bios_uuid));
    Uuid::parse_str(&vm.bios_uuid).map_err(odd)
}

fn group(network: &AdapterNetwork) -> Option<MoRef> {
    match network {
        AdapterNetwork::Distributed(group) => Some(group.clone()),
        _ => None,
    }
}

fn show(vm: &vsphere::Vm, networks: &BTreeMap<MoRef, String>, running: &[Running]) -> Result<Vm> {
    let adapter = |adapter: &vsphere::Adapter| Adapter {
        key: adapter.key.to_string(),
        network: match &adapter.network {
            AdapterNetwork::Standard(name) | AdapterNetwork::Opaque(name) => name.clone(),
            AdapterNetwork::Distributed(group) => networks.get(group).cloned().unwrap_or_default(),
            AdapterNetwork::Unknown => String::new(),
        },
        mac: adapter.mac.clone(),
        connected: adapter.start_connected || (vm.power != Power::Off && adapter.connected),
    };
    let adapters: Vec<Adapter> = sorted(vm).into_iter().map(adapter).collect();
    let disk = |disk: &vsphere::Disk| -> Result<Disk> {
        let (uuid, path) = match (&disk.uuid, &disk.path) {
            (Some(uuid), Some(path)) => (uuid, path),
            _ => return Err(not_now(format!("the disk {} of the VM {} has no file or no UUID", disk.label, vm.name))),
        };
        let uuid =
            Uuid::parse_str(uuid).map_err(|error| not_now(format!("the disk {path} has the UUID {uuid}: {error}")))?;
        Ok(Disk {
            reference: DiskRef { uuid, path: path.clone() },
            kind: kind(vm, disk),
            parent: disk.parents.first().cloned(),
            controller: disk.controller.to_string(),
        })
    };
    let of_it = |task: &&Running| vm.tasks.contains(&task.task);
    let question = asked(vm).map(|question| format!(": {question}")).unwrap_or_default();
    Ok(Vm {
        reference: VmRef { uuid: uuid(vm)?, id: vm.reference.id.clone() },
        name: vm.name.clone(),
        stamp: stamp::read(&vm.name, &vm.extra)?,
        power: match vm.power {
            Power::Off => PowerState::Off,
            Power::On => PowerState::On,
            Power::Suspended => PowerState::Suspended,
            Power::Unknown => PowerState::Unknown,
        },
        size: (vm.processors > 0 && vm.memory > 0).then_some(VmSize { processors: vm.processors, memory: vm.memory }),
        disks: vm.devices.disks.iter().map(disk).collect::<Result<_>>()?,
        adapters,
        snapshots: vm.snapshots.iter().map(|snapshot| snapshot.name.clone()).collect(),
        tasks: running.iter().filter(of_it).map(|task| format!("{}{question}", task.what)).collect(),
        version: vm.change_version.clone(),
        settings: Some(vm.vmx_path.clone()),
    })
}

/// A VM's adapters in the order of their creation: vCenter assigns rising keys, and lists in any order.
pub(super) fn sorted(vm: &vsphere::Vm) -> Vec<&vsphere::Adapter> {
    let mut adapters: Vec<&vsphere::Adapter> = vm.devices.adapters.iter().collect();
    adapters.sort_by_key(|adapter| adapter.key);
    adapters
}
