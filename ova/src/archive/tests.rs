use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::*;
use crate::Sha256;
use crate::ovf::{Descriptor, tests::appliance};
use crate::signature::{PublicKey, Signer};

struct Fixture {
    directory: tempfile::TempDir,
    descriptor: Descriptor,
    disks: Vec<PathBuf>,
}

const DISK: &[u8] = &[7; 5000];

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let mut descriptor = appliance();
    // Two files, so that their order can be wrong.
    let mut second = descriptor.disks[0].clone();
    second.id = "tools".into();
    second.file.as_mut().unwrap().name = "tools.vmdk".into();
    descriptor.disks.push(second);
    descriptor.hardware.disks.push(crate::ovf::HardDisk { disk: "tools".into(), unit: 2, profiles: vec![] });
    let mut disks = Vec::new();
    for (disk, content) in descriptor.disks.iter_mut().filter(|disk| disk.file.is_some()).zip([DISK, &DISK[..1024]]) {
        let file = disk.file.as_mut().unwrap();
        file.size = Some(content.len() as u64);
        disks.push(directory.path().join(format!("cached-{}", file.name)));
        fs::write(disks.last().unwrap(), content).unwrap();
    }
    Fixture { directory, descriptor, disks }
}

impl Fixture {
    fn ova(&self) -> PathBuf {
        self.directory.path().join("example.ova")
    }

    fn write(&self, signer: Option<&Signer>) -> Result<Written, Error> {
        let package = Package {
            name: "example",
            descriptor: &self.descriptor,
            disks: &self.disks,
            modified: 1_700_000_000,
            signer,
        };
        write(&self.ova(), &package, &mut |_| {})
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn signer() -> (Signer, PublicKey) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
    (Signer::from_pem(&key.serialize_pem(), &certificate).unwrap(), PublicKey::from_pem(&certificate).unwrap())
}

/// Names, sizes and times by the `tar` crate, which is not ours.
fn listed(ova: &Path) -> Vec<(String, u64, u64)> {
    let mut archive = tar::Archive::new(fs::File::open(ova).unwrap());
    let entries = archive.entries().unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            assert_eq!(entry.header().as_ustar().unwrap().magic, *b"ustar\0");
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            (name, entry.size(), entry.header().mtime().unwrap())
        })
        .collect()
}

#[test]
fn members_come_in_the_order_that_importers_ask_for() {
    let fixture = fixture();
    let (signer, _) = signer();
    for (signer, expected) in [
        (None, vec!["example.ovf", "example.mf", "system.vmdk", "tools.vmdk"]),
        (Some(&signer), vec!["example.ovf", "example.mf", "example.cert", "system.vmdk", "tools.vmdk"]),
    ] {
        let written = fixture.write(signer).unwrap();
        let members = listed(&fixture.ova());
        assert_eq!(members.iter().map(|(name, ..)| name).collect::<Vec<_>>(), expected);
        assert!(members.iter().all(|(.., modified)| *modified == 1_700_000_000));
        assert_eq!(written.size, fs::metadata(fixture.ova()).unwrap().len());
        assert!(written.size.is_multiple_of(512));
    }
}

#[test]
fn what_is_written_is_verified() {
    let fixture = fixture();
    let (signer, trusted) = signer();
    let written = fixture.write(Some(&signer)).unwrap();
    let archive = Archive::open(&fixture.ova()).unwrap();
    let mut seen = Vec::new();
    let (descriptor, manifest) = archive.verify(&mut |progress| seen.push(progress)).unwrap();
    assert_eq!(descriptor, fixture.descriptor);
    assert_eq!(manifest, written.manifest);
    assert_eq!(manifest.digest("system.vmdk"), Some(Sha256::of(DISK)));
    assert_eq!(manifest.entries().len(), 3);
    assert_eq!(seen.last().unwrap().done, seen.last().unwrap().total);
    archive.verify_signature(&trusted).unwrap();
    assert!(archive.verify_signature(&self::signer().1).is_err());

    let (member, mut reader) = archive.member("system.vmdk").unwrap();
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert_eq!((member.size, content.as_slice()), (DISK.len() as u64, DISK));
    assert!(archive.member("other").is_err());
}

#[test]
fn equal_packages_are_equal_files() {
    let (signer, _) = signer();
    let bytes = || {
        let fixture = fixture();
        fixture.write(Some(&signer)).unwrap();
        fs::read(fixture.ova()).unwrap()
    };
    assert!(bytes() == bytes());
}

#[test]
fn signatures_of_varying_length_fit() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    // The certificate's length decides where the file ends: some of these end at a block's border.
    for length in 0..300 {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "x".repeat(length));
        let certificate = params.self_signed(&key).unwrap().pem();
        let signer = Signer::from_pem(&key.serialize_pem(), &certificate).unwrap();
        let fixture = fixture();
        fixture.write(Some(&signer)).unwrap();
        let archive = Archive::open(&fixture.ova()).unwrap();
        archive.verify(&mut |_| {}).unwrap();
        archive.verify_signature(signer.public_key()).unwrap();
    }
}

#[test]
fn an_unsigned_archive_is_called_unsigned() {
    let fixture = fixture();
    fixture.write(None).unwrap();
    let archive = Archive::open(&fixture.ova()).unwrap();
    assert!(matches!(archive.verify_signature(&signer().1), Err(Error::Unsigned { .. })));
}

#[test]
fn disks_that_do_not_fit_leave_nothing_behind() {
    type Change = fn(&mut Fixture);
    let cases: &[(&str, Change)] = &[
        ("the descriptor says 5000", |f| fs::write(&f.disks[0], "short").unwrap()),
        ("8 GiB or more", |f| {
            fs::File::options().write(true).open(&f.disks[0]).unwrap().set_len(8 << 30).unwrap();
            f.descriptor.disks[0].file.as_mut().unwrap().size = Some(8 << 30);
        }),
        ("2 disk files, 1 are given", |f| f.disks.truncate(1)),
        ("not a regular file", |f| f.disks[0] = f.directory.path().into()),
        ("opening", |f| f.disks[0].push("none")),
        ("not valid", |f| f.descriptor.hardware.version = 1),
    ];
    for (expected, change) in cases {
        let mut fixture = fixture();
        change(&mut fixture);
        let error = fixture.write(None).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        assert!(!fixture.names().iter().any(|name| name.contains("example")), "{expected}: {:?}", fixture.names());
    }
}

#[test]
fn a_failure_leaves_the_former_archive() {
    let mut fixture = fixture();
    fixture.write(None).unwrap();
    let former = fs::read(fixture.ova()).unwrap();
    fixture.disks.truncate(1);
    fixture.write(None).unwrap_err();
    assert!(fs::read(fixture.ova()).unwrap() == former);
}

/// An archive of members in any order, to be refused.
fn archive_of(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn verify(bytes: &[u8]) -> Result<(), Error> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.ova");
    fs::write(&path, bytes).unwrap();
    Archive::open(&path)?.verify(&mut |_| {}).map(drop)
}

#[test]
fn archives_that_are_not_whole_are_refused() {
    let fixture = fixture();
    fixture.write(None).unwrap();
    let good = fs::read(fixture.ova()).unwrap();
    verify(&good).unwrap();
    let archive = Archive::open(&fixture.ova()).unwrap();
    let content: BTreeMap<_, _> = archive
        .members()
        .iter()
        .map(|member| {
            let mut bytes = Vec::new();
            archive.member(&member.name).unwrap().1.read_to_end(&mut bytes).unwrap();
            (member.name.as_str(), bytes)
        })
        .collect();
    let of = |names: &[&'static str]| {
        let members: Vec<_> = names.iter().map(|name| (*name, content[name].as_slice())).collect();
        archive_of(&members)
    };
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let long = "x".repeat(200);
    let cases = [
        ("first member", of(&["example.mf", "example.ovf", "system.vmdk", "tools.vmdk"])),
        ("expected are", of(&["example.ovf", "system.vmdk", "tools.vmdk", "example.mf"])),
        ("expected are", of(&["example.ovf", "example.mf", "tools.vmdk", "system.vmdk"])),
        ("tools.vmdk is in the manifest, but not in", of(&["example.ovf", "example.mf", "system.vmdk"])),
        ("no manifest", of(&["example.ovf", "system.vmdk", "tools.vmdk"])),
        ("two members", of(&["example.ovf", "example.mf", "example.mf"])),
        ("no members", archive_of(&[])),
        ("is not in the manifest", {
            let mut members: Vec<_> = content.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
            members.sort_by_key(|(name, _)| {
                ["example.ovf", "example.mf"].iter().rposition(|n| n == name).map_or(9, |n| n)
            });
            members.push(("extra.txt", b"x"));
            archive_of(&members)
        }),
        ("GNU long name", archive_of(&[(&long, b"")])),
        ("without directories", archive_of(&[("a/b.ovf", b"")])),
        ("has the digest", flipped(good.len() - 1024 - 512)),
        ("right checksum", flipped(3)),
        ("it ends before", good[..good.len() - 1024].to_vec()),
        ("it ends before", good[..good.len() - 3000].to_vec()),
        ("it ends before", Vec::new()),
    ];
    for (expected, bytes) in cases {
        let error = verify(&bytes).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected:?} is not in {error:?}");
    }
}

#[test]
fn pax_headers_are_refused() {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("mtime", b"1.5".as_slice())]).unwrap();
    let error = verify(&builder.into_inner().unwrap()).unwrap_err().to_string();
    assert!(error.contains("PAX"), "{error}");
}

proptest::proptest! {
    #[test]
    fn mutated_archives_do_no_harm(changes in proptest::collection::vec((proptest::prelude::any::<proptest::sample::Index>(), proptest::prelude::any::<u8>()), 1..6)) {
        thread_local!(static GOOD: Vec<u8> = {
            let fixture = fixture();
            fixture.write(None).unwrap();
            fs::read(fixture.ova()).unwrap()
        });
        let mut bytes = GOOD.with(Clone::clone);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let _ = verify(&bytes);
    }
}
