//! A command that is asked to end, at any moment: it ends soon, at a point at which it can be continued.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::command::{begun, deployment, end, entries, give};
use super::failing;
use super::fake::{Ill, World};
use crate::Cancelled;
use crate::lease::{Lease, REACH, TakeOver};
use crate::upgrade::step_error::StepError;
use crate::upgrade::{
    Action, Deployment, KubernetesOptions, Mode, Notice, Outcome, Request, RunOutcome, Step, UpgradeStatus,
};

/// A world at the beginning of a way.
async fn world(nodes: usize, mode: Mode, ill: Ill, verb: Request) -> World {
    let world = begun(nodes, mode, ill).await;
    if verb != Request::Resume {
        assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    }
    world
}

/// Gives a command that is asked to end at a call. Returns how many calls it has made in all, and how long it took
/// after that.
async fn cancelled(world: &World, verb: Request, call: usize) -> (anyhow::Result<(RunOutcome, UpgradeStatus)>, usize) {
    world.fault(None);
    let (cancel, cancelled) = watch::channel(false);
    world.lock().faults.cancel = Some((call, cancel));
    let deployment = Deployment { cancelled, ..deployment(world, &|_| {}) };
    let gone = deployment.go_on(verb, None, TakeOver::FromTheDead).await;
    world.lock().faults.cancel = None;
    (gone, world.calls().len())
}

/// Asks a command to end at every call that it makes, and then continues. Returns how often that was.
async fn everywhere(nodes: usize, mode: Mode, ill: Ill, verb: Request, then: Request, ends: &[Outcome]) -> usize {
    let mut most = 0;
    for call in 1.. {
        let world = world(nodes, mode, ill, verb).await;
        let (gone, calls) = cancelled(&world, verb, call).await;
        let told = format!("{nodes} {mode:?} {ill:?} {verb:?} then {then:?}, asked at call {call} of {calls}");
        if calls < call {
            println!("{told}: at most {most} calls followed");
            return call - 1;
        }
        match gone {
            Err(error) if error.is::<Cancelled>() => {
                let last = world.store().holds.into_values().next_back().unwrap();
                let given_back = last.contains_key("released") || last.contains_key("withdrawn");
                assert!(given_back, "{told}: {last:?}");
            }
            gone => {
                let (arrived, status) = gone.unwrap_or_else(|error| panic!("{told}: {error:#}"));
                assert!(matches!(arrived, RunOutcome::Cancelled | RunOutcome::Ended(_)), "{told}: {arrived:?}");
                assert_eq!(status.entries, entries(&world).await, "{told}");
            }
        }
        most = most.max(calls - call);
        let outcome = end(&world, then).await;
        assert!(ends.contains(&outcome), "{told}: {outcome:?}");
        assert!(nodes == 1 || mode == Mode::AllAtOnce || world.most_away() <= 1, "{told}");
    }
    unreachable!()
}

const BOTH: [Outcome; 2] = [Outcome::Upgraded, Outcome::RolledBack];

#[tokio::test(start_paused = true)]
async fn one_node_upgrade_cancelled_at_any_call() {
    let (roll, well) = (Mode::Rolling, Ill::Well);
    let mut points = everywhere(1, roll, well, Request::Resume, Request::Resume, &BOTH[..1]).await;
    points += everywhere(1, roll, well, Request::Resume, Request::Rollback, &BOTH).await;
    points += everywhere(1, roll, well, Request::Rollback, Request::Rollback, &BOTH[1..]).await;
    points += everywhere(1, roll, well, Request::Commit, Request::Commit, &[Outcome::Committed]).await;
    points += everywhere(1, roll, Ill::NeverGood, Request::Resume, Request::Resume, &BOTH[1..]).await;
    println!("one node, asked to end: {points} points");
    assert!(points > 300, "{points}");
}

#[tokio::test(start_paused = true)]
async fn three_node_upgrade_cancelled_at_any_call() {
    let mut points = everywhere(3, Mode::Rolling, Ill::Well, Request::Resume, Request::Resume, &BOTH[..1]).await;
    points += everywhere(3, Mode::AllAtOnce, Ill::Well, Request::Resume, Request::Rollback, &BOTH).await;
    println!("three nodes, asked to end: {points} points");
    assert!(points > 300, "{points}");
}

/// Gives a command that is asked to end after this time. It then ends within seconds.
pub async fn asked_to_end<T>(
    world: &World,
    after: Duration,
    watch: &(dyn Fn(&Notice<'_>) + Sync),
    command: impl AsyncFnOnce(&Deployment<'_>) -> T,
) -> T {
    let (cancel, cancelled) = watch::channel(false);
    let deployment = Deployment { cancelled, ..deployment(world, watch) };
    let asks = async {
        tokio::time::sleep(after).await;
        cancel.send_replace(true);
        Instant::now()
    };
    let both = async { tokio::join!(command(&deployment), asks) };
    let ended = tokio::time::timeout(Duration::from_secs(24 * 3600), both).await;
    let (gone, asked) = ended.expect("it hangs with what it waits for");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    gone
}

/// Until then, the command before it has ended without releasing the lease.
pub const TAKEN_OVER: Duration = REACH.saturating_mul(2);

#[tokio::test(start_paused = true)]
async fn cancelled_wait_ends_within_seconds() {
    let resume = async |world: &World, over: TakeOver| {
        let after = Duration::from_secs(10);
        asked_to_end(world, after, &|_| {}, async |asked| asked.go_on(Request::Resume, None, over).await).await
    };
    // Pods that do not move away.
    let world = failing::world(3, Mode::Rolling, Ill::Well).await;
    world.lock().stuck = Some("cp2");
    assert_eq!(resume(&world, TakeOver::FromTheDead).await.unwrap().0, RunOutcome::Cancelled);
    // A node that never sends its snapshot.
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    world.lock().no_snapshot = true;
    assert_eq!(resume(&world, TakeOver::FromTheDead).await.unwrap().0, RunOutcome::Cancelled);
    world.lock().no_snapshot = false;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
    // A command that is at work elsewhere.
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    let alive = Lease::acquire(&world, "elsewhere", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let error = resume(&world, TakeOver::FromAnyone).await.unwrap_err();
    assert!(error.is::<Cancelled>(), "{error:#}");
    alive.release().await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn cancelled_command_waits_for_no_hanging_store() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let (cancel, cancelled) = watch::channel(false);
    let asked = Deployment { cancelled, ..deployment(&world, &|_| {}) };
    let context = asked.context(&hold, None);
    hold.forget();
    world.lock().store_hangs = true;
    let begun = Instant::now();
    let asks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.send_replace(true);
    };
    let (may, ()) = tokio::join!(context.may_go_on(), asks);
    assert!(matches!(may, Err(StepError::Cancelled)), "{may:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(matches!(context.may_go_on().await, Err(StepError::Cancelled)));
}

/// The end of a command that is asked to end once it may have the lease.
async fn cancelled_later(world: &World, verb: Request) -> RunOutcome {
    let over = TakeOver::FromTheDead;
    let gone = asked_to_end(world, TAKEN_OVER, &|_| {}, async |asked| asked.go_on(verb, None, over).await);
    gone.await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn cancelled_command_ends_while_tasks_are_unknown() {
    for (verb, ends) in [
        (Request::Resume, Outcome::Upgraded),
        (Request::Rollback, Outcome::RolledBack),
        (Request::Abandon, Outcome::Abandoned),
    ] {
        let world = failing::before(3, Step::of(Action::PowerOn, 0)).await;
        world.lock().settling_hangs = true;
        assert_eq!(cancelled_later(&world, verb).await, RunOutcome::Cancelled, "{verb:?}");
        world.lock().settling_hangs = false;
        // No cluster runs one image alone if it ends where it is.
        let ended =
            if ends == Outcome::Abandoned { give(&world, verb).await.outcome() } else { end(&world, verb).await };
        assert_eq!(ended, ends, "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_command_ends_while_vms_are_unknown() {
    for (verb, ends) in [(Request::Resume, Outcome::Upgraded), (Request::Rollback, Outcome::RolledBack)] {
        let world = failing::before(3, Step::of(Action::PowerOn, 0)).await;
        world.lock().inventory_hangs = true;
        assert_eq!(cancelled_later(&world, verb).await, RunOutcome::Cancelled, "{verb:?}");
        world.lock().inventory_hangs = false;
        assert_eq!(end(&world, verb).await, ends, "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_command_without_lease_has_made_nothing() {
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    let before = world.store().holds;
    world.lock().listing_hangs = true;
    let (after, over) = (Duration::from_secs(10), TakeOver::FromAnyone);
    let taken = asked_to_end(&world, after, &|_| {}, async |asked| asked.take(over).await.map(drop));
    let error = taken.await.unwrap_err();
    assert!(error.is::<Cancelled>(), "{error:#}");
    assert_eq!(world.store().holds, before);
}

#[tokio::test(start_paused = true)]
async fn cancelled_acquisition_says_that_nothing_was_begun() {
    let world = failing::world(1, Mode::Rolling, Ill::Well).await;
    let alive = Lease::acquire(&world, "elsewhere", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    // Its own directory exists then, and a faster command can no longer be seen.
    let hangs = |notice: &Notice<'_>| world.lock().listing_hangs |= matches!(notice, Notice::TakingOver { .. });
    let over = TakeOver::FromAnyone;
    let taken = asked_to_end(&world, TAKEN_OVER, &hangs, async |asked| asked.take(over).await.map(drop));
    let error = taken.await.unwrap_err();
    assert!(error.is::<Cancelled>(), "{error:#}");
    let (number, last) = world.store().holds.into_iter().next_back().unwrap();
    assert!(number > alive.number() && last.contains_key("withdrawn"), "{number}: {last:?}");
    world.lock().listing_hangs = false;
    alive.release().await;
    assert_eq!(end(&world, Request::Resume).await, Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn cancelled_kubernetes_upgrade_is_continued() {
    for call in 1.. {
        let world = World::of(3, Mode::Rolling, Ill::Well);
        let (cancel, cancelled) = watch::channel(false);
        world.lock().faults.cancel = Some((call, cancel));
        let options =
            KubernetesOptions { to: Some("1.36".to_owned()), drain_seconds: 1, limit: Duration::from_secs(30) };
        let asked = Deployment { cancelled, ..deployment(&world, &|_| {}) };
        let gone = asked.upgrade_kubernetes(&options, TakeOver::FromTheDead).await;
        let calls = world.calls().len();
        world.lock().faults.cancel = None;
        if calls < call {
            assert!(call > 40, "{call}");
            return;
        }
        match gone {
            Err(error) if error.is::<Cancelled>() => {
                let again = deployment(&world, &|_| {}).upgrade_kubernetes(&options, TakeOver::FromTheDead).await;
                // Asked during the last look, all nodes may run it.
                let done = |error: &anyhow::Error| error.to_string().contains("upgrade.nothing-to-do");
                assert!(again.as_ref().err().is_none_or(done), "{call}: {again:?}");
            }
            gone => drop(gone.unwrap_or_else(|error| panic!("{call}: {error:#}"))),
        }
        assert!(world.lock().contents.iter().all(|content| content.kubernetes == "1.36.3"), "{call}");
    }
}
