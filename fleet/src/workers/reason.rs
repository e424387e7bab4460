//! Why workers wait, fail or leave: codes for programs.

use crate::engine::codes;

codes! {
    REASONS;
    JOINING, "workers.joining", "A worker was powered on and has not joined yet.", "Wait.";
    NOT_READY, "workers.not-ready", "A worker that has joined has no node, or one that is not Ready.", "See `kubectl describe node NAME`, and the VM's console.";
    NOT_JOINED, "workers.not-joined", "A worker did not join in time, or too many joins in a row have failed. The VMs stay on: their consoles say why.", "See the VM's console for the reason. Then resume, or delete the Machine of the worker.";
    TOO_SLOW, "workers.too-slow", "Making a worker's VM took so long that its token leaves no time to join. Allow less time to join, or see to the host.", "Allow less time to join, or use a faster host.";
    REFUSED, "workers.refused", "The hypervisor refuses to make a worker's VM, and will refuse again.", "Correct the cause that the message names, then resume.";
    NAME_IN_USE, "workers.name-in-use", "A node of the worker's name runs on something else, or was admitted with another key than that of the worker's VM.", "Remove the other node of that name.";
    UNPROVED, "workers.unproved", "A worker's node is Ready, but its VM does not report that it has joined: another client may have joined in its place.", "Find the client that has joined as this node, and delete its Node object.";
    NO_CONTROL_NODE, "workers.no-control-node", "The cluster has no control-plane node's VM to put a further worker next to.", "Restore the VM of a control-plane node.";
    NO_ADDRESS, "workers.no-address", "All addresses of the pool are in use.", "Add addresses to the pool.";
    DRAINING, "workers.draining", "Pods, or addresses of services, are moving away from a worker.", "Wait.";
    DRAIN_BLOCKED, "workers.drain-blocked", "A PodDisruptionBudget keeps a pod on a worker that is to be removed, or the API refuses to evict it. Nothing is forced.", "Add replicas, or change the PodDisruptionBudget.";
    LOCAL_VOLUMES, "workers.local-volumes", "A worker that is to be removed has local volumes that exist nowhere else.", "Save the data of the volumes. Then allow their loss.";
    BARE_PODS, "workers.bare-pods", "A worker that is to be removed runs pods without a controller, which start on no other node.", "Delete these pods, or allow their loss.";
    TOO_FEW, "workers.too-few", "Not as many workers are Ready as must stay while one is replaced.", "Wait until more workers are Ready, or allow fewer.";
    PAUSED, "workers.paused", "The replacement of outdated workers is paused.", "Resume the replacement.";
    VM_ODD, "workers.vm-odd", "A worker's VM was copied, or its stamp was changed. The VM is not changed.", "Remove the copy, or restore the stamp of the VM.";
    VM_NEWER, "workers.vm-newer", "A VM is newer than the record of the pool, such as after a restore of the record from an earlier moment. Nothing is done for any worker until the operator has resolved that.", "Adopt the newer VMs, or remove them.";
    VM_STATE, "workers.vm-state", "A worker's VM is off or suspended, or it is unknown whether it runs. Continuing powers on a VM that is off.", "Resume to power on a VM that is off.";
    VM_GONE, "workers.vm-gone", "A worker's VM is gone: it was removed by hand.", "Resume, so that the worker is created again.";
    VM_UNSEEN, "workers.vm-unseen", "A worker's VM is not found: it was moved, it was just removed, or the hypervisor does not show it. It counts as gone after a minute, if its node is not Ready and its settings file is gone from the datastore.", "Move the VM back, or wait until it counts as gone.";
    UNHEALTHY, "workers.unhealthy", "A worker is replaced: it was not Ready, or its VM did not run, for longer than its pool allows.", "Wait for the new worker. See why the old one failed.";
    OUTDATED, "workers.outdated", "A worker is replaced: its settings are not those of the pool.", "Wait.";
    SURPLUS, "workers.surplus", "There are more workers than the pool asks for.", "Wait.";
    ASKED, "workers.asked", "The operator wants the worker to go.", "Wait.";
    JOURNAL, "workers.journal-damaged", "The journal of a worker is damaged. Nothing is done for it until the operator continues, which creates it again.", "Resume, so that the worker is created again.";
    GIVEN_UP, "workers.given-up", "A worker did not join, and is created again.", "Wait. See the console of the former VM for the reason.";
    SKEW, "workers.skew", "The image carries no Kubernetes that a worker of this cluster may run, or its workers would not run the requested one. Or the control-plane nodes are between two minor versions, or a worker runs an older one than is wanted.", "Use an image with a version that the control-plane nodes permit, or upgrade these nodes first.";
    API, "workers.api-silent", "The cluster's API does not answer, or refuses.", "Repair the control-plane nodes, and check the network to them.";
}
