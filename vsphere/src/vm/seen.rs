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

/// The properties of each VM, except entries of its `extraConfig`. Its guest writes into none of them more than a word.
/// So no guest decides the length of an answer about many VMs.
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

/// The extension that manages a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedBy {
    /// The key of an extension. vSphere Client shows its name if it is registered.
    pub extension: String,
    /// The extension's kind of VM.
    pub kind: String,
}

/// The boot options of a VM (`VirtualMachineBootOptions`, vSphere Web Services API).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// `bios` or `efi`.
    pub firmware: String,
    /// Whether EFI starts only signed programs.
    pub is_secure: bool,
    /// The kinds of boot devices, in order. Empty if the firmware's order applies.
    pub order: Vec<String>,
}

/// A VM.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its reference.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// Its folder. `None` in a vApp.
    pub folder: Option<MoRef>,
    /// Its resource pool. `None` for a template.
    pub pool: Option<MoRef>,
    /// The datastores with its files.
    pub datastores: Vec<MoRef>,
    /// A value that changes with each change of its settings.
    pub change_version: String,
    /// The UUID that its guest sees.
    pub bios_uuid: String,
    /// The UUID that identifies it in this vCenter.
    pub instance_uuid: String,
    /// Whether it is a template.
    pub is_template: bool,
    /// The file of its settings, such as `[datastore] vm/vm.vmx`.
    pub vmx_path: String,
    /// Its boot options.
    pub boot: Boot,
    /// The number of its virtual processors.
    pub processors: u32,
    /// Its memory in MiB.
    pub memory: u64,
    /// Its devices.
    pub devices: Devices,
    /// The requested entries of its `extraConfig`.
    pub extra: Extra,
    /// Its OVF properties.
    pub properties: Vec<Property>,
    /// The extension that manages it.
    pub managed_by: Option<ManagedBy>,
    /// Its power state.
    pub power: Power,
    /// Its host.
    pub host: Option<MoRef>,
    /// The question of a task that waits for an answer. For example, whether the VM was moved or copied, or how to
    /// continue on a full datastore.
    pub question: Option<String>,
    /// Whether VMware Tools run in it, by their last report.
    pub tools_run: bool,
    /// Its snapshots, parents first.
    pub snapshots: Vec<Snapshot>,
    /// Tasks of the last minutes, also ended ones ([`Client::running`]).
    pub tasks: Vec<MoRef>,
}

impl Client {
    /// Reads a VM, without entries of its `extraConfig`. Fails if its settings are unreadable, as on a lost datastore.
    pub async fn vm(&self, vm: &MoRef) -> Result<Vm> {
        self.vm_with(vm, &[]).await
    }

    /// Reads a VM, with these entries of its `extraConfig`.
    pub async fn vm_with(&self, vm: &MoRef, keys: &[&str]) -> Result<Vm> {
        let seen = self.look(vm, &with(&keyed(keys))).await?;
        read(&seen, Extra::of(&seen, keys))
    }

    /// Reads a VM, with all entries of its `extraConfig`. For VMs that have never run: otherwise the guest decides the
    /// length of the answer.
    pub async fn whole_vm(&self, vm: &MoRef) -> Result<Vm> {
        let seen = self.look(vm, &with(&[ALL.to_owned()])).await?;
        read(&seen, Extra::all(&seen))
    }

    /// Reads VMs, with these entries of their `extraConfig`. The answer has any order. Fails if one of them is missing
    /// or unreadable.
    pub async fn vms_with(&self, vms: &[MoRef], keys: &[&str]) -> Result<Vec<Vm>> {
        let seen = self.look_at(vms, &with(&keyed(keys))).await?;
        seen.iter().map(|vm| read(vm, Extra::of(vm, keys))).collect()
    }

    /// The VMs and templates in a folder or a resource pool, without entries of their `extraConfig`. With `deep`, also
    /// those further below.
    pub async fn vms_in(&self, container: &MoRef, deep: bool) -> Result<Listed<Vm>> {
        listed(&self.list(container, &["VirtualMachine"], deep, PATHS).await?, |vm| read(vm, Extra::of(vm, &[])))
    }
}

/// The properties of each VM, and further ones.
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

fn order(options: &Element) -> Vec<String> {
    let devices = options.children().iter().filter(|part| part.name() == "bootOrder");
    devices.map(|device| device.kind().unwrap_or_default().to_owned()).collect()
}
