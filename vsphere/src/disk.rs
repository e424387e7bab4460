//! Virtual disks by their files, attached to a VM or not.

use crate::changes::Changes;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::{COPY_VIRTUAL_DISK, DELETE_VIRTUAL_DISK, QUERY_VIRTUAL_DISK_UUID};
use crate::reference::MoRef;
use crate::soap::Element;

/// A disk's file.
#[derive(Clone, Copy, Debug)]
pub struct DiskFile<'a> {
    /// The path, such as `[datastore] vm/disk.vmdk`.
    pub path: &'a str,
    /// The data center of the datastore. Datastore names are unique in one data center only.
    pub datacenter: &'a MoRef,
}

/// A disk's UUID in lower case with dashes. vCenter writes it as `6000C29a-…` in a VM's devices, and as
/// `60 00 C2 9a …-…` in answers about files. `None` if the text does not have 32 hexadecimal digits.
pub fn normal_uuid(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).map(|c| c.to_ascii_lowercase()).collect();
    let is_uuid = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_uuid.then(|| [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}

impl Client {
    /// The UUID in a disk's file, in the form of [`normal_uuid`]. Fails if the file is locked.
    pub async fn disk_uuid(&self, disk: DiskFile<'_>) -> Result<String> {
        let manager = self.service().manager("virtualDiskManager")?;
        let arguments = vec![Element::text("name", disk.path), Element::reference("datacenter", disk.datacenter)];
        let response = self.call(QUERY_VIRTUAL_DISK_UUID, &manager, arguments).await?;
        let said = response.text_of("returnval").unwrap_or_default();
        normal_uuid(said).ok_or_else(|| {
            Error::unanswered(format!("asking for the UUID of {}", disk.path), format!("vCenter says {said:?}"))
        })
    }
}

impl Changes<'_> {
    /// Copies a disk that no VM writes. The copy must not exist before. It is preallocated: "If not specified, a
    /// preallocated format and busLogic adapter type is assumed" (reference of `CopyVirtualDisk_Task`). vCenter does
    /// not implement `destSpec` (govmomi, `DatastoreFileManager.Copy`).
    ///
    /// # Errors
    /// `FileAlreadyExists`, `FileLocked`, `NoDiskSpace`. A call in doubt may leave a part of a copy.
    pub async fn copy_disk(&self, from: DiskFile<'_>, to: DiskFile<'_>) -> Result<()> {
        let manager = self.client.service().manager("virtualDiskManager")?;
        let arguments = vec![
            Element::text("sourceName", from.path),
            Element::reference("sourceDatacenter", from.datacenter),
            Element::text("destName", to.path),
            Element::reference("destDatacenter", to.datacenter),
            Element::text("force", false),
        ];
        self.run(COPY_VIRTUAL_DISK, &manager, arguments).await.map(drop)
    }

    /// Deletes all files of a disk that is not attached to a VM.
    ///
    /// # Errors
    /// `FileNotFound`, `FileLocked`.
    pub async fn delete_disk(&self, disk: DiskFile<'_>) -> Result<()> {
        let manager = self.client.service().manager("virtualDiskManager")?;
        let arguments = vec![Element::text("name", disk.path), Element::reference("datacenter", disk.datacenter)];
        self.run(DELETE_VIRTUAL_DISK, &manager, arguments).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, failure, success};
    use crate::guard::Unguarded;
    use crate::treatment::Outcome;

    #[test]
    fn a_uuid_is_the_same_in_all_notations() {
        let normal = "6000c29a-1234-5678-9abc-def012345678";
        for text in [normal, "6000C29a-1234-5678-9ABC-DEF012345678", "60 00 C2 9a 12 34 56 78-9a bc de f0 12 34 56 78"]
        {
            assert_eq!(normal_uuid(text).as_deref(), Some(normal));
        }
        for wrong in ["", "6000c29a", &normal.replace('9', "g"), &format!("{normal}0")] {
            assert_eq!(normal_uuid(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn disk_files_are_copied_deleted_and_identified() {
        let (fake, client) = Fake::connected().await;
        let datacenter = MoRef::new("Datacenter", "datacenter-2");
        let [from, to] =
            ["[ds] a/data.vmdk", "[ds] b/data.vmdk"].map(|path| DiskFile { path, datacenter: &datacenter });
        fake.says("QueryVirtualDiskUuid", "<returnval>60 00 C2 9a 12 34 56 78-9a bc de f0 12 34 56 78</returnval>");
        assert_eq!(client.disk_uuid(from).await.unwrap(), "6000c29a-1234-5678-9abc-def012345678");
        fake.says("QueryVirtualDiskUuid", "<returnval></returnval>");
        assert_eq!(client.disk_uuid(from).await.unwrap_err().outcome(), Outcome::Transient);
        fake.replies(
            "QueryVirtualDiskUuid",
            [Reply::Fault("FileNotFound", "<file>[ds] a/data.vmdk</file>".to_owned())],
        );
        assert_eq!(client.disk_uuid(from).await.unwrap_err().outcome(), Outcome::NotFound);
        let changes = client.changes(&Unguarded);
        fake.runs("CopyVirtualDisk_Task", [success("")]);
        changes.copy_disk(from, to).await.unwrap();
        fake.runs("DeleteVirtualDisk_Task", [success(""), failure("FileLocked")]);
        changes.delete_disk(to).await.unwrap();
        assert_eq!(changes.delete_disk(to).await.unwrap_err().outcome(), Outcome::Transient);
        let asked = ["CopyVirtualDisk_Task", "DeleteVirtualDisk_Task"].map(|method| fake.asked(method)[0].call());
        insta::assert_snapshot!(asked.join("\n\n"));
    }
}
