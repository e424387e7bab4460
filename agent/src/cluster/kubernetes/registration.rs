//! The Node object of a control-plane node. The kubelet makes it at its start only, without role; kubeadm adds that once.

use anyhow::Context as _;
use contract::role::Role;
use ipnet::Ipv4Net;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::refused;
use super::api::Api;
use super::kubelet;

const NODES: &str = "/api/v1/nodes";

/// The label of control-plane nodes, which kubeadm sets (`mark-control-plane`).
const ROLE: &str = "node-role.kubernetes.io/control-plane";

/// The Node object as kubelet and kubeadm make it together. Without a range the cluster gives it one.
fn object(name: &str, role: Role, range: Option<Ipv4Net>) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/exclude-from-external-load-balancers": "",
            ROLE: "",
        }},
        "spec": {"taints": kubelet::taints(role)},
    });
    if let Some(range) = range {
        node["spec"]["podCIDR"] = json!(range);
        node["spec"]["podCIDRs"] = json!([range]);
    }
    node
}

/// A Node object of the cluster.
#[derive(Debug, Deserialize)]
pub struct NodeObject(Value);

impl NodeObject {
    /// Whether it has the label and the taints of a control-plane node of this role.
    pub fn is_marked(&self, role: Role) -> bool {
        let has = |wanted: &Value| {
            let mut taints = self.0["spec"]["taints"].as_array().into_iter().flatten();
            taints.any(|taint| taint["key"] == wanted["key"] && taint["effect"] == wanted["effect"])
        };
        self.0["metadata"]["labels"].get(ROLE).is_some() && kubelet::taints(role).iter().all(has)
    }

    /// Whether the kubelet has reported what the node can hold. A kubelet that starts before that refuses static pods.
    pub fn is_reported(&self) -> bool {
        self.0["status"]["allocatable"]["pods"].is_string()
    }

    /// The range of its pods' addresses, once it has one.
    pub fn range(&self) -> Option<Ipv4Net> {
        self.0["spec"]["podCIDR"].as_str()?.parse().ok()
    }
}

impl Api {
    /// The Node object of a name, if the cluster has it.
    ///
    /// # Errors
    /// The API does not answer, or not with a node.
    pub fn registered(&self, name: &str) -> anyhow::Result<Option<NodeObject>> {
        self.find(&format!("{NODES}/{name}")).with_context(|| format!("asking for the node {name}"))
    }

    /// Makes the Node object of a control-plane node. The node keeps the range that its pods have, unless another node has it.
    ///
    /// # Errors
    /// The API does not answer, or refuses; it may be called again.
    pub fn register(&self, name: &str, role: Role, range: Option<Ipv4Net>) -> anyhow::Result<()> {
        let others: Vec<NodeObject> = self.list(NODES).context("listing the nodes")?;
        let is_free = |range: &Ipv4Net| {
            let mut taken =
                others.iter().filter(|node| node.0["metadata"]["name"] != name).filter_map(NodeObject::range);
            !taken.any(|other| other.contains(range) || range.contains(&other))
        };
        let answer = self.post(NODES, &object(name, role, range.filter(is_free)))?;
        match answer.code {
            // 409: the kubelet was faster.
            200 | 201 | 409 => Ok(()),
            _ => Err(refused(&answer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(node: Value) -> NodeObject {
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_node_that_is_made_again_is_marked() {
        for role in [Role::ControlPlane, Role::TenantControlPlane] {
            let range = "10.244.3.0/24".parse().unwrap();
            let whole = object("cp1", role, Some(range));
            assert!(registered(whole.clone()).is_marked(role));
            assert_eq!(registered(whole.clone()).range(), Some(range));
            let mut plain = whole;
            plain["metadata"]["labels"].as_object_mut().unwrap().remove(ROLE);
            assert!(!registered(plain).is_marked(role));
            assert!(object("cp1", role, None)["spec"].get("podCIDR").is_none());
        }
    }

    #[test]
    fn a_missing_taint_is_found() {
        let mut bare = object("cp1", Role::TenantControlPlane, None);
        bare["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        assert!(!registered(bare.clone()).is_marked(Role::TenantControlPlane));
        assert!(registered(bare).is_marked(Role::ControlPlane));
    }
}
