//! kubeadm: its configuration (`kubeadm.k8s.io/v1beta4`), and its phases.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use serde_json::{Value, json};

use super::{DOMAIN, FOLDER, MANIFESTS, PKI, PROGRAMS, RUNTIME, VOLUME_PLUGINS, kubelet};
use crate::command::{Command, Runner};
use crate::config::{API_PORT, Config};
use crate::etcd;
use crate::files;
use crate::image;
use crate::pki;
use crate::platform::Platform;

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kubeadm.yaml";
/// Where the patches of the static pods are laid at each boot.
pub const PATCHES: &str = "/run/kaas/kubeadm-patches";

/// Where manifests are made before they are put in place.
const MADE_MANIFESTS: &str = "/run/kaas/manifests";
/// Names the folder that kubeadm writes to in a dry run (`cmd/kubeadm/app/constants`).
const DRY_RUN_FOLDER: &str = "KUBEADM_INIT_DRYRUN_DIR";

/// The static pods of a control node.
pub const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// What kubeadm makes below [`FOLDER`] from the authorities. It writes in
/// place, so that a power cut can leave a file empty.
const MADE: [&str; 11] = [
    "admin.conf",
    "super-admin.conf",
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

/// kubeadm's configuration documents: `version` is the full version of the
/// cluster's minor, without the leading v.
pub fn configuration(config: &Config, platform: &Platform, version: &str) -> String {
    let cluster = &config.cluster;
    let endpoints: Vec<String> = cluster.control_nodes.iter().map(etcd::client_url).collect();
    let patience = config.patience;
    let argument = |name: &str, value: String| json!({"name": name, "value": value});
    let mut election = Vec::new();
    if patience > 1 {
        // Upstream's 15 s, 10 s and 2 s, stretched together.
        election.push(argument("leader-elect-lease-duration", format!("{}s", 15 * patience)));
        election.push(argument("leader-elect-renew-deadline", format!("{}s", 10 * patience)));
        election.push(argument("leader-elect-retry-period", format!("{}s", 2 * patience)));
    }
    let mut manager = election.clone();
    manager.push(argument("flex-volume-plugin-dir", VOLUME_PLUGINS.to_owned()));
    if patience > 1 {
        // Upstream's 50 s until a silent node counts as lost.
        manager.push(argument("node-monitor-grace-period", format!("{}s", 50 * patience)));
    }
    let node = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": config.address(), "bindPort": API_PORT},
        // Control nodes run workloads: no taint.
        "nodeRegistration": {"name": config.node.name, "criSocket": RUNTIME, "taints": []},
        "patches": {"directory": PATCHES},
        "timeouts": {
            "controlPlaneComponentHealthCheck": format!("{}s", 240 * patience),
            "kubernetesAPICall": format!("{}s", 60 * patience),
            "etcdAPICall": format!("{}s", 120 * patience),
            "kubeletHealthCheck": format!("{}s", 240 * patience),
        },
    });
    let whole = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": cluster.name,
        "kubernetesVersion": format!("v{version}"),
        "encryptionAlgorithm": "ECDSA-P256",
        "imageRepository": image::REPOSITORY,
        "certificatesDir": PKI,
        "controlPlaneEndpoint": format!("{}:{API_PORT}", cluster.api_address()),
        "networking": {
            "podSubnet": cluster.pod_range,
            "serviceSubnet": cluster.service_range,
            "dnsDomain": DOMAIN,
        },
        // The agent brings its own.
        "dns": {"disabled": true},
        "proxy": {"disabled": true},
        "apiServer": {
            "certSANs": ["localhost", "127.0.0.1"],
            "extraArgs": [argument("kubelet-certificate-authority", format!("{PKI}/ca.crt"))],
        },
        "controllerManager": {"extraArgs": manager},
        "scheduler": {"extraArgs": election},
        "etcd": {"external": {
            "endpoints": endpoints,
            "caFile": format!("{PKI}/etcd/ca.crt"),
            "certFile": format!("{PKI}/apiserver-etcd-client.crt"),
            "keyFile": format!("{PKI}/apiserver-etcd-client.key"),
        }},
    });
    let kubelet = kubelet::configuration(config, platform);
    format!("{node:#}\n---\n{whole:#}\n---\n{kubelet:#}\n")
}

/// The patches of the static pods: file names and contents. On a slow host
/// the kubelet must not kill what is only slow.
pub fn patches(config: &Config) -> Vec<(String, String)> {
    let patience = config.patience;
    if patience == 1 {
        return Vec::new();
    }
    let probe = |threshold: u32| json!({"failureThreshold": threshold * patience, "timeoutSeconds": 15 * patience});
    let patch = |component: &str| -> Value {
        // kubeadm's own thresholds (`util/staticpod`); it scales the startup
        // probe's from its timeouts.
        let mut container = json!({"name": component, "livenessProbe": probe(8)});
        container["startupProbe"] = json!({"timeoutSeconds": 15 * patience});
        if component == "kube-apiserver" {
            container["readinessProbe"] = json!({"timeoutSeconds": 15 * patience});
        }
        json!({"spec": {"containers": [container]}})
    };
    COMPONENTS.iter().map(|name| (format!("{name}+strategic.json"), format!("{:#}\n", patch(name)))).collect()
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
    pub fn lay(&self, config: &Config, platform: &Platform, version: &str) -> anyhow::Result<bool> {
        let content = configuration(config, platform, version);
        let mut changed = files::ensure_content(&self.path(CONFIGURATION), content.as_bytes(), 0o600)?;
        let folder = self.path(PATCHES);
        fs::create_dir_all(&folder)?;
        for (name, content) in patches(config) {
            changed |= files::ensure_content(&folder.join(name), content.as_bytes(), 0o600)?;
        }
        Ok(changed)
    }

    /// Makes the certificates and kubeconfigs below [`FOLDER`], and says whether
    /// it did: all of them, unless `complete` says that an earlier run came to
    /// its end and they are good for a while. What an attempt that did not end
    /// may have left half-written is made anew.
    ///
    /// # Errors
    /// kubeadm's own; calling again with `complete` unset starts over.
    pub fn credentials(&self, complete: bool, now: SystemTime) -> anyhow::Result<bool> {
        if complete && self.last_long(now) {
            return Ok(false);
        }
        for name in MADE {
            match fs::remove_file(self.path(FOLDER).join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {FOLDER}/{name}"));
                }
                _ => {}
            }
        }
        for phase in ["apiserver", "apiserver-kubelet-client", "front-proxy-client"] {
            self.phase(&["certs", phase])?;
        }
        self.phase(&["kubeconfig", "all"])?;
        for name in MADE {
            let file =
                fs::File::open(self.path(FOLDER).join(name)).with_context(|| format!("kubeadm made no {name}"))?;
            file.sync_all()?;
        }
        for folder in [FOLDER, PKI] {
            fs::File::open(self.path(folder))?.sync_all()?;
        }
        Ok(true)
    }

    /// Whether the certificates need not be renewed yet. All are made together
    /// and for the same time, so one stands for all.
    fn last_long(&self, now: SystemTime) -> bool {
        fs::read_to_string(self.path(FOLDER).join("pki/apiserver.crt"))
            .map_err(|error| error.to_string())
            .and_then(|certificate| pki::expiry(&certificate).map_err(|error| error.to_string()))
            .is_ok_and(|expiry| expiry > now + pki::RENEW_BEFORE)
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
        let command = Self::command(&["control-plane", "all"]).arg("--dry-run").env(DRY_RUN_FOLDER, MADE_MANIFESTS);
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

    /// Labels this node as a control node. Its Node object must be there.
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
        self.root.join(path.trim_start_matches('/'))
    }
}

#[cfg(test)]
#[path = "kubeadm_tests.rs"]
mod tests;
