//! Prepares a blank disk as a data disk: record, partitions, file system, identity, in this order. Each step may be
//! interrupted and repeated. The record in slot A says that the appliance made the content and that the disk has never
//! had data. The file system is mounted only after the identity is written.

use std::fs::File;
use std::ops::Range;

use contract::codes;
use contract::finding::Finding;
use uuid::Uuid;

use super::blank;
use super::device::{self, Disk};
use super::examine::{DataDisk, MINIMUM_SIZE};
use super::identity::{DiskState, Identity, LocalVolumes, MachineId};
use super::layout;
use super::resume::may_resume;
use super::slots::{self, Preparation};
use crate::host::command::{Command, LONG, Runner};
use crate::host::platform::Platform;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    disk: Disk,
    begun: Option<Preparation>,
}

impl DataDisk {
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Blank { disk } => Some(Target { disk: disk.clone(), begun: None }),
            Self::Interrupted { disk, preparation } => {
                Some(Target { disk: disk.clone(), begun: Some(preparation.clone()) })
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub cluster: String,
    /// The node's name, which is also its host name and its etcd member's.
    pub node: String,
    pub image_version: String,
    pub machine_id: MachineId,
    /// Set if the disk is for a worker's local volumes and nothing else.
    pub local_volumes: Option<LocalVolumes>,
}

/// After an error, completed steps remain. The disk is then interrupted, or the node's own once an identity is
/// complete.
pub fn prepare(
    target: &Target,
    owner: &Owner,
    platform: &Platform,
    runner: &dyn Runner,
) -> Result<(Disk, Identity), Finding> {
    let disk = &target.disk;
    usable(disk)?;
    let preparation = begin(target, platform, runner)?;
    let data = partition(disk, &preparation, runner)?;
    format(disk, &preparation, &data, platform, runner)?;
    let identity = hand_over(disk, &preparation, owner)?;
    Ok((disk.clone(), identity))
}

fn failed(disk: &Disk, attempt: &str, error: impl std::fmt::Display) -> Finding {
    codes::DISK_FAILED.finding(
        disk.path.display().to_string(),
        format!("{attempt}: {error}"),
        "Check the storage behind the disk, then power the VM off and on: the preparation goes on where it stopped",
    )
}

fn usable(disk: &Disk) -> Result<(), Finding> {
    if disk.size < MINIMUM_SIZE {
        return Err(failed(disk, "preparing it", format!("it has only {} MiB", disk.size >> 20)));
    }
    match device::is_in_use(&disk.path) {
        Ok(false) => Ok(()),
        Ok(true) => Err(failed(disk, "preparing it", "something on this host has it in use")),
        Err(error) => Err(failed(disk, "opening it", error)),
    }
}

/// Records that the preparation begins. The blank proof is repeated, because time may have passed since the
/// examination.
fn begin(target: &Target, platform: &Platform, runner: &dyn Runner) -> Result<Preparation, Finding> {
    let disk = &target.disk;
    let own = platform.bios_uuid();
    if let Some(preparation) = &target.begun {
        return match may_resume(disk, preparation, own, runner) {
            Ok(Ok(())) => Ok(preparation.clone()),
            Ok(Err(reason)) => Err(failed(disk, "resuming its preparation", reason)),
            Err(error) => Err(failed(disk, "reading it", error)),
        };
    }
    let content = File::open(&disk.path).and_then(|file| blank::first_content(&file, 0, disk.size));
    if let Some(place) = content.map_err(|error| failed(disk, "reading it", error))? {
        return Err(failed(disk, "preparing it", format!("it is no longer blank, at byte {place}")));
    }
    let preparation = Preparation { disk: Uuid::new_v4(), data: Uuid::new_v4(), holder: own };
    slots::write_preparation(&disk.path, &preparation)
        .map_err(|error| failed(disk, "writing the preparation record", error))?;
    Ok(preparation)
}

fn partition(disk: &Disk, preparation: &Preparation, runner: &dyn Runner) -> Result<Range<u64>, Finding> {
    if let Ok(data) = layout::check_table(&disk.path, preparation.disk, disk.size, runner) {
        return Ok(data);
    }
    layout::write_table(&disk.path, preparation.disk, disk.size, disk.sector, runner)
        .map_err(|error| failed(disk, "writing its partition table", error))?;
    File::open(&disk.path)
        .and_then(|file| file.sync_all())
        .map_err(|error| failed(disk, "flushing its partition table", error))?;
    layout::check_table(&disk.path, preparation.disk, disk.size, runner)
        .map_err(|error| failed(disk, "checking its partition table", error))
}

/// Creates the file system, even if one exists: it is never mounted before the identity is written.
fn format(
    disk: &Disk,
    preparation: &Preparation,
    data: &Range<u64>,
    platform: &Platform,
    runner: &dyn Runner,
) -> Result<(), Finding> {
    let node = device::partition(&disk.path, layout::DATA_NUMBER, data, platform, runner)
        .map_err(|error| failed(disk, "reaching its data partition", format!("{error:#}")))?;
    let uuid = preparation.data.to_string();
    let options = ["-q", "-F", "-L", "kaas-data", "-m", "1", "-U", &uuid];
    runner
        .run(&Command::new("mkfs.ext4").args(options).arg(&node).within(LONG))
        .map_err(|error| failed(disk, "making its file system", error))?;
    File::open(&node).and_then(|file| file.sync_all()).map_err(|error| failed(disk, "flushing its file system", error))
}

/// Writes the identity: first into slot B, then over the record in slot A.
fn hand_over(disk: &Disk, preparation: &Preparation, owner: &Owner) -> Result<Identity, Finding> {
    let identity = Identity {
        disk: preparation.disk,
        cluster_id: None,
        cluster: owner.cluster.clone(),
        node: owner.node.clone(),
        member: owner.node.clone(),
        image_version: owner.image_version.clone(),
        generation: 1,
        holder: preparation.holder,
        machine_id: owner.machine_id,
        host_name: owner.node.clone(),
        state: DiskState::Unformed,
        publisher: None,
        swap: None,
        local_volumes: owner.local_volumes.clone(),
    };
    for _ in 0..2 {
        slots::write(&disk.path, &identity).map_err(|error| failed(disk, "writing its identity", error))?;
    }
    Ok(identity)
}

#[cfg(test)]
mod tests;
