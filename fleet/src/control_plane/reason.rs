//! Why a deployment waits or stops: codes for programs.

use crate::engine::codes;

codes! {
    REASONS;
    FORMING, "deploy.forming", "A control-plane node was powered on and does not say yet that its cluster has formed. Its console says what it waits for.", "See the console of the node.";
    NOT_READY, "deploy.not-ready", "The cluster has formed, and a control-plane node is not Ready.", "See `kaas-agent status` on the node.";
    VM_ODD, "deploy.vm-odd", "A control-plane node's VM was copied, or its stamp was changed. Or a VM carries the deployment's stamp and is no node's. The message names the VM. This VM, and each other VM with its BIOS UUID, stays unchanged. Remove the copy from the inventory, or power on the VM that is the node by hand. A replica that is off and has other disks is no such copy.", "Remove the copy from the inventory, or power on the VM that is the node.";
    VM_UNNOTED, "deploy.vm-unnoted", "A VM carries the deployment's stamp, and its creation is not recorded. It was adopted, replaced another VM by hand, is a clone, or was stamped by hand. The message names it, and it stays unchanged. It is removed too if the operator names its BIOS UUID.", "Run `kaas control adopt`, or remove the VM. For a deletion, name it with `--also-vm`.";
    VM_NEWER, "deploy.vm-newer", "A VM is newer than the record of the cluster, such as after a restore of the record from an earlier moment. Nothing is done for any control-plane node until the operator has resolved that.", "Adopt the newer VMs, or remove them.";
    VM_SNAPSHOT, "deploy.vm-snapshot", "A VM of a cluster that is to be deleted has a snapshot, such as a backup's, which may name disks that would be deleted with it. Nothing is powered off or removed while the snapshot exists.", "Delete the snapshots of the VM.";
    VM_STATE, "deploy.vm-state", "A control-plane node's VM is off or suspended, or its power state is unknown. Continuing powers on a VM that is off. An abandoned upgrade may have left all its network adapters disconnected: then connect them by hand first. The deletion of a cluster waits for each VM that vCenter does not show until proof exists that the VM is gone. If it is off for good, create the directory `gone-UUID` that the message names.", "Run the command again to power on a VM that is off.";
    VM_GONE, "deploy.vm-gone", "The VM of a control-plane node that was powered on is gone. Before the cluster has formed, destroy it and deploy again. Afterwards, replace the node.", "Before the cluster has formed, delete it and create it again. Later, replace the node.";
    VM_UNDONE, "deploy.vm-undone", "Three incomplete VMs of a control-plane node were removed. Or one command created its VM three times, and each time it was gone before it was powered on. Or one command powered it on three times, and each time it was off afterwards. The message has the last error. Giving the command again retries. A controller creates one further VM an hour, and counts from zero once it is restarted.", "See the last error in the message. Then run the command again.";
    AUTHORITY, "deploy.authority", "A control-plane node shows another CA than the others, or than the cluster has formed with. Its guestinfo was changed, or it is another cluster's. No node is asked for credentials.", "Check who can change the VM's guestinfo. Compare the CA with that on the node's console.";
    API, "deploy.api-silent", "The cluster's API does not answer, or refuses.", "Check the control-plane nodes, and the network to the Kubernetes API.";
}
