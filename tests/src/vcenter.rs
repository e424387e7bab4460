//! A vCenter for scenarios, whose machines have bodies: `kaas-dev lab vcenter`, and govc.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use lab::{VCENTER_USER, VCenter, obtain, state_directory, until};
use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::lab_command::is_argument;
use crate::lab_names;
use crate::places::{kaas_dev, workspace};

/// A scenario's vCenter: made at its beginning, gone at its end.
pub struct Site {
    name: &'static str,
    vcenter: String,
    started: Instant,
}

impl Site {
    /// Starts it. First removes the rest of an interrupted run.
    pub fn up(name: &'static str) -> Self {
        let vcenter = lab_names::begin_vcenter(name).unwrap_or_else(|error| panic!("preparing {name}: {error:#}"));
        let site = Self { name, vcenter, started: Instant::now() };
        site.kaas("up", &[]);
        site.reached("`kaas-dev lab vcenter up` has ended");
        site
    }

    pub fn opened(&self) -> VCenter {
        let opened = state_directory().and_then(|state| VCenter::open(&state, &self.vcenter));
        opened.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Says how far the scenario is, with the time since its start.
    pub fn reached(&self, what: &str) {
        println!("{} {:>4} s  {what}", self.name, self.started.elapsed().as_secs());
    }

    /// Runs `kaas-dev lab vcenter VERB` and returns its output.
    pub fn kaas(&self, verb: &str, arguments: &[&str]) -> String {
        self.try_kaas(verb, arguments).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn try_kaas(&self, verb: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(kaas_dev());
        said(command.args(["lab", "vcenter", verb, "--name", &self.vcenter]).args(arguments))
    }

    /// Host and port of its API, on this machine's loopback interface and on that of the machines' network.
    pub fn address(&self) -> String {
        let running = self.opened().running().ok().flatten().expect("the vCenter runs");
        let rest = running.url.trim_start_matches("https://");
        rest.split_once('/').map_or(rest, |(address, _)| address).to_owned()
    }

    /// Host and port of its API for its machines, and the thumbprint that they trust it by.
    pub fn address_for_machines(&self) -> (String, String) {
        let running = self.opened().running().ok().flatten().expect("the vCenter runs");
        let url = running.url_for_machines();
        let address = url.trim_start_matches("https://").split('/').next().expect("an address").to_owned();
        (address, running.thumbprint)
    }

    /// Runs an action of another client there, with all privileges.
    pub fn vsphere<T>(&self, act: impl AsyncFnOnce(&vsphere::Client) -> vsphere::Result<T>) -> vsphere::Result<T> {
        let opened = self.opened();
        let password = fs::read_to_string(opened.password_file()).expect("the vCenter's password");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = vsphere::Client::connect(vsphere::Connect {
                address: self.address(),
                trust: vsphere::Trust::Authorities(opened.certificate_file()),
                user: VCENTER_USER.to_owned(),
                password: vsphere::Secret::new(password.trim()),
                settings: vsphere::Settings::default(),
            })
            .await?;
            let done = act(&client).await;
            client.log_out().await?;
            done
        })
    }

    /// Asks something of its control endpoint (`tests/vcenter/bed/control.go` has what there is), in JSON.
    pub fn control(&self, asked: &str, body: &Value) {
        let running = self.opened().running().ok().flatten().expect("the vCenter runs");
        let (address, body) = (running.control.trim_start_matches("http://"), body.to_string());
        let request = format!(
            "POST /{asked} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answered = TcpStream::connect(address).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        });
        let answer = answered.unwrap_or_else(|error| panic!("asking for {asked}: {error}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{asked}: {answer}");
        self.reached(&format!("the vCenter is asked for {asked} {body}"));
    }

    /// The files of all datastores, by their datastore paths, in order.
    pub fn files(&self) -> Vec<String> {
        let datastores = self.opened().datastores();
        let listed = WalkDir::new(&datastores).sort_by_file_name().into_iter();
        let files =
            listed.map(|entry| entry.expect("a file of a datastore")).filter(|entry| entry.file_type().is_file());
        let named = |entry: walkdir::DirEntry| {
            let below = entry.path().strip_prefix(&datastores).ok()?;
            let (datastore, path) = below.to_str()?.split_once('/')?;
            Some(format!("[{datastore}] {path}"))
        };
        files.map(|entry| named(entry).expect("a file of a datastore is below one")).collect()
    }

    /// The output of govc, from this machine's own network.
    pub fn govc(&self, arguments: &[&str]) -> String {
        let opened = self.opened();
        let running = opened.running().ok().flatten().expect("the vCenter runs");
        let password = fs::read_to_string(opened.password_file()).expect("the vCenter's password");
        let mut govc = Command::new(Path::new(&kaas_dev()).with_file_name("govc"));
        govc.env("GOVC_URL", running.url).env("GOVC_USERNAME", VCENTER_USER).env("GOVC_PASSWORD", password.trim());
        govc.env("GOVC_TLS_CA_CERTS", opened.certificate_file()).env("GOVC_PERSIST_SESSION", "false");
        said(govc.args(arguments)).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Imports an OVA as `govc import.ova` does, with these properties and its only network on this one.
    pub fn import(&self, name: &str, ova: &Path, (own, network): (&str, &str), properties: &[(&str, String)]) {
        let properties = properties.iter().map(|(key, value)| json!({"Key": key, "Value": value}));
        let options = json!({
            "DiskProvisioning": "thin", "NetworkMapping": [{"Name": own, "Network": network}],
            "PropertyMapping": properties.collect::<Value>(),
        });
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), options.to_string()).expect("a temporary file");
        let [options, ova] = [file.path(), ova].map(|path| path.to_str().expect("a path of text"));
        self.govc(&[
            "import.ova",
            "-m",
            "-ds=LocalDS_0",
            &format!("-name={name}"),
            &format!("-options={options}"),
            ova,
        ]);
        self.reached(&format!("{name} is imported"));
    }

    /// The facts about a machine in the inventory.
    pub fn machine(&self, name: &str) -> Value {
        let said = self.govc(&["vm.info", "-json", "-e", name]);
        let all: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"));
        all["virtualMachines"][0].clone()
    }

    /// A value of guestinfo that a machine's guest has set, by the key with `guestinfo.`.
    pub fn guestinfo(&self, name: &str, key: &str) -> Option<String> {
        let machine = self.machine(name);
        let options = machine["config"]["extraConfig"].as_array()?.iter();
        let found = options.clone().find(|option| option["key"] == key)?;
        Some(found["value"].as_str()?.to_owned())
    }

    /// The output of a program inside a machine.
    pub fn inside(&self, machine: &str, arguments: &[&str]) -> String {
        self.kaas("exec", &[&[machine, "--"], arguments].concat())
    }

    /// The same, where failing means "not yet".
    pub fn try_inside(&self, machine: &str, arguments: &[&str]) -> anyhow::Result<String> {
        self.try_kaas("exec", &[&[machine, "--"], arguments].concat())
    }

    /// Waits for a condition.
    pub fn wait(&self, what: &str, limit: Duration, condition: impl FnMut() -> anyhow::Result<bool>) {
        until(what, limit, condition).unwrap_or_else(|error| panic!("{error:#}"));
        self.reached(what);
    }

    /// Waits until `look` returns something.
    pub fn obtain<T>(&self, what: &str, limit: Duration, look: impl FnMut() -> anyhow::Result<Option<T>>) -> T {
        let had = obtain(what, limit, look).unwrap_or_else(|error| panic!("{error:#}"));
        self.reached(what);
        had
    }

    /// Waits until a machine's power is `poweredOn` or `poweredOff`.
    pub fn is(&self, machine: &str, power: &str, limit: Duration) {
        self.wait(&format!("{machine} to be {power}"), limit, || {
            Ok(self.machine(machine)["runtime"]["powerState"] == power)
        });
    }

    /// Ends it by `kaas-dev lab vcenter down` while a machine runs there, of which nothing is left then.
    pub fn down(self) {
        assert!(!loop_devices_below(self.opened().directory()).is_empty(), "no machine is there that could be left");
        self.down_empty();
    }

    /// The same of one without machines.
    pub fn down_empty(self) {
        let opened = self.opened();
        let (network, directory, marks) = (opened.network_namespace(), opened.directory().to_owned(), opened.marks());
        assert!(network.exists() && directory.exists(), "nothing is there that could be left");
        self.kaas("down", &["--confirm", opened.name()]);
        assert!(!network.exists(), "its network is left");
        assert!(!directory.exists(), "its directory is left");
        assert_eq!(loop_devices_below(&directory), [""; 0]);
        for mark in marks {
            assert!(!is_argument(&mark), "the process {mark} is left");
        }
        self.reached("`kaas-dev lab vcenter down` leaves nothing behind");
    }

    fn keep_evidence(&self) {
        let kept = workspace().join("build/evidence").join(self.name);
        let _ = fs::remove_dir_all(&kept);
        let opened = self.opened();
        let mut files = vec![(self.name.to_owned(), opened.log())];
        files.extend(opened.machines().unwrap_or_default().into_iter().map(|carried| (carried.name, carried.console)));
        for (number, (name, file)) in files.into_iter().enumerate() {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            let copied =
                fs::create_dir_all(&kept).and_then(|()| fs::copy(&file, kept.join(format!("{number}-{name}.log"))));
            if let Err(error) = copied {
                eprintln!("keeping {}: {error}", file.display());
            }
        }
        eprintln!("{}: logs are kept in {}", self.name, kept.display());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        lab_names::end(self.name);
        let left = state_directory().and_then(|state| VCenter::open(&state, &self.vcenter));
        let Ok(left) = left else { return };
        if std::thread::panicking() {
            self.keep_evidence();
        }
        if let Err(error) = left.remove() {
            // A panic within a panic would hide the first one.
            eprintln!("removing the vCenter of {}: {error:#}", self.name);
            assert!(std::thread::panicking(), "the scenario left something behind");
        }
    }
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_owned();
    let Output { status, stdout, stderr } = command.output().map_err(|error| {
        anyhow::anyhow!("starting {}: {error}; `make vcenter-program` builds it", program.display())
    })?;
    // Without its environment, which has a password.
    let arguments: Vec<_> = command.get_args().collect();
    let why = String::from_utf8_lossy(&stderr);
    anyhow::ensure!(status.success(), "{} {arguments:?}: {status}: {why}", program.display());
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The files below a directory, removed ones included, that are behind loop devices.
fn loop_devices_below(directory: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("a list of block devices").flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    let below = |file: &String| PathBuf::from(file).starts_with(directory);
    files.map(|file| file.trim().to_owned()).filter(below).collect()
}
