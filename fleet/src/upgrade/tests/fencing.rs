//! Two commands on one deployment: an overtaken one does nothing more, also after it was frozen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::command::{begun, deployment, end, entries, give};
use super::fake::fault::CallKind;
use super::fake::{Ill, World};
use crate::lease::{Lease, Lost, Store, TakeOver};
use crate::upgrade::{Deployment, Journal, KubernetesOptions, Mode, Outcome, Request, RunOutcome};

/// How long a confirmation is good here.
const WINDOW: Duration = Duration::from_millis(20);

/// A store whose n-th answer comes only after its asker was woken up.
struct Freezing<'a> {
    world: &'a World,
    left: AtomicUsize,
    frozen: AtomicBool,
    freezes: Notify,
    wakes: Notify,
}

impl<'a> Freezing<'a> {
    fn after(world: &'a World, calls: usize) -> Self {
        let left = AtomicUsize::new(calls);
        Self { world, left, frozen: AtomicBool::new(false), freezes: Notify::new(), wakes: Notify::new() }
    }

    /// The answer has arrived; the caller may be frozen before it sees it.
    async fn answer<T>(&self, answer: T) -> T {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1) {
            self.frozen.store(true, Ordering::SeqCst);
            self.freezes.notify_one();
            self.wakes.notified().await;
        }
        answer
    }
}

#[async_trait]
impl Store for Freezing<'_> {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        self.answer(self.world.numbers().await).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        self.answer(self.world.exists(number).await).await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.answer(Store::remove(self.world, number).await).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.answer(self.world.make(number).await).await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.answer(self.world.read(number, file).await).await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        self.answer(self.world.write(number, file, text).await).await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.answer(self.world.files(number).await).await
    }
}

/// A command on a store that may freeze it.
async fn command(world: &World, store: &Freezing<'_>, verb: Request) -> anyhow::Result<RunOutcome> {
    let hold = Lease::take_with(store, "a test", TakeOver::FromAnyone, &|_| {}, WINDOW, Duration::ZERO).await?;
    let mut journal = Journal::continued(&hold).await?;
    let deployment = Deployment { store, ..deployment(world, &|_| {}) };
    let run = deployment.run(&hold, None);
    assert_eq!(run.ask(&mut journal, verb).await?, None);
    let gone = run.go(&mut journal).await;
    run.show_last(&journal).await;
    hold.release().await;
    gone
}

/// The calls that change something.
fn changes(world: &World) -> usize {
    world.calls().iter().filter(|call| matches!(call.kind, CallKind::Change | CallKind::Do)).count()
}

#[tokio::test(start_paused = true)]
async fn frozen_and_overtaken_command_does_nothing_more() {
    for calls in 1.. {
        let world = begun(1, Mode::Rolling, Ill::Well).await;
        let store = Freezing::after(&world, calls);
        let mut frozen = Box::pin(command(&world, &store, Request::Resume));
        tokio::select! {
            biased;
            () = store.freezes.notified() => {}
            ended = &mut frozen => {
                assert_eq!(ended.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
                assert!(calls > 40, "{calls}");
                println!("frozen at {} answers of the store, overtaken, woken up: nothing more was done", calls - 1);
                return;
            }
        }
        std::thread::sleep(WINDOW + Duration::from_millis(2));
        // The other one takes over, and rolls everything back.
        let (arrived, _) =
            deployment(&world, &|_| {}).go_on(Request::Rollback, None, TakeOver::FromAnyone).await.unwrap();
        assert_eq!(arrived, RunOutcome::Ended(Outcome::RolledBack), "{calls}");
        let (journal, published) = (entries(&world).await, world.lock().published.clone());
        world.fault(None);
        store.wakes.notify_one();
        let woken = frozen.await;
        assert_eq!(changes(&world), 0, "{calls}: {:?}", world.calls());
        let done = |arrived: &anyhow::Result<RunOutcome>| matches!(arrived, Ok(RunOutcome::Ended(_)));
        let ended = journal.iter().filter(|entry| entry.lease == 1).count();
        match &woken {
            Err(error) => {
                let named = ["taken", "holds the lease"].iter().any(|word| error.to_string().contains(word));
                assert!(error.is::<Lost>() || named, "{calls}: {error:#}");
            }
            // Its last word was said before it was frozen.
            woken => assert!(done(woken), "{calls}: {woken:?} {ended}"),
        }
        assert_eq!(entries(&world).await, journal, "{calls}");
        assert_eq!(world.lock().published, published, "{calls}: what people see is the other's journal");
    }
}

#[tokio::test(start_paused = true)]
async fn overtaken_kubernetes_upgrade_asks_no_further_node() {
    let options = KubernetesOptions { to: Some("1.36".to_owned()), drain_seconds: 1, limit: Duration::from_secs(30) };
    for calls in 1.. {
        let world = World::of(2, Mode::Rolling, Ill::Well);
        let store = Freezing::after(&world, calls);
        let command = async {
            let hold =
                Lease::take_with(&store, "a test", TakeOver::FromAnyone, &|_| {}, WINDOW, Duration::ZERO).await?;
            let deployment = Deployment { store: &store, ..deployment(&world, &|_| {}) };
            let gone = deployment.upgrade_kubernetes_under(&hold, &options).await;
            hold.release().await;
            gone
        };
        let mut frozen = Box::pin(command);
        tokio::select! {
            biased;
            () = store.freezes.notified() => {}
            ended = &mut frozen => {
                ended.unwrap();
                assert!(calls > 12, "{calls}");
                println!("Kubernetes, frozen at {} answers of the store: nothing more was done", calls - 1);
                return;
            }
        }
        std::thread::sleep(WINDOW + Duration::from_millis(2));
        // The other one takes over, and does it all, unless it is done.
        let other = deployment(&world, &|_| {}).upgrade_kubernetes(&options, TakeOver::FromAnyone).await;
        if let Err(error) = other {
            assert!(error.to_string().contains("upgrade.nothing-to-do"), "{calls}: {error:#}");
        }
        world.fault(None);
        store.wakes.notify_one();
        drop(frozen.await);
        assert_eq!(changes(&world), 0, "{calls}: {:?}", world.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn journal_of_an_overtaken_lease_is_not_read() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    let first = Lease::acquire(&world, "first", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let mut overtaken = Journal::continued(&first).await.unwrap();
    assert_eq!(
        deployment(&world, &|_| {}).go_on(Request::Resume, None, TakeOver::FromAnyone).await.unwrap().0,
        RunOutcome::Ended(Outcome::Upgraded)
    );
    let text = entries(&world).await;
    let event = crate::upgrade::Event::Ended { outcome: Outcome::Abandoned };
    assert!(overtaken.append(event).await.unwrap_err().is::<Lost>());
    // Even if it had been written.
    world.write(first.number(), "journal.jsonl", "what a frozen command says").await.unwrap();
    assert_eq!(entries(&world).await, text);
    assert_eq!(end(&world, Request::Commit).await, Outcome::Committed);
}

#[tokio::test(start_paused = true)]
async fn taking_over_the_living_requires_explicit_consent() {
    let world = begun(1, Mode::Rolling, Ill::Well).await;
    let alive = Lease::acquire(&world, "somebody else", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let refused = deployment(&world, &|_| {}).go_on(Request::Resume, None, TakeOver::FromTheDead).await.unwrap_err();
    assert!(refused.to_string().contains("somebody else"), "{refused:#}");
    assert_eq!(super::stamp::refusals(&world).await, ["upgrade.locked", "upgrade.unfinished"]);
    alive.confirm().await.unwrap();
    alive.release().await;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
}

#[tokio::test(start_paused = true)]
async fn resume_and_rollback_hold_the_lease_without_api() {
    let world = begun(3, Mode::Rolling, Ill::Well).await;
    world.lock().api_away = true;
    assert_eq!(give(&world, Request::Resume).await.outcome(), Outcome::Upgraded);
    assert_eq!(world.store().holds.len(), 2);
    assert_eq!(world.lock().published, None);
    world.lock().api_away = false;
    assert_eq!(end(&world, Request::Rollback).await, Outcome::RolledBack);
    assert!(world.lock().published.as_ref().is_some_and(|text| text.contains("rolled-back")));
}
