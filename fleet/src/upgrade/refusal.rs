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
    NODE_SILENT, "upgrade.node-silent", "A control-plane node's endpoint does not answer.", "Power the node on, and check the network to its port 9441.";
    NODE_NOT_READY, "upgrade.node-not-ready", "A control-plane node does not do its part of the cluster, or its boot was not found healthy.", "See `kaas-agent status` on the node.";
    MEMBER_UNHEALTHY, "upgrade.member-unhealthy", "A member of etcd does not answer, sees no leader or has no vote yet: another one must not leave.", "Repair the control-plane node of that member first.";
    MEMBERS_DIFFER, "upgrade.members-differ", "etcd's members are not the cluster's control-plane nodes.", "Finish the replacement of the node, or remove the member that is no node.";
    SWAP_OPEN, "upgrade.swap-open", "A node's swap is under way or not committed.", "Run `kaas-agent commit-swap` on the node. For a swap that was only prepared or failed, run `kaas-agent prepare-swap --cancel`.";
    VM_UNKNOWN, "upgrade.vm-unknown", "The hypervisor has no VM with the BIOS UUID that a node reports.", "Move the VM into a folder of the file, or add its folder to `other-folders`.";
    VM_POWER, "upgrade.vm-power", "The hypervisor says that a node's VM is off, though the node answers.", "Compare the BIOS UUIDs: the node may run in another VM.";
    VM_DISKS, "upgrade.vm-disks", "A node's VM has no data disk or several: which one is to move is not certain.", "Leave one data disk on the VM.";
    VM_NOT_OURS, "upgrade.vm-not-ours", "A node's VM is not stamped as this deployment's, or as another node's.", "Run `kaas control adopt` for VMs that were imported by hand.";
    VM_MOVED, "upgrade.vm-moved", "A VM of the deployment was moved out of the folders in which its VMs are looked for. It is not gone: move it back, or name its folder.", "Move the VM back, or add its folder to `other-folders`.";
    VM_BESIDE, "upgrade.vm-beside", "A node's data disk is in the directory of a VM of another deployment, so it is attached to no other VM. Remove that VM when it is no longer needed, or migrate the node's VM with its disks.", "Remove the former VM, or migrate the node's VM with its disks.";
    VM_TWICE, "upgrade.vm-twice", "Several VMs have the BIOS UUID that a node reports, in either byte order.", "Remove the copy from the inventory.";
    VM_SNAPSHOT, "upgrade.vm-snapshot", "A node's VM has snapshots, or its data disk is part of one: it cannot be detached.", "Delete the snapshots of the VM.";
    VM_TASK, "upgrade.vm-task", "The hypervisor runs a task on a node's VM.", "Wait until the task of the VM has ended.";
    VM_ADAPTER, "upgrade.vm-adapter", "A node's VM has no network adapter.", "Add a network adapter to the VM.";
    DENIED, "upgrade.denied", "The hypervisor does not permit what an upgrade needs.", "Give the account the privileges of `kaas provider role`.";
    PLACEMENT, "upgrade.placement", "New VMs cannot be put on the datastore, into the resource pool or the folder that was named.", "Correct `--datastore`, `--resource-pool` and `--folder`, or leave them out to use the places of the former VMs.";
    OTHER_CLUSTER, "upgrade.other-cluster", "The kubeconfig is of another cluster than the deployment's.", "Give the kubeconfig of this cluster. If it is the deployment's cluster, give its present UUID with `--other-cluster`.";
    VM_NAME, "upgrade.vm-name", "A VM already has the name of a new VM.", "Rename or remove the other VM.";
    LOCKED, "upgrade.locked", "Another command holds the lease of this deployment.", "Wait until the other command has ended, or take over from it with `--take-over`.";
    UNFINISHED, "upgrade.unfinished", "An earlier upgrade has not ended.", "Run `kaas control upgrade resume`, `rollback` or `abandon`. `kaas control upgrade status` shows the progress.";
    UNCOMMITTED, "upgrade.uncommitted", "An earlier upgrade is not committed.", "Run `kaas control upgrade commit` or `kaas control upgrade rollback`.";
    NOTHING, "upgrade.nothing-to-do", "All nodes run this image.", "Give the OVA of another image.";
    PRODUCT, "upgrade.product", "The OVA is of another appliance.", "Give an OVA of the same appliance.";
    DOWNGRADE, "upgrade.downgrade", "The OVA's version is older than a node's image.", "Give a newer OVA. If you need the older image, give `--downgrade`, and swap the nodes one by one.";
    FROM_VERSION, "upgrade.from-version", "The image cannot replace the image that a node runs.", "Upgrade to an image in between first.";
    VERSION, "upgrade.version", "A version number is malformed.", "Give an OVA of a release.";
    ETCD, "upgrade.etcd", "The image carries another minor version of etcd than the cluster runs.", "Give an image with the same minor version of etcd.";
    KUBERNETES, "upgrade.kubernetes", "The image does not carry the Kubernetes minor version that the cluster runs.", "Give an image that carries this Kubernetes version, or upgrade Kubernetes first.";
    KUBERNETES_SKEW, "upgrade.kubernetes-skew", "The Kubernetes minor version is not the next one.", "Upgrade to the next minor version.";
    UNSIGNED, "upgrade.unsigned", "The OVA is not signed, and the cluster takes signed ones only.", "Give the signed OVA of the publisher.";
    PUBLISHER, "upgrade.publisher", "The OVA is signed with another key than the pinned one, or than the one that was given.", "Give an OVA of the pinned publisher. If the publisher has changed, give the new key with `--publisher`.";
    PINS_DIFFER, "upgrade.pins-differ", "The nodes have not pinned the same publisher's key.", "Give the right key with `--publisher`.";
}
