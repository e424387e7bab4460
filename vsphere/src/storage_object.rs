//! First Class Disks: virtual disks with an identifier in vCenter.
//!
//! Source: `VcenterVStorageObjectManager`, vSphere Web Services API reference. All methods require
//! `Datastore.FileManagement` on the datastore.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::{
    CREATE_DISK, DELETE_DISK_SNAPSHOT, DELETE_STORAGE_OBJECT, EXTEND_DISK, LIST_STORAGE_OBJECTS,
    RETRIEVE_STORAGE_OBJECT, SNAPSHOT_DISK,
};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::treatment::Outcome;

/// A First Class Disk (`VStorageObject`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageObject {
    /// The identifier, which stays when the file is moved.
    pub id: String,
    /// The name, which need not be unique.
    pub name: String,
    /// The file, such as `[datastore] fcd/0a1b.vmdk`.
    pub path: String,
    /// The size in MiB.
    pub mib: u64,
}

fn id(name: &str, id: &str) -> Element {
    Element::new(name).with([Element::text("id", id)])
}

/// The arguments of most methods.
fn named(object: &str, datastore: &MoRef, more: Option<Element>) -> Vec<Element> {
    [id("id", object), Element::reference("datastore", datastore)].into_iter().chain(more).collect()
}

fn read(object: &Element) -> Result<StorageObject> {
    let config = object.need("config")?;
    Ok(StorageObject {
        id: config.need("id")?.need_parsed("id")?,
        name: config.need_parsed("name")?,
        path: config.need("backing")?.need_parsed("filePath")?,
        mib: config.need_parsed("capacityInMB")?,
    })
}

impl Client {
    fn objects(&self) -> Result<MoRef> {
        self.service().manager("vStorageObjectManager")
    }

    /// A First Class Disk of a datastore. `NotFound` if the datastore's catalogue does not have the identifier.
    pub async fn storage_object(&self, object: &str, datastore: &MoRef) -> Result<StorageObject> {
        let found = self.call(RETRIEVE_STORAGE_OBJECT, &self.objects()?, named(object, datastore, None)).await?;
        read(found.need("returnval")?)
    }

    /// A First Class Disk of this name. Reads the disks of the datastore one by one, and skips those that vCenter cannot read.
    pub async fn storage_object_named(&self, name: &str, datastore: &MoRef) -> Result<Option<StorageObject>> {
        let of = vec![Element::reference("datastore", datastore)];
        let listed = self.call(LIST_STORAGE_OBJECTS, &self.objects()?, of).await?;
        for object in listed.all("returnval").filter_map(|one| one.text_of("id")) {
            match self.storage_object(object, datastore).await {
                Ok(object) if object.name == name => return Ok(Some(object)),
                Ok(_) => {}
                Err(error) if error.outcome() == Outcome::NotFound => {}
                Err(error) if error.fault().is_some() && error.outcome() != Outcome::Transient => {
                    log::info!("the First Class Disk {object} is skipped: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Changes<'_> {
    /// Creates a First Class Disk, blank and thin, which stays when a VM with it is destroyed. `mib` is its size.
    ///
    /// # Errors
    /// `NoDiskSpace`, `InvalidDatastore`. If it is in doubt the disk may exist: its name finds it.
    pub async fn create_storage_object(&self, name: &str, datastore: &MoRef, mib: u64) -> Result<StorageObject> {
        let backing = [Element::reference("datastore", datastore), Element::text("provisioningType", "thin")];
        let spec = Element::new("spec").with([
            Element::text("name", name),
            Element::text("keepAfterDeleteVm", true),
            Element::new("backingSpec").of("VslmCreateSpecDiskFileBackingSpec").with(backing),
            Element::text("capacityInMB", mib),
        ]);
        let made = self.run(CREATE_DISK, &self.client.objects()?, vec![spec]).await?;
        read(&made.ok_or_else(|| Error::in_doubt(format!("making the disk {name}"), "vCenter does not name it"))?)
    }

    /// Deletes a First Class Disk with its file. `InvalidState` while it is attached to a VM; `NotFound`.
    pub async fn delete_storage_object(&self, object: &str, datastore: &MoRef) -> Result<()> {
        self.run(DELETE_STORAGE_OBJECT, &self.client.objects()?, named(object, datastore, None)).await.map(drop)
    }

    /// Extends a First Class Disk to `mib` MiB. `InvalidState` if its VM does not permit it; `InvalidArgument` if it is
    /// larger.
    pub async fn extend_storage_object(&self, object: &str, datastore: &MoRef, mib: u64) -> Result<()> {
        let size = Some(Element::text("newCapacityInMB", mib));
        self.run(EXTEND_DISK, &self.client.objects()?, named(object, datastore, size)).await.map(drop)
    }

    /// Creates a snapshot of a First Class Disk, and deletes it. `InvalidState` if the disk allows no snapshot as it is
    /// attached now.
    pub async fn try_disk_snapshot(&self, object: &str, datastore: &MoRef) -> Result<()> {
        let (manager, words) = (self.client.objects()?, Some(Element::text("description", "deleted at once")));
        let made = self.run(SNAPSHOT_DISK, &manager, named(object, datastore, words)).await?;
        let made = made.as_ref().and_then(|made| made.text_of("id"));
        let unnamed = || Error::in_doubt(format!("making a snapshot of {object}"), "vCenter does not name it");
        let snapshot = Some(id("snapshotId", made.ok_or_else(unnamed)?));
        self.run(DELETE_DISK_SNAPSHOT, &manager, named(object, datastore, snapshot)).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, success};
    use crate::guard::Unguarded;
    use crate::treatment::Outcome;

    const OBJECT: &str = "<config><id><id>d-1</id></id><name>n</name><keepAfterDeleteVm>true</keepAfterDeleteVm><backing><filePath>[ds] \
                          fcd/d-1.vmdk</filePath></backing><capacityInMB>16</capacityInMB></config>";

    #[tokio::test]
    async fn search_by_name_skips_unreadable_disks() {
        let (fake, client) = Fake::connected().await;
        let datastore = MoRef::new("Datastore", "datastore-1");
        let listed = ["d-0", "d-1"].map(|id| format!("<returnval><id>{id}</id></returnval>")).concat();
        fake.says("ListVStorageObject", &listed);
        let mine = Reply::Response(format!("<returnval>{OBJECT}</returnval>"));
        fake.replies("RetrieveVStorageObject", [Reply::Fault("FileFault", String::new()), mine]);
        assert_eq!(client.storage_object_named("n", &datastore).await.unwrap().unwrap().id, "d-1");
    }

    #[tokio::test]
    async fn first_class_disks_are_created_used_and_deleted() {
        let (fake, client) = Fake::connected().await;
        let datastore = MoRef::new("Datastore", "datastore-1");
        let changes = client.changes(&Unguarded);
        let is =
            StorageObject { id: "d-1".to_owned(), name: "n".to_owned(), path: "[ds] fcd/d-1.vmdk".to_owned(), mib: 16 };
        fake.runs("CreateDisk_Task", [success(OBJECT)]);
        assert_eq!(changes.create_storage_object("n", &datastore, 16).await.unwrap(), is);
        fake.says("RetrieveVStorageObject", &format!("<returnval>{OBJECT}</returnval>"));
        assert_eq!(client.storage_object("d-1", &datastore).await.unwrap(), is);
        fake.replies("RetrieveVStorageObject", [Reply::Fault("NotFound", String::new())]);
        assert_eq!(client.storage_object("d-1", &datastore).await.unwrap_err().outcome(), Outcome::NotFound);
        fake.runs("DeleteSnapshot_Task", [success("")]);
        fake.runs("VStorageObjectCreateSnapshot_Task", [success("<id>s-1</id>"), success("")]);
        changes.try_disk_snapshot("d-1", &datastore).await.unwrap();
        for method in ["ExtendDisk_Task", "DeleteVStorageObject_Task"] {
            fake.runs(method, [success("")]);
        }
        changes.extend_storage_object("d-1", &datastore, 32).await.unwrap();
        changes.delete_storage_object("d-1", &datastore).await.unwrap();
        let asked =
            ["CreateDisk_Task", "ExtendDisk_Task", "DeleteSnapshot_Task"].map(|method| fake.asked(method)[0].call());
        insta::assert_snapshot!(asked.join("\n\n"));
    }
}
