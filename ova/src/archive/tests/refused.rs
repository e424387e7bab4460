//! Each mistake of an OVA, by name: a good OVA, one change, and a part of the error. Some changes are no mistakes,
//! though the product does not write them.

use std::sync::LazyLock;

use super::*;
use crate::manifest::Manifest;

/// An OVA as its members.
#[derive(Clone)]
pub(super) struct Ova {
    pub(super) members: Vec<(String, Vec<u8>)>,
    /// The bytes after the last member.
    end: Vec<u8>,
}

const DESCRIPTOR: &str = "example.ovf";
pub(super) const MANIFEST: &str = "example.mf";
const SIGNATURE: &str = "example.cert";
pub(super) const SYSTEM: &str = "system.vmdk";
pub(super) const TOOLS: &str = "tools.vmdk";

/// An OVA with two disks, as `archive::write` writes it.
pub(super) fn whole() -> Ova {
    static WHOLE: LazyLock<Ova> = LazyLock::new(|| {
        let fixture = fixture();
        fixture.write(None).unwrap();
        let archive = Archive::open(&fixture.ova()).unwrap();
        let read = |member: &Member| {
            let mut bytes = Vec::new();
            archive.member(&member.name).unwrap().1.read_to_end(&mut bytes).unwrap();
            (member.name.clone(), bytes)
        };
        Ova { members: archive.members().iter().map(read).collect(), end: vec![0; 1024] }
    });
    WHOLE.clone()
}

impl Ova {
    pub(super) fn place(&self, name: &str) -> usize {
        self.members.iter().position(|(member, _)| member == name).unwrap()
    }

    pub(super) fn content(&mut self, name: &str) -> &mut Vec<u8> {
        let place = self.place(name);
        &mut self.members[place].1
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.members.remove(self.place(name));
    }

    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        self.members.push((name.into(), content.into()));
    }

    fn move_to(&mut self, name: &str, place: usize) {
        let member = self.members.remove(self.place(name));
        self.members.insert(place, member);
    }

    /// Replaces `from` everywhere in the descriptor.
    pub(super) fn describe(&mut self, from: &str, to: &str) {
        let text = String::from_utf8(self.content(DESCRIPTOR).clone()).unwrap();
        assert!(text.contains(from), "{from:?} is not in the descriptor");
        *self.content(DESCRIPTOR) = text.replace(from, to).into_bytes();
    }

    /// Names a further file in the descriptor.
    pub(super) fn refer_to(&mut self, name: &str) {
        self.describe("</References>", &format!("<File ovf:href=\"{name}\" ovf:id=\"further\"/></References>"));
    }

    /// Replaces the bytes of the first disk, and its size in the descriptor.
    pub(super) fn system_disk(&mut self, bytes: &[u8]) {
        let size = format!("ovf:size=\"{}\"", self.content(SYSTEM).len());
        self.describe(&size, &format!("ovf:size=\"{}\"", bytes.len()));
        *self.content(SYSTEM) = bytes.into();
    }

    /// Writes a first disk with its tables in front and `end` sectors of zeros at its end.
    pub(super) fn tables_in_front(&mut self, end: usize) {
        let grains = [0, 2, 4, 512].map(|number| MadeGrain::new(number, &[9; GRAIN]));
        let made = Made::with_tables_in_front(&grains, false, end);
        self.describe("ovf:capacity=\"134217728\"", &format!("ovf:capacity=\"{}\"", made.capacity()));
        self.system_disk(&made.bytes);
    }

    /// Writes a first disk as old tools do.
    pub(super) fn old_version(&mut self) {
        let mut made = vmdk::whole();
        let footer = made.footer();
        made.put_u32(4, 1);
        made.put_u32(footer + 4, 1);
        self.system_disk(&made.bytes);
    }

    /// Renews the manifest, so that only the mistake is wrong.
    pub(super) fn seal(&mut self) {
        self.seal_with(|name, content| format!("SHA256({name})= {}\n", Sha256::of(content)));
    }

    /// Renews the manifest with these lines.
    pub(super) fn seal_with(&mut self, line: impl Fn(&str, &[u8]) -> String) {
        let members = self.members.iter().filter(|(name, _)| ![MANIFEST, SIGNATURE].contains(&&**name));
        *self.content(MANIFEST) = members.map(|(name, content)| line(name, content)).collect::<String>().into_bytes();
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in &self.members {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append_data(&mut header, name, content.as_slice()).unwrap();
        }
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes.extend_from_slice(&self.end);
        bytes
    }
}

pub(super) fn verify(bytes: &[u8]) -> Result<(Descriptor, Manifest), Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.ova");
    fs::write(&path, bytes).unwrap();
    Archive::open(&path)?.verify()
}

/// Verifies it as an OVA of any vendor.
pub(super) fn lenient(bytes: &[u8]) -> Result<Report, Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.ova");
    fs::write(&path, bytes).unwrap();
    LenientArchive::open(&path)?.verify()
}

#[track_caller]
pub(super) fn refused(bytes: &[u8], expected: &str) {
    let error = verify(bytes).expect_err(expected).to_string();
    assert!(error.contains(expected), "{expected:?} is not in {error:?}");
}

/// A good OVA with one change.
pub(super) fn changed(change: fn(&mut Ova)) -> Ova {
    let mut ova = whole();
    change(&mut ova);
    ova
}

/// A good OVA with one change and a renewed manifest.
fn sealed(change: fn(&mut Ova)) -> Vec<u8> {
    let mut ova = changed(change);
    ova.seal();
    ova.bytes()
}

/// Tests that change one thing in a good OVA, and renew its manifest.
macro_rules! refused {
    ($($mistake:ident: $expected:literal, $change:expr;)+) => {
        $(#[test] fn $mistake() { refused(&sealed($change), $expected); })+
    };
}

/// Tests that change one thing in a good OVA, and keep its manifest.
macro_rules! refused_unsealed {
    ($($mistake:ident: $expected:literal, $change:expr;)+) => {
        $(#[test] fn $mistake() { refused(&changed($change).bytes(), $expected); })+
    };
}

/// Tests of accepted forms that the product does not write.
macro_rules! accepted {
    ($($difference:ident: $change:expr;)+) => {
        $(#[test] fn $difference() { verify(&sealed($change)).unwrap(); })+
    };
}

accepted! {
    what_the_mistakes_are_made_in: |_| {};
    manifest_and_signature_at_the_end: |ova| {
        ova.move_to(MANIFEST, 3);
        ova.add(SIGNATURE, b"a signature");
    };
    manifest_and_signature_behind_the_descriptor: |ova| {
        ova.add(SIGNATURE, b"a signature");
        ova.move_to(SIGNATURE, 2);
    };
    no_sizes_in_the_descriptor: |ova| ova.describe("ovf:size=", "ovf:unknown=");
    no_populated_sizes_in_the_descriptor: |ova| ova.describe("ovf:populatedSize=", "ovf:unknown=");
    a_capacity_in_another_unit: |ova| {
        ova.describe("ovf:capacity=\"134217728\" ovf:capacityAllocationUnits=\"byte\"",
            "ovf:capacity=\"128\" ovf:capacityAllocationUnits=\"byte * 2^20\"");
    };
    the_format_under_another_address: |ova| {
        ova.describe("www.vmware.com/interfaces/specifications/vmdk.html", "www.vmware.com/specifications/vmdk.html");
    };
    a_file_of_another_kind: |ova| {
        ova.refer_to("example.nvram");
        ova.add("example.nvram", b"whatever it is");
    };
    two_disks_from_one_file: |ova| {
        let format = "ovf:format=\"http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized\"";
        ova.describe("</DiskSection>", &format!("<Disk ovf:capacity=\"134217728\" ovf:diskId=\"copy\" \
            ovf:fileRef=\"file-system\" {format}/></DiskSection>"));
    };
    a_disk_of_open_vmdk: |ova| ova.tables_in_front(1);
    zeros_that_fill_up_the_last_record: |ova| ova.end = vec![0; 20 * 512];
}

// Contents of the disks, all with right digests.
refused! {
    a_text_file_named_like_a_disk: "system.vmdk: this file is not a streamOptimized VMDK", |ova| ova.system_disk(&[b'x'; 5000]);
    an_empty_disk: "system.vmdk, at byte 0: the file ends too early", |ova| ova.system_disk(b"");
    a_cut_disk: "system.vmdk, at byte 67184: the file ends too early", |ova| {
        ova.system_disk(&vmdk::whole().bytes[..67184]);
    };
    a_disk_with_bytes_behind_its_end: "something follows", |ova| {
        let mut bytes = vmdk::whole().bytes;
        bytes.extend([0; 512]);
        ova.system_disk(&bytes);
    };
    a_grain_bomb: "grain 1 goes on after 65536 bytes", |ova| {
        ova.system_disk(&Made::new(4 * 512, &[MadeGrain::new(1, &[0; 100 * GRAIN])]).bytes);
    };
    a_grain_that_lies_about_its_place: "puts grain 2 at", |ova| {
        let mut made = vmdk::whole();
        made.put_u64(made.grains[1], 3 * 128);
        ova.system_disk(&made.bytes);
    };
    a_table_that_lies: "puts grain 2 at", |ova| {
        let mut made = vmdk::whole();
        made.put_u32(made.tables[0] + 8, 300);
        ova.system_disk(&made.bytes);
    };
    a_disk_of_an_old_version: "its version is 1, vSphere imports version 3", Ova::old_version;
    a_disk_without_an_end_of_stream_marker: "system.vmdk does not end with", |ova| ova.tables_in_front(0);
}

// The descriptor's values for the disks.
refused! {
    the_capacity_of_another_disk: "is a disk of 134217728 bytes, the descriptor says 134283264", |ova| {
        ova.describe("ovf:capacity=\"134217728\"", "ovf:capacity=\"134283264\"");
    };
    a_capacity_in_the_wrong_unit: "the descriptor says 137438953472", |ova| {
        ova.describe("ovf:capacity=\"134217728\" ovf:capacityAllocationUnits=\"byte\"",
            "ovf:capacity=\"128\" ovf:capacityAllocationUnits=\"byte * 2^30\"");
    };
    the_populated_size_of_another_disk: "holds 262144 bytes of data, the descriptor says 327680", |ova| {
        ova.describe("ovf:populatedSize=\"262144\"", "ovf:populatedSize=\"327680\"");
    };
    the_size_of_another_file: "bytes, the descriptor says 7", |ova| {
        let size = format!("ovf:size=\"{}\"", ova.content(TOOLS).len());
        ova.describe(&size, "ovf:size=\"7\"");
    };
    a_disk_of_another_format: "\"system.vmdk\" has the format \"http://www.gnome.org/", |ova| {
        let uri = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized";
        ova.describe(uri, "http://www.gnome.org/~markmc/qcow-image-format.html");
    };
    a_sparse_disk: "vSphere imports streamOptimized VMDKs alone", |ova| ova.describe("#streamOptimized", "#sparse");
    a_disk_without_a_format: "\"system.vmdk\" has the format \"\"", |ova| ova.describe("ovf:format=", "ovf:unknown=");
    a_file_name_of_two_lines: "\"a\\nb\" has the format", |ova| {
        ova.refer_to("a&#10;b");
        let disk = "<Disk ovf:capacity=\"1\" ovf:diskId=\"further\" ovf:fileRef=\"further\"/>";
        ova.describe("</DiskSection>", &format!("{disk}</DiskSection>"));
    };
    a_disk_under_gzip: "compressed as a whole (\"gzip\")", |ova| {
        ova.describe("ovf:href=\"system.vmdk\"", "ovf:href=\"system.vmdk\" ovf:compression=\"gzip\"");
    };
    a_disk_in_chunks: "\"system.vmdk\" has to be one member of this name, without ovf:chunkSize", |ova| {
        ova.describe("ovf:href=\"system.vmdk\"", "ovf:href=\"system.vmdk\" ovf:chunkSize=\"1000\"");
    };
}

// The set of members and their order.
refused! {
    a_member_that_nobody_names: "extra.txt is in the archive, but the descriptor does not name it", |ova| {
        ova.add("extra.txt", b"x");
    };
    a_second_manifest: "other.mf is in the archive, but", |ova| ova.add("other.mf", b"x");
    a_file_that_is_not_in_the_archive: "the descriptor names \"gone.iso\", which is not in", |ova| ova.refer_to("gone.iso");
    a_file_at_an_address: "the descriptor names \"https://example.org/a.iso\"", |ova| {
        ova.refer_to("https://example.org/a.iso");
    };
    a_missing_disk: "the descriptor names \"tools.vmdk\", which is not in", |ova| ova.remove(TOOLS);
    disks_in_another_order: "expected are example.ovf, example.mf, system.vmdk, tools.vmdk", |ova| ova.move_to(TOOLS, 2);
    a_manifest_between_the_disks: "expected are example.ovf, system.vmdk, tools.vmdk, example.mf", |ova| {
        ova.move_to(MANIFEST, 2);
    };
    a_signature_apart_from_its_manifest: "expected are example.ovf, example.mf, example.cert, system", |ova| {
        ova.add(SIGNATURE, b"a signature");
    };
    a_file_that_is_named_twice: "there are two files at \"tools.vmdk\"", |ova| {
        ova.refer_to(TOOLS);
    };
    two_files_with_one_identifier: "two files \"further\"", |ova| {
        ova.refer_to("a.iso");
        ova.refer_to("b.iso");
    };
    a_descriptor_that_does_not_come_first: "first member", |ova| ova.move_to(DESCRIPTOR, 1);
}

// The manifest's lines.
refused_unsealed! {
    a_changed_byte_in_a_disk: "tools.vmdk has the digest", |ova| *ova.content(TOOLS).last_mut().unwrap() ^= 1;
    a_changed_byte_in_the_descriptor: "example.ovf has the digest", |ova| ova.describe("two lines", "two limes");
    a_broken_descriptor: "is damaged: example.ovf has the digest", |ova| ova.describe("</References>", "</Reverences>");
    a_disk_that_the_manifest_does_not_list: "tools.vmdk is not in the manifest", |ova| {
        let text = String::from_utf8(ova.content(MANIFEST).clone()).unwrap();
        *ova.content(MANIFEST) = text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>().into_bytes();
    };
    a_disk_that_only_the_manifest_lists: "gone.vmdk is in the manifest, but not in the archive", |ova| {
        let line = format!("SHA256(gone.vmdk)= {}\n", Sha256::of(b""));
        ova.content(MANIFEST).extend(line.into_bytes());
    };
    // Only the package's own signature is left out of the manifest.
    a_file_that_is_named_like_a_signature: "other.cert is not in the manifest", |ova| {
        ova.refer_to("other.cert");
        ova.add("other.cert", b"anything");
    };
    no_manifest: "no manifest \"example.mf\"", |ova| ova.remove(MANIFEST);
}

// The headers of members.
refused_unsealed! {
    two_members_of_one_name: "two members", |ova| ova.add(TOOLS, b"x");
    a_member_in_a_directory: "without directories", |ova| ova.add("a/b.txt", b"");
    a_member_with_a_long_name: "GNU long name", |ova| ova.add(&"x".repeat(200), b"");
}

// The end of the archive.
refused! {
    an_archive_without_an_end: "ends before the blocks", |ova| ova.end.clear();
    an_archive_with_half_an_end: "ends before the blocks", |ova| ova.end.truncate(512);
    bytes_in_the_place_of_the_end: "right checksum", |ova| ova.end.fill(1);
    bytes_in_the_second_block_of_the_end: "something follows its end", |ova| ova.end[600] = 1;
    bytes_behind_the_end: "something follows its end", |ova| ova.end.extend(b"more");
    bytes_far_behind_the_end: "something follows its end", |ova| {
        ova.end.extend([0; 9000]);
        ova.end.push(1);
    };
    another_archive_behind_the_end: "something follows its end", |ova| {
        let mut another = whole();
        another.seal();
        ova.end.extend(another.bytes());
    };
    more_zeros_than_a_record_has: "more follows its end", |ova| ova.end = vec![0; (1 << 20) + 512];
}

#[test]
fn an_archive_that_is_cut_anywhere() {
    let bytes = whole().bytes();
    for length in (0..bytes.len()).step_by(509) {
        assert!(verify(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_header_that_was_changed() {
    let mut bytes = whole().bytes();
    bytes[3] ^= 1;
    refused(&bytes, "right checksum");
}

#[test]
fn no_members() {
    refused(&[0; 1024], "no members");
}

#[test]
fn pax_headers() {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("mtime", b"1.5".as_slice())]).unwrap();
    refused(&builder.into_inner().unwrap(), "PAX");
}

/// The error names a damaged disk twice: its digest and its content differ. It names the next disk as well.
#[test]
fn all_problems_are_named_at_once() {
    let mut ova = whole();
    ova.system_disk(&vmdk::whole().bytes[..70_000]);
    ova.describe("ovf:populatedSize=\"65536\"", "ovf:populatedSize=\"1\"");
    let Err(Error::Contents { problems, .. }) = verify(&ova.bytes()) else { panic!("it was accepted") };
    let expected =
        ["example.ovf has the digest", "system.vmdk has the digest", "system.vmdk, at byte", "tools.vmdk holds"];
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{expected:?} is not in {problem:?}");
    }
}

proptest::proptest! {
    /// Changed bytes are an error, or do not change the content.
    #[test]
    fn mutated_archives_do_no_harm(changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::prelude::any::<u8>()), 1..6)) {
        thread_local!(static GOOD: (Vec<u8>, (Descriptor, Manifest)) = {
            let bytes = whole().bytes();
            let content = verify(&bytes).unwrap();
            (bytes, content)
        });
        GOOD.with(|(good, content)| {
            let mut bytes = good.clone();
            for (index, value) in changes {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            let vendors = lenient(&bytes);
            if let Ok(found) = verify(&bytes) {
                proptest::prop_assert_eq!(&found, content);
                proptest::prop_assert_eq!(vendors.unwrap().warnings, []);
            }
            Ok(())
        })?;
    }

    /// The same with a right manifest, so that only the disk's own bytes show the change.
    #[test]
    fn mutated_disks_with_right_digests_do_no_harm(changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::prelude::any::<u8>()), 1..6)) {
        let mut ova = whole();
        let disk = ova.content(SYSTEM);
        for (index, value) in changes {
            let at = index.index(disk.len());
            disk[at] = value;
        }
        ova.seal();
        let _ = (verify(&ova.bytes()), lenient(&ova.bytes()));
    }
}
