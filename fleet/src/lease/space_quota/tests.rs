use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

use nix::unistd::{Uid, setfsuid};

use super::*;

/// The quotas of directories with these names and a common parent.
fn of(shared: &Path, budget: Budget, names: &[&str]) -> Vec<SpaceQuota> {
    let promised = Promised::default();
    let room = |name: &&str| {
        let directory = shared.join(name);
        fs::create_dir(&directory).unwrap();
        SpaceQuota::within(directory, budget, promised.clone())
    };
    names.iter().map(room).collect()
}

/// Writes a file of this size and age.
fn keeps(shared: &Path, file: &str, bytes: usize, hours: u64) {
    fs::write(shared.join(file), vec![1; bytes]).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(hours * 60 * 60);
    fs::File::options().write(true).open(shared.join(file)).unwrap().set_modified(modified).unwrap();
}

#[test]
fn quota_reserves_room_for_others_and_other_owners() {
    let budget = Budget { most: 60, part: 100, share: 100, reserve: 25 };
    let room = |free, others| budget.left(Used { size: 1000, free, others, own: 0 }).room();
    assert_eq!((room(1000, 0), room(1000, 50), room(290, 0)), (60, 10, 40));
    assert_eq!((room(240, 0), room(1000, 70)), (0, 0));
    let budget = Budget { most: 6000, part: 5, share: 50, reserve: 25 };
    let room = |free, others, own| budget.left(Used { size: 100_000, free, others, own }).room();
    assert_eq!((room(100_000, 0, 0), room(100_000, 3500, 0), room(26_000, 0, 0)), (2500, 1500, 1000));
    assert_eq!((room(24_000, 0, 0), room(100_000, 7000, 0), room(100_000, 2000, 2000)), (0, 0, 500));
}

#[test]
fn taken_room_counts_before_the_file_is_written() {
    let shared = tempfile::tempdir().unwrap();
    let budget = Budget { most: 3000, part: 100, share: 100, reserve: 0 };
    let rooms = of(shared.path(), budget, &["team.shop", "team.bank"]);
    let [one, other] = &rooms[..] else { panic!("two") };
    // Both have looked and got the same answer.
    assert_eq!((one.bytes(), other.bytes()), (3000, 3000));
    let (_, taken) = one.take(2000, || Ok(())).unwrap();
    let error = other.take(2000, || -> io::Result<()> { panic!("it is made") }).unwrap_err().to_string();
    assert_eq!(error, "the snapshot has 2000 bytes, and there is room for 1000");
    assert!(one.take(2000, || Ok(())).is_err(), "a second one for the same directory");
    assert!(one.take(1, || io::Result::<()>::Err(io::ErrorKind::StorageFull.into())).is_err());
    drop(taken);
    let (_, taken) = other.take(3000, || Ok(())).unwrap();
    assert_eq!(one.bytes(), 0);
    drop(taken);
    assert_eq!((one.bytes(), other.bytes()), (3000, 3000), "what has gone is forgotten");
}

#[test]
fn owner_at_its_share_leaves_room_for_others() {
    let shared = tempfile::tempdir().unwrap();
    let budget = Budget { most: 4000, part: 100, share: 50, reserve: 0 };
    let rooms = of(shared.path(), budget, &["red.shop", "red.bank", "blue.shop"]);
    keeps(shared.path(), "red.shop/before-1.db", 2000, 0);
    let bytes: Vec<u64> = rooms.iter().map(SpaceQuota::bytes).collect();
    assert_eq!(bytes, [2000, 0, 2000], "what is replaced does not count");
}

#[test]
fn short_room_evicts_only_the_oldest_unneeded_file() {
    let shared = tempfile::tempdir().unwrap();
    let budget = Budget { most: 6000, part: 100, share: 50, reserve: 0 };
    let rooms = of(shared.path(), budget, &["a.open", "b.old", "c.older", "d.shop", "d.young"]);
    for (file, bytes, hours) in
        [("a.open/1.db", 2000, 9), ("b.old/1.db", 1500, 2), ("c.older/1.db", 1500, 3), ("d.young/1.db", 500, 0)]
    {
        keeps(shared.path(), file, bytes, hours);
    }
    let (shop, there) = (&rooms[3], |file: &str| shared.path().join(file).exists());
    assert_eq!(shop.lacked(), None);
    assert!(shop.take(4000, || Ok(())).is_err());
    assert_eq!(shop.lacked(), None, "so much there never is for it");
    assert!(shop.take(1000, || Ok(())).is_err());
    assert_eq!((shop.lacked(), shop.lacked()), (Some(1000), None));
    let spare: BTreeSet<String> = ["b.old", "c.older", "d.young", "gone"].map(str::to_owned).into();
    shop.make(1000, &spare).unwrap();
    assert!(there("a.open/1.db") && there("b.old/1.db") && there("d.young/1.db") && !there("c.older/1.db"));
    drop(shop.take(1000, || Ok(())).unwrap());
    // A directory that gets a new file is left alone.
    let (_, taken) = rooms[1].take(1000, || Ok(())).unwrap();
    shop.make(2500, &spare).unwrap();
    assert!(there("b.old/1.db"));
    drop(taken);
    shop.make(2500, &spare).unwrap();
    assert!(!there("b.old/1.db") && there("d.young/1.db"));
}

#[test]
fn eviction_keeps_files_that_do_not_help() {
    let shared = tempfile::tempdir().unwrap();
    let budget = Budget { most: 6000, part: 100, share: 50, reserve: 0 };
    let rooms = of(shared.path(), budget, &["a.open", "b.small", "c.large", "d.small", "d.shop"]);
    let files =
        [("a.open/1.db", 2000, 9), ("b.small/1.db", 100, 9), ("c.large/1.db", 1500, 5), ("d.small/1.db", 50, 3)];
    for (file, bytes, hours) in files {
        keeps(shared.path(), file, bytes, hours);
    }
    let there = || files.map(|(file, ..)| shared.path().join(file).exists());
    let spare = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    // It lacks 600, and its own share has room.
    rooms[4].make(2950, &spare(&["b.small", "d.small"])).unwrap();
    assert_eq!(there(), [true; 4], "150 are not enough");
    rooms[4].make(2950, &spare(&["b.small", "c.large", "d.small"])).unwrap();
    assert_eq!(there(), [true, true, false, true], "the one that is large enough is");
    drop(rooms[4].take(2950, || Ok(())).unwrap());
    // Files of others do not extend an owner's share.
    rooms[4].make(3000, &spare(&["b.small"])).unwrap();
    assert_eq!(there(), [true, true, false, true]);
    rooms[4].make(3000, &spare(&["b.small", "d.small"])).unwrap();
    assert_eq!(there(), [true, true, false, false]);
}

/// A path to a directory through its open file, without its parent directories: other users may not be able to pass
/// those (proc(5), `/proc/pid/fd`).
fn directly(directory: &Path) -> (fs::File, PathBuf) {
    let open = fs::File::open(directory).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    (open, path)
}

/// Acts as a user who is not root, because root can read all files.
fn as_nobody<T>(act: impl FnOnce() -> T) -> T {
    let before = setfsuid(Uid::from_raw(65534));
    let done = act();
    setfsuid(before);
    done
}

#[test]
fn unreadable_file_is_logged_once_and_blocks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_open, shared) = directly(directory.path());
    let budget = Budget { most: 3000, part: 100, share: 100, reserve: 0 };
    let rooms = of(&shared, budget, &["team.shop", "team.bank", "lost", "copy"]);
    keeps(&shared, "lost/1.db", 2000, 9);
    keeps(&shared, "copy/1.db", 400, 9);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let lost = shared.join("lost");
    mode(&shared, 0o755);
    for name in ["team.shop", "team.bank", "copy"] {
        mode(&shared.join(name), 0o755);
    }
    mode(&lost, 0);
    let unread = || rooms[0].0.as_ref().unwrap().promised.lock().unread.clone();
    for room in &rooms[..2] {
        assert_eq!(as_nobody(|| room.bytes()), 2600, "what can be read counts");
        assert_eq!(unread(), BTreeSet::from([lost.clone()]));
    }
    assert!(as_nobody(|| rooms[0].take(2700, || Ok(()))).is_err());
    as_nobody(|| rooms[0].make(2700, &["lost".to_owned()].into())).unwrap();
    drop(as_nobody(|| rooms[0].take(2600, || Ok(()))).unwrap());
    mode(&lost, 0o755);
    assert_eq!((rooms[0].bytes(), unread()), (600, BTreeSet::new()), "it can be read again");
}

#[test]
fn eviction_removes_others_if_a_removal_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (_open, shared) = directly(directory.path());
    let budget = Budget { most: 3000, part: 100, share: 100, reserve: 0 };
    let rooms = of(&shared, budget, &["team.shop", "a.fixed", "b.old"]);
    keeps(&shared, "a.fixed/1.db", 1500, 9);
    keeps(&shared, "b.old/1.db", 1500, 2);
    let mode = |name: &str, mode| {
        fs::set_permissions(shared.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, bits) in [("", 0o777), ("b.old", 0o777), ("a.fixed", 0o555)] {
        mode(name, bits);
    }
    as_nobody(|| rooms[0].make(1000, &["a.fixed".to_owned(), "b.old".to_owned()].into())).unwrap();
    let there = ["a.fixed", "b.old"].map(|name| shared.join(name).join("1.db").exists());
    assert_eq!(there, [true, false]);
    mode("a.fixed", 0o755);
}
