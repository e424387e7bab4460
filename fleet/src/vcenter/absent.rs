//! Whether a VM is gone that vCenter does not show.

use uuid::Uuid;
use vsphere::{DatastorePath, MoRef, Outcome, Unread};

use super::VcenterHypervisor;
use super::datastore_directory::find_datastore;
use super::emptied::is_of;
use super::holders::makes;
use crate::hypervisor::{Absence, LastSeen, Result};
use crate::upgrade::base_of;

impl VcenterHypervisor {
    pub(super) async fn proves_absence(&self, uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        let unknown = |words: String| Ok(Absence::Unknown(words));
        let noted = match seen {
            LastSeen::At(settings, _) => settings.parse::<DatastorePath>().ok().and_then(|path| path.parent()),
            LastSeen::NeverOn | LastSeen::Unnoted => None,
        };
        // One that can be read from now on is found by its UUID.
        if let Some(why) = self.unread_of(nodes, noted.as_ref()).await? {
            return unknown(why);
        }
        if let Some(vm) = self.of_bios_uuid(uuid).await?.iter().find(|vm| !vm.is_anothers(self.deployment)) {
            return unknown(format!("vCenter has {vm}, which is {}", vm.power));
        }
        let (settings, datastore) = match seen {
            LastSeen::NeverOn => return Ok(Absence::Gone),
            LastSeen::Unnoted => {
                return unknown(
                    "an earlier version has not noted where its files are. Register the VM again; if it is off for good, abandon its \
                     upgrade, or remove the worker from its pool"
                        .to_owned(),
                );
            }
            LastSeen::At(settings, datastore) => (settings, datastore),
        };
        let (Ok(path), Some(directory)) = (settings.parse::<DatastorePath>(), noted) else {
            return unknown(format!("{settings} is no path of its settings"));
        };
        // Its name may change. A datastore that has left the inventory returns under another ID.
        let noted = match datastore.map(|id| MoRef::new("Datastore", id)) {
            Some(datastore) => match self.client.datastore(&datastore).await {
                Err(error) if error.outcome() == Outcome::NotFound => None,
                now => Some(now?),
            },
            None => None,
        };
        let now = match noted {
            Some(now) => Some(now),
            None => match find_datastore(&self.client, &self.places.datacenter_path, &path.datastore).await? {
                Some(found) => Some(self.client.datastore(&found).await?),
                None => None,
            },
        };
        let Some(now) = now else {
            return unknown(format!(
                "vCenter shows no datastore {}, where its files were. Add its host again. If both are scrapped, abandon the upgrade, or add an \
                 empty datastore with this name until the command has ended",
                path.datastore
            ));
        };
        if !now.accessible {
            return unknown(format!("no host reaches the datastore {}, where its files are: connect one", now.name));
        }
        let (path, directory) =
            (DatastorePath::new(&now.name, path.path), DatastorePath::new(&now.name, directory.path));
        let files = match self.client.files(&now.reference, &directory, "*").await {
            Err(error) if error.is_fault("FileNotFound") => return Ok(Absence::Gone),
            Err(error) if error.outcome() == Outcome::NotFound => {
                return unknown(format!("the files in {directory} cannot be listed: {error}"));
            }
            files => files?,
        };
        // Seen on ESXi 8.0.2 with a VM that ran. `kaas provider probe` tries whether it goes with power-off.
        let locked = DatastorePath::new(&now.name, format!("{}.lck", path.path));
        let is_left = |left: &&DatastorePath| files.iter().any(|file| directory.join(&file.name) == **left);
        let Some(left) = [&path, &locked].into_iter().find(is_left) else { return Ok(Absence::Gone) };
        // Who registers it may have it given another BIOS UUID.
        if let Some(vm) = self.client.vm_of_settings(&path, &self.places.datacenter).await? {
            let vm = self.client.look(&vm, &["name"]).await?;
            return unknown(format!(
                "the VM {} is registered with {path} and has another BIOS UUID, or cannot be read: see whether it is the node's. Change no file",
                vm.text("name")
            ));
        }
        unknown(format!(
            "{left} exists: the VM may run on a host that was removed from vCenter. Add that host again, or register the VM. If it is off for \
             good, remove that file alone: its directory may hold a data disk"
        ))
    }

    /// Names a VM without readable settings that may be one of these nodes' VMs, or has a file in this directory.
    pub(super) async fn unread_of(&self, nodes: &[&str], noted: Option<&DatastorePath>) -> Result<Option<String>> {
        for (folder, _) in &self.places.folders {
            for unread in self.client.entries_in(folder, false, &[]).await?.unread {
                if self.may_be(&unread, nodes, noted).await? {
                    return Ok(Some(format!("it may be the VM {}: {}", unread.name, unread.error)));
                }
            }
        }
        Ok(None)
    }

    /// A VM that shows no file may be any VM.
    async fn may_be(&self, unread: &Unread, nodes: &[&str], noted: Option<&DatastorePath>) -> Result<bool> {
        let traces = match self.client.traces(&unread.reference).await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(false),
            traces => traces?,
        };
        let is_its = |file: &String| {
            let Ok(file) = file.parse::<DatastorePath>() else { return true };
            let name = file.path.rsplit_once('/').map_or(&*file.path, |(_, name)| name);
            let is_named = name.strip_suffix(".vmx").is_some_and(|name| nodes.contains(&base_of(name)));
            let parent = file.parent();
            is_named || parent.is_some_and(|parent| Some(&parent) == noted || is_of(&parent, nodes))
        };
        let is_named = nodes.contains(&base_of(&unread.name));
        Ok(!makes(&traces.running) && (is_named || traces.files.is_empty() || traces.files.iter().any(is_its)))
    }
}
