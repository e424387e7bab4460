//! The records of an upgrade, for a cluster that is removed or created: its own upgrade, another deployment's, or an unreadable
//! one.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, Machine, World, destroy_shown};
use super::stories::{also, shown, stopped_by};
use crate::control_plane::{Goal, Lifecycle, RunOutcome, authority, moved, records};
use crate::hypervisor::{DiskRef, ErrorKind, Hypervisor, PowerState, Vm};
use crate::journals::{beginning, record_text};
use crate::upgrade::{AbandonedUnread, DiskCopy, LastUpgrade, OpenUpgrade};

/// The journal of an interrupted upgrade of three nodes: the disk of cp2 was detached from its VM. BIOS UUIDs end in a0 to a2.
pub fn upgrade_of(deployment: Uuid) -> String {
    let journal = include_str!("../../upgrade/tests/testdata/journal.jsonl");
    journal.replace(&Uuid::from_u128(0xde).to_string(), &deployment.to_string())
}

#[tokio::test(start_paused = true)]
async fn an_ended_upgrade_stops_no_new_cluster() {
    let world = World::with(1).await;
    for _ in 0..3 {
        world.deploy(1).await.arrived();
    }
    let last = *world.lock().holds().keys().next_back().unwrap();
    let upgrade = upgrade_of(DEPLOYMENT);
    let lines: Vec<&str> = upgrade.lines().collect();
    let (planned, detaches) = (lines[0], lines[3]);
    world.put(last, "journal.jsonl", &format!("{planned}\n{detaches}\n"));
    world.deploy(1).await.fails("an upgrade of this cluster is open");
    world.give(DESTROY).await.arrived();
    let holds: Vec<u64> = world.lock().holds().keys().copied().collect();
    assert_eq!(holds, [last + 1], "the last one alone is left");
    world.deploy(1).await.up();
}

#[tokio::test(start_paused = true)]
async fn a_later_upgrade_outlives_a_stopped_removal() {
    let world = World::with(1).await;
    assert!(authority(&world, DEPLOYMENT).await.unwrap().is_some());
    assert_eq!(authority(&world, Uuid::from_u128(0xbb)).await.unwrap(), None);
    world.give(DESTROY).await.arrived();
    assert_eq!(authority(&world, DEPLOYMENT).await.unwrap(), None, "it is gone");
    // Another cluster was imported by hand and adopted under the same file, and its upgrade was interrupted.
    let (noted, unnoted) = (world.plant("cp2", "cp2", 0xa1), world.plant("cp9", "cp9", 0xa9));
    change(&world, noted.vm.uuid(), |vm| vm.disks.clear());
    let last = *world.lock().holds().keys().next_back().unwrap();
    world.put(last, "journal.jsonl", &upgrade_of(DEPLOYMENT));
    world.deploy(1).await.fails("an upgrade of this cluster is open");
    stopped_by(&world, &world.give(DESTROY).await.stopped(), &[&unnoted]);
    assert!(OpenUpgrade::find(&world).await.unwrap().is_some(), "its journal alone says where the disks are");
    // The command that completes it reports the disk that no VM holds.
    world.lock().machines.retain(|machine| machine.vm != unnoted.vm);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
    assert!(status.left.iter().any(|disk| disk.path == "[datastore1] cp2/data.vmdk"), "{:?}", status.left);
    assert_eq!(OpenUpgrade::find(&world).await.unwrap(), None);
    world.deploy(1).await.up();
}

/// Both VMs of a node: the former one, and the one that the upgrade created.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_settings_of_upgraded_vms() {
    let world = World::with(1).await;
    let begun = |more: &str| format!("{{\"at\":1,\"lease\":1,\"event\":\"begun\",\"node\":1,{more}}}\n");
    let made = Uuid::from_u128(0xb1);
    let journal = upgrade_of(DEPLOYMENT).lines().take(4).map(|line| format!("{line}\n")).collect::<String>()
        + &begun(&format!("\"action\":\"import\",\"vm\":\"{made}\""))
        + &begun("\"action\":\"shut-down\",\"settings\":\"[ds] cp2/cp2.vmx\"")
        + &begun("\"action\":\"power-on\",\"settings\":\"[ds] cp2-new/cp2-new.vmx\"")
        + &begun("\"action\":\"evacuate-new\",\"settings\":\"[ds] moved/cp2-new.vmx\"");
    put(&world, "journal.jsonl", &journal);
    for left in ["[ds] cp2/cp2.vmx", "[ds] moved/cp2-new.vmx"] {
        world.lock().settings = [left.to_owned()].into();
        let waits = world.give(DESTROY).await.stopped();
        assert!(waits.iter().any(|wait| wait.reason.words.contains(left)), "{waits:?}");
    }
    world.lock().settings = ["[ds] cp2-new/cp2-new.vmx".to_owned()].into();
    world.give(DESTROY).await.gone();
}

/// The upgrade has destroyed the old VM itself. A file of that name is another VM's. If the node was replaced, that VM may have been missing.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_no_destroyed_vm() {
    let line = |event: &str, more: &str| format!("{{\"at\":1,\"lease\":1,\"event\":\"{event}\",\"node\":1,{more}}}\n");
    let journal = upgrade_of(DEPLOYMENT).lines().take(4).map(|line| format!("{line}\n")).collect::<String>()
        + &line("begun", "\"action\":\"shut-down\",\"settings\":\"[ds] cp2/cp2.vmx\"")
        + &line("begun", "\"action\":\"destroy-old\"");
    let done = line("done", "\"action\":\"destroy-old\",\"note\":\"\"");
    let replaced = line("done", "\"action\":\"destroy-old\",\"note\":\"\",\"replaced\":true");
    for (end, is_destroyed) in [("", false), (&*done, true), (&*replaced, false)] {
        let world = World::with(1).await;
        put(&world, "journal.jsonl", &(journal.clone() + end));
        world.lock().settings = ["[ds] cp2/cp2.vmx".to_owned()].into();
        assert_eq!(world.give(DESTROY).await.arrived().0 == RunOutcome::Gone, is_destroyed, "{end}");
    }
}

/// Two upgrades were committed since the node was made. The last one knows its disk, and not the first VM.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_no_earlier_vm() {
    // A VM that took the node's place by hand has another disk. The plan may carry on the node's disk of an earlier upgrade.
    for (is_swapped, is_carried) in [(false, false), (false, true), (true, false)] {
        let world = World::with(1).await;
        let first = settled(&world).await;
        let journal = if is_swapped { upgrade_of_its_own(&world) } else { upgrade_of(DEPLOYMENT) };
        let mut lines: Vec<serde_json::Value> =
            journal.lines().take(4).map(|line| serde_json::from_str(line).unwrap()).collect();
        if is_carried {
            let disk = records::read(&world).await.unwrap().unwrap().nodes[0].own_disk();
            lines[0]["plan"]["other_disks"] = serde_json::json!([{ "uuid": disk, "path": "[ds] cp1/data.vmdk" }]);
        }
        put(&world, "journal.jsonl", &lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        world.lock().machines.retain(|machine| machine.vm.uuid() != first);
        world.lock().settings = ["[ds] cp1/cp1.vmx".to_owned()].into();
        assert_eq!(world.give(DESTROY).await.arrived().0 == RunOutcome::Gone, is_swapped, "carried: {is_carried}");
    }
}

/// Records a place of the VM of a cluster of one node.
async fn settled(world: &World) -> Uuid {
    let first = world.lock().named("cp1").vm.uuid();
    change(world, first, |vm| vm.settings = Some("[ds] cp1/cp1.vmx".to_owned()));
    world.deploy(1).await.arrived();
    first
}

/// The journal of a committed upgrade that destroyed the VM of the node. Another VM that it made was never on.
fn committed(world: &World, first: Uuid) -> String {
    let plan = upgrade_of_its_own(world).replace(&Uuid::from_u128(0xa0).to_string(), &first.to_string());
    let made = Uuid::from_u128(0xb2);
    let made =
        format!("{{\"at\":1,\"lease\":1,\"event\":\"begun\",\"node\":0,\"action\":\"import\",\"vm\":\"{made}\"}}\n");
    let destroyed = |node| {
        format!(
            "{{\"at\":1,\"lease\":1,\"event\":\"done\",\"node\":{node},\"action\":\"destroy-old\",\"note\":\"\"}}\n"
        )
    };
    let ended = "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"committed\"}\n";
    [plan.lines().next().unwrap(), "\n", &made].concat() + &(0..3).map(destroyed).collect::<String>() + ended
}

/// The last upgrade left its node alone.
#[tokio::test(start_paused = true)]
async fn a_vm_of_an_earlier_upgrade_may_run() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    let other = format!("\"other_vms\":[\"{}\"],\"steps\":[", Uuid::from_u128(0xb1));
    put(&world, "journal.jsonl", &committed(&world, first).replacen("\"steps\":[", &other, 1));
    world.lock().machines.retain(|machine| machine.vm.uuid() != first);
    world.lock().demands_places = true;
    let waits = world.give(DESTROY).await.stopped();
    assert!(waits.len() == 1 && waits[0].reason.words.contains("no place was noted"), "{waits:?}");
}

/// The account may not browse the datastore that its files are on.
#[tokio::test(start_paused = true)]
async fn an_unproved_vm_keeps_no_other_vm() {
    let world = World::with(3).await;
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    world.lock().absence_fails = Some(ErrorKind::Denied);
    let waits = world.give(DESTROY).await.stopped();
    assert!(waits.len() == 1 && waits[0].reason.words.contains("the datastore cannot be searched"), "{waits:?}");
    assert_eq!(world.own(), [""; 0]);
}

/// Its datastore cannot be searched for a while.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_a_later_proof() {
    let world = World::with(3).await;
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    world.lock().absence_fails = Some(ErrorKind::Transient);
    let waits = world.give(DESTROY).await.paused();
    assert!(waits.len() == 1 && waits[0].reason.words.contains("the datastore cannot be searched"), "{waits:?}");
    assert_eq!(world.own(), [""; 0]);
    world.lock().absence_fails = None;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

/// It could not be removed by the command that named it. Its host was removed from vCenter since.
#[tokio::test(start_paused = true)]
async fn a_named_vm_is_proved_gone_as_well() {
    let world = World::with(1).await;
    let named = world.plant("by hand", "cp1", 0xbad3).vm.uuid();
    let named = change(&world, named, |vm| {
        (vm.settings, vm.snapshots) = (Some("[ds] hand/hand.vmx".to_owned()), vec!["backup".to_owned()]);
    });
    world.give(also(std::slice::from_ref(&named.vm), false)).await.paused();
    world.lock().machines.retain(|machine| *machine != named);
    world.lock().settings = ["[ds] hand/hand.vmx".to_owned()].into();
    let waits = world.give(DESTROY).await.stopped();
    assert!(waits.iter().any(|wait| wait.reason.words.contains("[ds] hand/hand.vmx is still there")), "{waits:?}");
}

/// The journal of the upgrade that destroyed the first VM goes with the cluster.
#[tokio::test(start_paused = true)]
async fn a_removed_cluster_needs_no_second_proof() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    put(&world, "journal.jsonl", &committed(&world, first));
    world.lock().machines.retain(|machine| machine.vm.uuid() != first);
    world.lock().demands_places = true;
    for wish in [DESTROY, DESTROY_ALL] {
        world.give(wish).await.gone();
    }
}

/// Backup software keeps a replica with the same BIOS UUID, or restores one to the folder of its VM.
#[tokio::test(start_paused = true)]
async fn a_replica_proves_no_vm_gone() {
    for is_searched in [false, true] {
        let world = World::with(1).await;
        let first = settled(&world).await;
        let vm = change(&world, first, |_| ()).vm;
        let journal = upgrade_of_its_own(&world).replace(&Uuid::from_u128(0xa0).to_string(), &first.to_string());
        put(&world, "journal.jsonl", &journal.lines().take(1).map(|line| format!("{line}\n")).collect::<String>());
        world.replicate(&vm);
        world.lock().machines.retain(|machine| machine.vm.reference != vm.reference);
        let replica = change(&world, first, |vm| vm.settings = Some("[ds] replica/cp1.vmx".to_owned()));
        if is_searched {
            world.lock().away.clear();
        }
        world.deploy(1).await.stopped();
        world.lock().settings = ["[ds] cp1/cp1.vmx".to_owned()].into();
        let (arrived, status) = world.give(DESTROY).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert!(waits.iter().any(|wait| wait.reason.words.contains("[ds] cp1/cp1.vmx is still there")), "{waits:?}");
        assert_eq!((world.lock().machines.contains(&replica), status.replicas.len()), (true, 1));
    }
}

/// A clone with the same BIOS UUID, and then the VM itself, which was given to the other deployment.
#[tokio::test(start_paused = true)]
async fn another_deployments_vm_elsewhere_proves_nothing() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    world.lock().settings = ["[ds] cp1/cp1.vmx".to_owned()].into();
    for (settings, is_itself) in [("[ds] clone/cp1.vmx", false), ("[ds] cp1/cp1.vmx", true)] {
        change(&world, first, |vm| {
            vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
            (vm.disks, vm.settings) = (Vec::new(), Some(settings.to_owned()));
        });
        assert_eq!(world.give(DESTROY).await.arrived().0 == RunOutcome::Gone, is_itself, "{settings}");
    }
}

/// After an upgrade the node is in a VM that the deployment did not create. vCenter moves it, and its host is removed later.
#[tokio::test(start_paused = true)]
async fn a_new_place_of_upgraded_vms_is_recorded() {
    let world = World::with(1).await;
    let made = world.plant("cp2-new", "cp2", 0xb1).vm.uuid();
    let line = |more: &str| format!("{{\"at\":1,\"lease\":1,{more}}}\n");
    let journal = upgrade_of(DEPLOYMENT).lines().take(1).map(|line| format!("{line}\n")).collect::<String>()
        + &line(&format!("\"event\":\"begun\",\"node\":1,\"action\":\"import\",\"vm\":\"{made}\""))
        + &line("\"event\":\"begun\",\"node\":1,\"action\":\"power-on\",\"settings\":\"[ds] cp2-new/cp2-new.vmx\"")
        + &line("\"event\":\"ended\",\"outcome\":\"committed\"");
    put(&world, "journal.jsonl", &journal);
    change(&world, made, |vm| {
        (vm.power, vm.settings) = (PowerState::On, Some("[moved] cp2-new/cp2-new.vmx".to_owned()));
    });
    world.deploy(1).await.arrived();
    put(&world, "journal.jsonl", &journal);
    world.lock().machines.retain(|machine| machine.vm.uuid() != made);
    world.lock().settings = ["[moved] cp2-new/cp2-new.vmx".to_owned()].into();
    let waits = world.give(DESTROY).await.stopped();
    assert!(waits.iter().any(|wait| wait.reason.words.contains("[moved] cp2-new")), "{waits:?}");
}

/// vCenter moves VMs to other datastores.
#[tokio::test(start_paused = true)]
async fn a_new_place_of_settings_is_recorded() {
    let world = World::with(1).await;
    let vm = world.lock().named("cp1").vm.uuid();
    for place in ["[ds] cp1/cp1.vmx", "[other] cp1/cp1.vmx"] {
        change(&world, vm, |vm| vm.settings = Some(place.to_owned()));
        world.deploy(1).await.arrived();
        let kept = records::read(&world).await.unwrap().unwrap();
        assert_eq!(kept.places[&vm].settings, place);
    }
}

#[tokio::test(start_paused = true)]
async fn another_clusters_upgrade_stays() {
    let world = World::removing(1).await;
    let last = *world.lock().holds().keys().next_back().unwrap();
    world.put(last, "journal.jsonl", &upgrade_of(Uuid::from_u128(0xbb)));
    // An account that may change the settings of its VMs has given one of them this deployment's stamp.
    let restamped = world.plant("cp2 of another", "x", 0xa1);
    stopped_by(&world, &world.give(DESTROY_ALL).await.stopped(), &[&restamped]);
    world.lock().machines.retain(|machine| *machine != restamped);
    for _ in 0..2 {
        assert_eq!(world.give(DESTROY_ALL).await.gone().left.len(), 0, "its disks are no matter of this one");
        assert_eq!(world.free_disks().len(), 1, "that of what was put there");
        assert!(OpenUpgrade::find(&world).await.unwrap().is_some());
        assert_eq!(world.lock().emptied, 0, "the place went with it");
    }
}

/// The same of the world's own cluster of three: its disks are these.
fn upgrade_of_its_own(world: &World) -> String {
    let state = world.lock();
    let of = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT);
    let mut journal = upgrade_of(DEPLOYMENT);
    for (number, vm) in (0..).zip(state.machines.iter().map(|machine| &machine.vm).filter(of)) {
        let disk = vm.disks[0].reference.uuid;
        journal = journal.replace(&Uuid::from_u128(0xd0 + number).to_string(), &disk.to_string());
    }
    journal
}

/// Writes this text to a file of the last lease.
fn put(world: &World, file: &str, text: &str) -> u64 {
    let last = world.lock().holds().keys().next_back().copied().unwrap();
    world.put(last, file, text);
    last
}

/// Writes the journal of an upgrade that has ended with this outcome.
fn put_ended(world: &World, journal: &str, outcome: &str) {
    let ended = format!(r#"{{"at":1,"lease":1,"event":"ended","outcome":"{outcome}"}}"#);
    put(world, "journal.jsonl", &format!("{journal}{ended}\n"));
}

fn change(world: &World, uuid: Uuid, change: impl FnOnce(&mut Vm)) -> Machine {
    let mut state = world.lock();
    let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).unwrap();
    change(&mut machine.vm);
    machine.clone()
}

#[tokio::test(start_paused = true)]
async fn a_disk_detached_between_two_removals_is_retained() {
    for (wish, removes) in [(DESTROY, false), (DESTROY_ALL, true)] {
        let world = World::removing(3).await;
        let cp2 = shown(&world, "cp2");
        let disk = cp2.disks[0].reference.uuid;
        change(&world, cp2.uuid(), |vm| vm.snapshots.push("backup".to_owned()));
        let (arrived, status) = world.give(wish).await.arrived();
        assert!(matches!(arrived, RunOutcome::Paused(_)) && status.lifecycle == Lifecycle::Deleting, "{arrived:?}");
        // Another operator upgrades, and is interrupted between the detaching and the attaching.
        put(&world, "journal.jsonl", &upgrade_of_its_own(&world));
        change(&world, cp2.uuid(), |vm| (vm.snapshots, vm.disks) = (Vec::new(), Vec::new()));
        // This VM keeps the cluster from being gone.
        let unnoted = world.plant("cp9", "cp9", 0xa9);
        stopped_by(&world, &world.give(wish).await.stopped(), &[&unnoted]);
        world.lock().machines.retain(|machine| *machine != unnoted);
        let (arrived, status) = world.give(wish).await.arrived();
        // Also if disks are removed: this one was not shown.
        assert_eq!((arrived, world.lock().disks.contains_key(&disk)), (RunOutcome::Gone, true));
        assert_eq!(status.left.iter().filter(|left| left.uuid == disk).count(), 1, "{:?}", status.left);
        // An upgrade's journal also leads to disks that an earlier command has removed.
        assert!(status.left.iter().all(|left| world.lock().disks.contains_key(&left.uuid)), "{:?}", status.left);
        assert_eq!(status.left.len(), if removes { 1 } else { 3 }, "each once: {:?}", status.left);
        let shown = world.unheld().await;
        assert_eq!(shown, status.left);
        let (arrived, status) = world.give(destroy_shown(&shown)).await.arrived();
        let is_there = world.lock().disks.contains_key(&disk);
        assert_eq!((arrived, status.left.len(), is_there), (RunOutcome::Gone, 0, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_an_upgrade_stays_until_shown() {
    let world = World::removing(3).await;
    let cp2 = shown(&world, "cp2");
    let disk = cp2.disks[0].reference.uuid;
    let own = upgrade_of_its_own(&world);
    put_ended(&world, &own, "committed");
    // The node was lost and replaced since. Its disk is inspected with a VM that is in no folder of the deployment, and off.
    let other = world.plant("forensics", "cp2", 0xf0);
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let forensics = change(&world, other.vm.uuid(), |vm| (vm.stamp, vm.disks) = (None, cp2.disks.clone()));
    assert_eq!(world.unheld().await, [], "nothing of it is noted yet");
    for _ in 0..2 {
        let status = world.give(DESTROY_ALL).await.gone();
        assert!(status.left.iter().any(|left| left.uuid == disk) && status.left.len() == 1, "{:?}", status.left);
        assert!(world.lock().disks.contains_key(&disk) && world.lock().machines.contains(&forensics));
        // Before the next removal it is named, with all unattached disks.
        assert_eq!(world.unheld().await, status.left);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unstamped_swapped_vm_keeps_the_journal() {
    let world = World::with(3).await;
    let (own, first) = (upgrade_of_its_own(&world), shown(&world, "cp2"));
    world.plant("cp2-bbbbbbb", "cp2", 0xa1);
    change(&world, first.uuid(), |vm| vm.disks.clear());
    let unstamped = change(&world, Uuid::from_u128(0xa1), |vm| (vm.stamp, vm.disks) = (None, first.disks.clone()));
    put_ended(&world, &own, "committed");
    stopped_by(&world, &world.give(DESTROY).await.stopped(), &[&unstamped]);
    assert!(LastUpgrade::find(&world).await.unwrap().noted().is_some());
    assert_eq!(world.own(), [""; 0], "all others have gone");
    world.lock().machines.retain(|machine| *machine != unstamped);
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_an_unstamped_vm_stays() {
    let unstamped = |vm: &mut Vm| vm.stamp = None;
    let restamped = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    for odd in [unstamped as fn(&mut Vm), restamped] {
        let world = World::removing(3).await;
        let own = upgrade_of_its_own(&world);
        put_ended(&world, &own, "committed");
        let cp2 = shown(&world, "cp2");
        let disk = cp2.disks[0].reference.uuid;
        let is_it = |noted: &DiskRef| noted.uuid == disk;
        let odd = change(&world, cp2.uuid(), odd);
        stopped_by(&world, &world.give(DESTROY_ALL).await.stopped(), &[&odd]);
        // Before the next removal: that VM holds it, and runs.
        let named = world.unheld().await;
        assert!(!named.iter().any(is_it), "{named:?}");
        stopped_by(&world, &world.give(destroy_shown(&named)).await.stopped(), &[&odd]);
        // The operator removes it, and its disk is attached to an unseen VM. It is removed only once it was shown.
        world.lock().machines.retain(|machine| *machine != odd);
        let (arrived, status) = world.give(destroy_shown(&named)).await.arrived();
        assert_eq!((arrived, world.lock().disks.contains_key(&disk)), (RunOutcome::Gone, true));
        assert!(status.left.iter().any(is_it), "{status:?}");
        assert!(world.unheld().await.iter().any(is_it));
    }
}

#[tokio::test(start_paused = true)]
async fn a_restamped_vm_with_a_disk_is_reported() {
    let other = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    for wish in [DESTROY, DESTROY_ALL] {
        // A VM that an upgrade created and gave the node's disk, and one that the node was created with.
        for is_swapped in [true, false] {
            let world = World::removing(3).await;
            let first = shown(&world, "cp2");
            let disk = first.disks[0].reference.clone();
            let mut uuid = first.uuid();
            if is_swapped {
                let own = upgrade_of_its_own(&world);
                put_ended(&world, &own, "committed");
                world.plant("cp2-bbbbbbb", "cp2", 0xa1);
                change(&world, uuid, |vm| vm.disks.clear());
                uuid = Uuid::from_u128(0xa1);
                change(&world, uuid, |vm| vm.disks.clone_from(&first.disks));
            }
            let restamped = change(&world, uuid, other);
            for _ in 0..2 {
                let (RunOutcome::Stopped(waits), status) = world.give(wish).await.arrived() else {
                    panic!("it goes on")
                };
                stopped_by(&world, &waits, &[&restamped]);
                assert_eq!(status.lifecycle, Lifecycle::Deleting);
                assert_eq!(world.own(), [""; 0], "all others have gone");
            }
            // The operator restores the stamp, and it is removed like the others.
            change(&world, uuid, |vm| vm.stamp.as_mut().unwrap().deployment = DEPLOYMENT);
            let (arrived, status) = world.give(wish).await.arrived();
            assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
            let is_left = status.left.iter().any(|left| left.uuid == disk.uuid);
            let removes = matches!(wish, Goal::Destroy { disks: true, .. });
            assert_eq!((is_left, world.lock().disks.contains_key(&disk.uuid)), (!removes, !removes));
            assert_eq!(status.left.iter().filter(|left| left.uuid == disk.uuid).count(), usize::from(!removes));
            // The upgrade's journal leads to removed disks, which are not named.
            assert_eq!((status.left.is_empty(), world.unheld().await.is_empty()), (removes, removes), "{status:?}");
            assert_eq!(world.lock().emptied, usize::from(removes));
        }
    }
    // A copy has other disks, and is ignored.
    let world = World::with(2).await;
    let copy = world.plant("cp2-restored", "cp2", shown(&world, "cp2").uuid().as_u128());
    {
        let mut state = world.lock();
        let of_it = state.machines.iter_mut().find(|machine| machine.vm.reference == copy.vm.reference).unwrap();
        other(&mut of_it.vm);
    }
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_vm_named_by_mistake_stays_once_unstamped() {
    // Ended at each call, the last one between the record that its disk is detached and the detachment.
    let named = async |killed: Option<usize>| {
        let world = World::removing(1).await;
        let payroll = world.plant("payroll", "cp1", 0xbad6);
        world.set_fault(killed.map(|at| (at, Fault::KilledBefore)));
        world.give(also(std::slice::from_ref(&payroll.vm), true)).await;
        (world, payroll)
    };
    let (twin, _) = named(None).await;
    let detached = twin.first_call("detach");
    for killed in [detached - 1, detached] {
        let (world, payroll) = named(Some(killed)).await;
        world.set_fault(None);
        assert!(world.lock().machines.contains(&payroll));
        stopped_by(&world, &world.give_over(DESTROY_ALL).await.stopped(), &[&payroll]);
        let payroll = change(&world, payroll.vm.uuid(), |vm| vm.stamp = None);
        world.give(DESTROY_ALL).await.gone();
        assert!(world.lock().machines.contains(&payroll));
        assert!(world.lock().disks.contains_key(&payroll.vm.disks[0].reference.uuid));
        let last = world.status().await.unwrap();
        assert!(!last.left.iter().any(|left| left.uuid == payroll.vm.disks[0].reference.uuid), "{last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_upgrade_stays() {
    let world = World::removing(1).await;
    let damaged = put(&world, "journal-000001.json", "{}");
    for _ in 0..2 {
        assert_eq!(world.give(DESTROY_ALL).await.arrived().0, RunOutcome::Gone);
        assert!(world.lock().holds()[&damaged].contains_key("journal-000001.json"));
        assert_eq!(world.lock().emptied, 0, "the place went with it");
        world.deploy(1).await.fails("journal.jsonl is missing, and entries follow it");
    }
    // Abandoned unread, it blocks nothing, and its deployment is still unknown.
    let end = AbandonedUnread {
        at: 1,
        lease: damaged,
        unread: damaged,
        reason: serde_json::from_str("{\"code\":\"a\",\"reason\":\"b\"}").unwrap(),
        notes: Vec::new(),
    };
    let ended = put(&world, "journal.jsonl", &beginning(&(serde_json::to_string(&end).unwrap() + "\n")).unwrap());
    assert!(matches!(world.deploy(1).await.arrived().0, RunOutcome::Up(_)));
    assert_eq!(world.give(DESTROY_ALL).await.arrived().0, RunOutcome::Gone);
    let holds = world.lock().holds().clone();
    assert!(holds[&damaged].contains_key("journal-000001.json") && holds[&ended].contains_key("journal.jsonl"));
    assert_eq!(world.lock().emptied, 0);
    // A place with such an upgrade is not empty.
    let world = World::new();
    world.put(1, "released", "");
    world.put(1, "journal-000001.json", "{}");
    assert!(!world.remove_empty().await.unwrap());
    assert_eq!(world.lock().emptied, 0);
}

#[tokio::test(start_paused = true)]
async fn the_disk_of_an_unrestored_node_is_listed() {
    let world = World::with(3).await;
    let disk = shown(&world, "cp2").disks[0].reference.uuid;
    let own = upgrade_of_its_own(&world);
    put_ended(&world, &own, "rolled-back");
    // Its old VM is gone, and its new one had no disk yet.
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 3));
    assert!(status.left.iter().any(|left| left.uuid == disk), "{:?}", status.left);
}

/// A copy from an upgrade before the last one, and one from the last one.
#[tokio::test(start_paused = true)]
async fn copies_of_upgrades_are_named_before_and_after() {
    let world = World::with(3).await;
    let paths = ["[datastore1] cp2/data-before-2b3c4d5e.vmdk", "[datastore1] cp1/data-before-1a2b3c4d.vmdk"];
    let [own, other] = paths;
    let noted = format!(r#""other_copies":[{{"node":"cp1","path":"{other}"}}],"steps":["#);
    let journal = upgrade_of_its_own(&world).replacen("\"steps\":[", &noted, 1);
    let copies = format!(r#"[{{"path":"{own}","uuid":"{}"}}]"#, Uuid::from_u128(0xe1));
    let copied =
        format!(r#"{{"at":1,"lease":1,"event":"done","action":"copy","node":1,"note":"a test","copies":{copies}}}"#);
    put_ended(&world, &format!("{journal}{copied}\n"), "rolled-back");
    let lie_at = |copies: &[DiskCopy]| copies.iter().map(|copy| copy.copy.path.clone()).collect::<Vec<_>>();
    assert_eq!(lie_at(&world.status().await.unwrap().copies), paths);
    // At the second command the upgrade's journal no longer exists.
    for _ in 0..2 {
        assert_eq!(lie_at(&world.copies().await), paths, "who is asked whether it goes is shown them");
        let (arrived, status) = world.give(DESTROY).await.arrived();
        assert_eq!((arrived, lie_at(&status.copies)), (RunOutcome::Gone, paths.map(str::to_owned).to_vec()));
        let told = serde_json::to_value(&status).unwrap();
        assert_eq!((&told["copies"][0]["path"], &told["copies"][1]["path"]), (&own.into(), &other.into()));
        assert_eq!(LastUpgrade::find(&world).await.unwrap(), LastUpgrade::Nothing);
    }
    assert_eq!(lie_at(&world.status().await.unwrap().copies), paths);
    let status = world.deploy(3).await.up();
    assert_eq!(lie_at(&status.copies), paths, "the next cluster here forgets none");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_of_a_removed_cluster_blocks_nothing() {
    let world = World::with(3).await;
    put(&world, "journal.jsonl", &upgrade_of_its_own(&world));
    // Its directory cannot be removed.
    put(&world, "of-somebody", "");
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
    assert!(OpenUpgrade::find(&world).await.unwrap().is_some());
    for _ in 0..2 {
        world.deploy(3).await.up();
    }
}

const GOES_ON: &str =
    r#"{"at":1,"lease":1,"event":"direction-changed","direction":"forward","code":"a","reason":"a test"}"#;

/// An upgrade may wait for the operator for days, planned or later: a node that was off is powered on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_waiting_upgrade_permits_power_on() {
    const UPGRADED: &str = r#"{"at":1,"lease":1,"event":"ended","outcome":"upgraded"}"#;
    const ONE_IS_BACK: &str =
        r#"{"at":1,"lease":1,"event":"direction-changed","direction":"back","only":0,"code":"a","reason":"ill"}"#;
    const BACK: &str =
        r#"{"at":1,"lease":1,"event":"direction-changed","direction":"back","code":"a","reason":"a test"}"#;
    // How many lines of the journal come before the entry with which it does not wait, and those with which it does.
    for (lines, works, waits) in [
        (usize::MAX, GOES_ON, vec![GOES_ON, UPGRADED]),
        (usize::MAX, GOES_ON, vec![GOES_ON, ONE_IS_BACK]),
        (3, BACK, vec![]),
    ] {
        let world = World::with(3).await;
        let own = upgrade_of_its_own(&world);
        let journal = |more: &[&str]| {
            let lines: Vec<&str> = own.lines().take(lines).chain(more.iter().copied()).collect();
            lines.join("\n") + "\n"
        };
        change(&world, shown(&world, "cp2").uuid(), |vm| vm.power = PowerState::Off);
        put(&world, "journal.jsonl", &journal(&[works]));
        world.deploy(3).await.fails("an upgrade of this cluster is open");
        put(&world, "journal.jsonl", &journal(&waits));
        world.deploy(3).await.up();
        assert_eq!(shown(&world, "cp2").power, PowerState::On, "{waits:?}");
        assert!(OpenUpgrade::find(&world).await.unwrap().is_some(), "{waits:?}: it is open as before");
    }
}

/// An upgrade has ended with this outcome. The VM that it created for cp2, with the disk, is off and was moved out of the
/// searched folders. The former one exists until the commit.
async fn with_swapped_vm_away(outcome: &str) -> (World, Vm) {
    let world = World::with(3).await;
    // The former one stays off.
    world.lock().speaks_alone = true;
    let (own, first) = (upgrade_of_its_own(&world), shown(&world, "cp2"));
    put_ended(&world, &format!("{own}{GOES_ON}\n"), outcome);
    world.plant("cp2-bbbbbbb", "cp2", 0xa1);
    change(&world, first.uuid(), |vm| (vm.power, vm.disks) = (PowerState::Off, Vec::new()));
    let swapped = change(&world, Uuid::from_u128(0xa1), |vm| vm.disks.clone_from(&first.disks)).vm;
    world.move_away(&swapped);
    if outcome == "committed" {
        world.lock().machines.retain(|machine| machine.vm.uuid() != first.uuid());
    }
    (world, swapped)
}

#[tokio::test(start_paused = true)]
async fn a_moved_swapped_vm_is_powered_on() {
    for outcome in ["committed", "upgraded"] {
        let (world, swapped) = with_swapped_vm_away(outcome).await;
        let listed = Hypervisor::vms(&world).await.unwrap();
        assert_eq!(moved(&world, &world, &listed).await.unwrap(), std::slice::from_ref(&swapped), "{outcome}");
        let before = world.status().await.unwrap();
        assert_eq!((before.nodes[1].uuid, before.nodes[1].power), (Some(swapped.uuid()), Some(PowerState::Off)));
        let status = world.deploy(3).await.up();
        let power = Some(PowerState::On);
        assert_eq!((status.nodes[1].uuid, status.nodes[1].power), (Some(swapped.uuid()), power), "{outcome}");
        world.lock().away.clear();
        let listed = Hypervisor::vms(&world).await.unwrap();
        assert_eq!(moved(&world, &world, &listed).await.unwrap(), [], "{outcome}: it is back");
    }
}

/// Backup software restores the VM from before an upgrade, in a separate folder. It has the former stamp and BIOS UUID, and a
/// disk with another UUID and an etcd of that day.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_is_not_the_node() {
    // A VM that the upgrade recorded, and one that the deployment recorded.
    for is_first in [false, true] {
        for is_lost in [false, true] {
            let (world, swapped) = with_swapped_vm_away("committed").await;
            let first = records::read(&world).await.unwrap().unwrap().nodes[1].bios_uuid.filter(|_| is_first);
            let restored = world.plant("cp2-restored", "cp2", first.map_or(0xa2, |uuid| uuid.as_u128()));
            world.lock().away.clear();
            world.move_away(&restored.vm);
            if is_lost {
                world.lock().machines.retain(|machine| machine.vm != swapped);
            }
            world.set_fault(None);
            let (arrived, status) = world.deploy(3).await.arrived();
            let powered_on = world.called("power_on");
            if is_lost {
                let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
                assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-gone"));
                assert_eq!(powered_on, 0);
            } else {
                assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
                assert_eq!((status.nodes[1].uuid, powered_on), (Some(swapped.uuid()), 1));
            }
            assert!(world.lock().machines.contains(&restored), "it was touched");
            let shown = Hypervisor::vms(&world).await.unwrap();
            assert_eq!(moved(&world, &world, &shown).await.unwrap(), []);
        }
    }
}

/// The recorded data disk of a node: as it is, not recorded, and unknown.
const NOTES: [fn(Option<Uuid>) -> Option<Uuid>; 3] = [|own| own, |_| None, |_| Some(Uuid::nil())];

/// The BIOS UUID of cp2's first VM, once its data disk is recorded so.
async fn first_of(world: &World, note: fn(Option<Uuid>) -> Option<Uuid>) -> Uuid {
    let mut kept = records::read(world).await.unwrap().unwrap();
    kept.nodes[1].disk = note(kept.nodes[1].disk);
    put(world, "deploy-999999.json", &record_text(&kept).unwrap());
    kept.nodes[1].bios_uuid.unwrap()
}

/// An upgrade has swapped cp3 alone, and recorded nothing of the others: they are in their first VMs. That
/// of cp2 is off.
async fn with_one_node_upgraded(note: fn(Option<Uuid>) -> Option<Uuid>) -> (World, Vm) {
    let world = World::with(3).await;
    let own = upgrade_of_its_own(&world);
    let mut planned: serde_json::Value = serde_json::from_str(own.lines().next().unwrap()).unwrap();
    let plan = &mut planned["plan"];
    plan["nodes"].as_array_mut().unwrap().retain(|node| node["name"] == "cp3");
    plan["steps"].as_array_mut().unwrap().retain(|step| step["node"].as_u64().unwrap_or(0) == 0);
    put_ended(&world, &format!("{planned}\n"), "committed");
    let noted = LastUpgrade::find(&world).await.unwrap().noted().unwrap().disks.len();
    assert_eq!(noted, 1, "the disk of cp3");
    let cp2 = change(&world, first_of(&world, note).await, |vm| vm.power = PowerState::Off).vm;
    (world, cp2)
}

#[tokio::test(start_paused = true)]
async fn an_unrecorded_node_is_no_restored_vm() {
    for note in NOTES {
        let (world, cp2) = with_one_node_upgraded(note).await;
        world.deploy(3).await.up();
        assert_eq!(shown(&world, &cp2.name).power, PowerState::On);
        // It is not taken for a replica either, if it was moved.
        let (world, cp2) = with_one_node_upgraded(note).await;
        world.move_away(&cp2);
        assert_eq!(world.give(DESTROY).await.gone().replicas.len(), 0);
        assert_eq!(world.own(), [""; 0]);
    }
}

/// The records of one node are also not in doubt because those of another one are missing.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_of_recorded_nodes_stays_off() {
    for note in NOTES {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        change(&world, swapped.uuid(), |vm| vm.power = PowerState::On);
        let own = world.lock().holds().values().rev().find_map(|files| files.get("journal.jsonl").cloned()).unwrap();
        let mut planned: serde_json::Value = serde_json::from_str(own.lines().nth(1).unwrap()).unwrap();
        let plan = &mut planned["plan"];
        plan["nodes"].as_array_mut().unwrap().retain(|node| node["name"] != "cp1");
        plan["steps"].as_array_mut().unwrap().retain(|step| step["node"].as_u64().unwrap_or(0) < 2);
        put_ended(&world, &format!("{planned}\n"), "committed");
        let restored = world.plant("cp2-restored", "cp2", first_of(&world, note).await.as_u128());
        world.set_fault(None);
        world.deploy(3).await.stopped();
        assert_eq!(world.called("power_on"), 0);
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// The operator powered it on because the node was lost. It is the node, even after it was shut down, and does not stay as a
/// copy.
#[tokio::test(start_paused = true)]
async fn a_running_restored_vm_is_removed() {
    for note in NOTES {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        world.lock().machines.retain(|machine| machine.vm.uuid() != swapped.uuid());
        world.lock().away.clear();
        let first = first_of(&world, note).await;
        world.plant("cp2-restored", "cp2", first.as_u128());
        let restored = change(&world, first, |vm| vm.power = PowerState::On);
        world.move_away(&restored.vm);
        world.lock().removes_used = true;
        assert_eq!(world.give(DESTROY).await.gone().replicas, Vec::new());
        assert_eq!(world.own(), [""; 0]);
    }
}

/// The VM of cp2, once its removal is recorded.
async fn deleting_second(world: &World) -> Vm {
    let (cp2, mut kept) = (shown(world, "cp2"), records::read(world).await.unwrap().unwrap());
    kept.lifecycle = Lifecycle::Deleting;
    kept.deleting_vms.push(cp2.reference.clone());
    put(world, "deploy-999999.json", &record_text(&kept).unwrap());
    cp2
}

/// After a failover to the replica it is shut down with the cluster, and stays.
#[tokio::test(start_paused = true)]
async fn a_replica_that_ran_stays() {
    let world = World::removing(3).await;
    let cp2 = deleting_second(&world).await;
    let replica = world.replicate(&cp2).vm.reference;
    world.lock().machines.retain(|machine| machine.vm.reference != cp2.reference);
    change(&world, cp2.uuid(), |vm| vm.power = PowerState::On);
    let status = world.give(DESTROY).await.gone();
    assert_eq!(status.replicas.iter().map(|left| &left.vm).collect::<Vec<_>>(), [&replica]);
    assert!(world.lock().machines.iter().any(|machine| machine.vm.reference == replica));
}

/// Its host was removed from the inventory and added again during the removal.
#[tokio::test(start_paused = true)]
async fn a_vm_with_a_new_id_is_removed() {
    let world = World::with(3).await;
    let cp2 = deleting_second(&world).await;
    let again = change(&world, cp2.uuid(), |vm| {
        vm.power = PowerState::Off;
        vm.reference.id.push_str("-again");
    });
    world.move_away(&again.vm);
    assert_eq!(world.give(DESTROY).await.gone().replicas, Vec::new());
    assert_eq!(world.own(), [""; 0]);
}

/// A cluster in which a node's data disk is another one than recorded: the operator attached it.
async fn with_another_disk() -> (World, Vm) {
    let world = World::with(3).await;
    let (first, disk) = (shown(&world, "cp2").uuid(), Uuid::from_u128(0xd15c));
    let cp2 = change(&world, first, |vm| vm.disks[0].reference.uuid = disk).vm;
    world.lock().disks.insert(disk, true);
    world.set_fault(None);
    (world, cp2)
}

/// A VM is not a copy if it was not taken for one when it was shut down.
#[tokio::test(start_paused = true)]
async fn a_vm_with_other_disk_and_id_goes() {
    let (world, _) = with_another_disk().await;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
    let calls = world.lock().calls.clone();
    let mut shut_down = (1..).zip(&calls).filter(|(_, (name, _))| *name == "shut_down");
    let (number, _) = shut_down.nth(1).unwrap();
    let (world, cp2) = with_another_disk().await;
    world.dies((number, Fault::KilledAfter), world.give(DESTROY)).await;
    let again = change(&world, cp2.uuid(), |vm| vm.reference.id.push_str("-again"));
    assert_eq!(again.vm.power, PowerState::Off);
    world.move_away(&again.vm);
    assert_eq!(world.give_over(DESTROY).await.gone().replicas, Vec::new());
    assert_eq!(world.own(), [""; 0]);
}

/// Also if the cluster has no record of its creation, and its VMs were named by an operator, and if its stamp was removed.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_stays() {
    let notes = NOTES.map(Some).into_iter().chain([None]);
    let cases = notes.flat_map(|note| [(note, false, true), (note, true, true), (note, false, false)]);
    for (note, disks, is_stamped) in cases {
        let (world, _) = with_swapped_vm_away("committed").await;
        world.lock().away.clear();
        let before = match note {
            Some(note) => first_of(&world, note).await,
            None => Uuid::from_u128(0xa2),
        };
        world.plant("cp2-restored", "cp2", before.as_u128());
        let restored = change(&world, before, |vm| vm.stamp = vm.stamp.take().filter(|_| is_stamped));
        world.lock().removes_used = true;
        world.move_away(&restored.vm);
        if note.is_none() {
            world.forget();
        }
        let named = Hypervisor::vms(&world).await.unwrap();
        let (arrived, status) = match note {
            None => world.give(also(&named, disks)).await.arrived(),
            Some(_) if disks => world.give(DESTROY_ALL).await.arrived(),
            Some(_) => world.give(DESTROY).await.arrived(),
        };
        assert!(matches!(arrived, RunOutcome::Gone), "{arrived:?}");
        assert!(world.lock().machines.contains(&restored), "it was touched");
        assert_eq!(world.own().len(), usize::from(is_stamped), "all others have gone");
        let left: Vec<_> = status.replicas.iter().map(|left| &left.vm).collect();
        assert_eq!(left, [&restored.vm.reference], "it is named");
    }
}

/// A VM with this BIOS UUID is unreadable for a while: no message asks to change another VM of cp2, or to replace it.
async fn waits_for_cp2(world: &World, unreadable: Uuid) {
    world.lock().unreadable = Some(unreadable);
    let waits = world.deploy(3).await.paused();
    let [odd] = waits.as_slice() else { panic!("{waits:?}") };
    assert_eq!((odd.node.as_deref(), odd.reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
    assert!(odd.reason.words.contains("is unknown"), "{odd}");
    world.lock().unreadable = None;
}

/// The folder where it was is searched; the VM that runs was moved to another one.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_does_not_start_twice() {
    for (note, is_lost) in NOTES.into_iter().flat_map(|note| [(note, false), (note, true)]) {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        change(&world, swapped.uuid(), |vm| vm.power = PowerState::On);
        let first = first_of(&world, note).await;
        let restored = world.plant("cp2-restored", "cp2", first.as_u128());
        let mut named = vec![&restored.vm];
        if is_lost {
            world.lock().machines.retain(|machine| machine.vm.uuid() != swapped.uuid());
        } else {
            named.push(&swapped);
        }
        world.set_fault(None);
        if !is_lost {
            waits_for_cp2(&world, swapped.uuid()).await;
        }
        let waits = world.deploy(3).await.stopped();
        assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
        let words = waits[0].reason.to_string();
        assert!(named.iter().all(|vm| words.contains(&vm.to_string())), "{words}");
        assert_eq!(world.called("power_on"), 0);
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// As after the rollback of an upgrade: the node is in its first VM, which is elsewhere, and the restored one is the upgrade's.
#[tokio::test(start_paused = true)]
async fn an_unreadable_first_vm_is_not_called_missing() {
    for note in NOTES {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let disk = Uuid::from_u128(0xf1);
        {
            let mut state = world.lock();
            state.away.clear();
            state.disks.insert(disk, true);
        }
        let restored = change(&world, swapped.uuid(), |vm| vm.disks[0].reference.uuid = disk);
        waits_for_cp2(&world, first_of(&world, note).await).await;
        stopped_by(&world, &world.deploy(3).await.stopped(), &[&restored]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_restored_vm_only_blocks_its_node() {
    // The node's own VM is in the searched folders, or was moved from there.
    for is_away in [false, true] {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let first = records::read(&world).await.unwrap().unwrap().nodes[1].bios_uuid.unwrap();
        let restored = world.plant("cp2-restored", "cp2", first.as_u128());
        let is_unreadable = |is: bool| world.lock().unreadable = is.then_some(first);
        {
            let mut state = world.lock();
            let swapped = is_away.then(|| swapped.reference.id.clone());
            (state.away, state.renewed) =
                (swapped.into_iter().chain([restored.vm.reference.id.clone()]).collect(), None);
        }
        is_unreadable(true);
        let waits = world.deploy(3).await.paused();
        let odd = waits.iter().find(|wait| wait.reason.code == "deploy.vm-odd").unwrap_or_else(|| panic!("{waits:?}"));
        assert!(odd.reason.words.contains("a disk of a VM has no file"), "{odd}");
        assert_eq!(shown(&world, &swapped.name), swapped);
        assert!(world.lock().renewed.is_some(), "the others are asked for a kubeconfig");
        // Once it is on, nothing blocks it.
        for is in [false, true] {
            is_unreadable(is);
            world.deploy(3).await.up();
            assert_eq!(shown(&world, &swapped.name).power, PowerState::On);
        }
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// The VM that is being restored, or the one that an upgrade recorded for the node.
#[tokio::test(start_paused = true)]
async fn an_unreadable_vm_blocks_only_an_unseen_node() {
    for is_first in [true, false] {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let first = first_of(&world, |own| own).await;
        let restored = world.plant("cp2-restored", "cp2", first.as_u128());
        change(&world, shown(&world, "cp3").uuid(), |vm| vm.power = PowerState::Off);
        {
            let mut state = world.lock();
            state.machines.retain(|machine| machine.vm.uuid() != swapped.uuid());
            state.away = [restored.vm.reference.id.clone()].into();
            (state.unreadable, state.renewed) = (Some(if is_first { first } else { swapped.uuid() }), None);
        }
        let waits = world.deploy(3).await.paused();
        let [odd] = waits.as_slice() else { panic!("{waits:?}") };
        assert_eq!((odd.node.as_deref(), odd.reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
        assert!(odd.reason.words.contains("a disk of a VM has no file"), "{odd}");
        assert_eq!(shown(&world, "cp3").power, PowerState::On);
        assert!(world.lock().renewed.is_some(), "the others are asked for a kubeconfig");
        assert_eq!(world.status().await.unwrap().waits, waits);
        world.lock().unreadable = None;
        let waits = world.deploy(3).await.stopped();
        assert_eq!(waits[0].reason.code, "deploy.vm-gone");
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// It was recorded for its node, by the deployment alone or by an upgrade as well.
#[tokio::test(start_paused = true)]
async fn an_unreadable_vm_hides_no_other_lost_node() {
    for is_upgraded in [false, true] {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let cp3 = shown(&world, "cp3");
        if is_upgraded {
            let journal = world.lock().holds().values().rev().find_map(|files| files.get("journal.jsonl").cloned());
            let noted = journal.unwrap().replace(&Uuid::from_u128(0xa2).to_string(), &cp3.uuid().to_string());
            put(&world, "journal.jsonl", &noted);
        }
        world.move_away(&cp3);
        {
            let mut state = world.lock();
            state.machines.retain(|machine| machine.vm.uuid() != swapped.uuid());
            state.unreadable = Some(cp3.uuid());
        }
        let waits = world.deploy(3).await.stopped();
        let said: Vec<_> = waits.iter().map(|wait| (wait.node.as_deref(), wait.reason.code.as_str())).collect();
        assert_eq!(said, [(Some("cp2"), "deploy.vm-gone"), (Some("cp3"), "deploy.vm-odd")], "{waits:?}");
    }
}

/// An account that may change a VM's settings can write a BIOS UUID as well.
#[tokio::test(start_paused = true)]
async fn an_unstamped_recorded_vm_elsewhere_is_not_changed() {
    let unstamped = |vm: &mut Vm| vm.stamp = None;
    let of_another = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    let of_no_node = |vm: &mut Vm| vm.stamp.as_mut().unwrap().node = "cp9".to_owned();
    for odd in [unstamped as fn(&mut Vm), of_another, of_no_node] {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let odd = change(&world, swapped.uuid(), odd);
        let waits = world.deploy(3).await.stopped();
        assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-gone"));
        assert!(world.lock().machines.contains(&odd));
        assert_eq!(moved(&world, &world, &[]).await.unwrap().len(), 2, "those of cp1 and cp3");
    }
}
