//! Reads single entries of the `extraConfig` of VMs without their other settings. Searches of a folder use them. Their
//! cost does not grow with the settings of unrelated VMs.

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;
use crate::task::Running;

use super::extra::{Extra, keyed, path};
use crate::soap::Element;

/// A VM or a template, with some entries of its `extraConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Its reference.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// Whether it is a template.
    pub is_template: bool,
    /// The requested entries that it has.
    pub extra: Extra,
}

/// VMs of a folder, and those whose settings vCenter does not show.
#[derive(Debug)]
pub struct Listed<T> {
    /// The VMs whose settings were read.
    pub vms: Vec<T>,
    /// All others: "`config` is not guaranteed to be available". Examples are VMs whose files vCenter cannot access,
    /// and VMs in the first phases of their creation (reference of `VirtualMachine`).
    pub unread: Vec<Unread>,
}

/// A VM with unreadable settings.
#[derive(Debug)]
pub struct Unread {
    /// Its reference.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// The reason why its settings were not read.
    pub error: Error,
}

/// The data that vCenter shows about a VM without its settings.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// The datastores with its files. Empty if vCenter does not report them.
    pub datastores: Vec<MoRef>,
    /// Its last known files, disks included (`layoutEx`). Empty if vCenter does not report them.
    pub files: Vec<String>,
    /// The file of its settings. On an inaccessible datastore it is a path on a host: `[] /vmfs/volumes/…`.
    pub settings: Option<String>,
    /// Its running tasks.
    pub running: Vec<Running>,
}

/// A property of every VM with readable settings.
const SETTINGS: &str = "config.changeVersion";

impl Client {
    /// The VMs and templates in a folder, with these entries. With `deep`, also those further below.
    pub async fn entries_in(&self, container: &MoRef, deep: bool, keys: &[&str]) -> Result<Listed<Entries>> {
        let keyed = keyed(keys);
        let mut paths = vec!["name", "config.template", SETTINGS];
        paths.extend(keyed.iter().map(String::as_str));
        listed(&self.list(container, &["VirtualMachine"], deep, &paths).await?, |vm| read(vm, keys))
    }

    /// The data that vCenter shows about a VM with unreadable settings. Each part may be missing.
    pub async fn traces(&self, vm: &MoRef) -> Result<Traces> {
        const PATH: &str = "summary.config.vmPathName";
        let seen = self.look(vm, &["datastore", "layoutEx.file", PATH, "recentTask"]).await?;
        let files = seen.get("layoutEx.file").map(Element::children).unwrap_or_default();
        Ok(Traces {
            datastores: seen.references_at("datastore"),
            files: files.iter().filter_map(|file| file.text_of("name")).map(str::to_owned).collect(),
            settings: seen.get(PATH).map(|path| path.value().to_owned()),
            running: self.running(&seen.references_at("recentTask")).await?,
        })
    }

    /// One entry of a VM, if the VM has it.
    pub async fn entry(&self, vm: &MoRef, key: &str) -> Result<Option<String>> {
        let seen = self.look(vm, &["name", "config.template", SETTINGS, &path(key)]).await?;
        Ok(read(&seen, &[key])?.extra.get(key).map(str::to_owned))
    }
}

/// Returns an error if a VM's settings cannot be read. The message names the VM.
pub(super) fn has_settings(vm: &Object) -> Result<()> {
    let Err(error) = vm.need(SETTINGS) else { return Ok(()) };
    let attempt = format!("reading the settings of the VM {} ({})", vm.text("name"), vm.reference);
    Err(match error {
        // vCenter's reason, such as a missing privilege.
        Error::Fault { fault, .. } => Error::of_fault(attempt, *fault),
        _ => Error::unanswered(
            attempt,
            "vCenter does not show them, as while it makes the VM or does not reach its files",
        ),
    })
}

/// Reads each VM with settings.
pub(super) fn listed<T>(seen: &[Object], read: impl Fn(&Object) -> Result<T>) -> Result<Listed<T>> {
    let mut listed = Listed { vms: Vec::new(), unread: Vec::new() };
    for vm in seen {
        match has_settings(vm) {
            Ok(()) => listed.vms.push(read(vm)?),
            Err(error) => {
                let (reference, name) = (vm.reference.clone(), vm.text("name").to_owned());
                listed.unread.push(Unread { reference, name, error });
            }
        }
    }
    Ok(listed)
}

fn read(vm: &Object, keys: &[&str]) -> Result<Entries> {
    has_settings(vm)?;
    Ok(Entries {
        reference: vm.reference.clone(),
        name: vm.need("name")?.value().to_owned(),
        is_template: vm.flag("config.template"),
        extra: Extra::of(vm, keys),
    })
}
