//! For tests, a vCenter without bodies: the program of `tests/vcenter`, started for one test, on loopback; and a Provider of it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use tempfile::TempDir;
use vsphere::Thumbprint;

use crate::objects::{Provider, SYSTEM};

/// Names the program; `make vcenter` builds it.
const PROGRAM: &str = "KAAS_TEST_VCENTER";
pub(crate) const USER: &str = "administrator@vsphere.local";
/// Of whoever has the privileges that `kaas provider role` prints, and no other ones.
pub(crate) const IN_ROLE: &str = "kaas@vsphere.local";
/// Of whoever may only look.
pub(crate) const LOOKER: &str = "looker@vsphere.local";
pub(crate) const PASSWORD: &str = "secret";

/// A vCenter that ends with its value.
pub(crate) struct Bed {
    program: Child,
    address: String,
    control: String,
    thumbprint: Thumbprint,
    _directory: TempDir,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.end();
    }
}

impl Bed {
    pub(crate) fn start() -> Self {
        let Some(program) = std::env::var_os(PROGRAM) else {
            panic!("{PROGRAM} does not name the vCenter to test against: make vcenter builds it as build/vcenter");
        };
        let directory = tempfile::tempdir().unwrap();
        let users = json!([
            {"name": USER, "password": PASSWORD},
            {"name": IN_ROLE, "password": PASSWORD, "privileges": vsphere::role_file().lines().collect::<Vec<_>>()},
            {"name": LOOKER, "password": PASSWORD, "privileges": ["System.View", "System.Read"]},
        ]);
        let path = |name: &str| directory.path().join(name);
        fs::write(path("users.json"), users.to_string()).unwrap();
        let mut program = Command::new(program)
            .arg("-directory")
            .arg(path("datastores"))
            .arg("-users")
            .arg(path("users.json"))
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
        let control = text("control").trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self { program, address, control, thumbprint: Thumbprint(ova::Sha256::of(&der).0), _directory: directory }
    }

    /// Ends it: nobody answers any more.
    pub(crate) fn end(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }

    /// What its control endpoint answers (`tests/vcenter/bed/control.go` has what there is).
    pub(crate) fn control(&self, method: &str, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.control).unwrap();
        write!(stream, "{method} /{path} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", self.control).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> u64 {
        self.control("GET", "calls")["by_name"][method]["calls"].as_u64().unwrap_or_default()
    }

    /// A Provider of it, whose folder is there in every inventory, with a part laid over its spec.
    pub(crate) fn provider(&self, change: &Value) -> Provider {
        let zone = json!({"name": "a", "cluster": "DC0_C0", "datastore": "LocalDS_0"});
        let mut vsphere = json!({
            "server": self.address, "thumbprint": self.thumbprint.to_string(), "datacenter": "DC0", "folder": "tenants",
            "zones": [zone],
            "networks": [{"name": "blue", "portGroup": "VM Network", "addressing": "DHCP"}],
        });
        for (name, value) in change.as_object().into_iter().flatten() {
            vsphere[name] = value.clone();
        }
        let object = json!({
            "apiVersion": "kaas.local/v1alpha1", "kind": "Provider", "metadata": {"name": "dc1"},
            "spec": {"type": "vSphere", "vsphere": vsphere, "credentialsRef": {"name": "dc1"}},
        });
        serde_json::from_value(object).unwrap()
    }

    /// Makes the folder that the Provider names.
    pub(crate) async fn make_folder(&self) {
        let connect = vsphere::Connect {
            address: self.address.clone(),
            trust: vsphere::Trust::Thumbprint(self.thumbprint),
            user: USER.to_owned(),
            password: vsphere::Secret::new(PASSWORD),
            settings: vsphere::Settings::default(),
        };
        let client = vsphere::Client::connect(connect).await.unwrap();
        let parent = client.find("DC0/vm").await.unwrap();
        client.changes(&vsphere::Unguarded).create_folder(&parent, "tenants").await.unwrap();
        client.log_out().await.unwrap();
    }
}

/// The Secret of a Provider of the bed.
pub(crate) fn secret(user: &str, password: &str) -> Secret {
    let data = [("username", user), ("password", password)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
    let metadata =
        ObjectMeta { name: Some("dc1".to_owned()), namespace: Some(SYSTEM.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, data: Some(data.into()), ..Secret::default() }
}
