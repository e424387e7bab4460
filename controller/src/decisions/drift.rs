//! Whether control nodes run in VMs that nothing is noted of, as where the control cluster's database was restored and is older than they
//! are. Pure: it goes by what Machines say of what was seen last.

use std::collections::BTreeSet;

use serde_json::Value;
use uuid::Uuid;

use crate::objects::{Deployment, Machine, Operation, VmState};

/// Whether a control node runs in a VM that was neither made for it at first, nor noted by a swap that there is.
pub fn has_drifted(deployment: Option<&Deployment>, machines: &[Machine], operations: &[Operation]) -> bool {
    let at_first = deployment.into_iter().flat_map(|it| &it.nodes).flat_map(|node| [&node.drawn, &node.vm]);
    let at_first = at_first.flatten().filter_map(|text| text.parse::<Uuid>().ok());
    let noted: BTreeSet<Uuid> = at_first.chain(operations.iter().flat_map(of_swap)).collect();
    let statuses = machines.iter().filter_map(|machine| machine.status.as_ref());
    let mut current = statuses.flat_map(|status| &status.vms).filter(|vm| vm.state == VmState::Current);
    current.any(|vm| vm.uuid.parse::<Uuid>().is_ok_and(|uuid| !noted.contains(&uuid)))
}

/// The VMs that a swap has found, by its plan, and those that it has made or begun to make, by its journal.
fn of_swap(operation: &Operation) -> Vec<Uuid> {
    let uuid = |value: Option<&Value>| value.and_then(Value::as_str).and_then(|text| text.parse::<Uuid>().ok());
    let nodes = operation.spec.plan.as_ref().and_then(|plan| plan["nodes"].as_array());
    let found = nodes.into_iter().flatten().filter_map(|node| uuid(node.get("old")));
    let entries = operation.status.iter().flat_map(|status| &status.entries);
    found.chain(entries.filter_map(|entry| uuid(entry.more.get("vm")))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::{MachineStatus, MachineVm, OperationKind, OperationSpec, OperationStatus, Reference};
    use crate::records::fixture;

    fn runs_in(vm: u128) -> Machine {
        let uuid = Uuid::from_u128(vm).to_string();
        let name = "shop-cp1".to_owned();
        let vm = MachineVm { uuid, name, state: VmState::Current };
        let status = MachineStatus { vms: vec![vm], ..MachineStatus::default() };
        Machine { status: Some(status), ..Machine::new("shop-cp1", crate::objects::fixture::worker()) }
    }

    #[test]
    fn control_nodes_have_drifted_once_one_runs_in_a_vm_that_nothing_is_noted_of() {
        let node = json!({
            "name": "shop-cp1", "address": "192.168.10.20", "madeOf": "x", "vm": Uuid::from_u128(0xf1).to_string(),
        });
        let deployment: Deployment = serde_json::from_value(json!({
            "hold": 1, "goal": "Up", "image": {"name": "former"}, "formed": true, "nodes": [node],
        }))
        .unwrap();
        // Its plan has found the VM 1, and it has made this one.
        let mut plan = fixture::plan();
        plan["nodes"] = json!([fixture::node("shop-cp1")]);
        let entry = json!({"at": 1, "hold": 1, "event": "begun", "action": "import", "vm": Uuid::from_u128(0xf2)});
        let spec = OperationSpec {
            cluster_ref: Reference::to("shop"),
            kind: OperationKind::Swap,
            from_image: None,
            to_image: None,
            from_size: None,
            to_size: None,
            to_class: None,
            from_version: None,
            to_version: None,
            cluster_generation: 1,
            steps: Vec::new(),
            plan: Some(plan),
        };
        let entries = vec![serde_json::from_value(entry).unwrap()];
        let status = OperationStatus { entries, ..OperationStatus::default() };
        let swap = Operation { status: Some(status), ..Operation::new("shop-1", spec) };
        for (vm, has) in [(0xf1, false), (1, false), (0xf2, false), (0xf3, true)] {
            let machines = [runs_in(vm), runs_in(0xf1)];
            assert_eq!(has_drifted(Some(&deployment), &machines, std::slice::from_ref(&swap)), has, "{vm:x}");
        }
        assert!(has_drifted(Some(&deployment), &[runs_in(0xf2)], &[]), "the swap is not known any more");
        let unseen = Machine::new("shop-cp1", crate::objects::fixture::worker());
        assert!(!has_drifted(Some(&deployment), &[unseen], &[]), "nobody has looked yet");
    }
}
