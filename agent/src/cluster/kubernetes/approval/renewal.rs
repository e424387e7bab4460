//! The next client certificate of a worker, requested before its present one expires. Kubernetes' own approver also
//! renews the certificates of removed nodes. It therefore approves only those of control-plane nodes. This module judges
//! whether a worker still belongs to the cluster.

use super::joining::USAGES;
use super::node::Node;
use super::records::WorkerRecords;
use super::{Refusal, Spec};
use crate::cluster::kubernetes::NODES;
use crate::intake::config::ControlPlane;

/// The worker that asks, if it is one: control-plane nodes are not ours.
pub(super) fn worker_of<'a>(spec: &'a Spec, config: &ControlPlane) -> Option<&'a str> {
    let name = spec.username.strip_prefix("system:node:").filter(|_| spec.is_of(NODES))?;
    config.cluster.control_nodes.iter().all(|node| node.name != name).then_some(name)
}

/// Judges the request of a worker by the nodes of the cluster and their records.
pub(super) fn judge(name: &str, spec: &Spec, nodes: &[Node], records: Option<&WorkerRecords>) -> Result<(), Refusal> {
    let asked = spec.asked(&USAGES)?;
    if asked.common_name != spec.username || asked.organization != NODES {
        return Err(Refusal::never("its subject is another one's"));
    }
    if !asked.names.is_empty() || !asked.addresses.is_empty() {
        return Err(Refusal::never("it names more than the node"));
    }
    let node = nodes.iter().find(|node| node.name() == name);
    let node = node.ok_or_else(|| Refusal::never("the cluster no longer has such a node: it needs a join token"))?;
    if let Some(records) = records {
        records.record_of(node).map_err(Refusal::never)?;
    }
    Ok(())
}
