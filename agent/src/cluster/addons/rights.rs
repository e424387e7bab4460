//! What the host services may do in the cluster, beyond what Kubernetes'
//! built-in bindings give them (kube-proxy's is `system:node-proxier`).

use serde_json::{Value, json};

use crate::cluster::kubernetes::api;

/// The user of the pod network's certificate.
const POD_NETWORK: &str = "system:kaas:pod-network";

/// The user of the API server's certificate for kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The agent and the pod network follow the list of nodes; kubelets renew
/// their certificates.
pub(super) fn objects() -> Vec<Value> {
    vec![
        // Kubelets renew their own client certificates: kubeadm makes this
        // binding together with its join tokens, which the appliance has no use for.
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:kaas:renew-node-certificates"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }),
        // The API server may ask kubelets for logs and to run programs: kubeadm
        // makes this one with its join tokens, too.
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:kaas:kubelet-client"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELET_CLIENT}],
        }),
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
