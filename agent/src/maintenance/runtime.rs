//! The container runtime of a node that is not ready. Started if systemd has given it up. Restarted if it runs without its
//! Kubernetes interface, for which the kubelet would wait forever.

use contract::finding::Findings;

use crate::cluster::kubernetes::containerd;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let recreated = containerd::recreated(node.root()).into();
    // While the node is Ready, the kubelet reaches it.
    if node.reporter.status().is_ready() {
        return Ok(recreated);
    }
    let services = node.services();
    let serves = containerd::serves_kubernetes(node.runner());
    if !matches!(serves, Ok(true)) && services.ends_at_each_start(containerd::UNIT)? {
        return Ok(containerd::failed().into());
    }
    if !services.start(containerd::UNIT)? && !serves? {
        log::warn!("the container runtime came up without its Kubernetes interface: it is restarted");
        services.restart(containerd::UNIT)?;
    }
    Ok(recreated)
}
