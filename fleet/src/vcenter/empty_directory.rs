//! The directory of a VM that is gone, once the last data disk is removed from it: vCenter deletes a VM's directory with the VM, but not
//! while a disk that was detached before lies in it.
//!
//! `FileManager.DeleteDatastoreFile_Task` deletes a directory with all that is in it. So the directory is given another name first, which
//! nobody else has: whatever was put there meanwhile is seen afterwards, and the directory gets its name back.

use uuid::Uuid;
use vsphere::{DatastorePath, Outcome};

use super::VcenterHypervisor;
use super::trouble::{Asking, LastLook, Looked, granted, not_now};
use crate::hypervisor::{DiskRef, Fence, Result};
use crate::upgrade::base_of;

/// How a directory's name ends that is about to go, behind the UUID of the disk that lay in it.
const ASIDE: &str = "emptied";

/// Whether a directory is called as vCenter calls that of one of these nodes' VMs: by the VM's name, with a number where there was one. It
/// lies at the datastore's top.
pub(super) fn is_of(directory: &DatastorePath, nodes: &[&str]) -> bool {
    let name = &directory.path;
    let numbered = name.rsplit_once('_').filter(|(_, number)| number.parse::<u32>().is_ok()).map(|(name, _)| name);
    let names = [Some(name.as_str()), numbered];
    names.into_iter().flatten().any(|name| nodes.contains(&base_of(name)))
}

impl VcenterHypervisor {
    /// That it stays stops nothing: it is told.
    pub(super) async fn remove_emptied_directory(
        &self,
        disk: &DiskRef,
        nodes: &[&str],
        permit: &dyn Fence,
    ) -> Result<()> {
        let directory = disk.path.parse::<DatastorePath>().ok().and_then(|path| path.parent());
        let Some(directory) = directory.filter(|directory| is_of(directory, nodes)) else { return Ok(()) };
        granted(
            self.try_remove_emptied(disk.uuid, &directory, permit).await,
            &format!("{directory} away, which is empty"),
        )
    }

    /// Removes a directory if it is empty. `mark` is a part of its name meanwhile.
    pub(super) async fn try_remove_emptied(
        &self,
        mark: Uuid,
        directory: &DatastorePath,
        permit: &dyn Fence,
    ) -> Result<()> {
        let aside = DatastorePath::new(&directory.datastore, format!("{}-{mark}-{ASIDE}", directory.path));
        let asking = Asking(permit);
        let changes = self.client.changes(&asking);
        let datacenter = &self.places.datacenter;
        match self.is_empty(directory).await? {
            Some(true) => changes.move_file(directory, &aside, datacenter).await?,
            // A VM's, which takes it along when it goes; or somebody's files.
            Some(false) => return Ok(()),
            // An earlier call may have ended in between.
            None => {}
        }
        match self.is_empty(&aside).await? {
            None => Ok(()),
            Some(true) => {
                let look = || -> Looked<'_> {
                    Box::pin(async {
                        match self.is_empty(&aside).await? {
                            Some(false) => Err(not_now(format!("{aside} is not empty any more"))),
                            Some(true) | None => Ok(()),
                        }
                    })
                };
                let last = LastLook { permit, look: &look };
                Ok(self.client.changes(&last).delete_file(&aside, datacenter).await?)
            }
            Some(false) => {
                log::warn!("something was put into {directory} meanwhile: it stays");
                Ok(changes.move_file(&aside, directory, datacenter).await?)
            }
        }
    }

    /// Whether nothing is in a directory; none if it is not there.
    pub(super) async fn is_empty(&self, directory: &DatastorePath) -> Result<Option<bool>> {
        let datastore = self.datastore_named(&directory.datastore).await?;
        match self.client.files(&datastore, directory, "*").await {
            Ok(files) => Ok(Some(files.is_empty())),
            Err(error) if error.outcome() == Outcome::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_nodes_vms_by_its_name_at_the_top() {
        let of = |path: &str| is_of(&DatastorePath::new("ds", path), &["shop-cp1", "shop-cp2"]);
        for own in ["shop-cp1", "shop-cp2_1", "shop-cp1-0a1b2c3", "shop-cp1-0a1b2c3_2", "shop-cp1-0a1b2c3-4x16384"] {
            assert!(of(own), "{own}");
        }
        for other in ["", "shop-cp3", "shop-cp1-old", "shop-cp1_a", "backups/shop-cp1", "shop-cp1/disks", "shop"] {
            assert!(!of(other), "{other}");
        }
    }
}
