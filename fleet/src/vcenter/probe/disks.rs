//! Rows about a data disk: its UUID, its way from one VM to another, copies of it, and names.

use std::time::{Duration, Instant};

use vsphere::{ConfigSpec, DiskFile};

use super::Probe;
use super::answer::{Failed, Tried, judged};
use crate::hypervisor::{DiskRef, Hypervisor as _};
use crate::vcenter::trouble::Asking;

/// For so long a disk is waited for that is locked though its VM is off, and so long between two tries.
const LOCKED: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(1);

impl Probe<'_> {
    fn disk(&self) -> Result<DiskRef, Failed> {
        self.disk.clone().ok_or_else(|| Failed::NotTried("no data disk was detached".to_owned()))
    }

    fn file<'d>(&'d self, path: &'d str) -> DiskFile<'d> {
        DiskFile { path, datacenter: &self.hypervisor.places.datacenter }
    }

    pub(super) async fn disk_uuid(&mut self) -> Tried {
        let vm = self.linked().await?;
        let shown = self.shown(&vm).await?;
        let disk = shown.data_disks().next().ok_or_else(|| Failed::NotTried("there is no data disk".to_owned()))?;
        let said = self.client.disk_uuid(self.file(&disk.reference.path)).await?;
        let is_same = said == disk.reference.uuid.to_string();
        judged(is_same, if is_same { "the same" } else { "another one" })
    }

    pub(super) async fn disk_detached(&mut self) -> Tried {
        let vm = self.linked().await?;
        let shown = self.shown(&vm).await?;
        let disk = shown.data_disks().next().ok_or_else(|| Failed::NotTried("there is no data disk".to_owned()))?;
        let disk = disk.reference.clone();
        self.note(|notes| notes.disks.push(disk.path.clone())).await?;
        self.hypervisor.detach(&shown, &disk, self.permit).await?;
        let stays = self.client.disk_uuid(self.file(&disk.path)).await.is_ok_and(|uuid| uuid == disk.uuid.to_string());
        self.disk = Some(disk);
        judged(stays, if stays { "its file stays, with its UUID" } else { "its file is not found" })
    }

    pub(super) async fn disk_copied(&mut self) -> Tried {
        let disk = self.disk()?;
        let copy = disk.beside("copy");
        self.note(|notes| notes.disks.push(copy.clone())).await?;
        self.client.changes(&Asking(self.permit)).copy_disk(self.file(&disk.path), self.file(&copy)).await?;
        let is_own = self.client.disk_uuid(self.file(&copy)).await? != disk.uuid.to_string();
        judged(is_own, if is_own { "a UUID of its own" } else { "the same UUID" })
    }

    /// The linked clone was powered off moments ago.
    pub(super) async fn disk_attached(&mut self) -> Tried {
        let (disk, begin) = (self.disk()?, Instant::now());
        let mut was_locked = false;
        loop {
            let full = self.full().await?;
            match self.hypervisor.attach(&self.shown(&full).await?, &disk, self.permit).await {
                Err(error) if is_locked(&error) && begin.elapsed() < LOCKED.min(self.setup.guest) => {
                    was_locked = true;
                    tokio::time::sleep(AGAIN.min(self.setup.rest)).await;
                }
                Err(error) if is_locked(&error) => return judged(false, "locked for as long as it was waited for"),
                attached => break attached?,
            }
        }
        let full = self.full().await?;
        let held = full.devices.disk(&disk.uuid.to_string());
        let is_same = held.is_some_and(|held| held.path.as_ref() == Some(&disk.path));
        let saw = match (was_locked, is_same) {
            (true, _) => format!("locked at first, attached after {} s", begin.elapsed().as_secs()),
            (_, true) => "attached at once, with the same path and UUID".to_owned(),
            (_, false) => "attached, with another path or UUID".to_owned(),
        };
        judged(is_same && !was_locked, saw)
    }

    pub(super) async fn renamed(&mut self) -> Tried {
        let before = self.full().await?;
        let spec = ConfigSpec::of(&before).name(&format!("{}-renamed", self.name));
        self.client.changes(&Asking(self.permit)).reconfigure(&before.reference, &spec).await?;
        let now = self.full().await?;
        let paths = |vm: &vsphere::Vm| -> Vec<String> {
            vm.devices.disks.iter().filter_map(|disk| disk.path.clone()).chain([vm.vmx_path.clone()]).collect()
        };
        let is_same = paths(&before) == paths(&now);
        judged(is_same, if is_same { "all paths stay" } else { "paths change" })
    }

    pub(super) async fn disk_outlives(&mut self) -> Tried {
        let disk = self.disk()?;
        let vm = self.linked().await?;
        self.hypervisor.destroy(&self.shown(&vm).await?, self.permit).await?;
        self.linked = None;
        let stays = self.client.disk_uuid(self.file(&disk.path)).await.is_ok_and(|uuid| uuid == disk.uuid.to_string());
        judged(stays, if stays { "it stays" } else { "it is gone" })
    }
}

fn is_locked(error: &crate::hypervisor::Error) -> bool {
    error
        .source
        .chain()
        .any(|cause| cause.downcast_ref::<vsphere::Error>().is_some_and(|error| error.is_fault("FileLocked")))
}
