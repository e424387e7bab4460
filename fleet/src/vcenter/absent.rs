//! Whether a VM is gone that vCenter does not show.

use uuid::Uuid;
use vsphere::{DatastorePath, Outcome};

use super::VcenterHypervisor;
use super::datastore_directory::find_datastore;
use crate::hypervisor::{Absence, LastSeen, Result};

impl VcenterHypervisor {
    pub(super) async fn proves_absence(&self, uuid: Uuid, seen: LastSeen<'_>) -> Result<Absence> {
        let unknown = |words: String| Ok(Absence::Unknown(words));
        if let Some(vm) = self.of_bios_uuid(uuid).await?.iter().find(|vm| !vm.is_anothers(self.deployment)) {
            return unknown(format!("vCenter has {vm}, which is {}", vm.power));
        }
        for (folder, _) in &self.places.folders {
            for unread in self.client.entries_in(folder, false, &[]).await?.unread {
                if !self.is_made(&unread.reference).await? {
                    return unknown(format!("it may be the VM {}: {}", unread.name, unread.error));
                }
            }
        }
        let settings = match seen {
            LastSeen::NeverOn => return Ok(Absence::Gone),
            LastSeen::Unnoted => return unknown("where its files are is not noted".to_owned()),
            LastSeen::At(settings) => settings,
        };
        let path = settings.parse::<DatastorePath>().ok();
        let Some((path, directory)) = path.and_then(|path| path.parent().map(|parent| (path, parent))) else {
            return unknown(format!("{settings} is no path of its settings"));
        };
        let Some(datastore) = find_datastore(&self.client, &self.places.datacenter_path, &path.datastore).await? else {
            return unknown(format!("vCenter shows no datastore {}, where its files were", path.datastore));
        };
        if !self.client.datastore(&datastore).await?.accessible {
            return unknown(format!("no host reaches the datastore {}, where its files are", path.datastore));
        }
        let files = match self.client.files(&datastore, &directory, "*").await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(Absence::Gone),
            files => files?,
        };
        if files.iter().any(|file| directory.join(&file.name) == path) {
            return unknown(format!(
                "{settings} is still there: it may run on a host that was removed from vCenter. Add that host again, or register the VM; if it \
                 is off for good, delete its directory"
            ));
        }
        Ok(Absence::Gone)
    }
}
