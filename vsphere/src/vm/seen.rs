//! A VM as vCenter shows it.

use crate::client::Client;
use crate::collector::Object;
use crate::error::Result;
use crate::reference::MoRef;
use crate::soap::Element;

use super::device::Devices;
use super::entries::{Listed, has_settings, listed};
use super::extra::{ALL, Extra, keyed};
use super::power::Power;
use super::property::Property;
use super::snapshot::Snapshot;

/// All that is read of each VM but for entries of its `extraConfig`: what its guest writes is in none of it, or a word long. So no guest
/// decides how large an answer is that shows many VMs.
const PATHS: &[&str] = &[
    "name",
    "parent",
    "resourcePool",
    "datastore",
    "config.changeVersion",
    "config.uuid",
    "config.instanceUuid",
    "config.template",
    "config.files.vmPathName",
    "config.firmware",
    "config.bootOptions",
    "config.hardware.numCPU",
    "config.hardware.memoryMB",
    "config.hardware.device",
    "config.vAppConfig.property",
    "config.managedBy",
    "runtime.powerState",
    "runtime.connectionState",
    "runtime.host",
    "runtime.question",
    "guest.toolsRunningStatus",
    "snapshot.rootSnapshotList",
    "recentTask",
];

/// Who says that a VM is his.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedBy {
    /// The key of an extension. vSphere Client shows its name if it is registered.
    pub extension: String,
    /// What kind of VM it is to that extension.
    pub kind: String,
}

/// What a VM starts, and from where (`VirtualMachineBootOptions`, vSphere Web Services API).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// `bios` or `efi`.
    pub firmware: String,
    /// Whether EFI starts only what is signed.
    pub is_secure: bool,
    /// The kinds of devices that it is started from, in this order; empty if the firmware's own order counts.
    pub order: Vec<String>,
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// What names it.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// The folder that it is in; none in a vApp.
    pub folder: Option<MoRef>,
    /// Its resource pool; none of a template.
    pub pool: Option<MoRef>,
    /// The datastores that have files of it.
    pub datastores: Vec<MoRef>,
    /// Changes whenever its settings do.
    pub change_version: String,
    /// What the guest knows of itself.
    pub bios_uuid: String,
    /// What tells it from all others of this vCenter.
    pub instance_uuid: String,
    /// Whether it is a template.
    pub is_template: bool,
    /// Where its settings are, such as `[datastore] vm/vm.vmx`.
    pub vmx_path: String,
    /// What it starts, and from where.
    pub boot: Boot,
    /// Virtual processors.
    pub processors: u32,
    /// Memory in MiB.
    pub memory: u64,
    /// Its devices.
    pub devices: Devices,
    /// Entries of its `extraConfig`, as far as they were asked for.
    pub extra: Extra,
    /// Its OVF properties.
    pub properties: Vec<Property>,
    /// Who says that it is his.
    pub managed_by: Option<ManagedBy>,
    /// Whether it runs.
    pub power: Power,
    /// The host that it is on.
    pub host: Option<MoRef>,
    /// What it asks, if its task waits for a person's answer: whether it was moved or copied, or what is to be done on a full datastore.
    pub question: Option<String>,
    /// Whether VMware Tools run in it, as far as they have said.
    pub tools_run: bool,
    /// Its snapshots, parents first.
    pub snapshots: Vec<Snapshot>,
    /// Tasks of the last minutes, ended ones among them ([`Client::running`]).
    pub tasks: Vec<MoRef>,
}

impl Client {
    /// A VM as it is now, without entries of its `extraConfig`.
    ///
    /// # Errors
    /// When there is none, or its settings cannot be read, such as when its datastore is lost.
    pub async fn vm(&self, vm: &MoRef) -> Result<Vm> {
        self.vm_with(vm, &[]).await
    }

    /// The same with these entries of its `extraConfig`.
    ///
    /// # Errors
    /// As [`Client::vm`].
    pub async fn vm_with(&self, vm: &MoRef, keys: &[&str]) -> Result<Vm> {
        let seen = self.look(vm, &with(&keyed(keys))).await?;
        read(&seen, Extra::of(&seen, keys))
    }

    /// The same with all entries of its `extraConfig`: for a VM that has never run. Of another one its guest decides how long the answer
    /// is.
    ///
    /// # Errors
    /// As [`Client::vm`].
    pub async fn whole_vm(&self, vm: &MoRef) -> Result<Vm> {
        let seen = self.look(vm, &with(&[ALL.to_owned()])).await?;
        read(&seen, Extra::all(&seen))
    }

    /// These VMs as they are now, in any order, with these entries of their `extraConfig`.
    ///
    /// # Errors
    /// When one of them is not there, or its settings cannot be read.
    pub async fn vms_with(&self, vms: &[MoRef], keys: &[&str]) -> Result<Vec<Vm>> {
        let seen = self.look_at(vms, &with(&keyed(keys))).await?;
        seen.iter().map(|vm| read(vm, Extra::of(vm, keys))).collect()
    }

    /// The VMs and templates in a folder, or in a resource pool, without entries of their `extraConfig`; with `deep` also of those further
    /// below.
    ///
    /// # Errors
    /// When the container cannot be listed.
    pub async fn vms_in(&self, container: &MoRef, deep: bool) -> Result<Listed<Vm>> {
        listed(&self.list(container, &["VirtualMachine"], deep, PATHS).await?, |vm| read(vm, Extra::of(vm, &[])))
    }
}

/// All that is read of each VM, and more.
fn with(more: &[String]) -> Vec<&str> {
    PATHS.iter().copied().chain(more.iter().map(String::as_str)).collect()
}

fn read(vm: &Object, extra: Extra) -> Result<Vm> {
    has_settings(vm)?;
    let text = |path: &str| vm.need(path).map(|value| value.value().to_owned());
    let list = |path: &str| vm.get(path).map(Element::children).unwrap_or_default();
    Ok(Vm {
        reference: vm.reference.clone(),
        name: text("name")?,
        folder: vm.reference_at("parent"),
        pool: vm.reference_at("resourcePool"),
        datastores: vm.references_at("datastore"),
        change_version: text("config.changeVersion")?,
        bios_uuid: text("config.uuid")?,
        instance_uuid: vm.text("config.instanceUuid").to_owned(),
        is_template: vm.flag("config.template"),
        vmx_path: text("config.files.vmPathName")?,
        boot: Boot {
            firmware: vm.text("config.firmware").to_owned(),
            is_secure: vm.get("config.bootOptions").is_some_and(|boot| boot.flag("efiSecureBootEnabled")),
            order: vm.get("config.bootOptions").map(order).unwrap_or_default(),
        },
        processors: vm.parsed("config.hardware.numCPU").unwrap_or_default(),
        memory: vm.parsed("config.hardware.memoryMB").unwrap_or_default(),
        devices: Devices::read(vm.need("config.hardware.device")?),
        extra,
        properties: list("config.vAppConfig.property").iter().filter_map(Property::read).collect(),
        managed_by: vm.get("config.managedBy").map(|by| ManagedBy {
            extension: by.text_of("extensionKey").unwrap_or_default().to_owned(),
            kind: by.text_of("type").unwrap_or_default().to_owned(),
        }),
        power: Power::read(&text("runtime.powerState")?, &text("runtime.connectionState")?),
        host: vm.reference_at("runtime.host"),
        question: vm.get("runtime.question").and_then(|asks| asks.text_of("text")).map(str::to_owned),
        tools_run: vm.text("guest.toolsRunningStatus") == "guestToolsRunning",
        snapshots: vm.get("snapshot.rootSnapshotList").map(Snapshot::read_all).unwrap_or_default(),
        tasks: vm.references_at("recentTask"),
    })
}

/// The kinds of bootable devices, as they are tried.
fn order(options: &Element) -> Vec<String> {
    let devices = options.children().iter().filter(|part| part.name() == "bootOrder");
    devices.map(|device| device.kind().unwrap_or_default().to_owned()).collect()
}
