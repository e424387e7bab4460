//! What the host services may do in the cluster, beyond what Kubernetes'
//! built-in bindings give them (kube-proxy's is `system:node-proxier`).

use serde_json::{Value, json};

use crate::kubernetes::api;

/// The user of the pod network's certificate.
const POD_NETWORK: &str = "system:kaas:pod-network";

/// The agent and the pod network follow the list of nodes.
pub(super) fn objects() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:kaas:node-reader"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:kaas:node-reader"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kaas:node-reader",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": POD_NETWORK},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": api::USER},
            ],
        }),
    ]
}
