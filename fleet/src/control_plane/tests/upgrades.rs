//! What an upgrade has noted beside a cluster that is removed or made: its own, another deployment's, or one that nobody can read.

use uuid::Uuid;

use super::fake::{DEPLOYMENT, DESTROY, DESTROY_ALL, Fault, Given, Machine, World, destroy_shown, wanted};
use super::stories::{also, shown, stopped_by};
use crate::control_plane::{Goal, Lifecycle, RunOutcome, authority, moved, records};
use crate::hypervisor::{DiskRef, ErrorKind, Hypervisor, PowerState, Vm};
use crate::journals::{beginning, record_text};
use crate::upgrade::{AbandonedUnread, DiskCopy, LastUpgrade, OpenUpgrade};

/// The journal of an upgrade of three nodes that has broken off: the disk of cp2 was taken from its VM. BIOS UUIDs end in a0 to a2.
pub fn upgrade_of(deployment: Uuid) -> String {
    let journal = include_str!("../../upgrade/tests/testdata/journal.jsonl");
    journal.replace(&Uuid::from_u128(0xde).to_string(), &deployment.to_string())
}

#[tokio::test(start_paused = true)]
async fn the_journal_of_a_cluster_that_is_gone_is_one_hold_and_an_upgrade_in_it_stops_no_new_one() {
    let world = World::with(1).await;
    for _ in 0..3 {
        world.give(Goal::Deploy(&wanted(1))).await.arrived();
    }
    let last = *world.lock().holds().keys().next_back().unwrap();
    let upgrade = upgrade_of(DEPLOYMENT);
    let lines: Vec<&str> = upgrade.lines().collect();
    let (planned, detaches) = (lines[0], lines[3]);
    world.put(last, "journal.jsonl", &format!("{planned}\n{detaches}\n"));
    assert!(world.give(Goal::Deploy(&wanted(1))).await.failed().contains("an upgrade of this cluster is open"));
    world.give(DESTROY).await.arrived();
    let holds: Vec<u64> = world.lock().holds().keys().copied().collect();
    assert_eq!(holds, [last + 1], "the last one alone is left");
    let (arrived, _) = world.give(Goal::Deploy(&wanted(1))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_began_after_a_cluster_was_destroyed_outlives_a_destroy_that_stops() {
    let world = World::with(1).await;
    assert!(authority(&world, DEPLOYMENT).await.unwrap().is_some());
    assert_eq!(authority(&world, Uuid::from_u128(0xbb)).await.unwrap(), None);
    world.give(DESTROY).await.arrived();
    assert_eq!(authority(&world, DEPLOYMENT).await.unwrap(), None, "it is gone");
    // Another one was imported by hand and adopted under the same file, and its upgrade has broken off.
    let (noted, unnoted) = (world.plant("cp2", "cp2", 0xa1), world.plant("cp9", "cp9", 0xa9));
    change(&world, noted.vm.uuid(), |vm| vm.disks.clear());
    let last = *world.lock().holds().keys().next_back().unwrap();
    world.put(last, "journal.jsonl", &upgrade_of(DEPLOYMENT));
    let refused = world.give(Goal::Deploy(&wanted(1))).await.failed();
    assert!(refused.contains("an upgrade of this cluster is open"), "{refused}");
    let (arrived, _) = world.give(DESTROY).await.arrived();
    stopped_by(&world, &arrived, &[&unnoted]);
    assert!(OpenUpgrade::find(&world).await.unwrap().is_some(), "its journal alone says where the disks are");
    // Whoever goes on to the end is told of the disk that no VM holds.
    world.lock().machines.retain(|machine| machine.vm != unnoted.vm);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
    assert!(status.left.iter().any(|disk| disk.path == "[datastore1] cp2/data.vmdk"), "{:?}", status.left);
    assert_eq!(OpenUpgrade::find(&world).await.unwrap(), None);
    let (arrived, _) = world.give(Goal::Deploy(&wanted(1))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
}

/// Both VMs of a node: that of before, and the one that the upgrade has made.
#[tokio::test(start_paused = true)]
async fn a_cluster_is_not_gone_while_settings_that_its_upgrade_noted_are_left() {
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
        let (arrived, _) = world.give(DESTROY).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert!(waits.iter().any(|wait| wait.reason.words.contains(left)), "{waits:?}");
    }
    world.lock().settings = ["[ds] cp2-new/cp2-new.vmx".to_owned()].into();
    let (arrived, _) = world.give(DESTROY).await.arrived();
    assert_eq!(arrived, RunOutcome::Gone, "it was seen elsewhere since");
}

/// The upgrade has destroyed the old VM itself. A file of that name is another VM's. If the node was replaced, that VM may have been missing.
#[tokio::test(start_paused = true)]
async fn a_cluster_waits_for_no_vm_that_its_upgrade_has_destroyed() {
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
        let (arrived, _) = world.give(DESTROY).await.arrived();
        assert_eq!(matches!(arrived, RunOutcome::Gone), is_destroyed, "{arrived:?}");
    }
}

/// Two upgrades were committed since the node was made. The last one knows its disk, and not the first VM.
#[tokio::test(start_paused = true)]
async fn a_cluster_waits_for_no_vm_of_before_the_last_upgrade() {
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
        let (arrived, _) = world.give(DESTROY).await.arrived();
        assert_eq!(matches!(arrived, RunOutcome::Gone), is_swapped, "{arrived:?}");
    }
}

/// Notes a place of the VM of a cluster of one node.
async fn settled(world: &World) -> Uuid {
    let is_own = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT);
    let first = world.lock().machines.iter().map(|machine| &machine.vm).find(is_own).unwrap().uuid();
    change(world, first, |vm| vm.settings = Some("[ds] cp1/cp1.vmx".to_owned()));
    world.give(Goal::Deploy(&wanted(1))).await.arrived();
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
async fn a_vm_that_an_earlier_upgrade_made_may_have_run() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    let other = format!("\"other_vms\":[\"{}\"],\"steps\":[", Uuid::from_u128(0xb1));
    put(&world, "journal.jsonl", &committed(&world, first).replacen("\"steps\":[", &other, 1));
    world.lock().machines.retain(|machine| machine.vm.uuid() != first);
    world.lock().demands_places = true;
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.len() == 1 && waits[0].reason.words.contains("no place was noted"), "{waits:?}");
}

/// The account may not browse the datastore that its files are on.
#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_be_proved_gone_keeps_no_other_vm() {
    let world = World::with(3).await;
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    world.lock().absence_fails = Some(ErrorKind::Denied);
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.len() == 1 && waits[0].reason.words.contains("the datastore cannot be searched"), "{waits:?}");
    assert_eq!(world.own(), [""; 0]);
}

/// Its datastore cannot be searched for a while.
#[tokio::test(start_paused = true)]
async fn a_proof_that_may_succeed_later_is_waited_for() {
    let world = World::with(3).await;
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    world.lock().absence_fails = Some(ErrorKind::Transient);
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.len() == 1 && waits[0].reason.words.contains("the datastore cannot be searched"), "{waits:?}");
    assert_eq!(world.own(), [""; 0]);
    world.lock().absence_fails = None;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

/// It could not be removed by the command that named it. Its host was removed from vCenter since.
#[tokio::test(start_paused = true)]
async fn a_vm_that_an_operator_named_is_proved_gone_as_well() {
    let world = World::with(1).await;
    let named = world.plant("by hand", "cp1", 0xbad3).vm.uuid();
    let named = change(&world, named, |vm| {
        (vm.settings, vm.snapshots) = (Some("[ds] hand/hand.vmx".to_owned()), vec!["backup".to_owned()]);
    });
    let (arrived, _) = world.give(also(std::slice::from_ref(&named.vm), false)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    world.lock().machines.retain(|machine| *machine != named);
    world.lock().settings = ["[ds] hand/hand.vmx".to_owned()].into();
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.iter().any(|wait| wait.reason.words.contains("[ds] hand/hand.vmx is still there")), "{waits:?}");
}

/// The journal of the upgrade that destroyed the first VM goes with the cluster.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_needs_no_second_proof() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    put(&world, "journal.jsonl", &committed(&world, first));
    world.lock().machines.retain(|machine| machine.vm.uuid() != first);
    world.lock().demands_places = true;
    for wish in [DESTROY, DESTROY_ALL] {
        let (arrived, _) = world.give(wish).await.arrived();
        assert!(matches!(arrived, RunOutcome::Gone), "{arrived:?}");
    }
}

/// An earlier version noted neither places of VMs nor which of them are gone.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_an_earlier_version_destroyed_needs_no_proof() {
    let world = World::with(1).await;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
    world.rewrite(|text| {
        let mut kept: serde_json::Value = serde_json::from_str(text).unwrap();
        kept.as_object_mut().unwrap().remove("deleting_vms");
        kept.to_string()
    });
    world.lock().demands_places = true;
    let (arrived, _) = world.give(DESTROY_ALL).await.arrived();
    assert!(matches!(arrived, RunOutcome::Gone), "{arrived:?}");
}

/// Backup software keeps a replica with the same BIOS UUID, or brings one back to the folder of its VM.
#[tokio::test(start_paused = true)]
async fn a_replica_is_no_proof_that_its_vm_is_gone() {
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(1))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
        world.lock().settings = ["[ds] cp1/cp1.vmx".to_owned()].into();
        let (arrived, status) = world.give(DESTROY).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert!(waits.iter().any(|wait| wait.reason.words.contains("[ds] cp1/cp1.vmx is still there")), "{waits:?}");
        assert_eq!((world.lock().machines.contains(&replica), status.replicas.len()), (true, 1));
    }
}

/// A clone with the same BIOS UUID, and then the VM itself, which was given to the other deployment.
#[tokio::test(start_paused = true)]
async fn a_vm_of_another_deployment_proves_nothing_from_another_place() {
    let world = World::with(1).await;
    let first = settled(&world).await;
    world.lock().settings = ["[ds] cp1/cp1.vmx".to_owned()].into();
    for (settings, is_itself) in [("[ds] clone/cp1.vmx", false), ("[ds] cp1/cp1.vmx", true)] {
        change(&world, first, |vm| {
            vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
            (vm.disks, vm.settings) = (Vec::new(), Some(settings.to_owned()));
        });
        let (arrived, _) = world.give(DESTROY).await.arrived();
        assert_eq!(matches!(arrived, RunOutcome::Gone), is_itself, "{arrived:?}");
    }
}

/// After an upgrade the node is in a VM that the deployment has not made. vCenter moves it, and its host is removed later.
#[tokio::test(start_paused = true)]
async fn the_place_of_a_vm_that_an_upgrade_has_made_is_noted_again() {
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
    world.give(Goal::Deploy(&wanted(1))).await.arrived();
    put(&world, "journal.jsonl", &journal);
    world.lock().machines.retain(|machine| machine.vm.uuid() != made);
    world.lock().settings = ["[moved] cp2-new/cp2-new.vmx".to_owned()].into();
    let (arrived, _) = world.give(DESTROY).await.arrived();
    let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
    assert!(waits.iter().any(|wait| wait.reason.words.contains("[moved] cp2-new")), "{waits:?}");
}

/// vCenter moves VMs to other datastores.
#[tokio::test(start_paused = true)]
async fn the_place_of_a_vms_settings_is_noted_whenever_it_is_seen_elsewhere() {
    let world = World::with(1).await;
    let is_own = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.deployment == DEPLOYMENT);
    let vm = world.lock().machines.iter().map(|machine| &machine.vm).find(is_own).unwrap().uuid();
    for place in ["[ds] cp1/cp1.vmx", "[other] cp1/cp1.vmx"] {
        change(&world, vm, |vm| vm.settings = Some(place.to_owned()));
        world.give(Goal::Deploy(&wanted(1))).await.arrived();
        let kept = records::read(&world).await.unwrap().unwrap();
        assert_eq!(kept.places[&vm].settings, place);
    }
}

#[tokio::test(start_paused = true)]
async fn another_clusters_upgrade_in_the_same_place_stays_when_a_cluster_goes() {
    let world = World::with(1).await;
    world.lock().removes_used = true;
    let last = *world.lock().holds().keys().next_back().unwrap();
    world.put(last, "journal.jsonl", &upgrade_of(Uuid::from_u128(0xbb)));
    // Who may change the settings of that one's VMs has given one of them this deployment's stamp.
    let restamped = world.plant("cp2 of another", "x", 0xa1);
    let (arrived, _) = world.give(DESTROY_ALL).await.arrived();
    stopped_by(&world, &arrived, &[&restamped]);
    world.lock().machines.retain(|machine| *machine != restamped);
    for _ in 0..2 {
        let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
        assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 0), "its disks are no matter of this one");
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

/// The last hold has this in a file, whoever has written it.
fn put(world: &World, file: &str, text: &str) -> u64 {
    let last = world.lock().holds().keys().next_back().copied().unwrap();
    world.put(last, file, text);
    last
}

fn change(world: &World, uuid: Uuid, change: impl FnOnce(&mut Vm)) -> Machine {
    let mut state = world.lock();
    let machine = state.machines.iter_mut().find(|machine| machine.vm.uuid() == uuid).unwrap();
    change(&mut machine.vm);
    machine.clone()
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_an_upgrade_has_taken_between_two_destroys_is_not_lost() {
    for (wish, removes) in [(DESTROY, false), (DESTROY_ALL, true)] {
        let world = World::with(3).await;
        world.lock().removes_used = true;
        let cp2 = shown(&world, "cp2");
        let disk = cp2.disks[0].reference.uuid;
        change(&world, cp2.uuid(), |vm| vm.snapshots.push("backup".to_owned()));
        let (arrived, status) = world.give(wish).await.arrived();
        assert!(matches!(arrived, RunOutcome::Paused(_)) && status.lifecycle == Lifecycle::Deleting, "{arrived:?}");
        // Another operator upgrades, and is interrupted between the detaching and the attaching.
        put(&world, "journal.jsonl", &upgrade_of_its_own(&world));
        change(&world, cp2.uuid(), |vm| (vm.snapshots, vm.disks) = (Vec::new(), Vec::new()));
        // What keeps the cluster from being gone.
        let unnoted = world.plant("cp9", "cp9", 0xa9);
        let (arrived, _) = world.give(wish).await.arrived();
        stopped_by(&world, &arrived, &[&unnoted]);
        world.lock().machines.retain(|machine| *machine != unnoted);
        let (arrived, status) = world.give(wish).await.arrived();
        // Also where disks go: nobody was shown this one.
        assert_eq!((arrived, world.lock().disks.contains_key(&disk)), (RunOutcome::Gone, true));
        assert_eq!(status.left.iter().filter(|left| left.uuid == disk).count(), 1, "{:?}", status.left);
        // An upgrade's journal leads to what an earlier command has removed as well.
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
async fn a_disk_that_only_an_upgrade_has_noted_does_not_go_before_somebody_was_shown_it() {
    let world = World::with(3).await;
    world.lock().removes_used = true;
    let cp2 = shown(&world, "cp2");
    let disk = cp2.disks[0].reference.uuid;
    let own = upgrade_of_its_own(&world);
    put(&world, "journal.jsonl", &(own + "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"committed\"}\n"));
    // The node was lost and replaced since. Somebody looks into its disk with a VM that is in no folder of the deployment, and off.
    let other = world.plant("forensics", "cp2", 0xf0);
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let forensics = change(&world, other.vm.uuid(), |vm| (vm.stamp, vm.disks) = (None, cp2.disks.clone()));
    assert_eq!(world.unheld().await, [], "nothing of it is noted yet");
    for _ in 0..2 {
        let (arrived, status) = world.give(DESTROY_ALL).await.arrived();
        assert_eq!(arrived, RunOutcome::Gone);
        assert!(status.left.iter().any(|left| left.uuid == disk) && status.left.len() == 1, "{:?}", status.left);
        assert!(world.lock().disks.contains_key(&disk) && world.lock().machines.contains(&forensics));
        // Before the next one it is named, with all that goes unheld.
        assert_eq!(world.unheld().await, status.left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_swapped_vm_whose_stamp_was_taken_away_is_named_and_the_journal_stays() {
    let world = World::with(3).await;
    let (own, first) = (upgrade_of_its_own(&world), shown(&world, "cp2"));
    world.plant("cp2-bbbbbbb", "cp2", 0xa1);
    change(&world, first.uuid(), |vm| vm.disks.clear());
    let unstamped = change(&world, Uuid::from_u128(0xa1), |vm| (vm.stamp, vm.disks) = (None, first.disks.clone()));
    put(&world, "journal.jsonl", &(own + "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"committed\"}\n"));
    let (arrived, _) = world.give(DESTROY).await.arrived();
    stopped_by(&world, &arrived, &[&unstamped]);
    assert!(LastUpgrade::find(&world).await.unwrap().noted().is_some());
    assert_eq!(world.own(), [""; 0], "all others have gone");
    world.lock().machines.retain(|machine| *machine != unstamped);
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_a_vm_without_its_stamp_holds_is_not_shown_as_held_by_none_and_stays_when_that_vm_is_taken_away() {
    let unstamped = |vm: &mut Vm| vm.stamp = None;
    let restamped = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    for odd in [unstamped as fn(&mut Vm), restamped] {
        let world = World::with(3).await;
        world.lock().removes_used = true;
        let own = upgrade_of_its_own(&world);
        put(&world, "journal.jsonl", &(own + "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"committed\"}\n"));
        let cp2 = shown(&world, "cp2");
        let disk = cp2.disks[0].reference.uuid;
        let is_it = |noted: &DiskRef| noted.uuid == disk;
        let odd = change(&world, cp2.uuid(), odd);
        let (arrived, _) = world.give(DESTROY_ALL).await.arrived();
        stopped_by(&world, &arrived, &[&odd]);
        // Before the next one: that VM holds it, and runs.
        let named = world.unheld().await;
        assert!(!named.iter().any(is_it), "{named:?}");
        let (arrived, _) = world.give(destroy_shown(&named)).await.arrived();
        stopped_by(&world, &arrived, &[&odd]);
        // A person takes it away, and its disk hangs on one that nobody sees. It goes only once it was shown.
        world.lock().machines.retain(|machine| *machine != odd);
        let (arrived, status) = world.give(destroy_shown(&named)).await.arrived();
        assert_eq!((arrived, world.lock().disks.contains_key(&disk)), (RunOutcome::Gone, true));
        assert!(status.left.iter().any(is_it), "{status:?}");
        assert!(world.unheld().await.iter().any(is_it));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_holds_a_disk_of_the_cluster_and_carries_another_deployments_stamp_is_named() {
    let other = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    for wish in [DESTROY, DESTROY_ALL] {
        // One that an upgrade has made and given the node's disk, and one that the node was made with.
        for is_swapped in [true, false] {
            let world = World::with(3).await;
            world.lock().removes_used = true;
            let first = shown(&world, "cp2");
            let disk = first.disks[0].reference.clone();
            let mut uuid = first.uuid();
            if is_swapped {
                let own = upgrade_of_its_own(&world);
                put(
                    &world,
                    "journal.jsonl",
                    &(own + "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"committed\"}\n"),
                );
                world.plant("cp2-bbbbbbb", "cp2", 0xa1);
                change(&world, uuid, |vm| vm.disks.clear());
                uuid = Uuid::from_u128(0xa1);
                change(&world, uuid, |vm| vm.disks.clone_from(&first.disks));
            }
            let restamped = change(&world, uuid, other);
            for _ in 0..2 {
                let (arrived, status) = world.give(wish).await.arrived();
                stopped_by(&world, &arrived, &[&restamped]);
                assert_eq!(status.lifecycle, Lifecycle::Deleting);
                assert_eq!(world.own(), [""; 0], "all others have gone");
            }
            // A person gives the stamp back, and it goes as the others do.
            change(&world, uuid, |vm| vm.stamp.as_mut().unwrap().deployment = DEPLOYMENT);
            let (arrived, status) = world.give(wish).await.arrived();
            assert_eq!((arrived, world.own().len()), (RunOutcome::Gone, 0));
            let is_left = status.left.iter().any(|left| left.uuid == disk.uuid);
            let removes = matches!(wish, Goal::Destroy { disks: true, .. });
            assert_eq!((is_left, world.lock().disks.contains_key(&disk.uuid)), (!removes, !removes));
            assert_eq!(status.left.iter().filter(|left| left.uuid == disk.uuid).count(), usize::from(!removes));
            // The upgrade's journal leads to what has been removed, and nothing of that is named.
            assert_eq!((status.left.is_empty(), world.unheld().await.is_empty()), (removes, removes), "{status:?}");
            assert_eq!(world.lock().emptied, usize::from(removes));
        }
    }
    // A copy has other disks, and is nobody's matter.
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
async fn a_vm_that_was_named_by_mistake_stays_with_its_disk_once_its_stamp_is_taken_away() {
    // Ended at each call, the last one between the note that its disk is detached and the detaching.
    let named = async |killed: Option<usize>| {
        let world = World::with(1).await;
        world.lock().removes_used = true;
        let payroll = world.plant("payroll", "cp1", 0xbad6);
        world.set_fault(killed.map(|at| (at, Fault::KilledBefore)));
        world.give(also(std::slice::from_ref(&payroll.vm), true)).await;
        (world, payroll)
    };
    let (twin, _) = named(None).await;
    let detached = twin.lock().calls.iter().position(|(name, _)| *name == "detach").unwrap() + 1;
    for killed in [detached - 1, detached] {
        let (world, payroll) = named(Some(killed)).await;
        world.set_fault(None);
        assert!(world.lock().machines.contains(&payroll));
        let (arrived, _) = world.give_over(DESTROY_ALL).await.arrived();
        stopped_by(&world, &arrived, &[&payroll]);
        let payroll = change(&world, payroll.vm.uuid(), |vm| vm.stamp = None);
        let (arrived, _) = world.give(DESTROY_ALL).await.arrived();
        assert_eq!(arrived, RunOutcome::Gone);
        assert!(world.lock().machines.contains(&payroll));
        assert!(world.lock().disks.contains_key(&payroll.vm.disks[0].reference.uuid));
        let last = world.status().await.unwrap();
        assert!(!last.left.iter().any(|left| left.uuid == payroll.vm.disks[0].reference.uuid), "{last:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_cannot_be_read_may_be_anybodys_and_stays() {
    let world = World::with(1).await;
    world.lock().removes_used = true;
    let damaged = put(&world, "journal-000001.json", "{}");
    for _ in 0..2 {
        assert_eq!(world.give(DESTROY_ALL).await.arrived().0, RunOutcome::Gone);
        assert!(world.lock().holds()[&damaged].contains_key("journal-000001.json"));
        assert_eq!(world.lock().emptied, 0, "the place went with it");
        let refused = world.give(Goal::Deploy(&wanted(1))).await.failed();
        assert!(refused.contains("journal.jsonl is missing, and entries follow it"), "{refused}");
    }
    // Ended unread, it stands against nothing, and still nobody knows whose it was.
    let end = AbandonedUnread {
        at: 1,
        lease: damaged,
        unread: damaged,
        reason: serde_json::from_str("{\"code\":\"a\",\"reason\":\"b\"}").unwrap(),
        notes: Vec::new(),
    };
    let ended = put(&world, "journal.jsonl", &beginning(&(serde_json::to_string(&end).unwrap() + "\n")).unwrap());
    assert!(matches!(world.give(Goal::Deploy(&wanted(1))).await.arrived().0, RunOutcome::Up(_)));
    assert_eq!(world.give(DESTROY_ALL).await.arrived().0, RunOutcome::Gone);
    let holds = world.lock().holds().clone();
    assert!(holds[&damaged].contains_key("journal-000001.json") && holds[&ended].contains_key("journal.jsonl"));
    assert_eq!(world.lock().emptied, 0);
    // Nor is a place empty in which there is one.
    let world = World::new();
    world.put(1, "released", "");
    world.put(1, "journal-000001.json", "{}");
    assert!(!world.remove_empty().await.unwrap());
    assert_eq!(world.lock().emptied, 0);
}

#[tokio::test(start_paused = true)]
async fn the_disk_of_a_node_that_a_way_back_has_left_out_is_listed() {
    let world = World::with(3).await;
    let disk = shown(&world, "cp2").disks[0].reference.uuid;
    let own = upgrade_of_its_own(&world);
    put(&world, "journal.jsonl", &(own + "{\"at\":1,\"lease\":1,\"event\":\"ended\",\"outcome\":\"rolled-back\"}\n"));
    // Its old VM is gone, and its new one had no disk yet.
    world.lock().machines.retain(|machine| machine.vm.name != "cp2");
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, status.left.len()), (RunOutcome::Gone, 3));
    assert!(status.left.iter().any(|left| left.uuid == disk), "{:?}", status.left);
}

/// One that an upgrade before the last one has made, and one of the last one's own.
#[tokio::test(start_paused = true)]
async fn copies_that_upgrades_have_left_are_named_before_the_cluster_goes_and_after_that() {
    let world = World::with(3).await;
    let paths = ["[datastore1] cp2/data-before-2b3c4d5e.vmdk", "[datastore1] cp1/data-before-1a2b3c4d.vmdk"];
    let [own, other] = paths;
    let noted = format!(r#""other_copies":[{{"node":"cp1","path":"{other}"}}],"steps":["#);
    let journal = upgrade_of_its_own(&world).replacen("\"steps\":[", &noted, 1);
    let copies = format!(r#"[{{"path":"{own}","uuid":"{}"}}]"#, Uuid::from_u128(0xe1));
    let copied =
        format!(r#"{{"at":1,"lease":1,"event":"done","action":"copy","node":1,"note":"a test","copies":{copies}}}"#);
    let ended = r#"{"at":1,"lease":1,"event":"ended","outcome":"rolled-back"}"#;
    put(&world, "journal.jsonl", &format!("{journal}{copied}\n{ended}\n"));
    let lie_at = |copies: &[DiskCopy]| copies.iter().map(|copy| copy.copy.path.clone()).collect::<Vec<_>>();
    assert_eq!(lie_at(&world.status().await.unwrap().copies), paths);
    // Given again, there is no upgrade's journal any more.
    for _ in 0..2 {
        assert_eq!(lie_at(&world.copies().await), paths, "who is asked whether it goes is shown them");
        let (arrived, status) = world.give(DESTROY).await.arrived();
        assert_eq!((arrived, lie_at(&status.copies)), (RunOutcome::Gone, paths.map(str::to_owned).to_vec()));
        let told = serde_json::to_value(&status).unwrap();
        assert_eq!((&told["copies"][0]["path"], &told["copies"][1]["path"]), (&own.into(), &other.into()));
        assert_eq!(LastUpgrade::find(&world).await.unwrap(), LastUpgrade::Nothing);
    }
    assert_eq!(lie_at(&world.status().await.unwrap().copies), paths);
    let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert_eq!(lie_at(&status.copies), paths, "the next cluster here forgets none");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_has_ended_with_its_cluster_stands_against_the_next_one_at_no_time() {
    let world = World::with(3).await;
    put(&world, "journal.jsonl", &upgrade_of_its_own(&world));
    // Its directory cannot be removed.
    put(&world, "of-somebody", "");
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
    assert!(OpenUpgrade::find(&world).await.unwrap().is_some());
    for _ in 0..2 {
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    }
}

/// Whoever waits for a person, which may be for days, has a node that was off powered on.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_is_powered_on_where_an_upgrade_only_waits_for_a_persons_word() {
    const GOES_ON: &str = r#"{"at":1,"lease":1,"event":"direction-changed","direction":"forward","reason":"a test"}"#;
    const UPGRADED: &str = r#"{"at":1,"lease":1,"event":"ended","outcome":"upgraded"}"#;
    const IS_BACK: &str =
        r#"{"at":1,"lease":1,"event":"direction-changed","direction":"back","only":0,"reason":"ill"}"#;
    for last in [UPGRADED, IS_BACK] {
        let world = World::with(3).await;
        let own = upgrade_of_its_own(&world);
        let off = |world: &World| {
            let uuid = shown(world, "cp2").uuid();
            change(world, uuid, |vm| vm.power = PowerState::Off);
        };
        put(&world, "journal.jsonl", &format!("{own}{GOES_ON}\n"));
        off(&world);
        let refused = world.give(Goal::Deploy(&wanted(3))).await.failed();
        assert!(refused.contains("an upgrade of this cluster is open"), "{refused}");
        put(&world, "journal.jsonl", &format!("{own}{GOES_ON}\n{last}\n"));
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{last}: {arrived:?}");
        assert_eq!(shown(&world, "cp2").power, PowerState::On, "{last}");
        assert!(OpenUpgrade::find(&world).await.unwrap().is_some(), "{last}: it is open as before");
    }
}

/// An upgrade has ended so, and the VM that it has made for cp2, which holds the disk of that, is off and was moved out of the folders that are
/// searched. The one before is there until the commit.
async fn with_swapped_vm_away(outcome: &str) -> (World, Vm) {
    let world = World::with(3).await;
    // The one before stays off.
    world.lock().speaks_alone = true;
    let (own, first) = (upgrade_of_its_own(&world), shown(&world, "cp2"));
    let ended = format!(r#"{{"at":1,"lease":1,"event":"ended","outcome":"{outcome}"}}"#);
    let goes_on = r#"{"at":1,"lease":1,"event":"direction-changed","direction":"forward","reason":"a test"}"#;
    put(&world, "journal.jsonl", &format!("{own}{goes_on}\n{ended}\n"));
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
async fn a_node_whose_swapped_vm_was_moved_to_another_folder_is_powered_on_and_not_taken_for_lost() {
    for outcome in ["committed", "upgraded"] {
        let (world, swapped) = with_swapped_vm_away(outcome).await;
        let listed = Hypervisor::vms(&world).await.unwrap();
        assert_eq!(moved(&world, &world, &listed).await.unwrap(), std::slice::from_ref(&swapped), "{outcome}");
        let before = world.status().await.unwrap();
        assert_eq!((before.nodes[1].uuid, before.nodes[1].power), (Some(swapped.uuid()), Some(PowerState::Off)));
        let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{outcome}: {arrived:?}");
        let power = Some(PowerState::On);
        assert_eq!((status.nodes[1].uuid, status.nodes[1].power), (Some(swapped.uuid()), power), "{outcome}");
        world.lock().away.clear();
        let listed = Hypervisor::vms(&world).await.unwrap();
        assert_eq!(moved(&world, &world, &listed).await.unwrap(), [], "{outcome}: it is back");
    }
}

/// Backup software brings the VM before an upgrade back, in a folder of its own: it has that one's stamp and BIOS UUID, and a disk of another
/// UUID with an etcd of that day.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_of_before_an_upgrade_is_not_taken_for_the_node_be_that_there_or_lost() {
    // What the upgrade has noted, and what the deployment itself has.
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
            let (arrived, status) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
            let powered_on = world.lock().calls.iter().filter(|(name, _)| *name == "power_on").count();
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

/// What is noted of a node's data disk: as it is, as earlier versions have kept it, and where nobody knew which one was its own.
const NOTES: [fn(Option<Uuid>) -> Option<Uuid>; 3] = [|own| own, |_| None, |_| Some(Uuid::nil())];

/// The BIOS UUID of cp2's first VM, once its data disk is noted so.
async fn first_of(world: &World, note: fn(Option<Uuid>) -> Option<Uuid>) -> Uuid {
    let mut kept = records::read(world).await.unwrap().unwrap();
    kept.nodes[1].disk = note(kept.nodes[1].disk);
    put(world, "deploy-999999.json", &record_text(&kept).unwrap());
    kept.nodes[1].bios_uuid.unwrap()
}

/// An upgrade by an earlier version has swapped cp3 alone, and noted nothing of the others: they are in their first VMs. That of cp2 is off.
async fn with_one_node_upgraded(note: fn(Option<Uuid>) -> Option<Uuid>) -> (World, Vm) {
    const COMMITTED: &str = r#"{"at":1,"lease":1,"event":"ended","outcome":"committed"}"#;
    let world = World::with(3).await;
    let own = upgrade_of_its_own(&world);
    let mut planned: serde_json::Value = serde_json::from_str(own.lines().next().unwrap()).unwrap();
    let plan = &mut planned["plan"];
    plan["nodes"].as_array_mut().unwrap().retain(|node| node["name"] == "cp3");
    plan["steps"].as_array_mut().unwrap().retain(|step| step["node"].as_u64().unwrap_or(0) == 0);
    put(&world, "journal.jsonl", &format!("{planned}\n{COMMITTED}\n"));
    let noted = LastUpgrade::find(&world).await.unwrap().noted().unwrap().disks.len();
    assert_eq!(noted, 1, "the disk of cp3");
    let cp2 = change(&world, first_of(&world, note).await, |vm| vm.power = PowerState::Off).vm;
    (world, cp2)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_an_upgrade_has_not_noted_is_not_taken_for_a_restored_vm_of_before_it() {
    for note in NOTES {
        let (world, cp2) = with_one_node_upgraded(note).await;
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
        assert_eq!(shown(&world, &cp2.name).power, PowerState::On);
        // Nor for a replica, where somebody has moved it.
        let (world, cp2) = with_one_node_upgraded(note).await;
        world.move_away(&cp2);
        let (arrived, status) = world.give(DESTROY).await.arrived();
        assert_eq!((arrived, status.replicas.len()), (RunOutcome::Gone, 0));
        assert_eq!(world.own(), [""; 0]);
    }
}

/// Nor is what an upgrade has noted of one node in doubt for what it has not noted of another.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_of_a_node_that_an_upgrade_has_noted_is_not_powered_on_where_it_has_not_noted_another() {
    for note in NOTES {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        change(&world, swapped.uuid(), |vm| vm.power = PowerState::On);
        let own = world.lock().holds().values().rev().find_map(|files| files.get("journal.jsonl").cloned()).unwrap();
        let mut planned: serde_json::Value = serde_json::from_str(own.lines().nth(1).unwrap()).unwrap();
        let plan = &mut planned["plan"];
        plan["nodes"].as_array_mut().unwrap().retain(|node| node["name"] != "cp1");
        plan["steps"].as_array_mut().unwrap().retain(|step| step["node"].as_u64().unwrap_or(0) < 2);
        let ended = r#"{"at":1,"lease":1,"event":"ended","outcome":"committed"}"#;
        put(&world, "journal.jsonl", &format!("{planned}\n{ended}\n"));
        let restored = world.plant("cp2-restored", "cp2", first_of(&world, note).await.as_u128());
        world.set_fault(None);
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
        assert_eq!(world.lock().calls.iter().filter(|(name, _)| *name == "power_on").count(), 0);
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// A person has powered it on where the node was lost: it is the node, also once it was shut down, and is not left as a copy.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_that_runs_goes_with_its_cluster() {
    for note in NOTES {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        world.lock().machines.retain(|machine| machine.vm.uuid() != swapped.uuid());
        world.lock().away.clear();
        let first = first_of(&world, note).await;
        world.plant("cp2-restored", "cp2", first.as_u128());
        let restored = change(&world, first, |vm| vm.power = PowerState::On);
        world.move_away(&restored.vm);
        world.lock().removes_used = true;
        let (arrived, status) = world.give(DESTROY).await.arrived();
        assert_eq!((arrived, status.replicas), (RunOutcome::Gone, Vec::new()));
        assert_eq!(world.own(), [""; 0]);
    }
}

/// Somebody has failed over to it: it is shut down with the cluster, and stays.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_powered_on_once_its_vm_has_gone_is_not_removed() {
    let world = World::with(3).await;
    world.lock().removes_used = true;
    let (cp2, mut kept) = (shown(&world, "cp2"), records::read(&world).await.unwrap().unwrap());
    kept.lifecycle = Lifecycle::Deleting;
    kept.deleting_vms.push(cp2.reference.clone());
    put(&world, "deploy-999999.json", &record_text(&kept).unwrap());
    let replica = world.replicate(&cp2).vm.reference;
    world.lock().machines.retain(|machine| machine.vm.reference != cp2.reference);
    change(&world, cp2.uuid(), |vm| vm.power = PowerState::On);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!(arrived, RunOutcome::Gone);
    assert_eq!(status.replicas.iter().map(|left| &left.vm).collect::<Vec<_>>(), [&replica]);
    assert!(world.lock().machines.iter().any(|machine| machine.vm.reference == replica));
}

/// Its host was taken out of the inventory and added again while the cluster went.
#[tokio::test(start_paused = true)]
async fn a_vm_that_is_called_otherwise_since_it_was_shut_down_goes_with_its_cluster() {
    let world = World::with(3).await;
    let (cp2, mut kept) = (shown(&world, "cp2"), records::read(&world).await.unwrap().unwrap());
    kept.lifecycle = Lifecycle::Deleting;
    kept.deleting_vms.push(cp2.reference.clone());
    put(&world, "deploy-999999.json", &record_text(&kept).unwrap());
    let again = change(&world, cp2.uuid(), |vm| {
        vm.power = PowerState::Off;
        vm.reference.id.push_str("-again");
    });
    world.move_away(&again.vm);
    let (arrived, status) = world.give(DESTROY).await.arrived();
    assert_eq!((arrived, status.replicas), (RunOutcome::Gone, Vec::new()));
    assert_eq!(world.own(), [""; 0]);
}

/// A cluster, of which a node's data disk is another one than was noted: a person has put it in.
async fn with_another_disk() -> (World, Vm) {
    let world = World::with(3).await;
    let (first, disk) = (shown(&world, "cp2").uuid(), Uuid::from_u128(0xd15c));
    let cp2 = change(&world, first, |vm| vm.disks[0].reference.uuid = disk).vm;
    world.lock().disks.insert(disk, true);
    world.set_fault(None);
    (world, cp2)
}

/// Nor is that a copy which nobody would have taken for one when it was shut down.
#[tokio::test(start_paused = true)]
async fn a_vm_with_another_disk_that_is_called_otherwise_since_it_was_shut_down_goes_with_its_cluster() {
    let (world, _) = with_another_disk().await;
    assert_eq!(world.give(DESTROY).await.arrived().0, RunOutcome::Gone);
    let calls = world.lock().calls.clone();
    let mut shut_down = (1..).zip(&calls).filter(|(_, (name, _))| *name == "shut_down");
    let (number, _) = shut_down.nth(1).unwrap();
    let (world, cp2) = with_another_disk().await;
    world.set_fault(Some((number, Fault::KilledAfter)));
    assert!(matches!(world.give(DESTROY).await, Given::Killed));
    world.set_fault(None);
    let again = change(&world, cp2.uuid(), |vm| vm.reference.id.push_str("-again"));
    assert_eq!(again.vm.power, PowerState::Off);
    world.move_away(&again.vm);
    let (arrived, status) = world.give_over(DESTROY).await.arrived();
    assert_eq!((arrived, status.replicas), (RunOutcome::Gone, Vec::new()));
    assert_eq!(world.own(), [""; 0]);
}

/// Also where nothing is noted of how the cluster was made, and its VMs go by an operator's word; and where somebody has taken its stamp away.
#[tokio::test(start_paused = true)]
async fn a_restored_vm_of_before_an_upgrade_stays_where_the_cluster_goes() {
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

/// A VM of this BIOS UUID cannot be read for a while: nobody is told to see to another one of cp2, or to replace it.
async fn waits_for_cp2(world: &World, unreadable: Uuid) {
    world.lock().unreadable = Some(unreadable);
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
    let [odd] = waits.as_slice() else { panic!("{waits:?}") };
    assert_eq!((odd.node.as_deref(), odd.reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
    assert!(odd.reason.words.contains("is unknown"), "{odd}");
    world.lock().unreadable = None;
}

/// The folder where it was is searched; the VM that runs was moved to another one.
#[tokio::test(start_paused = true)]
async fn a_vm_that_a_backup_has_brought_back_to_its_folder_is_not_powered_on_beside_the_one_that_runs_elsewhere() {
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
        let words = waits[0].reason.to_string();
        assert!(named.iter().all(|vm| words.contains(&vm.to_string())), "{words}");
        assert_eq!(world.lock().calls.iter().filter(|(name, _)| *name == "power_on").count(), 0);
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// As once an upgrade was taken back: the node is in its first VM, which is elsewhere, and the one that was brought back is the upgrade's.
#[tokio::test(start_paused = true)]
async fn a_vm_that_a_backup_has_brought_back_is_not_said_to_be_all_there_is_while_the_first_one_cannot_be_read() {
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        stopped_by(&world, &arrived, &[&restored]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_vm_that_cannot_be_read_keeps_its_own_node_as_it_is_and_hides_no_cluster() {
    // The node's own VM is where VMs are searched, or was moved from there.
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
        let odd = waits.iter().find(|wait| wait.reason.code == "deploy.vm-odd").unwrap_or_else(|| panic!("{waits:?}"));
        assert!(odd.reason.words.contains("a disk of a VM has no file"), "{odd}");
        assert_eq!(shown(&world, &swapped.name), swapped);
        assert!(world.lock().renewed.is_some(), "the others are asked for a kubeconfig");
        // Once it is on nothing stands against it.
        for is in [false, true] {
            is_unreadable(is);
            let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
            assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
            assert_eq!(shown(&world, &swapped.name).power, PowerState::On);
        }
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// The VM that is being brought back, or what an upgrade has noted for the node.
#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_be_read_has_a_node_that_has_none_in_sight_wait_alone() {
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Paused(waits) = arrived else { panic!("{arrived:?}") };
        let [odd] = waits.as_slice() else { panic!("{waits:?}") };
        assert_eq!((odd.node.as_deref(), odd.reason.code.as_str()), (Some("cp2"), "deploy.vm-odd"));
        assert!(odd.reason.words.contains("a disk of a VM has no file"), "{odd}");
        assert_eq!(shown(&world, "cp3").power, PowerState::On);
        assert!(world.lock().renewed.is_some(), "the others are asked for a kubeconfig");
        assert_eq!(world.status().await.unwrap().waits, waits);
        world.lock().unreadable = None;
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert_eq!(waits[0].reason.code, "deploy.vm-gone");
        assert!(world.lock().machines.contains(&restored), "it was touched");
    }
}

/// It was noted for its node, by the deployment alone or by an upgrade as well.
#[tokio::test(start_paused = true)]
async fn a_vm_that_cannot_be_read_hides_no_other_node_that_is_gone() {
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
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        let said: Vec<_> = waits.iter().map(|wait| (wait.node.as_deref(), wait.reason.code.as_str())).collect();
        assert_eq!(said, [(Some("cp2"), "deploy.vm-gone"), (Some("cp3"), "deploy.vm-odd")], "{waits:?}");
    }
}

/// Whoever may change a VM's settings can write a BIOS UUID as well.
#[tokio::test(start_paused = true)]
async fn a_vm_elsewhere_that_an_upgrade_has_noted_and_that_carries_no_stamp_of_the_node_is_not_touched() {
    let unstamped = |vm: &mut Vm| vm.stamp = None;
    let of_another = |vm: &mut Vm| vm.stamp.as_mut().unwrap().deployment = Uuid::from_u128(0xbb);
    let of_no_node = |vm: &mut Vm| vm.stamp.as_mut().unwrap().node = "cp9".to_owned();
    for odd in [unstamped as fn(&mut Vm), of_another, of_no_node] {
        let (world, swapped) = with_swapped_vm_away("committed").await;
        let odd = change(&world, swapped.uuid(), odd);
        let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
        let RunOutcome::Stopped(waits) = arrived else { panic!("{arrived:?}") };
        assert_eq!((waits[0].node.as_deref(), waits[0].reason.code.as_str()), (Some("cp2"), "deploy.vm-gone"));
        assert!(world.lock().machines.contains(&odd));
        assert_eq!(moved(&world, &world, &[]).await.unwrap().len(), 2, "those of cp1 and cp3");
    }
}

/// A plan may wait for days until somebody goes on with it.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_is_powered_on_where_an_upgrade_has_begun_nothing_of_any_node() {
    const BACK: &str = r#"{"at":1,"lease":1,"event":"direction-changed","direction":"back","reason":"a test"}"#;
    let world = World::with(3).await;
    let own = upgrade_of_its_own(&world);
    let planned = own.lines().take(3).collect::<Vec<_>>().join("\n");
    change(&world, shown(&world, "cp2").uuid(), |vm| vm.power = PowerState::Off);
    put(&world, "journal.jsonl", &format!("{planned}\n{BACK}\n"));
    let refused = world.give(Goal::Deploy(&wanted(3))).await.failed();
    assert!(refused.contains("an upgrade of this cluster is open"), "it is about to end: {refused}");
    put(&world, "journal.jsonl", &format!("{planned}\n"));
    let (arrived, _) = world.give(Goal::Deploy(&wanted(3))).await.arrived();
    assert!(matches!(arrived, RunOutcome::Up(_)), "{arrived:?}");
    assert_eq!(shown(&world, "cp2").power, PowerState::On);
    assert!(OpenUpgrade::find(&world).await.unwrap().is_some(), "it is open as before");
}
