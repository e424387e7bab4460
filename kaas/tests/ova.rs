//! `kaas ova`: the real program on an OVA that the test builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ova::archive::Package;
use ova::ovf::{
    CdRomController, Descriptor, Disk, DiskFile, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Profile, Property, PropertyGroup, PropertyType, Size, Sizing, Transport,
};
use ova::signature::Signer;
use tempfile::TempDir;

const GRAIN: usize = 64 << 10;
/// Bytes of the disk: a grain with data, and one without.
const CAPACITY: usize = 2 * GRAIN;

fn kaas(arguments: &[&str], files: &[&Path]) -> Output {
    let program = Command::new(env!("CARGO_BIN_EXE_kaas")).arg("ova").args(arguments).args(files).output();
    program.expect("running kaas")
}

/// The output of a successful command.
#[track_caller]
fn says(arguments: &[&str], files: &[&Path]) -> String {
    let output = kaas(arguments, files);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a failed command. Its exit status is 1, and standard output is empty.
#[track_caller]
fn refuses(arguments: &[&str], files: &[&Path]) -> String {
    let output = kaas(arguments, files);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), [].as_slice()), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

struct Made {
    directory: TempDir,
    raw: PathBuf,
    vmdk: PathBuf,
}

impl Made {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (raw, vmdk) = (directory.path().join("disk.raw"), directory.path().join("system.vmdk"));
        let data = (0..GRAIN).map(|at| (at % 251) as u8);
        fs::write(&raw, data.chain([0; GRAIN]).collect::<Vec<u8>>()).unwrap();
        let said = says(&["pack"], &[&raw, &vmdk]);
        assert!(said.contains(&format!("{GRAIN} of {CAPACITY} bytes hold data")), "{said}");
        Self { directory, raw, vmdk }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ova(&self, signer: Option<&Signer>) -> PathBuf {
        let place = self.path(if signer.is_some() { "signed.ova" } else { "example.ova" });
        let (descriptor, disks) = (self.descriptor(), [self.vmdk.clone()]);
        let package =
            Package { name: "example", descriptor: &descriptor, disks: &disks, modified: 1_700_000_000, signer };
        ova::archive::write(&place, &package, &mut |_| {}).unwrap();
        place
    }

    fn descriptor(&self) -> Descriptor {
        let size = Some(fs::metadata(&self.vmdk).unwrap().len());
        let file = DiskFile { name: "system.vmdk".into(), size, populated: Some(GRAIN as u64) };
        let disk = |id: &str, file| Disk { id: id.into(), capacity: CAPACITY as u64, file };
        let place = |disk: &str, unit, profiles: &[&str]| {
            let profiles = profiles.iter().map(|id| (*id).to_owned()).collect();
            HardDisk { disk: disk.into(), unit, profiles }
        };
        let profile = |id: &str, cpus, memory_mib| Profile {
            id: id.into(),
            label: id.into(),
            description: "For a test.".into(),
            default: cpus == 2,
            size: Size { cpus, memory_mib },
        };
        let property = Property {
            key: "node-name".into(),
            kind: PropertyType::from_name("string"),
            qualifiers: Vec::new(),
            default: None,
            user_configurable: true,
            password: false,
            label: "Node name".into(),
            description: "What the node is called.".into(),
        };
        Descriptor {
            name: "example".into(),
            annotation: None,
            eula: None,
            operating_system: OperatingSystem {
                cim_type: 96,
                vmware_type: Some("debian11_64Guest".into()),
                description: "Debian".into(),
            },
            product: Product {
                name: "An example".into(),
                vendor: "Nobody".into(),
                version: "1.2.3".into(),
                groups: vec![PropertyGroup { category: Some("Node".into()), properties: vec![property] }],
                ..Product::default()
            },
            disks: vec![disk("system", Some(file)), disk("data", None)],
            networks: vec![Network { name: "VM Network".into(), description: "Of the nodes.".into() }],
            sizing: Sizing::Profiles(vec![profile("control-small", 2, 4096), profile("worker-small", 16, 8192)]),
            hardware: Hardware {
                version: 15,
                transports: vec![Transport::GuestInfo],
                disks: vec![place("system", 0, &[]), place("data", 1, &["control-small"])],
                adapters: vec![NetworkAdapter { network: "VM Network".into() }],
                cd_rom: Some(CdRomController::Sata),
                firmware: Firmware::Efi { secure_boot: false },
                extra_config: Vec::new(),
            },
        }
    }
}

/// A publisher's key, and the file with its certificate.
fn publisher(made: &Made, name: &str) -> (Signer, PathBuf) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
    let file = made.path(name);
    fs::write(&file, &certificate).unwrap();
    (Signer::from_pem(&key.serialize_pem(), &certificate).unwrap(), file)
}

#[test]
fn packed_disk_unpacks_to_the_same_content() {
    let made = Made::new();
    let back = made.path("back.raw");
    let said = says(&["unpack"], &[&made.vmdk, &back]);
    assert!(said.contains(&format!("{GRAIN} of {CAPACITY} bytes hold data")), "{said}");
    assert!(fs::read(&back).unwrap() == fs::read(&made.raw).unwrap());
    let odd = made.path("odd.raw");
    fs::write(&odd, [1; 1000]).unwrap();
    let nowhere = made.path("odd.vmdk");
    let why = refuses(&["pack"], &[&odd, &nowhere]);
    assert!(why.contains("odd.raw") && why.contains("1000 bytes are not a multiple of 64 KiB"), "{why}");
    assert!(!nowhere.exists());
    let why = refuses(&["unpack"], &[&odd, &nowhere]);
    assert!(why.contains("odd.raw") && why.contains("KDMV"), "{why}");
    assert!(!nowhere.exists());
}

#[test]
fn inspect_prints_text_and_json() {
    let made = Made::new();
    let ova = made.ova(None);
    let text = says(&["inspect"], &[&ova]);
    for words in [
        "An example 1.2.3 (example)\nnot signed\n",
        "  example.ovf\n",
        "data, empty\n",
        "profile   control-small              2 vCPU    4096 MiB  system, data, the default\n",
        "profile   worker-small              16 vCPU    8192 MiB  system\n",
        "system, system.vmdk\n",
        "property  node-name ",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let facts: serde_json::Value = serde_json::from_str(&says(&["inspect", "--output=json"], &[&ova])).unwrap();
    assert_eq!((&facts["version"], &facts["claimed_publisher"]), (&"1.2.3".into(), &serde_json::Value::Null));
    let profile = serde_json::json!({
        "id": "worker-small", "label": "worker-small", "default": false, "cpus": 16, "memory_mib": 8192,
        "disks": ["system"],
    });
    assert_eq!(facts["profiles"][1], profile);
    let disk = serde_json::json!({"id": "data", "capacity": CAPACITY, "capacity_property": null, "file": null});
    assert_eq!(facts["disks"][1], disk);
    assert_eq!(facts["warnings"], serde_json::json!([]));
    // An OVA without deployment options.
    let mut fixed = made.descriptor();
    fixed.sizing = Sizing::Fixed(Size { cpus: 2, memory_mib: 4096 });
    fixed.hardware.disks[1].profiles.clear();
    let (path, disks) = (made.path("fixed.ova"), [made.vmdk.clone()]);
    let package = Package { name: "fixed", descriptor: &fixed, disks: &disks, modified: 1_700_000_000, signer: None };
    ova::archive::write(&path, &package, &mut |_| {}).unwrap();
    let text = says(&["inspect"], &[&path]);
    let hardware = format!("hardware  {:24}   2 vCPU    4096 MiB  system, data\n", "");
    assert!(text.contains(&hardware), "{text}");
    let (signer, _) = publisher(&made, "ours.pem");
    let text = says(&["inspect"], &[&made.ova(Some(&signer))]);
    let fingerprint = signer.public_key().fingerprint().to_string();
    assert!(text.contains(&format!("says that the key {fingerprint} signed it")), "{text}");
}

#[test]
fn ova_is_verified_against_its_manifest_and_publisher() {
    let made = Made::new();
    let ova = made.ova(None);
    let ((ours, our_file), (_, their_file)) = (publisher(&made, "ours.pem"), publisher(&made, "theirs.pem"));
    let by = |file: &Path| format!("--publisher={}", file.display());
    assert!(says(&["verify"], &[&ova]).contains("who made it was not checked"));
    let why = refuses(&["verify", &by(&our_file)], &[&ova]);
    assert!(why.contains("is not signed"), "{why}");
    let signed = made.ova(Some(&ours));
    let fingerprint = ours.public_key().fingerprint().to_string();
    assert!(says(&["verify", &by(&our_file)], &[&signed]).contains(&fingerprint));
    let why = refuses(&["verify", &by(&their_file)], &[&signed]);
    assert!(why.contains(&fingerprint), "{why}");

    // One bit of the disk, in the middle of its file.
    let mut bytes = fs::read(&ova).unwrap();
    let disk = fs::read(&made.vmdk).unwrap();
    let at = bytes.windows(disk.len()).position(|window| window == disk).unwrap();
    bytes[at + disk.len() / 2] ^= 1;
    fs::write(&ova, bytes).unwrap();
    let why = refuses(&["verify"], &[&ova]);
    assert!(why.contains("system.vmdk"), "{why}");
    assert!(refuses(&["verify"], &[&made.path("missing.ova")]).contains("missing.ova"));
}

/// DSP0243 allows this OVA, but vSphere shows a wrong size for it.
#[test]
fn warning_is_printed_and_the_ova_is_accepted() {
    let made = Made::new();
    let ova = made.ova(None);
    let text = String::from_utf8_lossy(&fs::read(&ova).unwrap()).into_owned();
    let descriptor = &text[text.find("<?xml").unwrap()..text.find("</Envelope>").unwrap() + "</Envelope>\n".len()];
    let exact = format!("ovf:populatedSize=\"{GRAIN}\"");
    let changed = descriptor.replace(&exact, &format!("ovf:populatedSize=\"{}\"", GRAIN - 1));
    assert_ne!(descriptor, changed);
    let digests = [descriptor, &changed].map(|text| ova::Sha256::of(text.as_bytes()).to_string());
    let mut bytes = fs::read(&ova).unwrap();
    for (from, to) in [(descriptor, changed.as_str()), (&digests[0], &digests[1])] {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    fs::write(&ova, bytes).unwrap();

    let output = kaas(&["verify"], &[&ova]);
    let warning = "system.vmdk holds 65536 bytes of data, the descriptor says 65535";
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && shown.starts_with(&format!("warning: {warning}")), "{shown}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("read, but see the warnings"));
    let json: serde_json::Value = serde_json::from_str(&says(&["verify", "--output=json"], &[&ova])).unwrap();
    assert_eq!(json["warnings"][0], serde_json::json!({"code": "populated-size", "message": warning}));
    assert_eq!(json["signed_by"], serde_json::Value::Null);
}

#[test]
fn list_of_parts_needs_the_publishers_signature() {
    let made = Made::new();
    let ((ours, our_file), (theirs, _)) = (publisher(&made, "ours.pem"), publisher(&made, "theirs.pem"));
    let signed = made.ova(Some(&ours));
    let (list, signature) = ova::archive::sbom_of(&signed);
    let by = format!("--publisher={}", our_file.display());
    assert!(!says(&["verify", &by], &[&signed]).contains("spdx"));
    fs::write(&list, "{}\n").unwrap();
    // Without a publisher neither signature is checked.
    says(&["verify"], &[&signed]);
    let why = refuses(&["verify", &by], &[&signed]);
    assert!(why.contains("signed.spdx.json is not signed by the publisher"), "{why}");
    fs::write(&signature, ours.sign("signed.spdx.json", b"{}\n").unwrap()).unwrap();
    let said = says(&["verify", &by], &[&signed]);
    assert!(said.contains("signed.spdx.json: signed with the same key"), "{said}");
    for other in [
        theirs.sign("signed.spdx.json", b"{}\n"),
        ours.sign("other.spdx.json", b"{}\n"),
        ours.sign("signed.spdx.json", b"[]\n"),
    ] {
        fs::write(&signature, other.unwrap()).unwrap();
        refuses(&["verify", &by], &[&signed]);
    }
}
