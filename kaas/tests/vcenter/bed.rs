//! A vCenter to test against, and what commands are given for it: a description of a control cluster, and a small OVA.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
pub const USER: &str = "administrator@vsphere.local";
/// Of whoever may only look.
pub const LOOKER: &str = "looker@vsphere.local";

/// A vCenter that ends with its value, and a directory with descriptions.
pub struct Bed {
    program: Child,
    pub address: String,
    control: String,
    pub thumbprint: Thumbprint,
    directory: TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Bed {
    pub fn start(arguments: &[&str]) -> Self {
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
        let keys = include_str!("../../../contract/src/properties/fixtures/ssh-keys.pub");
        let key = keys.lines().find(|line| line.starts_with("ssh-ed25519")).unwrap();
        fs::write(path("admin.pub"), format!("{key}\n")).unwrap();
        appliance(directory.path(), "kaas-control-plane", Role::ControlPlane);
        Self { program, address, control: text("control"), thumbprint, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The example, of this vCenter, with parts of it otherwise.
    pub fn described(&self, changes: &[(&str, &str)]) -> PathBuf {
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
        let example = include_str!("../../src/deploy/examples/vsphere.toml").to_owned();
        let text = here.iter().chain(changes).fold(example, |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        let path = self.path("cluster.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// What the control endpoint says, or does.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
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
    pub fn machines(&self, called: &str) -> Vec<(String, String)> {
        let machines = self.ask("GET", "machines", &Value::Null);
        let text = |machine: &Value, key: &str| machine[key].as_str().unwrap().to_owned();
        let all = machines.as_array().unwrap().iter().map(|machine| (text(machine, "name"), text(machine, "power")));
        let mut found: Vec<_> = all.filter(|(name, _)| name.starts_with(called)).collect();
        found.sort();
        found
    }

    pub fn make_folder(&self, name: &str) {
        self.make_folder_in("DC0/vm", name);
    }

    pub fn make_folder_in(&self, parent: &str, name: &str) {
        self.vsphere(async |client| {
            let parent = client.find(parent).await.unwrap();
            client.changes(&vsphere::Unguarded).create_folder(&parent, name).await.unwrap();
        });
    }

    /// What somebody else does on the vCenter.
    pub fn vsphere<T>(&self, act: impl AsyncFnOnce(&vsphere::Client) -> T) -> T {
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
    pub fn sessions(&self) -> u64 {
        let calls = self.ask("GET", "calls", &Value::Null);
        let count = |name: &str| calls["by_name"][name]["calls"].as_u64().unwrap_or_default();
        count("Login") - count("Logout")
    }
}

/// A small OVA, `appliance.ova`, with the form of a role: its disk holds nothing that starts.
pub fn appliance(directory: &Path, name: &str, role: Role) {
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
    let properties = contract::properties::form(&role.into(), &minors).into_iter().map(field).collect();
    let descriptor = Descriptor {
        name: name.into(),
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
