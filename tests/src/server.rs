//! A server of two pods on two workers, of an image that every node has: what it is, as objects of a cluster.

use serde_json::{Value, json};

/// The port that the server's health page is on, and that of its service.
const PAGE: u16 = 8080;
/// The port of its service.
pub const SERVICE: u16 = 80;

/// The objects of the server, each with the path that creates it. After a request to end, the server reports for ten seconds that it
/// is healthy, so that clients learn of its end first.
pub fn objects(image: &str, has_addresses: bool) -> [(Value, &'static str); 4] {
    let corefile = format!(".:5353 {{\n    health :{PAGE} {{\n        lameduck 10s\n    }}\n}}\n");
    let soon = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10});
    let spread = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
    [
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"Corefile": corefile}}),
            "/api/v1/namespaces/default/configmaps",
        ),
        (
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }),
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        ),
        (
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {
                    "type": if has_addresses { "LoadBalancer" } else { "NodePort" },
                    "selector": {"app": "web"}, "ports": [{"port": SERVICE, "targetPort": PAGE}],
                },
            }),
            "/api/v1/namespaces/default/services",
        ),
        (
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 100, "podAffinityTerm": spread},
                        ]}},
                        "tolerations": [soon("node.kubernetes.io/unreachable"), soon("node.kubernetes.io/not-ready")],
                        "containers": [{
                            "name": "web", "image": image, "imagePullPolicy": "Never",
                            "args": ["-conf", "/etc/web/Corefile"],
                            "readinessProbe": {"httpGet": {"path": "/health", "port": PAGE}, "periodSeconds": 1},
                            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
                            "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}],
                        }],
                        "volumes": [{"name": "web", "configMap": {"name": "web"}}],
                    }},
                },
            }),
            "/apis/apps/v1/namespaces/default/deployments",
        ),
    ]
}
