use contract::swap::Stage;
use uuid::Uuid;

use super::*;
use crate::hypervisor::ErrorKind;
use crate::journals::upgrade::FILE;
use crate::upgrade::tests::cancel::{TAKEN_OVER, asked_to_end};
use crate::upgrade::tests::command::{deployment, end, give};
use crate::upgrade::tests::failing::before;
use crate::upgrade::tests::fake::World;
use crate::upgrade::tests::fake::fault::{At, Fault};
use crate::upgrade::tests::salvage::damage_plan;
use crate::upgrade::{Action, Outcome, Request, RunOutcome, Step};

/// An upgrade of which nothing can be read: the world, and the lease whose journal is damaged.
async fn unread(step: Step) -> (World, u64) {
    let world = before(3, step).await;
    let number = *world.store().holds.keys().next_back().unwrap();
    let mut state = world.lock();
    state.store.holds.retain(|hold, _| *hold == number);
    drop(state);
    damage_plan(&world);
    (world, number)
}

async fn abandon(world: &World, number: u64) -> anyhow::Result<AbandonedUnread> {
    deployment(world, &|_| {}).abandon_unread(number, TakeOver::FromTheDead).await
}

#[tokio::test(start_paused = true)]
async fn unreadable_upgrade_is_abandoned_by_its_lease_number() {
    let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
    let prepared = |world: &World| {
        let state = world.lock();
        state.contents.iter().any(|content| content.swap.as_ref().is_some_and(|swap| swap.stage == Stage::Prepared))
    };
    assert!(prepared(&world));
    let deployment = deployment(&world, &|_| {});
    let errors = [
        deployment.status().await.map(drop).unwrap_err(),
        deployment.plan(&world.target.ova, &world.options).await.map(drop).unwrap_err(),
        deployment.go_on(Request::Resume, None, TakeOver::FromTheDead).await.map(drop).unwrap_err(),
        deployment.abandon(Uuid::from_u128(0x1d), TakeOver::FromTheDead).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        let damaged = error.downcast_ref::<Damaged>().unwrap_or_else(|| panic!("{error:#}"));
        assert_eq!((damaged.hold, &damaged.plan), (number, &None), "{damaged}");
    }
    let machines = world.lock().machines.clone();
    let end = abandon(&world, number).await.unwrap();
    let notes = end.notes.join("\n");
    let of = |node: &str| world.old_vm(node).to_string();
    for words in [
        format!("the VM {} is on and holds the disk", of("cp1")),
        format!("the VM {} is off and holds no data disk", of("cp2")),
        "cp2: it runs 0.2.0".to_owned(),
        "stays open, for it is on its new image".to_owned(),
        "is withdrawn".to_owned(),
    ] {
        assert!(notes.contains(&words), "{words}: {notes}");
    }
    assert_eq!(world.lock().machines, machines, "no VM is changed");
    assert!(!prepared(&world));
    // A swap that was taken is final when the operator says so.
    let refused = crate::upgrade::tests::stamp::refusals(&world).await;
    assert!(refused.iter().all(|code| ["upgrade.swap-open", "upgrade.vm-name"].contains(&&**code)), "{refused:?}");
    // Given again it says the same; of another lease there is no upgrade.
    assert_eq!(abandon(&world, number).await.unwrap(), end);
    assert!(abandon(&world, number + 1).await.unwrap_err().to_string().contains("there is no upgrade"));
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let kept =
        serde_json::from_str::<AbandonedUnread>(world.store().holds[&(number + 1)][FILE].lines().nth(1).unwrap());
    assert_eq!(kept.unwrap(), end);
    hold.release().await;
}

#[tokio::test(start_paused = true)]
async fn abandoning_unread_requires_the_right_unreadable_lease() {
    let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
    for wrong in [number - 1, number + 1] {
        let error = abandon(&world, wrong).await.unwrap_err().to_string();
        assert!(error.contains(&format!("that is lease {number}, not {wrong}; nothing was changed")), "{error}");
    }
    let world = before(3, Step::of(Action::ShutDown, 1)).await;
    assert!(abandon(&world, 2).await.unwrap_err().to_string().contains("the journal can be read"));
    damage_plan(&world);
    let error = abandon(&world, 2).await.unwrap_err().to_string();
    assert!(error.contains(&format!("its plan can be read: the upgrade is {}", Uuid::from_u128(0x1d))), "{error}");
    assert_eq!(world.called("cancel_swap"), 0);
}

#[tokio::test(start_paused = true)]
async fn it_needs_neither_the_hypervisor_nor_the_nodes() {
    for (name, words) in [
        ("settle", "may still run"),
        ("vms", "which VMs there are is not known"),
        ("control_nodes", "where they are is not known"),
        ("facts", "it does not answer"),
        ("cancel_swap", "stays open"),
    ] {
        let (twin, number) = unread(Step::of(Action::ShutDown, 1)).await;
        twin.fault(None);
        abandon(&twin, number).await.unwrap();
        let call = twin.calls().iter().position(|call| call.name == name).expect(name) + 1;
        let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
        world.fault(Some(At { call, fault: Fault::Error(ErrorKind::Transient), lasting: true }));
        let notes = abandon(&world, number).await.unwrap().notes.join("\n");
        assert!(notes.contains(words), "{name}: {notes}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_in_a_foreign_vm_gets_no_request() {
    let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
    let all = world.lock().contents.len();
    let other = contract::bios_uuid::BiosUuid::from_u128(0xbad);
    world.lock().contents.iter_mut().for_each(|content| content.holder = Some(other));
    world.fault(None);
    let notes = abandon(&world, number).await.unwrap().notes;
    let unasked = notes.iter().filter(|note| note.contains("in no VM of this deployment")).count();
    assert_eq!((unasked, world.called("cancel_swap")), (all, 0), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn abandoning_unread_continues_after_each_cut() {
    for call in 1.. {
        let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
        world.fault(Some(At { call, fault: Fault::CutHalf, lasting: false }));
        let deployment = deployment(&world, &|_| {});
        let cut = tokio::select! {
            biased;
            gone = deployment.abandon_unread(number, TakeOver::FromTheDead) => { gone.unwrap(); false }
            () = world.killed() => true,
        };
        world.fault(None);
        if !cut {
            assert!(call > 20, "{call}");
            return;
        }
        let end = deployment.abandon_unread(number, TakeOver::FromAnyone).await;
        assert_eq!(end.unwrap_or_else(|error| panic!("{call}: {error:#}")).unread, number, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_after_abandoning_unread_is_usual() {
    let (world, number) = unread(Step::of(Action::Prepare, 0)).await;
    abandon(&world, number).await.unwrap();
    let new = world.new_vm("cp2").uuid();
    world.delete_vm(new);
    let deployment = deployment(&world, &|_| {});
    let (arrived, _) = deployment.apply(&world.target.ova, &world.options, TakeOver::FromTheDead).await.unwrap();
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Upgraded));
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[test]
fn record_of_version_0_1_is_read() {
    let noted = r#"{"at":5,"lease":4,"unread":3,"code":"upgrade.asked","reason":"asked for","notes":["cp1: silent"]}"#;
    let end = AbandonedUnread::read(noted).unwrap();
    assert_eq!((end.unread, serde_json::to_string(&end).unwrap().as_str()), (3, noted));
}

#[tokio::test(start_paused = true)]
async fn command_cancelled_while_looking_ends_nothing() {
    let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
    world.lock().inventory_hangs = true;
    let over = TakeOver::FromTheDead;
    let gone = asked_to_end(&world, TAKEN_OVER, &|_| {}, async |asked| asked.abandon_unread(number, over).await);
    assert!(gone.await.unwrap_err().is::<Cancelled>());
    world.lock().inventory_hangs = false;
    abandon(&world, number).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dry_run_withdraws_no_swap() {
    let (world, number) = unread(Step::of(Action::ShutDown, 1)).await;
    world.fault(None);
    let (deployment, over) = (deployment(&world, &|_| {}), TakeOver::FromTheDead);
    let looked = deployment.preview_unread(number, over).await.unwrap();
    assert!(looked.dry_run && !looked.abandoned, "{looked:?}");
    assert!(looked.notes.iter().any(|note| note.contains("would be withdrawn")), "{looked:?}");
    assert_eq!(world.called("cancel_swap") + world.called("store.make") + world.called("store.write"), 0);
    assert!(deployment.preview_unread(number + 1, over).await.is_err());
    let end = abandon(&world, number).await.unwrap();
    let again = deployment.preview_unread(number, over).await.unwrap();
    assert_eq!((again.abandoned, again.notes), (true, end.notes));
}
