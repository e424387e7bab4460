use contract::swap::VmImage;
use uuid::Uuid;

use super::super::fixture::{self, Machine, OWN, name, put, run};
use super::super::{frame, slots};
use super::*;
use crate::host::command::Host;

/// Prepares a disk without the kernel's support for partitions: writes a table and the identity.
fn made(machine: &Machine, path: &Path) -> Identity {
    let disk = Disk::open(path, &machine.platform()).unwrap();
    let identity = Identity { disk: Uuid::new_v4(), holder: Some(machine.uuid), ..fixture::identity() };
    layout::write_table(path, identity.disk, disk.size, 512, &Host).unwrap();
    slots::write(path, &identity).unwrap();
    slots::write(path, &identity).unwrap();
    identity
}

fn flip(path: &Path, place: u64) {
    use std::os::unix::fs::FileExt;
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, place).unwrap();
    put(path, place, &[!byte[0]]);
}

fn codes(codes: &[&str]) -> Vec<String> {
    codes.iter().map(|code| (*code).to_owned()).collect()
}

#[test]
fn missing_disk_is_absent() {
    assert_eq!(Machine::new().verdict(), ("absent", codes(&["disk.absent"])));
}

#[test]
fn two_blank_disks_are_ambiguous() {
    let mut machine = Machine::new();
    machine.add("one");
    assert_eq!(machine.verdict(), ("blank", codes(&[])));
    machine.add("two");
    let examination = machine.examine();
    assert_eq!(name(&examination.data_disk), "ambiguous");
    let said = examination.findings.to_string();
    assert!(said.contains("disks/one") && said.contains("disks/two"), "{said}");
}

#[test]
fn small_blank_disk_is_too_small() {
    let mut machine = Machine::new();
    machine.add_sized("small", 1 << 30);
    assert_eq!(machine.verdict(), ("blank", codes(&["disk.too-small"])));
}

#[test]
fn other_formats_are_foreign_and_named() {
    type Leave = &'static dyn Fn(&Path);
    let cases: [(&str, Leave); 9] = [
        ("ext4", &|disk| drop(run("mkfs.ext4", &["-q", "-F", disk.to_str().unwrap()]))),
        ("swap", &|disk| drop(run("mkswap", &[disk.to_str().unwrap()]))),
        ("gpt", &|disk| {
            let script = "label: gpt\n,1G\n";
            let command = Command::new("sfdisk").arg("-q").arg(disk).input(script);
            Host.run(&command).unwrap();
        }),
        ("LVM2_member", &|disk| {
            // The label's checksum covers all that follows it in the sector.
            let mut label = [0; 512];
            label[..16].copy_from_slice(b"LABELONE\x01\0\0\0\0\0\0\0");
            label[20..32].copy_from_slice(b"\x20\0\0\0LVM2 001");
            let sum = label[20..].iter().fold(0xf597_a6cfu32, |sum, byte| {
                (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (0u32.wrapping_sub(sum & 1))))
            });
            label[16..20].copy_from_slice(&sum.to_le_bytes());
            put(disk, 512, &label);
        }),
        ("crypto_LUKS", &|disk| {
            put(disk, 0, b"LUKS\xba\xbe\x00\x01aes");
            put(disk, 168, b"8a7d0fb4-5e29-4f5b-9e0b-0a0f2a3f1b2c");
        }),
        // One ZFS uberblock in the last label: it has no valid checksum, but the disk is not blank.
        ("data that no known format explains", &|disk| {
            put(disk, MINIMUM_SIZE - (256 << 10) + (128 << 10), &0x00ba_b10cu64.to_le_bytes());
        }),
        // A RAID superblock of format 0.90 near the end.
        ("linux_raid_member", &|disk| {
            put(disk, MINIMUM_SIZE - (64 << 10), &0xa92b_4efcu32.to_le_bytes());
        }),
        // VMFS volume and file system heads.
        ("VMFS", &|disk| put(disk, 1 << 20, &0xc001_d00du32.to_le_bytes())),
        // Encrypted data without a header.
        ("data that no known format explains", &|disk| put(disk, 3 << 30, &[0x5a; 4096])),
    ];
    for (what, leave) in cases {
        let mut machine = Machine::new();
        let disk = machine.add("used");
        leave(&disk);
        let examination = machine.examine();
        assert_eq!(name(&examination.data_disk), "foreign", "{what}");
        let said = examination.findings.to_string();
        assert!(said.contains("disk.foreign") && said.contains(what), "{what}: {said}");
        assert!(examination.data_disk.target().is_none());
    }
}

#[test]
fn blkid_without_result_does_not_prove_blank() {
    struct FindsNothing;
    impl Runner for FindsNothing {
        fn run(&self, _: &Command) -> Result<Vec<u8>, Error> {
            use std::os::unix::process::ExitStatusExt;
            let status = std::process::ExitStatus::from_raw(2 << 8);
            Err(Error::Failed { command: "blkid".into(), status, tail: String::new() })
        }
    }
    let mut machine = Machine::new();
    let disk = machine.add("used");
    put(&disk, 700 << 20, &[1]);
    let examination =
        examine(&machine.platform(), &machine.claimant(), machine.directory.path(), &FindsNothing).unwrap();
    assert_eq!(name(&examination.data_disk), "foreign");
}

#[test]
fn blank_disk_waits_for_a_foreign_one() {
    let mut machine = Machine::new();
    machine.add("empty");
    let used = machine.add("used");
    put(&used, 0, b"something");
    assert_eq!(machine.verdict(), ("foreign", codes(&["disk.waiting", "disk.foreign"])));
}

#[test]
fn own_disk_is_adopted_and_others_are_spared() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    let identity = made(&machine, &disk);
    machine.add("empty");
    let used = machine.add("used");
    put(&used, 0, b"something");
    let examination = machine.examine();
    assert_eq!(examination.findings.iter().map(|f| f.code.as_str()).collect::<Vec<_>>(), ["disk.spare", "disk.spare"]);
    let DataDisk::Ours { identity: found, .. } = examination.data_disk else { panic!("not ours") };
    assert_eq!(found, identity);
}

#[test]
fn two_own_disks_are_ambiguous() {
    let mut machine = Machine::new();
    for name in ["one", "two"] {
        let disk = machine.add(name);
        made(&machine, &disk);
    }
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.ambiguous", "disk.ambiguous"])));
}

/// A new VM has its own blank data disk, and other disks are attached to it.
#[test]
fn disks_of_a_swap_are_judged_before_writes() {
    use crate::host::disk::Swap;
    use contract::swap::Image;
    const OTHER: Uuid = Uuid::from_u128(77);
    type Change = fn(Identity) -> Identity;
    // The attached disks (`None` is blank), the verdict and the codes.
    type Case<'a> = (&'a str, &'a [Option<Change>], &'a str, &'a [&'a str]);
    let ours: Change = |identity| identity;
    let released: Change = |identity| Identity { holder: None, ..identity };
    let held: Change = |identity| Identity { holder: Some(OTHER.into()), ..identity };
    let other_image: Change = |identity| {
        let (version, build) = (String::from("9.0.0"), String::from("another"));
        let from = VmImage { vm: Some(OTHER.into()), version: version.clone(), build: String::new() };
        let to = Some(Image { version, build });
        let swap = Swap { id: OTHER, from, to, released: None, forced: false, publisher: None };
        Identity { holder: None, swap: Some(swap), ..identity }
    };
    let newer: Change = |identity| Identity { holder: None, image_version: "9.0.0".into(), ..identity };
    let table: [Case; 10] = [
        ("blank alone", &[None], "blank", &[]),
        ("two blank ones", &[None, None], "ambiguous", &["disk.ambiguous"]),
        ("released and blank", &[None, Some(released)], "ours", &["disk.spare"]),
        ("ours and two blank ones", &[None, Some(ours), None], "ours", &["disk.spare", "disk.spare"]),
        ("held elsewhere and blank", &[None, Some(held)], "held elsewhere", &["disk.spare", "disk.held-elsewhere"]),
        (
            "for another image and blank",
            &[Some(other_image), None],
            "held elsewhere",
            &["disk.spare", "disk.other-image"],
        ),
        ("of a newer image and blank", &[Some(newer), None], "held elsewhere", &["disk.spare", "image.downgrade"]),
        ("two of one node", &[Some(ours), Some(released)], "ambiguous", &["disk.ambiguous"; 2]),
        ("ours and one held elsewhere", &[Some(ours), Some(held)], "ambiguous", &["disk.ambiguous"; 2]),
        ("two of one node and blank", &[Some(held), None, Some(held)], "ambiguous", &["disk.ambiguous"; 2]),
    ];
    for (what, disks, verdict, expected) in table {
        let mut machine = Machine::new();
        let mut all = Vec::new();
        for (number, change) in disks.iter().enumerate() {
            let disk = machine.add(&number.to_string());
            if let Some(change) = change {
                let identity = change(made(&machine, &disk));
                slots::write(&disk, &identity).unwrap();
            }
            all.push(disk);
        }
        let before: Vec<_> = all.iter().map(|disk| Slots::read(disk).unwrap()).collect();
        assert_eq!(machine.verdict(), (verdict, codes(expected)), "{what}");
        let after: Vec<_> = all.iter().map(|disk| Slots::read(disk).unwrap()).collect();
        assert_eq!(before, after, "{what}");
        // Only a single blank disk may be prepared.
        assert_eq!(machine.examine().data_disk.target().is_some(), verdict == "blank", "{what}");
    }
}

#[test]
fn disk_of_another_vm_requires_its_release() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    let identity = made(&machine, &disk);
    // The VM's own agent reads the UUID in the other byte order.
    machine.uuid = OWN.swapped();
    assert_eq!(machine.verdict(), ("ours", codes(&[])));
    machine.uuid = BiosUuid::from_u128(77);
    let examination = machine.examine();
    assert_eq!(name(&examination.data_disk), "held elsewhere");
    let said = examination.findings.to_string();
    assert!(said.contains("disk.held-elsewhere") && said.contains(&OWN.for_search()), "{said}");
    slots::write(&disk, &Identity { holder: None, ..identity }).unwrap();
    assert_eq!(machine.verdict(), ("ours", codes(&[])));
}

#[test]
fn disk_with_damaged_slots_is_never_blank() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    made(&machine, &disk);
    flip(&disk, layout::IDENTITY_A + 200);
    assert_eq!(machine.verdict(), ("ours", codes(&["disk.identity-damaged"])));
    flip(&disk, layout::IDENTITY_B + 200);
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.ambiguous"])));
    // Without both marks the partitions remain.
    put(&disk, layout::IDENTITY_A, &[0; slots::SLOT_SIZE]);
    put(&disk, layout::IDENTITY_B, &[0; slots::SLOT_SIZE]);
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.ambiguous"])));
    // No blank disk is taken in its place.
    machine.add("empty");
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.ambiguous"])));
}

#[test]
fn newer_identity_is_reported_with_its_image() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    let identity = Identity { node: "cp1".into(), image_version: "9.0.0".into(), ..made(&machine, &disk) };
    slots::write(&disk, &identity).unwrap();
    slots::write(&disk, &identity).unwrap();
    let mut later = serde_json::to_value(&identity).unwrap();
    later["new"] = 1.into();
    let block = frame::encode(b"KaaSIDNT", 9, later.to_string().as_bytes(), slots::SLOT_SIZE).unwrap();
    put(&disk, layout::IDENTITY_A, &block);
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.newer"])));
    let said = machine.examine().findings.to_string();
    assert!(said.contains("last used by node cp1 with image 9.0.0"), "{said}");
    assert!(!said.contains("format"), "{said}");
}

#[test]
fn identity_with_another_partition_table_is_ambiguous() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    made(&machine, &disk);
    Host.run(&Command::new("sfdisk").args(["-q", "--wipe=never"]).arg(&disk).input("label: gpt\nstart=40960\n"))
        .unwrap();
    let examination = machine.examine();
    assert_eq!(name(&examination.data_disk), "ambiguous");
    assert!(examination.findings.to_string().contains("partition table is another one"));
}

#[test]
fn enlarged_disk_is_still_the_nodes_own() {
    let mut machine = Machine::new();
    let disk = machine.add("ours");
    made(&machine, &disk);
    std::fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(MINIMUM_SIZE + (1 << 30)).unwrap();
    assert_eq!(machine.verdict(), ("ours", codes(&[])));
}

#[test]
fn unreadable_disk_prevents_the_choice() {
    let mut machine = Machine::new();
    machine.add("empty");
    machine.add_device(Path::new("/disks/missing"));
    assert_eq!(machine.verdict(), ("ambiguous", codes(&["disk.unreadable"])));
}
