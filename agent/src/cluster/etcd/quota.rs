//! The quota of this node's member: how large its database may become. The size of the data disk decides it. If the
//! node receives a larger database, the database does. Does not handle what happens at the quota.

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

/// The smallest quota, in bytes, for a file system that reports no useful size.
const SMALLEST: u64 = 512 << 20;

/// This part of the data disk is not divided, in bytes. It is for etcd's shortest log (`--max-wals`, five files of 64 MiB
/// and the next one), the agent's records, and free space.
const ASIDE: u64 = 1 << 30;

/// The rest has room for a database that has reached its quota, its copy during defragmentation, and the newest
/// snapshot. The fourth share is for a log at its longest.
const SHARES: u64 = 4;

/// The quota that etcd was last started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Quota {
    /// In bytes.
    bytes: u64,
    /// How many VMs had used the disk at that time. If more have since, the last one's image may not write this record.
    generation: u64,
}

impl Entry for Quota {
    const FILE: &'static str = "etcd-quota.json";
    const WHAT: &'static str = "etcd's quota";
}

/// The quota in bytes on a data disk of `disk` bytes: etcd refuses writes above it. etcd's own default is 2 GiB. A
/// small disk gets less, so that etcd reports that it is full before the disk is. etcd does not survive a full disk.
fn of_disk(disk: u64) -> u64 {
    (disk.saturating_sub(ASIDE) / SHARES).clamp(SMALLEST, LARGEST)
}

/// The quota for a database of `database` bytes. A node that replaces a lost one, or is restored from a snapshot, may
/// receive a database that is large for its disk. Such a database keeps a fifth of its quota free. Otherwise this member
/// alone would end all writes of the cluster. A database that grew under its quota, `last`, gets no more than that. The
/// part of the disk that is not divided is never the database's.
fn decide(disk: u64, database: u64, last: Option<u64>) -> u64 {
    let with_room = |bytes: u64| bytes / 4 * 5;
    let (own, roomy) = (of_disk(disk), with_room(database));
    // No database grows far beyond its quota: a larger one was received.
    let last = last.filter(|last| database <= with_room(*last));
    let most = LARGEST.min(disk.saturating_sub(ASIDE));
    if roomy <= own { own } else { own.max(last.unwrap_or(roomy).min(most)) }
}

/// Decides the quota for the start of etcd, and records it on the data disk. A node that joins receives a database of
/// `others` bytes. `before` and `generation` are how many VMs had used the disk before this boot, and with it.
pub fn settle(root: &Path, records: &Records, others: u64, before: u64, generation: u64) -> anyhow::Result<u64> {
    let (disk, own) = measure(&files::below(root, DATA)).context("measuring the data disk and etcd's database")?;
    settle_for(disk, (own, others), records, before, generation)
}

fn settle_for(
    disk: u64,
    (own, others): (u64, u64),
    records: &Records,
    before: u64,
    generation: u64,
) -> anyhow::Result<u64> {
    let last = records.entry::<Quota>()?.filter(|last| last.generation == before).map(|last| last.bytes);
    let database = own.max(others);
    // The others' database did not grow under this node's quota.
    let bytes = decide(disk, database, last.filter(|_| others == 0));
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

/// Forgets the quota of a database that a restore replaces: the new one did not grow under it.
pub fn forget(records: &Records) -> anyhow::Result<()> {
    records.forget::<Quota>()
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
    fn quota_leaves_room_for_log_copy_and_snapshot() {
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
    fn only_a_received_database_may_grow() {
        let mib = |of: u64| of << 20;
        let quota = |database, last: Option<u64>| decide(8 << 30, mib(database), last.map(mib)) >> 20;
        // Without a record: the node receives the database of members with larger disks.
        for (database, expected) in [(0, 1792), (1400, 1792), (1600, 2000), (2048, 2560), (4200, 5250), (7000, 7168)] {
            assert_eq!(quota(database, None), expected, "{database}");
        }
        // After any number of starts, a full database has no larger quota than before.
        for (database, last, expected) in
            [(1792, 1792, 1792), (1850, 1792, 1792), (2500, 2560, 2560), (2600, 2560, 2560)]
        {
            assert_eq!(quota(database, Some(last)), expected, "{database}");
        }
        // A received database has room, whatever the quota was before.
        assert_eq!((quota(2500, Some(1792)), quota(7000, Some(1792))), (3125, 7168));
        // No quota is larger than the disk has room for, nor than etcd recommends.
        assert_eq!((quota(7000, Some(8192)), decide(32 << 30, mib(7000), None)), (7168, mib(8192)));
        assert_eq!(decide(0, mib(7000), None), SMALLEST);
        // A database that has shrunk gets the quota of the disk, and so does a disk that has grown.
        assert_eq!(quota(1000, Some(2560)), 1792);
        assert_eq!(decide(32 << 30, mib(3600), Some(mib(4096))), mib(7936));
    }

    #[test]
    fn only_the_record_of_the_last_vm_counts() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let settle = |mib: u64, before, generation| {
            settle_for(8 << 30, (mib << 20, 0), &records, before, generation).unwrap() >> 20
        };
        assert_eq!(settle(2048, 1, 2), 2560, "the former VM has noted nothing");
        for (before, generation) in [(2, 2), (2, 3), (3, 3)] {
            assert_eq!(settle(2560, before, generation), 2560);
        }
        // The VM of generation 4 had an earlier image.
        assert_eq!(settle(3000, 4, 5), 3750);
    }

    #[test]
    fn joined_or_restored_database_has_room() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let settle =
            |own: u64, others: u64| settle_for(8 << 30, (own << 20, others << 20), &records, 1, 1).unwrap() >> 20;
        assert_eq!((settle(1000, 0), settle(2100, 0)), (1792, 1792), "it grew here");
        assert_eq!((settle(0, 2100), settle(2100, 0)), (2625, 2625), "joined");
        assert_eq!((settle(1000, 0), settle(2100, 0)), (1792, 1792), "it grew again");
        forget(&records).unwrap();
        assert_eq!((settle(2100, 0), settle(2200, 0)), (2625, 2625), "restored");
    }

    #[test]
    fn database_is_measured_in_etcds_directory() {
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
