//! What a probe has made, and its removal. VMs are known by their stamp, templates by the deployment's notes of images, and disks that no
//! VM holds by a note that is written before they are made or detached.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use vsphere::{Client, ConfigSpec, DatastorePath, DiskFile, MoRef, Outcome, Power};

use super::{Probe, Setup};
use crate::hypervisor::{DiskRef, Error, Hypervisor as _, Kind, Result, VmRef};
use crate::vcenter::datastore_directory::DatastoreDirectory;
use crate::vcenter::stamp::GOING;
use crate::vcenter::trouble::{Asking, LastLook, Looked, changed, looking};

/// The file of the notes, and its greatest size in bytes.
const NOTES: (&str, usize) = ("made.json", 64 << 10);

/// Disks that no VM may hold while they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notes {
    /// The paths of data disks, and of copies of one. Their files are named after the probe.
    #[serde(default)]
    pub(super) disks: Vec<String>,
    /// Whether a First Class Disk of the probe's name may exist.
    #[serde(default)]
    pub(super) has_object: bool,
}

/// The notes that an earlier probe has left.
pub(super) async fn noted(directory: &DatastoreDirectory) -> Result<Notes> {
    let text = directory.read(NOTES.0, NOTES.1).await?;
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    Ok(read
        .map_err(|error| Error::refused(format!("{} in {directory} cannot be read: {error}", NOTES.0)))?
        .unwrap_or_default())
}

/// The directories that are made for the probe, the deepest first.
pub(super) async fn missing(
    directory: &DatastoreDirectory,
    client: &Client,
    setup: &Setup,
) -> Result<Vec<DatastorePath>> {
    let (mut missing, mut path, mut here) = (Vec::new(), setup.directory.clone(), directory.clone());
    while !path.path.is_empty() && !here.exists().await? {
        missing.push(path.clone());
        let Some(above) = path.parent() else { break };
        here =
            DatastoreDirectory::find(client.clone(), &setup.site.datacenter, above.clone()).await.map_err(looking)?;
        path = above;
    }
    Ok(missing)
}

/// Removes the probe's directory, and above it the directories that were made for it and are empty.
pub(super) async fn remove_directories(probe: &Probe<'_>, made: Vec<DatastorePath>) -> Result<()> {
    let (datacenter, asking) = (&probe.hypervisor.places.datacenter, Asking(probe.permit));
    let changes = probe.client.changes(&asking);
    changes.delete_file(&probe.setup.directory, datacenter).await?;
    // The hold went with the directory: from here on nothing is asked of it.
    let changes = probe.client.changes(&vsphere::Unguarded);
    for path in made.iter().filter(|path| **path != probe.setup.directory) {
        if !probe.client.files(probe.directory.datastore().0, path, "*").await?.is_empty() {
            break;
        }
        changes.delete_file(path, datacenter).await?;
    }
    Ok(())
}

impl Probe<'_> {
    /// Writes the notes: they are kept when this returns.
    pub(super) async fn note(&mut self, change: impl FnOnce(&mut Notes)) -> Result<()> {
        let mut notes = self.notes.clone();
        change(&mut notes);
        if notes != self.notes {
            let text = serde_json::to_string(&notes).map_err(Error::refused)?;
            self.directory.write(NOTES.0, &text, &Asking(self.permit)).await?;
            self.notes = notes;
        }
        Ok(())
    }

    /// Removes all that is there of this folder's probes. What cannot be removed is named, with the reason.
    ///
    /// # Errors
    /// Another probe has taken over.
    pub(super) async fn remove_all(&mut self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let mut keep = |what: &str, result: Result<()>| match result {
            Err(error) if error.kind == Kind::Fenced => Err(error),
            Err(error) => {
                left.push(format!("{what}: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        keep("tasks that go on", self.hypervisor.settle(self.permit).await)?;
        match self.hypervisor.all_own().await {
            Ok(own) => {
                for vm in own {
                    keep(&format!("the VM {}", vm.name), self.remove_vm(&vm).await)?;
                }
            }
            Err(error) => keep("VMs of the probe", Err(error))?,
        }
        for disk in self.notes.disks.clone() {
            keep(&format!("the disk {disk}"), self.remove_noted(&disk).await)?;
        }
        keep("the First Class Disk", self.remove_object().await)?;
        keep("a template that was laid half", self.hypervisor.tidy("", self.permit).await)?;
        keep("templates", self.remove_templates().await)?;
        Ok(left)
    }

    /// Destroys a VM with its own disks. First it detaches First Class Disks, and disks that are not the probe's.
    async fn remove_vm(&self, vm: &vsphere::Vm) -> Result<()> {
        let (asking, client) = (Asking(self.permit), self.client);
        let changes = client.changes(&asking);
        if vm.power != Power::Off {
            changes.power_off(&vm.reference).await?;
        }
        let now = client.vm(&vm.reference).await?;
        if let Some(cluster) = self.hypervisor.cluster_of(&now).await?
            && client.override_of(&cluster, &now.reference).await.is_ok_and(|settings| settings.is_some())
        {
            changes.remove_override(&cluster, &now.reference).await?;
        }
        let others = now.devices.disks.iter().filter(|disk| disk.first_class.is_some() || !self.is_own(disk));
        let spec = others.fold(ConfigSpec::of(&now).extra(GOING, "yes"), |spec, disk| spec.detach(disk));
        changes.reconfigure(&now.reference, &spec).await?;
        let look = || -> Looked<'_> {
            Box::pin(async move {
                let uuid = vm.bios_uuid.parse::<Uuid>().map_err(Error::transient)?;
                let now = self.hypervisor.named(&VmRef { uuid, id: vm.reference.id.clone() }).await?;
                let is_stamped = self.hypervisor.all_own().await?.iter().any(|own| own.reference == now.reference);
                if is_stamped && now.power == Power::Off && now.devices.disks.iter().all(|disk| self.is_own(disk)) {
                    return Ok(());
                }
                Err(changed(format!("{} is not as it was seen", now.name)))
            })
        };
        Ok(client.changes(&LastLook { permit: self.permit, look: &look }).destroy(&vm.reference).await?)
    }

    /// Whether a disk that a VM of the probe holds was made with one of them: vCenter names its file after the VM. Directories have names
    /// of vSAN's own.
    fn is_own(&self, disk: &vsphere::Disk) -> bool {
        let file = disk.path.as_deref().and_then(|path| path.rsplit(['/', ' ']).next());
        disk.first_class.is_none() && file.is_some_and(|file| file.starts_with(&self.name))
    }

    /// Removes a disk that no VM holds.
    async fn remove_noted(&mut self, path: &str) -> Result<()> {
        let datacenter = self.hypervisor.places.datacenter.clone();
        let file = DiskFile { path, datacenter: &datacenter };
        match self.client.disk_uuid(file).await {
            Ok(uuid) => {
                let uuid = uuid.parse::<Uuid>().map_err(Error::transient)?;
                self.hypervisor.is_free_and_there(&DiskRef { uuid, path: path.to_owned() }).await?;
                self.client.changes(&Asking(self.permit)).delete_disk(file).await?;
            }
            Err(error) if error.outcome() == Outcome::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.note(|notes| notes.disks.retain(|noted| noted != path)).await
    }

    async fn remove_object(&mut self) -> Result<()> {
        if !self.notes.has_object {
            return Ok(());
        }
        let datastore = self.datastore().clone();
        let ids = match self.object.take() {
            Some(object) => vec![object.id],
            None => self.client.storage_objects(&datastore).await?,
        };
        for id in ids {
            match self.client.storage_object(&id, &datastore).await {
                Ok(object) if object.name == self.name => {
                    self.client.changes(&Asking(self.permit)).delete_storage_object(&id, &datastore).await?;
                }
                Ok(_) => {}
                Err(error) if error.outcome() == Outcome::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.note(|notes| notes.has_object = false).await
    }

    async fn remove_templates(&self) -> Result<()> {
        let folder = &self.hypervisor.places.templates;
        for note in self.hypervisor.laid.all().await? {
            let Some(seal) = &note.seal else { return Err(changed(format!("{} was laid half, and stays", note.name))) };
            let (note, template) = (&note, &MoRef::vm(&seal.reference));
            match self.client.vm(template).await {
                Err(error) if error.outcome() == Outcome::NotFound => {
                    self.hypervisor.laid.forget(note, self.permit).await?;
                    continue;
                }
                seen => seen?,
            };
            let look = || -> Looked<'_> {
                Box::pin(async move {
                    let now = self.client.vm(template).await?;
                    let is_it = now.name == note.name && now.bios_uuid == note.uuid.to_string();
                    if is_it && now.is_template && now.folder.as_ref() == Some(folder) {
                        return Ok(());
                    }
                    Err(changed(format!("{} is not the template that was laid", now.name)))
                })
            };
            self.client.changes(&LastLook { permit: self.permit, look: &look }).destroy(template).await?;
            self.hypervisor.laid.forget(note, self.permit).await?;
        }
        Ok(())
    }
}
