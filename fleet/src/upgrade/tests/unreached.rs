//! A rollback while the nodes cannot be seen from where the command is: an unseen node does not count as unhealthy.

use super::command::{end, give};
use super::failing::{before, stop_before, turns, world};
use super::fake::{Ill, NODES, World, new};
use crate::upgrade::{Action, Mode, Outcome, Request, Step};

async fn upgraded(nodes: usize, mode: Mode) -> World {
    let world = world(nodes, mode, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world
}

#[tokio::test(start_paused = true)]
async fn unreachable_nodes_are_not_stopped() {
    for mode in [Mode::Rolling, Mode::AllAtOnce] {
        let world = upgraded(3, mode).await;
        world.lock().unreached = NODES.into();
        // All at once none is drained; power is not cut then.
        world.lock().unaskable = (mode == Mode::AllAtOnce).then(new);
        let reason = give(&world, Request::Rollback).await.paused();
        assert!(reason.ends_with("[upgrade.unreachable]"), "{reason}");
        assert!(NODES.iter().all(|node| world.lock().is_served(node)));
        world.lock().unreached.clear();
        world.lock().unaskable = None;
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_node_needed_for_quorum_is_not_stopped() {
    let world = upgraded(3, Mode::Rolling).await;
    // It is at work, though it is not seen; before it is stopped, another one dies.
    world.lock().unreached.insert("cp1");
    let cp1 = world.plan_of_journal().await.nodes.iter().position(|node| node.name == "cp1").unwrap();
    stop_before(&world, Request::Rollback, Step::of(Action::StopNew, cp1)).await;
    world.lock().sick.insert("cp3");
    give(&world, Request::Resume).await.pauses(&["etcd has a quorum without cp1"]);
    assert_eq!(world.called("shut_down") + world.called("cut_power"), 0);
    world.lock().sick.clear();
    // The others say that it may go; that it is healthy on the old image it has to say itself.
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.contains("cp1 to be healthy") && world.called("shut_down") == 1, "{reason}");
    world.lock().unreached.clear();
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn node_without_etcd_goes_before_silent_one() {
    let world = upgraded(3, Mode::Rolling).await;
    world.lock().unreached.insert("cp1");
    world.lock().sick.insert("cp3");
    give(&world, Request::Rollback).await.pauses(&["cp3 to be healthy"]);
    assert!(world.lock().is_served("cp1") && world.called("shut_down") == 1);
    world.lock().unreached.clear();
    world.lock().sick.clear();
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn rejected_client_certificate_rolls_no_node_back() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lock().refusing = NODES.into();
    give(&world, Request::Resume).await.pauses(&["403", "[upgrade.unreachable]"]);
    assert!(turns(&world).await.is_empty());
    world.lock().refusing.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn only_node_answering_with_errors_stays_on() {
    let world = upgraded(1, Mode::Rolling).await;
    world.lock().refusing.insert("cp1");
    give(&world, Request::Rollback).await.pauses(&["it may be serving"]);
    assert_eq!(world.called("shut_down"), 0);
    world.lock().refusing.clear();
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn guest_answering_with_errors_keeps_power() {
    let world = upgraded(1, Mode::AllAtOnce).await;
    world.lock().refusing.insert("cp1");
    world.lock().unaskable = Some(new());
    let reason = give(&world, Request::Rollback).await.paused();
    assert!(reason.ends_with("[upgrade.vm-unaskable]"), "{reason}");
    assert_eq!(world.called("cut_power"), 0);
}
