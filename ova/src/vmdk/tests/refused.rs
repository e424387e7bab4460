//! Each mistake of a VMDK, by name: a good disk, one change, and a part of the error.

use super::made::{GRAIN, Made, MadeGrain, grains, text, whole};
use super::*;

/// Checks that no function accepts it, and that unpacking leaves no file.
#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let directory = Directory::new();
    for error in [verified(bytes).map(drop), read_back(bytes, &directory.path("back")).map(drop)] {
        let error = error.expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
    assert!(!directory.path("back").exists());
}

fn changed<T>(mut value: T, change: fn(&mut T)) -> T {
    change(&mut value);
    value
}

/// Tests that change one thing in a good disk.
macro_rules! refused {
    ($($mistake:ident: $expected:literal, $change:expr;)+) => {
        $(#[test] fn $mistake() { refused(&changed(whole(), $change).bytes, $expected); })+
    };
}

/// Tests that change one of the grains before the disk is made.
macro_rules! refused_grains {
    ($($mistake:ident: $expected:literal, $change:expr;)+) => {
        $(#[test] fn $mistake() { refused(&Made::new(4 * 512, &changed(grains(), $change)).bytes, $expected); })+
    };
}

/// Tests that change one thing in a disk with its tables in front. Each has whether the tables are redundant.
macro_rules! refused_in_front {
    ($($mistake:ident: $redundant:literal $expected:literal, $change:expr;)+) => {
        $(#[test] fn $mistake() { refused(&changed(in_front($redundant), $change).bytes, $expected); })+
    };
}

#[test]
fn the_unchanged_disks_are_whole() {
    assert_eq!(whole().capacity(), 4 * 512 * GRAIN_BYTES);
    let contents = contents_of(4 * 512 * GRAIN_BYTES, 4 * GRAIN_BYTES, true);
    assert_eq!(verified(&whole().bytes).unwrap(), contents);
    let contents = contents_of(513 * GRAIN_BYTES, 3 * GRAIN_BYTES, false);
    for redundant in [false, true] {
        assert_eq!(verified(&in_front(redundant).bytes).unwrap(), contents);
    }
}

fn in_front(redundant: bool) -> Made {
    Made::with_tables_in_front(&[0, 3, 512].map(|number| MadeGrain::new(number, &text(number, GRAIN))), redundant, 20)
}

// The kind of the file.
refused! {
    an_empty_file: "ends too early", |disk| disk.bytes.clear();
    a_text_file: "letters KDMV", |disk| disk.bytes = b"# Disk DescriptorFile\n".repeat(100);
    a_file_cut_in_its_descriptor: "ends too early", |disk| disk.bytes.truncate(700);
    a_file_cut_in_a_grain: "ends too early", |disk| disk.bytes.truncate(disk.grains[1] + 600);
    a_file_cut_after_a_grain: "ends too early", |disk| disk.bytes.truncate(disk.grains[1]);
    a_file_cut_before_its_end_of_stream_marker: "ends too early", |disk| disk.bytes.truncate(disk.end());
    a_byte_behind_the_end_of_stream_marker: "something follows", |disk| disk.bytes.push(1);
    zeros_behind_the_end_of_stream_marker: "something follows", |disk| disk.bytes.extend([0; 512]);
}

// The header.
refused! {
    a_later_version: "version is 4", |disk| disk.put_u32(4, 4);
    a_flag_that_nobody_knows: "flags", |disk| disk.put_u32(8, 0x7_0001);
    grains_that_are_not_compressed: "flags", |disk| disk.put_u32(8, 0x2_0001);
    grains_without_markers: "flags", |disk| disk.put_u32(8, 0x1_0001);
    another_compression: "compression method is 2", |disk| disk.bytes[77] = 2;
    grains_of_another_size: "grains have 64", |disk| disk.put_u64(20, 64);
    tables_of_another_size: "tables 1024", |disk| disk.put_u32(44, 1024);
    no_capacity: "capacity is 0", |disk| disk.put_u64(12, 0);
    more_capacity_than_any_disk: "capacity is", |disk| disk.put_u64(12, u64::MAX);
    a_transfer_in_text_mode: "text mode", |disk| disk.bytes[75] = b'\n';
    a_descriptor_within_the_grains: "descriptor does not lie", |disk| disk.put_u64(36, 128);
    a_descriptor_in_no_place: "descriptor does not lie", |disk| disk.put_u64(28, u64::MAX);
    a_disk_without_a_descriptor: "not a streamOptimized VMDK that can be read: it has no descriptor", |disk| disk.put_u64(28, 0);
    an_overhead_without_bounds: "18446744073709551615 sectors before the grains", |disk| disk.put_u64(64, u64::MAX);
    an_overhead_beyond_the_tables: "3000 sectors before the grains", |disk| disk.put_u64(64, 3000);
    an_overhead_within_the_descriptor: "descriptor does not lie", |disk| disk.put_u64(64, 20);
    tables_that_would_fill_the_memory: "MiB of tables before the grains", |disk| {
        disk.put_u64(12, 1 << 36);
        disk.put_u64(64, 1 << 23);
    };
}

// The descriptor.
refused! {
    a_descriptor_of_a_flat_disk: "createType \"monolithicFlat\"", |disk| {
        disk.replace_in_descriptor("streamOptimized", "monolithicFlat");
    };
    a_descriptor_without_a_type: "no createType", |disk| disk.replace_in_descriptor("createType", "type");
    a_descriptor_that_is_not_text: "not text", |disk| disk.bytes[520] = 0xff;
    a_descriptor_of_two_extents: "2 extents", |disk| {
        disk.replace_in_descriptor("RDONLY", "RW 128 SPARSE \"other.vmdk\"\nRDONLY");
    };
    a_descriptor_of_another_capacity: "is not the header's", |disk| disk.replace_in_descriptor("RDONLY 2", "RDONLY 3");
    a_difference_to_another_disk: "a difference to", |disk| disk.replace_in_descriptor("ffffffff", "12345678");
}

// The grains.
refused! {
    a_grain_beyond_the_capacity: "claims sector 262144 ", |disk| disk.put_u64(disk.grains[3], 4 * 512 * 128);
    a_grain_beyond_all_disks: "claims sector 18446744073709551488 ", |disk| disk.put_u64(disk.grains[3], !127);
    a_grain_between_two_places: "claims sector 1 ", |disk| disk.put_u64(disk.grains[0], 1);
    a_grain_that_claims_gigabytes: "4294967295 bytes of compressed", |disk| disk.put_u32(disk.grains[0] + 8, u32::MAX);
    a_grain_that_claims_less_than_it_has: "grain 0 goes on after 65536 bytes", |disk| {
        disk.put_u32(disk.grains[0] + 8, disk.u32(disk.grains[0] + 8) - 1);
    };
    a_grain_that_lies_about_its_place: "grain table puts grain 2 at", |disk| disk.put_u64(disk.grains[1], 3 * 128);
    a_changed_byte_in_a_grain: "does not decompress", |disk| disk.bytes[disk.grains[2] + 600] ^= 0x55;
    a_marker_of_an_unknown_type: "no marker of type 9", |disk| disk.put_u32(disk.tables[0] - 512 + 12, 9);
}

refused_grains! {
    grains_out_of_order: "grain 0 comes after grain 2", |grains| grains.swap(0, 1);
    a_grain_that_is_there_twice: "grain 2 comes after grain 2", |grains| grains.insert(1, MadeGrain::new(2, &[1; GRAIN]));
    a_grain_bomb: "grain 2 goes on after 65536", |grains| grains[1] = MadeGrain::new(2, &[1; 30 * GRAIN]);
    a_grain_that_is_a_byte_too_long: "grain 2 goes on after 65536", |grains| {
        grains[1] = MadeGrain::new(2, &[1; GRAIN + 1]);
    };
    a_grain_that_is_a_byte_too_short: "grain 2 holds 65535 bytes, not 65536", |grains| {
        grains[1] = MadeGrain::new(2, &[1; GRAIN - 1]);
    };
    a_grain_without_data: "grain 2 holds 0 bytes, not 65536", |grains| grains[1] = MadeGrain::new(2, &[]);
    a_grain_of_other_data: "grain 2 does not decompress", |grains| {
        grains[1].compressed = vec![0x5a; 3000];
        grains[1].claimed = 3000;
    };
    a_grain_with_another_sum: "grain 2 does not decompress", |grains| *grains[1].compressed.last_mut().unwrap() ^= 1;
    bytes_behind_the_data_of_a_grain: "grain 2 ends before", |grains| {
        grains[1].compressed.extend(b"and more");
        grains[1].claimed += 8;
    };
    a_grain_that_claims_more_than_it_has: "grain 2 ends before", |grains| grains[1].claimed += 1;
}

// The tables.
refused! {
    a_table_with_a_grain_elsewhere: "puts grain 0 at", |disk| {
        disk.put_u32(disk.tables[0], disk.u32(disk.tables[0] + 8));
    };
    a_table_without_a_grain_that_is_there: "puts grain 2 at sector 0", |disk| disk.put_u32(disk.tables[0] + 8, 0);
    a_table_with_a_grain_that_is_not_there: "puts grain 5 at sector 200, it is not there", |disk| {
        disk.put_u32(disk.tables[0] + 20, 200);
    };
    a_table_of_grains_that_are_nowhere: "lists none of the grains", |disk| disk.put_u32(disk.tables[1], 7);
    a_table_that_is_empty: "grain table 1 at sector", |disk| disk.put_u32(disk.tables[1], 0);
    a_table_of_another_length: "grain table claims 5 sectors", |disk| disk.put_u64(disk.tables[0] - 512, 5);
    a_directory_without_a_table: "grain table 1 is missing", |disk| disk.put_u32(disk.directory + 4, 0);
    a_directory_with_two_tables_exchanged: "is grain table 1, not 0", |disk| {
        let (first, second) = (disk.u32(disk.directory), disk.u32(disk.directory + 4));
        disk.put_u32(disk.directory, second);
        disk.put_u32(disk.directory + 4, first);
    };
    a_directory_that_points_elsewhere: "no grain table at sector 7", |disk| disk.put_u32(disk.directory, 7);
    a_directory_of_another_length: "grain directory claims 9 sectors", |disk| disk.put_u64(disk.directory - 512, 9);
    a_second_directory: "second grain directory", |disk| {
        let directory = disk.bytes[disk.directory - 512..disk.directory + 512].to_vec();
        disk.bytes.splice(disk.directory - 512..disk.directory - 512, directory);
    };
    no_directory: "no grain directory", |disk| disk.remove(disk.directory - 512..disk.directory + 512);
    more_tables_than_the_disk_has: "one grain table more than 4", |disk| {
        let table = disk.bytes[disk.tables[2] - 512..disk.tables[2] + 2048].to_vec();
        disk.bytes.splice(disk.directory - 512..disk.directory - 512, table.repeat(2));
    };
    a_grain_after_its_table: "grain 3 comes after grain table 0", |disk| {
        let mut grain = disk.bytes[disk.grains[1]..disk.tables[0] - 512].to_vec();
        grain[..8].copy_from_slice(&(3u64 * 128).to_le_bytes());
        let behind = disk.tables[0] + 2048;
        disk.bytes.splice(behind..behind, grain);
    };
}

// The end of the file.
refused! {
    a_footer_that_points_elsewhere: "no grain directory at sector 300", |disk| disk.put_u64(disk.footer() + 56, 300);
    a_footer_that_points_nowhere: "no grain directory", |disk| disk.put_u64(disk.footer() + 56, u64::MAX);
    a_footer_with_another_capacity: "contradict", |disk| disk.put_u64(disk.footer() + 12, 128);
    a_footer_that_is_none: "footer: it does not begin", |disk| disk.put_u32(disk.footer(), 0);
    a_footer_of_two_sectors: "footer claims 2 sectors", |disk| disk.put_u64(disk.footer() - 512, 2);
    no_footer: "without a footer", |disk| disk.remove(disk.footer() - 512..disk.footer() + 512);
    no_end_of_stream_marker: "no end-of-stream marker", |disk| disk.put_u32(disk.end() + 12, 1);
    an_end_of_stream_marker_with_sectors: "end-of-stream marker claims 1 ", |disk| disk.put_u64(disk.end(), 1);
}

refused_in_front! {
    tables_in_front_that_lie: false "puts grain 3 at sector 300", |disk| disk.put_u32(disk.tables[0] + 12, 300);
    a_front_directory_that_points_behind_the_tables: false "no grain table at sector 126", |disk| {
        disk.put_u32(disk.directory, 126);
    };
    a_second_copy_of_the_tables_that_lies: true "puts grain 3 at sector 300", |disk| disk.put_u32(31 * 512 + 12, 300);
    a_second_directory_that_points_nowhere: true "no redundant grain directory", |disk| disk.put_u64(48, 1 << 40);
    bytes_behind_a_disk_with_tables_in_front: false "something follows", |disk| disk.bytes.push(1);
}

#[test]
fn of_two_mistakes_the_first_is_named() {
    let mut grains = grains();
    grains[0] = MadeGrain::new(0, &[]);
    grains[3] = MadeGrain::new(4 * 512 - 1, &[1; 2 * GRAIN]);
    let mut disk = Made::new(4 * 512, &grains);
    disk.bytes.truncate(disk.end());
    // The grains are decoded only after more of the file was read.
    refused(&disk.bytes, "ends too early");
    let disk = Made::new(4 * 512, &grains);
    refused(&disk.bytes, "grain 0 holds");
}

/// vSphere refuses it as too old. It can still be read.
#[test]
fn an_old_version_is_read() {
    let directory = Directory::new();
    let mut disk = in_front(false);
    disk.put_u32(4, 1);
    let contents = Contents { version: 1, ..contents_of(513 * GRAIN_BYTES, 3 * GRAIN_BYTES, false) };
    assert_eq!(read_back(&disk.bytes, &directory.path("back")).unwrap(), contents);
    assert_eq!(verified(&disk.bytes).unwrap(), contents);
}

/// open-vmdk stores it in part, qemu-img as a whole.
#[test]
fn a_partial_last_grain_may_be_whole() {
    let directory = Directory::new();
    let content = text(1, GRAIN);
    for stored in [512, GRAIN] {
        let mut disk = Made::with_tables_in_front(&[MadeGrain::new(512, &content[..stored])], false, 1);
        let capacity = 512 * 128 + 1;
        disk.put_u64(12, capacity);
        disk.replace_in_descriptor("65664", &capacity.to_string());
        let contents = read_back(&disk.bytes, &directory.path("back")).unwrap();
        assert_eq!(contents, contents_of(capacity * 512, GRAIN_BYTES, true));
        assert!(fs::read(directory.path("back")).unwrap()[512 * GRAIN..] == content[..512]);
    }
}
