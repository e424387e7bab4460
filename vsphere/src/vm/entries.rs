//! Single entries of the `extraConfig` of VMs, read without all else of their settings: what a folder holds is found by
//! them, at a cost that does not grow with the settings of VMs that are nobody's concern.

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;
use crate::task::Running;

use super::extra::{Extra, keyed, path};
use crate::soap::Element;

/// A VM or a template, and some entries of its `extraConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// What names it.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// Whether it is a template.
    pub is_template: bool,
    /// The entries, as far as it has them.
    pub extra: Extra,
}

/// VMs of a folder, and those among them whose settings vCenter does not show.
#[derive(Debug)]
pub struct Listed<T> {
    /// The VMs whose settings were read.
    pub vms: Vec<T>,
    /// All others: "`config` is not guaranteed to be available", as where vCenter cannot access a VM's files, and in the first phases of its
    /// creation (reference of `VirtualMachine`).
    pub unread: Vec<Unread>,
}

/// A VM without settings that can be read.
#[derive(Debug)]
pub struct Unread {
    /// What names it.
    pub reference: MoRef,
    /// Its name in the inventory.
    pub name: String,
    /// Why its settings are not read.
    pub error: Error,
}

/// What vCenter shows of a VM without its settings.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// The datastores that have files of it; none where vCenter does not say.
    pub datastores: Vec<MoRef>,
    /// The files that it was last known to consist of, disks among them (`layoutEx`); none where vCenter does not say.
    pub files: Vec<String>,
    /// The file of its settings. On a datastore that is not reached it is a path on a host: `[] /vmfs/volumes/…`.
    pub settings: Option<String>,
    /// What is being done to it.
    pub running: Vec<Running>,
}

/// What every VM has whose settings can be read.
const SETTINGS: &str = "config.changeVersion";

impl Client {
    /// The VMs and templates in a folder, with these entries; with `deep` also of those further below.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub async fn entries_in(&self, container: &MoRef, deep: bool, keys: &[&str]) -> Result<Listed<Entries>> {
        let keyed = keyed(keys);
        let mut paths = vec!["name", "config.template", SETTINGS];
        paths.extend(keyed.iter().map(String::as_str));
        listed(&self.list(container, &["VirtualMachine"], deep, &paths).await?, |vm| read(vm, keys))
    }

    /// What vCenter shows of a VM whose settings cannot be read. Each part may be missing as well.
    ///
    /// # Errors
    /// When there is no such VM.
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

    /// One entry of a VM; none if it has none.
    ///
    /// # Errors
    /// When there is no such VM, or its settings cannot be read.
    pub async fn entry(&self, vm: &MoRef, key: &str) -> Result<Option<String>> {
        let seen = self.look(vm, &["name", "config.template", SETTINGS, &path(key)]).await?;
        Ok(read(&seen, &[key])?.extra.get(key).map(str::to_owned))
    }
}

/// Refuses a VM whose settings cannot be read. The words name it.
pub(super) fn has_settings(vm: &Object) -> Result<()> {
    let Err(error) = vm.need(SETTINGS) else { return Ok(()) };
    let attempt = format!("reading the settings of the VM {} ({})", vm.text("name"), vm.reference);
    Err(match error {
        // vCenter has a reason, such as a missing privilege.
        Error::Fault { fault, .. } => Error::of_fault(attempt, *fault),
        _ => Error::unanswered(
            attempt,
            "vCenter does not show them, as while it makes the VM or does not reach its files",
        ),
    })
}

/// Reads each VM that has settings.
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
