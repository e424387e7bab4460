//! Why a deployment waits or stops: codes for programs.

use crate::upgrade::codes;

codes! {
    REASONS;
    FORMING, "deploy.forming", "A control node was powered on and does not say yet that its cluster has formed. Its console says what it waits for.";
    NOT_READY, "deploy.not-ready", "The cluster has formed, and a control node is not Ready.";
    VM_ODD, "deploy.vm-odd", "A control node's VM was copied, or its stamp was changed, or a VM carries the deployment's stamp that is no node's. It is named, and left alone, and so is what has its BIOS UUID elsewhere: take the copy out of the inventory, or power on by hand the one that is the node. A replica that is off and has disks of its own is no such copy.";
    VM_UNNOTED, "deploy.vm-unnoted", "A VM carries the deployment's stamp, and nothing is noted of having made it: it was adopted, took another one's place by hand, is a clone, or somebody has stamped it. It is named, and left alone; it goes as well once a person names its BIOS UUID.";
    VM_NEWER, "deploy.vm-newer", "A VM is newer than what is kept of the cluster, as where that was turned back to an earlier moment: nothing is done for any control node until a person has seen to it.";
    VM_SNAPSHOT, "deploy.vm-snapshot", "A VM of a cluster that is to go has a snapshot, such as a backup's, which may name disks that would go with it. Nothing is powered off or removed while there is one.";
    VM_STATE, "deploy.vm-state", "A control node's VM is off or suspended, or its power state is unknown. Going on powers on what is off, unless all its network adapters are disconnected, as an upgrade leaves them that was abandoned: connect them by hand. The removal of a cluster waits for each VM that vCenter does not show until the VM is proved gone. If it is off for good, create the directory `gone-UUID` that the message names.";
    VM_GONE, "deploy.vm-gone", "The VM of a control node that was powered on is gone. Before the cluster has formed, destroy it and deploy anew; afterwards, replace the node.";
    VM_UNDONE, "deploy.vm-undone", "Three VMs of a control node were removed again since none of them was whole, or its VM was made three times by one command and was gone each time before it was powered on, or was powered on three times by one command and was off each time afterwards. What was said last is in the words. Giving the command again tries it again; a controller makes one further VM an hour, and the first ones anew once it is restarted.";
    AUTHORITY, "deploy.authority", "A control node shows another cluster's authority than the others, or than the cluster has formed with: its guestinfo was changed, or it is another cluster's. No node is asked for credentials.";
    API, "deploy.api-silent", "The cluster's API does not answer, or refuses.";
}
