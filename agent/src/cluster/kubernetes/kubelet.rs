//! The kubelet: its configuration (`kubelet.config.k8s.io/v1beta1`).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use contract::bios_uuid::BiosUuid;
use contract::local_volumes;
use contract::ports;
use contract::properties::{ControlNode, Taint};
use contract::role::Role;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{CIPHER_SUITES, DOMAIN, MANIFESTS, PKI, RUNTIME, VOLUME_PLUGINS};
use crate::cluster::pki::{self, CertificateWithKey, Leaf};
use crate::host::command::{Command, Runner};
use crate::host::files;
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::{Node, Registration};

/// The configuration, written at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kubelet.yaml";
/// The kubelet's credentials. A control-plane node's name its own API server, as kubeadm's do since 1.36. A kubelet
/// must not be newer than its API server, and one behind the virtual IP may have the former minor version. A worker's
/// name the virtual IP: a worker is never newer than the oldest.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// The file with this node's address for the unit.
pub const ENVIRONMENT: &str = "/run/kaas/kubelet.env";
pub const UNIT: &str = "kubelet.service";

/// The serving certificate and its key, without their extensions. The agent makes them. The kubelet writes its own in
/// place, and no longer starts if a power cut left them empty. A certificate that it signs itself cannot be verified.
pub const SERVING: &str = "/var/lib/kubelet/pki/kubelet";

/// The certificate and key that the kubelet gets from the cluster and renews.
pub const CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// The directory of the kubelet's own certificates.
pub const CERTIFICATES: &str = "/var/lib/kubelet/pki";

/// The beginning of the names of files with client certificates that the kubelet has renewed. The link
/// `kubelet-client-current.pem` names the one in use.
pub const CLIENTS: &str = "kubelet-client";

/// The node waits for a certificate that is valid within this time: the clock of its signer may be ahead for good.
const SOON: Duration = Duration::from_secs(60 * 60);

/// Exists while the kubelet is stopped because the node has another address than its cluster knows.
const HELD: &str = "/run/kaas/kubelet-held";

/// How long the kubelet may take to stop. Pods continue to run.
const STOPPING: Duration = Duration::from_secs(30);

/// The kubelet's records of running pods. It refuses to start if a power cut has damaged one of them. After a reboot no
/// pod runs.
const CHECKPOINTS: [&str; 6] = [
    "cpu_manager_state",
    "memory_manager_state",
    "dra_manager_state",
    "allocated_pods_state",
    "actuated_pods_state",
    "device-plugins/kubelet_internal_checkpoint",
];

/// systemd-resolved's list of the resolvers themselves. Pods cannot reach its stub on loopback.
pub const RESOLVERS: &str = "/run/systemd/resolve/resolv.conf";

/// Processes and threads that are reserved for etcd, the runtime and the agent, and also the most that a pod may have.
/// The kernel allows some 31,000 with 4 GiB of memory (`kernel.threads-max`).
const PIDS: u32 = 4096;

/// How long pods of a worker may take to end when it is shut down, and the part of that for the system's pods. The
/// shutdown is delayed by systemd-logind for at least as long (`systemd/logind.conf.d`).
const GRACE: Duration = Duration::from_secs(180);
const GRACE_OF_SYSTEM: Duration = Duration::from_secs(30);

/// Memory that pods may not use, in MiB: the steps of Google Kubernetes Engine, and at least 400. A larger node has
/// more pods, and therefore a larger runtime, kubelet and database.
fn reserved_memory(memory: Option<u64>) -> u64 {
    const STEPS: [(u64, u64); 5] = [(4 << 10, 25), (4 << 10, 20), (8 << 10, 10), (112 << 10, 6), (u64::MAX, 2)];
    let mut left = memory.unwrap_or_default() >> 20;
    let mut reserved = 0;
    for (step, percent) in STEPS {
        let part = left.min(step);
        reserved += part * percent / 100;
        left -= part;
    }
    reserved.max(400)
}

/// The kubelet's configuration as JSON, which YAML includes. `dns` is the address of cluster DNS.
pub fn configuration(node: &Node, dns: Ipv4Addr, timeout_factor: u32, platform: &Platform) -> Value {
    let mut kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": format!("{PKI}/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "systemd",
        // Of each container at most 50 MiB of logs; kubectl logs reads them all.
        "containerLogMaxFiles": 5,
        "containerLogMaxSize": "10Mi",
        "clusterDNS": [dns],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": RUNTIME,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": ports::KUBELET_HEALTH,
        "rotateCertificates": true,
        // The container runtime's filter of system calls, for pods that name none.
        "seccompDefault": true,
        "staticPodPath": MANIFESTS,
        "tlsCertFile": format!("{SERVING}.crt"),
        "tlsPrivateKeyFile": format!("{SERVING}.key"),
        "volumePluginDir": VOLUME_PLUGINS,
        "resolvConf": if node.dns_servers.is_empty() && !node.is_leased() { "" } else { RESOLVERS },
        "runtimeRequestTimeout": format!("{}s", 120 * timeout_factor),
        "nodeStatusUpdateFrequency": format!("{}s", 10 * timeout_factor.min(4)),
        // How often an unchanged status is sent to the API server. Without it, the kubelet takes the line above, not its own 5 min.
        "nodeStatusReportFrequency": "5m",
        // etcd, the runtime and the agent run next to the pods.
        "systemReserved": {
            "cpu": "200m",
            "memory": format!("{}Mi", reserved_memory(platform.memory())),
            "pid": PIDS.to_string(),
        },
        // A container has its host's settings.
        "protectKernelDefaults": !platform.is_container(),
        "tlsCipherSuites": CIPHER_SUITES,
        // No pod takes all processes. Before all pods together have their share, those that take most are evicted. The
        // static pods have the same share, and the kubelet does not evict these.
        "podPidsLimit": PIDS,
        "evictionHard": {"pid.available": (2 * PIDS).to_string()},
        // Without it, naming one threshold leaves out all the usual ones.
        "mergeDefaultEvictionSettings": true,
    });
    if let Some(cgroup) = platform.cgroup_root() {
        kubelet["cgroupRoot"] = json!(cgroup);
        kubelet["cgroupDriver"] = json!("cgroupfs");
    }
    if !platform.fail_cgroup_v1() {
        kubelet["failCgroupV1"] = json!(false);
    }
    kubelet
}

/// The taints of a control-plane node of this role: none if workloads run on it.
pub fn taints(role: Role) -> Vec<Value> {
    match role.runs_workloads() {
        true => Vec::new(),
        false => vec![json!({"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"})],
    }
}

/// Makes the configuration that of a control-plane node's kubelet: it registers with the taints, so that no pod comes before them.
pub fn of_control_plane(kubelet: &mut Value, role: Role) {
    kubelet["registerWithTaints"] = taints(role).into();
}

/// Stops the kubelet until [`resume`]. The cluster then calls the node not ready, and its pods leave all services.
/// Returns whether it was not suspended before.
pub fn suspend(root: &Path, services: &Services<'_>) -> anyhow::Result<bool> {
    let changed = files::ensure_content(&files::below(root, HELD), b"", 0o644)?;
    services.stop(UNIT, STOPPING)?;
    Ok(changed)
}

/// Starts a suspended kubelet again. Returns whether it was suspended.
pub fn resume(root: &Path, services: &Services<'_>) -> anyhow::Result<bool> {
    let mark = files::below(root, HELD);
    if !mark.exists() {
        return Ok(false);
    }
    services.start(UNIT)?;
    files::remove(&mark)?;
    Ok(true)
}

/// Restarts the kubelet, unless it was stopped. It registers its node at its start only.
pub fn try_restart(runner: &dyn Runner) -> anyhow::Result<()> {
    runner.run(&Command::new("systemctl").args(["try-restart", UNIT]))?;
    Ok(())
}

pub fn serving_leaf(node: &ControlNode) -> Leaf {
    Leaf {
        common_name: format!("system:node:{}", node.name),
        group: None,
        names: [node.name.clone()].into(),
        addresses: [IpAddr::V4(node.address)].into(),
        server: true,
        client: false,
    }
}

/// Removes the records of the kubelet of an earlier boot.
pub fn forget_pods(root: &Path) -> io::Result<()> {
    for name in CHECKPOINTS {
        files::remove(&root.join("var/lib/kubelet").join(name))?;
    }
    Ok(())
}

/// The complete certificates that the kubelet has renewed, with their keys, by the names of their files: the newest
/// last. They have begun or begin within an hour. They may have expired.
pub fn renewed(root: &Path, kind: &str, now: SystemTime) -> Vec<(String, CertificateWithKey)> {
    let directory = files::below(root, CERTIFICATES);
    let begins = format!("{kind}-");
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let names: BTreeSet<String> = names.filter(|name| name.starts_with(&begins) && name.ends_with(".pem")).collect();
    let read = |name: &String| fs::read_to_string(directory.join(name)).map(Zeroizing::new).ok();
    let pair = |name: String| pki::pair(&read(&name)?).map(|pair| (name, pair));
    let begins = |pair: &CertificateWithKey| pki::validity(&pair.certificate).map(|(begins, _)| begins);
    let is_valid = |(_, pair): &(String, CertificateWithKey)| begins(pair).is_ok_and(|begins| begins <= now + SOON);
    names.into_iter().filter_map(pair).filter(is_valid).collect()
}

pub fn kubeconfig_credentials(root: &Path) -> Option<CertificateWithKey> {
    let text = fs::read_to_string(files::below(root, KUBECONFIG)).map(Zeroizing::new).ok()?;
    pki::embedded(&text).ok()
}

/// Removes the certificates that the kubelet has received from the cluster, of one kind or of all. It then requests
/// others.
pub fn forget_certificates(root: &Path, kind: &str) -> io::Result<()> {
    let entries = match fs::read_dir(files::below(root, CERTIFICATES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{kind}-")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Replaces the link to a certificate that is damaged, begins in more than an hour, or has expired while another lasts.
/// The kubelet writes a renewed one without a flush and does not start with a part of it. The API server refuses a
/// certificate that is not valid yet.
///
/// Without a link, the kubelet starts with the certificate in its kubeconfig and links it, although a worker's may have
/// expired. The next call links one that lasts. Returns whether the kubelet has to start again.
pub fn replace_unusable_certificates(root: &Path, now: SystemTime) -> io::Result<bool> {
    let mut changed = false;
    for kind in [CLIENTS, "kubelet-server"] {
        let current = format!("{kind}-current.pem");
        let link = files::below(root, CERTIFICATES).join(&current);
        let usable = renewed(root, kind, now);
        let lasts = |pair: &CertificateWithKey| pki::expiry(&pair.certificate).is_ok_and(|end| end > now);
        // The newest of those that last; if none lasts, the newest.
        let best = usable.iter().filter(|(name, _)| *name != current).max_by_key(|(_, pair)| lasts(pair));
        let linked = link.symlink_metadata().is_ok();
        let held = match linked {
            true => usable.iter().find(|(name, _)| *name == current).map(|(_, pair)| lasts(pair)),
            // A renewal of all certificates removes the link and makes a new kubeconfig.
            false if kind == CLIENTS => kubeconfig_credentials(root).map(|pair| lasts(&pair)),
            false => None,
        };
        if held >= best.map(|(_, pair)| lasts(pair)) && (held.is_some() || !linked) {
            continue;
        }
        let next = best.map_or("another one", |(name, _)| name);
        log::warn!("{} is missing, not usable or has expired: the kubelet uses {next}", link.display());
        files::remove(&link)?;
        if let Some((name, _)) = best {
            symlink(name, &link)?;
        }
        changed = true;
    }
    Ok(changed)
}

/// Makes the configuration that of a worker's kubelet, in the VM with this BIOS UUID.
///
/// There are no static pods. The cluster's CA, whose key a worker does not have, signs the serving certificate: the
/// kubelet requests it, and control-plane nodes approve it ([`super::approval`]).
pub fn of_worker(kubelet: &mut Value, registration: &Registration, bios_uuid: Option<BiosUuid>) {
    if let Some(settings) = kubelet.as_object_mut() {
        for name in ["staticPodPath", "tlsCertFile", "tlsPrivateKeyFile"] {
            settings.remove(name);
        }
    }
    kubelet["serverTLSBootstrap"] = json!(true);
    // A control-plane node's virtual IP would move away only after its API server has ended.
    kubelet["shutdownGracePeriod"] = json!(format!("{}s", GRACE.as_secs()));
    kubelet["shutdownGracePeriodCriticalPods"] = json!(format!("{}s", GRACE_OF_SYSTEM.as_secs()));
    if let Some(id) = bios_uuid.map(BiosUuid::provider_id) {
        kubelet["providerID"] = json!(id);
    }
    let taint = |taint: &Taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect});
    kubelet["registerWithTaints"] = registration.taints.iter().map(taint).collect();
}

/// The argument with a worker's labels, for which the configuration has no field. `None` without labels. One label says
/// whether it has a disk for local volumes.
pub fn labels(registration: &Registration, local_volumes: bool) -> Option<String> {
    let mut labels: Vec<String> = registration.labels().iter().map(ToString::to_string).collect();
    labels.extend(local_volumes.then(|| format!("{}=true", local_volumes::LABEL)));
    (!labels.is_empty()).then(|| format!("--node-labels={}", labels.join(",")))
}

/// The unit's environment file, with further arguments of the kubelet, in which there is no white space.
pub fn environment(address: Ipv4Addr, arguments: &[String]) -> String {
    let arguments = match arguments {
        [] => String::new(),
        some => format!("KUBELET_ARGUMENTS={}\n", some.join(" ")),
    };
    format!("NODE_ADDRESS={address}\n{arguments}")
}

/// Whether systemd creates the pods' cgroups.
pub fn systemd_cgroups(platform: &Platform) -> bool {
    platform.cgroup_root().is_none()
}
