//! A node at its gate, and another one that is lost or unhealthy meanwhile: which of them is at fault.

use std::time::Duration;

use super::command::{begun, deployment, end, give};
use super::failing::{before, stop_before, turns};
use super::fake::{Ill, World};
use crate::upgrade::{Action, Direction, Mode, Outcome, Request, Step};

#[tokio::test(start_paused = true)]
async fn node_stays_while_another_one_is_unhealthy() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lock().sick.insert("cp3");
    give(&world, Request::Resume).await.pauses(&["cp3 is unhealthy", "[upgrade.other-node]"]);
    assert!(turns(&world).await.is_empty(), "it would not be found good on the old image either");
    world.lock().sick.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn node_stays_while_another_one_is_lost() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lose("cp3");
    give(&world, Request::Resume).await.pauses(&["cp3 does not answer", "[upgrade.other-node]"]);
    assert!(turns(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn silent_node_goes_back_whatever_others_do() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lock().sick.insert("cp3");
    world.lock().ill = Ill::Silent;
    give(&world, Request::Resume).await;
    let turned = turns(&world).await;
    assert!(matches!(turned[..], [(Direction::Back, None, _)]) && turned[0].2.contains("cp2: "), "{turned:?}");
}

/// All nodes are swapped at once, up to the gate of one of them.
async fn at_the_gate_of(node: usize) -> World {
    let world = begun(3, Mode::AllAtOnce, Ill::Well).await;
    stop_before(&world, Request::Resume, Step::of(Action::Gate, node)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn at_once_node_lost_after_gate_stays() {
    let world = at_the_gate_of(1).await;
    world.lock().sick.insert("cp2");
    give(&world, Request::Resume).await.pauses(&["cp2 is unhealthy", "[upgrade.other-node]"]);
    assert!(turns(&world).await.is_empty());
    world.lock().sick.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn at_once_node_lost_before_gate_goes_back() {
    let world = at_the_gate_of(0).await;
    world.lock().sick.insert("cp3");
    give(&world, Request::Resume).await;
    assert_eq!(deployment(&world, &|_| {}).status().await.unwrap().direction, Direction::Back);
    world.lock().sick.clear();
    assert_eq!(end(&world, Request::Resume).await, Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn time_with_another_unhealthy_node_does_not_count() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lock().sick.insert("cp3");
    world.lock().ill = Ill::NeverGood;
    let mended = async {
        // Of 120 s, none is spent when the other one is healthy again.
        tokio::time::sleep(Duration::from_secs(100)).await;
        world.lock().sick.clear();
        tokio::time::sleep(Duration::from_secs(80)).await;
        world.lock().ill = Ill::Well;
    };
    let (given, ()) = tokio::join!(give(&world, Request::Resume), mended);
    assert_eq!(given.outcome(), Outcome::Upgraded);
    assert!(turns(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn single_missing_answer_excuses_no_node() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    world.lock().ill = Ill::NeverGood;
    let lost = async {
        tokio::time::sleep(Duration::from_millis(118_500)).await;
        world.lock().unreached.insert("cp3");
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.lock().unreached.clear();
    };
    let (given, ()) = tokio::join!(give(&world, Request::Resume), lost);
    assert_eq!(given.outcome(), Outcome::RolledBack);
}

#[tokio::test(start_paused = true)]
async fn healthy_cordoned_node_does_not_go_back() {
    let world = before(3, Step::of(Action::Gate, 0)).await;
    let cordon = |cordoned| {
        world.lock().contents.iter_mut().filter(|content| content.node == "cp2").for_each(|c| c.cordoned = cordoned);
    };
    cordon(true);
    let reason = give(&world, Request::Resume).await.paused();
    assert!(reason.ends_with("[upgrade.node-cordoned]"), "{reason}");
    assert!(turns(&world).await.is_empty());
    cordon(false);
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}
