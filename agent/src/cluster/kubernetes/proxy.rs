//! kube-proxy as a host service: its configuration (`kubeproxy.config.k8s.io/v1alpha1`).

use contract::ports;
use contract::role::Role;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use crate::host::platform::Platform;
use crate::intake::config::Config;

/// The configuration, written at each boot.
pub const CONFIGURATION: &str = "/run/kaas/kube-proxy.yaml";
/// Its own client certificate, on the data disk.
pub const KUBECONFIG: &str = "/etc/kubernetes/kube-proxy.conf";
pub const UNIT: &str = "kube-proxy.service";

/// The configuration of kube-proxy as JSON, which YAML includes. `pods` are the addresses of all pods.
pub fn configuration(config: &Config, pods: Ipv4Net, platform: &Platform) -> Value {
    let mut proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": KUBECONFIG},
        "clusterCIDR": pods,
        "hostnameOverride": config.node().name,
        "healthzBindAddress": format!("127.0.0.1:{}", ports::PROXY_HEALTH),
        "metricsBindAddress": format!("127.0.0.1:{}", ports::PROXY_METRICS),
        // Services may have external IPs from before the API server refused them (KEP 5707).
        "featureGates": {"AllowServiceExternalIPs": false},
    });
    if config.role() != Role::ControlPlane {
        // MetalLB answers for the virtual IPs of services. Mode nftables gives none of them to a device, so that
        // nothing else does. Another mode would.
        proxy["ipvs"] = json!({"strictARP": true});
    }
    if platform.is_container() {
        // The kernel's connection tracking is the host's: zero leaves it alone.
        proxy["conntrack"] = json!({
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
        });
    }
    proxy
}
