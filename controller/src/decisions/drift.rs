//! VMs that are newer than the control cluster's database, as where that was restored from a snapshot; and whether control nodes run in
//! VMs that nothing is noted of, by what Machines say of what was seen last, for where no VM can be looked at. Pure.

use std::collections::BTreeSet;

use contract::node::Node;
use contract::swap::Stage;
use fleet::hypervisor::Vm;
use serde_json::Value;
use uuid::Uuid;

use super::swap_progress::SwapProgress;
use crate::objects::{Deployment, JournalEntry, Machine, Operation, VmState};

/// How many VMs are named.
const NAMED: usize = 5;
/// The steps of a swap that move a data disk, by the words of its journal.
const MOVES: [&str; 4] = ["detach", "attach", "detach-new", "attach-old"];

/// What is said of VMs that are newer than what is kept of them; none if there are none.
pub fn drifted(newer: &[Vm]) -> Option<String> {
    if newer.is_empty() {
        return None;
    }
    let named = newer.iter().take(NAMED).map(Vm::to_string).collect::<Vec<_>>().join(", ");
    let more = newer.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!(
        "VMs are there of which the control cluster's database does not know that they were made, as where it was restored from an older \
         snapshot, or where somebody has copied a VM with its disks: {named}{more}. Nothing is changed, powered off, deleted or made meanwhile"
    ))
}

/// Of a swap that is open, the VMs that hold a node's data disk though its journal has not come to where they were given it: it is older
/// than they are, and whoever went on with it would take steps again that lead elsewhere by now.
pub fn ahead(operation: &Operation, vms: &[Vm]) -> Vec<Vm> {
    let nodes = operation.spec.plan.as_ref().and_then(|plan| plan["nodes"].as_array());
    let of_node = |(node, planned): (usize, &Value)| {
        let (old, begun) = (uuid(planned.get("old")), begun_of(operation, node));
        let made: BTreeSet<Uuid> = begun.iter().filter_map(|entry| uuid(entry.more.get("vm"))).collect();
        let mut actions = begun.iter().filter_map(|entry| entry.more.get("action")?.as_str());
        let moved = actions.rfind(|action| MOVES.contains(action));
        let is_for_new = matches!(moved, Some("attach" | "detach-new"));
        let name = planned["name"].as_str();
        let holds = move |vm: &&Vm| {
            let is_nodes = vm.stamp.as_ref().is_some_and(|stamp| Some(stamp.node.as_str()) == name);
            let is_early = if is_for_new { Some(vm.uuid()) == old } else { made.contains(&vm.uuid()) };
            is_nodes && is_early && vm.data_disks().next().is_some()
        };
        vms.iter().filter(holds).cloned().collect::<Vec<_>>()
    };
    nodes.into_iter().flatten().enumerate().flat_map(of_node).collect()
}

/// Of what control nodes say, that of those which are ready for a swap, make ready, or have failed to, to whose end none of their cluster's
/// Operations leads: as where the database was restored to before one that had come no further. Of these no VM is newer, for none has given
/// a disk away.
pub fn left_prepared(said: Vec<Node>, operations: &[Operation]) -> Vec<Node> {
    let led = led(operations);
    // A node keeps one that has failed until somebody cancels it, and each other one is refused as long.
    let is_left =
        |node: &Node| node.swap.as_ref().is_some_and(|swap| swap.stage != Stage::Taken && !led.contains(&swap.id));
    said.into_iter().filter(is_left).collect()
}

/// The swaps of nodes, by their names, to whose end Operations lead. One that is not understood may; one that was never begun does not, for it
/// is removed.
fn led(operations: &[Operation]) -> BTreeSet<Uuid> {
    let leads = |operation: &&Operation| match SwapProgress::of(operation) {
        Ok(swapping) => swapping.is_some_and(|swapping| swapping.is_open()),
        Err(_) => operation.status.as_ref().is_some_and(|status| status.outcome.is_none()),
    };
    let plans = operations.iter().filter(leads).filter_map(|operation| operation.spec.plan.as_ref());
    plans.filter_map(|plan| plan["nodes"].as_array()).flatten().filter_map(|node| uuid(node.get("swap"))).collect()
}

/// What the journal of a swap has begun of a node, by its place in the plan.
fn begun_of(operation: &Operation, node: usize) -> Vec<&JournalEntry> {
    let entries = operation.status.iter().flat_map(|status| &status.entries);
    let is_its = |entry: &&JournalEntry| {
        let of = entry.more.get("node").and_then(Value::as_u64).and_then(|of| usize::try_from(of).ok());
        entry.event == "begun" && of == Some(node)
    };
    entries.filter(is_its).collect()
}

fn uuid(value: Option<&Value>) -> Option<Uuid> {
    value.and_then(Value::as_str).and_then(|text| text.parse().ok())
}

/// Whether a control node runs in a VM that was neither made for it at first, nor noted by a swap that there is.
///
/// [`drifted`] judges VMs that were looked at, and where there are some that are newer nothing else is decided. This one judges objects alone,
/// by what Machines say of the last look: it is all that is known while the vCenter does not answer, and what comes next is decided then,
/// too. By it nobody goes by the image and the size that are pinned before the nodes were asked.
pub fn has_drifted(deployment: Option<&Deployment>, machines: &[Machine], operations: &[Operation]) -> bool {
    let at_first =
        deployment.into_iter().flat_map(|it| &it.nodes).flat_map(|node| [&node.allocated_uuid, &node.bios_uuid]);
    let at_first = at_first.flatten().filter_map(|text| text.parse::<Uuid>().ok());
    let noted: BTreeSet<Uuid> = at_first.chain(operations.iter().flat_map(of_swap)).collect();
    let statuses = machines.iter().filter_map(|machine| machine.status.as_ref());
    let mut current = statuses.flat_map(|status| &status.vms).filter(|vm| vm.state == VmState::Current);
    current.any(|vm| vm.uuid.parse::<Uuid>().is_ok_and(|uuid| !noted.contains(&uuid)))
}

/// The VMs that a swap has found, by its plan, those of nodes that it leaves alone among them; and those that it has made or begun to make,
/// by its journal.
fn of_swap(operation: &Operation) -> Vec<Uuid> {
    let list = |name: &str| operation.spec.plan.as_ref().and_then(|plan| plan[name].as_array()).into_iter().flatten();
    let found = list("nodes").filter_map(|node| uuid(node.get("old")));
    let left_alone = list("other_vms").filter_map(|vm| uuid(Some(vm)));
    let entries = operation.status.iter().flat_map(|status| &status.entries);
    found.chain(left_alone).chain(entries.filter_map(|entry| uuid(entry.more.get("vm")))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture;
    use crate::objects::{MachineStatus, MachineVm};
    use crate::records::fixture::{node, plan};

    /// A swap of `shop-cp1`, which its plan has found in the VM 1, with this journal.
    fn swap(entries: &[Value]) -> Operation {
        let mut plan = plan();
        plan["nodes"] = json!([node("shop-cp1")]);
        fixture::swap(plan, entries)
    }

    /// One of `shop-cp1`, which holds its data disk.
    fn vm(uuid: u128) -> Vm {
        fixture::vm("shop-cp1", uuid, 2)
    }

    #[test]
    fn vms_that_are_newer_are_named_and_not_all_of_many() {
        assert_eq!(drifted(&[]), None);
        let words = drifted(&[vm(9)]).unwrap();
        assert!(words.contains(&vm(9).to_string()) && !words.contains("more"), "{words}");
        let words = drifted(&(0..9).map(vm).collect::<Vec<_>>()).unwrap();
        assert!(words.contains(&vm(4).to_string()) && words.contains(" and 4 more"), "{words}");
        assert!(!words.contains(&vm(5).to_string()), "{words}");
    }

    #[test]
    fn a_vm_that_holds_a_disk_before_its_journal_says_so_is_ahead_of_it() {
        let begun = |action: &str| json!({"at": 1, "lease": 1, "event": "begun", "action": action, "node": 0});
        let mut import = begun("import");
        import["vm"] = json!(Uuid::from_u128(0xf2));
        let forward = [import.clone(), begun("detach"), begun("attach")];
        let back = [import, begun("detach"), begun("attach"), begun("detach-new"), begun("attach-old")];
        let (old, new) = (vm(1), vm(0xf2));
        let ahead = |entries: &[Value], vm: &Vm| ahead(&swap(entries), std::slice::from_ref(vm)).len();
        for (entries, of_old, of_new) in
            [(&forward[..1], 0, 1), (&forward[..2], 0, 1), (&forward[..], 1, 0), (&back[..4], 1, 0), (&back[..], 0, 1)]
        {
            assert_eq!((ahead(entries, &old), ahead(entries, &new)), (of_old, of_new), "{entries:?}");
        }
        let empty = Vm { disks: Vec::new(), ..new };
        assert_eq!(ahead(&forward[..1], &empty), 0, "it waits for the disk");
        assert_eq!(ahead(&forward[..1], &vm(0xf3)), 0, "that one nothing is noted of at all");
    }

    #[test]
    fn operations_lead_to_the_end_of_the_swaps_of_their_nodes_until_they_have_ended() {
        let (open, strange) = (swap(&[]), swap(&[json!({"event": "dreamt"})]));
        let mut ended = strange.clone();
        ended.status.get_or_insert_default().outcome = Some("committed".to_owned());
        let mut never_begun = open.clone();
        never_begun.status = None;
        for (operation, leads) in [(open, true), (strange, true), (ended, false), (never_begun, false)] {
            // As the plan's node has it.
            let expected = BTreeSet::from_iter(leads.then_some(Uuid::from_u128(4)));
            assert_eq!(led(std::slice::from_ref(&operation)), expected, "{:?}", operation.status);
        }
    }

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
            "name": "shop-cp1", "address": "192.168.10.20", "settingsHash": "x", "biosUUID": Uuid::from_u128(0xf1).to_string(),
        });
        let deployment: Deployment = serde_json::from_value(json!({
            "lease": 1, "lifecycle": "Active", "image": {"name": "former"}, "formed": true, "nodes": [node],
        }))
        .unwrap();
        // It has made this one.
        let entry = json!({"at": 1, "lease": 1, "event": "begun", "action": "import", "vm": Uuid::from_u128(0xf2)});
        let swap = swap(&[entry]);
        for (vm, has) in [(0xf1, false), (1, false), (0xf2, false), (0xf3, true)] {
            let machines = [runs_in(vm), runs_in(0xf1)];
            assert_eq!(has_drifted(Some(&deployment), &machines, std::slice::from_ref(&swap)), has, "{vm:x}");
        }
        assert!(has_drifted(Some(&deployment), &[runs_in(0xf2)], &[]), "the swap is not known any more");
        // That one is not known any more either; a later one has left its node alone.
        let mut alone = swap;
        alone.spec.plan.as_mut().unwrap()["other_vms"] = json!([Uuid::from_u128(0xf3)]);
        assert!(!has_drifted(Some(&deployment), &[runs_in(0xf3)], &[alone]));
        let unseen = Machine::new("shop-cp1", crate::objects::fixture::worker());
        assert!(!has_drifted(Some(&deployment), &[unseen], &[]), "nobody has looked yet");
    }
}
