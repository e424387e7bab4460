//! Copies of data disks: made as the old image has left the disks, named at each place, and removed by the commit.

use super::command::{Given, begin, begun, end, entries, give, give_with};
use super::failing::stop_before;
use super::fake::fault::{At, Fault};
use super::fake::{DiskCopied, Ill, World, data, disk};
use crate::hypervisor::{DiskRef, ErrorKind};
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{Action, Event, Journal, LastUpgrade, Mode, OnFailure, Outcome, Request, RunOutcome, Step, plan};

/// A cluster whose disks are copied, planned and not begun.
async fn copying(nodes: usize, mode: Mode) -> World {
    let mut world = World::of(nodes, mode, Ill::Well);
    world.options.copy_disks = true;
    begin(&world).await;
    world
}

/// A rolling upgrade that has copied the disks.
async fn copied(nodes: usize) -> World {
    let world = copying(nodes, Mode::Rolling).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world
}

/// Panics unless each node's disk is where it was, with as many copies next to it. Each copy is whole and as the old
/// image has left it.
fn has_copies(world: &World, count: usize) {
    let state = world.lock();
    for content in &state.contents {
        assert_eq!(content.at, disk(content.node));
    }
    assert_eq!(state.copies.len(), count, "{:?}", state.copies);
    for copy in &state.copies {
        assert!(copy.whole && copy.generation == 1, "{copy:?}");
        assert!(state.contents.iter().any(|content| {
            let stem = content.at.path.trim_end_matches(".vmdk");
            copy.at.path.starts_with(&format!("{stem}-before-")) && copy.at.path.ends_with(".vmdk")
        }));
    }
}

#[tokio::test(start_paused = true)]
async fn copy_precedes_new_vm_and_ends_with_commit() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = copying(3, mode).await;
        let (arrived, status) = give(&world, Request::Resume).await.arrived();
        assert_eq!(arrived, RunOutcome::Ended(Outcome::Upgraded));
        has_copies(&world, 3);
        assert!(world.lock().contents.iter().all(|content| content.generation > 1), "the new image has written");
        assert!(status.copies.iter().all(|copy| copy.copy.uuid.is_some()) && status.copies.len() == 3);
        let told = serde_json::to_value(&status).unwrap();
        assert_eq!(told["copies"][0]["node"], status.copies[0].node.as_str());
        assert_eq!(told["copies"][0]["path"], status.copies[0].copy.path.as_str());
        let (arrived, status) = give(&world, Request::Commit).await.arrived();
        assert_eq!((arrived, status.copies), (RunOutcome::Ended(Outcome::Committed), Vec::new()));
        assert!(world.lock().copies.is_empty());
        assert_eq!(world.lock().contents.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_word_nothing_is_copied() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    assert_eq!(world.called("copy_disk"), 0);
    assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
    assert_eq!(world.called("delete_disk"), 0);
}

#[tokio::test(start_paused = true)]
async fn copies_stay_after_a_rollback() {
    let world = copied(3).await;
    let (arrived, status) = give(&world, Request::Rollback).await.arrived();
    assert_eq!((arrived, status.copies.len()), (RunOutcome::Ended(Outcome::RolledBack), 3));
    has_copies(&world, 3);
    assert_eq!(world.called("delete_disk"), 0);
}

/// They hold all that the disks held, and the journal of the upgrade that made them goes with the next one.
#[tokio::test(start_paused = true)]
async fn later_upgrades_name_earlier_copies() {
    let mut world = copying(3, Mode::Rolling).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    let (arrived, first) = give(&world, Request::Rollback).await.arrived();
    assert_eq!((arrived, first.copies.len()), (RunOutcome::Ended(Outcome::RolledBack), 3));
    world.options.copy_disks = false;
    let inventory = world.inventory().await;
    let again = plan(&inventory, &world.target, &world.options, uuid::Uuid::from_u128(0x2d)).unwrap();
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    Journal::begin(&hold, again).await.unwrap();
    hold.release().await;
    for (verb, outcome) in [(Request::Resume, Outcome::Upgraded), (Request::Commit, Outcome::Committed)] {
        let (arrived, status) = give(&world, verb).await.arrived();
        assert_eq!(arrived, RunOutcome::Ended(outcome));
        let told = serde_json::to_value(&status).unwrap();
        assert_eq!(told["plan"]["other_copies"], serde_json::to_value(&first.copies).unwrap(), "{outcome:?}");
        let last = LastUpgrade::find(&world).await.unwrap();
        assert_eq!(last.noted().unwrap().copies, first.copies, "{outcome:?}: who removes the cluster knows them");
    }
    has_copies(&world, 3);
}

#[tokio::test(start_paused = true)]
async fn interrupted_copy_is_completed_or_the_disk_returns() {
    let twin = copying(1, Mode::Rolling).await;
    give(&twin, Request::Resume).await.arrived();
    let call = 1 + twin.calls().iter().position(|call| call.name == "copy_disk").expect("a copy");
    let errors = [ErrorKind::Transient, ErrorKind::InDoubt, ErrorKind::Denied].map(Fault::Error);
    let others = [Fault::Done, Fault::Late, Fault::CutBefore, Fault::CutAfter, Fault::CutLate, Fault::CutOnTheWay];
    for fault in errors.into_iter().chain(others) {
        for (then, outcome) in [(Request::Resume, Outcome::Upgraded), (Request::Rollback, Outcome::RolledBack)] {
            let world = copying(1, Mode::Rolling).await;
            let given = give_with(&world, Request::Resume, None, Some(At { call, fault, lasting: false })).await;
            let arrived = match given {
                Given::Killed => None,
                other => Some(other.arrived().0),
            };
            assert_eq!(arrived.is_none(), fault.kills(), "{fault:?}: {arrived:?}");
            assert_eq!(end(&world, then).await, outcome, "{fault:?} then {then:?}");
            match then {
                Request::Resume => has_copies(&world, 1),
                _ => assert_eq!(world.lock().contents[0].at, disk("cp1"), "{fault:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_goes_back_without_room_for_a_copy() {
    let twin = copying(1, Mode::Rolling).await;
    give(&twin, Request::Resume).await.arrived();
    let call = 1 + twin.calls().iter().position(|call| call.name == "copy_disk").expect("a copy");
    for (kind, code) in [(ErrorKind::Transient, "hypervisor.transient"), (ErrorKind::Denied, "hypervisor.denied")] {
        let world = copying(1, Mode::Rolling).await;
        let at = At { call, fault: Fault::Error(kind), lasting: true };
        let reason = give_with(&world, Request::Resume, None, Some(at)).await.paused();
        for part in [code, &disk("cp1").path, "cp1", "as much room", "`resume`", "`rollback`"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
        has_copies(&world, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn retried_node_is_copied_again() {
    let mut world = World::of(3, Mode::Rolling, Ill::Well);
    world.options.copy_disks = true;
    world.options.on_failure = OnFailure::Node;
    begin(&world).await;
    world.lock().ill_nodes = Some([("cp3", Ill::NoStart)].into());
    let (arrived, status) = give(&world, Request::Resume).await.arrived();
    assert!(matches!(arrived, RunOutcome::NodeIsBack(_)), "{arrived:?}");
    world.copies_are_named(&status);
    let first = world.lock().copies.iter().map(|copy| copy.at.clone()).collect::<Vec<_>>();
    world.lock().ill_nodes = None;
    let (arrived, status) = give(&world, Request::Resume).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Upgraded));
    assert_eq!(world.called("copy_disk.clear"), 1);
    world.copies_are_named(&status);
    let state = world.lock();
    assert_eq!(state.copies.len(), 3);
    let mut anew = state.copies.iter().filter(|copy| first.iter().all(|first| first.uuid != copy.at.uuid));
    assert!(anew.any(|copy| first.iter().any(|first| first.path == copy.at.path)), "in the same place");
}

#[tokio::test(start_paused = true)]
async fn copy_in_use_is_left_and_named() {
    let world = copied(1).await;
    {
        let mut state = world.lock();
        let copy = state.copies[0].at.clone();
        let machine = state.machines.iter_mut().find(|machine| machine.vm.data_disks().next().is_none()).unwrap();
        assert!(machine.ours, "the old VM, which a person has put it into");
        machine.ours = false;
        machine.vm.stamp = None;
        machine.vm.disks.push(data(copy));
    }
    let (arrived, status) = give(&world, Request::Commit).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Committed));
    has_copies(&world, 1);
    assert_eq!(status.copies[0].copy.path, world.lock().copies[0].at.path);
}

#[tokio::test(start_paused = true)]
async fn foreign_file_at_copy_path_is_left() {
    let world = copied(1).await;
    let path = {
        let mut state = world.lock();
        state.copies[0].at.uuid = uuid::Uuid::from_u128(0xbad);
        state.copies[0].at.path.clone()
    };
    assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed);
    assert_eq!(world.lock().copies.len(), 1, "it is another one, and stays");
    let mut notes = entries(&world).await.into_iter().filter_map(|entry| match entry.event {
        Event::Done { step, note, .. } if step.action == Action::DeleteCopy => Some(note),
        _ => None,
    });
    assert!(notes.next_back().unwrap().contains(&path), "it is named");
}

/// At which call of a commit a copy is removed.
async fn call_of_removal() -> usize {
    let twin = copying(1, Mode::Rolling).await;
    assert_eq!(end(&twin, Request::Resume).await, Outcome::Upgraded);
    give(&twin, Request::Commit).await.arrived();
    1 + twin.calls().iter().position(|call| call.name == "delete_disk").expect("a removal")
}

/// A VM runs with it, or the privilege was taken away.
#[tokio::test(start_paused = true)]
async fn commit_ends_with_a_copy_that_stays() {
    let call = call_of_removal().await;
    for kind in [ErrorKind::Transient, ErrorKind::Denied] {
        let world = copied(1).await;
        let at = At { call, fault: Fault::Error(kind), lasting: true };
        let (arrived, status) = give_with(&world, Request::Commit, None, Some(at)).await.arrived();
        assert_eq!(arrived, RunOutcome::Ended(Outcome::Committed), "{kind:?}");
        has_copies(&world, 1);
        assert_eq!(status.copies.len(), 1, "{kind:?}");
        world.copies_are_named(&status);
    }
    // A transient error is tried again.
    let world = copied(1).await;
    let at = At { call, fault: Fault::Error(ErrorKind::Transient), lasting: false };
    let (arrived, status) = give_with(&world, Request::Commit, None, Some(at)).await.arrived();
    assert_eq!((arrived, status.copies), (RunOutcome::Ended(Outcome::Committed), Vec::new()));
    has_copies(&world, 0);
}

/// Waiting does not show whether the copy can be removed.
#[tokio::test(start_paused = true)]
async fn waiting_to_settle_is_no_removal_attempt() {
    let begun = async || {
        let world = copied(1).await;
        stop_before(&world, Request::Commit, Step::of(Action::DeleteCopy, 0)).await;
        world
    };
    // The call at which a commit that continues from there comes to this one.
    let call_of = async |world: World, name: &str| {
        give(&world, Request::Commit).await.arrived();
        1 + world.calls().iter().position(|call| call.name == name).expect("a call")
    };
    let call = call_of(begun().await, "settle").await;
    let waited = async || {
        let world = begun().await;
        let at = At { call, fault: Fault::Error(ErrorKind::Transient), lasting: true };
        let reason = give_with(&world, Request::Commit, None, Some(at)).await.paused();
        assert!(reason.starts_with("waiting for what was begun before"), "{reason}");
        world
    };
    let at = At {
        call: call_of(waited().await, "delete_disk").await,
        fault: Fault::Error(ErrorKind::Transient),
        lasting: false,
    };
    let world = waited().await;
    let (arrived, status) = give_with(&world, Request::Commit, None, Some(at)).await.arrived();
    assert_eq!((arrived, status.copies), (RunOutcome::Ended(Outcome::Committed), Vec::new()));
    assert_eq!(world.called("delete_disk"), 2);
    has_copies(&world, 0);
}

/// The removal cannot tell it from the node's disk, which a VM holds.
#[tokio::test(start_paused = true)]
async fn copy_with_its_disks_uuid_is_left() {
    let world = copying(1, Mode::Rolling).await;
    world.lock().copies_keep_uuid = true;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    let (arrived, status) = give(&world, Request::Commit).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Committed));
    has_copies(&world, 1);
    assert_eq!(status.copies.len(), 1);
    world.copies_are_named(&status);
}

/// Its datastore may have another name: that it is missing proves nothing, unless its removal was asked for before.
#[tokio::test(start_paused = true)]
async fn missing_copy_is_named_unless_removal_was_tried() {
    let world = copied(1).await;
    let copies = std::mem::take(&mut world.lock().copies);
    let (arrived, status) = give(&world, Request::Commit).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Committed));
    assert_eq!(status.copies.iter().map(|copy| &*copy.copy.path).collect::<Vec<_>>(), [copies[0].at.path.as_str()]);

    let world = copied(1).await;
    let at = At { call: call_of_removal().await, fault: Fault::CutAfter, lasting: false };
    assert!(matches!(give_with(&world, Request::Commit, None, Some(at)).await, Given::Killed));
    has_copies(&world, 0);
    let (arrived, status) = give(&world, Request::Commit).await.arrived();
    assert_eq!((arrived, status.copies), (RunOutcome::Ended(Outcome::Committed), Vec::new()));
}

/// The journal is a file on a datastore, and its writer may have no right to remove the disk.
#[tokio::test(start_paused = true)]
async fn disk_without_copy_name_is_left() {
    let world = copied(1).await;
    let strange = DiskRef { uuid: uuid::Uuid::from_u128(0xbad), path: "[datastore1] payroll/payroll.vmdk".to_owned() };
    world.lock().copies.push(DiskCopied { at: strange.clone(), generation: 1, whole: true });
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let forged = Event::Done {
        step: Step::of(Action::Copy, 0),
        note: "a forged one".to_owned(),
        vm: None,
        replaced: false,
        copies: vec![strange.clone().into()],
    };
    Journal::continued(&hold).await.unwrap().append(forged).await.unwrap();
    hold.release().await;
    let (arrived, status) = give(&world, Request::Commit).await.arrived();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Committed));
    let left: Vec<DiskRef> = world.lock().copies.iter().map(|copy| copy.at.clone()).collect();
    assert_eq!(left, std::slice::from_ref(&strange), "the copy is removed, and nothing else");
    assert_eq!(status.copies.iter().map(|copy| &*copy.copy.path).collect::<Vec<_>>(), [strange.path.as_str()]);
}
