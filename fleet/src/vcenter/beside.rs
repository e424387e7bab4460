//! Whose a directory on a datastore is, by the VMs whose settings are in it.

use vsphere::{DatastorePath, MoRef, Outcome};

use super::VcenterHypervisor;
use super::datastore_directory::datastore_of;
use super::trouble::looking;
use crate::hypervisor::{DiskRef, Error, Result};

/// Settings of VMs and of templates: `.vmx` and `.vmtx`.
const SETTINGS: &str = "*.vm*x";

impl VcenterHypervisor {
    /// Refuses a disk that lies in another VM's directory, wherever in the inventory that is, or in none. The journal that names a
    /// disk is a file on a datastore: whoever may write that one must not have us remove what he may not.
    pub(super) async fn is_in_no_others_directory(&self, disk: &DiskRef) -> Result<()> {
        let path =
            disk.path.parse::<DatastorePath>().map_err(|error| Error::refused(format!("{}: {error}", disk.path)))?;
        let directory = path.parent().filter(|directory| !directory.path.is_empty());
        let Some(directory) = directory else {
            return Err(Error::refused(format!("{} lies in no directory, and so in none of a VM's", disk.path)));
        };
        let datastore = self.datastore_named(&directory.datastore).await?;
        let settings = match self.client.files(&datastore, &directory, SETTINGS).await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(()),
            settings => settings?,
        };
        let own: Vec<String> = self.all_own().await?.into_iter().map(|vm| vm.vmx_path).collect();
        let strange =
            settings.iter().map(|file| directory.join(&file.name).to_string()).find(|path| !own.contains(path));
        match strange {
            Some(vm) => Err(Error::refused(format!("{} lies beside {vm}, which is another VM's: it stays", disk.path))),
            None => Ok(()),
        }
    }

    /// The datastore that paths name so.
    pub(super) async fn datastore_named(&self, name: &str) -> Result<MoRef> {
        if name == self.places.datastore.name {
            return Ok(self.places.datastore.datastore.clone());
        }
        datastore_of(&self.client, &self.places.datacenter_path, name).await.map_err(looking)
    }
}
