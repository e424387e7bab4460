//! Whose a directory on a datastore is, by the VMs whose settings are in it, and by its name.

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

/// Settings of VMs and of templates. They are asked for with all other files: what else than `*` a datastore's browser takes for a pattern
/// is not documented.
const SETTINGS: [&str; 2] = [".vmx", ".vmtx"];

/// Types of datastores on which a VM's directory is an object that is called by its UUID: vSAN and Virtual Volumes.
const OF_OBJECTS: [&str; 2] = ["vsan", "vvol"];

/// Whose a directory is, by the settings of VMs in it.
enum DirectoryOwner {
    /// VMs of the deployment alone.
    Own,
    /// There are none in it, or it is not there.
    Nobodys,
    /// Those in this file are no registered VM's, as far as the account sees: of a VM that somebody has removed from the inventory they
    /// stay. Beside them are none that are another VM's.
    Unregistered(DatastorePath),
    /// Those in this file are another VM's.
    Anothers(DatastorePath),
}

impl VcenterHypervisor {
    /// Refuses a disk that lies in another VM's directory, wherever in the inventory that is, among a storage driver's volumes, or in no
    /// directory. The journal that names a disk is a file on a datastore: whoever may write that one must not have us remove what he
    /// may not.
    pub(super) async fn is_in_no_others_directory(&self, disk: &DiskRef) -> Result<()> {
        if directory_of(disk)?.path.is_empty() {
            return Err(Error::refused(format!("{} lies in no directory, and so in none of a VM's", disk.path)));
        }
        self.lies_beside_no_others(disk, &[]).await
    }

    /// The same, but for a disk that lies in no directory: of VMs that were adopted some do. Beside what is no registered VM's it lies well
    /// where a VM of one of these nodes was: somebody has removed that from the inventory.
    pub(super) async fn lies_beside_no_others(&self, disk: &DiskRef, nodes: &[&str]) -> Result<()> {
        let directory = directory_of(disk)?;
        match self.whose(&directory, disk).await? {
            DirectoryOwner::Own | DirectoryOwner::Nobodys => Ok(()),
            DirectoryOwner::Unregistered(_) if is_of(&directory, nodes) => Ok(()),
            DirectoryOwner::Unregistered(vm) => Err(Error::refused(format!(
                "{} lies beside {vm}, which is registered with no VM that this account sees: register it again if it is the node's; do not \
                 delete its directory, the node's data disk lies in it",
                disk.path
            ))),
            DirectoryOwner::Anothers(vm) => Err(Error::refused(format!(
                "{} lies beside {vm}, which is another VM's: it stays. If it is a node's, have vCenter migrate its VM with this disk to \
                 another datastore, or remove the other VM if it has no use any more",
                disk.path
            ))),
        }
    }

    /// Whether a disk lies beside a VM of the deployment, or where one of these nodes' VMs was: what lies elsewhere a person has put there,
    /// or it is not the deployment's.
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

    /// Whose settings are that are none of a VM which is looked for: also those of the deployment that somebody has moved to a folder which is
    /// not searched. There nobody has looked yet whether it holds the disk.
    async fn of_settings(&self, settings: DatastorePath, disk: &DiskRef) -> Result<DirectoryOwner> {
        let Some(found) = self.client.vm_of_settings(&settings, &self.places.datacenter).await? else {
            return Ok(DirectoryOwner::Unregistered(settings));
        };
        let vm = match self.client.vm_with(&found, &stamp::READ).await {
            // It was removed from the inventory in between, or with all its files.
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(DirectoryOwner::Unregistered(settings)),
            vm => vm?,
        };
        if vm.is_template || !stamp::is_own(&vm.name, &vm.extra, self.deployment)? {
            return Ok(DirectoryOwner::Anothers(settings));
        }
        holds_not(&vm, disk)?;
        Ok(DirectoryOwner::Own)
    }

    /// Whether a directory is called as vSAN and vVols call a VM's, by a UUID, and has no other disk in it. By its name nobody knows whose
    /// it was; but the directory of a VM that is gone has no volumes in it.
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

    /// The datastore that paths name so.
    pub(super) async fn datastore_named(&self, name: &str) -> Result<MoRef> {
        if name == self.places.datastore.name {
            return Ok(self.places.datastore.datastore.clone());
        }
        datastore_of(&self.client, &self.places.datacenter_path, name).await.map_err(looking)
    }
}

/// The directory of a disk; that of the datastore's top is empty. Refused is what is among a storage driver's volumes, or may be.
fn directory_of(disk: &DiskRef) -> Result<DatastorePath> {
    let path = disk.path.parse::<DatastorePath>().map_err(|error| Error::refused(format!("{}: {error}", disk.path)))?;
    if is_volume(&path) {
        return Err(Error::refused(format!("{} is among the volumes of a storage driver: it stays", disk.path)));
    }
    let is_plain = !path.path.split('/').any(|name| name == "..");
    path.parent().filter(|_| is_plain).ok_or_else(|| Error::refused(format!("{} is no path of a disk", disk.path)))
}

/// Whether what is on a datastore of this type are objects.
pub(super) fn is_of_objects(kind: &str) -> bool {
    OF_OBJECTS.iter().any(|of_objects| kind.eq_ignore_ascii_case(of_objects))
}

/// Whether a directory at the top is called by a UUID: as it is on vSAN, behind `rfc4122.` or, with its digits alone, behind `naa.` on
/// vVols.
fn is_called_as_an_object(directory: &DatastorePath) -> bool {
    let name = directory.path.as_str();
    if let Some(digits) = name.strip_prefix("naa.") {
        return digits.len() == 32 && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    }
    let name = name.strip_prefix("rfc4122.").unwrap_or(name);
    name.len() == 36 && Uuid::parse_str(name).is_ok()
}

/// Whether no other disk than this one is among the files of its directory, nor what is kept beside a First Class Disk (`.vmfd`).
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
    fn volumes_are_known_however_their_path_is_written() {
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
    fn an_object_is_called_by_its_uuid() {
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
    fn a_disk_lies_alone_beside_its_own_files_and_what_is_no_disk() {
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
