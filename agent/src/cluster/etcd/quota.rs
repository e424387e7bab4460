//! How large the database of this node's member may become: as its data disk allows, and for a database that an earlier
//! image has left larger than that, as it needs. Knows nothing of what happens at the quota.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::DATA;
use crate::cluster::records::{Entry, Records};
use crate::host::files;

/// The largest quota, in bytes: "8 GiB is a suggested maximum size for normal environments and etcd warns at startup if
/// the configured value exceeds it" (etcd.io, System limits; `MaxQuotaBytes` in server/storage/quota.go).
const LARGEST: u64 = 8 << 30;

/// … and the smallest, where a file system says nothing of use.
const SMALLEST: u64 = 512 << 20;

/// What earlier images gave on every disk, in bytes.
const FORMER: u64 = 4 << 30;

/// Of the data disk this much is not divided, in bytes: the log that etcd keeps at least (`--max-wals`, five files of
/// 64 MiB and the next one), the agent's records, and what stays free.
const ASIDE: u64 = 1 << 30;

/// What is left has room for a database that has reached its quota, its copy while it is defragmented, and the newest
/// snapshot; the fourth share is for a log that is at its longest.
const SHARES: u64 = 4;

/// The quota that etcd was last started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Quota {
    /// In bytes.
    bytes: u64,
    /// How many VMs had taken the disk over by then: if more have since, the last one's image may not know of this note.
    generation: u64,
}

impl Entry for Quota {
    const FILE: &'static str = "etcd-quota.json";
    const WHAT: &'static str = "etcd's quota";
}

/// Above this size of its database etcd refuses writes, in bytes, on a data disk of `disk` bytes. etcd's own default
/// is 2 GiB; a small disk has less, so that etcd says that it is full before the disk is: it does not survive that.
fn of_disk(disk: u64) -> u64 {
    (disk.saturating_sub(ASIDE) / SHARES).clamp(SMALLEST, LARGEST)
}

/// The quota for a database of `database` bytes. What an earlier image has let grow keeps a fifth of its quota free, so
/// that no swap ends all writes; what has grown under a quota of this kind, `last`, gets no more than that again.
fn decide(disk: u64, database: u64, last: Option<u64>) -> u64 {
    let (own, roomy) = (of_disk(disk), database / 4 * 5);
    if roomy <= own { own } else { own.max(last.unwrap_or(roomy.min(FORMER))) }
}

/// Decides the quota that etcd is started with, and notes it on the data disk. A node that joins is sent a database of
/// `others` bytes. `before` and `generation` are how many VMs had taken the disk over before this boot did, and since.
///
/// # Errors
/// The disk or the database cannot be measured, or the note not be read or written.
pub fn settle(root: &Path, records: &Records, others: u64, before: u64, generation: u64) -> anyhow::Result<u64> {
    let (disk, own) = measure(&files::below(root, DATA)).context("measuring the data disk and etcd's database")?;
    settle_for((disk, own.max(others)), records, before, generation)
}

fn settle_for((disk, database): (u64, u64), records: &Records, before: u64, generation: u64) -> anyhow::Result<u64> {
    let last = records.entry::<Quota>()?.filter(|last| last.generation == before).map(|last| last.bytes);
    let bytes = decide(disk, database, last);
    records.update_entry(&Quota { bytes, generation })?;
    if bytes > of_disk(disk) {
        log::warn!(
            "etcd's database has {} MiB, more than this data disk allows: its quota is {} MiB, and will be {} MiB",
            database >> 20,
            bytes >> 20,
            of_disk(disk) >> 20
        );
    }
    Ok(bytes)
}

/// The sizes of the file system at `data` and of the database there, in bytes.
fn measure(data: &Path) -> io::Result<(u64, u64)> {
    let seen = nix::sys::statvfs::statvfs(data)?;
    let database = match fs::metadata(data.join("member/snap/db")) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok((seen.blocks() * seen.fragment_size(), database))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::member::LOG;

    #[test]
    fn at_the_quota_there_is_room_for_the_log_a_copy_and_the_newest_snapshot() {
        for (disk, mib) in [(4, 768), (8, 1792), (16, 3840), (32, 7936), (64, 8192), (2048, 8192)] {
            let disk: u64 = disk << 30;
            assert_eq!(of_disk(disk), mib << 20);
            let (copy, snapshot) = (of_disk(disk), of_disk(disk));
            assert!(of_disk(disk) + copy + snapshot + ASIDE <= disk, "{disk}");
            // The longest log, before the database is defragmented.
            let log = LOG * (3 << 19);
            assert!(of_disk(disk) + snapshot + log + ASIDE / 2 <= disk, "{disk}");
        }
        assert_eq!(of_disk(0), SMALLEST);
    }

    #[test]
    fn a_database_that_an_earlier_image_left_too_large_has_room_to_grow_and_no_other() {
        let mib = |of: u64| of << 20;
        let quota = |database, last: Option<u64>| decide(8 << 30, mib(database), last.map(mib)) >> 20;
        // Nothing was noted: there were 4 GiB.
        for (database, expected) in [(0, 1792), (1400, 1792), (1600, 2000), (2048, 2560), (3600, 4096), (4200, 4096)] {
            assert_eq!(quota(database, None), expected, "{database}");
        }
        // However often it is started, a full database gets no more than it had.
        for (database, last, expected) in
            [(1792, 1792, 1792), (1850, 1792, 1792), (2500, 2560, 2560), (2600, 2560, 2560)]
        {
            assert_eq!(quota(database, Some(last)), expected, "{database}");
        }
        // What has shrunk has the disk's again, and a disk that has grown its own.
        assert_eq!(quota(1000, Some(2560)), 1792);
        assert_eq!(decide(32 << 30, mib(3600), Some(mib(4096))), mib(7936));
    }

    #[test]
    fn only_what_the_last_user_of_the_disk_has_noted_counts() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let settle = |mib: u64, before, generation| {
            settle_for((8 << 30, mib << 20), &records, before, generation).unwrap() >> 20
        };
        assert_eq!(settle(2048, 1, 2), 2560, "the former VM has noted nothing");
        for (before, generation) in [(2, 2), (2, 3), (3, 3)] {
            assert_eq!(settle(2560, before, generation), 2560);
        }
        // The VM of generation 4 had an earlier image.
        assert_eq!(settle(3000, 4, 5), 3750);
    }

    #[test]
    fn the_database_is_measured_where_etcd_keeps_it() {
        let root = tempfile::tempdir().unwrap();
        let data = files::below(root.path(), DATA);
        fs::create_dir_all(data.join("member/snap")).unwrap();
        assert_eq!(measure(&data).unwrap().1, 0);
        fs::File::create(data.join("member/snap/db")).unwrap().set_len(3 << 30).unwrap();
        let (disk, database) = measure(&data).unwrap();
        assert_eq!((disk > 0, database), (true, 3 << 30));
        settle(root.path(), &Records::new(root.path()), 0, 1, 1).unwrap();
    }
}
