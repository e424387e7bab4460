//! The proof that a VM that vCenter does not show is gone.

use uuid::Uuid;
use vsphere::{DatastorePath, MoRef, Outcome, Unread};

use super::VcenterHypervisor;
use super::empty_directory::is_of;
use super::holders::makes;
use crate::hypervisor::{Absence, ErrorKind, LastSeen, Result};
use crate::upgrade::base_of;

impl VcenterHypervisor {
    pub(super) async fn proves_absence(&self, uuid: Uuid, nodes: &[&str], seen: LastSeen<'_>) -> Result<Absence> {
        let unknown = |words: String| Ok(Absence::Unknown(words));
        let noted = match seen {
            LastSeen::At(settings, _) => settings.parse::<DatastorePath>().ok().and_then(|path| path.parent()),
            LastSeen::NeverOn | LastSeen::Unnoted => None,
        };
        // A VM that becomes readable from now on is found by its UUID.
        if let Some(why) = self.unread_of(nodes, noted.as_ref()).await? {
            return unknown(why);
        }
        if let Some(vm) = self.of_bios_uuid(uuid).await?.iter().find(|vm| !vm.is_anothers(self.deployment)) {
            return unknown(format!(
                "vCenter has {vm}, which is {}. If it is a copy, remove it from the inventory",
                vm.power
            ));
        }
        let why = match seen {
            LastSeen::NeverOn => return Ok(Absence::Gone),
            LastSeen::Unnoted => Ok("the place of its files was not recorded. Register the VM again".to_owned()),
            LastSeen::At(settings, datastore) => match self.files_of(settings, datastore).await.transpose() {
                None => return Ok(Absence::Gone),
                Some(why) => why,
            },
        };
        // The operator's confirmation counts even if the files cannot be read.
        let word = self.laid.word(uuid);
        if word.exists().await.unwrap_or(false) {
            log::warn!("the VM {uuid} counts as gone, because an operator made the directory {word}");
            return Ok(Absence::Gone);
        }
        let why = match why {
            Err(error) if error.kind == ErrorKind::Transient => return Err(error),
            why => why.unwrap_or_else(|error| error.to_string()),
        };
        unknown(format!("{why}. If it is off for good, create the directory {word}"))
    }

    /// The reason why the files of a VM do not prove that it is gone. A datastore is identified by its identifier only:
    /// another one may get its name.
    async fn files_of(&self, settings: &str, datastore: Option<&str>) -> Result<Option<String>> {
        let path = settings.parse::<DatastorePath>().ok();
        let Some((path, directory)) = path.and_then(|path| path.parent().map(|directory| (path, directory))) else {
            return Ok(Some(format!("{settings} is no path of its settings")));
        };
        let Some(id) = datastore else {
            return Ok(Some(format!(
                "the identifier of its datastore {} was not recorded. Register the VM again",
                path.datastore
            )));
        };
        let now = match self.client.datastore(&MoRef::new("Datastore", id)).await {
            Err(error) if error.outcome() == Outcome::NotFound => {
                return Ok(Some(format!(
                    "vCenter no longer has the datastore {} that its files were on. Add its host again, or register the VM",
                    path.datastore
                )));
            }
            now => now?,
        };
        if !now.accessible {
            return Ok(Some(format!("no host reaches the datastore {}, where its files are: connect one", now.name)));
        }
        let (path, directory) =
            (DatastorePath::new(&now.name, path.path), DatastorePath::new(&now.name, directory.path));
        let files = match self.client.files(&now.reference, &directory, "*").await {
            // One answer is no proof: the list of the parent directory must lack it too.
            Err(error) if error.is_fault("FileNotFound") => {
                let above = directory.parent().unwrap_or_else(|| directory.clone());
                let listed = self.client.files(&now.reference, &above, "*").await?;
                let is_listed = listed.iter().any(|file| above.join(&file.name) == directory);
                return Ok(is_listed.then(|| format!("{directory} exists, and its files cannot be listed: {error}")));
            }
            files => files?,
        };
        // Seen on ESXi 8.0.2 with a running VM. `kaas provider probe` tests whether the file disappears at power-off.
        let locked = DatastorePath::new(&now.name, format!("{}.lck", path.path));
        let is_left = |left: &&DatastorePath| files.iter().any(|file| directory.join(&file.name) == **left);
        let Some(left) = [&path, &locked].into_iter().find(is_left) else { return Ok(None) };
        // The user who registers it may let vCenter give it another BIOS UUID.
        if let Some(vm) = self.client.vm_of_settings(&path, &self.places.datacenter).await? {
            let vm = self.client.look(&vm, &["name"]).await?;
            return Ok(Some(format!(
                "the VM {} is registered with {path} and has another BIOS UUID, or cannot be read: see whether it is the node's",
                vm.text("name")
            )));
        }
        Ok(Some(format!(
            "{left} exists: the VM may run on a host that was removed from vCenter. Add that host again, or register the VM"
        )))
    }

    /// Names a VM without readable settings that may belong to one of these nodes, or that has a file in this
    /// directory.
    pub(super) async fn unread_of(&self, nodes: &[&str], noted: Option<&DatastorePath>) -> Result<Option<String>> {
        for (folder, _) in &self.places.folders {
            for unread in self.client.entries_in(folder, false, &[]).await?.unread {
                if self.may_be(&unread, nodes, noted).await? {
                    return Ok(Some(format!(
                        "it may be the VM {}: {}. Connect its host and its datastore. If these are off for good, remove that VM from the inventory. \
                         If that VM is another one, move it to another folder",
                        unread.name, unread.error
                    )));
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
            // `[] /vmfs/volumes/…` if no host reaches the datastore.
            let Some((datastore, path)) = file.split_once(']') else { return true };
            let file = DatastorePath::new(datastore.trim_start_matches('['), path.trim_start());
            let name = file.path.rsplit_once('/').map_or(&*file.path, |(_, name)| name);
            let is_named = name.strip_suffix(".vmx").is_some_and(|name| nodes.contains(&base_of(name)));
            let parent = file.parent();
            is_named || parent.is_some_and(|parent| Some(&parent) == noted || is_of(&parent, nodes))
        };
        let is_named = nodes.contains(&base_of(&unread.name));
        let mut files = traces.files.iter().chain(&traces.settings).peekable();
        Ok(!makes(&traces.running) && (is_named || files.peek().is_none() || files.any(is_its)))
    }
}
