//! A store that hangs: a command that cannot continue without it asks it no more often than one that only waits.

use super::fake::World;
use crate::workers::Goal;

#[tokio::test(start_paused = true)]
async fn a_hanging_store_is_asked_once_a_minute() {
    let world = World::with(1).await;
    world.lock().hangs_from = Some("add");
    // It waits for twenty minutes.
    let given = world.give(Goal::Add(1)).await;
    let asked = world.lock().asked_in_vain;
    assert!((2..=25).contains(&asked), "{asked} questions: {given:?}");
}
