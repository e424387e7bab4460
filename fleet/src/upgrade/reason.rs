//! Why an upgrade waits, pauses or turns: codes for programs.

use crate::engine::codes;

codes! {
    REASONS;
    WAITING, "upgrade.waiting", "The awaited event has not happened yet; the reason is unknown.", "Wait. If it continues, see `kaas-agent status` on the nodes.";
    ASKED, "upgrade.asked", "The operator asked for it.", "Resume when you want to continue.";
    WITHDRAWN, "upgrade.withdrawn", "The upgrade had not started, and another plan replaces it. The settings of the cluster were changed, or there is too little room for the plan.", "Nothing. The next plan replaces it.";
    OTHER_NODE, "upgrade.other-node", "A node that is swapped cannot become healthy because another control-plane node is lost or unhealthy. It is not rolled back for that.", "Repair or replace the other control-plane node.";
    UNREACHABLE, "upgrade.unreachable", "No control-plane node can be reached from the machine that runs the upgrade.", "Check the network from this machine to the nodes.";
    QUORUM, "upgrade.quorum", "etcd had a quorum again before the rollback of all nodes at once stopped them. The rollback now needs another order.", "Request the rollback again.";
    NODE_CORDONED, "upgrade.node-cordoned", "A node that is swapped is healthy, and takes no pods: it is cordoned. It is not rolled back for that.", "Run `kubectl uncordon NAME`.";
    NODE_DIFFERS, "upgrade.node-differs", "A node has another image, VM, data disk or member of etcd than the plan says.", "See which VM and image the node has. Then abandon the upgrade and plan another one.";
    NODE_GAVE_UP, "upgrade.node-gave-up", "A node cancelled its operation and reports no code.", "See the journal of `kaas-agent` on the node.";
    NODE_IMAGE, "upgrade.node-image", "A node's image does not support the request.", "Use a newer image on the node first.";
    VM_STATE, "upgrade.vm-state", "A VM is not in the state that the step needs: on, off, disconnected, or without another disk.", "Set the VM to the state that the message names.";
    VM_UNASKABLE, "upgrade.vm-unaskable", "A guest cannot be shut down, because VMware Tools do not run in it. The upgrade does not cut its power.", "Shut the node down on its console.";
    VM_COPIED, "upgrade.vm-copied", "Two VMs carry the same identity: one is a copy of the other. Neither is touched until one is removed.", "Remove the copy from the inventory.";
    VM_GONE, "upgrade.vm-gone", "A VM that the upgrade needs is gone. Or it is not found, but may still run. The message says which.", "Restore the VM, or prove that it is gone as the message says.";
    VM_LEFT, "upgrade.vm-left", "A VM has the stamp of the swap, and the journal has no record of its creation. It stays until the operator removes the VM or its stamp.", "Remove the VM, or remove its stamp.";
    DISK_HELD, "upgrade.disk-held", "A data disk is not where the step needs it: another VM holds it, or it has just moved.", "Detach the disk from the VM that holds it.";
    OVA, "upgrade.ova", "The OVA cannot be read, is damaged, or is not the one that was planned with.", "Give the OVA of the plan again.";
    HERE, "upgrade.here", "The machine that runs the upgrade cannot do its part: it has too little space, for example.", "Correct the cause that the message names, such as missing space.";
    PLAN, "upgrade.plan", "The plan has a step that this version of the program does not know.", "Use the version of the program that made the plan.";
}

#[cfg(test)]
mod tests;
