//! The commit of a swap names it: a request that comes late must not find the next one.

use super::command::{Given, end, give, give_with};
use super::failing::world;
use super::fake::Ill;
use super::fake::fault::{At, Fault};
use crate::upgrade::{Mode, Outcome, Verb};

#[tokio::test(start_paused = true)]
async fn a_node_whose_swap_is_final_already_is_asked_for_nothing() {
    let upgraded = async || {
        let world = world(1, Mode::Rolling, Ill::Well).await;
        assert_eq!(end(&world, Verb::Resume).await, Outcome::Upgraded);
        world
    };
    let twin = upgraded().await;
    give(&twin, Verb::Commit).await.arrived();
    let call = twin.calls().iter().position(|call| call.name == "commit").expect("a commit") + 1;
    let world = upgraded().await;
    let at = At { call, fault: Fault::CutAfter, lasting: false };
    assert!(matches!(give_with(&world, Verb::Commit, None, Some(at)).await, Given::Killed));
    let given = give(&world, Verb::Commit).await;
    assert_eq!(world.called("commit"), 0, "it is done, and nobody can name it");
    assert_eq!(given.outcome(), Outcome::Committed);
}
