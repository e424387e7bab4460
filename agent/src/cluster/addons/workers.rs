//! What a tenant cluster lays so that workers can join it: who the cluster is, what it says to them, and their rights. The
//! objects that kubeadm has too bear its names, so that its tokens fit (`kubeadm token create`).

use contract::join_token;
use contract::kubeconfig;
use contract::ports;
use serde_json::{Value, json};

use super::rights::{NODE_READER, binding, renewed};
use crate::cluster::join::published::{self, PublishedCluster};
use crate::cluster::kubernetes::NODES;
use crate::intake::config::ControlPlane;

/// All of them; none where no workers join. `authority` is the cluster's, in PEM.
///
/// A worker is trusted with what its pods could learn anyway, and with its own node: it reads the list of nodes, services and
/// their ends, for the pod network and kube-proxy, with the kubelet's certificate, the only one it has. What it may
/// write is what Kubernetes lets a node write. Who breaks out of a pod gets no more than that.
///
/// kubeadm would lay one binding more, by which Kubernetes approves whatever node's certificate is asked for with a token. Here
/// [`crate::cluster::kubernetes::approval`] does, and looks which node that is.
pub(super) fn objects(config: &ControlPlane, authority: &str) -> Vec<Value> {
    if !config.role.takes_workers() {
        return Vec::new();
    }
    let cluster = &config.cluster;
    let server = format!("https://{}:{}", cluster.api_address(), ports::API);
    let groups = [("Group", join_token::GROUP), ("Group", NODES)];
    let (proof, facts) = ("kubeadm:bootstrap-signer-clusterinfo", "kaas:workers");
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": kubeconfig::without_user(&server, authority)},
        }),
        reader(proof, "kube-public", "cluster-info"),
        reader_binding(proof, "kube-public", &[("User", "system:anonymous")]),
        PublishedCluster::of(cluster).object(),
        reader(facts, "kube-system", published::NAME),
        reader_binding(facts, "kube-system", &groups),
        binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", &groups[..1]),
        // A worker that joins sees whose names and addresses are taken.
        binding("system:kaas:worker-node-reader", NODE_READER, &groups),
        // An earlier image gave all nodes this right.
        renewed(cluster),
        binding("system:kaas:worker-proxier", "system:node-proxier", &groups[1..]),
    ]
}

/// A role that may read one ConfigMap.
fn reader(name: &str, namespace: &str, map: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map], "verbs": ["get"]}],
    })
}

fn reader_binding(name: &str, namespace: &str, subjects: &[(&str, &str)]) -> Value {
    let mut object = binding(name, name, subjects);
    object["kind"] = json!("RoleBinding");
    object["metadata"]["namespace"] = json!(namespace);
    object["roleRef"]["kind"] = json!("Role");
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    #[test]
    fn the_control_cluster_takes_no_workers() {
        assert!(objects(&three_nodes(), "A").is_empty());
    }

    #[test]
    fn the_objects_of_a_tenant() {
        let objects = objects(&in_a_tenant(three_nodes()), "-----BEGIN CERTIFICATE-----\n");
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
