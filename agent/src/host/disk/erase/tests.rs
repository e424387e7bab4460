use std::sync::atomic::{AtomicU32, Ordering};

use super::super::fixture::{self, Machine, name, owner, put};
use super::super::{DataDisk, prepare};
use super::*;
use crate::host::command::{Error, Host};

/// A prepared disk, which is a sparse file with data at several places.
fn prepared(machine: &mut Machine) -> (Disk, Identity) {
    let path = machine.add("disk");
    let disk = Disk::open(&path, &machine.platform()).unwrap();
    let guid = uuid::Uuid::from_u128(9);
    layout::write_table(&path, guid, disk.size, disk.sector, &Host).unwrap();
    let identity = Identity { disk: guid, holder: Some(machine.uuid), state: DiskState::Formed, ..fixture::identity() };
    for _ in 0..2 {
        slots::write(&path, &identity).unwrap();
    }
    for place in [layout::LUKS_HEADER, layout::DATA + 4096, disk.size / 2, disk.size - (2 << 20)] {
        put(&path, place, b"a certificate's key");
    }
    (disk, identity)
}

fn is_zero(disk: &Disk) {
    let file = File::open(&disk.path).unwrap();
    let places =
        [(0, layout::DATA + (1 << 20)), (disk.size / 2, disk.size / 2 + 4096), (disk.size - (3 << 20), disk.size)];
    for (start, end) in places {
        assert_eq!(super::super::blank::first_content(&file, start, end).unwrap(), None);
    }
}

/// Zeroes ranges of a file by punching holes, as blkdiscard zeroes those of a block device. The power is cut before
/// range number `left`.
struct Holes {
    left: AtomicU32,
}

impl Holes {
    fn all() -> Self {
        Self { left: AtomicU32::new(u32::MAX) }
    }
}

impl Runner for Holes {
    fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
        if !command.to_string().starts_with("blkdiscard ") {
            return Host.run(command);
        }
        assert!(self.left.fetch_sub(1, Ordering::Relaxed) != 0, "power cut");
        fixture::Holes.run(command)
    }
}

#[test]
fn only_a_marked_disk_is_erased() {
    let mut machine = Machine::new();
    let (disk, identity) = prepared(&mut machine);
    assert!(erase(&disk, &Holes::all(), &mut |_| ()).unwrap_err().to_string().contains("not one that is to be erased"));
    let other = Identity { disk: uuid::Uuid::from_u128(10), ..identity.clone() };
    assert!(mark(&disk, &other).is_err());
    assert_eq!(Slots::read(&disk.path).unwrap().newest(), Some(&identity));

    mark(&disk, &identity).unwrap();
    // An agent that still runs cannot remove the mark.
    assert!(slots::write(&disk.path, &identity).unwrap_err().to_string().contains("marked to be erased"));
    assert_eq!(machine.verdict(), ("ours", Vec::new()));
    let mut told = Vec::new();
    erase(&disk, &Holes::all(), &mut |share| told.push(share)).unwrap();
    assert!(told.is_sorted() && told.len() > 3 && told.last() == Some(&100), "{told:?}");
    assert_eq!(machine.verdict(), ("blank", Vec::new()));
}

#[test]
fn erasure_is_repeated_after_any_power_cut() {
    for cut in 0..9 {
        let mut machine = Machine::new();
        let (disk, identity) = prepared(&mut machine);
        mark(&disk, &identity).unwrap();
        let runner = Holes { left: AtomicU32::new(cut) };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| erase(&disk, &runner, &mut |_| ())));
        if let Ok(result) = result {
            result.unwrap();
            assert!(cut >= 7, "only {cut} moments");
            is_zero(&disk);
            continue;
        }
        match machine.examine().data_disk {
            DataDisk::Ours { disk, identity } => {
                assert_eq!(identity.state, DiskState::Erasing, "{cut}");
                erase(&disk, &Holes::all(), &mut |_| ()).unwrap();
                is_zero(&disk);
            }
            // The identity is erased, and all content before it: the disk can be prepared like a blank one.
            interrupted => assert_eq!(name(&interrupted), "interrupted", "{cut}"),
        }
    }
}

#[test]
fn erased_disk_can_be_prepared_again() {
    let mut machine = Machine::new();
    let (disk, identity) = prepared(&mut machine);
    mark(&disk, &identity).unwrap();
    erase(&disk, &Holes::all(), &mut |_| ()).unwrap();
    assert!(machine.examine().data_disk.target().is_some());
    // A plain file has no partition devices, so the preparation ends there.
    let target = machine.examine().data_disk.target().unwrap();
    let error = prepare(&target, &owner(), &machine.platform(), &Host).unwrap_err();
    assert!(error.seen.contains("reaching its data partition"), "{error}");
    assert_eq!(machine.verdict().0, "interrupted");
}
