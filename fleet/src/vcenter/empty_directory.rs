//! Removes the directory of a VM that is gone, after its last data disk. When a VM is destroyed, vCenter keeps its
//! directory if that contains a detached disk.
//!
//! `FileManager.DeleteDatastoreFile_Task` deletes a directory with all its content. So the directory is first renamed
//! to a unique name. If a file was added meanwhile, it is seen after the rename, and the directory gets its name back.

use uuid::Uuid;
use vsphere::{DatastorePath, Outcome};

use super::VcenterHypervisor;
use super::trouble::{LastLook, Looked, granted, not_now};
use crate::hypervisor::{DiskRef, Fence, Result};
use crate::upgrade::base_of;

/// The end of the name of a directory before its removal, after the UUID of its disk.
const ASIDE: &str = "emptied";

/// Whether vCenter would give a VM of one of these nodes this directory: it has the VM's name, with a number if that
/// was taken. It is at the datastore's top.
pub(super) fn is_of(directory: &DatastorePath, nodes: &[&str]) -> bool {
    let name = &directory.path;
    let numbered = name.rsplit_once('_').filter(|(_, number)| number.parse::<u32>().is_ok()).map(|(name, _)| name);
    let names = [Some(name.as_str()), numbered];
    names.into_iter().flatten().any(|name| nodes.contains(&base_of(name)))
}

impl VcenterHypervisor {
    /// If the directory stays, that is logged and blocks nothing.
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
        let changes = self.client.changes(&permit);
        let datacenter = &self.places.datacenter;
        match self.is_empty(directory).await? {
            Some(true) => changes.move_file(directory, &aside, datacenter).await?,
            // It belongs to a VM, which is deleted with it, or contains a user's files.
            Some(false) => return Ok(()),
            // An earlier call may have ended between the two requests.
            None => {}
        }
        match self.is_empty(&aside).await? {
            None => Ok(()),
            Some(true) => {
                let look = || -> Looked<'_> {
                    Box::pin(async {
                        match self.is_empty(&aside).await? {
                            Some(false) => Err(not_now(format!("{aside} is no longer empty"))),
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

    /// Whether a directory is empty. `None` if it does not exist.
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
    fn node_directory_is_recognized_by_its_name() {
        let of = |path: &str| is_of(&DatastorePath::new("ds", path), &["shop-cp1", "shop-cp2"]);
        for own in ["shop-cp1", "shop-cp2_1", "shop-cp1-0a1b2c3", "shop-cp1-0a1b2c3_2", "shop-cp1-0a1b2c3-4x16384"] {
            assert!(of(own), "{own}");
        }
        for other in ["", "shop-cp3", "shop-cp1-old", "shop-cp1_a", "backups/shop-cp1", "shop-cp1/disks", "shop"] {
            assert!(!of(other), "{other}");
        }
    }
}
