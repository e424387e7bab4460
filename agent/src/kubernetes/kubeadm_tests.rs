//! kubeadm's phases, with a stand-in that writes what kubeadm would.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::command;
use crate::config::ControlNode;
use crate::pki::{Authorities, Leaf};

/// Writes the files of each phase and remembers the command lines.
struct Fake {
    root: std::path::PathBuf,
    manifest: Mutex<&'static str>,
    ran: Mutex<Vec<String>>,
}

impl Fake {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), manifest: Mutex::new("pod"), ran: Mutex::default() }
    }

    fn ran(&self) -> Vec<String> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As kubeadm does: what is there is kept.
        if !path.exists() || path.starts_with(self.root.join("run")) {
            fs::write(path, content).unwrap();
        }
    }
}

impl Runner for Fake {
    fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
        let line = command.to_string();
        let words: Vec<&str> = line.split(' ').skip(3).collect();
        match words.as_slice() {
            ["certs", name, ..] => {
                let node = ControlNode { name: "node1".into(), address: [10, 0, 0, 11].into() };
                let authority = Authorities::make(SystemTime::now()).unwrap().etcd;
                let certificate = Leaf::etcd_server(&node).issue(&authority, SystemTime::now()).unwrap().certificate;
                self.write(&format!("{PKI}/{name}.crt"), &certificate);
                self.write(&format!("{PKI}/{name}.key"), "key");
            }
            ["kubeconfig", "all", ..] => {
                for name in MADE.iter().filter(|name| name.ends_with(".conf")) {
                    self.write(&format!("{FOLDER}/{name}"), "whole");
                }
            }
            ["control-plane", "all", ..] => {
                for name in COMPONENTS {
                    let manifest = self.manifest.lock().unwrap();
                    self.write(&format!("{MADE_MANIFESTS}/{name}.yaml"), &format!("{name} {manifest}"));
                }
            }
            other => panic!("kubeadm was asked for {other:?}"),
        }
        self.ran.lock().unwrap().push(words[..words.len().min(2)].join(" "));
        Ok(Vec::new())
    }
}

#[test]
fn half_written_credentials_are_made_anew_and_whole_ones_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let fake = Fake::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    let now = SystemTime::now();
    // Cut off while the administrator's kubeconfig was written.
    fake.write(&format!("{FOLDER}/admin.conf"), "");
    fake.write(&format!("{PKI}/ca.crt"), "the authority stays");
    assert!(kubeadm.credentials(false, now).unwrap());
    let read = |path: &str| fs::read_to_string(root.path().join(path.trim_start_matches('/'))).unwrap();
    assert_eq!(read("/etc/kubernetes/admin.conf"), "whole");
    assert_eq!(read("/etc/kubernetes/pki/ca.crt"), "the authority stays");
    fake.ran();
    assert!(!kubeadm.credentials(true, now).unwrap());
    assert_eq!(fake.ran(), [""; 0]);
}

#[test]
fn credentials_are_renewed_before_they_end() {
    let root = tempfile::tempdir().unwrap();
    let fake = Fake::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    let now = SystemTime::now();
    kubeadm.credentials(false, now).unwrap();
    let days = |days: u64| now + Duration::from_secs(days * 24 * 60 * 60);
    assert!(!kubeadm.credentials(true, days(270)).unwrap());
    assert!(kubeadm.credentials(true, days(280)).unwrap());
    assert!(kubeadm.credentials(true, days(400)).unwrap());
}

#[test]
fn manifests_are_put_in_place_only_where_they_differ() {
    let root = tempfile::tempdir().unwrap();
    let fake = Fake::new(root.path());
    let kubeadm = Kubeadm::new(root.path(), &fake);
    assert!(kubeadm.manifests().unwrap());
    assert!(!kubeadm.manifests().unwrap());
    *fake.manifest.lock().unwrap() = "pod of another image";
    assert!(kubeadm.manifests().unwrap());
    let manifest = root.path().join("etc/kubernetes/manifests/kube-scheduler.yaml");
    assert_eq!(fs::read_to_string(manifest).unwrap(), "kube-scheduler pod of another image");
}
