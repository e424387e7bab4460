//! The objects that a tenant cluster creates for workers: its identity, its settings for them, and their rights.
//! Objects that kubeadm has too have its names, so that its tokens fit (`kubeadm token create`).

use contract::join_token;
use contract::kubeconfig;
use contract::ports;
use serde_json::{Value, json};

use super::rights::{NODE_READER, binding, renewed};
use crate::cluster::join::published::{self, PublishedCluster};
use crate::cluster::join::settings;
use crate::cluster::kubernetes::NODES;
use crate::intake::config::ControlPlane;

/// All of them. None if no workers join. `authority` is the certificate of the cluster's CA, in PEM.
///
/// A worker gets only what its pods could learn anyway, and its own node. With the kubelet's certificate, its only one,
/// it reads nodes, services and endpoints for the pod network and kube-proxy. It may write what Kubernetes lets a node
/// write. It also reads the settings of workers, which it has itself ([`settings`]). A process that breaks out of a pod gets no more
/// than that.
///
/// kubeadm has one more binding, by which Kubernetes approves any node's certificate that is requested with a token.
/// Here [`crate::cluster::kubernetes::approval`] approves it, and checks which node that is.
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
        reader(proof, "kube-public", ("configmaps", "cluster-info")),
        reader_binding(proof, "kube-public", &[("User", "system:anonymous")]),
        PublishedCluster::of(cluster).object(),
        reader(facts, "kube-system", ("configmaps", published::NAME)),
        reader_binding(facts, "kube-system", &groups),
        binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", &groups[..1]),
        // A joining worker sees which names and addresses are in use.
        binding("system:kaas:worker-node-reader", NODE_READER, &groups),
        // An earlier image gave all nodes this right.
        renewed(cluster),
        binding("system:kaas:worker-proxier", "system:node-proxier", &groups[1..]),
        settings::object(&settings::of(config)),
        reader(SETTINGS, settings::NAMESPACE, ("secrets", settings::NAME)),
        reader_binding(SETTINGS, settings::NAMESPACE, &groups[1..]),
    ]
}

/// The role that may read the settings for workers.
const SETTINGS: &str = "kaas:worker-settings";

/// A role that may read one object, given by its resource and name.
fn reader(name: &str, namespace: &str, (resource, object): (&str, &str)) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": [{"apiGroups": [""], "resources": [resource], "resourceNames": [object], "verbs": ["get"]}],
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
