//! Copies of data disks, each next to its disk: on the same datastore and in the same directory, as vSAN requires.

use std::time::Duration;

use uuid::Uuid;
use vsphere::{DatastorePath, DiskFile, Outcome};

use super::VcenterHypervisor;
use super::directory_owner::is_of_objects;
use super::holders::Search;
use super::trouble::{LastLook, Looked, after_it_began, not_now};
use crate::hypervisor::{DiskRef, Error, ErrorKind, Fence, Result};

/// How long a copy may take: a terabyte at 12 MiB/s. A copy that takes longer is in doubt.
const COPYING: Duration = Duration::from_secs(24 * 60 * 60);

/// The limit for a disk's descriptor in bytes. A descriptor has less than a kilobyte.
const LONGEST_DESCRIPTOR: usize = 64 << 10;
const SECTOR: u64 = 512;
const MEBIBYTE: u64 = 1 << 20;

impl VcenterHypervisor {
    /// Makes at most two requests: it removes a file at the copy's path, and copies the disk. The returned UUID is the
    /// one that vCenter then reports for the copy's file.
    pub(super) async fn copy_beside(
        &self,
        disk: &DiskRef,
        mark: &str,
        nodes: &[&str],
        permit: &dyn Fence,
    ) -> Result<DiskRef> {
        let path = disk.beside(mark);
        self.may_move(disk).await?;
        self.lies_beside_no_others(disk, nodes).await?;
        // After a removal it is unknown whether vCenter already reports the room as free.
        if !self.remove_half_copy(&path, nodes, permit).await? {
            self.has_room_for_a_copy(disk).await?;
        }
        let datacenter = &self.places.datacenter;
        let [from, to] = [&*disk.path, &*path].map(|path| DiskFile { path, datacenter });
        if let Err(error) = self.client.changes(&permit).within(COPYING).copy_disk(from, to).await {
            let error = Error::from(error);
            return Err(match error.kind {
                ErrorKind::Transient => self.with_size(error, disk).await,
                _ => error,
            });
        }
        let said = self.client.disk_uuid(to).await.map_err(after_it_began)?;
        let uuid = said.parse::<Uuid>().map_err(|error| after_it_began(Error::transient(error)))?;
        Ok(DiskRef { uuid, path })
    }

    /// Adds the size of a copy to the error, for the operator who has to make room.
    async fn with_size(&self, error: Error, disk: &DiskRef) -> Error {
        match self.provisioned_size(disk).await {
            Some(bytes) => error.context(format!("its provisioned size is {} MiB", bytes / MEBIBYTE)),
            None => error,
        }
    }

    /// Refuses a copy for now that would fill the datastore. A copy takes the disk's provisioned size, even if little
    /// of it is written. Three cases are not checked. On NFS the server decides, and mostly makes the copy thin. On
    /// object datastores the storage policy decides. And a disk may not report its size.
    async fn has_room_for_a_copy(&self, disk: &DiskRef) -> Result<()> {
        let Some(wanted) = self.provisioned_size(disk).await else { return Ok(()) };
        let Ok(path) = disk.path.parse::<DatastorePath>() else { return Ok(()) };
        let datastore = self.client.datastore(&self.datastore_named(&path.datastore).await?).await?;
        // `NFS` and `NFS41`.
        let is_thin = datastore.kind.get(..3).is_some_and(|kind| kind.eq_ignore_ascii_case("nfs"));
        if is_thin || is_of_objects(&datastore.kind) || datastore.free >= wanted {
            return Ok(());
        }
        Err(not_now(format!(
            "a copy takes {} MiB, the disk's provisioned size, and {} has {} MiB free",
            wanted / MEBIBYTE,
            datastore.name,
            datastore.free / MEBIBYTE
        )))
    }

    /// The provisioned size of a disk by its descriptor. `None` if that cannot be read.
    async fn provisioned_size(&self, disk: &DiskRef) -> Option<u64> {
        let path: DatastorePath = disk.path.parse().ok()?;
        let descriptor = self.client.read_file(&path, &self.places.datacenter_path, LONGEST_DESCRIPTOR).await.ok()?;
        size_of_extents(&String::from_utf8_lossy(&descriptor))
    }

    /// Removes a file at a copy's path: an incomplete copy, which may have no UUID. It first checks that no VM holds
    /// the file, that the file is not in another VM's directory, and that no copy is still running. Returns whether a
    /// file existed.
    async fn remove_half_copy(&self, path: &str, nodes: &[&str], permit: &dyn Fence) -> Result<bool> {
        let file = DiskFile { path, datacenter: &self.places.datacenter };
        match self.client.disk_uuid(file).await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(false),
            Err(error) if error.outcome() == Outcome::Denied => return Err(error.into()),
            _ => {}
        }
        self.copies_ended().await?;
        let half = DiskRef { uuid: Uuid::nil(), path: path.to_owned() };
        self.has_no_holder(&half, Search::Remove).await?;
        self.lies_beside_no_others(&half, nodes).await?;
        let look = || -> Looked<'_> { Box::pin(self.has_no_holder(&half, Search::Remove)) };
        match self.client.changes(&LastLook { permit, look: &look }).delete_disk(file).await {
            Err(error) if error.outcome() == Outcome::NotFound => Ok(true),
            removed => Ok(removed.map(|()| true)?),
        }
    }
}

/// The size of a disk by its descriptor ("Virtual Disk Format 5.0"): the sectors of its extents, each in a line such as
/// `RW 131072 VMFS "data-flat.vmdk"`. `None` if it names no extent.
fn size_of_extents(descriptor: &str) -> Option<u64> {
    let sectors = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace();
        let is_extent = ["RW", "RDONLY", "NOACCESS"].contains(&words.next()?);
        words.next().filter(|_| is_extent)?.parse().ok()
    };
    let all = descriptor.lines().filter_map(sectors).fold(0, u64::saturating_add);
    (all > 0).then(|| all.saturating_mul(SECTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_gives_the_size_by_its_extents() {
        let text = "# Disk DescriptorFile\nversion=1\n\n# Extent description\nRW 131072 VMFS \"a-flat.vmdk\"\nddb.uuid = \"60\"\n";
        assert_eq!(size_of_extents(text), Some(64 << 20));
        let two = "RW 2048 VMFS \"a-f001.vmdk\"\r\nRW 2048 VMFS \"a-f002.vmdk\"\r\n";
        assert_eq!(size_of_extents(two), Some(2 << 20));
        for none in ["", "RW", "RW many VMFS", "# RW 2048 VMFS", "KDMV\u{fffd}\u{1}"] {
            assert_eq!(size_of_extents(none), None, "{none}");
        }
    }
}
