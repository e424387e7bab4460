//! Single entries of the `extraConfig` of VMs, read without all else of their settings: what a folder holds is found by
//! them, at a cost that does not grow with the settings of VMs that are nobody's concern.

use crate::client::Client;
use crate::collector::Object;
use crate::error::{Error, Result};
use crate::reference::MoRef;

use super::extra::{Extra, keyed, path};

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

/// What every VM has whose settings can be read.
const SETTINGS: &str = "config.changeVersion";

impl Client {
    /// The VMs and templates in a folder, with these entries; with `deep` also of those further below.
    ///
    /// # Errors
    /// When the settings of one of them cannot be read: none is left out.
    pub async fn entries_in(&self, container: &MoRef, deep: bool, keys: &[&str]) -> Result<Vec<Entries>> {
        let keyed = keyed(keys);
        let mut paths = vec!["name", "config.template", SETTINGS];
        paths.extend(keyed.iter().map(String::as_str));
        self.list(container, &["VirtualMachine"], deep, &paths).await?.iter().map(|vm| read(vm, keys)).collect()
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

/// Refuses a VM whose settings cannot be read. It is named: until somebody sees to it whoever lists its folder goes no further, for it may
/// be the one that is looked for.
pub(super) fn has_settings(vm: &Object) -> Result<()> {
    let Err(error) = vm.need(SETTINGS) else { return Ok(()) };
    let attempt = format!("reading the settings of the VM {} ({})", vm.text("name"), vm.reference);
    Err(match error {
        // vCenter has a reason, such as a missing privilege.
        Error::Fault { fault, .. } => Error::of_fault(attempt, *fault),
        _ => Error::unanswered(
            attempt,
            "they cannot be read, as where its datastore is not reached: bring that back, or take the VM out of the inventory or the \
             folder",
        ),
    })
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
