//! The kubelet: its configuration (`kubelet.config.k8s.io/v1beta1`).

use serde_json::{Value, json};

use super::{DOMAIN, MANIFESTS, PKI, RUNTIME, VOLUME_PLUGINS};
use crate::config::Config;
use crate::platform::Platform;

/// Where the configuration is laid at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kubelet.yaml";
/// Where the unit finds this node's address.
pub const ENVIRONMENT: &str = "/run/kaas/kubelet.env";
/// The systemd unit.
pub const UNIT: &str = "kubelet.service";

/// Where systemd-resolved lists the resolvers themselves, without its stub:
/// pods cannot reach the stub on loopback.
const RESOLVERS: &str = "/run/systemd/resolve/resolv.conf";

/// The kubelet's configuration as JSON, which YAML includes.
pub fn configuration(config: &Config, platform: &Platform) -> Value {
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
        "clusterDNS": [config.cluster.dns_address()],
        "clusterDomain": DOMAIN,
        "containerRuntimeEndpoint": RUNTIME,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": 10248,
        "rotateCertificates": true,
        "staticPodPath": MANIFESTS,
        "volumePluginDir": VOLUME_PLUGINS,
        "resolvConf": if config.node.dns_servers.is_empty() { "" } else { RESOLVERS },
        "runtimeRequestTimeout": format!("{}s", 120 * config.patience),
        "nodeStatusUpdateFrequency": format!("{}s", 10 * config.patience.min(4)),
        // etcd, the runtime and the agent live beside the pods.
        "systemReserved": {"cpu": "200m", "memory": "400Mi"},
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

/// The unit's environment file.
pub fn environment(config: &Config) -> String {
    format!("NODE_ADDRESS={}\n", config.address())
}

/// Whether pods' cgroups are made by systemd.
pub fn systemd_cgroups(platform: &Platform) -> bool {
    platform.cgroup_root().is_none()
}
