//! The rights of host services, in addition to Kubernetes' built-in bindings (kube-proxy's is `system:node-proxier`).

use serde_json::{Value, json};

use crate::cluster::kubernetes::api;
use crate::intake::config::Cluster;

const POD_NETWORK: &str = "system:kaas:pod-network";

/// The user of the API server's certificate for kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The role and its binding. Its users may follow the list of nodes.
pub(super) const NODE_READER: &str = "system:kaas:node-reader";

/// The binding by which Kubernetes renews the certificates of kubelets.
const RENEWED: &str = "system:kaas:renew-node-certificates";

/// Administrators' group and its binding, as kubeadm names both.
const ADMINISTRATORS: &str = "kubeadm:cluster-admins";

/// The agent and the pod network follow the list of nodes. Kubelets renew their certificates. Administrators, including
/// the node's own kubeconfig, may do everything.
pub(super) fn objects(cluster: &Cluster) -> Vec<Value> {
    vec![
        binding(ADMINISTRATORS, "cluster-admin", &[("Group", ADMINISTRATORS)]),
        renewed(cluster),
        // The API server may ask kubelets for logs and to run programs. kubeadm creates this one with its join tokens.
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

/// Lets the kubelets of control-plane nodes renew their client certificates. kubeadm's binding is for all nodes: a
/// removed worker could renew its own forever. Control-plane nodes judge the renewals of workers
/// ([`crate::cluster::kubernetes::approval`]).
pub(super) fn renewed(cluster: &Cluster) -> Value {
    let users: Vec<String> = cluster.control_nodes.iter().map(|node| format!("system:node:{}", node.name)).collect();
    let subjects: Vec<_> = users.iter().map(|user| ("User", user.as_str())).collect();
    binding(RENEWED, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", &subjects)
}

/// Allows one user everything. The binding has the user's name.
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
