//! For tests: a stand-in for kubeadm that writes the same files.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use contract::properties::ControlNode;

use super::{COMPONENTS, MADE_MANIFESTS};
use crate::cluster::kubernetes::{DIRECTORY, PKI};
use crate::cluster::pki::{self, CertificateAuthorities, Leaf};
use crate::host::command::{self, Command, Runner};
use crate::host::files;

/// Writes the files of each phase and remembers the command lines.
pub(crate) struct FakeKubeadm {
    root: std::path::PathBuf,
    now: SystemTime,
    pub(super) authorities: CertificateAuthorities,
    /// The text of each manifest after the name of its component.
    pub(super) manifest: Mutex<&'static str>,
    ran: Mutex<Vec<String>>,
}

impl FakeKubeadm {
    pub(crate) fn new(root: &Path) -> Self {
        Self::at(root, SystemTime::now())
    }

    /// The certificates are made at `now`.
    pub(super) fn at(root: &Path, now: SystemTime) -> Self {
        let pki = files::below(root, PKI);
        let authorities =
            CertificateAuthorities::read(&pki).unwrap_or_else(|_| CertificateAuthorities::make(now).unwrap());
        authorities.ensure(&pki).unwrap();
        Self { root: root.to_owned(), now, authorities, manifest: Mutex::new("pod"), ran: Mutex::default() }
    }

    pub(super) fn ran(&self) -> Vec<String> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }

    pub(super) fn write(&self, path: &str, content: &str) {
        let path = files::below(&self.root, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As kubeadm does: existing files stay.
        if !path.exists() || path.starts_with(self.root.join("run")) {
            fs::write(path, content).unwrap();
        }
    }
}

impl Runner for FakeKubeadm {
    fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
        let line = command.to_string();
        files::power::step().map_err(|source| command::Error::Start { command: line.clone(), source })?;
        let words: Vec<&str> = line.split(' ').skip(3).collect();
        match words.as_slice() {
            ["certs", name, ..] => {
                let node = ControlNode { name: "node1".into(), address: [10, 0, 0, 11].into() };
                let front = name.contains("front-proxy");
                let authority = if front { &self.authorities.front_proxy } else { &self.authorities.kubernetes };
                let made = Leaf::etcd_server(&node).issue(authority, self.now).unwrap();
                self.write(&format!("{PKI}/{name}.crt"), &made.certificate);
                self.write(&format!("{PKI}/{name}.key"), made.key.expose());
            }
            ["kubeconfig", user, ..] => {
                let client = Leaf::client(user).issue(&self.authorities.kubernetes, self.now).unwrap();
                let authority = self.authorities.kubernetes.certificate.clone();
                let whole = pki::kubeconfig("https://10.0.0.10:6443".to_owned(), authority, client).render(user);
                self.write(&format!("{DIRECTORY}/{user}.conf"), &whole);
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
