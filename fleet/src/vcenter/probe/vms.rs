//! Rows about imports, clones and settings.

use std::collections::BTreeMap;
use std::pin::pin;

use uuid::Uuid;
use vsphere::{CloneDisks, CloneVm, ConfigSpec, Import, MoRef, Outcome, Property};

use super::Probe;
use super::answer::{Tried, fault, made, saw, untried};
use crate::hypervisor::{Addition, Error, Hypervisor as _, Kind, Networks, Placement, Result, Size, Staged};
use crate::vcenter::image::Package;
use crate::vcenter::laid::{settings, snapshot};

/// The size of the probe's VMs. The agent of a node of this size starts.
const SIZE: Size = Size { processors: 2, memory: 2048, data_disk: Some(64 << 20) };
/// Where the site says.
static HERE: Placement = Placement { datastore: None, resource_pool: None, folder: None };
/// The property that is set.
const PROPERTY: &str = "node-name";
/// An entry with a long value, and its length in bytes. A node's statement has 4 KiB, and a guest may set 1 MiB.
const LONG: (&str, usize) = ("kaas.probe.long", 256 << 10);
/// What the probe reads of a VM that is being made.
const PATHS: [&str; 5] = ["name", "parent", "recentTask", SETTINGS, "layoutEx"];
const SETTINGS: &str = "config.changeVersion";

/// The template, and its settings before any clone.
pub(super) struct Template {
    staged: Staged,
    version: String,
    settings: String,
}

/// A clone.
pub(super) struct Cloned {
    /// The VM as vCenter made it.
    pub(super) made: vsphere::Vm,
    /// The parts of the request that had no effect. The probe has set them later.
    dropped: Vec<String>,
    /// Which of [`PATHS`] vCenter showed when the probe saw the VM first.
    shown: Option<Vec<&'static str>>,
}

impl Probe<'_> {
    pub(super) async fn lease(&mut self) -> Tried {
        let (places, uuid) = (&self.hypervisor.places, Uuid::new_v4().to_string());
        let package = Package::read(&self.setup.ova).await?;
        let import = Import {
            ova: &self.setup.ova,
            name: &format!("{}-lease", self.name),
            folder: &places.templates,
            pool: &places.pool,
            datastore: self.datastore(),
            host: None,
            networks: self.hypervisor.networks_for(&package, None).await?,
            properties: &BTreeMap::new(),
            option: None,
            config: &self.hypervisor.stamped(&self.stamp("lease")).bios_uuid(&uuid),
            blank_disks: false,
        };
        let offer = self.changes().offer(&import).await?;
        let is_dropped = offer.bios_uuid.is_some_and(|made| made != uuid);
        let host = offer.url.split('/').nth(2).unwrap_or_default();
        let form = match host.starts_with('*') {
            true => "a star",
            false if host.contains(|c: char| c.is_ascii_alphabetic()) => "a name",
            false => "an address",
        };
        // vCenter removes the VM after it has ended the lease.
        let mut tries = self.client.tries();
        let is_gone = loop {
            match self.client.look(&offer.vm, &["name"]).await {
                Err(error) if error.outcome() == Outcome::NotFound => break true,
                _ if !tries.again().await => break false,
                _ => {}
            }
        };
        let words = format!("the URL has {form}; {} s; UUID dropped: {is_dropped}; VM gone: {is_gone}", offer.timeout);
        saw(is_gone && !is_dropped && offer.timeout >= 60, words)
    }

    pub(super) async fn import(&mut self) -> Tried {
        let ova = &self.setup.ova;
        let digest = Package::read(ova).await?.digest;
        let (staged, shown) = self.watching(self.hypervisor.stage(ova, &digest, None, &HERE, self.permit)).await?;
        let staged = staged.map_err(|error| match error.kind {
            // An upload that no host takes is an answer.
            Kind::Transient => Error { kind: Kind::Refused, ..error },
            _ => error,
        })?;
        let (version, config) = self.hypervisor.config_of(&MoRef::vm(&staged.reference)).await?;
        self.template = Some(Template { staged, version, settings: settings(&config) });
        saw(true, format!("shown first: {}", shown.unwrap_or_default().join(", ")))
    }

    /// Makes a VM, and looks at the folder meanwhile: what vCenter shows first of the VM.
    async fn watching<T>(&self, make: impl Future<Output = T>) -> Result<(T, Option<Vec<&'static str>>)> {
        let look = || self.client.list(&self.hypervisor.places.templates, &["VirtualMachine"], false, &PATHS);
        let before: Vec<MoRef> = look().await?.into_iter().map(|vm| vm.reference).collect();
        let first = async {
            loop {
                tokio::time::sleep(self.setup.rest / 10).await;
                let seen = look().await.unwrap_or_default();
                if let Some(vm) = seen.iter().find(|vm| !before.contains(&vm.reference)) {
                    break PATHS.into_iter().filter(|path| vm.get(path).is_some()).collect();
                }
            }
        };
        let mut make = pin!(make);
        tokio::select! {
            biased;
            made = &mut make => Ok((made, None)),
            shown = first => Ok((make.await, Some(shown))),
        }
    }

    /// Makes a clone by the request for a new node, with its adapters disconnected. Then it sets what was dropped.
    async fn cloned(&self, node: &str, is_linked: bool) -> Result<Cloned> {
        let (hypervisor, name) = (self.hypervisor, format!("{}-{node}", self.name));
        let image = hypervisor.image(&made(&self.template)?.staged).await?;
        let template = &image.template;
        let is_set = |property: &&Property| property.name() == PROPERTY || property.kind.starts_with("password");
        let set = template.properties.iter().filter(|property| property.is_configurable).filter(is_set);
        let networks = Networks::Named(&self.setup.site.networks);
        let addition = Addition {
            name: &name,
            uuid: Some(Uuid::new_v4()),
            image: &made(&self.template)?.staged,
            networks,
            size: &SIZE,
            properties: &set.map(|property| (property.name(), name.clone())).collect(),
            stamp: self.stamp(node),
            placement: &HERE,
        };
        let wires: Vec<_> = hypervisor.wires(networks).await?.into_iter().map(|wire| wire.disconnected()).collect();
        let config = hypervisor.settings_of(&image, &addition, &wires).await?;
        let at = snapshot(template).filter(|_| is_linked);
        let clone = CloneVm {
            name: &name,
            folder: &hypervisor.places.folders[0].0,
            pool: Some(&hypervisor.places.pool),
            datastore: Some(self.datastore()),
            host: None,
            disks: at.map_or(CloneDisks::Full, CloneDisks::LinkedTo),
            policy: None,
            config: &config,
            is_template: false,
        };
        let changes = self.changes();
        let (made, shown) = self.watching(changes.clone_vm(&template.reference, &clone)).await?;
        let made = self.client.whole_vm(&made?).await?;
        hypervisor.complete(&made.reference, &config, self.permit).await?;
        Ok(Cloned { dropped: config.lacking_in(&made).parts, made, shown })
    }

    pub(super) async fn linked_clone(&mut self) -> Tried {
        self.linked = Some(self.cloned("linked", true).await?);
        let recommends = match self.hypervisor.cluster_over(&self.hypervisor.places.pool).await? {
            Some(cluster) => self.client.only_recommends(&cluster).await?,
            None => false,
        };
        saw(true, format!("made without a host; DRS only recommends one: {recommends}"))
    }

    pub(super) async fn clone_shown(&mut self) -> Tried {
        let shown = made(&self.linked)?.shown.as_ref();
        let shown = shown.ok_or_else(|| untried("it was complete before the probe saw it"))?;
        saw(!shown.contains(&SETTINGS), format!("shown first: {}", shown.join(", ")))
    }

    /// Whether a part of the linked clone's request had an effect, by the words of [`vsphere::Lacking`].
    pub(super) async fn taken(&mut self, part: &str) -> Tried {
        let is_dropped = made(&self.linked)?.dropped.iter().any(|dropped| dropped.starts_with(part));
        saw(!is_dropped, if is_dropped { "dropped" } else { "taken" })
    }

    pub(super) async fn password(&mut self) -> Tried {
        let mut form = made(&self.linked)?.made.properties.iter();
        let password = form.find(|property| property.kind.starts_with("password") && property.is_configurable);
        let is_empty = password.ok_or_else(|| untried("the form has no password"))?.value.is_empty();
        saw(is_empty, if is_empty { "it is empty" } else { "it is shown" })
    }

    pub(super) async fn edit_by_value(&mut self) -> Tried {
        let vm = self.now(&self.linked).await?;
        let property = vm.properties.iter().find(|property| property.name() == PROPERTY);
        let property = property.ok_or_else(|| untried("the form has no such property"))?;
        self.reconfigure(&vm, ConfigSpec::of(&vm).value_alone(property, "edited")).await?;
        let now = self.now(&self.linked).await?;
        let stays = now.properties.iter().any(|now| now.key == property.key && now.is_configurable);
        let whole = [(PROPERTY, property.value.as_str())];
        self.reconfigure(&now, ConfigSpec::of(&now).properties(&vm.properties, whole)?).await?;
        saw(!stays, if stays { "it stays" } else { "it is cleared" })
    }

    pub(super) async fn guard(&mut self) -> Tried {
        let vm = self.now(&self.linked).await?;
        self.reconfigure(&vm, ConfigSpec::of(&vm).extra("kaas.probe", "1")).await?;
        fault(self.reconfigure(&vm, ConfigSpec::of(&vm).extra("kaas.probe", "2")).await, "ConcurrentAccess")
    }

    pub(super) async fn long_entry(&mut self) -> Tried {
        let ((key, length), vm) = (LONG, self.now(&self.linked).await?);
        self.reconfigure(&vm, ConfigSpec::of(&vm).extra(key, &"x".repeat(length))).await?;
        let now = self.now(&self.linked).await?;
        self.reconfigure(&now, ConfigSpec::of(&now).extra(key, "")).await?;
        let kept = now.extra.get(key).map_or(0, str::len);
        saw(kept == length, format!("{kept} of {length} bytes are kept"))
    }

    pub(super) async fn full_clone(&mut self) -> Tried {
        let full = self.cloned("full", false).await?;
        let template = self.client.vm(&MoRef::vm(&made(&self.template)?.staged.reference)).await?;
        let mut of_template = template.devices.disks.iter().filter_map(|disk| disk.uuid.as_deref());
        let has_own = of_template.all(|uuid| full.made.devices.disk(uuid).is_none());
        self.full = Some(full);
        saw(has_own, if has_own { "its own" } else { "that of the template's disk" })
    }

    pub(super) async fn template_version(&mut self) -> Tried {
        let before = made(&self.template)?;
        let is_same = before.version == self.hypervisor.config_of(&MoRef::vm(&before.staged.reference)).await?.0;
        saw(is_same, if is_same { "unchanged after two clones" } else { "changed" })
    }

    pub(super) async fn template_settings(&mut self) -> Tried {
        let before = made(&self.template)?;
        let now = self.hypervisor.config_of(&MoRef::vm(&before.staged.reference)).await?.1;
        let is_same = before.settings == settings(&now);
        saw(is_same, if is_same { "unchanged after two clones" } else { "changed" })
    }

    pub(super) async fn ha_override(&mut self) -> Tried {
        const SET: [(&str, &str); 2] = [("restartPriority", "low"), ("isolationResponse", "shutdown")];
        let (vm, changes) = (&made(&self.linked)?.made.reference, self.changes());
        let cluster = self.hypervisor.cluster_over(&self.hypervisor.places.pool).await?;
        let cluster = cluster.ok_or_else(|| untried("the resource pool is in no cluster"))?;
        changes.put_override(&cluster, vm, "add", &SET).await?;
        changes.put_override(&cluster, vm, "edit", &SET[..1]).await?;
        let stays = self.client.override_sets(&cluster, vm, SET[1].0).await?;
        changes.set_restart_priority(&cluster, vm, None).await?;
        saw(!stays, if stays { "they stay" } else { "they are removed" })
    }
}
