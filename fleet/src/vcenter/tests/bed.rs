//! A vCenter to test against: the program of `tests/vcenter`, started for one test, on loopback, without bodies.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;
use vsphere::{Client, Connect, DatastorePath, Secret, Settings, Thumbprint, Trust};

use crate::hypervisor::Vm;
use crate::vcenter::{Clones, DatastoreStore, Site, VcenterHypervisor};

/// Names the program; `make vcenter` builds it.
const PROGRAM: &str = "KAAS_TEST_VCENTER";

pub const DEPLOYMENT: Uuid = Uuid::from_u128(0xde);
pub const NETWORK: &str = "VM Network";
pub const ADMINISTRATOR: &str = "administrator@vsphere.local";

/// Where a deployment has its journal.
pub fn journal_of(deployment: Uuid) -> DatastorePath {
    let name = if deployment == DEPLOYMENT { "control".to_owned() } else { deployment.to_string() };
    DatastorePath::new("LocalDS_0", format!("kaas/{name}"))
}

/// What the program says when it is ready.
#[derive(Deserialize)]
struct Ready {
    url: String,
    control: String,
    certificate: String,
}

/// A machine as the control endpoint shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Machine {
    pub name: String,
    pub object: String,
    pub uuid: Uuid,
    pub power: String,
    pub template: bool,
    pub disks: std::collections::BTreeMap<String, Vec<String>>,
    pub guestinfo: std::collections::BTreeMap<String, String>,
}

/// What calls of one name came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Count {
    pub calls: u64,
    pub r#in: u64,
    pub out: u64,
}

#[derive(Deserialize)]
struct Calls {
    #[serde(default)]
    by_name: Option<std::collections::BTreeMap<String, Count>>,
}

/// A vCenter that ends with its value.
pub struct Bed {
    program: Child,
    url: String,
    thumbprint: Thumbprint,
    control: String,
    http: reqwest::Client,
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
        let mut program = Command::new(program)
            .arg("-directory")
            .arg(directory.path().join("datastores"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Ready = serde_json::from_str(&line).unwrap();
        // The certificate signs itself: it is trusted by its thumbprint alone.
        let certificate = ready.certificate.lines().filter(|line| !line.starts_with("-----")).collect::<String>();
        let certificate = base64::engine::general_purpose::STANDARD.decode(certificate).unwrap();
        let thumbprint = Thumbprint(ova::Sha256::of(&certificate).0);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { program, url: ready.url, thumbprint, control: ready.control, http, directory }
    }

    /// Clients do not wait for long, and use what they are asked for at once.
    pub fn settings() -> Settings {
        Settings {
            look_limit: Duration::from_secs(20),
            change_limit: Duration::from_secs(20),
            patience: Duration::from_secs(5),
            pause: Duration::from_millis(10),
            ..Settings::default()
        }
    }

    pub async fn client(&self) -> Client {
        self.client_of(ADMINISTRATOR, "secret").await
    }

    pub async fn client_of(&self, user: &str, password: &str) -> Client {
        let url = url::Url::parse(&self.url).unwrap();
        let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
        let trust = Trust::Thumbprint(self.thumbprint);
        let connect = Connect {
            address,
            trust,
            user: user.to_owned(),
            password: Secret::new(password),
            settings: Self::settings(),
        };
        Client::connect(connect).await.unwrap()
    }

    pub fn site(&self) -> Site {
        Site {
            datacenter: "DC0".to_owned(),
            folder: "control".to_owned(),
            other_folders: Vec::new(),
            templates: None,
            resource_pool: "DC0_C0".to_owned(),
            datastore: "LocalDS_0".to_owned(),
            networks: vec![NETWORK.to_owned()],
            clones: Clones::Linked,
            different_hosts: false,
            restart: None,
            managed_by: None,
        }
    }

    /// The deployment's hypervisor in a folder of its own.
    pub async fn hypervisor(&self) -> VcenterHypervisor {
        self.hypervisor_of(DEPLOYMENT, &self.site()).await
    }

    pub async fn hypervisor_of(&self, deployment: Uuid, site: &Site) -> VcenterHypervisor {
        let client = self.client().await;
        self.make_folder(&client, &site.folder).await;
        let hypervisor = VcenterHypervisor::new(client, deployment, site, &journal_of(deployment)).await;
        hypervisor.unwrap().settling_within(Duration::from_secs(20)).resting(Duration::ZERO)
    }

    pub async fn make_folder(&self, client: &Client, name: &str) {
        if !name.is_empty() && client.find(&format!("DC0/vm/{name}")).await.is_err() {
            let parent = client.find("DC0/vm").await.unwrap();
            client.changes(&vsphere::Unguarded).create_folder(&parent, name).await.unwrap();
        }
    }

    pub async fn store(&self) -> DatastoreStore {
        DatastoreStore::new(self.client().await, "DC0", journal_of(DEPLOYMENT)).await.unwrap()
    }

    /// Where a file of a datastore is.
    pub fn file(&self, path: &str) -> PathBuf {
        let path: DatastorePath = path.parse().unwrap();
        self.directory.path().join("datastores").join(path.datastore).join(path.path)
    }

    pub async fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<Machine> = self.ask(reqwest::Method::GET, "machines", Value::Null).await;
        machines.sort_by(|one, other| one.object.cmp(&other.object));
        machines
    }

    /// The machine of this name.
    pub async fn machine(&self, name: &str) -> Option<Machine> {
        self.machines().await.into_iter().find(|machine| machine.name == name)
    }

    /// How often a method was called since the counts began.
    pub async fn count(&self, method: &str) -> u64 {
        self.counts().await.get(method).copied().unwrap_or_default().calls
    }

    pub async fn counts(&self) -> std::collections::BTreeMap<String, Count> {
        let calls: Calls = self.ask(reqwest::Method::GET, "calls", Value::Null).await;
        calls.by_name.unwrap_or_default()
    }

    pub async fn count_anew(&self) {
        let _: Value = self.ask(reqwest::Method::DELETE, "calls", Value::Null).await;
    }

    /// Spoils the next call of a method, or what the rule says.
    pub async fn spoil(&self, method: &str, what: &str, more: Value) {
        let mut rule = json!({ "method": method, "do": what });
        for (key, value) in more.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        let _: Value = self.ask(reqwest::Method::POST, "rules", rule).await;
    }

    /// Whether a rule has spoilt anything.
    pub async fn has_spoilt(&self) -> bool {
        let rules: Vec<Value> = self.ask(reqwest::Method::GET, "rules", Value::Null).await;
        rules.iter().any(|rule| rule["done"].as_u64() > Some(0))
    }

    pub async fn spoil_nothing(&self) {
        let _: Value = self.ask(reqwest::Method::DELETE, "rules", Value::Null).await;
    }

    pub async fn end_sessions(&self) {
        let _: Value = self.ask(reqwest::Method::POST, "end", json!({})).await;
    }

    pub async fn restart(&self, milliseconds: u32) {
        let _: Value = self.ask(reqwest::Method::POST, "restart", json!({ "milliseconds": milliseconds })).await;
    }

    /// All is as it was at the start.
    pub async fn reset(&self) {
        let _: Value = self.ask(reqwest::Method::POST, "reset", json!({})).await;
    }

    /// Changes how it is strict, as its `Switches` name that.
    pub async fn switch(&self, switches: Value) {
        let _: Value = self.ask(reqwest::Method::PUT, "switches", switches).await;
    }

    /// A guest sets a variable: it is put where vCenter shows it.
    pub async fn set_guestinfo(&self, vm: &Vm, key: &str, value: &str) {
        let client = self.client().await;
        let spec = vsphere::ConfigSpec::new().extra(key, value);
        let at = vsphere::MoRef::vm(&vm.reference.id);
        client.changes(&vsphere::Unguarded).reconfigure(&at, &spec).await.unwrap();
    }

    async fn ask<T: DeserializeOwned>(&self, method: reqwest::Method, path: &str, body: Value) -> T {
        let request = self.http.request(method, format!("{}/{path}", self.control));
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }
}
