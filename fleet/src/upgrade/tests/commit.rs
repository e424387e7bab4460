//! The commit of a swap names it: a late request must not find the next one.

use super::command::{Given, end, give, give_with};
use super::failing::world;
use super::fake::Ill;
use super::fake::fault::{At, Fault};
use crate::upgrade::{Mode, Outcome, Request};

#[tokio::test(start_paused = true)]
async fn node_with_a_final_swap_gets_no_request() {
    let upgraded = async || {
        let world = world(1, Mode::Rolling, Ill::Well).await;
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
        world
    };
    let twin = upgraded().await;
    give(&twin, Request::Commit).await.arrived();
    let call = twin.calls().iter().position(|call| call.name == "commit").expect("a commit") + 1;
    let world = upgraded().await;
    let at = At { call, fault: Fault::CutAfter, lasting: false };
    assert!(matches!(give_with(&world, Request::Commit, None, Some(at)).await, Given::Killed));
    let given = give(&world, Request::Commit).await;
    assert_eq!(world.called("commit"), 0, "it is done, and nobody can name it");
    assert_eq!(given.outcome(), Outcome::Committed);
}

#[tokio::test(start_paused = true)]
async fn look_before_commit_lists_no_vms() {
    let world = world(3, Mode::Rolling, Ill::Well).await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    world.lock().members_shown = Some(2);
    give(&world, Request::Commit).await.pauses(&["cp2 to be good", "etcd has 2 members"]);
    assert!(world.called("with_bios_uuid") > 10, "it looks again and again");
    assert_eq!(world.called("vms"), 0);
    world.lock().members_shown = None;
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
}
