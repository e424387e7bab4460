//! Cluster DNS. The objects follow kubeadm's (`phases/addons/dns`), with the
//! appliance's image and addresses.

use contract::image;
use serde_json::{Value, json};

use super::dns_servers;
use crate::cluster::kubernetes::DOMAIN;
use crate::intake::config::ControlPlane;

/// How many copies run: one on one node, else two, so that one node may fail.
fn replicas(config: &ControlPlane) -> u32 {
    if config.cluster.control_nodes.len() > 1 { 2 } else { 1 }
}

/// CoreDNS's configuration. It names the DNS servers. `/etc/resolv.conf` of a node that has none yet says 127.0.0.1, and the plugin
/// `loop` would end CoreDNS. CoreDNS refuses to start with an empty list.
fn corefile(config: &ControlPlane) -> String {
    let servers = dns_servers(&config.node).join(" ");
    let forward = match servers.as_str() {
        "" => String::new(),
        servers => format!("    forward . {servers} {{\n        max_concurrent 1000\n    }}\n"),
    };
    format!(
        ".:53 {{\n\
         \x20   errors\n\
         \x20   health {{\n\
         \x20       lameduck 5s\n\
         \x20   }}\n\
         \x20   ready\n\
         \x20   kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{\n\
         \x20       pods insecure\n\
         \x20       fallthrough in-addr.arpa ip6.arpa\n\
         \x20       ttl 30\n\
         \x20   }}\n\
         {forward}\
         \x20   cache 30\n\
         \x20   loop\n\
         \x20   reload\n\
         \x20   loadbalance\n\
         }}\n"
    )
}

/// The objects of cluster DNS.
pub(super) fn objects(config: &ControlPlane) -> Vec<Value> {
    let labels = json!({"k8s-app": "kube-dns"});
    let metadata = |name: &str| json!({"name": name, "namespace": "kube-system", "labels": labels});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("coredns")}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata("coredns"),
            "data": {"Corefile": corefile(config)},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {
                    "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
                },
                "annotations": {"prometheus.io/port": "9153", "prometheus.io/scrape": "true"},
            },
            "spec": {
                "clusterIP": config.cluster.dns_address(),
                "selector": labels,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
                ],
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "coredns", "namespace": "kube-system", "labels": labels,
            },
            "spec": {
                "replicas": replicas(config),
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod()},
            },
        }),
        // Two nodes that are drained at once leave one copy.
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata("coredns"),
            "spec": {
                "maxUnavailable": 1,
                "selector": {"matchLabels": labels},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        }),
    ]
}

fn pod() -> Value {
    json!({
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                "topologyKey": "kubernetes.io/hostname",
            },
        }]}},
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
            // Without root's rights, which a program of another user does not get from the container's capabilities.
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "53"}],
        },
        "containers": [{
            "name": "coredns",
            "image": image::reference("coredns", image::CARRIED),
            "imagePullPolicy": "IfNotPresent",
            "args": ["-conf", "/etc/coredns/Corefile"],
            "resources": {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}},
            "ports": [
                {"containerPort": 53, "name": "dns", "protocol": "UDP"},
                {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
                {"containerPort": 9153, "name": "metrics", "protocol": "TCP"},
            ],
            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
            "livenessProbe": {
                "httpGet": {"path": "/health", "port": 8080},
                "initialDelaySeconds": 60, "timeoutSeconds": 5, "failureThreshold": 5,
            },
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "timeoutSeconds": 5},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
        }],
        "volumes": [{
            "name": "config",
            "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]},
        }],
    })
}
