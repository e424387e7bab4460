use std::io;

use std::cell::Cell;
use std::fs;
use std::sync::Mutex;

use contract::bios_uuid::BiosUuid;

use super::super::fixture::{Loop, Machine, OWN, alone, name, owner, put, run};
use super::super::{Slots, mount, unmount};
use super::*;
use crate::host::command::Error;
use crate::host::command::Host;

const SIZE: u64 = MINIMUM_SIZE;

/// A machine with one loop device. Its mounts are in a namespace of the test's thread and end with it.
struct Rig {
    machine: Machine,
    disk: Loop,
}

impl Rig {
    fn new() -> Self {
        let mut machine = Machine::new();
        let file = machine.directory.path().join("disk.img");
        fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
        let disk = Loop::new(&file);
        machine.add_device(&disk.device);
        Self { machine, disk }
    }

    fn examine(&self) -> DataDisk {
        self.machine.examine().data_disk
    }

    fn prepare(&self, runner: &dyn Runner) -> Result<Identity, Finding> {
        let target = self.examine().target().unwrap();
        prepare(&target, &owner(), &self.machine.platform(), runner).map(|(_, identity)| identity)
    }

    fn ours(&self) -> (Disk, Identity) {
        match self.examine() {
            DataDisk::Ours { disk, identity } => (disk, identity),
            other => panic!("{}", name(&other)),
        }
    }

    fn mount(&self) -> Result<Identity, Finding> {
        let (disk, identity) = self.ours();
        mount(&disk, &identity, &self.machine.platform(), &Host)
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.machine.directory.path().join(path)
    }
}

/// Cuts the power before or after program number `programs`.
struct Cut {
    left: Mutex<Cell<u32>>,
    after: bool,
}

impl Cut {
    fn new(programs: u32, after: bool) -> Self {
        Self { left: Mutex::new(Cell::new(programs)), after }
    }
}

impl Runner for Cut {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        let left = self.left.lock().unwrap();
        let cut = || {
            let source = io::Error::other("power cut");
            Err(Error::Start { command: command.to_string(), source })
        };
        match left.get() {
            0 => cut(),
            1 if self.after => {
                left.set(0);
                Host.run(command)?;
                cut()
            }
            more => {
                left.set(more - 1);
                Host.run(command)
            }
        }
    }
}

#[test]
fn blank_disk_is_prepared_and_keeps_data() {
    alone();
    let rig = Rig::new();
    let identity = rig.prepare(&Host).unwrap();
    assert_eq!(identity.holder, Some(OWN));
    assert_eq!(rig.ours().1, identity);
    assert!(Slots::read(&rig.disk.device).unwrap().is_redundant());

    assert_eq!(rig.mount().unwrap(), identity);
    fs::write(rig.path("var/lib/etcd/member"), "etcd").unwrap();
    fs::write(rig.path("data/record"), "kaas").unwrap();
    // Another mount changes nothing.
    assert_eq!(rig.mount().unwrap(), identity);
    unmount(&rig.machine.platform()).unwrap();
    unmount(&rig.machine.platform()).unwrap();
    assert!(!rig.path("data/record").exists() && !rig.path("var/lib/etcd/member").exists());

    rig.mount().unwrap();
    assert_eq!(fs::read_to_string(rig.path("data/etcd/member")).unwrap(), "etcd");
    assert_eq!(fs::read_to_string(rig.path("data/record")).unwrap(), "kaas");
    unmount(&rig.machine.platform()).unwrap();
}

#[test]
fn preparation_resumes_after_a_cut_at_any_program() {
    alone();
    // sfdisk --json, sfdisk, sfdisk --json, partx, mkfs.ext4.
    for programs in 0..5 {
        for after in [false, true] {
            if programs == 0 && after {
                continue;
            }
            let rig = Rig::new();
            rig.prepare(&Cut::new(programs, after)).unwrap_err();
            let state = rig.examine();
            assert_eq!(name(&state), "interrupted", "{programs} {after}");
            let DataDisk::Interrupted { preparation, .. } = state else { unreachable!() };
            let identity = rig.prepare(&Host).unwrap();
            assert_eq!(identity.disk, preparation.disk);
            rig.mount().unwrap();
            unmount(&rig.machine.platform()).unwrap();
        }
    }
}

#[test]
fn preparation_resumes_with_any_incomplete_table() {
    let mut machine = Machine::new();
    let path = machine.add("disk");
    let platform = machine.platform();
    let disk = Disk::open(&path, &platform).unwrap();
    let preparation = begin(&machine.examine().data_disk.target().unwrap(), &platform, &Host).unwrap();
    let pieces = [(0, 512), (512, 512), (1024, 16384), (SIZE - 512 - 16384, 16384), (SIZE - 512, 512u64)];
    for missing in 0..1 << pieces.len() {
        partition(&disk, &preparation, &Host).unwrap();
        for (index, (place, length)) in pieces.iter().enumerate() {
            if missing & 1 << index != 0 {
                put(&path, *place, &vec![0; *length as usize]);
            }
        }
        assert_eq!(machine.verdict().0, "interrupted", "{missing:b}");
    }
    partition(&disk, &preparation, &Host).unwrap();
    layout::check_table(&path, preparation.disk, SIZE, &Host).unwrap();
}

#[test]
fn mount_repairs_a_slot_after_a_cut() {
    alone();
    let rig = Rig::new();
    let platform = rig.machine.platform();
    let target = rig.examine().target().unwrap();
    let preparation = begin(&target, &platform, &Host).unwrap();
    let data = partition(&target.disk, &preparation, &Host).unwrap();
    format(&target.disk, &preparation, &data, &platform, &Host).unwrap();
    // A cut while the first slot is written: any of its sectors may be written.
    put(&rig.disk.device, layout::IDENTITY_B + 512, &[0x77; 4096]);
    assert_eq!(name(&rig.examine()), "interrupted");
    let identity = hand_over(&target.disk, &preparation, &owner()).unwrap();
    // A cut while the second is written: the record in slot A is partly overwritten.
    put(&rig.disk.device, layout::IDENTITY_A, &[0x77; 4096]);
    assert_eq!(rig.ours().1, identity);
    rig.mount().unwrap();
    assert!(Slots::read(&rig.disk.device).unwrap().is_redundant());
    unmount(&platform).unwrap();
}

#[test]
fn new_data_on_an_interrupted_disk_stay() {
    alone();
    let begun = |rig: &Rig| {
        let platform = rig.machine.platform();
        let target = rig.examine().target().unwrap();
        let preparation = begin(&target, &platform, &Host).unwrap();
        let data = partition(&target.disk, &preparation, &Host).unwrap();
        format(&target.disk, &preparation, &data, &platform, &Host).unwrap();
        device::partition(&rig.disk.device, 4, &data, &platform, &Host).unwrap()
    };
    // Another program mounted the file system.
    let rig = Rig::new();
    let node = begun(&rig);
    fs::create_dir(rig.path("mnt")).unwrap();
    run("mount", &[node.to_str().unwrap(), rig.path("mnt").to_str().unwrap()]);
    run("umount", &[rig.path("mnt").to_str().unwrap()]);
    assert_eq!(name(&rig.examine()), "ambiguous");
    let rig = Rig::new();
    let node = begun(&rig);
    run("mkfs.ext4", &["-q", "-F", node.to_str().unwrap()]);
    assert_eq!(name(&rig.examine()), "ambiguous");
    let rig = Rig::new();
    let node = begun(&rig);
    put(&node, 1024, &[0; 1024]);
    run("mkswap", &[node.to_str().unwrap()]);
    assert_eq!(name(&rig.examine()), "ambiguous");
    // Data in a place where a preparation writes nothing.
    let rig = Rig::new();
    begun(&rig);
    put(&rig.disk.device, layout::LUKS_HEADER + 4096, b"LUKS");
    assert_eq!(name(&rig.examine()), "ambiguous");
    // Another VM takes the disk.
    let mut rig = Rig::new();
    begun(&rig);
    rig.machine.uuid = rig.machine.uuid.swapped();
    assert_eq!(name(&rig.examine()), "interrupted", "the same VM, whose agent reads its UUID in the other order");
    rig.machine.uuid = BiosUuid::from_u128(5);
    assert_eq!(name(&rig.examine()), "ambiguous");
}

#[test]
fn disk_with_data_or_users_is_refused() {
    alone();
    let rig = Rig::new();
    let target = rig.examine().target().unwrap();
    put(&rig.disk.device, 5 << 20, b"late");
    let refused = prepare(&target, &owner(), &rig.machine.platform(), &Host).unwrap_err();
    assert!(refused.seen.contains("no longer blank"), "{refused}");

    let rig = Rig::new();
    let target = rig.examine().target().unwrap();
    run("mkfs.ext4", &["-q", "-F", rig.disk.device.to_str().unwrap()]);
    fs::create_dir(rig.path("mnt")).unwrap();
    run("mount", &[rig.disk.device.to_str().unwrap(), rig.path("mnt").to_str().unwrap()]);
    let refused = prepare(&target, &owner(), &rig.machine.platform(), &Host).unwrap_err();
    assert!(refused.code == "disk.failed" && refused.seen.contains("in use"), "{refused}");
    run("umount", &[rig.path("mnt").to_str().unwrap()]);
}

#[test]
fn unusable_data_disk_is_reported_with_its_cause() {
    alone();
    let rig = Rig::new();
    rig.prepare(&Host).unwrap();
    rig.mount().unwrap();
    let full = fs::File::create(rig.path("data/full")).unwrap();
    let room = nix::sys::statvfs::statvfs(&rig.path("data")).unwrap();
    let room = room.blocks_available() * room.fragment_size();
    nix::fcntl::fallocate(&full, nix::fcntl::FallocateFlags::empty(), 0, (room - (8 << 20)) as i64).unwrap();
    drop(full);
    assert_eq!(rig.mount().unwrap_err().code, "disk.full");
    fs::remove_file(rig.path("data/full")).unwrap();
    unmount(&rig.machine.platform()).unwrap();

    run("blockdev", &["--setro", rig.disk.device.to_str().unwrap()]);
    let findings = rig.machine.examine().findings.to_string();
    assert!(findings.contains("disk.read-only"), "{findings}");
    run("blockdev", &["--setrw", rig.disk.device.to_str().unwrap()]);

    // The superblock and its copies are lost: e2fsck cannot repair the file system.
    let node = rig.ours().0.path;
    put(&node, layout::DATA, &vec![0x11; 64 << 20]);
    assert_eq!(rig.mount().unwrap_err().code, "disk.damaged");
}

#[test]
fn mount_keeps_the_disks_holder() {
    alone();
    let mut rig = Rig::new();
    let identity = rig.prepare(&Host).unwrap();
    let released = Identity { holder: None, ..identity };
    for _ in 0..2 {
        slots::write(&rig.disk.device, &released).unwrap();
    }
    rig.machine.uuid = BiosUuid::from_u128(9);
    let before = Slots::read(&rig.disk.device).unwrap();
    assert_eq!(rig.mount().unwrap(), released);
    unmount(&rig.machine.platform()).unwrap();
    assert_eq!(Slots::read(&rig.disk.device).unwrap(), before);
}
