//! Room on the file systems that are written, reported before it runs out. The findings say how much space and how many inodes
//! are used, and by what.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use contract::codes;
use contract::finding::{Finding, Findings};
use contract::paths;
use nix::sys::statvfs::statvfs;

use super::ROOM;
use super::job::{Job, failed};
use crate::cluster::etcd::snapshot;
use crate::cluster::kubernetes::api_server::audit;
use crate::host::disk::is_mounted;
use crate::host::files;
use crate::node::context::NodeContext;

/// From here on a file system counts as nearly full, in per cent …
const NEARLY: u64 = 80;

/// … and from here on almost full.
const ALMOST: u64 = 90;

/// The pause between two checks whether etcd is short of room.
pub(super) const RELIEVE: Duration = Duration::from_secs(5);

/// How long the finding about a short audit log stays.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// How many of the largest users a finding names.
const NAMED: usize = 4;

pub(super) struct Place {
    pub(super) point: &'static str,
    pub(super) name: &'static str,
    /// Known users by their directories. Other directories are named by their paths.
    users: &'static [(&'static str, &'static str)],
    action: &'static str,
}

pub(super) const DATA: Place = Place {
    point: paths::DATA,
    name: "the data disk",
    users: &[
        ("etcd", "etcd"),
        ("snapshots", "snapshots of etcd"),
        ("tenants", "snapshots of tenants' stores"),
        ("audit", "the audit log"),
        ("kaas", "the agent's records"),
        ("kubernetes", "certificates and manifests"),
    ],
    action: "Enlarge the data disk in the hypervisor (the node takes the new size by itself), or free space on it",
};

pub(super) const SCRATCH: Place = Place {
    point: "/var",
    name: "the system disk's scratch partition",
    users: &[
        ("log/journal", "the journal"),
        ("log/pods", "container logs"),
        ("lib/containerd", "container images and writable layers"),
        ("lib/kubelet", "pods' volumes"),
    ],
    action: "Remove what pods wrote, or the pods that wrote it; images that no pod uses go by themselves",
};

pub(super) const VOLUMES: Place = Place {
    point: paths::LOCAL_VOLUMES,
    name: "the data disk with local volumes",
    users: &[],
    action: "Enlarge the data disk in the hypervisor (the node takes the new size by itself), or delete claims of volumes on it",
};

/// From 80 % on it counts every file, which takes minutes on a slow disk.
pub(super) fn look(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    Ok(Some(looking(node, &[&DATA, &SCRATCH])))
}

/// The same on a worker, with or without a disk for local volumes.
pub(super) fn look_on_worker(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let volumes = is_mounted(&node.path(paths::LOCAL_VOLUMES))?;
    Ok(Some(looking(node, if volumes { &[&SCRATCH, &VOLUMES] } else { &[&SCRATCH] })))
}

fn looking(node: &NodeContext, places: &'static [&'static Place]) -> Job {
    let root = node.root().to_owned();
    Box::new(move |_| {
        let mut findings = Findings::default();
        for place in places {
            findings.extend(judge(place, &files::below(&root, place.point))?);
        }
        Ok(findings)
    })
}

/// Makes room for etcd before its disk is full, quicker than an operator could, and trims the audit log. The job never ends:
/// the main loop may be busy for longer than a small disk takes to fill.
pub(super) fn relieve(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    Ok(Some(relieving(node.root().to_owned())))
}

fn relieving(root: PathBuf) -> Job {
    Box::new(move |report| {
        let mut short = None;
        loop {
            report.set(relieve_now(&root, &mut short));
            thread::sleep(RELIEVE);
        }
    })
}

/// Excess of the audit log is deleted before a snapshot. If one of them fails, the other continues. `short` has the last
/// finding about the log and its time.
fn relieve_now(root: &Path, short: &mut Option<(Instant, Finding)>) -> Findings {
    let mut findings = Findings::default();
    match audit::trim(root) {
        Ok(Some(finding)) => *short = Some((Instant::now(), finding)),
        Ok(None) => {}
        Err(error) => findings.extend(failed("the audit log", &error)),
    }
    if let Some((since, finding)) = short
        && since.elapsed() < REMEMBERED
    {
        findings.push(finding.clone());
    }
    if let Err(error) = snapshot::relieve(root) {
        findings.extend(failed(ROOM, &error));
    }
    findings
}

/// How much of a resource is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    used: u64,
    free: u64,
}

impl Use {
    /// In per cent, rounded up as df(1) does.
    fn share(self) -> u64 {
        (self.used * 100).div_ceil((self.used + self.free).max(1))
    }
}

fn judge(place: &Place, point: &Path) -> anyhow::Result<Findings> {
    let seen = statvfs(point).map_err(|error| anyhow::anyhow!("measuring {}: {error}", point.display()))?;
    let block = seen.fragment_size();
    let space = Use { used: (seen.blocks() - seen.blocks_free()) * block, free: seen.blocks_available() * block };
    let inodes = Use { used: seen.files() - seen.files_free(), free: seen.files_available() };
    Ok(say(place, point, space, inodes, &|| users(place, point)))
}

fn say(place: &Place, point: &Path, space: Use, inodes: Use, users: &dyn Fn() -> String) -> Findings {
    let share = space.share().max(inodes.share());
    let code = match share {
        ALMOST.. => &codes::DISK_ALMOST_FULL,
        NEARLY.. => &codes::DISK_NEARLY_FULL,
        _ => return Findings::default(),
    };
    let what = if space.share() >= inodes.share() {
        format!("{share} % are used, {} are free", size(space.free))
    } else {
        format!("{share} % of its inodes are used, {} are free: there are very many small files", inodes.free)
    };
    let subject = format!("{} ({})", place.name, point.display());
    code.finding(subject, format!("{what}; most is used by {}", users()), place.action).into()
}

/// The largest users in words, by space.
fn users(place: &Place, point: &Path) -> String {
    let mut found: BTreeMap<PathBuf, (String, u64)> = BTreeMap::new();
    for (directory, what) in place.users {
        found.insert(point.join(directory), ((*what).to_owned(), 0));
    }
    for entry in fs::read_dir(point).into_iter().flatten().flatten() {
        let path = entry.path();
        // A directory with a known user below it is not counted twice.
        if !found.keys().any(|known| known.starts_with(&path)) {
            found.insert(path.clone(), (path.display().to_string(), 0));
        }
    }
    let mut users: Vec<(String, u64)> =
        found.into_iter().map(|(path, (what, _))| (what, weight(&path))).filter(|(_, bytes)| *bytes > 0).collect();
    users.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named: Vec<String> =
        users.iter().take(NAMED).map(|(what, bytes)| format!("{what} ({})", size(*bytes))).collect();
    if named.is_empty() { "nothing that is known".to_owned() } else { named.join(", ") }
}

/// The size of a file or directory on the disk, in bytes, without file systems that are mounted in it.
fn weight(path: &Path) -> u64 {
    let Ok(top) = fs::symlink_metadata(path) else { return 0 };
    let mut bytes = 0;
    let mut waiting = vec![(path.to_owned(), top.clone())];
    while let Some((path, metadata)) = waiting.pop() {
        if metadata.dev() != top.dev() {
            continue;
        }
        // stat(2) counts in units of 512 bytes. The size of a file with several names is divided among them.
        bytes += metadata.blocks() * 512 / if metadata.is_dir() { 1 } else { metadata.nlink().max(1) };
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                // A file that was deleted meanwhile has no size.
                if let Ok(metadata) = entry.metadata() {
                    waiting.push((entry.path(), metadata));
                }
            }
        }
    }
    bytes
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{}.{} GiB", bytes >> 30, ((bytes >> 20) % 1024) * 10 / 1024),
    }
}

/// The directories that are known to use the scratch partition, for the test of a reset.
#[cfg(test)]
pub(crate) fn scratch_users() -> impl Iterator<Item = String> {
    SCRATCH.users.iter().map(|(directory, _)| format!("{}/{directory}", SCRATCH.point))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use nix::fcntl::{FallocateFlags, fallocate};

    use super::*;
    use crate::host::command::{Command, Host, Runner as _};
    use crate::host::disk::fixture::alone;
    use crate::host::fixture::{eventually, small_file_system};
    use crate::intake::config::Config;
    use crate::intake::config::fixture::joined;
    use crate::maintenance::job::SharedFindings;
    use crate::node::fixture;

    const LITTLE: Use = Use { used: 1, free: 99 };

    fn said(space: Use, inodes: Use) -> String {
        say(&DATA, Path::new("/data"), space, inodes, &|| "etcd (3.1 GiB)".to_owned()).to_string()
    }

    fn used(share: u64) -> Use {
        Use { used: share << 30, free: (100 - share) << 30 }
    }

    #[test]
    fn thresholds_have_codes_and_name_users() {
        assert_eq!(said(used(79), LITTLE), "");
        let nearly = said(used(80), LITTLE);
        let expected = "warning disk.nearly-full: the data disk (/data): 80 % are used, 20.0 GiB are free; most is used by \
            etcd (3.1 GiB). Enlarge the data disk";
        assert!(nearly.starts_with(expected), "{nearly}");
        assert!(said(used(90), LITTLE).starts_with("warning disk.almost-full: "));
        assert!(
            said(LITTLE, Use { used: 950, free: 50 })
                .contains("disk.almost-full: the data disk (/data): 95 % of its inodes")
        );
        assert!(!said(used(99), used(99)).contains("error"), "the node goes on");
    }

    #[test]
    fn an_empty_file_system_is_not_full() {
        assert_eq!(said(Use { used: 0, free: 0 }, Use { used: 0, free: 0 }), "");
    }

    #[test]
    fn largest_users_are_named_and_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let point = directory.path();
        for (name, mib) in
            [("log/journal/a", 3), ("log/pods/p/0.log", 2), ("lib/containerd/x", 5), ("cache/y", 4), ("log/b", 1)]
        {
            let path = point.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![1; mib << 20]).unwrap();
        }
        let users = users(&SCRATCH, point);
        let order = [
            "container images and writable layers (5 MiB)",
            "/cache (4 MiB)",
            "the journal (3 MiB)",
            "container logs (2 MiB)",
        ];
        let places: Vec<usize> =
            order.iter().map(|one| users.find(one).unwrap_or_else(|| panic!("{one}: {users}"))).collect();
        assert!(places.is_sorted(), "{users}");
    }

    #[test]
    fn room_is_made_independently_of_the_main_loop() {
        let test = || {
            let root = tempfile::tempdir().unwrap();
            let _disk = small_file_system(&files::below(root.path(), paths::DATA));
            let directory = snapshot::directory(root.path());
            fs::create_dir(&directory).unwrap();
            let plant = |day: u32| fs::write(directory.join(format!("c-202001{day}T000000Z.db")), "").unwrap();
            let kept = || {
                snapshot::list(root.path(), SystemTime::now())
                    .unwrap()
                    .iter()
                    .map(|one| one.taken.clone())
                    .collect::<Vec<_>>()
            };
            (10..13).for_each(plant);
            let (job, report) = (relieving(root.path().to_owned()), SharedFindings::default());
            let found = report.clone();
            thread::spawn(move || job(&report));
            eventually("room", || kept() == ["2020-01-12T00:00:00Z"]);
            (20..23).for_each(plant);
            eventually("room again", || kept() == ["2020-01-22T00:00:00Z"]);
            assert!(found.findings().is_empty());
            fs::remove_dir_all(directory).unwrap();
            fs::write(files::below(root.path(), paths::SNAPSHOTS), "").unwrap();
            eventually("a warning", || found.findings().to_string().contains(ROOM));
            // The audit log is trimmed to its share nevertheless.
            let logs = files::below(root.path(), audit::LOGS);
            let excess = logs.join("audit-2026-11-21T10-00-00.000.log.gz");
            fs::create_dir_all(&logs).unwrap();
            File::create(&excess).unwrap().set_len(3 << 30).unwrap();
            File::create(logs.join("audit.log")).unwrap();
            eventually("the audit log to have its share", || !excess.exists());
        };
        thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn the_audit_log_makes_room_before_snapshots_do() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        let (image, data) = (path.join("image"), files::below(&path, paths::DATA));
        File::create(&image).unwrap().set_len(1 << 30).unwrap();
        Host.run(&Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)).unwrap();
        fs::create_dir(&data).unwrap();
        let test = move || {
            // Gone with the thread, which unmounts the file system and frees the loop device.
            alone();
            Host.run(&Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(&data)).unwrap();
            let (logs, snapshots) = (data.join("audit"), snapshot::directory(&path));
            fs::create_dir_all(path.join("var/log")).unwrap();
            symlink(&logs, files::below(&path, audit::LOGS)).unwrap();
            for directory in [&logs, &snapshots] {
                fs::create_dir(directory).unwrap();
            }
            let taken = [10, 11].map(|day| snapshots.join(format!("c-202001{day}T000000Z.db")));
            for file in [&logs.join("audit.log"), &taken[0], &taken[1]] {
                fs::write(file, "").unwrap();
            }
            let excess = logs.join("audit-2026-11-21T10-00-00.000.log.gz");
            fallocate(File::create(&excess).unwrap(), FallocateFlags::empty(), 0, 800 << 20).unwrap();
            let mut short = None;
            for look in ["the first", "the next"] {
                let findings = relieve_now(&path, &mut short);
                assert!(findings.iter().map(|one| &one.code).eq(["audit.window-short"]), "{look}: {findings}");
            }
            assert!(!excess.exists() && taken.iter().all(|snapshot| snapshot.exists()));
        };
        thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn mounted_local_volumes_of_workers_are_watched() {
        let test = || {
            let root = tempfile::tempdir().unwrap();
            let codes = || {
                let node = fixture::node(root.path(), Config::Worker(joined()));
                fs::create_dir_all(root.path().join("var")).unwrap();
                let job = look_on_worker(&node).unwrap().unwrap();
                let findings = job(&SharedFindings::default()).unwrap();
                findings.iter().filter(|one| one.subject.contains(paths::LOCAL_VOLUMES)).count()
            };
            assert_eq!(codes(), 0);
            let point = files::below(root.path(), paths::LOCAL_VOLUMES);
            let _disk = small_file_system(&point);
            assert_eq!(codes(), 0, "it is empty");
            fs::write(point.join("pvc-1"), vec![1; 56 << 20]).unwrap();
            assert_eq!(codes(), 1);
        };
        thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn this_machine_can_be_measured() {
        assert!(judge(&DATA, Path::new("/")).is_ok());
        assert!(judge(&DATA, Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
