//! Finds the disk for a worker's local volumes, if the worker has one. Changes nothing.
//!
//! Such a disk belongs to a node of a cluster, in any VM: volumes are bound to their node's name. A VM that the cluster
//! has admitted under that name takes it, and all others refuse it. A blank disk is taken only before the worker joins,
//! because a disk that a running worker receives may be for pods.

use contract::bios_uuid::BiosUuid;
use contract::codes;
use contract::finding::{Finding, Findings};
use uuid::Uuid;

use super::device::Disk;
use super::examine::{
    self, Choice, Content, DataDisk, Disks, Examination, choose, is_trouble, left_alone, not_empty, of_no_use,
};
use super::identity::{DiskState, Identity, LocalVolumes};
use super::refused::{beside_worker, of_worker};
use super::slots::Slots;
use crate::host::platform::Platform;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesOwner {
    /// The hash of the public key of its cluster's CA.
    pub ca_hash: String,
    pub node: String,
    pub expected: Expected,
}

/// The disk for local volumes that a worker expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The worker has not joined yet, or had decided on a disk before that. A blank disk is taken.
    Any,
    /// The worker has joined without a disk. A blank disk is not used.
    Nothing,
    /// The worker's own disk, with this GPT disk GUID. No other may be used in its place.
    Disk(Uuid),
}

impl VolumesOwner {
    /// Whether a disk with this identity has this node's volumes.
    fn owns(&self, identity: &Identity) -> bool {
        let hash = identity.local_volumes.as_ref().map(|volumes| &volumes.ca_hash);
        hash == Some(&self.ca_hash) && identity.node == self.node
    }

    fn expects(&self, identity: &Identity) -> bool {
        match self.expected {
            Expected::Disk(known) => identity.disk == known,
            Expected::Any | Expected::Nothing => true,
        }
    }

    /// The mark on the disk, in addition to the names.
    pub fn mark(&self) -> LocalVolumes {
        LocalVolumes { ca_hash: self.ca_hash.clone() }
    }
}

type ExaminedDisk = (Disk, Content);

impl Disks {
    /// Decides which one is the disk for a worker's local volumes. A missing disk is a finding only if the worker has
    /// one.
    pub fn for_worker(&self, owner: &VolumesOwner) -> Examination {
        let mut findings = Findings::default();
        let data_disk = decide(&self.0, owner, &mut findings);
        Examination { data_disk, findings }
    }

    /// The disk for local volumes of the VM with this BIOS UUID, if a reset has marked it to be erased.
    pub fn erasing_volumes(&self, own: Option<BiosUuid>) -> Option<&Disk> {
        let marked = |identity: &Identity| identity.state == DiskState::Erasing && identity.holder == own;
        self.0.iter().find_map(|(disk, content)| match content {
            Content::Volumes { identity, .. } if marked(identity) => Some(disk),
            _ => None,
        })
    }
}

/// The disks with local volumes that this VM has taken. Unreadable disks are left out.
pub fn taken(platform: &Platform) -> std::io::Result<Vec<(Disk, Identity)>> {
    let disks = platform.data_disk_candidates(platform.root())?;
    let own = |path| {
        let slots = Slots::read(path).ok().filter(|slots| slots.later().is_none())?;
        let identity = slots.newest()?;
        let ours = identity.local_volumes.is_some() && identity.holder == platform.bios_uuid();
        ours.then(|| identity.clone()).zip(Disk::open(path, platform).ok())
    };
    Ok(disks.iter().filter_map(|path| own(path).map(|(identity, disk)| (disk, identity))).collect())
}

fn decide(seen: &[ExaminedDisk], owner: &VolumesOwner, findings: &mut Findings) -> DataDisk {
    for (disk, content) in seen {
        if matches!(content, Content::Ours { .. }) {
            findings.push(beside_worker(&disk.path));
        }
    }
    let own: Vec<&ExaminedDisk> = seen.iter().filter(|(_, content)| is_own(content, owner)).collect();
    // An unreadable disk may be the worker's, unless its GUID is known.
    let trouble = seen.iter().any(|(_, content)| is_trouble(content));
    let doubtful = trouble && owner.expected == Expected::Any;
    match own[..] {
        _ if !findings.is_empty() => DataDisk::Ambiguous,
        [(disk, Content::Volumes { identity, redundant })] if !doubtful => {
            spare(seen, findings);
            examine::usable(disk, findings);
            examine::ours(disk, identity, *redundant, findings)
        }
        [_, _, ..] => {
            own.iter().for_each(|(disk, _)| findings.push(one_of_several(disk, owner)));
            DataDisk::Ambiguous
        }
        _ => without(seen, owner, findings),
    }
}

fn is_own(content: &Content, owner: &VolumesOwner) -> bool {
    matches!(content, Content::Volumes { identity, .. } if owner.owns(identity) && owner.expects(identity))
}

fn without(seen: &[ExaminedDisk], owner: &VolumesOwner, findings: &mut Findings) -> DataDisk {
    for (disk, content) in seen {
        match content {
            Content::Volumes { identity, .. } if !owner.owns(identity) => {
                findings.push(of_worker(&disk.path, identity));
            }
            content if owner.expected != Expected::Nothing => {
                findings.extend(of_no_use(disk, content, false).map(for_worker).into());
            }
            _ => {}
        }
    }
    if let Expected::Disk(known) = owner.expected {
        findings.push(absent(known));
    }
    if !findings.is_empty() {
        return DataDisk::Ambiguous;
    }
    if owner.expected == Expected::Nothing {
        spare(seen, findings);
        return DataDisk::Absent;
    }
    match choose(seen) {
        Choice::One(index) => examine::take_new(&seen[index].0, &seen[index].1, findings),
        Choice::Many(names) => examine::several(&names, findings),
        Choice::None if seen.is_empty() => DataDisk::Absent,
        Choice::None => not_empty(seen, findings),
    }
}

/// Reports unused disks that are blank or interrupted. Other content on a worker's disks belongs to others, such as
/// pods.
fn spare(seen: &[ExaminedDisk], findings: &mut Findings) {
    for (disk, content) in seen {
        if let Content::Blank | Content::Interrupted(_) = content {
            findings.push(left_alone(
                disk,
                content,
                "a worker takes a disk for local volumes before it joins, and one only",
            ));
        }
    }
}

fn one_of_several(disk: &Disk, owner: &VolumesOwner) -> Finding {
    codes::DISK_AMBIGUOUS.finding(
        disk.path.display().to_string(),
        format!("it holds the local volumes of worker {}, and so does another one", owner.node),
        "Detach all of them but one",
    )
}

/// The disk is the only copy of a worker's volumes.
fn for_worker(mut finding: Finding) -> Finding {
    if finding.code == codes::DISK_AMBIGUOUS.code {
        "Detach it and keep it: its fourth partition may still be readable elsewhere. Then give this worker an empty disk, \
         or reset it"
            .clone_into(&mut finding.action);
    }
    finding
}

fn absent(known: Uuid) -> Finding {
    codes::DISK_VOLUMES_ABSENT.finding(
        "data disk",
        format!("this worker keeps local volumes on the disk with the GUID {known}, which is not attached"),
        "Attach that disk again: the worker then continues. If it is lost, its volumes are: reset this worker, or remove it \
         and let another one join",
    )
}

#[cfg(test)]
mod tests;
