//! Rows about imports, clones and settings.

use std::collections::BTreeMap;
use std::pin::pin;

use uuid::Uuid;
use vsphere::{CloneDisks, CloneVm, ConfigSpec, Element, Import, MoRef, Object, Outcome, Property};

use super::Probe;
use super::answer::{Tried, fault, made, saw, untried};
use super::rows::rows;
use crate::hypervisor::{
    CloneRequest, CloneSettings, Error, ErrorKind, Hypervisor as _, ImageTemplate, Networks, Placement, Result, Size,
};
use crate::vcenter::image::Package;
use crate::vcenter::template_catalog::{parts, prefix, snapshot};

/// The size of the probe's VMs. The agent of a node of this size starts.
const SIZE: Size = Size { processors: 2, memory: 2048, data_disk: Some(64 << 20) };
/// The place of the site.
static HERE: Placement = Placement { datastore: None, resource_pool: None, folder: None };
/// The property that is set.
const PROPERTY: &str = "node-name";
/// An entry with a long value, and its length in bytes. A node's statement has 4 KiB, and a guest may set 1 MiB.
const LONG: (&str, usize) = ("kaas.probe.long", 256 << 10);
/// The properties that the probe reads of a VM that is being made.
const PATHS: [&str; 5] = ["name", "parent", "recentTask", SETTINGS, "layoutEx"];
const SETTINGS: &str = "config.changeVersion";

/// The template, and its settings before any clone.
pub(super) struct Template {
    staged: ImageTemplate,
    version: String,
    settings: BTreeMap<String, String>,
}

pub(super) struct Cloned {
    /// The VM as vCenter made it.
    pub(super) made: vsphere::Vm,
    /// The parts of the request that had no effect. The probe has set them later.
    dropped: Vec<String>,
    /// Which of [`PATHS`] vCenter showed when the probe saw the VM first.
    shown: Option<Vec<&'static str>>,
}

rows! {
    "lease" "A lease lives a minute; its VM has the BIOS UUID that was requested, and goes with it" |probe| {
        let (places, uuid) = (&probe.hypervisor.places, Uuid::new_v4().to_string());
        let package = Package::read(&probe.setup.ova).await?;
        let import = Import {
            ova: &probe.setup.ova,
            name: &format!("{}-lease", probe.name),
            folder: &places.templates,
            pool: &places.pool,
            datastore: probe.datastore(),
            host: None,
            networks: probe.hypervisor.networks_for(&package, None).await?,
            properties: &BTreeMap::new(),
            option: None,
            config: &probe.hypervisor.stamped(&probe.stamp("lease")).bios_uuid(&uuid),
            blank_disks: false,
        };
        probe.note(&uuid, None).await?;
        let (vm, info) = probe.changes().offer(&import).await?;
        let is_dropped = vm.get("config.uuid").is_some_and(|made| made.value() != uuid);
        let timeout = info.parsed("leaseTimeout").unwrap_or(0);
        let url = info.at(&["deviceUrl", "url"]).map(Element::value).unwrap_or_default();
        let form = match url.split('/').nth(2).unwrap_or_default() {
            host if host.starts_with('*') => "a star",
            host if host.contains(|c: char| c.is_ascii_alphabetic()) => "a name",
            _ => "an address",
        };
        // vCenter removes the VM after it has ended the lease.
        let mut tries = probe.client.tries();
        let is_gone = loop {
            match probe.client.look(&vm.reference, &["name"]).await {
                Err(error) if error.outcome() == Outcome::NotFound => break true,
                _ if !tries.again().await => break false,
                _ => {}
            }
        };
        let words = format!("the URL has {form}; {timeout} s; UUID dropped: {is_dropped}; VM gone: {is_gone}");
        saw(is_gone && !is_dropped && timeout >= 60, words)
    }
    "import" "The OVA becomes a template that comes to rest" |probe| {
        let ova = &probe.setup.ova;
        let digest = Package::read(ova).await?.digest;
        let stage = probe.hypervisor.import_template(ova, &digest, None, &HERE, probe.permit);
        let (staged, shown) = probe.watching(&prefix(&digest), stage).await?;
        let staged = staged.map_err(|error| match error.kind {
            // An upload that no host takes is an answer.
            ErrorKind::Transient => Error { kind: ErrorKind::Refused, ..error },
            _ => error,
        })?;
        let (version, config) = probe.hypervisor.config_of(&MoRef::vm(&staged.reference)).await?;
        probe.template = Some(Template { staged, version, settings: parts(&config) });
        saw(true, format!("shown first: {}", shown.unwrap_or_default().join(", ")))
    }
    "clone" "CloneVM_Task needs no host, also where DRS only recommends one" |probe| {
        probe.linked = Some(probe.cloned("linked", true).await?);
        // An account that may not read the cluster makes VMs all the same.
        let recommends = match probe.hypervisor.cluster_over(&probe.hypervisor.places.pool).await? {
            Some(cluster) => probe.client.only_recommends(&cluster).await.ok(),
            None => Some(false),
        };
        let recommends = recommends.map_or("unknown".to_owned(), |recommends| recommends.to_string());
        saw(true, format!("made without a host; DRS only recommends one: {recommends}"))
    }
    "clone-shown" "A VM that is being cloned shows no settings" |probe| {
        let shown = made(&probe.linked)?.shown.as_ref();
        let shown = shown.ok_or_else(|| untried("it was complete before the probe saw it"))?;
        saw(!shown.contains(&SETTINGS), format!("shown first: {}", shown.join(", ")))
    }
    "clone-uuid" "CloneSpec.config.uuid is taken" |probe| { probe.taken("the BIOS UUID") }
    "clone-entries" "CloneSpec.config.extraConfig is taken" |probe| { probe.taken("the entry") }
    "clone-properties" "CloneSpec.config.vAppConfig is taken, and userConfigurable stays" |probe| { probe.taken("the OVF property") }
    "clone-adapters" "CloneSpec.config.deviceChange edits adapters" |probe| { probe.taken("the network of") }
    "clone-disk" "CloneSpec.config.deviceChange adds a disk" |probe| { probe.taken("a disk") }
    "password" "vCenter does not show the value of a property of the type password" |probe| {
        let mut form = made(&probe.linked)?.made.properties.iter();
        let password = form.find(|property| property.kind.starts_with("password") && property.is_configurable);
        let is_empty = password.ok_or_else(|| untried("the form has no password"))?.value.is_empty();
        saw(is_empty, format!("empty: {is_empty}"))
    }
    "edit-configurable" "An edit of a property by key and value alone clears userConfigurable" |probe| {
        let vm = probe.now(&probe.linked).await?;
        let property = vm.properties.iter().find(|property| property.name() == PROPERTY);
        let property = property.ok_or_else(|| untried("the form has no such property"))?;
        probe.reconfigure(&vm, ConfigSpec::of(&vm).value_alone(property, "edited")).await?;
        let now = probe.now(&probe.linked).await?;
        let stays = now.properties.iter().any(|now| now.key == property.key && now.is_configurable);
        let whole = [(PROPERTY, property.value.as_str())];
        probe.reconfigure(&now, ConfigSpec::of(&now).properties(&vm.properties, whole)?).await?;
        saw(!stays, format!("userConfigurable stays: {stays}"))
    }
    "guard" "ReconfigVM_Task with an old changeVersion fails with ConcurrentAccess" |probe| {
        let vm = probe.now(&probe.linked).await?;
        probe.reconfigure(&vm, ConfigSpec::of(&vm).extra("kaas.probe", "1")).await?;
        fault(probe.reconfigure(&vm, ConfigSpec::of(&vm).extra("kaas.probe", "2")).await, "ConcurrentAccess")
    }
    "entry-length" "ReconfigVM_Task keeps an entry of 256 KiB whole" |probe| {
        let ((key, length), vm) = (LONG, probe.now(&probe.linked).await?);
        probe.reconfigure(&vm, ConfigSpec::of(&vm).extra(key, &"x".repeat(length))).await?;
        let now = probe.now(&probe.linked).await?;
        probe.reconfigure(&now, ConfigSpec::of(&now).extra(key, "")).await?;
        let kept = now.extra.get(key).map_or(0, str::len);
        saw(kept == length, format!("{kept} of {length} bytes are kept"))
    }
    "full-clone" "The disk of a full clone has another UUID" |probe| {
        let full = probe.cloned("full", false).await?;
        let template = probe.client.vm(&MoRef::vm(&made(&probe.template)?.staged.reference)).await?;
        let mut of_template = template.devices.disks.iter().filter_map(|disk| disk.uuid.as_deref());
        let has_own = of_template.all(|uuid| full.made.devices.disk(uuid).is_none());
        probe.full = Some(full);
        saw(has_own, format!("another UUID: {has_own}"))
    }
    "template" "Clones change neither the changeVersion nor the settings of their template" |probe| {
        let before = made(&probe.template)?;
        let (version, config) = probe.hypervisor.config_of(&MoRef::vm(&before.staged.reference)).await?;
        let (version, settings) = (version == before.version, parts(&config) == before.settings);
        saw(version && settings, format!("the version stays: {version}, the settings stay: {settings}"))
    }
    "ha-override" "An edit of an override of vSphere HA keeps the settings that it leaves out" |probe| {
        const SET: [(&str, &str); 2] = [("restartPriority", "low"), ("isolationResponse", "shutdown")];
        let (vm, changes) = (&made(&probe.linked)?.made.reference, probe.changes());
        let cluster = probe.hypervisor.cluster_over(&probe.hypervisor.places.pool).await?;
        let cluster = cluster.ok_or_else(|| untried("the resource pool is in no cluster"))?;
        changes.put_override(&cluster, vm, "add", &SET).await?;
        changes.put_override(&cluster, vm, "edit", &SET[..1]).await?;
        let stays = probe.client.override_setting(&cluster, vm, SET[1].0).await?.as_deref() == Some(SET[1].1);
        changes.remove_override(&cluster, vm).await?;
        saw(stays, format!("they stay: {stays}"))
    }
}

impl Probe<'_> {
    /// Makes a VM whose name begins with `begin`, and watches the folder meanwhile. Returns the properties that vCenter
    /// shows first of the VM.
    async fn watching<T>(&self, begin: &str, make: impl Future<Output = T>) -> Result<(T, Option<Vec<&'static str>>)> {
        let look = || self.client.list(&self.hypervisor.places.templates, &["VirtualMachine"], false, &PATHS);
        let before: Vec<MoRef> = look().await?.into_iter().map(|vm| vm.reference).collect();
        let first = async {
            loop {
                tokio::time::sleep(self.setup.rest / 10).await;
                let seen = look().await.unwrap_or_default();
                let is_it = |vm: &&Object| vm.text("name").starts_with(begin) && !before.contains(&vm.reference);
                if let Some(vm) = seen.iter().find(is_it) {
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
        let uuid = Uuid::new_v4();
        let networks = Networks::Named(&self.setup.site.networks);
        let properties = set.map(|property| (property.name(), name.clone())).collect();
        let request = CloneRequest {
            name: &name,
            uuid,
            image: &made(&self.template)?.staged,
            settings: CloneSettings::Given { networks, size: &SIZE, properties: &properties },
            stamp: self.stamp(node),
            placement: &HERE,
        };
        let wires: Vec<_> = hypervisor.wires(networks).await?.into_iter().map(|wire| wire.disconnected()).collect();
        let config = hypervisor.given_settings(&image, &request, &SIZE, &properties, &wires).await?;
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
        let (changes, uuid) = (self.changes(), uuid.to_string());
        self.note(&uuid, None).await?;
        let (made, shown) = self.watching(&name, changes.clone_vm(&template.reference, &clone)).await?;
        let made = self.client.whole_vm(&made?).await?;
        self.note(&uuid, Some(&made.vmx_path)).await?;
        hypervisor.complete(&made.reference, &config, self.permit).await?;
        Ok(Cloned { dropped: config.lacking_in(&made).parts, made, shown })
    }

    /// Whether a part of the linked clone's request had an effect, by the words of [`vsphere::Lacking`].
    fn taken(&self, part: &str) -> Tried {
        let is_dropped = made(&self.linked)?.dropped.iter().any(|dropped| dropped.starts_with(part));
        saw(!is_dropped, if is_dropped { "dropped" } else { "taken" })
    }
}
