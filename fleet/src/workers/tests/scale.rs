//! A declared number of workers, and the loop of a controller.

use std::time::Duration;

use super::fake::{Fault, World, pool, rejoin, remove, replace};
use crate::lease::{Lease, TakeOver};
use crate::workers::{Changes, Goal, Pool, ReconcileLoop, Records, RunOutcome, State, Workers};

/// By a controller that holds the lease.
async fn as_controller<T>(world: &World, act: impl AsyncFnOnce(&mut ReconcileLoop<'_>) -> T) -> T {
    let done = async |workers: &Workers<'_>| {
        let hold = Lease::acquire(workers.store, "a controller", TakeOver::FromTheDead, &|_| {}).await.unwrap();
        let kept = world.kept().await.unwrap();
        let mut rounds = ReconcileLoop::new(workers, &hold, Records::begin(&hold, kept).await.unwrap());
        let done = act(&mut rounds).await;
        hold.release().await;
        done
    };
    world.acting(tokio::sync::watch::channel(false).1, done).await
}

#[tokio::test(start_paused = true)]
async fn a_repeated_number_changes_nothing() {
    let world = World::with(2).await;
    for (count, own) in [(3, 3), (3, 3), (1, 1), (1, 1)] {
        assert_eq!(world.give(Goal::Scale(count)).await.done().available, count);
        assert_eq!(world.own().len(), own);
    }
    // The youngest are removed.
    assert_eq!(world.own(), ["t-w1"]);
    assert_eq!(world.kept().await.unwrap().pool.last_index, 3, "another one was made on the way");
}

#[tokio::test(start_paused = true)]
async fn failed_outdated_and_young_workers_leave_in_order() {
    let world = World::with(3).await;
    world.give(Goal::Pause).await.done();
    world.give(replace("two", Changes::default())).await.arrived();
    let status = world.give(Goal::Scale(4)).await.arrived().1;
    assert!(status.workers[3].up_to_date && status.workers[3].available, "{status:?}");
    world.lock().ill.insert("two".to_owned());
    let (arrived, _) = world.give(Goal::Scale(5)).await.arrived();
    assert!(matches!(arrived, RunOutcome::Stopped(_)), "{arrived:?}");
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3", "t-w4", "t-w5"]);
    world.give(Goal::Scale(4)).await.arrived();
    assert_eq!(world.own(), ["t-w1", "t-w2", "t-w3", "t-w4"], "the one that has failed");
    world.give(Goal::Scale(2)).await.arrived();
    let left = world.own();
    assert!(left.len() == 2 && left.contains(&"t-w4".to_owned()), "{left:?}: outdated ones go before the youngest");
}

#[tokio::test(start_paused = true)]
async fn a_failed_rejoin_leaves_first() {
    let world = World::with(3).await;
    world.lock().expire("t-w1");
    world.lock().refusing.insert("t-w1".to_owned(), ("join.token-refused", true));
    assert_eq!(world.give(rejoin("t-w1")).await.codes(), ["join.token-refused"]);
    assert_eq!(world.give(Goal::Scale(2)).await.done().available, 2);
    assert_eq!(world.own(), ["t-w2", "t-w3"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_leaves_after_its_service_addresses() {
    for handing_over in [0, 20, 1000] {
        let world = World::with(2).await;
        world.lock().handing_over = handing_over;
        // Pods or power that end too early panic in the fake.
        world.give(Goal::Scale(1)).await.done();
        assert_eq!(world.own(), ["t-w1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_declares_and_steps_repeatedly() {
    let world = World::with(1).await;
    as_controller(&world, async |rounds| {
        for count in [3, 2] {
            for _ in 0..120 {
                rounds.wish(&Goal::Scale(count)).await.unwrap();
                let writes = world.called("store.write");
                rounds.wish(&Goal::Scale(count)).await.unwrap();
                let again = world.called("store.write");
                assert_eq!(again, writes, "what is wanted already is written again");
                if rounds.step().await.unwrap().done {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!((world.own().len(), rounds.step().await.unwrap().done), (count, true));
        }
    })
    .await;
    assert_eq!(world.kept().await.unwrap().pool, crate::workers::Pool { last_index: 3, ..pool(2) });
}

/// Drains of all tenants may be blocked for days: each round repeats the requests for each worker.
#[tokio::test(start_paused = true)]
async fn a_waiting_drain_asks_for_no_copies() {
    let world = World::new();
    world.give(Goal::Create(Box::new(Pool { addresses: None, ..pool(21) }))).await.done();
    world.lock().blocked.extend((1..=21).map(|number| format!("t-w{number}")));
    let asked = |world: &World| world.called("with_bios_uuid");
    as_controller(&world, async |rounds| {
        rounds.wish(&Goal::Scale(1)).await.unwrap();
        let (before, mut blocked) = (asked(&world), 0);
        for _ in 0..120 {
            let waits = rounds.step().await.unwrap().waits;
            blocked = waits.iter().filter(|wait| wait.reason.code == "workers.drain-blocked").count();
            if blocked == 20 {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(blocked, 20);
        for _ in 0..10 {
            rounds.step().await.unwrap();
        }
        assert_eq!(asked(&world), before);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_unsaved_goal_is_saved_by_the_next() {
    for fault in [Fault::Fails, Fault::Lost] {
        for call in 1.. {
            let world = World::with(2).await;
            let failed = as_controller(&world, async |rounds| {
                world.set_fault(Some((call, fault)));
                let failed = rounds.wish(&remove("t-w1")).await.is_err();
                world.set_fault(None);
                rounds.wish(&remove("t-w1")).await.unwrap();
                for _ in 0..120 {
                    if rounds.step().await.unwrap().done {
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                failed
            })
            .await;
            let kept = world.kept().await.unwrap();
            assert_eq!((kept.pool.count, world.own()), (1, vec!["t-w2".to_owned()]), "{fault:?} at call {call}");
            if !failed {
                assert!(call > 1, "nothing went wrong");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn continuing_restarts_the_time_of_a_drain() {
    let world = World::with(2).await;
    world.lock().blocked.insert("t-w1".to_owned());
    world.give(remove("t-w1")).await.arrived();
    as_controller(&world, async |rounds| {
        assert!(rounds.step().await.unwrap().needs_a_person, "it is late");
        rounds.wish(&Goal::GoOn).await.unwrap();
        assert!(!rounds.step().await.unwrap().needs_a_person, "it has its time");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_inventory_ends_and_lists_volumes_once() {
    let world = World::new();
    world.give(Goal::Create(Box::new(Pool { addresses: None, ..pool(20) }))).await.done();
    let mut kept = world.kept().await.unwrap();
    kept.pool.count = 0;
    kept.machines.iter_mut().for_each(|machine| machine.state = State::Deleting);
    world.keep(kept).await;
    world.set_fault(None);
    assert!(world.status().await.unwrap().unwrap().looked);
    assert_eq!(world.called("claims"), 1);
    world.lock().listing = Duration::from_secs(30);
    let before = world.now();
    let status = world.status().await.unwrap().unwrap();
    assert!(!status.looked && status.waits[0].reason.code == "workers.api-silent", "{status:?}");
    assert!(status.waits[0].reason.words.starts_with("VMs, nodes and pods"), "{status:?}");
    assert!(world.now() - before <= 301, "it took {} s", world.now() - before);
    // A cancelled command does not wait for that.
    let before = world.now();
    assert_eq!(world.give_for_a_minute(Goal::Continue).await.arrived().0, RunOutcome::Cancelled);
    assert!(world.now() - before < 90, "it took {} s", world.now() - before);
}
