use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::sys::statvfs::{FsFlags, statvfs};

use super::super::fixture::{self, Loop, Machine, OWN, alone, name, put, run, unmount};
use super::super::{MINIMUM_SIZE, Owner, layout, mount_volumes, prepare, slots};
use super::*;
use crate::host::command::Host;
use contract::paths;

const KNOWN: Uuid = Uuid::from_u128(0xd15c);

fn volumes(hash: &str) -> Option<LocalVolumes> {
    Some(LocalVolumes { ca_hash: hash.to_owned() })
}

/// Writes the table and this identity.
fn lay(machine: &Machine, path: &Path, identity: &Identity) {
    let disk = Disk::open(path, &machine.platform()).unwrap();
    layout::write_table(path, identity.disk, disk.size, 512, &Host).unwrap();
    for _ in 0..2 {
        slots::write(path, identity).unwrap();
    }
}

/// The identity of the disk of worker `node` in the cluster with this CA, held by another VM.
fn of(node: &str, hash: &str) -> Identity {
    Identity {
        disk: KNOWN,
        node: node.to_owned(),
        holder: Some(BiosUuid::from_u128(9)),
        state: DiskState::Formed,
        local_volumes: volumes(hash),
        ..fixture::identity()
    }
}

fn owner(expected: Expected) -> VolumesOwner {
    VolumesOwner { ca_hash: "sha256:ours".to_owned(), node: "worker1".to_owned(), expected }
}

/// The verdict of worker1 on its disks with this expectation, and the codes.
fn verdict(machine: &Machine, expected: Expected) -> (&'static str, Vec<String>) {
    let disks = Disks::look(&machine.platform(), machine.directory.path(), &Host).unwrap();
    let examination = disks.for_worker(&owner(expected));
    (name(&examination.data_disk), examination.findings.iter().map(|finding| finding.code.clone()).collect())
}

/// The verdicts of a worker that may take a disk, of one that has joined without, and of one that has a disk.
fn verdicts(machine: &Machine) -> [String; 3] {
    [Expected::Any, Expected::Nothing, Expected::Disk(KNOWN)].map(|expected| {
        let (name, codes) = verdict(machine, expected);
        format!("{name} {}", codes.join(" ")).trim_end().to_owned()
    })
}

#[test]
fn missing_disk_is_reported_only_if_recorded() {
    assert_eq!(verdicts(&Machine::new()), ["absent", "absent", "ambiguous disk.volumes-absent"]);
}

#[test]
fn blank_disk_is_taken_only_before_the_join() {
    let mut machine = Machine::new();
    machine.add("one");
    assert_eq!(verdicts(&machine), ["blank", "absent disk.spare", "ambiguous disk.volumes-absent"]);
    machine.add("two");
    assert_eq!(
        verdicts(&machine),
        ["ambiguous disk.ambiguous", "absent disk.spare disk.spare", "ambiguous disk.volumes-absent"]
    );
    let mut machine = Machine::new();
    machine.add_sized("small", 1 << 30);
    assert_eq!(verdicts(&machine)[0], "blank disk.too-small");
}

#[test]
fn foreign_disk_is_refused_only_before_the_join() {
    let mut machine = Machine::new();
    let path = machine.add("used");
    run("mkswap", &[path.to_str().unwrap()]);
    assert_eq!(verdicts(&machine), ["foreign disk.foreign", "absent", "ambiguous disk.volumes-absent"]);
    machine.add("empty");
    assert_eq!(verdicts(&machine)[0], "foreign disk.foreign disk.waiting");
}

#[test]
fn worker_takes_its_nodes_disk_from_any_vm() {
    for holder in [Some(OWN), Some(BiosUuid::from_u128(9)), None] {
        let mut machine = Machine::new();
        let path = machine.add("disk");
        lay(&machine, &path, &Identity { holder, ..of("worker1", "sha256:ours") });
        assert_eq!(verdicts(&machine), ["ours", "ours", "ours"], "{holder:?}");
        // With disks of pods in addition.
        run("mkswap", &[machine.add("pods").to_str().unwrap()]);
        assert_eq!(verdicts(&machine), ["ours", "ours", "ours"], "{holder:?}");
        // It is not the worker's former disk.
        assert_eq!(verdict(&machine, Expected::Disk(OWN.orders()[0])).1, ["disk.volumes-absent"]);
        // It is unknown which of two is the right one.
        let copy = machine.add("copy");
        lay(&machine, &copy, &of("worker1", "sha256:ours"));
        assert_eq!(verdicts(&machine), ["ambiguous disk.ambiguous disk.ambiguous"; 3], "{holder:?}");
    }
}

#[test]
fn disk_of_another_node_is_refused() {
    for (node, hash) in [("worker2", "sha256:ours"), ("worker1", "sha256:of a cluster of the same name")] {
        let mut machine = Machine::new();
        let path = machine.add("disk");
        lay(&machine, &path, &of(node, hash));
        let refused = "ambiguous disk.of-worker";
        assert_eq!(verdicts(&machine), [refused, refused, "ambiguous disk.of-worker disk.volumes-absent"], "{node}");
        machine.add("empty");
        assert_eq!(verdicts(&machine)[0], refused, "none is taken in its stead");
    }
    let mut machine = Machine::new();
    let path = machine.add("disk");
    lay(&machine, &path, &fixture::identity());
    assert_eq!(verdicts(&machine), ["ambiguous disk.beside-worker"; 3]);
}

#[test]
fn damaged_disk_prevents_taking_another() {
    let mut machine = Machine::new();
    let path = machine.add("disk");
    lay(&machine, &path, &of("worker1", "sha256:ours"));
    for place in [layout::IDENTITY_A, layout::IDENTITY_B] {
        put(&path, place + 100, b"damage");
    }
    let damaged = "ambiguous disk.ambiguous";
    assert_eq!(verdicts(&machine), [damaged, "absent", "ambiguous disk.ambiguous disk.volumes-absent"]);
    machine.add("empty");
    assert_eq!(verdicts(&machine)[0], damaged);
    // The worker's own disk is known by its GUID, with any other disks.
    let own = machine.add("own");
    lay(&machine, &own, &of("worker1", "sha256:ours"));
    assert_eq!(verdicts(&machine), [damaged, "ours disk.spare", "ours disk.spare"]);
}

#[test]
fn control_plane_node_refuses_a_workers_disk() {
    let codes = |codes: &[&str]| codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>();
    // Not even from its own VM, which was a worker before.
    let mut machine = Machine::new();
    let path = machine.add("disk");
    lay(&machine, &path, &Identity { holder: Some(OWN), ..of("worker1", "sha256:ours") });
    assert_eq!(machine.verdict(), ("foreign", codes(&["disk.of-worker"])));
    assert!(machine.examine().findings.to_string().contains("worker worker1 of cluster alpha"));
    machine.add("empty");
    assert_eq!(machine.verdict(), ("foreign", codes(&["disk.of-worker", "disk.waiting"])));
    let mut machine = Machine::new();
    let path = machine.add("disk");
    lay(&machine, &path, &of("worker1", "sha256:ours"));
    let own = machine.add("own");
    lay(&machine, &own, &fixture::identity());
    assert_eq!(machine.verdict(), ("ours", codes(&["disk.spare"])));
}

#[test]
fn erasure_is_marked_for_its_own_vm() {
    let mut machine = Machine::new();
    let path = machine.add("disk");
    let erasing = |holder| Identity { holder, state: DiskState::Erasing, ..of("worker1", "sha256:ours") };
    let marked = |machine: &Machine| {
        let disks = Disks::look(&machine.platform(), machine.directory.path(), &Host).unwrap();
        (disks.erasing_volumes(machine.platform().bios_uuid()).is_some(), taken(&machine.platform()).unwrap().len())
    };
    lay(&machine, &path, &of("worker1", "sha256:ours"));
    assert_eq!(marked(&machine), (false, 0));
    lay(&machine, &path, &erasing(Some(BiosUuid::from_u128(9))));
    assert_eq!(marked(&machine), (false, 0));
    for own in [OWN, OWN.swapped()] {
        let mut machine = Machine::new();
        let path = machine.add("disk");
        lay(&machine, &path, &erasing(Some(own)));
        assert_eq!(marked(&machine), (true, 1));
    }
}

/// A machine with a disk for local volumes on a loop device.
fn prepared() -> (Machine, Loop, Identity) {
    alone();
    let mut machine = Machine::new();
    let file = machine.directory.path().join("disk.img");
    fs::File::create(&file).unwrap().set_len(MINIMUM_SIZE).unwrap();
    let device = Loop::new(&file);
    machine.add_device(&device.device);
    let disks = Disks::look(&machine.platform(), machine.directory.path(), &Host).unwrap();
    let target = disks.for_worker(&owner(Expected::Any)).data_disk.target().unwrap();
    let whose = Owner { node: "worker1".to_owned(), local_volumes: volumes("sha256:ours"), ..fixture::owner() };
    let (_, identity) = prepare(&target, &whose, &machine.platform(), &Host).unwrap();
    (machine, device, identity)
}

fn mounted(machine: &Machine, device: &Loop, identity: &Identity) -> Result<bool, Finding> {
    let platform = machine.platform();
    mount_volumes(&Disk::open(&device.device, &platform).unwrap(), identity, &platform, &Host)
}

#[test]
fn volumes_survive_boots_and_are_usable_by_pods() {
    let (machine, device, identity) = prepared();
    assert_eq!(verdict(&machine, Expected::Disk(identity.disk)), ("ours", Vec::new()));
    assert!(mounted(&machine, &device, &identity).unwrap());
    assert!(!mounted(&machine, &device, &identity).unwrap(), "it is there");
    let point = machine.platform().path(paths::LOCAL_VOLUMES);
    let directory = fs::metadata(&point).unwrap();
    assert_eq!((directory.permissions().mode() & 0o7777, directory.uid()), (0o700, 0), "root makes volumes in it");
    let flags = statvfs(&point).unwrap().flags();
    assert!(flags.contains(FsFlags::ST_NODEV | FsFlags::ST_NOSUID) && !flags.contains(FsFlags::ST_NOEXEC), "{flags:?}");
    fs::write(point.join("pvc-1"), "rows").unwrap();
    // Only the pods can remove the data that fill it, so they must start.
    let full = fs::File::create(point.join("full")).unwrap();
    let room = statvfs(&point).unwrap();
    let room = (room.blocks_available() * room.fragment_size() - (4 << 20)) as i64;
    nix::fcntl::fallocate(&full, nix::fcntl::FallocateFlags::empty(), 0, room).unwrap();
    drop(full);
    unmount(&point);
    assert!(!point.join("pvc-1").exists());
    assert!(mounted(&machine, &device, &identity).unwrap());
    assert_eq!(fs::read_to_string(point.join("pvc-1")).unwrap(), "rows");
    unmount(&point);
}

#[test]
fn damaged_file_system_is_reported_and_not_mounted() {
    let (machine, device, identity) = prepared();
    put(&device.device, layout::DATA, &vec![0x11; 64 << 20]);
    let refused = mounted(&machine, &device, &identity).unwrap_err();
    assert_eq!(refused.code, "disk.damaged");
    assert!(refused.action.contains("reset this worker"), "{refused}");
    assert!(!crate::host::disk::is_mounted(&machine.platform().path(paths::LOCAL_VOLUMES)).unwrap());
}
