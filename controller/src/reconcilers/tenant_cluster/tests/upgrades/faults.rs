//! Calls fail and controllers die in an upgrade: in the end the state is the declared one.

use super::*;

/// From an image in the spec to its commit.
async fn story(world: &World, what: &str) {
    world.goes_to(NEW);
    world.until_all_run(NEW, what).await;
    assert_eq!(world.operations().len(), 1, "{what}");
}

#[tokio::test(start_paused = true)]
async fn lost_answers_in_an_upgrade_are_harmless() {
    let (calls, before, changes) = {
        let world = World::upgradable().await;
        let (calls, before) = (world.api.calls(), world.place.lock().changes.len());
        story(&world, "nothing goes wrong").await;
        let after = world.place.lock().changes.len();
        (world.api.calls() - calls, before, after)
    };
    assert!(calls > 500 && changes > before + 20, "{calls} {before} {changes}");
    let of_call = |call: usize| [Fault::NotDone, Fault::Done, Fault::Changed].map(|fault| (call, fault));
    let points: Vec<_> = (0..calls).flat_map(of_call).collect();
    for (call, fault) in drawn_seldom("answers of the API server in an upgrade", points) {
        let world = World::upgradable().await;
        world.api.fails_at(call, fault);
        story(&world, &format!("{fault:?} at call {call}")).await;
    }
    for call in before..changes {
        for fault in [place::Fault::Fails, place::Fault::Lost] {
            let world = World::upgradable().await;
            world.place.lock().fault = Some((call, fault));
            story(&world, &format!("{fault:?} at change {call}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_controller_continues_an_upgrade_or_rollback() {
    for to in [NEW, FORMER] {
        let prepared = async || {
            let world = World::upgradable().await;
            world.goes_to(NEW);
            if to == FORMER {
                world.until("on the new image", |world| world.up_to_date() == "AwaitingCommit").await;
                world.goes_to(FORMER);
            }
            world
        };
        whichever_call_a_controller_dies_at(to, prepared, |world, what| world.all_run(to, what)).await;
    }
}
