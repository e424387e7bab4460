//! A store that hangs: who cannot go on without it asks it no oftener than who only waits.

use super::fake::World;
use crate::workers::Goal;

#[tokio::test(start_paused = true)]
async fn who_cannot_go_on_asks_a_store_that_hangs_once_a_minute() {
    let world = World::with(1).await;
    world.lock().hangs_from = Some("add");
    // It waits for twenty minutes.
    let given = world.give(Goal::Add(1)).await;
    let asked = world.lock().asked_in_vain;
    assert!((2..=25).contains(&asked), "{asked} questions: {given:?}");
}
