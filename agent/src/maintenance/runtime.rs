//! containerd goes on without a plugin that failed to start, and the kubelet
//! then asks in vain for ever: a runtime without CRI is restarted.

use contract::finding::Findings;

use crate::cluster::kubernetes::containerd;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    // While the node is Ready, the kubelet reaches it.
    if node.reporter.status().is_ready() {
        return Ok(Findings::default());
    }
    if !containerd::serves_kubernetes(node.runner())? {
        log::warn!("the container runtime came up without its Kubernetes interface: it is restarted");
        node.services().restart(containerd::UNIT)?;
    }
    Ok(Findings::default())
}
