//! A call that lasts asks again and again: how long the answer before is good when nobody answers.

use std::time::Duration;

use super::*;
use crate::authority::TakeOver;
use crate::upgrade::Mode;
use crate::upgrade::tests::fake::fault::{At, Fault};
use crate::upgrade::tests::fake::{Ill, World};

/// How long a confirmation is good here.
const WINDOW: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_the_store_ends_no_call_that_has_begun_while_the_one_before_is_good() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let say = |_: &str| {};
    let hold = Hold::take_with(&world, "a test", TakeOver::FromTheDead, &say, WINDOW, Duration::ZERO).await.unwrap();
    let guarded = GuardedHypervisor::new(&world, &hold);
    let silent = || world.fault(Some(At { call: 1, fault: Fault::Error(Kind::Transient), lasting: true }));
    let (begun, not_begun) = (guarded.call(), guarded.call());
    begun.still().await.unwrap();
    silent();
    assert_eq!(not_begun.still().await.unwrap_err().kind, Kind::Transient);
    begun.still().await.expect("the answer before is good");
    std::thread::sleep(WINDOW);
    assert_eq!(begun.still().await.unwrap_err().kind, Kind::InDoubt);
    // Once somebody answers again, it goes on; who was overtaken hears that however fresh the answer before is.
    world.fault(None);
    begun.still().await.unwrap();
    world.overtake();
    assert_eq!(begun.still().await.unwrap_err().kind, Kind::Fenced);
}
