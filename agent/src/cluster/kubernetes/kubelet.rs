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

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kubelet.yaml";
/// The kubelet's credentials. A control node's name its own API server, as kubeadm's do since 1.36: a kubelet
/// must not be newer than the API server that it speaks to, and behind the virtual IP that may be one
/// of the minor before. A worker's name the virtual IP; it is never newer than the oldest.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// Where the unit finds this node's address.
pub const ENVIRONMENT: &str = "/run/kaas/kubelet.env";
pub const UNIT: &str = "kubelet.service";

/// The serving certificate and its key, without their endings. The agent makes
/// them: the kubelet writes its own in place, and does not start any more when a
/// power cut has left them empty; and nobody could verify one that it signed itself.
pub const SERVING: &str = "/var/lib/kubelet/pki/kubelet";

/// The certificate and key that the kubelet gets from the cluster and renews.
pub const CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// The directory of the kubelet's own certificates.
pub const CERTIFICATES: &str = "/var/lib/kubelet/pki";

/// What the names of the files begin with that hold the client certificates the kubelet has renewed. The link
/// `kubelet-client-current.pem` names the one that it uses.
pub const CLIENTS: &str = "kubelet-client";

/// A certificate that is valid within this time is waited for: the clock of the node that signed it may be ahead for good.
const SOON: Duration = Duration::from_secs(60 * 60);

/// There while the kubelet is stopped because the node has another address than its cluster knows.
const HELD: &str = "/run/kaas/kubelet-held";

/// How long the kubelet may take to stop; pods go on running.
const STOPPING: Duration = Duration::from_secs(30);

/// What the kubelet remembers of running pods. It refuses to start when a power cut
/// has damaged one of these, and after a reboot no pod runs.
const CHECKPOINTS: [&str; 6] = [
    "cpu_manager_state",
    "memory_manager_state",
    "dra_manager_state",
    "allocated_pods_state",
    "actuated_pods_state",
    "device-plugins/kubelet_internal_checkpoint",
];

/// Where systemd-resolved lists the resolvers themselves, without its stub:
/// pods cannot reach the stub on loopback.
pub const RESOLVERS: &str = "/run/systemd/resolve/resolv.conf";

/// So many processes and threads are kept free of pods for etcd, the runtime and the agent, and no pod has more. The
/// kernel allows some 31,000 with 4 GiB of memory (`kernel.threads-max`).
const PIDS: u32 = 4096;

/// How long pods of a worker may take to end when it is shut down, those of the system included, and how much of it the
/// system's have. systemd-logind delays the shutdown for at least as long (`systemd/logind.conf.d`).
const GRACE: Duration = Duration::from_secs(180);
const GRACE_OF_SYSTEM: Duration = Duration::from_secs(30);

/// Memory kept free of pods, in MiB: the steps of Google Kubernetes Engine, and at least 400. A larger node has more pods, and
/// so a larger runtime, kubelet and database.
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
        // etcd, the runtime and the agent live beside the pods.
        "systemReserved": {
            "cpu": "200m",
            "memory": format!("{}Mi", reserved_memory(platform.memory())),
            "pid": PIDS.to_string(),
        },
        // A container has its host's settings.
        "protectKernelDefaults": !platform.is_container(),
        "tlsCipherSuites": CIPHER_SUITES,
        // No pod takes all processes, and before all pods together have what is theirs, those that take most are evicted:
        // the static pods share it with them, and the kubelet leaves those alone.
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

/// Stops the kubelet until it is [let go](let_go): its cluster calls the node not ready then, and its pods leave all
/// services. Says whether it was not stopped so before.
///
/// # Errors
/// The file system's, or systemd's.
pub fn suspend(root: &Path, services: &Services<'_>) -> anyhow::Result<bool> {
    let changed = files::ensure_content(&files::below(root, HELD), b"", 0o644)?;
    services.stop(UNIT, STOPPING)?;
    Ok(changed)
}

/// Starts the kubelet again if it was held. Says whether it was.
///
/// # Errors
/// The file system's, or systemd's.
pub fn resume(root: &Path, services: &Services<'_>) -> anyhow::Result<bool> {
    let mark = files::below(root, HELD);
    if !mark.exists() {
        return Ok(false);
    }
    services.start(UNIT)?;
    files::remove(&mark)?;
    Ok(true)
}

/// Restarts the kubelet, unless something has stopped it. It registers its node at its start only.
///
/// # Errors
/// systemd's.
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

/// Removes what the kubelet of an earlier boot remembered.
///
/// # Errors
/// The file system's.
pub fn forget_pods(root: &Path) -> io::Result<()> {
    for name in CHECKPOINTS {
        files::remove(&root.join("var/lib/kubelet").join(name))?;
    }
    Ok(())
}

/// The whole ones of the certificates that the kubelet has renewed, with their keys, by the names of their files: the newest last.
/// They have begun or begin within an hour. They may have expired.
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

/// The certificate in the kubelet's kubeconfig, and its key.
pub fn kubeconfig_credentials(root: &Path) -> Option<CertificateWithKey> {
    let text = fs::read_to_string(files::below(root, KUBECONFIG)).map(Zeroizing::new).ok()?;
    pki::embedded(&text).ok()
}

/// Removes the certificates that the kubelet has got from the cluster, of one kind or of all: it asks for others.
///
/// # Errors
/// The file system's.
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

/// Replaces the link to a certificate that is damaged, begins in more than an hour, or that has expired while another lasts. The
/// kubelet writes what it renews without a flush and does not start with half of it. The API server refuses a certificate of the
/// future.
///
/// Without a link, the kubelet starts with the certificate in its kubeconfig and links it, although a worker's may have expired. The
/// next call links one that lasts. Returns whether the kubelet has to start again.
///
/// # Errors
/// The file system's.
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
        log::warn!("{} is missing, not usable or has expired: the kubelet goes on with {next}", link.display());
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
/// There are no static pods. The cluster's authority, whose key a worker does not have, signs the serving certificate:
/// the kubelet asks for it, and control nodes approve it ([`super::approval`]).
pub fn of_worker(kubelet: &mut Value, registration: &Registration, bios_uuid: Option<BiosUuid>) {
    if let Some(settings) = kubelet.as_object_mut() {
        for name in ["staticPodPath", "tlsCertFile", "tlsPrivateKeyFile"] {
            settings.remove(name);
        }
    }
    kubelet["serverTLSBootstrap"] = json!(true);
    // A control node's virtual IP would move away only after its API server has ended.
    kubelet["shutdownGracePeriod"] = json!(format!("{}s", GRACE.as_secs()));
    kubelet["shutdownGracePeriodCriticalPods"] = json!(format!("{}s", GRACE_OF_SYSTEM.as_secs()));
    if let Some(id) = bios_uuid.map(BiosUuid::provider_id) {
        kubelet["providerID"] = json!(id);
    }
    let taint = |taint: &Taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect});
    kubelet["registerWithTaints"] = registration.taints.iter().map(taint).collect();
}

/// The argument with a worker's labels, which the configuration has no place for; none without labels. One says whether it
/// has a disk for local volumes.
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

/// Whether pods' cgroups are made by systemd.
pub fn systemd_cgroups(platform: &Platform) -> bool {
    platform.cgroup_root().is_none()
}
