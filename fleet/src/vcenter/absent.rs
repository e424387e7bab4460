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
        let found = match datastore {
            Some(id) => Some(MoRef::new("Datastore", id)),
            None => find_datastore(&self.client, &self.places.datacenter_path, &path.datastore).await?,
        };
        let now = match &found {
            Some(datastore) => self.client.datastore(datastore).await.map(Some),
            None => Ok(None),
        };
        let now = match now {
            Err(error) if error.outcome() == Outcome::NotFound => None,
            now => now?,
        };
        let Some(now) = now else {
            // A name is all that is noted of it: another datastore that has it says the same as that one would.
            let ends = match datastore {
                Some(_) => "If both are scrapped, abandon the upgrade".to_owned(),
                None => format!(
                    "If both are scrapped, give a datastore that has no directory {} this name until the command has ended",
                    directory.path
                ),
            };
            return unknown(format!(
                "vCenter shows no datastore {}, where its files were. Add its host again. {ends}",
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
        // A host locks the settings of a VM that runs (VMware KB 2107795).
        let locked = DatastorePath::new(&now.name, format!("{}.lck", path.path));
        let left = [path, locked].into_iter().find(|left| files.iter().any(|file| directory.join(&file.name) == *left));
        match left {
            None => Ok(Absence::Gone),
            Some(left) => unknown(format!(
                "{left} is still there: it may run on a host that was removed from vCenter. Add that host again, or register the VM; if it is off \
                 for good, remove or rename that file alone: its directory may hold a data disk"
            )),
        }
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
