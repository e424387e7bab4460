//! A store that hangs: a command that needs it to continue asks it no oftener than a waiting one. Each question may be
//! a search of a datastore.

use std::time::Duration;

use super::command::deployment;
use super::failing;
use super::fake::Ill;
use crate::lease::{Lease, TakeOver};
use crate::upgrade::entry::Event;
use crate::upgrade::journal::Journal;
use crate::upgrade::step_error::StepError;
use crate::upgrade::{Deployment, Mode, Notice, Outcome, Request, RunOutcome};

#[tokio::test(start_paused = true)]
async fn entry_retries_a_hanging_store_once_a_minute() {
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let deployment = Deployment { pause_limit: Duration::from_secs(600), ..deployment(&world, &|_| {}) };
    let mut journal = Journal::continued(&hold).await.unwrap();
    world.lock().store_hangs = true;
    let event = Event::Ended { outcome: Outcome::Abandoned };
    let noted = deployment.run(&hold, None).note(&mut journal, event.clone()).await;
    assert!(matches!(noted, Err(StepError::JournalUnwritable(_))), "{noted:?}");
    let asked = std::mem::take(&mut world.lock().asked_in_vain);
    assert!((2..=11).contains(&asked), "{asked} questions in ten minutes");
    // Once it answers again, so does the next one.
    world.lock().store_hangs = false;
    deployment.run(&hold, None).note(&mut journal, event).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn step_retries_a_hanging_store_once_a_minute() {
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    let hangs = |notice: &Notice<'_>| world.lock().store_hangs |= matches!(notice, Notice::Step { .. });
    let deployment = Deployment { pause_limit: Duration::from_secs(600), ..deployment(&world, &hangs) };
    let (arrived, _) = deployment.go_on(Request::Resume, None, TakeOver::FromTheDead).await.unwrap();
    assert!(matches!(arrived, RunOutcome::Paused(_)), "{arrived:?}");
    let asked = world.lock().asked_in_vain;
    // One more to show the cluster how it ends.
    assert!((2..=14).contains(&asked), "{asked} questions in ten minutes");
}
