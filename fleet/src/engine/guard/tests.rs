//! A call that lasts asks again and again: how long the answer before is valid if there is no new one.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::watch;

use super::*;
use crate::lease::{REACH, TakeOver};
use crate::upgrade::Mode;
use crate::upgrade::tests::fake::fault::{At, Fault};
use crate::upgrade::tests::fake::{Ill, World};

/// How long a confirmation is good here.
const WINDOW: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn lost_store_answer_ends_no_freshly_confirmed_call() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let say = |_: &str| {};
    let hold = Lease::take_with(&world, "a test", TakeOver::FromTheDead, &say, WINDOW, Duration::ZERO).await.unwrap();
    let guarded = GuardedHypervisor::new(&world, &hold, None);
    let silent = || world.fault(Some(At { call: 1, fault: Fault::Error(ErrorKind::Transient), lasting: true }));
    let (begun, not_begun) = (guarded.call(), guarded.call());
    begun.still().await.unwrap();
    silent();
    assert_eq!(not_begun.still().await.unwrap_err().kind, ErrorKind::Transient);
    begun.still().await.expect("the answer before is good");
    std::thread::sleep(WINDOW);
    assert_eq!(begun.still().await.unwrap_err().kind, ErrorKind::InDoubt);
    // Once the store answers again, the call goes on. An overtaken command learns that however fresh the answer before
    // is.
    world.fault(None);
    begun.still().await.unwrap();
    world.overtake();
    assert_eq!(begun.still().await.unwrap_err().kind, ErrorKind::Fenced);
}

#[tokio::test(start_paused = true)]
async fn hanging_store_ends_a_question_once_useless() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let guarded = GuardedHypervisor::new(&world, &hold, None);
    let (begun, not_begun) = (guarded.call(), guarded.call());
    begun.still().await.unwrap();
    world.lock().store_hangs = true;
    // A call that has begun still has a valid answer, but its question is still under way where its request would be.
    assert!(hold.is_fresh());
    for (call, kind) in [(not_begun, ErrorKind::Transient), (begun, ErrorKind::InDoubt)] {
        let asked = tokio::time::Instant::now();
        let still = tokio::time::timeout(REACH, call.still()).await;
        let error = still.expect("it ends long before a successor begins").unwrap_err();
        assert_eq!((error.kind, error.source.is::<Unconfirmed>()), (kind, true), "{error}");
        assert!(format!("{:#}", error.source).ends_with("the store did not answer within 10 s"), "{error}");
        assert!(asked.elapsed() >= crate::lease::WINDOW);
        // A caller that would ask again leaves the store alone for most of a minute.
        assert!(guarded.call().rest() > crate::lease::WINDOW);
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_stops_its_pause() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let (cancel, cancelled) = watch::channel(false);
    let call = GuardedHypervisor::new(&world, &hold, Some(&cancelled)).call();
    let minute = Duration::from_secs(60);
    assert!(call.rests(minute).await);
    cancel.send_replace(true);
    let asked = tokio::time::Instant::now();
    assert!(!call.rests(minute).await && asked.elapsed() < minute);
}

/// The former holder knows that it has lost the lease: no command would have it.
#[tokio::test(start_paused = true)]
async fn takeover_waits_for_a_stalled_store() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    world.lock().store_hangs = true;
    let again = async {
        tokio::time::sleep(crate::lease::WINDOW * 3 / 2).await;
        world.lock().store_hangs = false;
    };
    let (hold, ()) = tokio::join!(Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}), again);
    hold.unwrap().confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cancelling_drops_a_call_only_before_its_permit() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let lasts = Duration::from_secs(60);
    for permitted in [false, true] {
        let (cancel, cancelled) = watch::channel(false);
        let call = GuardedHypervisor::new(&world, &hold, Some(&cancelled)).call();
        let work = async {
            if permitted {
                call.still().await.unwrap();
            }
            tokio::time::sleep(lasts).await;
        };
        let asks = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.send_replace(true);
        };
        let begun = tokio::time::Instant::now();
        let (done, ()) = tokio::join!(guarded(&call, Box::pin(work)), asks);
        assert_eq!((done.is_ok(), begun.elapsed() >= lasts), (permitted, permitted));
    }
}

#[tokio::test(start_paused = true)]
async fn note_before_the_last_look_permits_nothing() {
    let world = World::of(1, Mode::Rolling, Ill::Well);
    let hold = Lease::acquire(&world, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let guarded = GuardedHypervisor::new(&world, &hold, None);
    let notes = AtomicUsize::new(0);
    let note = || -> Noting<'_> {
        Box::pin(async {
            notes.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    };
    let call = guarded.call().noting(&note);
    call.prepare().await.unwrap();
    assert_eq!((notes.load(Ordering::Relaxed), call.is_begun()), (1, false));
    call.still().await.unwrap();
    assert_eq!((notes.load(Ordering::Relaxed), call.is_begun()), (1, true));
}
