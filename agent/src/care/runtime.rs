//! containerd goes on without a plugin that failed to start, and the kubelet
//! then asks in vain for ever: a runtime without CRI is restarted.

use contract::finding::Findings;

use crate::kubernetes::containerd;
use crate::steps::Machine;

pub(super) fn look(machine: &Machine) -> anyhow::Result<Findings> {
    // While the node is Ready, the kubelet reaches it.
    if machine.reporter.status().is_ready() {
        return Ok(Findings::default());
    }
    if !containerd::serves_kubernetes(machine.runner())? {
        log::warn!("the container runtime came up without its Kubernetes interface: it is restarted");
        machine.services().restart(containerd::UNIT)?;
    }
    Ok(Findings::default())
}
