//! Rows about imports, clones and settings.

use std::collections::BTreeMap;
use std::net::IpAddr;

use uuid::Uuid;
use vsphere::{CloneDisks, CloneVm, ConfigSpec, DiskMode, Import, MoRef, NewDisk, Outcome, Property};

use super::Probe;
use super::answer::{Failed, Tried, fault, judged};
use super::shown::{Shown, shown_as_made};
use crate::hypervisor::{Addition, Hypervisor as _, Networks, Placement, Size, VmRef};
use crate::vcenter::disks::first_controller;
use crate::vcenter::image::Package;
use crate::vcenter::laid::{parts, snapshot};
use crate::vcenter::look::sorted;
use crate::vcenter::settings::filled;
use crate::vcenter::stamp::{STAMP, written};
use crate::vcenter::trouble::Asking;
use crate::vcenter::{Clones, Site, VcenterHypervisor};

/// The size of its VMs: nodes of this size start their agent, which refuses to go on.
const SIZE: Size = Size { processors: 2, memory: 2048, data_disk: Some(64 << 20) };
/// The property that it gives a value.
const PROPERTY: &str = "node-name";
/// An entry with a long value, and its length in bytes: a node's statement has at most 4 KiB, vCenter's own limit of what a guest sets
/// is 1 MiB.
const LONG: (&str, usize) = ("kaas.probe.long", 256 << 10);

impl Probe<'_> {
    pub(super) async fn lease(&mut self) -> Tried {
        let places = &self.hypervisor.places;
        let package = Package::read(&self.setup.ova).await?;
        let network = places.networks.first().map(|(network, _)| network);
        let name = format!("{}-lease", self.name);
        let (config, properties) = (ConfigSpec::new().extra(STAMP, &self.stamp_text("lease")), BTreeMap::new());
        let networks = package.networks.iter().filter_map(|name| Some((name.clone(), network?.clone()))).collect();
        let import = Import {
            ova: &self.setup.ova,
            name: &name,
            folder: &places.folders[0].0,
            pool: &places.pool,
            datastore: &places.datastore.datastore,
            host: None,
            networks,
            properties: &properties,
            option: None,
            config: &config,
            blank_disks: false,
        };
        let offer = self.client.changes(&Asking(self.permit)).offer(&import).await?;
        let form = |host: &String| match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            _ if host == "*" => "the vCenter by a star",
            Ok(_) => "an address",
            Err(_) => "a name",
        };
        let forms: Vec<&str> = offer.hosts.iter().map(form).collect();
        let sum = if offer.has_thumbprints { "with" } else { "without" };
        // vCenter removes the VM after it has ended the lease.
        let is_gone = self.goes(&offer.vm).await?;
        let gone = if is_gone { "goes" } else { "stays" };
        let saw =
            format!("{}, {sum} a thumbprint; it lives {} s; the VM {gone} with it", forms.join(", "), offer.timeout);
        judged(is_gone && offer.timeout >= 60, saw)
    }

    /// Whether a VM is gone, now or soon.
    async fn goes(&self, vm: &MoRef) -> vsphere::Result<bool> {
        let mut tries = self.client.tries();
        loop {
            match self.client.look(vm, &["name"]).await {
                Err(error) if error.outcome() == Outcome::NotFound => return Ok(true),
                seen => drop(seen?),
            }
            if !tries.again().await {
                return Ok(false);
            }
        }
    }

    fn stamp_text(&self, node: &str) -> String {
        written(&self.stamp(node))
    }

    pub(super) async fn import(&mut self) -> Tried {
        let (ova, placement) = (&self.setup.ova, Placement::default());
        let digest = Package::read(ova).await?.digest;
        let (staged, shown) = self.watching(self.hypervisor.stage(ova, &digest, None, &placement, self.permit)).await;
        let staged = staged?;
        let template = MoRef::vm(&staged.reference);
        self.template = Some(parts(&self.hypervisor.config_of(&template).await?.1));
        (self.staged, self.import_shown) = (Some(staged), Some(shown));
        judged(true, "a template with one snapshot")
    }

    pub(super) async fn import_shown(&mut self) -> Tried {
        let vm = self.staged.as_ref().map(|staged| MoRef::vm(&staged.reference));
        shown_as_made(self.import_shown.as_ref(), vm.as_ref())
    }

    /// A linked clone in the request that a new node is made by. What came of it is asked of vCenter alone: the program corrects nothing.
    pub(super) async fn linked_clone(&mut self) -> Tried {
        let hypervisor = self.hypervisor;
        let staged = self.staged.clone().ok_or_else(|| Failed::NotTried("there is no template".to_owned()))?;
        let image = hypervisor.image(&staged).await?;
        let (template, uuid, name) = (&image.template, Uuid::new_v4(), format!("{}-linked", self.name));
        let spec = hypervisor.stamped(&self.stamp("linked")).processors(SIZE.processors).memory(SIZE.memory.into());
        let given = template.properties.iter().map(Property::name).filter(|property| property == PROPERTY);
        let values =
            filled(&template.properties, &image.note.defaults, given.map(|key| (key, name.as_str())).collect())?;
        let values = values.iter().map(|(name, value)| (name.as_str(), *value));
        let mut spec = spec.bios_uuid(&uuid.to_string()).properties(&template.properties, values)?;
        for (adapter, (network, _)) in sorted(template).into_iter().zip(&hypervisor.places.networks) {
            spec = spec.network(adapter, &self.client.network_backing(network).await?, false);
        }
        let controller = first_controller(template).ok_or_else(|| Failed::Differs("no SCSI controller".to_owned()))?;
        let (mode, policy) = (DiskMode::IndependentPersistent, hypervisor.policy().await?);
        let capacity = SIZE.data_disk.unwrap_or_default();
        let config = spec.new_disk(&NewDisk { capacity, controller, mode, datastore: None, policy })?;
        let at = snapshot(template).ok_or_else(|| Failed::Differs("the template has no snapshot".to_owned()))?;
        let clone = CloneVm {
            name: &name,
            folder: &hypervisor.places.folders[0].0,
            pool: Some(&hypervisor.places.pool),
            datastore: Some(self.datastore()),
            host: None,
            disks: CloneDisks::LinkedTo(at),
            policy: None,
            config: &config,
            is_template: false,
        };
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        let (made, shown) = self.watching(changes.clone_vm(&template.reference, &clone)).await;
        let made = made?;
        let vm = self.client.whole_vm(&made).await?;
        let is_named = vm.bios_uuid == uuid.to_string();
        // What has lost its stamp is no VM of the probe that a later run would find.
        if vm.extra.get(STAMP).is_none() {
            let spec = ConfigSpec::of(&vm).extra(STAMP, &self.stamp_text("linked"));
            changes.reconfigure(&made, &spec).await?;
        }
        let found = vm.bios_uuid.parse::<Uuid>().map_err(|_| Failed::Differs("it has no BIOS UUID".to_owned()))?;
        self.linked = Some(VmRef { uuid: found, id: made.id.clone() });
        self.clone = Some(Cloned { vm, shown, is_named, form: template.properties.clone(), name: name.clone() });
        judged(true, "a VM, of a request that names no host")
    }

    fn cloned(&self) -> Result<&Cloned, Failed> {
        self.clone.as_ref().ok_or_else(|| Failed::NotTried("the linked clone was not made".to_owned()))
    }

    pub(super) async fn clone_shown(&mut self) -> Tried {
        let vm = self.linked.as_ref().map(|vm| MoRef::vm(&vm.id));
        shown_as_made(self.clone.as_ref().map(|clone| &clone.shown), vm.as_ref())
    }

    pub(super) async fn clone_uuid(&mut self) -> Tried {
        taken(self.cloned()?.is_named)
    }

    pub(super) async fn clone_entries(&mut self) -> Tried {
        taken(self.cloned()?.vm.extra.get(STAMP).is_some())
    }

    pub(super) async fn clone_size(&mut self) -> Tried {
        let vm = &self.cloned()?.vm;
        taken((vm.processors, vm.memory) == (SIZE.processors, SIZE.memory.into()))
    }

    pub(super) async fn clone_properties(&mut self) -> Tried {
        let clone = self.cloned()?;
        let given = clone.vm.properties.iter().find(|property| property.name() == PROPERTY);
        if clone.form.iter().all(|property| property.name() != PROPERTY) {
            return Err(Failed::NotTried("the form has no such property".to_owned()));
        }
        taken(given.is_some_and(|property| property.is_given && property.value == clone.name))
    }

    pub(super) async fn clone_configurable(&mut self) -> Tried {
        let clone = self.cloned()?;
        configurable(&clone.form, &clone.vm.properties)
    }

    pub(super) async fn clone_adapters(&mut self) -> Tried {
        let adapters = &self.cloned()?.vm.devices.adapters;
        taken(!adapters.is_empty() && adapters.iter().all(|adapter| !adapter.start_connected))
    }

    pub(super) async fn clone_disk(&mut self) -> Tried {
        let clone = self.cloned()?;
        let data: Vec<_> = clone.vm.devices.disks.iter().filter(|disk| disk.mode == "independent_persistent").collect();
        let is_so = matches!(data[..], [disk] if Some(disk.capacity) == SIZE.data_disk);
        judged(is_so, format!("{} disks, {} of them independent", clone.vm.devices.disks.len(), data.len()))
    }

    pub(super) async fn clone_is_linked(&mut self) -> Tried {
        let linked = self.cloned()?.vm.devices.disks.iter().filter(|disk| !disk.parents.is_empty()).count();
        judged(linked == 1, format!("{linked} disks stand on another one"))
    }

    /// A full clone by all that a deployment does for a node.
    pub(super) async fn full_clone(&mut self) -> Tried {
        let image = self.staged.clone().ok_or_else(|| Failed::NotTried("there is no template".to_owned()))?;
        let site = Site { clones: Clones::Full, ..self.setup.site.clone() };
        let id = self.hypervisor.deployment;
        let full = VcenterHypervisor::new(self.client.clone(), id, &site, &self.setup.directory).await?;
        let (properties, placement) = (BTreeMap::new(), Placement::default());
        let name = format!("{}-full", self.name);
        let addition = Addition {
            name: &name,
            uuid: None,
            image: &image,
            networks: Networks::Named(&self.setup.site.networks),
            size: &Size { data_disk: None, ..SIZE },
            properties: &properties,
            stamp: self.stamp("full"),
            placement: &placement,
        };
        let uuid = full.add(&addition, self.permit).await?;
        let found = self.hypervisor.vms().await?.into_iter().find(|vm| vm.uuid() == uuid);
        let found = found.ok_or_else(|| Failed::Differs("its BIOS UUID finds it not".to_owned()))?;
        self.full = Some(found.reference);
        judged(true, "a VM that is as it was asked for")
    }

    pub(super) async fn full_disk_uuid(&mut self) -> Tried {
        let full = self.full().await?;
        let staged = self.staged.clone().ok_or_else(|| Failed::NotTried("there is no template".to_owned()))?;
        let template = self.client.vm(&MoRef::vm(&staged.reference)).await?;
        let own = full
            .devices
            .disks
            .iter()
            .all(|disk| disk.uuid.as_deref().is_none_or(|uuid| template.devices.disk(uuid).is_none()));
        judged(own, if own { "its own" } else { "that of the template's disk" })
    }

    pub(super) async fn template_version(&mut self) -> Tried {
        let staged = self.staged.clone().ok_or_else(|| Failed::NotTried("there is no template".to_owned()))?;
        let image = self.hypervisor.image(&staged).await?;
        let is_same = image.note.seal.is_some_and(|seal| seal.version == image.template.change_version);
        judged(is_same, if is_same { "unchanged after two clones" } else { "changed by clones or by itself" })
    }

    pub(super) async fn template_settings(&mut self) -> Tried {
        let staged = self.staged.clone().ok_or_else(|| Failed::NotTried("there is no template".to_owned()))?;
        let now = parts(&self.hypervisor.config_of(&MoRef::vm(&staged.reference)).await?.1);
        let is_same = self.template.as_ref() == Some(&now);
        judged(is_same, if is_same { "unchanged" } else { "changed" })
    }

    pub(super) async fn edit_keeps_configurable(&mut self) -> Tried {
        let vm = self.linked().await?;
        let property = vm.properties.iter().find(|property| property.name() == PROPERTY);
        let property = property.ok_or_else(|| Failed::NotTried("the form has no such property".to_owned()))?;
        let spec = ConfigSpec::of(&vm).value_alone(property, "edited");
        self.client.changes(&Asking(self.permit)).reconfigure(&vm.reference, &spec).await?;
        configurable(&vm.properties, &self.linked().await?.properties)
    }

    pub(super) async fn guard(&mut self) -> Tried {
        let vm = self.linked().await?;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        let spec = |value: &str| ConfigSpec::of(&vm).extra("kaas.probe", value);
        changes.reconfigure(&vm.reference, &spec("1")).await?;
        fault(changes.reconfigure(&vm.reference, &spec("2")).await, &["ConcurrentAccess"])
    }

    pub(super) async fn long_entry(&mut self) -> Tried {
        let vm = self.linked().await?;
        let (key, length) = LONG;
        let asking = Asking(self.permit);
        let changes = self.client.changes(&asking);
        changes.reconfigure(&vm.reference, &ConfigSpec::of(&vm).extra(key, &"x".repeat(length))).await?;
        let now = self.linked().await?;
        let kept = now.extra.get(key).map_or(0, str::len);
        changes.reconfigure(&vm.reference, &ConfigSpec::of(&now).extra(key, "")).await?;
        judged(kept == length, format!("{kept} of {length} bytes are kept"))
    }
}

/// What vCenter made of the linked clone's request.
pub(super) struct Cloned {
    vm: vsphere::Vm,
    shown: Shown,
    is_named: bool,
    form: Vec<Property>,
    name: String,
}

fn taken(is: bool) -> Tried {
    judged(is, if is { "taken" } else { "dropped" })
}

/// Whether all properties that users may set can still be set by them.
fn configurable(before: &[Property], now: &[Property]) -> Tried {
    let may = |form: &[Property]| form.iter().filter(|property| property.is_configurable).count();
    let (before, now) = (may(before), may(now));
    judged(before == now, format!("{now} of {before} properties are configurable"))
}
