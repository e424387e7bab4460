//! What the host services may do in the cluster, beyond what Kubernetes'
//! built-in bindings give them (kube-proxy's is `system:node-proxier`).

use serde_json::{Value, json};

use crate::cluster::kubernetes::api;

/// The user of the pod network's certificate.
const POD_NETWORK: &str = "system:kaas:pod-network";

/// The user of the API server's certificate for kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The role, and its binding, that lets its users follow the list of nodes.
pub(super) const NODE_READER: &str = "system:kaas:node-reader";

/// Administrators' group and its binding, as kubeadm names both.
const ADMINISTRATORS: &str = "kubeadm:cluster-admins";

/// The agent and the pod network follow the list of nodes; kubelets renew
/// their certificates; administrators, the node's own kubeconfig among them, may do everything.
pub(super) fn objects() -> Vec<Value> {
    vec![
        binding(ADMINISTRATORS, "cluster-admin", &[("Group", ADMINISTRATORS)]),
        // Kubelets renew their own client certificates: kubeadm makes this
        // binding together with its join tokens, which the appliance has no use for.
        binding(
            "system:kaas:renew-node-certificates",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            &[("Group", "system:nodes")],
        ),
        // The API server may ask kubelets for logs and to run programs: kubeadm
        // makes this one with its join tokens, too.
        binding("system:kaas:kubelet-client", "system:kubelet-api-admin", &[("User", KUBELET_CLIENT)]),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NODE_READER},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
        }),
        binding(NODE_READER, NODE_READER, &[("User", POD_NETWORK), ("User", api::USER)]),
    ]
}

/// Lets one user do everything; the binding has the user's name.
pub(super) fn administrator(user: &str) -> Value {
    binding(user, "cluster-admin", &[("User", user)])
}

/// Gives a cluster role to subjects, each with its kind.
pub(super) fn binding(name: &str, role: &str, subjects: &[(&str, &str)]) -> Value {
    let subject =
        |(kind, name): &(&str, &str)| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects.iter().map(subject).collect::<Vec<_>>(),
    })
}
