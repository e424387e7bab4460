mod lenient;
mod refused;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::*;
use crate::Sha256;
use crate::ovf::{Descriptor, tests::appliance};
use crate::signature::{PublicKey, Signer};
use crate::vmdk::tests::made::{self as vmdk, GRAIN, Made, MadeGrain};

struct Fixture {
    directory: tempfile::TempDir,
    descriptor: Descriptor,
    disks: Vec<PathBuf>,
}

/// The disks of the fixture: two, so that their order can be wrong.
fn disks() -> [Made; 2] {
    [vmdk::whole(), Made::new(600, &[MadeGrain::new(7, &[7; GRAIN])])]
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let mut descriptor = appliance();
    let mut second = descriptor.disks[0].clone();
    second.id = "tools".into();
    second.file.as_mut().unwrap().name = "tools.vmdk".into();
    descriptor.disks.push(second);
    descriptor.hardware.disks.push(crate::ovf::HardDisk { disk: "tools".into(), unit: 2, profiles: vec![] });
    let mut paths = Vec::new();
    for (disk, made) in descriptor.disks.iter_mut().filter(|disk| disk.file.is_some()).zip(disks()) {
        let file = disk.file.as_mut().unwrap();
        file.size = Some(made.bytes.len() as u64);
        file.populated = Some((made.grains.len() * GRAIN) as u64);
        disk.capacity = made.capacity();
        paths.push(directory.path().join(format!("cached-{}", file.name)));
        fs::write(paths.last().unwrap(), made.bytes).unwrap();
    }
    Fixture { directory, descriptor, disks: paths }
}

impl Fixture {
    fn ova(&self) -> PathBuf {
        self.directory.path().join("example.ova")
    }

    fn write(&self, signer: Option<&Signer>) -> Result<WrittenOva, Error> {
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

/// Names, sizes and times of the members, read by the `tar` crate.
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
fn members_have_the_order_that_importers_expect() {
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
fn written_archives_are_verified() {
    let fixture = fixture();
    let (signer, trusted) = signer();
    let written = fixture.write(Some(&signer)).unwrap();
    let archive = Archive::open(&fixture.ova()).unwrap();
    let (descriptor, manifest) = archive.verify().unwrap();
    assert_eq!(descriptor, fixture.descriptor);
    assert_eq!(manifest, written.manifest);
    let [disk, _] = disks();
    assert_eq!(manifest.digest("system.vmdk"), Some(Sha256::of(&disk.bytes)));
    assert_eq!(manifest.entries().len(), 3);
    archive.verify_signature(&trusted).unwrap();
    assert!(archive.verify_signature(&self::signer().1).is_err());

    let (member, mut reader) = archive.member("system.vmdk").unwrap();
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert!(member.size == disk.bytes.len() as u64 && content == disk.bytes);
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
        archive.verify().unwrap();
        archive.verify_signature(signer.public_key()).unwrap();
    }
}

#[test]
fn unsigned_archives_are_reported_as_unsigned() {
    let fixture = fixture();
    fixture.write(None).unwrap();
    let archive = Archive::open(&fixture.ova()).unwrap();
    assert!(matches!(archive.verify_signature(&signer().1), Err(Error::Unsigned { .. })));
}

#[test]
fn disks_that_do_not_fit_leave_nothing_behind() {
    type Change = fn(&mut Fixture);
    let cases: &[(&str, Change)] = &[
        ("make the descriptor from this very file", |f| fs::write(&f.disks[0], "short").unwrap()),
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
