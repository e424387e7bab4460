//! OVAs of other vendors: read without warnings, read with warnings, or refused. The product's own OVAs may be none of
//! these.

use super::refused::{MANIFEST, Ova, SYSTEM, TOOLS, changed, lenient, refused, verify, whole};
use super::*;
use crate::digest::{Digest, HashingReader};

/// Tests that change one thing in a good OVA. Each has the codes of the warnings, and the reason why it is refused as
/// an OVA of the product.
macro_rules! read_with {
    ($then:path, $($difference:ident: $codes:expr, $refused:literal, $change:expr;)+) => {
        $(
            #[test]
            fn $difference() {
                let mut ova = changed($change);
                $then(&mut ova);
                let codes: &[&str] = &$codes;
                assert_eq!(codes_of(&ova), codes);
                refused(&ova.bytes(), $refused);
            }
        )+
    };
}

/// Tests that change one thing in a good OVA. Each has a part of the error, and whether the error is about damage.
macro_rules! refused {
    ($then:path, $($mistake:ident: $damaged:literal $expected:literal, $change:expr;)+) => {
        $(
            #[test]
            fn $mistake() {
                let mut ova = changed($change);
                $then(&mut ova);
                let error = lenient(&ova.bytes()).expect_err($expected).to_string();
                assert!(error.contains($expected), "{:?} is not in {error:?}", $expected);
                assert_eq!(error.contains("is damaged"), $damaged, "{error}");
            }
        )+
    };
}

#[track_caller]
fn codes_of(ova: &Ova) -> Vec<&'static str> {
    let report = lenient(&ova.bytes()).unwrap();
    report.warnings.iter().map(|warning| warning.code).collect()
}

/// By an algorithm's name in a manifest.
fn digest(algorithm: &str, content: &[u8]) -> String {
    let mut reader = HashingReader::new(content, Digest::algorithm(algorithm).unwrap());
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    reader.finish().to_string()
}

impl Ova {
    /// Gives the first disk another name: in the archive, and in the descriptor.
    fn rename(&mut self, member: &str, href: &str) {
        let place = self.place(SYSTEM);
        self.members[place].0 = member.into();
        self.describe("ovf:href=\"system.vmdk\"", &format!("ovf:href=\"{href}\""));
        self.seal();
    }

    /// Keeps the manifest.
    fn keep(&mut self) {}

    fn split(&mut self, chunk: usize) {
        let place = self.place(SYSTEM);
        let (_, content) = self.members.remove(place);
        for (number, bytes) in content.chunks(chunk).enumerate().rev() {
            self.members.insert(place, (format!("{SYSTEM}.{number:09}"), bytes.into()));
        }
        self.describe("ovf:href=\"system.vmdk\"", &format!("ovf:href=\"system.vmdk\" ovf:chunkSize=\"{chunk}\""));
        self.seal();
    }
}

/// The descriptor does name the chunks that exist.
#[test]
fn a_missing_chunk_is_the_only_problem() {
    let mut ova = whole();
    ova.split(512);
    ova.remove("system.vmdk.000000007");
    ova.seal();
    let Err(Error::Contents { problems, .. }) = lenient(&ova.bytes()) else { panic!("it was accepted") };
    let expected =
        "the descriptor names \"system.vmdk\" in chunks, of which \"system.vmdk.000000007\" is not in the archive";
    assert_eq!(problems, [expected]);
}

/// A member with several names would be read once for each.
#[test]
fn a_member_belongs_to_one_file() {
    let mut ova = whole();
    ova.split(512);
    ova.refer_to("tools%2evmdk");
    for (href, size) in [("system%2evmdk", 512), ("%73ystem.vmdk", 1024)] {
        let file = format!("<File ovf:href=\"{href}\" ovf:id=\"{href}\" ovf:size=\"{size}\" ovf:chunkSize=\"512\"/>");
        ova.describe("</References>", &format!("{file}</References>"));
    }
    ova.seal();
    let Err(Error::Contents { problems, .. }) = lenient(&ova.bytes()) else { panic!("it was accepted") };
    let expected = ["tools%2evmdk", "system%2evmdk", "%73ystem.vmdk"]
        .map(|href| format!("{href:?} shares members with another file"));
    assert_eq!(problems, expected);
    // The same with chunks, the first of which is missing.
    ova.remove("system.vmdk.000000000");
    ova.seal();
    let Err(Error::Contents { problems, .. }) = lenient(&ova.bytes()) else { panic!("it was accepted") };
    assert!(problems.contains(&expected[2]), "{problems:?}");
}

#[test]
fn an_ova_of_the_product_has_no_warnings() {
    let report = lenient(&whole().bytes()).unwrap();
    assert_eq!((report.warnings, report.claimed_key), (vec![], None));
    let disk = &report.envelope.disks[0];
    assert_eq!((disk.capacity, disk.file.as_deref()), (Some(134_217_728), Some(SYSTEM)));
}

/// `inspect` compares no digests.
#[test]
fn inspect_warns_about_other_digests() {
    let mut ova = whole();
    ova.seal_with(|name, _| format!("SHA384({name})= {}\n", "0".repeat(96)));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.ova");
    fs::write(&path, ova.bytes()).unwrap();
    let archive = LenientArchive::open(&path).unwrap();
    let codes: Vec<_> = archive.inspect().unwrap().warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["manifest"]);
    let error = archive.verify().unwrap_err().to_string();
    assert!(error.contains("a digest of the kind SHA384"), "{error}");
}

#[test]
fn a_signature_without_a_manifest_claims_nothing() {
    let mut ova = whole();
    let (signer, _) = signer();
    let signed = signer.sign(MANIFEST, ova.content(MANIFEST)).unwrap();
    ova.add("example.cert", signed.as_bytes());
    ova.remove(MANIFEST);
    let report = lenient(&ova.bytes()).unwrap();
    assert_eq!((report.claimed_key, report.warnings.len()), (None, 1));
}

read_with! {
    Ova::seal,
    a_disk_of_qemu_img: ["no-end-marker"], "does not end with an end-of-stream marker", |ova| ova.tables_in_front(0);
    a_disk_of_an_old_qemu_img: ["no-end-marker"], "does not end with an end-of-stream marker", |ova| {
        ova.tables_in_front(20);
    };
    a_disk_of_an_old_tool: ["old-version"], "its version is 1", |ova| ova.old_version();
    an_estimated_size: ["populated-size"], "holds 262144 bytes of data", |ova| {
        ova.describe("ovf:populatedSize=\"262144\"", "ovf:populatedSize=\"4096\"");
    };
    // 134.2 MB, rounded.
    a_rounded_capacity: ["capacity"], "is a disk of 134217728 bytes, the descriptor says 134000000", |ova| {
        ova.describe("ovf:capacity=\"134217728\" ovf:capacityAllocationUnits=\"byte\"",
            "ovf:capacity=\"134\" ovf:capacityAllocationUnits=\"byte * 10^6\"");
    };
    disks_without_a_format: ["format", "format"], "\"system.vmdk\" has the format \"\"", |ova| {
        ova.describe("ovf:format=", "ovf:unknown=");
    };
    a_disk_that_is_a_qcow_image: ["format"], "has the format", |ova| {
        ova.system_disk(b"QFI\xfb");
        let uri = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized\" ovf:populatedSize=\"262144\"";
        ova.describe(uri, "http://www.gnome.org/~markmc/qcow-image-format.html\"");
    };
    a_disk_that_is_compressed: ["compressed"], "is compressed as a whole", |ova| {
        ova.system_disk(b"\x1f\x8b");
        ova.describe("ovf:href=\"system.vmdk\"", "ovf:href=\"system.vmdk\" ovf:compression=\"gzip\"");
    };
    // VMware's sample nostalgia-chunkdisk.
    a_disk_smaller_than_a_chunk: [], "without ovf:chunkSize", |ova| {
        ova.describe("ovf:href=\"system.vmdk\"", "ovf:href=\"system.vmdk\" ovf:chunkSize=\"2147483648\"");
    };
}

read_with! {
    Ova::keep,
    sha_1_digests: ["weak-digest"], "line 1 of the manifest has a digest of the kind SHA1", |ova| {
        ova.seal_with(|name, content| format!("SHA1({name})= {}\n", digest("SHA1", content)));
    };
    sha_512_digests: [], "line 1 of the manifest has a digest of the kind SHA512", |ova| {
        ova.seal_with(|name, content| format!("SHA512({name})= {}\n", digest("SHA512", content)));
    };
    a_manifest_of_virtualbox: ["weak-digest", "manifest-form"], "lines have the form", |ova| {
        ova.seal_with(|name, content| format!("SHA1 ({name}) = {}\r\n", digest("SHA1", content)));
    };
    a_manifest_of_sha256sum: ["manifest-form"], "line 1 of the manifest is", |ova| {
        ova.seal_with(|name, content| format!("SHA256 ({name}) = {}\n", digest("SHA256", content)));
    };
    // Home Assistant wrote it; vCenter 8 refuses it.
    a_manifest_with_another_name_of_sha_256: ["manifest-form"], "line 1 of the manifest is", |ova| {
        ova.seal_with(|name, content| format!("SHA2-256({name})= {}\n", digest("SHA256", content)));
    };
    a_manifest_with_an_empty_line: ["manifest-form"], "line 4 of the manifest is \"\"", |ova| {
        ova.seal();
        ova.content(MANIFEST).push(b'\n');
    };
    an_ova_without_a_manifest: ["no-manifest"], "it has no manifest", |ova| ova.remove(MANIFEST);
    a_signature_of_another_kind: ["signature"], "a digest of the kind SHA512", |ova| {
        ova.add("example.cert", b"SHA1(example.mf)= 00\n");
        let signature = ova.members.pop().unwrap();
        ova.members.insert(2, signature);
        ova.seal_with(|name, content| format!("SHA512({name})= {}\n", digest("SHA512", content)));
    };
    a_disk_in_chunks: [], "without ovf:chunkSize", |ova| ova.split(70_000);
    a_disk_in_chunks_without_a_size: [], "without ovf:chunkSize", |ova| {
        ova.describe("ovf:size=", "ovf:unknown=");
        ova.split(512);
    };
    a_percent_encoded_name: [], "\"disk%201.vmdk\" has to be one member", |ova| {
        ova.rename("disk 1.vmdk", "disk%201.vmdk");
    };
    // VMware's sample url-encoded-name.
    a_name_with_a_percent_sign: [], "cannot name a file of an OVA", |ova| {
        ova.rename("url%24encoded%a-1.vmdk", "url%24encoded%a-1.vmdk");
    };
    a_name_with_parentheses: [], "cannot name a file of an OVA", |ova| {
        ova.rename("Kali (Workshop)-disk1.vmdk", "Kali (Workshop)-disk1.vmdk");
    };
    a_name_in_a_directory: [], "cannot name a file of an OVA", |ova| {
        ova.rename("subdir/测试.vmdk", "subdir/测试.vmdk");
    };
}

// The product's own OVAs may have several sections, too. Importers and the product read the first one.
#[test]
fn a_second_hardware_section_is_a_warning() {
    let mut ova = whole();
    ova.describe("</VirtualHardwareSection>", "</VirtualHardwareSection><VirtualHardwareSection/>");
    ova.seal();
    assert_eq!(codes_of(&ova), ["hardware-sections"]);
}

refused! {
    Ova::seal,
    a_broken_descriptor_with_its_digest: false "is not XML that can be read", |ova| {
        ova.describe("</References>", "</Reverences>");
    };
    a_broken_disk_with_its_digest_was_made_so: false "system.vmdk, at byte", |ova| {
        let bytes = vmdk::whole().bytes;
        ova.system_disk(&bytes[..bytes.len() - 1024]);
    };
    another_file_in_place_of_a_disk: false "was made wrongly: system.vmdk: this file is not a streamOptimized VMDK", |ova| {
        ova.system_disk(&b"# Disk DescriptorFile\n".repeat(100));
    };
    the_capacity_of_another_disk: false "the descriptor says 134283264", |ova| {
        ova.describe("ovf:capacity=\"134217728\"", "ovf:capacity=\"134283264\"");
    };
    a_missing_disk: false "the descriptor names \"tools.vmdk\", which is not in the archive", |ova| ova.remove(TOOLS);
    a_missing_chunk: false "in chunks, of which \"system.vmdk.000000001\" is not in the archive", |ova| {
        ova.split(70_000);
        ova.remove("system.vmdk.000000001");
    };
    a_missing_first_chunk: false "in chunks, of which \"system.vmdk.000000000\" is not in the archive", |ova| {
        ova.describe("ovf:size=", "ovf:unknown=");
        ova.split(512);
        ova.remove("system.vmdk.000000000");
    };
    a_chunk_of_another_size: false "system.vmdk.000000000 has 69488 bytes, the descriptor says chunks of 70000", |ova| {
        ova.split(70_000);
        ova.content("system.vmdk.000000000").truncate(69_488);
    };
    a_chunk_too_many: false "system.vmdk.000000009 is in the archive, but", |ova| {
        ova.split(70_000);
        ova.add("system.vmdk.000000009", b"x");
    };
    a_difference_disk: false "the disk \"system\" is a difference to the disk \"base\" (ovf:parentRef)", |ova| {
        ova.describe("ovf:diskId=\"system\"", "ovf:diskId=\"system\" ovf:parentRef=\"base\"");
    };
}

refused! {
    Ova::keep,
    a_changed_byte_is_damage: true "tools.vmdk has the digest", |ova| *ova.content(TOOLS).last_mut().unwrap() ^= 1;
    a_changed_byte_in_a_chunk_is_damage: true "system.vmdk.000000001 has the digest", |ova| {
        ova.split(70_000);
        ova.content("system.vmdk.000000001")[0] ^= 1;
    };
    a_broken_descriptor_is_damage: true "example.ovf has the digest", |ova| {
        ova.describe("</References>", "</Reverences>");
    };
    a_descriptor_that_is_not_text_is_damage: true "example.ovf has the digest", |ova| {
        ova.content("example.ovf")[0] = 0xff;
    };
    // The publisher's tool may have written it so.
    a_broken_disk_without_a_manifest: false "was made wrongly: system.vmdk, at byte", |ova| {
        let bytes = vmdk::whole().bytes;
        ova.system_disk(&bytes[..bytes.len() - 1024]);
        ova.remove(MANIFEST);
    };
}

/// One test with the publisher's mistake, one with damage after publication: the messages differ.
#[test]
fn damage_and_publisher_mistakes_differ() {
    let mut ova = whole();
    ova.refer_to("gone.iso");
    let error = verify(&ova.bytes()).unwrap_err().to_string();
    assert!(error.contains("is damaged: ") && error.ends_with("obtain it again"), "{error}");
    ova.seal();
    let error = verify(&ova.bytes()).unwrap_err().to_string();
    assert!(error.contains("was made wrongly: ") && error.ends_with("ask its publisher for another one"), "{error}");
}
