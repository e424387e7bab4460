//! The next actions, from the record and the inventory.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY_ALL, vm, wanted};
use crate::control_plane::{
    Action, DeployStatus, DeploymentRecord, Goal, Inventory, Lifecycle, Node, NodeReport, Replacement, next,
};
use crate::hypervisor::{Adapter, Disk, DiskKind, DiskRef, PowerState, Vm, VmSize};

fn kept() -> DeploymentRecord {
    Goal::Deploy(&wanted(3)).applied(DEPLOYMENT, None, &[]).unwrap()
}

fn vm_of(node: &str, uuid: u128) -> Vm {
    let stamp = crate::hypervisor::Stamp { deployment: DEPLOYMENT, node: node.to_owned(), swap: None };
    vm(node, Uuid::from_u128(uuid), Some(stamp))
}

fn with_disk(mut vm: Vm) -> Vm {
    let reference = DiskRef { uuid: Uuid::from_u128(vm.uuid().as_u128() + 0xd0), path: "p".to_owned() };
    vm.disks.push(Disk { reference, kind: DiskKind::Data, parent: None, controller: "c".to_owned() });
    vm
}

fn seen(vms: Vec<Vm>) -> Inventory {
    Inventory { vms, ..Inventory::default() }
}

#[test]
fn all_vms_are_created_before_any_starts() {
    let mut kept = kept();
    let make = |name: &str| Action::CloneVm(name.to_owned());
    assert_eq!(next(&kept, &Inventory::default()).actions, [make("cp1"), make("cp2"), make("cp3")]);
    kept.nodes[0].bios_uuid = Some(Uuid::from_u128(1));
    let first = vm_of("cp1", 1);
    assert_eq!(next(&kept, &seen(vec![first.clone()])).actions, [make("cp2"), make("cp3")]);
    for (node, uuid) in kept.nodes.iter_mut().zip(1..) {
        node.bios_uuid = Some(Uuid::from_u128(uuid));
    }
    let all = seen(vec![first, vm_of("cp2", 2), vm_of("cp3", 3)]);
    let on = |name: &str| Action::PowerOn(name.to_owned());
    assert_eq!(next(&kept, &all).actions, [on("cp1"), on("cp2"), on("cp3")]);
}

/// vCenter may not find a VM by its BIOS UUID whose settings it cannot read.
#[test]
fn a_node_with_an_unreadable_vm_waits() {
    let mut kept = kept();
    for (node, uuid) in kept.nodes.iter_mut().zip(1..) {
        (node.bios_uuid, node.ever_powered_on) = (Some(Uuid::from_u128(uuid)), uuid != 2);
    }
    let hidden = kept.nodes.iter().map(|node| (node.name.clone(), "it may be the VM vm".to_owned())).collect();
    let seen = Inventory { hidden, ..Inventory::default() };
    for formed in [false, true] {
        kept.formed = formed;
        let now = next(&kept, &seen);
        assert!(now.actions.is_empty() && now.waits.len() == 3 && !now.needs_a_person(), "{now:?}");
    }
}

#[test]
fn an_incomplete_vm_is_removed_first() {
    let mut kept = kept();
    kept.nodes[0].allocated_uuid = Some(Uuid::from_u128(1));
    let half = with_disk(vm_of("cp1", 1));
    let disk = half.disks[0].reference.clone();
    let now = next(&kept, &seen(vec![half.clone()]));
    assert_eq!(now.actions[0], Action::Detach(half.reference.clone(), disk.clone()));
    let noted = kept.noting(&half, &disk).unwrap();
    assert_eq!((noted.disks_to_delete.as_slice(), noted.retained_disks.len()), ([disk.clone()].as_slice(), 0));
    assert!(!next(&noted, &seen(vec![half.clone()])).actions.contains(&Action::DeleteDisk(disk.clone())));
    let bare = Vm { disks: Vec::new(), ..half };
    let now = next(&noted, &seen(vec![bare.clone()]));
    let goes = [Action::Destroy(bare.reference.clone()), Action::DeleteDisk(disk.clone())];
    assert_eq!((&now.actions[..2], now.actions.len()), (goes.as_slice(), 4), "before another one is made");
    // A disk that was attached to it since stays, while its own one exists and afterwards.
    let reused = Vm { disks: with_disk(vm_of("cp1", 3)).disks, ..bare };
    let hung = reused.disks[0].reference.clone();
    for noted in [noted.clone(), noted.removed(&disk)] {
        let stays = noted.noting(&reused, &hung).unwrap();
        assert_eq!(stays.retained_disks, std::slice::from_ref(&hung));
        assert_eq!(stays.nodes[0].disk, Some(disk.uuid));
        assert_eq!(stays.disks_to_delete, noted.disks_to_delete);
    }
    // The own disk of the next incomplete VM is removed like the first one: none is recorded as its own once it is begun.
    let begun = noted.removed(&disk).with(Node { disk: None, ..noted.nodes[0].clone() });
    let again = begun.noting(&reused, &hung).unwrap();
    assert_eq!((again.retained_disks.len(), again.disks_to_delete.as_slice()), (0, [hung.clone()].as_slice()));
    assert_eq!(again.nodes[0].disk, Some(hung.uuid));
    // The same applies to a later node: two incomplete VMs with a disk are taken for VMs that have served.
    kept.nodes[1].allocated_uuid = Some(Uuid::from_u128(2));
    let later = with_disk(vm_of("cp2", 2));
    let now = next(&kept, &seen(vec![later.clone()]));
    assert_eq!(now.actions[0], Action::Detach(later.reference.clone(), later.disks[0].reference.clone()));
    // Of several none is known as the blank one: all are retained, and none counts as the node's.
    let mut two = later;
    two.disks.extend(with_disk(vm_of("cp2", 3)).disks);
    let [own, added] = [0, 1].map(|at| two.disks[at].reference.clone());
    let noted = kept.noting(&two, &own).unwrap();
    assert_eq!((noted.retained_disks.len(), noted.disks_to_delete.len()), (2, 0));
    two.disks.remove(0);
    let noted = noted.noting(&two, &added).unwrap();
    assert_eq!(noted.retained_disks, [own.clone(), added.clone()]);
    assert!(noted.disks_to_delete.is_empty());
    // A disk that is attached to it after all of these are detached does not count either.
    two.disks = with_disk(vm_of("cp2", 4)).disks;
    let later = two.disks[0].reference.clone();
    let noted = noted.noting(&two, &later).unwrap();
    assert_eq!((noted.retained_disks.as_slice(), noted.disks_to_delete.len()), ([own, added, later].as_slice(), 0));
    assert_eq!(noted.nodes[1].own_disk(), None);
    // A VM that was powered on by hand is not changed.
    let on = Vm { power: PowerState::On, ..vm_of("cp1", 1) };
    let now = next(&kept, &seen(vec![on]));
    assert!(!now.actions.iter().any(|action| matches!(action, Action::Destroy(_))) && !now.waits.is_empty());
}

/// It was attached there by hand, and the result of its removal request is not known yet.
#[test]
fn a_held_disk_under_removal_stays_doubtful() {
    let mut kept = kept();
    let vm = with_disk(vm_of("cp1", 1));
    let disk = vm.disks[0].reference.clone();
    kept.nodes[0].bios_uuid = Some(vm.uuid());
    assert_eq!(kept.starting(kept.nodes[0].clone(), &vm).nodes[0].own_disk(), Some(disk.uuid));
    (kept.disks_to_delete, kept.requested_disk_deletions) = (vec![disk.clone()], vec![disk.uuid]);
    let started = kept.starting(kept.nodes[0].clone(), &vm);
    assert_eq!((started.nodes[0].own_disk(), started.nodes[0].ever_powered_on), (None, true));
    let now = DiskRef { path: "elsewhere".to_owned(), ..disk.clone() };
    let hung = started.hung(&disk, &now);
    assert_eq!((hung.retained_disks.as_slice(), hung.disks_to_delete.len()), ([now.clone()].as_slice(), 0));
    assert_eq!(hung.in_doubt().as_slice(), std::slice::from_ref(&now));
    // It is not both retained and to be removed if an incomplete VM was moved meanwhile. A copy does not tell its place.
    kept.nodes[0].allocated_uuid = kept.nodes[0].bios_uuid.take();
    let mut on = Vm { power: PowerState::On, ..vm };
    on.disks[0].reference = now.clone();
    for (is_alone, place) in [(true, &now), (false, &disk)] {
        let noted = kept.seen_on(&on, is_alone).unwrap();
        assert_eq!((noted.retained_disks.as_slice(), noted.disks_to_delete.len()), (std::slice::from_ref(place), 0));
        assert_eq!(noted.seen_on(&on, is_alone), None);
    }
}

/// Two incomplete VMs with a disk are taken for VMs that have served.
#[test]
fn no_vm_begins_before_incomplete_disks_are_detached() {
    let mut kept = kept();
    kept.nodes[0].allocated_uuid = Some(Uuid::from_u128(1));
    let bare = vm_of("cp1", 1);
    let one = with_disk(bare.clone());
    let mut two = one.clone();
    let added = DiskRef { uuid: Uuid::from_u128(0xf0), path: "added".to_owned() };
    two.disks.push(Disk { reference: added, kind: DiskKind::Data, parent: None, controller: "c".to_owned() });
    for half in [two, one.clone()] {
        let detach = Action::Detach(half.reference.clone(), half.disks[0].reference.clone());
        assert_eq!(next(&kept, &seen(vec![half])).actions, [detach]);
    }
    // Its host is away: that is reported, and waited for.
    let away = next(&kept, &seen(vec![Vm { power: PowerState::Unknown, ..one }]));
    let codes: Vec<_> = away.waits.iter().map(|wait| wait.reason.code.as_str()).collect();
    assert_eq!((away.actions.len(), codes), (0, vec!["deploy.vm-state"]));
    assert!(!away.needs_a_person(), "it comes back by itself");
    let [make, other] = ["cp2", "cp3"].map(|name| Action::CloneVm(name.to_owned()));
    assert_eq!(next(&kept, &seen(vec![bare.clone()])).actions, [Action::Destroy(bare.reference), make, other]);
}

#[test]
fn a_cluster_forms_once_all_nodes_are_ready() {
    let mut kept = kept();
    let mut vms = Vec::new();
    for (node, uuid) in kept.nodes.iter_mut().zip(1..) {
        (node.bios_uuid, node.ever_powered_on) = (Some(Uuid::from_u128(uuid)), true);
        vms.push(Vm { power: PowerState::On, ..with_disk(vm_of(&node.name, uuid)) });
    }
    let mut seen = seen(vms);
    assert_eq!(next(&kept, &seen).waits.len(), 3);
    let names = || ["cp1", "cp2", "cp3"].map(str::to_owned);
    seen.said = names().map(|name| (name, NodeReport::Formed)).into();
    seen.said.insert("cp2".to_owned(), NodeReport::Nothing("it waits for cp3".to_owned()));
    let waits = next(&kept, &seen).waits;
    assert_eq!((waits[0].to_string().as_str(), waits.len()), ("cp2: it waits for cp3 [deploy.forming]", 1));
    // Once it has formed, one node is enough.
    let later = DeploymentRecord { formed: true, ..kept.clone() };
    assert!(next(&later, &seen).is_done());
    seen.said.insert("cp2".to_owned(), NodeReport::Formed);
    seen.ready = Some(Ok(["cp1".to_owned(), "cp2".to_owned()].into()));
    assert_eq!(next(&kept, &seen).waits[0].reason.code, "deploy.not-ready");
    seen.ready = Some(Err("it is silent".to_owned()));
    assert_eq!(next(&kept, &seen).waits[0].reason.code, "deploy.api-silent");
    seen.ready = Some(Ok(names().into()));
    assert_eq!(next(&kept, &seen).actions, [Action::Formed]);
}

#[test]
fn used_disks_stay_by_default_and_volumes_always() {
    let mut kept = kept();
    (kept.nodes[0].bios_uuid, kept.nodes[0].ever_powered_on) = (Some(Uuid::from_u128(1)), true);
    let mut vm = with_disk(vm_of("cp1", 1));
    let data = vm.disks[0].reference.clone();
    let volume = DiskRef { uuid: Uuid::from_u128(0xf0), path: "volume".to_owned() };
    let kind = DiskKind::Foreign;
    vm.disks.push(Disk { reference: volume.clone(), kind, parent: None, controller: "c".to_owned() });
    assert_eq!(kept.noting(&vm, &data).unwrap().retained_disks, std::slice::from_ref(&data));
    let all = DeploymentRecord { removes_disks: true, ..kept };
    let noted = all.noting(&vm, &data).unwrap();
    assert_eq!(noted.disks_to_delete.as_slice(), [data.clone()].as_slice());
    // A command that withdraws this keeps what still exists.
    let kept =
        Goal::Destroy { cluster: &noted.cluster.clone(), disks: false, left: &[], doubtful: &[], held: &[], also: &[] };
    let kept = kept.applied(DEPLOYMENT, Some(noted), &[]).unwrap();
    assert_eq!((kept.retained_disks.as_slice(), kept.disks_to_delete.len()), ([data].as_slice(), 0));
    assert!(!next(&kept, &Inventory::default()).actions.iter().any(|action| matches!(action, Action::DeleteDisk(_))));
    let noted = all.noting(&vm, &volume).unwrap();
    assert_eq!((noted.retained_disks.as_slice(), noted.disks_to_delete.len()), ([volume.clone()].as_slice(), 0));
    // Not later either, when retained disks are removed as well.
    let later = DESTROY_ALL.applied(DEPLOYMENT, Some(noted), &[]).unwrap();
    assert_eq!((later.retained_disks, later.disks_to_delete), (vec![volume], vec![]));
}

#[test]
fn a_swapped_node_has_the_data_disk() {
    let mut kept = DeploymentRecord { formed: true, ..kept() };
    kept.nodes.truncate(1);
    let old = vm_of("cp1", 1);
    let mut new = with_disk(vm_of("cp1", 9));
    new.stamp.as_mut().unwrap().swap = Some(Uuid::from_u128(7));
    let upgraded = [Uuid::from_u128(9)].into();
    let both = Inventory { upgraded, ..seen(vec![old.clone(), new.clone()]) };
    let off = next(&kept, &both);
    assert_eq!(off.actions, [Action::PowerOn("cp1".to_owned())]);
    let waits: Vec<_> = off.waits.iter().map(ToString::to_string).collect();
    assert_eq!(waits, ["cp1: its VM is off [deploy.vm-state]"]);
    // While none holds the disk the node is not called lost.
    let mut moving = kept.clone();
    moving.nodes[0].disk = Some(Uuid::from_u128(0xd9));
    let gone = |vms: Vec<Vm>| next(&moving, &seen(vms)).waits[0].to_string();
    let words = gone(vec![old.clone(), Vm { disks: Vec::new(), ..new.clone() }]);
    let names = [old.to_string(), new.to_string(), Uuid::from_u128(0xd9).to_string()];
    assert!(words.contains("attach it") && names.iter().all(|name| words.contains(name)), "{words}");
    assert!(gone(Vec::new()).contains("The command replace-node"));
    // An unrecorded VM, which may hold anything, does not count.
    let unknown = next(&kept, &seen(vec![old.clone(), new.clone()]));
    assert_eq!((unknown.actions.len(), unknown.waits[0].reason.code.as_str()), (0, "deploy.vm-unnoted"));
    let down = DeploymentRecord { lifecycle: Lifecycle::Deleting, ..kept };
    let noted = |vms| Inventory { upgraded: [1, 9].map(Uuid::from_u128).into(), ..seen(vms) };
    let actions = next(&down, &noted(vec![old.clone(), new.clone()])).actions;
    assert_eq!(
        actions,
        [Action::Destroy(old.reference), Action::Detach(new.reference.clone(), new.disks[0].reference.clone()),]
    );
}

#[test]
fn a_snapshot_stops_the_removal_of_a_cluster() {
    let mut kept = DeploymentRecord { lifecycle: Lifecycle::Deleting, formed: true, ..kept() };
    let mut vms = Vec::new();
    for (node, uuid) in kept.nodes.iter_mut().zip(1..) {
        (node.bios_uuid, node.ever_powered_on) = (Some(Uuid::from_u128(uuid)), true);
        vms.push(Vm { power: PowerState::On, ..with_disk(vm_of(&node.name, uuid)) });
    }
    assert_eq!(next(&kept, &seen(vms.clone())).actions.len(), 3);
    vms[1].power = PowerState::Off;
    vms[2].snapshots.push("a backup".to_owned());
    let now = next(&kept, &seen(vms.clone()));
    assert_eq!((now.actions.len(), now.waits.len()), (0, 1));
    let wait = now.waits[0].to_string();
    assert!(wait.contains("(a backup)") && wait.ends_with("[deploy.vm-snapshot]"), "{wait}");
    assert!(!now.needs_a_person(), "a backup's goes by itself");
    // The snapshot of a VM outside the cluster stops nothing.
    vms[2].stamp.as_mut().unwrap().node = "payroll".to_owned();
    kept.nodes.truncate(2);
    assert_eq!(next(&kept, &seen(vms)).actions.len(), 2);
}

#[test]
fn a_disk_of_another_vm_is_not_removed() {
    let holder = with_disk(vm_of("cp1", 1));
    let disk = holder.disks[0].reference.clone();
    let kept = DeploymentRecord { lifecycle: Lifecycle::Deleting, disks_to_delete: vec![disk.clone()], ..kept() };
    let by_another = Inventory { bystanders: vec![holder], ..Inventory::default() };
    for (seen, goes) in [(Inventory::default(), true), (by_another, false)] {
        let status = DeployStatus::of(&kept, Ok(&seen));
        assert_eq!(status.discarded.contains(&disk), goes, "{status:?}");
        assert_eq!(next(&kept, &seen).actions.contains(&Action::DeleteDisk(disk.clone())), goes);
    }
}

/// From an upgrade that was killed right before it detached the disk, and abandoned.
#[test]
fn a_disconnected_vm_with_the_disk_stays_off() {
    let mut kept = DeploymentRecord { formed: true, ..kept() };
    kept.nodes.truncate(1);
    kept.nodes[0].bios_uuid = Some(Uuid::from_u128(1));
    let adapter = |key: &str, connected| Adapter {
        key: key.to_owned(),
        network: "Management".to_owned(),
        mac: format!("00:50:56:00:00:{}", &key[2..]),
        connected,
    };
    let of = |adapters| seen(vec![Vm { adapters, ..with_disk(vm_of("cp1", 1)) }]);
    let now = next(&kept, &of(vec![adapter("4000", false), adapter("4001", false)]));
    let waits: Vec<_> = now.waits.iter().map(ToString::to_string).collect();
    assert_eq!((now.actions.len(), waits.len()), (0, 1), "{waits:?}");
    assert!(waits[0].contains("none of its network adapters") && waits[0].ends_with("[deploy.vm-state]"), "{waits:?}");
    assert!(now.needs_a_person());
    // A copy of it comes first: neither should be connected.
    let doubles = vec![vm_of("cp1", 1)];
    let copied = next(&kept, &Inventory { doubles, ..of(vec![adapter("4000", false)]) });
    assert!(copied.actions.is_empty() && copied.waits.iter().any(|wait| wait.reason.code == "deploy.vm-odd"));
    for one_is_connected in [vec![adapter("4000", true), adapter("4001", false)], Vec::new()] {
        assert_eq!(next(&kept, &of(one_is_connected)).actions, [Action::PowerOn("cp1".to_owned())]);
    }
}

/// It has another name since: a Machine gets the messages of its node.
#[test]
fn waits_of_a_swapped_vm_name_its_node() {
    let mut kept = DeploymentRecord { formed: true, ..kept() };
    kept.nodes.truncate(1);
    kept.nodes[0].bios_uuid = Some(Uuid::from_u128(1));
    let swapped = Vm { name: "cp1-bbbbbbb".to_owned(), ..with_disk(vm_of("cp1", 11)) };
    let suspended = Vm { power: PowerState::Suspended, ..swapped.clone() };
    let unclear = [(swapped.uuid(), "a test".to_owned())].into();
    let upgraded: BTreeSet<Uuid> = [swapped.uuid()].into();
    for at in [Inventory { unclear, ..seen(vec![swapped]) }, seen(vec![suspended])] {
        let now = next(&kept, &Inventory { upgraded: upgraded.clone(), ..at });
        assert!(now.actions.is_empty() && !now.waits.is_empty(), "{:?}", now.waits);
        assert!(now.waits.iter().all(|wait| wait.node.as_deref() == Some("cp1")), "{:?}", now.waits);
    }
}

/// In a swap, and after one that was abandoned, a node has two VMs.
#[test]
fn a_nodes_size_is_its_disks_vms_size() {
    let (small, large) = (VmSize { processors: 2, memory: 4096 }, VmSize { processors: 4, memory: 16384 });
    let old = Vm { size: Some(small), ..vm_of("cp1", 1) };
    let new = Vm { size: Some(large), ..vm_of("cp1", 11) };
    let of = |vms: Vec<Vm>| DeployStatus::of(&kept(), Ok(&seen(vms))).nodes[0].size;
    assert_eq!(of(vec![with_disk(old.clone()), new.clone()]), Some(small));
    assert_eq!(of(vec![old.clone(), with_disk(new.clone())]), Some(large));
    assert_eq!(of(vec![old, new.clone()]), None, "the disk is on its way");
    assert_eq!(of(vec![with_disk(Vm { size: None, ..new })]), None, "nobody says it");
    assert_eq!(of(Vec::new()), None);
}

/// A VM that was read a moment before the disk was moved still names its former place.
#[test]
fn the_holder_of_a_moved_disk_is_found() {
    let before = with_disk(vm_of("cp1", 1));
    let disk = before.disks[0].reference.clone();
    let mut now = Vm { disks: before.disks.clone(), ..vm_of("cp1", 9) };
    now.disks[0].reference.path = "elsewhere".to_owned();
    let both = Inventory { bystanders: vec![now.clone()], ..seen(vec![before.clone()]) };
    assert_eq!(both.holder_elsewhere(&disk), Some((&now, &now.disks[0].reference)));
    assert_eq!(seen(vec![before]).holder_elsewhere(&disk), None);
}

/// It may have joined while vCenter was away.
#[test]
fn late_vm_stays_while_another_node_is_unready() {
    let mut kept = kept();
    kept.formed = true;
    for (node, uuid) in kept.nodes.iter_mut().zip(1..) {
        (node.bios_uuid, node.ever_powered_on) = (Some(Uuid::from_u128(uuid)), true);
    }
    kept.replacement = Some(Replacement {
        node: "cp2".to_owned(),
        evidence: "gone".to_owned(),
        attempt: 1,
        allocated_uuid: Uuid::from_u128(9),
        admitted: Some(1),
        started: true,
        data_disk: None,
    });
    let on = |vm: Vm| Vm { power: PowerState::On, ..with_disk(vm) };
    let of = |power: PowerState, ready: &[&str]| {
        let new = Vm { power, ..with_disk(vm_of("cp2", 9)) };
        let ready = ready.iter().map(|name| (*name).to_owned()).collect();
        let vms = vec![on(vm_of("cp1", 1)), new, on(vm_of("cp3", 3))];
        next(&kept, &Inventory { now: 100_000, ready: Some(Ok(ready)), ..seen(vms) })
    };
    let new = vm_of("cp2", 9).reference;
    assert!(of(PowerState::On, &["cp1"]).actions.is_empty(), "without both, etcd has no quorum");
    assert_eq!(of(PowerState::Off, &["cp1"]).actions, [Action::StartReplacement("cp2".to_owned())]);
    assert_eq!(of(PowerState::On, &["cp1", "cp3"]).actions, [Action::PowerOff(new)]);
}
