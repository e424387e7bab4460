//! A node that is lost for good in the middle of an upgrade, and replaced by the operator.

use super::command::{begun, deployment, give, give_with};
use super::fake::fault::{At, Fault};
use super::fake::{Ill, World, new};
use crate::upgrade::{Direction, Mode, Outcome, Request, RunOutcome};

/// Kills the upgrade of three nodes at a call, and replaces cp3, the second one, after it was lost.
pub async fn replaced(call: usize) -> Option<World> {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    let at = At { call, fault: Fault::CutAfter, lasting: false };
    give_with(&world, Request::Resume, None, Some(at)).await;
    // One that is away already: the cluster must not lose a second one.
    if !world.lock().is_served("cp2") || !world.lock().is_served("cp1") {
        return None;
    }
    world.lose("cp3");
    let reason = give(&world, Request::Resume).await.paused();
    assert!(!reason.is_empty());
    world.replace("cp3");
    Some(world)
}

#[tokio::test(start_paused = true)]
async fn replaced_lost_node_is_accepted_on_the_target() {
    let mut figures = (0, 0, 0);
    for call in (10..220).step_by(3) {
        let Some(world) = replaced(call).await else { continue };
        let back = deployment(&world, &|_| {}).status().await.unwrap().direction == Direction::Back;
        let mut given = give(&world, Request::Resume).await.arrived().0;
        if matches!(given, RunOutcome::NodeIsBack(_)) {
            given = give(&world, Request::Resume).await.arrived().0;
        }
        let RunOutcome::Ended(outcome) = given else { panic!("{call}: {given:?}") };
        // A node that was away for another reason may have gone back.
        if back && outcome != Outcome::Upgraded {
            assert_eq!(outcome, Outcome::RolledBack, "{call}");
            figures.2 += 1;
            continue;
        }
        assert_eq!(outcome, Outcome::Upgraded, "{call}");
        assert_eq!(give(&world, Request::Commit).await.outcome(), Outcome::Committed, "{call}");
        assert_eq!(world.images(), ["cp1", "cp2", "cp3"].map(|node| (node, new().version)));
        let state = world.lock();
        assert!(state.contents.iter().all(|content| content.swap.is_none() && !content.cordoned), "{call}");
        let left: Vec<_> =
            state.machines.iter().filter(|machine| machine.ours).map(|machine| &machine.vm.name).collect();
        figures = (figures.0 + 1, figures.1 + usize::from(left.len() > 3), figures.2);
    }
    assert!(figures.0 > 20);
    let (committed, left, back) = figures;
    println!("a lost node, replaced: {committed} points committed ({left} leave a VM of its swap), {back} rolled back");
}

#[tokio::test(start_paused = true)]
async fn others_go_back_after_a_lost_node() {
    let mut back = 0;
    for call in (10..220).step_by(7) {
        let Some(world) = replaced(call).await else { continue };
        assert_eq!(give(&world, Request::Rollback).await.outcome(), Outcome::RolledBack, "{call}");
        back += 1;
    }
    println!("a lost node, replaced: {back} points rolled back by a person");
    assert!(back > 10, "{back}");
}

#[tokio::test(start_paused = true)]
async fn lost_node_without_replacement_ends_by_abandoning() {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    let at = At { call: 100, fault: Fault::CutAfter, lasting: false };
    give_with(&world, Request::Resume, None, Some(at)).await;
    world.lose("cp3");
    give(&world, Request::Resume).await.paused();
    assert_eq!(give(&world, Request::Abandon).await.outcome(), Outcome::Abandoned);
    world.replace("cp3");
    let refusals = super::stamp::refusals(&world).await;
    assert!(refusals.is_empty() || refusals == ["upgrade.vm-name"], "{refusals:?}");
}
