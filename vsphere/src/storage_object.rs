//! First Class Disks: virtual disks that vCenter keeps by an identifier, whichever VM holds them.
//!
//! Source: `VcenterVStorageObjectManager`, and `AttachDisk_Task` and `DetachDisk_Task` of `VirtualMachine`, vSphere Web Services API
//! reference. All need `Datastore.FileManagement` on the datastore; those of a VM need `VirtualMachine.Config.AddExistingDisk` or
//! `RemoveDisk` on it too.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::{
    ATTACH_DISK, CREATE_DISK, DELETE_DISK_SNAPSHOT, DELETE_STORAGE_OBJECT, DETACH_DISK, EXTEND_DISK,
    LIST_STORAGE_OBJECTS, RETRIEVE_STORAGE_OBJECT, SNAPSHOT_DISK,
};
use crate::reference::MoRef;
use crate::soap::Element;
use crate::vm::Controller;

/// A First Class Disk (`VStorageObject`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageObject {
    /// Its identifier, which its path does not change.
    pub id: String,
    /// Its name, which need not be unique.
    pub name: String,
    /// Its file, such as `[datastore] fcd/0a1b.vmdk`.
    pub path: String,
    /// Its size in MiB.
    pub mib: u64,
    /// Whether it stays when a VM that holds it is destroyed.
    pub stays: bool,
}

/// A First Class Disk that is to be made, blank and thin.
#[derive(Clone, Copy, Debug)]
pub struct NewStorageObject<'a> {
    /// Its name.
    pub name: &'a str,
    /// The datastore that it is put onto.
    pub datastore: &'a MoRef,
    /// Its size in MiB.
    pub mib: u64,
}

fn id(name: &str, id: &str) -> Element {
    Element::new(name).with([Element::text("id", id)])
}

/// What most methods begin with.
fn named(object: &str, datastore: &MoRef) -> Vec<Element> {
    vec![id("id", object), Element::reference("datastore", datastore)]
}

fn read(object: &Element) -> Result<StorageObject> {
    let config = object.need("config")?;
    Ok(StorageObject {
        id: config.need("id")?.need_parsed("id")?,
        name: config.need_parsed("name")?,
        path: config.need("backing")?.need_parsed("filePath")?,
        mib: config.need_parsed("capacityInMB")?,
        stays: config.flag("keepAfterDeleteVm"),
    })
}

impl Client {
    /// A First Class Disk of a datastore.
    ///
    /// # Errors
    /// `NotFound` when the datastore's catalogue has none of this identifier.
    pub async fn storage_object(&self, object: &str, datastore: &MoRef) -> Result<StorageObject> {
        let manager = self.service().manager("vStorageObjectManager")?;
        let found = self.call(RETRIEVE_STORAGE_OBJECT, &manager, named(object, datastore)).await?;
        read(found.need("returnval")?)
    }

    /// The identifiers of all First Class Disks of a datastore.
    ///
    /// # Errors
    /// When the catalogue cannot be read.
    pub async fn storage_objects(&self, datastore: &MoRef) -> Result<Vec<String>> {
        let manager = self.service().manager("vStorageObjectManager")?;
        let of = vec![Element::reference("datastore", datastore)];
        let found = self.call(LIST_STORAGE_OBJECTS, &manager, of).await?;
        Ok(found.all("returnval").filter_map(|one| one.text_of("id")).map(str::to_owned).collect())
    }
}

impl Changes<'_> {
    /// Makes a First Class Disk that stays when a VM that holds it is destroyed.
    ///
    /// # Errors
    /// `NoDiskSpace`, `InvalidDatastore`. If it is in doubt the disk may exist: its name finds it.
    pub async fn create_storage_object(&self, new: &NewStorageObject<'_>) -> Result<StorageObject> {
        let manager = self.client.service().manager("vStorageObjectManager")?;
        let backing = [Element::reference("datastore", new.datastore), Element::text("provisioningType", "thin")];
        let spec = Element::new("spec").with([
            Element::text("name", new.name),
            Element::text("keepAfterDeleteVm", true),
            Element::new("backingSpec").of("VslmCreateSpecDiskFileBackingSpec").with(backing),
            Element::text("capacityInMB", new.mib),
        ]);
        let made = self.run(CREATE_DISK, &manager, vec![spec]).await?;
        let unnamed = || Error::in_doubt(format!("making the disk {}", new.name), "vCenter does not name it");
        read(&made.ok_or_else(unnamed)?)
    }

    /// Deletes a First Class Disk that no VM holds, with its file.
    ///
    /// # Errors
    /// `InvalidState` while a VM holds it; `NotFound`.
    pub async fn delete_storage_object(&self, object: &str, datastore: &MoRef) -> Result<()> {
        let manager = self.client.service().manager("vStorageObjectManager")?;
        self.run(DELETE_STORAGE_OBJECT, &manager, named(object, datastore)).await.map(drop)
    }

    /// Makes a First Class Disk larger, to so many MiB.
    ///
    /// # Errors
    /// `InvalidState` when its VM does not permit it; `InvalidArgument` when it is larger.
    pub async fn extend_storage_object(&self, object: &str, datastore: &MoRef, mib: u64) -> Result<()> {
        let manager = self.client.service().manager("vStorageObjectManager")?;
        let mut arguments = named(object, datastore);
        arguments.push(Element::text("newCapacityInMB", mib));
        self.run(EXTEND_DISK, &manager, arguments).await.map(drop)
    }

    /// Makes a snapshot of a First Class Disk; returns its identifier.
    ///
    /// # Errors
    /// `InvalidState` when the disk permits none, as it is attached now.
    pub async fn snapshot_storage_object(&self, object: &str, datastore: &MoRef, words: &str) -> Result<String> {
        let manager = self.client.service().manager("vStorageObjectManager")?;
        let mut arguments = named(object, datastore);
        arguments.push(Element::text("description", words));
        let made = self.run(SNAPSHOT_DISK, &manager, arguments).await?;
        let made = made.and_then(|made| made.text_of("id").map(str::to_owned));
        made.ok_or_else(|| Error::in_doubt(format!("making a snapshot of {object}"), "vCenter does not name it"))
    }

    /// Deletes a snapshot of a First Class Disk.
    ///
    /// # Errors
    /// `NotFound`, `InvalidState`.
    pub async fn delete_disk_snapshot(&self, object: &str, datastore: &MoRef, snapshot: &str) -> Result<()> {
        let manager = self.client.service().manager("vStorageObjectManager")?;
        let mut arguments = named(object, datastore);
        arguments.push(id("snapshotId", snapshot));
        self.run(DELETE_DISK_SNAPSHOT, &manager, arguments).await.map(drop)
    }

    /// Attaches a First Class Disk by its identifier. vCenter chooses its unit and its mode.
    ///
    /// # Errors
    /// `FileLocked` when another VM holds it and runs; `MissingController`.
    pub async fn attach_storage_object(
        &self,
        vm: &MoRef,
        object: &str,
        datastore: &MoRef,
        controller: &Controller,
    ) -> Result<()> {
        let on = [Element::reference("datastore", datastore), Element::text("controllerKey", controller.key)];
        let arguments = [id("diskId", object)].into_iter().chain(on).collect();
        self.run(ATTACH_DISK, vm, arguments).await.map(drop)
    }

    /// Detaches a First Class Disk by its identifier.
    ///
    /// # Errors
    /// `NotFound` when the VM does not hold it.
    pub async fn detach_storage_object(&self, vm: &MoRef, object: &str) -> Result<()> {
        self.run(DETACH_DISK, vm, vec![id("diskId", object)]).await.map(drop)
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
    async fn a_first_class_disk_is_made_used_and_deleted_by_its_identifier() {
        let fake = Fake::start().await;
        let client = fake.client().await;
        let (datastore, vm) = (MoRef::new("Datastore", "datastore-1"), MoRef::vm("vm-1"));
        let changes = client.changes(&Unguarded);
        let is = StorageObject {
            id: "d-1".to_owned(),
            name: "n".to_owned(),
            path: "[ds] fcd/d-1.vmdk".to_owned(),
            mib: 16,
            stays: true,
        };
        fake.runs("CreateDisk_Task", [success(OBJECT)]);
        let new = NewStorageObject { name: "n", datastore: &datastore, mib: 16 };
        assert_eq!(changes.create_storage_object(&new).await.unwrap(), is);
        fake.says("RetrieveVStorageObject", &format!("<returnval>{OBJECT}</returnval>"));
        assert_eq!(client.storage_object("d-1", &datastore).await.unwrap(), is);
        fake.replies("RetrieveVStorageObject", [Reply::Fault("NotFound", String::new())]);
        assert_eq!(client.storage_object("d-1", &datastore).await.unwrap_err().outcome(), Outcome::NotFound);
        fake.runs("VStorageObjectCreateSnapshot_Task", [success("<id>s-1</id>")]);
        assert_eq!(changes.snapshot_storage_object("d-1", &datastore, "w").await.unwrap(), "s-1");
        for method in ["DeleteSnapshot_Task", "ExtendDisk_Task", "DetachDisk_Task", "DeleteVStorageObject_Task"] {
            fake.runs(method, [success("")]);
        }
        changes.delete_disk_snapshot("d-1", &datastore, "s-1").await.unwrap();
        changes.extend_storage_object("d-1", &datastore, 32).await.unwrap();
        changes.detach_storage_object(&vm, "d-1").await.unwrap();
        changes.delete_storage_object("d-1", &datastore).await.unwrap();
        let asked = ["CreateDisk_Task", "ExtendDisk_Task", "DeleteSnapshot_Task", "DetachDisk_Task"]
            .map(|method| fake.asked(method)[0].call());
        insta::assert_snapshot!(asked.join("\n\n"));
    }
}
