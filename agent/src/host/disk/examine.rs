//! Examines all disks and decides which one is the data disk, if any. Changes nothing.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use contract::bios_uuid::BiosUuid;
use contract::codes;
use contract::finding::{Finding, Findings};

use super::blank;
use super::device::Disk;
use super::identity::{DiskState, Identity};
use super::layout;
use super::refused::{not_ours, of_worker, words_of_worker};
use super::slots::{NewerIdentity, Preparation, Slots};
use crate::host::command::{Command, Error, Runner};
use crate::host::disk::ownership::{self, Claimant};
use crate::host::platform::Platform;

/// The smallest data disk, in bytes: 4 GiB. Its quota for etcd is 0.7 GiB, because the log, a copy and a snapshot must
/// fit as well.
pub const MINIMUM_SIZE: u64 = 4 << 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataDisk {
    /// The VM has only its system disk.
    Absent,
    /// The disk is blank and may be prepared.
    Blank { disk: Disk },
    /// The preparation by this VM was interrupted. The disk has no data.
    Interrupted { disk: Disk, preparation: Preparation },
    /// The disk was prepared before and is held by this VM or released. The VM must adopt it and never form a new
    /// cluster.
    Ours { disk: Disk, identity: Identity },
    /// Another VM holds the disk, or this VM may not take it.
    HeldElsewhere { disk: Disk, identity: Identity },
    /// The disk has data of another origin.
    Foreign { disk: Disk },
    /// The disk, or its content, cannot be determined.
    Ambiguous,
}

impl DataDisk {
    /// The size of the chosen disk in bytes.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Blank { disk } | Self::Interrupted { disk, .. } | Self::Ours { disk, .. } => Some(disk.size),
            Self::Absent | Self::HeldElsewhere { .. } | Self::Foreign { .. } | Self::Ambiguous => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    pub data_disk: DataDisk,
    /// Findings about the disks. At least one is an error, unless the disk is blank, interrupted or the node's own.
    /// Such a disk may have errors too.
    pub findings: Findings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Blank,
    Interrupted(Preparation),
    Ours {
        identity: Box<Identity>,
        redundant: bool,
    },
    /// The local volumes of a worker.
    Volumes {
        identity: Box<Identity>,
        redundant: bool,
    },
    /// The disk has the appliance's mark, but cannot be trusted. Contains the reason.
    Damaged(String),
    Newer(NewerIdentity),
    Foreign(String),
    Unreadable(String),
}

/// The disks of this node without its system disk, examined once. The choice is made after that: a node's data disk, or
/// the disk for a worker's local volumes ([`Self::for_worker`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disks(pub(super) Vec<(Disk, Content)>);

impl Disks {
    /// `system_root` is the mount point of the system's root file system (`/`, or `/sysroot` in the initrd). Errors of
    /// a disk are findings.
    pub fn look(platform: &Platform, system_root: &Path, runner: &dyn Runner) -> io::Result<Self> {
        let mut seen = Vec::new();
        for path in platform.data_disk_candidates(system_root)? {
            seen.push(match Disk::open(&path, platform) {
                Ok(disk) => {
                    let content = look(&disk, platform.bios_uuid(), runner)
                        .unwrap_or_else(|error| Content::Unreadable(error.to_string()));
                    (disk, content)
                }
                Err(error) => (nothing_known(path), Content::Unreadable(error.to_string())),
            });
        }
        Ok(Self(seen))
    }

    /// Decides which one is the data disk of a control-plane node. `claimant` is this VM with its image.
    pub fn for_node(&self, claimant: &Claimant) -> Examination {
        decide(&self.0, claimant)
    }
}

pub fn examine(
    platform: &Platform,
    claimant: &Claimant,
    system_root: &Path,
    runner: &dyn Runner,
) -> io::Result<Examination> {
    Ok(Disks::look(platform, system_root, runner)?.for_node(claimant))
}

fn nothing_known(path: PathBuf) -> Disk {
    Disk { path, size: 0, sector: 512, read_only: false }
}

fn look(disk: &Disk, own: Option<BiosUuid>, runner: &dyn Runner) -> io::Result<Content> {
    if disk.size < MINIMUM_SIZE {
        // The disk is too small for a data disk. It is blank or foreign.
        let content = blank::first_content(&File::open(&disk.path)?, 0, disk.size)?;
        return Ok(content.map_or(Content::Blank, |place| Content::Foreign(describe(disk, place, runner))));
    }
    let slots = Slots::read(&disk.path)?;
    if let Some(later) = slots.later() {
        return Ok(Content::Newer(later.clone()));
    }
    if let Some(identity) = slots.newest() {
        // A disk that is being erased may have lost its table already.
        let table = match identity.state {
            DiskState::Erasing => Ok(()),
            _ => layout::check_table(&disk.path, identity.disk, disk.size, runner).map(drop),
        };
        let (of, redundant) = (Box::new(identity.clone()), slots.is_redundant());
        return Ok(match table {
            Ok(()) if of.local_volumes.is_some() => Content::Volumes { identity: of, redundant },
            Ok(()) => Content::Ours { identity: of, redundant },
            Err(reason) => Content::Damaged(format!("it bears a valid identity of {}, but {reason}", identity.node)),
        });
    }
    if let Some(preparation) = slots.preparation {
        return Ok(match super::resume::may_resume(disk, &preparation, own, runner)? {
            Ok(()) => Content::Interrupted(preparation),
            Err(reason) => Content::Damaged(format!("its preparation was interrupted, but {reason}")),
        });
    }
    if slots.bears_our_mark {
        return Ok(Content::Damaged("both of its identity slots are damaged".to_owned()));
    }
    let content = blank::first_content(&File::open(&disk.path)?, 0, disk.size)?;
    Ok(match content {
        None => Content::Blank,
        // The disk has the appliance's partition table, but no mark in the slots. It still does not count as foreign.
        Some(_) if layout::bears_our_table(disk, runner) => {
            Content::Damaged("it has the partitions of a data disk, but no identity".to_owned())
        }
        Some(place) => Content::Foreign(describe(disk, place, runner)),
    })
}

/// Describes a disk that is not blank, for messages only. No decision depends on blkid.
fn describe(disk: &Disk, place: u64, runner: &dyn Runner) -> String {
    let unnamed = format!("data that no known format explains, first at byte {place}");
    let output = match runner.run(&Command::new("blkid").args(["-p", "-o", "export"]).arg(&disk.path)) {
        Ok(output) => output,
        Err(Error::Failed { status, .. }) if status.code() == Some(8) => {
            return "signatures of more than one format".to_owned();
        }
        Err(_) => return unnamed,
    };
    let output = String::from_utf8_lossy(&output);
    let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let label = value("LABEL").map(|label| format!(" named {label}")).unwrap_or_default();
    match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => format!("{kind}{label}"),
        (None, Some(table)) => format!("a partition table ({table})"),
        (None, None) => unnamed,
    }
}

/// Whether a disk may be the data disk, but cannot be read or trusted.
pub(super) fn is_trouble(content: &Content) -> bool {
    matches!(content, Content::Damaged(_) | Content::Newer(_) | Content::Unreadable(_))
}

fn decide(seen: &[(Disk, Content)], claimant: &Claimant) -> Examination {
    let mut findings = Findings::default();
    let is_ours = |content: &Content| matches!(content, Content::Ours { .. });

    // Disks that may be the data disk come first. While one cannot be read, no other is taken in its place.
    let ours = seen.iter().filter(|(_, content)| is_ours(content)).count();
    let trouble = seen.iter().any(|(_, content)| is_trouble(content));
    if ours > 1 || trouble {
        for (disk, content) in seen {
            if let Some(finding) = of_no_use(disk, content, ours > 1) {
                findings.push(finding);
            }
        }
        return Examination { data_disk: DataDisk::Ambiguous, findings };
    }

    let data_disk = match choose(seen) {
        Choice::One(index) => {
            let (disk, content) = &seen[index];
            for (other, content) in seen.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, seen)| seen) {
                findings.push(left_alone(other, content, &format!("{} is the data disk", disk.path.display())));
            }
            take(disk, content, claimant, &mut findings)
        }
        Choice::None if seen.is_empty() => {
            findings.push(codes::DISK_ABSENT.finding(
                "data disk",
                "the VM has no disk besides its system disk",
                "Power off, add the data disk (an empty one, or the one of the node's former VM), power on",
            ));
            DataDisk::Absent
        }
        Choice::None => not_empty(seen, &mut findings),
        Choice::Many(names) => several(&names, &mut findings),
    };
    Examination { data_disk, findings }
}

pub(super) fn not_empty(seen: &[(Disk, Content)], findings: &mut Findings) -> DataDisk {
    let mut foreign = None;
    for (disk, content) in seen {
        match content {
            Content::Foreign(what) => findings.push(codes::DISK_FOREIGN.finding(
                disk.path.display().to_string(),
                format!("it holds {what}, which is not the appliance's; nothing was changed"),
                "Detach this disk, or attach it where it belongs; an empty new disk is taken, a used one never",
            )),
            Content::Volumes { identity, .. } => findings.push(of_worker(&disk.path, identity)),
            Content::Blank => {
                findings.push(codes::DISK_WAITING.finding(
                    disk.path.display().to_string(),
                    "it is empty and is not used while another disk holds foreign data",
                    "Detach the other disk",
                ));
                continue;
            }
            _ => continue,
        }
        foreign = foreign.or_else(|| Some(disk.clone()));
    }
    foreign.map_or(DataDisk::Ambiguous, |disk| DataDisk::Foreign { disk })
}

pub(super) fn several(names: &[String], findings: &mut Findings) -> DataDisk {
    findings.push(codes::DISK_AMBIGUOUS.finding(
        names.join(", "),
        "more than one disk is empty: which one is to be the data disk cannot be known",
        "Detach all empty disks but one",
    ));
    DataDisk::Ambiguous
}

pub(super) enum Choice {
    None,
    One(usize),
    Many(Vec<String>),
}

/// The disk to take, if no disk makes the choice doubtful.
pub(super) fn choose(seen: &[(Disk, Content)]) -> Choice {
    let indexes = |wanted: fn(&Content) -> bool| -> Vec<usize> {
        (0..seen.len()).filter(|index| wanted(&seen[*index].1)).collect()
    };
    // The order is: the node's own disk, an interrupted one, a blank one.
    let ours = indexes(|content| matches!(content, Content::Ours { .. }));
    let interrupted = indexes(|content| matches!(content, Content::Interrupted(_)));
    if let [one] = ours[..] {
        return Choice::One(one);
    }
    if indexes(|content| matches!(content, Content::Foreign(_) | Content::Volumes { .. })).is_empty() {
        let blank = indexes(|content| *content == Content::Blank);
        for indexes in [interrupted, blank] {
            match indexes[..] {
                [] => {}
                [one] => return Choice::One(one),
                _ => return Choice::Many(indexes.iter().map(|i| seen[*i].0.path.display().to_string()).collect()),
            }
        }
    }
    Choice::None
}

fn take(disk: &Disk, content: &Content, claimant: &Claimant, findings: &mut Findings) -> DataDisk {
    if let Content::Ours { identity, redundant } = content {
        usable(disk, findings);
        if let Err(refusal) = ownership::may_take(identity, claimant) {
            findings.push(not_ours(&disk.path.display().to_string(), identity, &refusal, claimant));
            return DataDisk::HeldElsewhere { disk: disk.clone(), identity: identity.as_ref().clone() };
        }
        return ours(disk, identity, *redundant, findings);
    }
    take_new(disk, content, findings)
}

/// Takes a disk that is blank or whose preparation was interrupted.
pub(super) fn take_new(disk: &Disk, content: &Content, findings: &mut Findings) -> DataDisk {
    usable(disk, findings);
    match content {
        Content::Interrupted(preparation) => {
            DataDisk::Interrupted { disk: disk.clone(), preparation: preparation.clone() }
        }
        _ => DataDisk::Blank { disk: disk.clone() },
    }
}

pub(super) fn ours(disk: &Disk, identity: &Identity, redundant: bool, findings: &mut Findings) -> DataDisk {
    if !redundant && identity.state != DiskState::Erasing {
        findings.push(codes::DISK_IDENTITY_DAMAGED.finding(
            disk.path.display().to_string(),
            "one of its two identity slots is not whole; the other one is used and the first written again",
            "Nothing, if power was lost just before; otherwise check the storage",
        ));
    }
    DataDisk::Ours { disk: disk.clone(), identity: identity.clone() }
}

/// Reports why the chosen disk cannot be used.
pub(super) fn usable(disk: &Disk, findings: &mut Findings) {
    let name = disk.path.display().to_string();
    if disk.read_only {
        findings.push(codes::DISK_READ_ONLY.finding(
            &name,
            "the data disk refuses writes",
            "Make the disk writable in the hypervisor, then power the VM off and on",
        ));
    }
    if disk.size < MINIMUM_SIZE {
        findings.push(codes::DISK_TOO_SMALL.finding(
            &name,
            format!("the disk has {} MiB", disk.size >> 20),
            format!("Enlarge or replace it: a data disk has at least {} GiB", MINIMUM_SIZE >> 30),
        ));
    }
}

pub(super) fn of_no_use(disk: &Disk, content: &Content, several: bool) -> Option<Finding> {
    let name = disk.path.display().to_string();
    let finding = match content {
        Content::Ours { identity, .. } if several => codes::DISK_AMBIGUOUS.finding(
            name,
            format!(
                "it is a data disk of node {} of cluster {}, and so is another one",
                identity.node, identity.cluster
            ),
            "Detach all data disks but the one that belongs to this node",
        ),
        Content::Damaged(why) => codes::DISK_AMBIGUOUS.finding(
            name,
            format!("it is a data disk of this appliance, but cannot be trusted: {why}"),
            "Detach it and keep it; restore the node from the cluster's other nodes or from a snapshot",
        ),
        Content::Newer(later) => codes::DISK_NEWER.finding(
            name,
            format!("{later}: only a newer image can read it"),
            "Boot the image version that last used the disk, or a newer one",
        ),
        Content::Unreadable(why) => codes::DISK_UNREADABLE.finding(
            name,
            format!("it cannot be read: {why}"),
            "Check the storage behind it, or detach it, then power the VM off and on",
        ),
        _ => return None,
    };
    Some(finding)
}

/// The finding about an unused disk. `because` is the reason.
pub(super) fn left_alone(disk: &Disk, content: &Content, because: &str) -> Finding {
    let what = match content {
        Content::Blank => "it is empty".to_owned(),
        Content::Interrupted(_) => "its preparation was interrupted".to_owned(),
        Content::Foreign(what) => format!("it holds {what}"),
        Content::Volumes { identity, .. } => format!("it holds {}", words_of_worker(identity)),
        _ => "it is a data disk too".to_owned(),
    };
    codes::DISK_SPARE.finding(
        disk.path.display().to_string(),
        format!("{what}; it is not used, {because}"),
        "Detach it if it is not needed",
    )
}

#[cfg(test)]
mod tests;
