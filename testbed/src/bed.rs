//! A vCenter to test against: the program of `tests/vcenter`, started for one test, on loopback, without bodies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;
use vsphere::{Client, Connect, DatastorePath, Secret, Settings, Thumbprint, Trust};

/// The environment variable with the path of the program. `make vcenter` builds it.
const PROGRAM: &str = "KAAS_TEST_VCENTER";

/// The user with all privileges, if a test sets no users.
pub const ADMINISTRATOR: &str = "administrator@vsphere.local";
/// The user of [`Bed::with_users`] with only the privileges that `kaas provider role` prints.
pub const IN_ROLE: &str = "kaas@vsphere.local";
/// The user of [`Bed::with_users`] that may only read.
pub const LOOKER: &str = "looker@vsphere.local";
/// The password of each user.
pub const PASSWORD: &str = "secret";
/// The existing network.
pub const NETWORK: &str = "VM Network";

/// The program's report that it is ready.
#[derive(Deserialize)]
struct Ready {
    url: String,
    control: String,
    certificate: String,
}

/// A VM as the control endpoint shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Machine {
    pub name: String,
    /// The value of its reference.
    pub object: String,
    /// Its BIOS UUID.
    pub uuid: Uuid,
    /// `poweredOn` or `poweredOff`.
    pub power: String,
    pub template: bool,
    /// The files of each disk, by its path on a datastore.
    pub disks: BTreeMap<String, Vec<String>>,
    /// Its guestinfo, by the key without `guestinfo.`.
    pub guestinfo: BTreeMap<String, String>,
    /// The identifier of the storage policy of its files. Empty if none was requested.
    pub policy: String,
    /// The identifiers of the storage policies of its disks, by their paths on a datastore.
    pub policies: BTreeMap<String, String>,
}

/// The sum of the calls of one method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Count {
    pub calls: u64,
    /// Bytes of the requests.
    pub r#in: u64,
    /// Bytes of the answers.
    pub out: u64,
}

/// The sum of all calls since the counts began.
#[derive(Clone, Debug, Deserialize)]
pub struct Calls {
    #[serde(default)]
    by_name: Option<BTreeMap<String, Count>>,
    /// The methods of the calls, in the order of their arrival.
    #[serde(default)]
    pub order: Vec<String>,
    /// The most calls at once, without waits for updates.
    pub calls_at_once: usize,
    /// The most tasks at once.
    pub tasks_at_once: usize,
    /// Tasks that failed because another one worked on the VM.
    pub busy: u64,
}

impl Calls {
    /// The calls by method.
    pub fn by_name(self) -> BTreeMap<String, Count> {
        self.by_name.unwrap_or_default()
    }
}

/// A running vCenter. It ends when it is dropped.
pub struct Bed {
    program: Child,
    url: String,
    certificate: String,
    thumbprint: Thumbprint,
    control: String,
    http: reqwest::Client,
    directory: TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.end();
    }
}

impl Bed {
    /// Starts it with further arguments. `-help` of the program lists them.
    pub fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut program = Command::new(Self::program())
            .arg("-directory")
            .arg(directory.path())
            .args(arguments)
            // The process is small. With rare garbage collection it needs little more memory, and less time.
            .env("GOGC", "400")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Ready = serde_json::from_str(&line).unwrap();
        // The certificate signs itself. Only its thumbprint is trusted.
        let der = ready.certificate.lines().filter(|line| !line.starts_with("-----")).collect::<String>();
        let der = base64::engine::general_purpose::STANDARD.decode(der).unwrap();
        let thumbprint = Thumbprint(ova::Sha256::of(&der).0);
        // A kept connection ends with its runtime, and each test has a separate one.
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self {
            program,
            url: ready.url,
            certificate: ready.certificate,
            thumbprint,
            control: ready.control,
            http,
            directory,
        }
    }

    /// Starts it with three users: the administrator, one in the role for clusters, and one that may only read.
    pub fn with_users(arguments: &[&str]) -> Self {
        let users = [
            json!({ "name": ADMINISTRATOR, "password": PASSWORD }),
            json!({ "name": IN_ROLE, "password": PASSWORD, "privileges": vsphere::role_file().lines().collect::<Vec<_>>() }),
            json!({ "name": LOOKER, "password": PASSWORD, "privileges": ["System.View", "System.Read"] }),
        ];
        Self::of_users(&users, arguments)
    }

    /// Starts it with these users, in the form of the program's `User` (`tests/vcenter/bed/privileges.go`).
    pub fn of_users(users: &[Value], arguments: &[&str]) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), Value::from(users.to_vec()).to_string()).unwrap();
        // The program has read the file when it is ready.
        Self::start(&[&["-users", file.path().to_str().unwrap()], arguments].concat())
    }

    /// Ends it: requests get no answer.
    pub fn end(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }

    /// The path of the program. Programs that are built with it have the same directory.
    pub fn program() -> PathBuf {
        let Some(program) = std::env::var_os(PROGRAM) else {
            panic!("{PROGRAM} does not name the vCenter to test against: make vcenter builds it as build/vcenter");
        };
        program.into()
    }

    /// The URL of its API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port of its API.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("https://").split('/').next().unwrap_or_default()
    }

    pub fn thumbprint(&self) -> Thumbprint {
        self.thumbprint
    }

    /// Its certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The directory with one directory for each datastore.
    pub fn datastores(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file on a datastore, from `[datastore] path`.
    pub fn file(&self, path: &str) -> PathBuf {
        let path: DatastorePath = path.parse().unwrap();
        self.directory.path().join(path.datastore).join(path.path)
    }

    /// A logged-in client.
    pub async fn client_of(&self, user: &str, password: &str, settings: Settings) -> Client {
        let connect = Connect {
            address: self.address().to_owned(),
            trust: Trust::Thumbprint(self.thumbprint),
            user: user.to_owned(),
            password: Secret::new(password),
            settings,
        };
        Client::connect(connect).await.unwrap()
    }

    /// Creates a folder for VMs, if it is missing.
    pub async fn make_folder(&self, client: &Client, name: &str) {
        if !name.is_empty() && client.find(&format!("DC0/vm/{name}")).await.is_err() {
            let parent = client.find("DC0/vm").await.unwrap();
            client.changes(&vsphere::Unguarded).create_folder(&parent, name).await.unwrap();
        }
    }

    /// All VMs, in the order of their creation.
    pub async fn machines(&self) -> Vec<Machine> {
        let mut machines: Vec<Machine> = self.ask("GET", "machines", Value::Null).await;
        machines.sort_by(|one, other| one.object.cmp(&other.object));
        machines
    }

    pub async fn machine(&self, name: &str) -> Option<Machine> {
        self.machines().await.into_iter().find(|machine| machine.name == name)
    }

    /// Runs govmomi's command line, for actions of an operator. It is built into the program's directory.
    pub fn govc(&self, arguments: &[&str]) {
        let mut govc = Command::new(Self::program().with_file_name("govc"));
        govc.args(arguments).env("GOVC_URL", self.url()).env("GOVC_INSECURE", "true");
        govc.env("GOVC_USERNAME", ADMINISTRATOR).env("GOVC_PASSWORD", PASSWORD);
        let done = govc.env("GOVC_PERSIST_SESSION", "false").output().expect("running govc");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The number of calls of a method since the counts began.
    pub async fn count(&self, method: &str) -> u64 {
        self.counts().await.get(method).copied().unwrap_or_default().calls
    }

    /// The calls since the counts began, by method.
    pub async fn counts(&self) -> BTreeMap<String, Count> {
        self.calls().await.by_name()
    }

    /// The sum of all calls since the counts began.
    pub async fn calls(&self) -> Calls {
        self.ask("GET", "calls", Value::Null).await
    }

    /// Sets the counts to zero.
    pub async fn count_anew(&self) {
        let _: Value = self.ask("DELETE", "calls", Value::Null).await;
    }

    /// Adds a rule that spoils the next call of a method, or the calls that `more` selects.
    pub async fn spoil(&self, method: &str, what: &str, more: Value) {
        let mut rule = json!({ "method": method, "do": what });
        for (key, value) in more.as_object().into_iter().flatten() {
            rule[key] = value.clone();
        }
        let _: Value = self.ask("POST", "rules", rule).await;
    }

    /// Whether a rule has spoilt a call.
    pub async fn has_spoilt(&self) -> bool {
        let rules: Vec<Value> = self.ask("GET", "rules", Value::Null).await;
        rules.iter().any(|rule| rule["done"].as_u64() > Some(0))
    }

    /// Removes all rules, and ends their delays.
    pub async fn spoil_nothing(&self) {
        let _: Value = self.ask("DELETE", "rules", Value::Null).await;
    }

    pub async fn end_sessions(&self) {
        let _: Value = self.ask("POST", "end", json!({})).await;
    }

    /// Ends sessions and leases, and answers no request for this time.
    pub async fn restart(&self, milliseconds: u32) {
        let _: Value = self.ask("POST", "restart", json!({ "milliseconds": milliseconds })).await;
    }

    /// Restores the state at the start.
    pub async fn reset(&self) {
        let _: Value = self.ask("POST", "reset", json!({})).await;
    }

    /// Changes the settings of its strictness, by the names of its `Switches`.
    pub async fn switch(&self, switches: Value) {
        let _: Value = self.ask("PUT", "switches", switches).await;
    }

    /// Sends a request to the control endpoint. `tests/vcenter/bed/control.go` lists the requests.
    pub async fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: Value) -> T {
        let request = self.http.request(method.parse().unwrap(), format!("{}/{path}", self.control));
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }
}
