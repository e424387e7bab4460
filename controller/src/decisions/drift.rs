//! VMs that are newer than the control cluster's database, as after its restore from a snapshot. Also: whether control-plane
//! nodes run in VMs without a record, according to Machines, for when no VM can be observed. Pure.

use std::collections::BTreeSet;

use contract::node::Node;
use contract::swap::Stage;
use fleet::hypervisor::Vm;
use serde_json::Value;
use uuid::Uuid;

use super::swap_progress::SwapProgress;
use super::text::listed;
use crate::objects::{Deployment, JournalEntry, Machine, Operation, VmState};

/// How many VMs a message names.
const NAMED: usize = 5;
/// The steps of a swap that move a data disk, in the words of its journal.
const MOVES: [&str; 4] = ["detach", "attach", "detach-new", "attach-old"];

/// The message on VMs that are newer than their records. `None` if there are no such VMs.
pub fn drifted(newer: &[Vm]) -> Option<String> {
    if newer.is_empty() {
        return None;
    }
    let named = listed(newer, NAMED);
    Some(format!(
        "the control cluster's database does not know that these VMs were created, as after its restore from an older \
         snapshot, or after a VM was copied with its disks: {named}. Nothing is changed, powered off, deleted or created meanwhile"
    ))
}

/// The VMs that hold a node's data disk although the open swap's journal has not reached that step. The journal is older than the
/// VMs, so its next steps would be repeated with another effect.
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

/// The control-plane nodes that are ready for a swap, prepare one or have failed to, and whose swap no Operation finishes. This
/// happens after a restore of the database to before such a swap. No VM is newer then, because no node has given its disk away.
pub fn left_prepared(said: Vec<Node>, operations: &[Operation]) -> Vec<Node> {
    let led = led(operations);
    // A node keeps a failed swap until it is cancelled, and rejects other swaps until then.
    let is_left =
        |node: &Node| node.swap.as_ref().is_some_and(|swap| swap.stage != Stage::Taken && !led.contains(&swap.id));
    said.into_iter().filter(is_left).collect()
}

/// The UUIDs of nodes' swaps that Operations finish. An Operation that is not understood may finish its swaps. One that never
/// began does not: it is removed.
fn led(operations: &[Operation]) -> BTreeSet<Uuid> {
    let leads = |operation: &&Operation| match SwapProgress::of(operation) {
        Ok(swapping) => swapping.is_some_and(|swapping| swapping.is_open()),
        Err(_) => operation.status.as_ref().is_some_and(|status| status.outcome.is_none()),
    };
    let plans = operations.iter().filter(leads).filter_map(|operation| operation.spec.plan.as_ref());
    plans.filter_map(|plan| plan["nodes"].as_array()).flatten().filter_map(|node| uuid(node.get("swap"))).collect()
}

/// The begun steps of a node in a swap's journal, by its place in the plan.
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

/// Whether a control-plane node runs in a VM that is neither its first one nor recorded by an existing swap.
///
/// [`drifted`] evaluates observed VMs, and if some are newer nothing else is decided. This function evaluates objects only, with
/// the last observation in Machines. It is all that is known while the vCenter does not answer, and decisions are made then too.
/// It prevents that the resolved image and size are trusted before the nodes were asked.
pub fn has_drifted(deployment: Option<&Deployment>, machines: &[Machine], operations: &[Operation]) -> bool {
    let at_first =
        deployment.into_iter().flat_map(|it| &it.record.nodes).flat_map(|node| [node.allocated_uuid, node.bios_uuid]);
    let replaces = deployment.and_then(|it| it.record.replacement.as_ref()).map(|open| open.allocated_uuid);
    let at_first = at_first.chain([replaces]);
    let noted: BTreeSet<Uuid> = at_first.flatten().chain(operations.iter().flat_map(of_swap)).collect();
    let statuses = machines.iter().filter_map(|machine| machine.status.as_ref());
    let mut current = statuses.flat_map(|status| &status.vms).filter(|vm| vm.state == VmState::Current);
    current.any(|vm| vm.uuid.parse::<Uuid>().is_ok_and(|uuid| !noted.contains(&uuid)))
}

/// The VMs of a swap. The plan has those that it found, including those of nodes that it leaves alone. The journal has those that
/// it created or began to create.
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

    /// A swap of `shop-cp1` with this journal. Its plan has found the node in VM 1.
    fn swap(entries: &[Value]) -> Operation {
        let mut plan = plan();
        plan["nodes"] = json!([node("shop-cp1")]);
        fixture::swap(plan, entries)
    }

    /// A VM of `shop-cp1` with its data disk.
    fn vm(uuid: u128) -> Vm {
        fixture::vm("shop-cp1", uuid, 2)
    }

    #[test]
    fn message_names_at_most_five_newer_vms() {
        assert_eq!(drifted(&[]), None);
        let words = drifted(&[vm(9)]).unwrap();
        assert!(words.contains(&vm(9).to_string()) && !words.contains("more"), "{words}");
        let words = drifted(&(0..9).map(vm).collect::<Vec<_>>()).unwrap();
        assert!(words.contains(&vm(4).to_string()) && words.contains(" and 4 more"), "{words}");
        assert!(!words.contains(&vm(5).to_string()), "{words}");
    }

    #[test]
    fn early_data_disk_shows_an_older_journal() {
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
    fn open_operations_finish_the_swaps_of_their_nodes() {
        let (open, strange) = (swap(&[]), swap(&[json!({"event": "dreamt"})]));
        let mut ended = strange.clone();
        ended.status.get_or_insert_default().outcome = Some("committed".to_owned());
        let mut never_begun = open.clone();
        never_begun.status = None;
        for (operation, leads) in [(open, true), (strange, true), (ended, false), (never_begun, false)] {
            // The UUID of the plan's node.
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
    fn node_in_an_unrecorded_vm_has_drifted() {
        let node = json!({
            "name": "shop-cp1", "address": "192.168.10.20", "settingsHash": "x", "biosUUID": Uuid::from_u128(0xf1).to_string(),
        });
        let deployment: Deployment = serde_json::from_value(json!({
            "lease": 1, "cluster": "shop", "lifecycle": "Active", "image": {"name": "former"}, "formed": true, "nodes": [node],
        }))
        .unwrap();
        // The swap has created this VM.
        let entry = json!({"at": 1, "lease": 1, "event": "begun", "action": "import", "vm": Uuid::from_u128(0xf2)});
        let swap = swap(&[entry]);
        for (vm, has) in [(0xf1, false), (1, false), (0xf2, false), (0xf3, true)] {
            let machines = [runs_in(vm), runs_in(0xf1)];
            assert_eq!(has_drifted(Some(&deployment), &machines, std::slice::from_ref(&swap)), has, "{vm:x}");
        }
        assert!(has_drifted(Some(&deployment), &[runs_in(0xf2)], &[]), "the swap is not known any more");
        // That swap is no longer known either. A later one has left its node alone.
        let mut alone = swap;
        alone.spec.plan.as_mut().unwrap()["other_vms"] = json!([Uuid::from_u128(0xf3)]);
        assert!(!has_drifted(Some(&deployment), &[runs_in(0xf3)], &[alone]));
        let unseen = Machine::new("shop-cp1", crate::objects::fixture::worker());
        assert!(!has_drifted(Some(&deployment), &[unseen], &[]), "nobody has looked yet");
    }
}
