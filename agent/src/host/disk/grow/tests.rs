use std::os::unix::fs::FileExt;

use super::super::fixture::{Loop, Machine, name, owner, run};
use super::super::{DataDisk, Identity, MINIMUM_SIZE, Slots, mount, prepare, unmount};
use super::*;
use crate::host::command::{Error, Host};

const GROWN: u64 = MINIMUM_SIZE + (1 << 30) + 512 * 3;

fn read(disk: &Path, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    File::open(disk).unwrap().read_exact_at(&mut bytes, range.start).unwrap();
    bytes
}

fn ours(machine: &Machine) -> (Disk, Identity) {
    match machine.examine().data_disk {
        DataDisk::Ours { disk, identity } => (disk, identity),
        other => panic!("{}", name(&other)),
    }
}

fn prepared() -> (Machine, Loop) {
    let mut machine = Machine::new();
    let file = machine.directory.path().join("disk.img");
    File::create(&file).unwrap().set_len(MINIMUM_SIZE).unwrap();
    let disk = Loop::new(&file);
    machine.add_device(&disk.device);
    let target = machine.examine().data_disk.target().unwrap();
    prepare(&target, &owner(), &machine.platform(), &Host).unwrap();
    (machine, disk)
}

fn enlarge(machine: &Machine, disk: &Loop, size: u64) {
    File::options().write(true).open(machine.directory.path().join("disk.img")).unwrap().set_len(size).unwrap();
    run("losetup", &["--set-capacity", disk.device.to_str().unwrap()]);
}

/// Growing a mounted file system requires `CAP_SYS_RESOURCE`, which a test machine may not have. There resize2fs runs
/// on the unmounted file system.
struct AtRest;

impl Runner for AtRest {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        if !command.to_string().starts_with("resize2fs ") || may_resize() {
            return Host.run(command);
        }
        Host.run(&Command::new("true"))
    }
}

fn may_resize() -> bool {
    const CAP_SYS_RESOURCE: u64 = 24;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & 1 << CAP_SYS_RESOURCE != 0
}

#[test]
fn grown_disk_is_used_while_mounted() {
    super::super::fixture::alone();
    let (machine, disk) = prepared();
    let (ours_before, identity) = ours(&machine);
    mount(&ours_before, &identity, &machine.platform(), &Host).unwrap();
    fs::write(machine.directory.path().join("data/record"), "kaas").unwrap();
    assert_eq!(online(&ours_before, identity.disk, &machine.platform(), &Host), Ok(false));
    let before = read(&disk.device, layout::IDENTITY_A..layout::DATA);

    enlarge(&machine, &disk, GROWN);
    let (grown, identity_now) = ours(&machine);
    assert_eq!((grown.size, &identity_now), (GROWN, &identity));
    assert_eq!(online(&grown, identity.disk, &machine.platform(), &AtRest), Ok(true));
    assert_eq!(read(&disk.device, layout::IDENTITY_A..layout::DATA), before);
    let range = layout::check_table(&grown.path, identity.disk, GROWN, &Host).unwrap();
    assert_eq!(range, layout::data_range(GROWN));
    assert!(layout::tables_are_whole(&grown.path, GROWN, grown.sector).unwrap());

    let node = device::partition(&grown.path, layout::DATA_NUMBER, &range, &machine.platform(), &Host).unwrap();
    let length = range.end - range.start;
    if !may_resize() {
        unmount(&machine.platform()).unwrap();
        run("e2fsck", &["-f", "-p", node.to_str().unwrap()]);
        run("resize2fs", &[node.to_str().unwrap()]);
        mount(&grown, &identity, &machine.platform(), &Host).unwrap();
    }
    assert!(file_system_size(&node).unwrap() + GRAIN > length);
    assert_eq!(fs::read_to_string(machine.directory.path().join("data/record")).unwrap(), "kaas");
    assert_eq!(online(&grown, identity.disk, &machine.platform(), &Host), Ok(false));
    unmount(&machine.platform()).unwrap();
    assert!(Slots::read(&disk.device).unwrap().is_redundant());
}

#[test]
fn mount_grows_a_disk_enlarged_while_off() {
    super::super::fixture::alone();
    let (machine, disk) = prepared();
    enlarge(&machine, &disk, GROWN);
    let (grown, identity) = ours(&machine);
    mount(&grown, &identity, &machine.platform(), &AtRest).unwrap();
    assert_eq!(layout::check_table(&grown.path, identity.disk, GROWN, &Host).unwrap(), layout::data_range(GROWN));
    unmount(&machine.platform()).unwrap();
    let (_, same) = ours(&machine);
    assert_eq!(same, identity);
}

/// The power is cut after and within each piece that sfdisk writes. Its order is backup entries and header, then
/// primary entries and header.
#[test]
fn interrupted_table_write_is_completed_by_next_call() {
    let mut machine = Machine::new();
    let path = machine.add("disk");
    let guid = uuid::Uuid::from_u128(77);
    layout::write_table(&path, guid, MINIMUM_SIZE, 512, &Host).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_len(GROWN).unwrap();
    let pieces = [(GROWN - 512 - 16384, 16384), (GROWN - 512, 512), (1024, 16384), (512, 512u64)];
    let bytes = |(place, length): (u64, u64)| read(&path, place..place + length);
    let old = pieces.map(bytes);
    let disk = Disk { path: path.clone(), size: GROWN, sector: 512, read_only: false };
    assert_eq!(table(&disk, guid, &Host).unwrap(), layout::data_range(GROWN));
    let new = pieces.map(bytes);
    assert!(old.iter().zip(&new).all(|(old, new)| old != new));

    for written in 0..=pieces.len() * 2 {
        for (index, ((place, length), (old, new))) in pieces.iter().zip(old.iter().zip(&new)).enumerate() {
            let whole = written / 2;
            let half = if *length == 512 { 0 } else { 512 };
            let content = match index {
                index if index < whole => new.clone(),
                index if index == whole && written % 2 == 1 => [&new[..half], &old[half..]].concat(),
                _ => old.clone(),
            };
            file.write_all_at(&content, *place).unwrap();
        }
        let seen = layout::check_table(&path, guid, GROWN, &Host).unwrap();
        assert!([layout::data_range(MINIMUM_SIZE), layout::data_range(GROWN)].contains(&seen), "{written}");
        assert_eq!(table(&disk, guid, &Host).unwrap(), layout::data_range(GROWN), "{written}");
        assert!(layout::tables_are_whole(&path, GROWN, 512).unwrap(), "{written}");
    }
}

#[test]
fn smaller_disk_and_foreign_table_stay() {
    let mut machine = Machine::new();
    let path = machine.add("disk");
    let guid = uuid::Uuid::from_u128(77);
    layout::write_table(&path, guid, MINIMUM_SIZE, 512, &Host).unwrap();
    let before = read(&path, 0..1 << 20);
    let disk = Disk { path: path.clone(), size: MINIMUM_SIZE - (1 << 30), sector: 512, read_only: false };
    assert!(table(&disk, guid, &Host).is_err());
    let disk = Disk { size: MINIMUM_SIZE, ..disk };
    assert!(table(&disk, uuid::Uuid::from_u128(78), &Host).is_err());
    assert_eq!(read(&path, 0..1 << 20), before);
    assert!(file_system(&path, MINIMUM_SIZE, &Host).unwrap_err().contains("no ext4"));
}
