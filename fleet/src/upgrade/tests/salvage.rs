//! Abandoning needs nothing to work: not the hypervisor, not the nodes, not the journal.

use std::time::Duration;

use uuid::Uuid;

use super::command::{deployment, end, entries, give, over};
use super::failing::{before, stop_before, world};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World};
use crate::hypervisor::ErrorKind;
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{Action, Deployment, Journal, Mode, Outcome, Plan, Request, RunOutcome, Step};

async fn abandoned(world: &World, id: Uuid) -> anyhow::Result<String> {
    // As the command line gives it: it waits for nothing.
    let deployment = Deployment { pause_limit: Duration::ZERO, ..deployment(world, &|_| {}) };
    let (arrived, status) = deployment.abandon(id, TakeOver::FromTheDead).await?;
    assert_eq!(arrived, RunOutcome::Ended(Outcome::Abandoned));
    assert_eq!(status.entries, entries(world).await);
    Ok(serde_json::to_string(&status.entries)?)
}

async fn id(world: &World) -> Uuid {
    deployment(world, &|_| {}).status().await.unwrap().id
}

/// The number of the first call of this name of an abandoning command.
async fn call_of(name: &str) -> usize {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let id = id(&world).await;
    world.fault(None);
    abandoned(&world, id).await.unwrap();
    world.calls().iter().position(|call| call.name == name).unwrap() + 1
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_abandoned_whatever_the_hypervisor_says() {
    for (name, words) in [("settle", "may still run"), ("vms", "reading the hypervisor's inventory")] {
        let call = call_of(name).await;
        for kind in [ErrorKind::Transient, ErrorKind::Refused, ErrorKind::Denied, ErrorKind::InDoubt] {
            let world = before(3, Step::of(Action::Attach, 1)).await;
            let id = id(&world).await;
            world.fault(Some(At { call, fault: Fault::Error(kind), lasting: true }));
            let notes = abandoned(&world, id).await.unwrap();
            assert!(notes.contains(words), "{name} {kind:?}: {notes}");
        }
    }
}

/// A journal whose entry in the middle is damaged, and the upgrade's identifier.
async fn damaged() -> (World, Uuid) {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let id = id(&world).await;
    let mut state = world.lock();
    let hold = state.store.holds.values_mut().rfind(|hold| hold.contains_key("journal-000003.json")).unwrap();
    hold.insert("journal-000003.json".to_owned(), "{\"at\":1,".to_owned());
    drop(state);
    (world, id)
}

#[tokio::test(start_paused = true)]
async fn damaged_journal_is_abandoned_by_its_plan() {
    let (world, id) = damaged().await;
    for verb in [Request::Resume, Request::Rollback] {
        let error = deployment(&world, &|_| {}).go_on(verb, None, TakeOver::FromTheDead).await.unwrap_err();
        assert!(format!("{error:#}").contains("journal-000003.json is damaged"), "{error:#}");
    }
    let other = abandoned(&world, Uuid::from_u128(1)).await.unwrap_err();
    assert!(other.to_string().contains(&format!("the upgrade is {id}")), "{other:#}");
    let notes = abandoned(&world, id).await.unwrap();
    for words in ["is not known", "journal-000003.json is damaged", "no VM holds its disk"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    // A node is down, and its new VM still exists: only that blocks now.
    let refusals = super::stamp::refusals(&world).await;
    assert!(!refusals.is_empty() && !refusals.iter().any(|code| code.contains("unfinished")), "{refusals:?}");
    assert!(matches!(give(&world, Request::Resume).await, super::command::Given::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn abandoned_by_plan_names_only_diskless_new_vms() {
    for (action, says) in [(Action::Attach, "check who owns it"), (Action::PowerOn, "power it on, never remove it")] {
        let world = before(1, Step::of(action, 0)).await;
        let (id, new) = (id(&world).await, world.new_vm("cp1").to_string());
        damage_plan(&world);
        // The lease before still has the plan.
        let notes = abandoned(&world, id).await.unwrap();
        assert!(notes.contains(&new) && notes.contains(says), "{action:?}: {notes}");
        assert!(!notes.contains(&format!("left: {new}")), "{action:?}: {notes}");
    }
}

#[tokio::test(start_paused = true)]
async fn salvaged_journal_never_goes_forward() {
    for call in 1.. {
        let (world, id) = damaged().await;
        world.fault(Some(At { call, fault: Fault::CutHalf, lasting: false }));
        let deployment = deployment(&world, &|_| {});
        let cut = tokio::select! {
            biased;
            gone = deployment.abandon(id, TakeOver::FromTheDead) => { gone.unwrap(); false }
            () = world.killed() => true,
        };
        if !cut {
            assert!(call > 20, "{call}");
            return;
        }
        let over = over(&world).await;
        // Before its first entry it is damaged still; afterwards resuming ends it.
        match deployment.go_on(Request::Resume, None, over).await {
            Err(error) => assert!(
                ["damaged", "was abandoned"].iter().any(|word| format!("{error:#}").contains(word)),
                "{call}: {error:#}"
            ),
            Ok((arrived, _)) => assert_eq!(arrived, RunOutcome::Ended(Outcome::Abandoned), "{call}"),
        }
        assert_eq!(world.called("import") + world.called("attach") + world.called("power_on"), 0, "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn journal_without_beginning_is_abandoned() {
    let world = before(3, Step::of(Action::Attach, 1)).await;
    let id = id(&world).await;
    world.lock().store.holds.get_mut(&2).unwrap().remove("journal.jsonl").unwrap();
    let error = deployment(&world, &|_| {}).go_on(Request::Resume, None, TakeOver::FromTheDead).await.unwrap_err();
    assert!(format!("{error:#}").contains("journal.jsonl is missing"), "{error:#}");
    abandoned(&world, id).await.unwrap();
}

/// A second upgrade after one that has ended. Nothing can be read of its only lease.
async fn second_unread() -> World {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    let plan = Plan { id: Uuid::from_u128(0x2d), ..world.plan().await };
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    Journal::begin(&hold, plan).await.unwrap();
    hold.release().await;
    damage_plan(&world);
    world
}

/// Damages the plan of the last lease.
pub fn damage_plan(world: &World) {
    let mut state = world.lock();
    let mut last = state.store.holds.last_entry().unwrap();
    let file = last.get_mut().get_mut("journal.jsonl").unwrap();
    *file = file.replace("\"event\":\"planned\"", "\"event\":\"pl");
}

#[tokio::test(start_paused = true)]
async fn ended_upgrades_plan_abandons_no_other() {
    let world = second_unread().await;
    for id in [0x1d, 0x2d] {
        let error = abandoned(&world, Uuid::from_u128(id)).await.unwrap_err();
        assert!(format!("{error:#}").contains("line 1 is not understood"), "{error:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn upgrade_open_at_its_end_is_abandoned() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    stop_before(&world, Request::Rollback, Step::of(Action::StopNew, 0)).await;
    damage_plan(&world);
    abandoned(&world, Uuid::from_u128(0x1d)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn absent_store_is_no_damaged_journal() {
    let (world, id) = damaged().await;
    world.fault(Some(At { call: 1, fault: Fault::Error(ErrorKind::Transient), lasting: true }));
    let error = abandoned(&world, id).await.unwrap_err();
    assert!(format!("{error:#}").contains("does not answer"), "{error:#}");
}
