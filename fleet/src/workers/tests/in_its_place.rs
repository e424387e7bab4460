//! Another client, which has read the worker's properties, joins in its place: the messages about it, and its removal.

use std::time::Duration;

use super::fake::{World, pool, rejoin, remove};
use super::says::{first, give_until, intruded_unseen, ready};
use super::stories::codes;
use crate::engine::Reason;
use crate::workers::{Action, Goal, State, Wait, WorkerRecord, next};

/// The wait of one worker in the status.
async fn told_of(world: &World, worker: &str) -> Wait {
    let status = world.status().await.unwrap().unwrap();
    let wait = status.waits.iter().find(|wait| wait.worker.as_deref() == Some(worker)).cloned();
    wait.unwrap_or_else(|| panic!("nothing is told of {worker}: {status:?}"))
}

#[tokio::test(start_paused = true)]
async fn an_impostor_of_new_workers_is_not_drained() {
    for has_failed in [false, true] {
        let world = World::with(1).await;
        world.set_fault(None);
        world.lock().intruded.insert("t-w2".to_owned());
        if has_failed {
            assert_eq!(world.give(Goal::Add(1)).await.codes(), ["workers.name-in-use"]);
        } else {
            give_until(&world, Goal::Add(1), || world.lock().intruded.is_empty()).await;
            // Its VM has now reported the key with which it asks itself, and no command has seen that.
            tokio::time::sleep(Duration::from_secs(60)).await;
            let wait = told_of(&world, "t-w2").await;
            assert!(wait.reason.code == "workers.name-in-use", "{wait}");
            assert!(wait.reason.words.contains("Remove the worker"), "{wait}");
        }
        assert_eq!(world.give(remove("t-w2")).await.done().wanted, 1);
        assert_eq!((world.called("evict"), world.own()), (0, vec!["t-w1".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn status_reports_an_impostor_after_the_token_expired() {
    // A worker that was never a member, and one that should join once more, with its last token gone.
    let new = World::with(1).await;
    new.lock().intruded.insert("t-w2".to_owned());
    give_until(&new, Goal::Add(1), || new.lock().intruded.is_empty()).await;
    let again = intruded_unseen().await;
    assert_eq!(codes(&again.give(Goal::Continue).await.arrived().0), ["workers.name-in-use"]);
    again.give_for_a_minute(Goal::GoOn).await.arrived();
    assert_eq!(first(&again).await.state, State::Rejoining);
    for (world, worker) in [(new, "t-w2"), (again, "t-w1")] {
        tokio::time::sleep(Duration::from_secs(2000)).await;
        let wait = told_of(&world, worker).await;
        assert!(wait.reason.code == "workers.name-in-use" && wait.reason.words.contains("Remove the worker"), "{wait}");
        assert_eq!(world.give(Goal::Continue).await.codes(), ["workers.name-in-use"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejoining_member_with_an_old_record_drains() {
    let world = World::with(2).await;
    world.lock().let_in.insert("t-w1".to_owned(), "an earlier key".to_owned());
    let why = world.give(rejoin("t-w1")).await.stopped();
    assert_eq!((why.len(), why[0].reason.code.as_str()), (1, "workers.unproved"));
    assert!(why[0].reason.words.contains("was admitted with another key"), "{why:?}");
    // The fake shuts down no node that has pods.
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert!(world.called("evict") > 0);
}

#[tokio::test(start_paused = true)]
async fn another_token_ends_an_impostor() {
    let world = intruded_unseen().await;
    assert_eq!(world.give(Goal::Continue).await.codes(), ["workers.name-in-use"]);
    // The other client is gone, and so is its record at control-plane nodes.
    world.lock().let_in.remove("t-w1");
    world.lock().silence("t-w1");
    world.set_fault(None);
    let is_given = |(name, _): &(&str, _)| *name == "power_on";
    give_until(&world, Goal::GoOn, || world.lock().calls.iter().any(is_given)).await;
    let machine = first(&world).await;
    assert_eq!((machine.state, machine.impersonated), (State::Joining, false));
    world.give(Goal::Continue).await.done();
    // As after a restore of the control-plane nodes' store.
    world.lock().let_in.insert("t-w1".to_owned(), "an earlier key".to_owned());
    assert_eq!(world.give(remove("t-w1")).await.done().wanted, 1);
    assert!(world.called("evict") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_key_stays_only_after_joining() {
    let world = intruded_unseen().await;
    world.give_for_a_minute(Goal::Continue).await.arrived();
    let own = first(&world).await.key.expect("the key that he was seen by");
    for (noted, kept) in [("what a pod has said", None), (&*own, Some(own.clone()))] {
        let mut records = world.kept().await.unwrap();
        records.machines[0].key = Some(noted.to_owned());
        records.machines[0].state = State::Joining;
        world.keep(records).await;
        // Control-plane nodes have admitted its VM after all.
        world.lock().let_in.insert("t-w1".to_owned(), own.clone());
        world.give(Goal::Continue).await.done();
        let joined = first(&world).await;
        assert_eq!((joined.state, joined.impersonated, joined.key), (State::Running, false, kept));
    }
}

/// As for a worker that a command removes, or whose object was deleted.
#[test]
fn an_impostor_is_recorded_before_the_token_goes() {
    let comes = |change: fn(&mut WorkerRecord)| {
        let (mut machine, seen) = ready(None, Some("its"));
        machine.joined_seconds = Some(9);
        change(&mut machine);
        machine.leave(1050, Reason::new("workers.asked", "the operator wants it to go"));
        let actions = next(&pool(1), &[machine], &seen).actions.into_iter();
        actions.filter(|action| action.machine().is_some()).collect::<Vec<_>>()
    };
    let removes = [Action::RemoveToken("t-w1".to_owned())];
    assert_eq!(comes(|_| {}), [Action::Suspect("t-w1".to_owned(), "its".to_owned())]);
    assert_eq!(comes(|machine| machine.impersonated = true), removes);
    assert_eq!(comes(|machine| machine.joined_seconds = None), removes);
    assert_eq!(comes(|machine| machine.key = Some("own".to_owned())), removes);
}
