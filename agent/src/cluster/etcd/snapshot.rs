//! Snapshots of the store: taken from this node's own member, verified, kept on the data disk up to a number. Does not
//! decide when one is due.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use contract::paths;
use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};

use super::client_url;
use crate::cluster::kubernetes::PKI;
use crate::host::command::{Command, LONG, Runner};
use crate::host::files;

/// How many of the newest ones are kept on the data disk.
pub const KEPT: usize = 12;

/// How far back one of each day is kept in addition. At one every six hours, [`KEPT`] reach as far.
const REACH: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// The least free space on the data disk after a new snapshot, in bytes: etcd's own log grows.
pub const RESERVE: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    pub path: PathBuf,
    /// The time of the snapshot, in RFC 3339.
    pub taken: String,
    /// In bytes.
    pub size: u64,
}

impl Snapshot {
    /// Its age at `now`. `None` if it is from the future.
    pub fn age(&self, now: SystemTime) -> Option<Duration> {
        now.duration_since(humantime::parse_rfc3339(&self.taken).ok()?).ok()
    }

    /// The day on which it was taken, in UTC.
    fn day(&self) -> Option<&str> {
        self.taken.get(..10)
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The report of `etcdutl` on a valid snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    pub revision: u64,
    pub total_key: u64,
    /// The version of etcd's storage format.
    pub version: String,
}

pub fn directory(root: &Path) -> PathBuf {
    files::below(root, paths::SNAPSHOTS)
}

/// All snapshots on the data disk, the newest first. Those from the future at `now` come after all others: a clock was
/// wrong, and their age is unknown.
pub fn list(root: &Path, now: SystemTime) -> io::Result<Vec<Snapshot>> {
    let entries = match fs::read_dir(directory(root)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut snapshots = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Some(taken) = taken(&entry.file_name().to_string_lossy()) else { continue };
        match entry.metadata() {
            // Another snapshot needed its room meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            metadata => snapshots.push(Snapshot { path: entry.path(), taken, size: metadata?.len() }),
        }
    }
    snapshots.sort_by_cached_key(|one| (one.age(now).is_none(), Reverse(one.taken.clone())));
    Ok(snapshots)
}

/// The name of a snapshot taken at `now`, such as `control-20261121T143000Z.db`.
fn name(cluster: &str, now: SystemTime) -> String {
    format!("{cluster}-{}.db", files::stamp(now))
}

/// The time in a snapshot's name. `None` if it is not the name of a snapshot.
fn taken(name: &str) -> Option<String> {
    let (_, stamp) = name.strip_suffix(".db")?.rsplit_once('-')?;
    if stamp.len() != 16 || !stamp.is_ascii() || name.starts_with('.') {
        return None;
    }
    let part = |from: usize, to: usize| &stamp[from..to];
    let text =
        format!("{}-{}-{}T{}:{}:{}Z", part(0, 4), part(4, 6), part(6, 8), part(9, 11), part(11, 13), part(13, 15));
    (humantime::parse_rfc3339(&text).is_ok() && &stamp[8..9] == "T" && &stamp[15..] == "Z").then_some(text)
}

/// Takes a snapshot into the directory on the data disk. Removes all but the newest [`KEPT`] and one of each of the
/// last days. If the disk has too little room, more of the older ones are removed first. The newest two always stay.
/// `size` is the store's size in bytes. If the snapshot fails, nothing of it is left behind. It stays if older ones
/// cannot be removed.
pub fn take(
    cluster: &str,
    node: &ControlNode,
    root: &Path,
    runner: &dyn Runner,
    size: u64,
    now: SystemTime,
) -> anyhow::Result<(Snapshot, Contents)> {
    let directory = directory(root);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .context("making the directory of snapshots")?;
    make_room(root, size, room(&directory).context("looking at the free space")?, now)?;
    let path = directory.join(name(cluster, now));
    let contents = save(node, root, runner, &path)?;
    prune(root, now)?;
    let taken = humantime::format_rfc3339_seconds(now).to_string();
    let snapshot = Snapshot { size: fs::metadata(&path)?.len(), path, taken };
    Ok((snapshot, contents))
}

/// Removes the oldest snapshots, if that helps, until `size` bytes fit on the data disk and a fifth of it stays free.
/// `free` and `whole` are in bytes.
fn make_room(root: &Path, size: u64, (free, whole): (u64, u64), now: SystemTime) -> anyhow::Result<()> {
    let needed = size.saturating_add(RESERVE.max(whole / 5));
    let older: Vec<Snapshot> = list(root, now)?.into_iter().skip(2).collect();
    let gained: u64 = older.iter().map(|snapshot| snapshot.size).sum();
    if free.saturating_add(gained) < needed {
        bail!("a snapshot takes {} MiB, and only {} MiB are free on the data disk", size >> 20, free >> 20);
    }
    remove_oldest(older, free, needed)
}

/// Removes the oldest of `older`, which has the newest first, until `needed` bytes are free.
fn remove_oldest(mut older: Vec<Snapshot>, mut free: u64, needed: u64) -> anyhow::Result<()> {
    while free < needed
        && let Some(oldest) = older.pop()
    {
        files::remove(&oldest.path).with_context(|| format!("removing {}", oldest.path.display()))?;
        log::warn!("removed the snapshot {} to make room", oldest.name());
        free += oldest.size;
    }
    Ok(())
}

/// If a tenth of the data disk or less is free, removes the oldest snapshots until there is more. The newest always
/// stays. etcd does not survive a full disk.
pub fn relieve(root: &Path) -> anyhow::Result<()> {
    relieve_of(root, room(&files::below(root, paths::DATA)).context("looking at the free space")?, SystemTime::now())
}

/// How many bytes of the file system at `path` are free, and how many it has.
pub fn room(path: &Path) -> io::Result<(u64, u64)> {
    let disk = nix::sys::statvfs::statvfs(path)?;
    let bytes = |blocks: u64| disk.fragment_size() * blocks;
    Ok((bytes(disk.blocks_available()), bytes(disk.blocks())))
}

fn relieve_of(root: &Path, (free, whole): (u64, u64), now: SystemTime) -> anyhow::Result<()> {
    let needed = RESERVE.max(whole / 10);
    if free >= needed {
        return Ok(());
    }
    remove_oldest(list(root, now)?.into_iter().skip(1).collect(), free, needed)
}

/// Saves the store of this node's member as a verified, complete file, or leaves no file. While there is a quorum, it
/// has all writes that were acknowledged before.
pub fn save(node: &ControlNode, root: &Path, runner: &dyn Runner, to: &Path) -> anyhow::Result<Contents> {
    let temporary = files::beside(to).with_context(|| format!("{} is not a file's name", to.display()))?;
    let saved = fetch(node, root, runner, &temporary).and_then(|contents| {
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        File::open(&temporary)?.sync_all()?;
        files::put_in_place(&temporary, to)?;
        Ok(contents)
    });
    if saved.is_err() {
        // Also the file that an interrupted etcdctl leaves.
        for leftover in [temporary.clone(), temporary.with_extension("new.part")] {
            let _ = fs::remove_file(leftover);
        }
    }
    saved.with_context(|| format!("saving a snapshot as {}", to.display()))
}

fn fetch(node: &ControlNode, root: &Path, runner: &dyn Runner, to: &Path) -> anyhow::Result<Contents> {
    let pki = files::below(root, PKI).join("etcd");
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.join(name).display());
    let etcdctl = || {
        Command::new("etcdctl")
            .arg(format!("--endpoints={}", client_url(node)))
            .arg(file("cacert", "ca.crt"))
            .arg(file("cert", "healthcheck-client.crt"))
            .arg(file("key", "healthcheck-client.key"))
    };
    // A follower answers a linearizable read once it has applied all writes that the others had acknowledged by then.
    if let Err(error) = runner.run(&etcdctl().args(["get", "--keys-only", "--consistency=l", "kaas"])) {
        log::warn!("this member may lack the last writes, and so may the snapshot: {error}");
    }
    runner.run(&etcdctl().args(["snapshot", "save"]).arg(to).within(LONG))?;
    examine(runner, to)
}

pub fn examine(runner: &dyn Runner, file: &Path) -> anyhow::Result<Contents> {
    let status = Command::new("etcdutl").args(["--write-out=json", "snapshot", "status"]).arg(file).within(LONG);
    let said = runner.run(&status)?;
    serde_json::from_slice(&said).context("understanding what etcdutl says of the snapshot")
}

/// Removes all but the newest [`KEPT`] and the last one of each day within [`REACH`], and incomplete files. Without the
/// daily ones, frequent snapshots would cover only the last few hours. A mistake may be found later.
fn prune(root: &Path, now: SystemTime) -> io::Result<()> {
    let mut later: Option<Snapshot> = None;
    for (index, snapshot) in list(root, now)?.into_iter().enumerate() {
        let is_last_of_day = later.as_ref().is_none_or(|later| later.day() != snapshot.day());
        let is_within_reach = snapshot.age(now).is_some_and(|age| age < REACH);
        if index >= KEPT && !(is_last_of_day && is_within_reach) {
            files::remove(&snapshot.path)?;
        }
        later = Some(snapshot);
    }
    const ABANDONED: Duration = Duration::from_secs(3600);
    for entry in fs::read_dir(directory(root))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let abandoned = entry.metadata()?.modified()?.elapsed().is_ok_and(|age| age > ABANDONED);
        if name.starts_with('.') && name.contains(".db.new") && abandoned {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::host::command::Error;
    use crate::intake::config::fixture::three_nodes;

    /// Writes the file for etcdctl, and reports on it as etcdutl does.
    struct Etcd {
        intact: bool,
        /// Whether it has caught up with the other members.
        current: AtomicBool,
    }

    impl Etcd {
        fn new(intact: bool) -> Self {
            Self { intact, current: AtomicBool::new(false) }
        }
    }

    impl Runner for Etcd {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let line = command.to_string();
            let file = line.rsplit(' ').next().unwrap();
            if line.contains(" get ") {
                assert!(line.starts_with("etcdctl ") && line.contains("--consistency=l"), "{line}");
                self.current.store(true, Ordering::SeqCst);
                return Ok(Vec::new());
            }
            if line.starts_with("etcdctl ") {
                assert!(self.current.load(Ordering::SeqCst), "a snapshot of a member that may lag behind");
                fs::write(file, "a store").unwrap();
                return Ok(Vec::new());
            }
            if self.intact {
                return Ok(br#"{"hash":1,"revision":7,"totalKey":3,"totalSize":9,"version":"3.6.0"}"#.to_vec());
            }
            let source = io::Error::other("snapshot file integrity check failed");
            Err(Error::Start { command: line, source })
        }
    }

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn snapshot_has_cluster_and_time_in_its_name() {
        let root = tempfile::tempdir().unwrap();
        let node = three_nodes().cluster.control_nodes[0].clone();
        let now = at("2026-11-21T14:30:05Z");
        let path = directory(root.path()).join(name("my-cluster", now));
        fs::create_dir_all(directory(root.path())).unwrap();
        let contents = save(&node, root.path(), &Etcd::new(true), &path).unwrap();
        assert_eq!(contents, Contents { revision: 7, total_key: 3, version: "3.6.0".into() });
        let [snapshot] = &list(root.path(), now).unwrap()[..] else { panic!("not one snapshot") };
        assert_eq!(snapshot.name(), "my-cluster-20261121T143005Z.db");
        assert_eq!(fs::metadata(&snapshot.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(snapshot.age(now + Duration::from_secs(5)), Some(Duration::from_secs(5)));
        assert_eq!(snapshot.age(now - Duration::from_secs(5)), None);
    }

    #[test]
    fn damaged_snapshot_is_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let node = three_nodes().cluster.control_nodes[0].clone();
        let saved = save(&node, root.path(), &Etcd::new(false), &root.path().join("c.db"));
        assert!(format!("{:#}", saved.unwrap_err()).contains("integrity check failed"));
        assert_eq!(names(root.path()), [""; 0]);
    }

    #[test]
    fn prune_keeps_newest_snapshots_and_other_files() {
        let root = tempfile::tempdir().unwrap();
        let now = at("2026-11-22T00:00:00Z");
        let directory = directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        for hour in 0..15 {
            fs::write(directory.join(format!("c-20261121T{hour:02}0000Z.db")), "").unwrap();
        }
        for other in ["mine.db", "c-20261321T000000Z.db", "c-20261121T000000.db", ".c-20261121T990000Z.db.new"] {
            fs::write(directory.join(other), "").unwrap();
        }
        prune(root.path(), now).unwrap();
        let kept = list(root.path(), now).unwrap();
        assert_eq!(kept.len(), KEPT);
        assert_eq!((kept[0].taken.as_str(), kept[11].taken.as_str()), ("2026-11-21T14:00:00Z", "2026-11-21T03:00:00Z"));
        assert_eq!(names(&directory).len(), KEPT + 4);
    }

    /// The remaining snapshots after some days with one at each pause, and a little later: the check runs each minute.
    fn left_after(hours: u64, pause: Duration) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let directory = directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        let mut now = at("2026-11-10T00:00:00Z");
        let end = now + Duration::from_secs(hours * 3600);
        while now < end {
            fs::write(directory.join(name("c", now)), "").unwrap();
            prune(root.path(), now).unwrap();
            now += pause + Duration::from_secs(10);
        }
        list(root.path(), now).unwrap().into_iter().map(|one| one.taken).collect()
    }

    #[test]
    fn frequent_snapshots_leave_one_of_each_day() {
        let left = left_after(5 * 24 + 12, Duration::from_secs(15 * 60));
        assert!(left[0].starts_with("2026-11-15T11:") && left[KEPT - 1].starts_with("2026-11-15T09:"), "{left:?}");
        let days: Vec<&str> = left[KEPT..].iter().map(|taken| &taken[..13]).collect();
        assert_eq!(days, ["2026-11-14T23", "2026-11-13T23", "2026-11-12T23"]);
    }

    #[test]
    fn other_paces_keep_only_the_newest() {
        for hours in [6, 24, 7 * 24] {
            assert_eq!(left_after(120 * 24, Duration::from_secs(hours * 3600)).len(), KEPT, "{hours}");
        }
    }

    #[test]
    fn older_snapshots_make_room_if_that_helps() {
        let root = tempfile::tempdir().unwrap();
        let now = at("2026-11-22T00:00:00Z");
        let directory = directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        for hour in 0..5 {
            let file = File::create(directory.join(format!("c-20261121T{hour:02}0000Z.db"))).unwrap();
            file.set_len(100 << 20).unwrap();
        }
        let whole = 10 << 30;
        make_room(root.path(), 100 << 20, (3 << 30, whole), now).unwrap();
        assert_eq!(list(root.path(), now).unwrap().len(), 5);
        let error = make_room(root.path(), 1 << 30, ((2 << 30) + (700 << 20), whole), now).unwrap_err().to_string();
        assert_eq!(error, "a snapshot takes 1024 MiB, and only 2748 MiB are free on the data disk");
        assert_eq!(list(root.path(), now).unwrap().len(), 5);
        make_room(root.path(), 1 << 30, ((2 << 30) + (900 << 20), whole), now).unwrap();
        let left = list(root.path(), now).unwrap();
        assert_eq!((left.len(), left[2].taken.as_str()), (3, "2026-11-21T02:00:00Z"));
        // In an emergency all but the newest are removed, and no more than needed.
        relieve_of(root.path(), (1 << 30, whole), now).unwrap();
        assert_eq!(list(root.path(), now).unwrap().len(), 3);
        relieve_of(root.path(), ((1 << 30) - (50 << 20), whole), now).unwrap();
        assert_eq!(list(root.path(), now).unwrap().len(), 2);
        relieve_of(root.path(), (0, whole), now).unwrap();
        let [newest] = &list(root.path(), now).unwrap()[..] else { panic!("not one snapshot") };
        assert_eq!(newest.taken, "2026-11-21T04:00:00Z");
    }

    #[test]
    fn snapshots_from_the_future_count_as_oldest() {
        let root = tempfile::tempdir().unwrap();
        let directory = directory(root.path());
        fs::create_dir_all(&directory).unwrap();
        let now = at("2026-11-22T00:00:00Z");
        let lay = |name: &str| fs::write(directory.join(format!("c-{name}.db")), "").unwrap();
        for hour in 0..KEPT {
            lay(&format!("20261121T{hour:02}0000Z"));
        }
        lay("20270601T000000Z");
        lay("20280601T000000Z");
        let taken = || list(root.path(), now).unwrap().into_iter().map(|one| one.taken).collect::<Vec<_>>();
        assert_eq!((taken()[0].as_str(), taken()[KEPT + 1].as_str()), ("2026-11-21T11:00:00Z", "2027-06-01T00:00:00Z"));
        // No snapshot with a true time is removed for them …
        prune(root.path(), now).unwrap();
        assert_eq!((taken().len(), taken()[KEPT - 1].as_str()), (KEPT, "2026-11-21T00:00:00Z"));
        // … and in an emergency the newest with a true time stays.
        lay("20270601T000000Z");
        relieve_of(root.path(), (0, 10 << 30), now).unwrap();
        assert_eq!(taken(), ["2026-11-21T11:00:00Z"]);
    }
}
