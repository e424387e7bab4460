//! The status of a control-plane node's Machine, from what `fleet` has observed of the node. The record of control-plane nodes is
//! in the cluster's status; a Machine only shows it.

use fleet::control_plane::{DeployStatus, NodeStatus, VM_ODD, Wait};
use fleet::hypervisor::PowerState;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::objects::{Machine, MachineReason, MachineStatus, MachineVm, Phase, VmState, set};

/// The status of a control-plane node's Machine. Unchanged if the node was not observed.
pub fn control_machine_status(machine: &Machine, seen: &DeployStatus, now: &Time) -> MachineStatus {
    let mut status = machine.status.clone().unwrap_or_default();
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    let Some(node) = seen.nodes.iter().find(|node| node.name == name) else { return status };
    let generation = machine.metadata.generation.unwrap_or_default();
    status.observed_generation = generation;
    status.address = Some(node.address.to_string());
    if seen.looked {
        status.phase = match (node.power, seen.formed) {
            (None | Some(PowerState::Off), false) => Phase::Provisioning,
            (_, false) => Phase::Joining,
            (_, true) => Phase::Running,
        };
        if !is_hidden(node, seen) {
            set_vm(&mut status.vms, node);
        }
        status.node = seen.formed.then(|| node.name.clone());
    }
    let waits: Vec<String> = seen
        .waits
        .iter()
        .filter(|wait| wait.node.as_deref().map_or(!seen.looked, |node| node == name))
        .map(|wait| wait.reason.to_string())
        .collect();
    let words = waits.join("; ");
    let (vm, of_node, ready) = reasons(node, seen);
    for reason in [vm, of_node, ready] {
        let words = if matches!(reason, MachineReason::VmRuns | MachineReason::NodeServes | MachineReason::Works) {
            ""
        } else {
            words.as_str()
        };
        set(&mut status.conditions, reason, words, generation, now);
    }
    status
}

/// The reasons of its conditions: of the VM, of the node, and of both.
fn reasons(node: &NodeStatus, seen: &DeployStatus) -> (MachineReason, MachineReason, MachineReason) {
    use MachineReason::{
        Joining, NodeNotReached, NodeServes, NotKnown, NotReady, PoweredOff, VmGone, VmNotAsked, VmProvisioning,
        VmRuns, Works, WorksNot,
    };
    let vm = match (node.power, seen.formed) {
        _ if !seen.looked => VmNotAsked,
        (Some(PowerState::On), _) => VmRuns,
        (_, true) if is_hidden(node, seen) => VmNotAsked,
        (Some(_), true) => PoweredOff,
        (None, true) => VmGone,
        (_, false) => VmProvisioning,
    };
    let answers = seen.nodes.iter().any(|node| node.formed);
    let of_node = match (node.ready, seen.formed) {
        (true, _) => NodeServes,
        _ if !seen.looked && !answers => NodeNotReached,
        (false, false) => Joining,
        (false, true) if answers => NotReady,
        (false, true) => NodeNotReached,
    };
    let ready = match (vm, of_node) {
        (VmRuns, NodeServes) => Works,
        (VmNotAsked, _) | (VmRuns, NodeNotReached) => NotKnown,
        _ => WorksNot,
    };
    (vm, of_node, ready)
}

/// Whether the node's VM may be hidden. No running VM is seen, and one that cannot be read now, or a second one, may be the
/// node's. Then its VM is not reported as off or deleted.
fn is_hidden(node: &NodeStatus, seen: &DeployStatus) -> bool {
    let is_odd = |wait: &Wait| !wait.lasting && wait.reason.code == VM_ODD;
    let of_node = |wait: &Wait| wait.node.as_ref() == Some(&node.name);
    node.power != Some(PowerState::On) && seen.waits.iter().any(|wait| is_odd(wait) && of_node(wait))
}

/// Sets the VM that the node runs in.
fn set_vm(vms: &mut Vec<MachineVm>, node: &NodeStatus) {
    let uuid = node.uuid.map(|uuid| uuid.to_string());
    vms.retain(|vm| uuid.as_ref() == Some(&vm.uuid));
    let Some(uuid) = uuid.filter(|_| vms.is_empty()) else { return };
    let name = node.vm.clone().unwrap_or_else(|| node.name.clone());
    vms.push(MachineVm { uuid, name, state: VmState::Current });
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fleet::upgrade::Reason;
    use uuid::Uuid;

    use super::*;
    use crate::decisions::fixture::{cluster, now, provider};
    use crate::decisions::machines;
    use crate::objects::{ConditionStatus, Resolved};

    fn seen(power: Option<PowerState>, formed: bool, ready: bool) -> DeployStatus {
        let node = NodeStatus {
            name: "shop-cp1".to_owned(),
            address: Ipv4Addr::new(192, 168, 10, 20),
            vm: power.map(|_| "shop-cp1".to_owned()),
            uuid: power.map(|_| Uuid::from_u128(7)),
            power,
            size: None,
            formed: ready,
            ready,
        };
        DeployStatus {
            cluster: "shop".to_owned(),
            formed,
            looked: true,
            nodes: vec![node],
            done: ready,
            ..DeployStatus::default()
        }
    }

    #[test]
    fn machine_shows_vm_and_phase_of_its_node() {
        let machine = machines(&cluster(), &Resolved::default(), &provider()).remove(0);
        let of = |seen: &DeployStatus| {
            let status = control_machine_status(&machine, seen, &now());
            let reasons: Vec<_> = status.conditions.iter().map(|condition| condition.reason.clone()).collect();
            (status.phase, status.vms.len(), reasons.join(" "))
        };
        let on = Some(PowerState::On);
        assert_eq!(of(&seen(None, false, false)), (Phase::Provisioning, 0, "Provisioning Joining NotReady".to_owned()));
        assert_eq!(of(&seen(on, false, false)), (Phase::Joining, 1, "Running Joining NotReady".to_owned()));
        assert_eq!(of(&seen(on, true, true)), (Phase::Running, 1, "Running KubeletReady Ready".to_owned()));
        assert_eq!(of(&seen(on, true, false)), (Phase::Running, 1, "Running NotReached NotKnown".to_owned()));
        let off = Some(PowerState::Off);
        assert_eq!(of(&seen(off, true, false)), (Phase::Running, 1, "PoweredOff NotReached NotReady".to_owned()));
        assert_eq!(of(&seen(None, true, false)), (Phase::Running, 0, "Gone NotReached NotReady".to_owned()));
    }

    #[test]
    fn unreadable_vm_is_not_deleted() {
        let mut machine = machines(&cluster(), &Resolved::default(), &provider()).remove(0);
        machine.status = Some(control_machine_status(&machine, &seen(Some(PowerState::On), true, true), &now()));
        let odd = |lasting: bool| Wait {
            node: Some("shop-cp1".to_owned()),
            reason: Reason::new(VM_ODD, "it cannot be told now"),
            lasting,
        };
        let of = |wait: Wait| {
            let status = control_machine_status(
                &machine,
                &DeployStatus { waits: vec![wait], ..seen(None, true, false) },
                &now(),
            );
            let reasons: Vec<_> = status.conditions.iter().map(|condition| condition.reason.clone()).collect();
            (status.vms.len(), reasons.join(" "), status.conditions[0].message.clone())
        };
        let (vms, reasons, words) = of(odd(false));
        assert_eq!((vms, reasons), (1, "NotAsked NotReached NotKnown".to_owned()));
        assert!(words.contains("it cannot be told now"), "{words}");
        // The former VM of before an upgrade, which is visible and off, is not taken for it.
        let mut before = DeployStatus { waits: vec![odd(false)], ..seen(Some(PowerState::Off), true, false) };
        before.nodes[0].uuid = Some(uuid::Uuid::from_u128(99));
        let status = control_machine_status(&machine, &before, &now());
        assert_eq!(status.conditions[0].reason, "NotAsked");
        assert_eq!(status.vms, machine.status.as_ref().unwrap().vms);
        // A wait for the operator, or one of another node, says nothing about this node's VM.
        let gone = (0, "Gone NotReached NotReady".to_owned());
        for wait in [odd(true), Wait { node: Some("shop-cp2".to_owned()), ..odd(false) }] {
            let (vms, reasons, _) = of(wait);
            assert_eq!((vms, reasons), gone);
        }
    }

    #[test]
    fn unobserved_state_is_kept_as_unknown() {
        let mut machine = machines(&cluster(), &Resolved::default(), &provider()).remove(0);
        machine.status = Some(control_machine_status(&machine, &seen(Some(PowerState::On), true, true), &now()));
        let unseen = DeployStatus { looked: false, ..seen(None, true, false) };
        let status = control_machine_status(&machine, &unseen, &now());
        assert_eq!((status.phase, status.vms.len()), (Phase::Running, 1));
        assert!(status.conditions.iter().all(|condition| condition.status == ConditionStatus::Unknown));
        let other = DeployStatus { nodes: Vec::new(), ..unseen };
        assert_eq!(control_machine_status(&machine, &other, &now()), machine.status.clone().unwrap());
    }
}
