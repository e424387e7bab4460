//! The owner of a directory on a datastore, by the VMs whose settings are in it, and by its name.

use uuid::Uuid;
use vsphere::{DatastorePath, DiskFile, File, MoRef, Outcome};

use super::VcenterHypervisor;
use super::datastore_directory::datastore_of;
use super::disks::is_volume;
use super::empty_directory::is_of;
use super::holders::holds_not;
use super::stamp;
use super::trouble::{looking, not_now};
use crate::hypervisor::{DiskRef, Error, Result};

/// Suffixes of the settings of VMs and templates. The directory is listed with `*`: other patterns of a datastore's
/// browser are not documented.
const SETTINGS: [&str; 2] = [".vmx", ".vmtx"];

/// Types of datastores on which a VM's directory is an object named by its UUID: vSAN and Virtual Volumes.
const OF_OBJECTS: [&str; 2] = ["vsan", "vvol"];

/// The owner of a directory, by the settings of VMs in it.
enum DirectoryOwner {
    /// Only VMs of the deployment.
    Own,
    /// It contains no settings, or does not exist.
    Nobodys,
    /// The account sees no registered VM with these settings. They stay if a user removes a VM from the inventory. No
    /// settings of another VM are in the directory.
    Unregistered(DatastorePath),
    /// These settings belong to another VM.
    Anothers(DatastorePath),
}

impl VcenterHypervisor {
    /// Refuses a disk in another VM's directory (wherever that VM is in the inventory), among a storage driver's
    /// volumes, or in no directory. The journal that names a disk is a file on a datastore. A user who may write that
    /// file must not make this program remove files beyond the user's own rights.
    pub(super) async fn is_in_no_others_directory(&self, disk: &DiskRef) -> Result<()> {
        if directory_of(disk)?.path.is_empty() {
            return Err(Error::refused(format!("{} is in no directory, so in no VM's directory", disk.path)));
        }
        self.lies_beside_no_others(disk, &[]).await
    }

    /// As [`Self::is_in_no_others_directory`], but a disk in no directory is allowed: some adopted VMs have such a
    /// disk. An unregistered VM's directory is allowed if it is that of a former VM of one of these nodes. A user has
    /// removed that VM from the inventory.
    pub(super) async fn lies_beside_no_others(&self, disk: &DiskRef, nodes: &[&str]) -> Result<()> {
        let directory = directory_of(disk)?;
        match self.whose(&directory, disk).await? {
            DirectoryOwner::Own | DirectoryOwner::Nobodys => Ok(()),
            DirectoryOwner::Unregistered(_) if is_of(&directory, nodes) => Ok(()),
            DirectoryOwner::Unregistered(vm) => Err(Error::refused(format!(
                "{} is in the directory of {vm}, which is registered with no VM that this account sees: register it again if \
                 it is the node's; do not delete its directory, it contains the node's data disk",
                disk.path
            ))),
            DirectoryOwner::Anothers(vm) => Err(Error::refused(format!(
                "{} is in the directory of {vm}, which is another VM's: it stays. If it is a node's, have vCenter migrate its VM \
                 with this disk to another datastore, or remove the other VM if it is no longer used",
                disk.path
            ))),
        }
    }

    /// Whether a disk is in the directory of a VM of the deployment, or of a former VM of one of these nodes. A disk
    /// elsewhere was put there by a user, or is not the deployment's.
    pub(super) async fn lies_beside_a_nodes_vm(&self, disk: &DiskRef, nodes: &[&str]) -> Result<bool> {
        let Ok(directory) = directory_of(disk) else { return Ok(false) };
        Ok(match self.whose(&directory, disk).await? {
            DirectoryOwner::Own => true,
            DirectoryOwner::Unregistered(_) | DirectoryOwner::Anothers(_) => false,
            DirectoryOwner::Nobodys => {
                is_of(&directory, nodes) || self.is_an_object_with_it_alone(&directory, disk).await?
            }
        })
    }

    async fn whose(&self, directory: &DatastorePath, disk: &DiskRef) -> Result<DirectoryOwner> {
        let datastore = self.datastore_named(&directory.datastore).await?;
        let mut settings = match self.client.files(&datastore, directory, "*").await {
            Err(error) if error.outcome() == Outcome::NotFound => Vec::new(),
            files => files?,
        };
        if !settings.iter().any(|file| directory.join(&file.name).to_string() == disk.path) {
            self.is_not_listed(disk).await?;
        }
        settings.retain(|file| SETTINGS.iter().any(|end| file.name.ends_with(end)));
        if settings.is_empty() {
            return Ok(DirectoryOwner::Nobodys);
        }
        let own: Vec<String> = self.all_own().await?.into_iter().map(|vm| vm.vmx_path).collect();
        let mut whose = DirectoryOwner::Own;
        for settings in settings.iter().map(|file| directory.join(&file.name)) {
            if own.contains(&settings.to_string()) {
                continue;
            }
            match self.of_settings(settings, disk).await? {
                DirectoryOwner::Own | DirectoryOwner::Nobodys => {}
                DirectoryOwner::Unregistered(settings) => whose = DirectoryOwner::Unregistered(settings),
                DirectoryOwner::Anothers(settings) => return Ok(DirectoryOwner::Anothers(settings)),
            }
        }
        Ok(whose)
    }

    /// Fails if a disk exists and the list of its directory lacks it: other files may be missing in that list too.
    async fn is_not_listed(&self, disk: &DiskRef) -> Result<()> {
        let file = DiskFile { path: &disk.path, datacenter: &self.places.datacenter };
        match self.client.disk_uuid(file).await {
            Err(error) if error.outcome() == Outcome::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(not_now(format!(
                "the disk {} exists, and vCenter does not list it: the other files of its directory are unknown",
                disk.path
            ))),
        }
    }

    /// The owner of settings that belong to no VM of the searched folders. It may be a VM of the deployment in a folder
    /// that is not searched. So this checks whether that VM holds the disk.
    async fn of_settings(&self, settings: DatastorePath, disk: &DiskRef) -> Result<DirectoryOwner> {
        let Some(found) = self.client.vm_of_settings(&settings, &self.places.datacenter).await? else {
            return Ok(DirectoryOwner::Unregistered(settings));
        };
        let vm = match self.client.vm_with(&found, &stamp::READ).await {
            // A user removed it from the inventory meanwhile, or with all its files.
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(DirectoryOwner::Unregistered(settings)),
            vm => vm?,
        };
        if vm.is_template || !stamp::is_own(&vm.name, &vm.extra, self.deployment)? {
            return Ok(DirectoryOwner::Anothers(settings));
        }
        holds_not(&vm, disk)?;
        Ok(DirectoryOwner::Own)
    }

    /// Whether a directory is named by a UUID, as vSAN and vVols name a VM's directory, and contains no other disk. The
    /// name does not tell the owner, but the directory of a VM that is gone contains no volumes.
    async fn is_an_object_with_it_alone(&self, directory: &DatastorePath, disk: &DiskRef) -> Result<bool> {
        if !is_called_as_an_object(directory) {
            return Ok(false);
        }
        let datastore = self.datastore_named(&directory.datastore).await?;
        let kind = self.client.datastore(&datastore).await?.kind;
        if !is_of_objects(&kind) {
            return Ok(false);
        }
        match self.client.files(&datastore, directory, "*").await {
            Err(error) if error.outcome() == Outcome::NotFound => Ok(false),
            files => Ok(lies_alone(&disk.path, &files?)),
        }
    }

    /// The datastore of this name in paths.
    pub(super) async fn datastore_named(&self, name: &str) -> Result<MoRef> {
        if name == self.places.datastore.name {
            return Ok(self.places.datastore.datastore.clone());
        }
        datastore_of(&self.client, &self.places.datacenter_path, name).await.map_err(looking)
    }
}

/// The directory of a disk. Empty if the disk is at the top of the datastore. Refuses a path that is, or may be, among
/// a storage driver's volumes.
fn directory_of(disk: &DiskRef) -> Result<DatastorePath> {
    let path = disk.path.parse::<DatastorePath>().map_err(|error| Error::refused(format!("{}: {error}", disk.path)))?;
    if is_volume(&path) {
        return Err(Error::refused(format!("{} is among the volumes of a storage driver: it stays", disk.path)));
    }
    let is_plain = !path.path.split('/').any(|name| name == "..");
    path.parent().filter(|_| is_plain).ok_or_else(|| Error::refused(format!("{} is no path of a disk", disk.path)))
}

/// Whether a datastore of this type stores objects.
pub(super) fn is_of_objects(kind: &str) -> bool {
    OF_OBJECTS.iter().any(|of_objects| kind.eq_ignore_ascii_case(of_objects))
}

/// Whether a directory at the top is named by a UUID. vSAN uses no prefix. vVols uses `rfc4122.`, or `naa.` and only
/// the digits.
fn is_called_as_an_object(directory: &DatastorePath) -> bool {
    let name = directory.path.as_str();
    if let Some(digits) = name.strip_prefix("naa.") {
        return digits.len() == 32 && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    }
    let name = name.strip_prefix("rfc4122.").unwrap_or(name);
    name.len() == 36 && Uuid::parse_str(name).is_ok()
}

/// Whether the directory contains no other disk, and no file that belongs to a First Class Disk (`.vmfd`).
fn lies_alone(disk: &str, files: &[File]) -> bool {
    let name = disk.rsplit_once('/').map_or(disk, |(_, name)| name);
    let stem = name.strip_suffix(".vmdk").unwrap_or(name);
    let is_its = |file: &str| file.strip_prefix(stem).is_some_and(|rest| rest == ".vmdk" || rest.starts_with('-'));
    files.iter().all(|file| match file.name.rsplit_once('.') {
        Some((_, "vmdk")) => is_its(&file.name),
        Some((_, "vmfd")) => false,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(path: &str) -> DiskRef {
        DiskRef { uuid: Uuid::from_u128(1), path: path.to_owned() }
    }

    #[test]
    fn volumes_are_recognized_in_each_path_notation() {
        for path in ["[ds] fcd/a.vmdk", "[ds] /fcd/a.vmdk", "[ds] ./kubevols/a.vmdk", "[ds] kubevols/b/a.vmdk"] {
            let error = directory_of(&disk(path)).unwrap_err();
            assert!(error.to_string().contains("among the volumes of a storage driver"), "{path}: {error}");
        }
        for path in ["[ds] x/../fcd/a.vmdk", "[ds] ", "ds/a.vmdk"] {
            assert!(directory_of(&disk(path)).is_err(), "{path}");
        }
        for (path, directory) in
            [("[ds] fcd.vmdk", ""), ("[ds] cp1/fcd/a.vmdk", "cp1/fcd"), ("[ds] fcd-1/a.vmdk", "fcd-1")]
        {
            assert_eq!(directory_of(&disk(path)).unwrap().path, directory);
        }
    }

    #[test]
    fn object_directory_is_named_by_its_uuid() {
        let is = |name: &str| is_called_as_an_object(&DatastorePath::new("vsan", name));
        for name in [
            "5f0a4c5e-1b2c-3d4e-5f60-0050569b1c2d",
            "rfc4122.5f0a4c5e-1b2c-3d4e-5f60-0050569b1c2d",
            "naa.600a0980383043595a2b506b67783041",
        ] {
            assert!(is(name), "{name}");
        }
        for name in
            ["", "payroll", "5f0a4c5e1b2c3d4e5f600050569b1c2d", "a/5f0a4c5e-1b2c-3d4e-5f60-0050569b1c2d", "naa.6"]
        {
            assert!(!is(name), "{name}");
        }
    }

    #[test]
    fn disk_is_alone_next_to_files_without_disks() {
        let alone = |names: &[&str]| {
            let file =
                |name: &&str| File { name: (*name).to_owned(), size: 1, is_directory: false, changed: String::new() };
            lies_alone("[vsan] 5f0a/cp1_1.vmdk", &names.iter().map(file).collect::<Vec<_>>())
        };
        assert!(alone(&["cp1_1.vmdk", "cp1_1-flat.vmdk", "cp1_1-ctk.vmdk", "vmware.log", ".sdd.sf"]));
        for other in ["cp1.vmdk", "cp1_10.vmdk", "0f1e.vmdk", "cp1_1.vmfd"] {
            assert!(!alone(&["cp1_1.vmdk", other]), "{other}");
        }
    }
}
