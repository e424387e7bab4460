//! The rollback of nodes one by one, when some are unhealthy on the new image. They go first, for none may leave before
//! they are repaired.

use super::command::{end, entries, give};
use super::failing::{before, stop_before, turns, world};
use super::fake::{Ill, NODES, World, new, old};
use crate::lease::{Lease, TakeOver};
use crate::upgrade::{
    Action, Direction, Entry, Event, IllNodes, Journal, Mode, Order, Outcome, Progress, Reason, Request, Step,
};

/// How a new VM may die that was good.
const DEATHS: [Ill; 3] = [Ill::Silent, Ill::NoEtcd, Ill::NeverGood];

/// Three nodes on the new image, not committed.
async fn upgraded() -> World {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world
}

/// The new VMs of these nodes, by their place in the plan, become unhealthy.
async fn fall_ill(world: &World, nodes: &[(usize, Ill)]) {
    let plan = world.plan_of_journal().await;
    let ill = |name: &'static str| {
        let (_, ill) = nodes.iter().find(|(node, _)| plan.nodes[*node].name == name)?;
        Some((name, *ill))
    };
    world.lock().ill_nodes = Some(NODES.into_iter().filter_map(ill).collect());
}

#[tokio::test(start_paused = true)]
async fn any_unhealthy_node_lets_all_go_back() {
    for node in 0..3 {
        for ill in DEATHS {
            let world = upgraded().await;
            fall_ill(&world, &[(node, ill)]).await;
            assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{node} {ill:?}");
            assert_eq!(world.most_away(), 1, "{node} {ill:?}: the others wait until it is back");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_all_go_back_at_once() {
    for nodes in [[0, 1], [0, 2], [1, 2]] {
        let world = upgraded().await;
        fall_ill(&world, &nodes.map(|node| (node, Ill::NoEtcd))).await;
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{nodes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_nodes_need_more_than_one_witness() {
    for nodes in [[0, 1], [0, 2], [1, 2]] {
        for are_off in [true, false] {
            let world = upgraded().await;
            fall_ill(&world, &nodes.map(|node| (node, Ill::Silent))).await;
            let reason = give(&world, Request::Rollback).await.paused();
            assert!(reason.ends_with("[upgrade.member-unhealthy]"), "{nodes:?}: {reason}");
            assert_eq!(world.called("shut_down") + world.called("cut_power"), 0, "{nodes:?}");
            // That they are off is a proof; at work or not, the operator may say so.
            let verb = if are_off {
                let plan = world.plan_of_journal().await;
                let ids = nodes.map(|node| world.new_vm(&plan.nodes[node].name).reference.id);
                ids.iter().for_each(|id| world.lock().power_off(id));
                Request::Rollback
            } else {
                Request::RollbackAtOnce
            };
            assert_eq!(end(&world, verb).await, Outcome::RolledBack, "{nodes:?} {are_off}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn returning_quorum_makes_nodes_go_one_by_one() {
    let world = upgraded().await;
    fall_ill(&world, &[0, 1, 2].map(|node| (node, Ill::NoEtcd))).await;
    stop_before(&world, Request::Rollback, Step::of(Action::StopNew, 2)).await;
    world.lock().ill_nodes = Some([].into());
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.ends_with("[upgrade.quorum]"), "{reason}");
    assert_eq!(world.called("shut_down") + world.called("cut_power"), 0);
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    assert_eq!(world.most_away(), 1);
}

#[tokio::test(start_paused = true)]
async fn prepared_node_withdraws_after_the_others() {
    for ill in [Ill::NoEtcd, Ill::NeverGood] {
        let world = before(3, Step::of(Action::ShutDown, 2)).await;
        fall_ill(&world, &[(0, ill), (1, ill)]).await;
        assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack, "{ill:?}");
        assert!(world.called("cancel_swap") > 0);
        world.all_run(&old(), false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_node_is_drained_despite_earlier_unhealthy_one() {
    let world = upgraded().await;
    stop_before(&world, Request::Rollback, Step::of(Action::EvacuateNew, 2)).await;
    let plan = world.plan_of_journal().await;
    fall_ill(&world, &[(0, Ill::NoEtcd)]).await;
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.ends_with("[upgrade.member-unhealthy]"), "{reason}");
    let status = give(&world, Request::Resume).await.arrived().1;
    assert_eq!(status.next, Some(Step::of(Action::EvacuateNew, 2)), "it is still to leave");
    world.lock().ill_nodes = Some([].into());
    assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack);
    assert!(world.called("evacuate") >= plan.nodes.len(), "each one is drained");
    world.all_run(&old(), false).await;
}

#[tokio::test(start_paused = true)]
async fn node_unhealthy_during_evacuation_is_stopped() {
    for ill in DEATHS {
        let world = upgraded().await;
        let plan = world.plan_of_journal().await;
        world.lock().stuck = NODES.into_iter().find(|node| *node == plan.nodes[2].name);
        give(&world, Request::Rollback).await.paused();
        assert!(world.called("evacuate") > 0 && world.called("shut_down") == 0);
        fall_ill(&world, &[(2, ill)]).await;
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{ill:?}");
    }
}

/// The defects of two of three nodes while etcd has a quorum.
const PAIRS: [(Ill, Ill); 5] = [
    (Ill::NeverGood, Ill::NeverGood),
    (Ill::NoEtcd, Ill::NeverGood),
    (Ill::Silent, Ill::NeverGood),
    (Ill::NoEndpoint, Ill::NeverGood),
    (Ill::NoEndpoint, Ill::NoEndpoint),
];

#[tokio::test(start_paused = true)]
async fn two_unhealthy_nodes_go_back_one_by_one() {
    for (one, other) in PAIRS {
        for (a, b) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            let world = upgraded().await;
            fall_ill(&world, &[(a, one), (b, other)]).await;
            assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{a}: {one:?}, {b}: {other:?}");
            assert_eq!(world.most_away(), 1, "{a}: {one:?}, {b}: {other:?}");
        }
    }
}

/// A rollback begins, in which these go back together.
fn turned_back(together: &[usize]) -> Event {
    let reason = Reason::new("upgrade.asked", "a test");
    let order = Order::First(IllNodes { together: together.to_vec(), one_by_one: Vec::new() });
    Event::DirectionChanged { direction: Direction::Back, only: None, order, left_out: [].into(), reason }
}

/// As version 0.1 did with nodes that etcd needs.
#[tokio::test(start_paused = true)]
async fn second_rollback_request_resolves_a_deadlock() {
    for (one, other) in PAIRS {
        let world = upgraded().await;
        fall_ill(&world, &[(0, one), (1, other)]).await;
        let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
        Journal::continued(&hold).await.unwrap().append(turned_back(&[1, 0])).await.unwrap();
        hold.release().await;
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.ends_with("[upgrade.member-unhealthy]"), "{one:?}, {other:?}: {reason}");
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{one:?}, {other:?}");
        assert_eq!(world.most_away(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn upgraded_node_that_dies_goes_back_first() {
    for ill in [Ill::Silent, Ill::NoEtcd] {
        let world = before(3, Step::of(Action::Gate, 1)).await;
        fall_ill(&world, &[(0, ill)]).await;
        let reason = give(&world, Request::Resume).await.paused();
        assert!(reason.ends_with("[upgrade.other-node]"), "{reason}");
        assert!(turns(&world).await.is_empty());
        assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{ill:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn second_rollback_request_sees_a_dead_node() {
    for action in [Action::StopNew, Action::AttachOld, Action::GateOld] {
        for resumed in [true, false] {
            let world = upgraded().await;
            stop_before(&world, Request::Rollback, Step::of(action, 2)).await;
            fall_ill(&world, &[(0, Ill::Silent)]).await;
            if resumed {
                give(&world, Request::Resume).await.paused();
            }
            assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack, "{action:?} {resumed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_request_takes_silent_nodes_back() {
    for unaskable in [None, Some(new())] {
        let world = upgraded().await;
        fall_ill(&world, &[0, 1, 2].map(|node| (node, Ill::Silent))).await;
        give(&world, Request::Rollback).await.pauses(&["off by hand", "[upgrade.unreachable]"]);
        world.lock().unaskable.clone_from(&unaskable);
        if unaskable.is_some() {
            // A VM that may be at work and cannot be asked is still left to the operator.
            give(&world, Request::RollbackAtOnce).await.pauses(&["off by hand", "[upgrade.unreachable]"]);
            assert_eq!(world.called("cut_power"), 0);
            let ids: Vec<String> = NODES.iter().map(|node| world.new_vm(node).reference.id).collect();
            ids.iter().for_each(|id| world.lock().power_off(id));
        }
        assert_eq!(end(&world, Request::RollbackAtOnce).await, Outcome::RolledBack);
    }
}

#[tokio::test(start_paused = true)]
async fn first_nodes_are_on_before_one_is_gated() {
    let world = upgraded().await;
    let (plan, mut entries) = (world.plan_of_journal().await, entries(&world).await);
    entries.push(Entry { at: 0, lease: 1, event: turned_back(&[0, 1]) });
    let steps = Progress::of(&plan, &entries).steps(&plan);
    let place = |action, node| steps.iter().position(|step| *step == Step::of(action, node)).unwrap();
    let (on, good) = (Action::PowerOnOld, Action::GateOld);
    assert!(place(on, 0).max(place(on, 1)) < place(good, 0).min(place(good, 1)), "{steps:?}");
    let removed = place(Action::DestroyNew, 0).max(place(Action::DestroyNew, 1));
    assert!(removed < place(Action::EvacuateNew, 2), "{steps:?}");
}
