//! Copies of data disks, each beside its own: on the same datastore, in the same directory, as vSAN wants it.

use std::time::Duration;

use uuid::Uuid;
use vsphere::{DatastorePath, DiskFile, Outcome};

use super::VcenterHypervisor;
use super::trouble::{Asking, LastLook, Looked, after_it_began};
use crate::hypervisor::{DiskRef, Error, Kind, Permit, Result};

/// How long a copy may take: a terabyte at 12 MiB/s. What still goes on then is in doubt.
const COPYING: Duration = Duration::from_secs(24 * 60 * 60);

const MEBIBYTE: u64 = 1 << 20;

impl VcenterHypervisor {
    /// At most two requests: what lies where the copy is to be is removed, and the disk is copied. The copy is told by the UUID that
    /// vCenter then says of its file.
    pub(super) async fn copy_beside(
        &self,
        disk: &DiskRef,
        mark: &str,
        nodes: &[&str],
        permit: &dyn Permit,
    ) -> Result<DiskRef> {
        let path = disk.beside(mark);
        self.is_free_and_there(disk).await?;
        self.lies_beside_no_others(disk, nodes).await?;
        self.remove_half_copy(&path, nodes, permit).await?;
        let datacenter = &self.places.datacenter;
        let [from, to] = [&*disk.path, &*path].map(|path| DiskFile { path, datacenter });
        if let Err(error) = self.client.changes(&Asking(permit)).within(COPYING).copy_disk(from, to).await {
            let error = Error::from(error);
            return Err(match error.kind {
                Kind::Transient => self.with_size(error, disk).await,
                _ => error,
            });
        }
        let said = self.client.disk_uuid(to).await.map_err(after_it_began)?;
        let uuid = said.parse::<Uuid>().map_err(|error| after_it_began(Error::transient(error)))?;
        if uuid == disk.uuid {
            return Err(Error::refused(format!(
                "vCenter gives the copy at {path} the UUID of its disk: neither is told by it"
            )));
        }
        Ok(DiskRef { uuid, path })
    }

    /// The same error with the room that the disk's files take, for who has to make as much: on vSAN they do not say, nor where they
    /// cannot be listed.
    async fn with_size(&self, error: Error, disk: &DiskRef) -> Error {
        match self.size_of(disk).await {
            Some(bytes) if bytes >= MEBIBYTE => error.context(format!("its files have {} MiB", bytes / MEBIBYTE)),
            _ => error,
        }
    }

    /// How large a disk's files are together: its descriptor, and what that names beside it.
    async fn size_of(&self, disk: &DiskRef) -> Option<u64> {
        let path: DatastorePath = disk.path.parse().ok()?;
        let directory = path.parent()?;
        let stem = path.path.rsplit('/').next()?.strip_suffix(".vmdk")?;
        let datastore = self.datastore_named(&directory.datastore).await.ok()?;
        let files = self.client.files(&datastore, &directory, &format!("{stem}*.vmdk")).await.ok()?;
        let own = [format!("{stem}.vmdk"), format!("{stem}-flat.vmdk")];
        Some(files.iter().filter(|file| own.contains(&file.name)).map(|file| file.size).sum())
    }

    /// Removes what lies where a copy is to be: half of one, which may not say its UUID. No VM holds it, and it lies in no other VM's
    /// directory; and no copy goes on any more that it may be.
    async fn remove_half_copy(&self, path: &str, nodes: &[&str], permit: &dyn Permit) -> Result<()> {
        let file = DiskFile { path, datacenter: &self.places.datacenter };
        match self.client.disk_uuid(file).await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(()),
            Err(error) if error.outcome() == Outcome::Denied => return Err(error.into()),
            _ => {}
        }
        self.copies_ended().await?;
        let half = DiskRef { uuid: Uuid::nil(), path: path.to_owned() };
        self.is_held_by_nobody(&half).await?;
        self.lies_beside_no_others(&half, nodes).await?;
        let look = || -> Looked<'_> { Box::pin(self.is_held_by_nobody(&half)) };
        match self.client.changes(&LastLook { permit, look: &look }).delete_disk(file).await {
            Err(error) if error.outcome() == Outcome::NotFound => Ok(()),
            removed => Ok(removed?),
        }
    }

    async fn is_held_by_nobody(&self, disk: &DiskRef) -> Result<()> {
        self.is_nobodys(disk).await?;
        self.is_no_others(disk).await
    }
}
