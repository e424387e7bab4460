//! kubeadm as a tool of this node: its configuration is laid, and its phases are run.

pub mod configuration;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use contract::secret::Secret;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{DIRECTORY, MANIFESTS, PKI, PROGRAMS, SUPER_ADMINISTRATOR, api_server};
use crate::cluster::certificates::api::ApiCertificate;
use crate::cluster::pki;
use crate::host::command::{Command, Runner};
use crate::host::files;
use crate::host::hex;
use crate::host::platform::Platform;
use crate::intake::config::ControlPlane;
use crate::system::trust;
use configuration::{PATCHES, documents, patches};

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kubeadm.yaml";

/// Where manifests are made before they are put in place.
const MADE_MANIFESTS: &str = "/run/kaas/manifests";
/// Names the directory that kubeadm writes to in a dry run (`cmd/kubeadm/app/constants`).
const DRY_RUN_DIRECTORY: &str = "KUBEADM_INIT_DRYRUN_DIR";

/// The static pods of a control-plane node.
pub const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The files that kubeadm creates below [`DIRECTORY`] from the CAs. It writes in
/// place, so that a power cut can leave a file empty.
const MADE: [&str; 10] = [
    "admin.conf",
    "kubelet.conf",
    "controller-manager.conf",
    "scheduler.conf",
    "pki/apiserver.crt",
    "pki/apiserver.key",
    "pki/apiserver-kubelet-client.crt",
    "pki/apiserver-kubelet-client.key",
    "pki/front-proxy-client.crt",
    "pki/front-proxy-client.key",
];

/// The files that the static pods read when they start, by component, below [`DIRECTORY`] or from the root. They use them until
/// they are started again.
const READ_AT_START: [(&str, &[&str]); 3] = [
    (
        "kube-apiserver",
        &[
            "pki/apiserver-etcd-client.crt",
            "pki/apiserver-kubelet-client.crt",
            "pki/front-proxy-client.crt",
            api_server::admission::CONFIGURATION,
            api_server::audit::POLICY,
            trust::BUNDLE,
        ],
    ),
    ("kube-controller-manager", &["controller-manager.conf", trust::BUNDLE]),
    ("kube-scheduler", &["scheduler.conf"]),
];

/// For each component a short hash of the credentials and policies that it starts with. It
/// becomes an annotation of the pod: when it changes, the kubelet sees another
/// pod and starts it in place of the old one.
pub fn marks(root: &Path) -> Vec<(&'static str, String)> {
    let mark = |names: &[&str]| {
        let mut hash = Sha256::new();
        for name in names {
            // A missing file changes the hash once it exists.
            hash.update(fs::read(files::below(root, Path::new(DIRECTORY).join(name))).unwrap_or_default());
        }
        hex::lower(&hash.finalize()[..16])
    };
    READ_AT_START.iter().map(|(component, names)| (*component, mark(names))).collect()
}

/// kubeadm as a tool of this node.
pub struct Kubeadm<'a> {
    root: &'a Path,
    runner: &'a dyn Runner,
}

impl<'a> Kubeadm<'a> {
    /// kubeadm of the system below `root`.
    pub fn new(root: &'a Path, runner: &'a dyn Runner) -> Self {
        Self { root, runner }
    }

    /// Lays the configuration and the patches. Says whether anything changed.
    ///
    /// # Errors
    /// The file system's; laying again completes it.
    pub fn lay(&self, config: &ControlPlane, platform: &Platform, version: &str) -> anyhow::Result<bool> {
        let names = match ApiCertificate::installed(self.root, config) {
            Ok(installed) => installed.map(|one| one.names).unwrap_or_default(),
            // The API server would not start with it. Maintenance makes it a finding.
            Err(error) => {
                log::warn!("the installed API certificate is not used: {error:#}");
                Vec::new()
            }
        };
        let content = documents(config, platform, version, &names);
        let mut changed = files::ensure_content(&self.path(CONFIGURATION), content.as_bytes(), 0o600)?;
        changed |= api_server::lay(self.root, config.cluster.pod_security)?;
        let directory = self.path(PATCHES);
        fs::create_dir_all(&directory)?;
        for (name, content) in patches(config, &marks(self.root)) {
            changed |= files::ensure_content(&directory.join(name), content.as_bytes(), 0o600)?;
        }
        Ok(changed)
    }

    /// Creates all certificates and kubeconfigs below [`DIRECTORY`], and returns
    /// whether it did. It keeps them if `complete` says that an earlier run
    /// ended, they fit together, and they are valid for a while. It creates
    /// half-written files of an interrupted run again.
    ///
    /// # Errors
    /// kubeadm's own; calling again with `complete` unset starts over.
    pub fn credentials(&self, complete: bool, now: SystemTime) -> anyhow::Result<bool> {
        if complete && self.last_long(now) {
            return Ok(false);
        }
        for name in MADE {
            files::remove(&self.path(DIRECTORY).join(name)).with_context(|| format!("removing {DIRECTORY}/{name}"))?;
        }
        for phase in ["apiserver", "apiserver-kubelet-client", "front-proxy-client"] {
            self.phase(&["certs", phase])?;
        }
        for user in ["admin", "kubelet", "controller-manager", "scheduler"] {
            self.phase(&["kubeconfig", user])?;
        }
        for name in MADE {
            let file =
                fs::File::open(self.path(DIRECTORY).join(name)).with_context(|| format!("kubeadm made no {name}"))?;
            file.sync_all()?;
        }
        for directory in [DIRECTORY, PKI] {
            fs::File::open(self.path(directory))?.sync_all()?;
        }
        Ok(true)
    }

    /// Whether all files of kubeadm exist, fit together and last. After a power
    /// cut during a renewal they do not.
    fn last_long(&self, now: SystemTime) -> bool {
        match self.valid(now) {
            Ok(ends) => ends >= now + pki::RENEW_BEFORE,
            Err(error) => {
                log::info!("kubeadm's certificates are created again: {error:#}");
                false
            }
        }
    }

    /// Until when all of kubeadm's certificates are valid.
    ///
    /// # Errors
    /// The first one that is missing, damaged, or does not fit its key and CA.
    fn valid(&self, now: SystemTime) -> anyhow::Result<SystemTime> {
        let authorities = pki::CertificateAuthorities::read(&self.path(PKI))?;
        let read = |name: &str| {
            fs::read_to_string(self.path(DIRECTORY).join(name))
                .map(Zeroizing::new)
                .with_context(|| format!("reading {name}"))
        };
        let mut ends = now + Duration::from_secs(u64::from(u32::MAX));
        for name in MADE {
            let present = match name.rsplit_once('.') {
                Some((base, "crt")) => pki::CertificateWithKey {
                    certificate: read(name)?.to_string(),
                    key: Secret::new(read(&format!("{base}.key"))?.to_string()),
                },
                Some((_, "conf")) => pki::embedded(&read(name)?).with_context(|| name.to_owned())?,
                _ => continue,
            };
            let front = name.contains("front-proxy");
            let authority = if front { &authorities.front_proxy } else { &authorities.kubernetes };
            ends = ends.min(pki::verified(&present, authority, now).with_context(|| name.to_owned())?);
        }
        Ok(ends)
    }

    /// Does `work` with [`SUPER_ADMINISTRATOR`] in place, which is removed afterwards, whatever came of it.
    ///
    /// # Errors
    /// kubeadm's, or the work's. When this is cut off, the file stays until [`Kubeadm::forget_super_administrator`].
    pub fn as_super_administrator<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        // kubeadm keeps an existing file, and a power cut may have left half of it.
        self.forget_super_administrator()?;
        self.phase(&["kubeconfig", "super-admin"])?;
        let done = work();
        self.forget_super_administrator()?;
        done
    }

    /// Removes [`SUPER_ADMINISTRATOR`]. Returns whether it existed.
    ///
    /// # Errors
    /// The file system's.
    pub fn forget_super_administrator(&self) -> anyhow::Result<bool> {
        files::remove(&self.path(SUPER_ADMINISTRATOR)).with_context(|| format!("removing {SUPER_ADMINISTRATOR}"))
    }

    /// Whether the manifests in place are made with the credentials that are.
    pub fn manifests_are_current(&self) -> bool {
        marks(self.root).iter().all(|(component, mark)| {
            fs::read_to_string(self.path(MANIFESTS).join(format!("{component}.yaml")))
                .is_ok_and(|manifest| manifest.contains(mark))
        })
    }

    /// Makes the static pods' manifests from this image's versions. Says
    /// whether one changed.
    ///
    /// They are made elsewhere and then put in place whole: a running kubelet
    /// that reads a half-written manifest stops the pod.
    ///
    /// # Errors
    /// kubeadm's own, or the file system's; calling again completes it.
    pub fn manifests(&self) -> anyhow::Result<bool> {
        let made = self.path(MADE_MANIFESTS);
        fs::create_dir_all(&made)?;
        let command = Self::command(&["control-plane", "all"]).arg("--dry-run").env(DRY_RUN_DIRECTORY, MADE_MANIFESTS);
        self.runner.run(&command)?;
        let mut changed = false;
        for component in COMPONENTS {
            let name = format!("{component}.yaml");
            let content = fs::read(made.join(&name)).with_context(|| format!("kubeadm made no {name}"))?;
            changed |= files::ensure_content(&self.path(MANIFESTS).join(name), &content, 0o600)?;
        }
        Ok(changed)
    }

    /// Records the cluster's configuration in the cluster and lets the
    /// administrators' group in. The API must answer.
    ///
    /// # Errors
    /// kubeadm's own; it may be called again.
    pub fn upload(&self) -> anyhow::Result<()> {
        self.phase(&["upload-config", "all"])
    }

    /// Labels this node as a control-plane node. Its Node object must exist.
    ///
    /// # Errors
    /// kubeadm's own; it may be called again.
    pub fn mark(&self) -> anyhow::Result<()> {
        self.phase(&["mark-control-plane"])
    }

    fn phase(&self, phase: &[&str]) -> anyhow::Result<()> {
        self.runner.run(&Self::command(phase))?;
        Ok(())
    }

    fn command(phase: &[&str]) -> Command {
        Command::new(format!("{PROGRAMS}/kubeadm"))
            .args(["init", "phase"])
            .args(phase.iter().copied())
            .arg(format!("--config={CONFIGURATION}"))
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        files::below(self.root, path)
    }
}
