//! The VMs that hold a disk, among all VMs in the folders of VMs and templates. The file of a VM that is off has no
//! lock.

use vsphere::{MoRef, Outcome, Running, Traces, Unread};

use super::VcenterHypervisor;
use crate::hypervisor::{DiskRef, Error, Result, Vm};

/// The purpose of the search, which decides what blocks it.
#[derive(Clone, Copy)]
pub(super) enum Search<'a> {
    /// This VM, the holder, is to be shut down. No other VM may hold the disk, or a copy under its UUID, as a clone by
    /// vSphere Client does (govmomi#1682). For a VM that cannot be read, the file's lock decides when the disk moves.
    ShutDown(&'a MoRef),
    /// The file is attached to a VM, and its node is off. Another file under its UUID is a copy, and stays. VMs that
    /// cannot be read were checked before the node was shut down. After that, the file's lock decides.
    Move,
    /// The file is deleted for good.
    Remove,
}

/// Whether a VM that cannot be read holds a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    Perhaps,
}

/// The names of vCenter's tasks that create a VM. While one runs, the VM is incomplete and holds no disk that belonged
/// to another VM just before.
const MAKING: [&str; 4] =
    ["VirtualMachine.clone", "Folder.createVm", "ResourcePool.createVm", "ResourcePool.ImportVAppLRO"];

impl VcenterHypervisor {
    /// Refuses a VM if another VM holds one of its data disks, or a copy of one.
    pub(super) async fn holds_its_disks_alone(&self, vm: &Vm) -> Result<()> {
        let own = MoRef::vm(&vm.reference.id);
        for disk in vm.data_disks() {
            self.has_no_holder(&disk.reference, Search::ShutDown(&own)).await?;
        }
        Ok(())
    }

    /// Refuses a disk that a VM holds. The journal that names a disk is a file on a datastore: others may have written
    /// it.
    pub(super) async fn has_no_holder(&self, disk: &DiskRef, search: Search<'_>) -> Result<()> {
        let folders = self.places.folders.iter().map(|(folder, _)| folder).chain([&self.places.templates]);
        for folder in folders {
            let listed = self.client.vms_in(folder, false).await?;
            for vm in &listed.vms {
                match search {
                    Search::ShutDown(own) if vm.reference == *own => {}
                    Search::Move => leads_not(vm, disk)?,
                    Search::ShutDown(_) | Search::Remove => holds_not(vm, disk)?,
                }
            }
            for unread in listed.unread {
                self.is_not_held_by(unread, disk, search).await?;
            }
        }
        Ok(())
    }

    /// As [`Self::has_no_holder`], for one VM whose settings cannot be read, by the other properties that vCenter
    /// shows.
    async fn is_not_held_by(&self, unread: Unread, disk: &DiskRef, search: Search<'_>) -> Result<()> {
        let traces = match self.client.traces(&unread.reference).await {
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(()),
            traces => traces?,
        };
        // The datastore is looked up only if a VM may hold the disk.
        let lies = match disk.path.parse::<vsphere::DatastorePath>() {
            Ok(path) if !traces.datastores.is_empty() => self.datastore_named(&path.datastore).await.ok(),
            _ => None,
        };
        let is_own = matches!(search, Search::ShutDown(own) if unread.reference == *own);
        match (holds(&traces, disk, lies.as_ref(), search), search) {
            (Holds::No, _) => Ok(()),
            (Holds::Yes, _) if !is_own => Err(held(&unread.name, disk)),
            (Holds::Perhaps, Search::Move | Search::ShutDown(_)) if !is_own => {
                log::warn!("{}; whether it holds {} the lock on that file says", unread.error, disk.path);
                Ok(())
            }
            (Holds::Yes | Holds::Perhaps, _) => {
                let tasks: Vec<String> = traces.running.iter().map(ToString::to_string).collect();
                let remedy = match tasks.as_slice() {
                    [] => "see in vCenter why it cannot be read".to_owned(),
                    tasks => format!("it is being worked on ({}): wait for the end of that", tasks.join(", ")),
                };
                let words = format!("whether the VM {} holds the disk {} is unknown: {remedy}", unread.name, disk.path);
                Err(Error::from(unread.error).context(words))
            }
        }
    }
}

/// Whether a task creates a VM: until it ends, the VM is incomplete.
pub(super) fn makes(running: &[Running]) -> bool {
    running.iter().any(|task| MAKING.contains(&task.what.as_str()))
}

/// Whether a VM that cannot be read holds a disk on this datastore. Its files are those that vCenter knew last, and a
/// VM that is being created may attach a disk. Neither permits a deletion.
fn holds(traces: &Traces, disk: &DiskRef, lies: Option<&MoRef>, search: Search<'_>) -> Holds {
    let is_elsewhere = !traces.datastores.is_empty() && lies.is_some_and(|lies| !traces.datastores.contains(lies));
    if traces.files.contains(&disk.path) {
        Holds::Yes
    } else if matches!(search, Search::Remove) || !makes(&traces.running) && traces.files.is_empty() {
        if is_elsewhere { Holds::No } else { Holds::Perhaps }
    } else {
        Holds::No
    }
}

/// Refuses a disk that a VM holds, a snapshot of it, or a copy under its UUID.
pub(super) fn holds_not(vm: &vsphere::Vm, disk: &DiskRef) -> Result<()> {
    leads_not(vm, disk)?;
    match vm.devices.disk(&disk.uuid.to_string()) {
        None => Ok(()),
        Some(copy) => Err(Error::refused(format!(
            "{} holds {}, a copy of the disk {} under its UUID: detach it there, remove that VM, or move it to another folder",
            vm.name,
            copy.path.as_deref().unwrap_or(&copy.label),
            disk.path
        ))),
    }
}

/// Refuses a disk whose file, or a snapshot of it, belongs to a VM.
fn leads_not(vm: &vsphere::Vm, disk: &DiskRef) -> Result<()> {
    let leads = |path: &String| *path == disk.path;
    let by_path = vm.devices.disks.iter().any(|held| held.path.iter().chain(&held.parents).any(leads));
    if by_path { Err(held(&vm.name, disk)) } else { Ok(()) }
}

fn held(vm: &str, disk: &DiskRef) -> Error {
    Error::refused(format!("{vm} holds the disk {}: detach it there first", disk.path))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn unread_vm_holds_no_disk_on_other_datastores() {
        let disk = DiskRef { uuid: Uuid::from_u128(1), path: "[ds] cp1/data.vmdk".to_owned() };
        let [here, there] = ["datastore-1", "datastore-2"].map(|id| MoRef::new("Datastore", id));
        let task = |what: &str| Running {
            task: MoRef::new("Task", "task-1"),
            what: what.to_owned(),
            on: "template".to_owned(),
            by: String::new(),
        };
        let of = |datastores: &[&MoRef], files: &[&str], running: &[&str]| Traces {
            datastores: datastores.iter().map(|at| (*at).clone()).collect(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            settings: None,
            running: running.iter().map(|what| task(what)).collect(),
        };
        let own = MoRef::vm("vm-1");
        for (traces, expected, removed) in [
            (of(&[], &[], &[]), Holds::Perhaps, Holds::Perhaps),
            (of(&[&here], &[], &[]), Holds::Perhaps, Holds::Perhaps),
            (of(&[&here], &[], &["VirtualMachine.relocate"]), Holds::Perhaps, Holds::Perhaps),
            (of(&[&here], &[], &["VirtualMachine.clone"]), Holds::No, Holds::Perhaps),
            (of(&[&there], &[], &[]), Holds::No, Holds::No),
            (of(&[&here], &["[ds] other/other.vmx"], &[]), Holds::No, Holds::Perhaps),
            (of(&[&here], &["[ds] cp1/data.vmdk"], &[]), Holds::Yes, Holds::Yes),
        ] {
            assert_eq!(holds(&traces, &disk, Some(&here), Search::Move), expected, "{traces:?}");
            assert_eq!(holds(&traces, &disk, Some(&here), Search::ShutDown(&own)), expected, "{traces:?}");
            assert_eq!(holds(&traces, &disk, Some(&here), Search::Remove), removed, "{traces:?}");
        }
        let elsewhere = holds(&of(&[&there], &[], &[]), &disk, None, Search::Remove);
        assert_eq!(elsewhere, Holds::Perhaps, "where it lies is not known");
    }
}
