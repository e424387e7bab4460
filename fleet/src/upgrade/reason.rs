//! Why an upgrade waits, pauses or turns: codes for programs.

use crate::engine::codes;

codes! {
    REASONS;
    WAITING, "upgrade.waiting", "The awaited event has not happened yet; the reason is unknown.", "Wait. If it continues, see `kaas-agent status` on the nodes.";
    ASKED, "upgrade.asked", "The operator asked for it.", "Resume when you want to continue.";
    WITHDRAWN, "upgrade.withdrawn", "Nothing of it was begun, and another plan takes its place: the cluster wants something else, or there is no room for its size.", "Nothing. The next plan replaces it.";
    OTHER_NODE, "upgrade.other-node", "A node that is swapped cannot become healthy because another control-plane node is lost or unhealthy. It does not go back for that.", "Repair or replace the other control-plane node.";
    UNREACHABLE, "upgrade.unreachable", "No control-plane node can be reached from where the upgrade is driven.", "Check the network from this machine to the nodes.";
    QUORUM, "upgrade.quorum", "etcd has a quorum again, before nodes that go back all at once were stopped. Ask for the rollback again: another order is due.", "Request the rollback again.";
    NODE_CORDONED, "upgrade.node-cordoned", "A node that is swapped is healthy, and takes no pods: it is cordoned. It does not go back for that.", "Run `kubectl uncordon NAME`.";
    NODE_DIFFERS, "upgrade.node-differs", "A node runs another image, or with another VM, data disk or member of etcd, than the plan says.", "See which VM and image the node has. Then abandon the upgrade and plan another one.";
    NODE_GAVE_UP, "upgrade.node-gave-up", "A node gave up what it was asked for, and gives no code.", "See the journal of `kaas-agent` on the node.";
    NODE_IMAGE, "upgrade.node-image", "A node's image does not know of what it is asked for.", "Use a newer image on the node first.";
    VM_STATE, "upgrade.vm-state", "A VM is not as the step needs it: on, off, disconnected, or without another disk.", "Set the VM to the state that the message names.";
    VM_UNASKABLE, "upgrade.vm-unaskable", "A guest cannot be asked to shut down: VMware Tools do not run in it. Its power is not cut for that.", "Shut the node down on its console.";
    VM_COPIED, "upgrade.vm-copied", "Two VMs carry the same identity: one is a copy of the other. Neither is touched until one is removed.", "Remove the copy from the inventory.";
    VM_GONE, "upgrade.vm-gone", "A VM that the upgrade needs is gone, or nothing proves that it is gone, so it may run. The message says which.", "Restore the VM, or prove that it is gone as the message says.";
    VM_LEFT, "upgrade.vm-left", "A VM carries the stamp of the swap, and nothing is noted of having made it. It stays until the operator removes it or takes its stamp away.", "Remove the VM, or remove its stamp.";
    DISK_HELD, "upgrade.disk-held", "A data disk is not where the step needs it: another VM holds it, or it has just moved.", "Detach the disk from the VM that holds it.";
    OVA, "upgrade.ova", "The OVA cannot be read, is damaged, or is not the one that was planned with.", "Give the OVA of the plan again.";
    HERE, "upgrade.here", "The machine that drives the upgrade cannot do its part: it has no room, for example.", "Correct the cause that the message names, such as missing space.";
    PLAN, "upgrade.plan", "The plan has a step that this version of the program does not take.", "Use the version of the program that made the plan.";
}

#[cfg(test)]
mod tests;
