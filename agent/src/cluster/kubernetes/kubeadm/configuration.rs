//! kubeadm's configuration (`kubeadm.k8s.io/v1beta4`), and the patches of the static pods that it makes. Text from
//! settings; reads and changes nothing.

use contract::image;
use contract::ports;
use serde_json::{Value, json};

use crate::cluster::certificates;
use crate::cluster::etcd;
use crate::cluster::kubernetes::{CIPHER_SUITES, DOMAIN, PKI, RUNTIME, VOLUME_PLUGINS, api_server, kubelet};
use crate::host::platform::Platform;
use crate::intake::config::ControlPlane;

/// The patches of the static pods, written at each boot.
pub const PATCHES: &str = "/run/kaas/kubeadm-patches";

/// kubeadm's configuration documents. `version` is the full version of the cluster's minor version, without the leading
/// v. The API server shows the operator's own certificate under `names`.
pub fn documents(config: &ControlPlane, platform: &Platform, version: &str, names: &[String]) -> String {
    let cluster = &config.cluster;
    let factor = config.timeout_factor;
    let argument = |name: &str, value: String| json!({"name": name, "value": value});
    let mut election = vec![argument("profiling", "false".to_owned())];
    if factor > 1 {
        // Upstream's 15 s, 10 s and 2 s, stretched together.
        election.push(argument("leader-elect-lease-duration", format!("{}s", 15 * factor)));
        election.push(argument("leader-elect-renew-deadline", format!("{}s", 10 * factor)));
        election.push(argument("leader-elect-retry-period", format!("{}s", 2 * factor)));
    }
    let mut manager = election.clone();
    manager.push(argument("flex-volume-plugin-dir", VOLUME_PLUGINS.to_owned()));
    // Pods that have ended and that nothing removes.
    manager.push(argument("terminated-pod-gc-threshold", "1000".to_owned()));
    // The default of Kubernetes is 24.
    if cluster.node_prefix != 24 {
        manager.push(argument("node-cidr-mask-size", cluster.node_prefix.to_string()));
    }
    if factor > 1 {
        // Upstream's 50 s until a silent node counts as lost.
        manager.push(argument("node-monitor-grace-period", format!("{}s", 50 * factor)));
    }
    let mut server = vec![
        argument("kubelet-certificate-authority", format!("{PKI}/ca.crt")),
        // Without it a server that is shut down waits a minute for clients that watch, including those that left with
        // the virtual IP. With it, the server waits for requests, and answers new ones with 429.
        argument("shutdown-send-retry-after", "true".to_owned()),
        argument("profiling", "false".to_owned()),
        argument("tls-cipher-suites", CIPHER_SUITES.join(",")),
    ];
    server.extend(api_server::arguments().into_iter().map(|(name, value)| argument(name, value)));
    if !names.is_empty() {
        let own = certificates::api::PATH;
        server.push(argument("tls-sni-cert-key", format!("{own},{own}:{}", names.join(","))));
    }
    let node = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": config.address(), "bindPort": ports::API},
        "nodeRegistration": {"name": config.node.name, "criSocket": RUNTIME, "taints": kubelet::taints(config.role)},
        "patches": {"directory": PATCHES},
        "timeouts": {
            "controlPlaneComponentHealthCheck": format!("{}s", 240 * factor),
            "kubernetesAPICall": format!("{}s", 60 * factor),
            "etcdAPICall": format!("{}s", 120 * factor),
            "kubeletHealthCheck": format!("{}s", 240 * factor),
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
        "controlPlaneEndpoint": format!("{}:{}", cluster.api_address(), ports::API),
        "networking": {
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
            "dnsDomain": DOMAIN,
        },
        // The agent brings its own.
        "dns": {"disabled": true},
        "proxy": {"disabled": true},
        "apiServer": {
            "certSANs": ["localhost", "127.0.0.1"],
            "extraArgs": server,
            "extraVolumes": api_server::volumes(),
        },
        "controllerManager": {"extraArgs": manager},
        "scheduler": {"extraArgs": election},
        "etcd": {"external": {
            "endpoints": [etcd::OWN],
            "caFile": format!("{PKI}/etcd/ca.crt"),
            "certFile": format!("{PKI}/apiserver-etcd-client.crt"),
            "keyFile": format!("{PKI}/apiserver-etcd-client.key"),
        }},
    });
    let kubelet = kubelet::configuration(&config.node, cluster.dns_address(), config.timeout_factor, platform);
    format!("{node:#}\n---\n{whole:#}\n---\n{kubelet:#}\n")
}

/// The annotation of a static pod that identifies the credentials it was started with.
pub const MARK: &str = "kaas.local/credentials";

/// The API server's liveness probe, without etcd: a restart does not bring a member or a quorum back. The kubelet's
/// growing pauses between such restarts would delay the API server after they have come back.
const ALIVE: &str = "/livez?exclude=etcd";

/// The patches of the static pods: file names and contents, with the given marks. On a slow host the kubelet must not
/// kill a container that is only slow.
pub fn patches(config: &ControlPlane, marks: &[(&str, String)]) -> Vec<(String, String)> {
    let factor = config.timeout_factor;
    let patch = |component: &str, mark: &str| -> Value {
        // kubeadm requests processors alone: without this the scheduler gives the memory of these pods to others.
        let memory = if component == "kube-apiserver" { "256Mi" } else { "64Mi" };
        let mut container = json!({"name": component, "resources": {"requests": {"memory": memory}}});
        if factor > 1 {
            // kubeadm's own thresholds (`util/staticpod`); it scales the startup
            // probe's from its timeouts.
            container["livenessProbe"] = json!({"failureThreshold": 8 * factor, "timeoutSeconds": 15 * factor});
            container["startupProbe"] = json!({"timeoutSeconds": 15 * factor});
        }
        if component == "kube-apiserver" {
            container["livenessProbe"]["httpGet"] = json!({"path": ALIVE});
            if factor > 1 {
                container["readinessProbe"] = json!({"timeoutSeconds": 15 * factor});
            }
        }
        json!({"metadata": {"annotations": {MARK: mark}}, "spec": {"containers": [container]}})
    };
    let file = |(name, mark): &(&str, String)| (format!("{name}+strategic.json"), format!("{:#}\n", patch(name, mark)));
    marks.iter().map(file).collect()
}
