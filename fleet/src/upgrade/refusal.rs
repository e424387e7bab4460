//! Why a plan is refused, with stable codes: all reasons at once.

use std::fmt;

use serde::Serialize;

use crate::engine::codes;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Stable code.
    pub code: &'static str,
    /// Its subject: a node, a VM, the OVA.
    pub subject: String,
    /// The observed state, in a sentence for users.
    pub reason: String,
}

/// All reasons why there is no plan; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refusals(pub Vec<Refusal>);

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upgrade is refused; nothing was changed")?;
        for Refusal { code, subject, reason } in &self.0 {
            write!(f, "\n  {code}: {subject}: {reason}")?;
        }
        Ok(())
    }
}

codes! {
    CODES;
    NODE_SILENT, "upgrade.node-silent", "A control-plane node's endpoint does not answer.";
    NODE_NOT_READY, "upgrade.node-not-ready", "A control-plane node does not do its part of the cluster, or its boot was not found healthy.";
    MEMBER_UNHEALTHY, "upgrade.member-unhealthy", "A member of etcd does not answer, sees no leader or has no vote yet: another one must not leave.";
    MEMBERS_DIFFER, "upgrade.members-differ", "etcd's members are not the cluster's control-plane nodes.";
    SWAP_OPEN, "upgrade.swap-open", "A node's swap is under way or not committed.";
    VM_UNKNOWN, "upgrade.vm-unknown", "The hypervisor has no VM with the BIOS UUID that a node says.";
    VM_POWER, "upgrade.vm-power", "The hypervisor says that a node's VM is off, though the node answers.";
    VM_DISKS, "upgrade.vm-disks", "A node's VM has no data disk or several: which one is to move is not certain.";
    VM_NOT_OURS, "upgrade.vm-not-ours", "A node's VM is not stamped as this deployment's, or as another node's.";
    VM_MOVED, "upgrade.vm-moved", "A VM of the deployment was moved out of the folders in which its VMs are looked for. It is not gone: move it back, or name its folder.";
    VM_BESIDE, "upgrade.vm-beside", "A node's data disk lies in the directory of a VM that is not the deployment's: no other VM is given it. Remove that VM once its time is over, or have vCenter migrate the node's VM with its disks.";
    VM_TWICE, "upgrade.vm-twice", "Several VMs have the BIOS UUID that a node reports, in either byte order.";
    VM_SNAPSHOT, "upgrade.vm-snapshot", "A node's VM has snapshots, or its data disk is part of one: it cannot be detached.";
    VM_TASK, "upgrade.vm-task", "The hypervisor is at work on a node's VM.";
    VM_ADAPTER, "upgrade.vm-adapter", "A node's VM has no network adapter.";
    DENIED, "upgrade.denied", "The hypervisor does not permit what an upgrade needs.";
    PLACEMENT, "upgrade.placement", "New VMs cannot be put on the datastore, into the resource pool or the folder that was named.";
    OTHER_CLUSTER, "upgrade.other-cluster", "The kubeconfig leads to another cluster than the deployment's.";
    VM_NAME, "upgrade.vm-name", "There is a VM with the name that a new one is to get.";
    LOCKED, "upgrade.locked", "Another command is at work on this deployment.";
    UNFINISHED, "upgrade.unfinished", "An earlier upgrade has not ended.";
    UNCOMMITTED, "upgrade.uncommitted", "An earlier upgrade is not committed.";
    NOTHING, "upgrade.nothing-to-do", "All nodes run this image.";
    PRODUCT, "upgrade.product", "The OVA is of another appliance.";
    DOWNGRADE, "upgrade.downgrade", "The OVA's version is older than a node's image.";
    FROM_VERSION, "upgrade.from-version", "The image may not take the place of the one that a node runs.";
    VERSION, "upgrade.version", "A version is not one.";
    ETCD, "upgrade.etcd", "The image carries another minor version of etcd than the cluster runs.";
    KUBERNETES, "upgrade.kubernetes", "The image does not carry the Kubernetes minor version that the cluster runs.";
    KUBERNETES_SKEW, "upgrade.kubernetes-skew", "The Kubernetes minor version is not the next one.";
    UNSIGNED, "upgrade.unsigned", "The OVA is not signed, and the cluster takes signed ones only.";
    PUBLISHER, "upgrade.publisher", "The OVA is signed with another key than the pinned one, or than the one that was given.";
    PINS_DIFFER, "upgrade.pins-differ", "The nodes have not pinned the same publisher's key.";
}
