//! `kaas deploy`, `status`, `upgrade`, `adopt` and `destroy` against a vCenter that refuses what a real one refuses, without
//! bodies: VMs are made and powered on, and nothing runs in them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base64::Engine as _;
use contract::role::Role;
use ova::archive::Package;
use ova::ovf::{
    CdRomController, Descriptor, Disk, DiskFile, Firmware, HardDisk, Hardware, Network, NetworkAdapter,
    OperatingSystem, Product, Property, PropertyGroup, PropertyType, Qualifier, Size, Sizing, Transport,
};
use ova::vmdk;
use serde_json::{Value, json};
use tempfile::TempDir;
use vsphere::Thumbprint;

/// Names the program; `make vcenter` builds it.
const PROGRAM: &str = "KAAS_TEST_VCENTER";
const USER: &str = "administrator@vsphere.local";
/// Of whoever may only look.
const LOOKER: &str = "looker@vsphere.local";

/// A vCenter that ends with its value, and a directory with descriptions.
struct Bed {
    program: Child,
    address: String,
    control: String,
    thumbprint: Thumbprint,
    directory: TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Bed {
    fn start(arguments: &[&str]) -> Self {
        let Some(program) = std::env::var_os(PROGRAM) else {
            panic!("{PROGRAM} does not name the vCenter to test against: make vcenter builds it as build/vcenter");
        };
        let directory = tempfile::tempdir().unwrap();
        let users = json!([
            { "name": USER, "password": "secret" },
            { "name": LOOKER, "password": "secret", "privileges": ["System.View", "System.Read"] },
        ]);
        let path = |name: &str| directory.path().join(name);
        fs::write(path("users.json"), users.to_string()).unwrap();
        let mut program = Command::new(program)
            .arg("-directory")
            .arg(path("datastores"))
            .arg("-users")
            .arg(path("users.json"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        let address = text("url").trim_start_matches("https://").split('/').next().unwrap().to_owned();
        // The certificate signs itself: it is trusted by its thumbprint alone.
        let der = text("certificate").lines().filter(|line| !line.starts_with("-----")).collect::<String>();
        let der = base64::engine::general_purpose::STANDARD.decode(der).unwrap();
        let thumbprint = Thumbprint(ova::Sha256::of(&der).0);
        fs::write(path("password"), "secret\n").unwrap();
        let keys = include_str!("../../contract/src/properties/fixtures/ssh-keys.pub");
        let key = keys.lines().find(|line| line.starts_with("ssh-ed25519")).unwrap();
        fs::write(path("admin.pub"), format!("{key}\n")).unwrap();
        appliance(directory.path());
        Self { program, address, control: text("control"), thumbprint, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The example, of this vCenter, with parts of it otherwise.
    fn described(&self, changes: &[(&str, &str)]) -> PathBuf {
        let server = format!("server = \"{}\"", self.address);
        let user = format!("user = \"{USER}\"");
        let thumbprint = format!("thumbprint = \"{}\"", self.thumbprint);
        let here = [
            ("server = \"vcenter.example.com\"", server.as_str()),
            (
                "# thumbprint = \"00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF\"",
                &thumbprint,
            ),
            ("user = \"kaas@vsphere.local\"", &user),
            ("password = { prompt = \"Password of kaas@vsphere.local\" }", "password = { file = \"password\" }"),
            ("datacenter = \"Datacenter\"", "datacenter = \"DC0\""),
            ("cluster = \"Cluster\"", "cluster = \"DC0_C0\""),
            ("folder = \"kaas/control\"", "folder = \"control\""),
            ("datastore = \"datastore1\"\n", "datastore = \"LocalDS_0\"\n"),
            ("ova = \"build\"", "ova = \"appliance.ova\""),
            ("memory-mib = 4096", "memory-mib = 1024"),
            ("data-disk-gib = 16", "data-disk-gib = 4"),
        ];
        let example = include_str!("../src/deploy/examples/vsphere.toml").to_owned();
        let text = here.iter().chain(changes).fold(example, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let path = self.path("cluster.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// What the control endpoint says, or does.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = client.request(method.parse().unwrap(), format!("{}/{path}", self.control));
            let request = if body.is_null() { request } else { request.json(body) };
            let answer = request.send().await.unwrap();
            let (status, text) = (answer.status(), answer.text().await.unwrap());
            assert!(status.is_success(), "{path}: {text}");
            serde_json::from_str(&text).unwrap()
        })
    }

    /// The machines that are called like this, and whether each is on.
    fn machines(&self, called: &str) -> Vec<(String, String)> {
        let machines = self.ask("GET", "machines", &Value::Null);
        let text = |machine: &Value, key: &str| machine[key].as_str().unwrap().to_owned();
        let all = machines.as_array().unwrap().iter().map(|machine| (text(machine, "name"), text(machine, "power")));
        let mut found: Vec<_> = all.filter(|(name, _)| name.starts_with(called)).collect();
        found.sort();
        found
    }

    fn make_folder(&self, name: &str) {
        self.make_folder_in("DC0/vm", name);
    }

    fn make_folder_in(&self, parent: &str, name: &str) {
        self.vsphere(async |client| {
            let parent = client.find(parent).await.unwrap();
            client.changes(&vsphere::Unguarded).create_folder(&parent, name).await.unwrap();
        });
    }

    /// What somebody else does on the vCenter.
    fn vsphere<T>(&self, act: impl AsyncFnOnce(&vsphere::Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = vsphere::Client::connect(vsphere::Connect {
                address: self.address.clone(),
                trust: vsphere::Trust::Thumbprint(self.thumbprint),
                user: USER.to_owned(),
                password: vsphere::Secret::new("secret"),
                settings: vsphere::Settings::default(),
            });
            let client = client.await.unwrap();
            let done = act(&client).await;
            client.log_out().await.unwrap();
            done
        })
    }

    /// How many sessions are open.
    fn sessions(&self) -> u64 {
        let calls = self.ask("GET", "calls", &Value::Null);
        let count = |name: &str| calls["by_name"][name]["calls"].as_u64().unwrap_or_default();
        count("Login") - count("Logout")
    }
}

fn kaas(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kaas"));
    command.args(arguments).arg("--file").arg(file).stdin(Stdio::null());
    command.output().expect("running kaas")
}

/// What it prints, with the exit status that is expected.
#[track_caller]
fn says(status: i32, arguments: &[&str], file: &Path) -> String {
    let output = kaas(arguments, file);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {text}");
    text
}

/// A small OVA with the form of a control node: its disk holds nothing that starts.
fn appliance(directory: &Path) {
    let (raw, disk) = (directory.join("raw"), directory.join("disk.vmdk"));
    fs::write(&raw, [7; 64 << 10]).unwrap();
    let written = vmdk::from_raw(&raw, &disk, &vmdk::Options::default(), &mut |_| {}).unwrap();
    let minors = ["1.35".to_owned(), "1.36".to_owned()];
    let field = |property: contract::properties::FormProperty| Property {
        key: property.key.to_owned(),
        kind: PropertyType::from_name(property.ovf_type),
        qualifiers: property.qualifiers.as_deref().map(Qualifier::parse_list).unwrap_or_default(),
        default: property.default,
        user_configurable: true,
        password: property.password,
        label: property.label,
        description: property.description,
    };
    let properties = contract::properties::form(&Role::ControlPlane.into(), &minors).into_iter().map(field).collect();
    let descriptor = Descriptor {
        name: "kaas-control-plane".into(),
        annotation: None,
        eula: None,
        operating_system: OperatingSystem { cim_type: 96, vmware_type: None, description: "Debian".into() },
        product: Product {
            name: "KaaS control plane".into(),
            vendor: "KaaS".into(),
            version: "0.2.0".into(),
            full_version: Some("0.2.0+bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb (etcd 3.6)".into()),
            groups: vec![PropertyGroup { category: None, properties }],
            ..Product::default()
        },
        disks: vec![
            Disk {
                id: "system".into(),
                capacity: written.capacity,
                file: Some(DiskFile {
                    name: "appliance-disk1.vmdk".into(),
                    size: Some(written.size),
                    populated: Some(written.populated),
                }),
            },
            Disk { id: "data".into(), capacity: 64 << 20, file: None },
        ],
        networks: vec![Network { name: "Management".into(), description: "Nodes".into() }],
        sizing: Sizing::Fixed(Size { cpus: 2, memory_mib: 2048 }),
        hardware: Hardware {
            version: 15,
            transports: vec![Transport::GuestInfo, Transport::Iso],
            disks: vec![
                HardDisk { disk: "system".into(), unit: 0, profiles: vec![] },
                HardDisk { disk: "data".into(), unit: 1, profiles: vec![] },
            ],
            adapters: vec![NetworkAdapter { network: "Management".into() }],
            cd_rom: Some(CdRomController::Sata),
            firmware: Firmware::Efi { secure_boot: false },
            extra_config: vec![],
        },
    };
    let package =
        Package { name: "appliance", descriptor: &descriptor, disks: &[disk], modified: 1_700_000_000, signer: None };
    ova::archive::write(&directory.join("appliance.ova"), &package, &mut |_| {}).unwrap();
}

const ON: [(&str, &str); 3] = [("cp1", "poweredOn"), ("cp2", "poweredOn"), ("cp3", "poweredOn")];

fn named(machines: &[(String, String)]) -> Vec<(&str, &str)> {
    machines.iter().map(|(name, power)| (name.as_str(), power.as_str())).collect()
}

#[test]
fn a_cluster_is_judged_made_looked_at_and_removed_by_its_file() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let file = bed.described(&[]);
    let plan = says(0, &["deploy", "--dry-run"], &file);
    for part in [
        "the cluster control, in the folder control of DC0 on 127.0.0.1",
        "VM cp3: 2 processors, 1024 MiB, data disk of 4 GiB, on VM Network",
        "besides: a template of the image in the folder control",
        "besides: a rule of DC0_C0 that keeps the nodes on different hosts",
        "logged in as administrator@vsphere.local",
        "3 of the 3 hosts of DC0_C0 take VMs",
    ] {
        assert!(plan.contains(part), "{part} is not in {plan}");
    }
    assert_eq!((bed.machines("cp"), bed.path("control.key").exists()), (Vec::new(), false), "a dry run makes nothing");
    assert!(says(1, &["status"], &file).contains("nothing was begun for the cluster control"));

    // Nothing runs in the VMs: it waits for the cluster to form, and says so.
    let paused = says(3, &["deploy", "--pause-limit", "1"], &file);
    assert!(paused.contains("paused: give the command again to go on"), "{paused}");
    assert_eq!(named(&bed.machines("cp")), ON);
    assert_eq!(bed.machines("kaas-image-").len(), 1);
    let rules = bed.vsphere(async |client| {
        let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
        client.anti_affinity_rules(&cluster).await.unwrap()
    });
    assert_eq!(rules.iter().map(|rule| rule.vms.len()).collect::<Vec<_>>(), [3]);
    assert!(rules[0].name.ends_with(": on different hosts"), "{}", rules[0].name);

    // Given again, it makes nothing anew. What a node says of itself is said on.
    let refused = json!({
        "machine": null, "phase": "refused", "code": "address.duplicate", "words": "somebody has 10.20.30.12", "lasting": true,
        "times": 1, "token": null, "at": 7,
    });
    bed.vsphere(async |client| {
        let vm = client.find("DC0/vm/control/cp2").await.unwrap();
        let spec = vsphere::ConfigSpec::new().extra(contract::statement::Statement::GUESTINFO, &refused.to_string());
        client.changes(&vsphere::Unguarded).reconfigure(&vm, &spec).await.unwrap();
    });
    let paused = says(3, &["deploy", "--pause-limit", "1"], &file);
    assert!(paused.contains("cp2 says: somebody has 10.20.30.12 [address.duplicate]"), "{paused}");
    assert_eq!(paused.matches(" says: ").count(), 1, "{paused}");
    assert_eq!(named(&bed.machines("cp")), ON);
    let plan = says(0, &["deploy", "--dry-run"], &file);
    assert!(plan.contains("is there already") && !plan.contains("besides: a template"), "{plan}");
    let status = says(3, &["status"], &file);
    assert!(status.contains("has not formed yet") && status.contains("cp2 at 10.20.30.12: VM cp2 is on"), "{status}");
    // An upgrade stands on the same file; there is none, and no node that could be asked.
    assert!(says(1, &["upgrade", "status"], &file).contains("there is no upgrade of this deployment"));
    for command in [&["upgrade", "plan", "--ova", "x.ova"][..], &["upgrade", "commit"], &["adopt", "--yes"]] {
        let told = says(1, command, &file);
        assert!(told.contains("no node gives its deployer credentials: give a --kubeconfig"), "{told}");
    }

    // To go on with one, and to go back, takes no node.
    for command in [&["upgrade", "resume"][..], &["upgrade", "rollback"]] {
        let told = says(1, command, &file);
        assert!(told.contains("warning: no node can be asked now: no node gives its deployer credentials"), "{told}");
        assert!(told.contains("error: there is no upgrade of this deployment"), "{told}");
    }

    assert!(says(1, &["destroy", "--confirm", "other"], &file).contains("not confirmed"));
    let told = says(1, &["destroy"], &file);
    assert!(told.contains("there is nobody to ask: give the cluster's name with --confirm"), "{told}");
    assert!(told.contains("Its journal goes as well: what is numbered in [LocalDS_0] kaas/control"), "{told}");
    let nobody = "00000000-0000-0000-0000-000000000001";
    let told = says(1, &["destroy", "--confirm", "control", "--also-vm", nobody], &file);
    assert!(told.contains(&format!("no VM with the stamp of this deployment has the BIOS UUID {nobody}")), "{told}");
    assert_eq!(bed.machines("cp").len(), 3);
    let gone = says(0, &["destroy", "--confirm", "control"], &file);
    assert!(gone.contains("was destroyed"), "{gone}");
    assert_eq!(bed.machines("cp"), []);
    assert_eq!(bed.machines("kaas-image-").len(), 1, "clusters share it");
    let rules = bed.vsphere(async |client| {
        let cluster = client.find("DC0/host/DC0_C0").await.unwrap();
        client.anti_affinity_rules(&cluster).await.unwrap().len()
    });
    assert_eq!(rules, 0);
    // The data disks are left; asked for, they go. Nothing is removed of the datastore but those.
    assert_eq!(gone.matches("left: the data disk").count(), 3, "{gone}");
    let journal = bed.path("datastores/LocalDS_0/kaas/control");
    let foreign = journal.join("foreign");
    fs::create_dir(&foreign).unwrap();
    let all = says(0, &["destroy", "--confirm", "control", "--data-disks"], &file);
    assert!(!all.contains("left: the data disk"), "{all}");
    // Of the journal the last hold is left, so that no number comes again, and what is not the journal's.
    let left = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (numbered, others): (Vec<String>, Vec<String>) = left.partition(|name| name.parse::<u64>().is_ok());
    assert_eq!((numbered.len(), others.contains(&"foreign".to_owned())), (1, true), "{numbered:?} {others:?}");
    assert!(says(0, &["status"], &file).contains("was destroyed"));
    // Each command has ended its session.
    assert_eq!(bed.sessions(), 0);
}

#[test]
fn what_the_vcenter_lacks_is_said_at_once_each_with_its_line_and_nothing_is_made() {
    let bed = Bed::start(&["-hosts", "2"]);
    let file = bed.described(&[
        ("folder = \"control\"", "folder = \"none\""),
        ("networks = [\"VM Network\"]", "networks = [\"VM Network\", \"Storage\"]"),
        ("# resource-pool = \"kaas\"", "resource-pool = \"kaas\""),
        ("datastore = \"LocalDS_0\"", "datastore = \"LocalDS_7\""),
    ]);
    let told = says(1, &["deploy"], &file);
    let text = fs::read_to_string(&file).unwrap();
    let line = |part: &str| 1 + text.lines().position(|line| line.starts_with(part)).unwrap();
    for (at, part) in [
        ("folder = ", "provider.vsphere.folder: there is no folder of VMs none"),
        ("resource-pool = ", "provider.vsphere.resource-pool: there is no resource pool kaas"),
        ("datastore = ", "provider.vsphere.datastore: there is no datastore LocalDS_7"),
        ("networks = ", "provider.vsphere.networks[1]: there is no network Storage"),
        ("networks = ", "2 networks are named, and the image has 1 network adapters"),
    ] {
        let found = told.lines().find(|told| told.contains(part)).unwrap_or_else(|| panic!("{part} is not in {told}"));
        assert!(found.contains(&format!("cluster.toml:{}: ", line(at))), "{found}");
    }
    bed.make_folder("control");
    let told = says(1, &["deploy"], &bed.described(&[]));
    assert!(
        told.contains("2 of the 2 hosts of DC0_C0 take VMs of this cluster now, and 3 nodes cannot be kept apart"),
        "{told}"
    );
    bed.make_folder_in("DC0/vm/control", "cp2");
    let told = says(1, &["deploy"], &bed.described(&[("anti-affinity = true", "anti-affinity = false")]));
    assert!(
        told.contains("node[1].name: the folder control has something called cp2, which is not this cluster's"),
        "{told}"
    );
    assert_eq!((bed.machines("cp"), bed.path("control.key").exists()), (Vec::new(), false));
    assert_eq!(bed.sessions(), 0);
}

#[test]
fn who_lacks_privileges_is_told_which_and_a_wrong_password_or_server_is_said() {
    let bed = Bed::start(&[]);
    bed.make_folder("control");
    let user = format!("user = \"{USER}\"");
    let looker = format!("user = \"{LOOKER}\"");
    let told = says(1, &["deploy", "--dry-run"], &bed.described(&[(&user, &looker)]));
    for part in [
        "provider.vsphere.folder: looker@vsphere.local lacks privileges on the folder control: ",
        "VirtualMachine.Interact.PowerOn (powering VMs on)",
        "provider.vsphere.datastore: ",
        "Datastore.AllocateSpace (putting disks onto datastores)",
        "provider.vsphere.networks[0]: ",
        "Resource.AssignVMToPool",
        "Host.Inventory.EditCluster",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    fs::write(bed.path("password"), "wrong\n").unwrap();
    let told = says(1, &["deploy", "--dry-run"], &bed.described(&[]));
    assert!(told.contains("logging in as administrator@vsphere.local") && told.contains("InvalidLogin"), "{told}");
    assert!(!told.contains("wrong"), "{told}");
    // Its certificate signs itself: without the thumbprint nobody vouches for it.
    let thumbprint = format!("thumbprint = \"{}\"", bed.thumbprint);
    let told = says(1, &["deploy", "--dry-run"], &bed.described(&[(&thumbprint, "")]));
    assert!(
        told.contains("certificate") && told.contains("name its authority with ca-file, or itself with thumbprint"),
        "{told}"
    );
    assert_eq!(bed.machines("cp"), []);
}

#[test]
fn a_bare_host_is_refused_with_a_word_why() {
    let bed = Bed::start(&["-esx"]);
    let told = says(1, &["deploy", "--dry-run"], &bed.described(&[]));
    assert!(told.contains("and not a vCenter: a host by itself has no store of OVF properties"), "{told}");
}
