//! Two commands, one of which sleeps at the worst moment. Also stores that lose answers, and holders that are not
//! processes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::tests::{folder, frozen, remove_old, take};
use super::*;
use crate::lease::{DirectoryStore, standing};

/// A directory store, with events at a chosen moment of the command that uses it.
struct Watched<'a> {
    folder: &'a DirectoryStore,
    /// The result of the first listing, if that is an old one.
    old: Mutex<Option<Vec<u64>>>,
    /// Before this file is written, other commands come and go until its number is removed and created again.
    pruned_before: Option<&'static str>,
    /// The answer to this call is lost, once.
    loses: Mutex<Option<&'static str>>,
    /// For a program whose holders are not processes: the holders that it knows to have ended.
    ended: Option<&'static [&'static str]>,
    /// Whether the question for a directory hangs.
    hangs: AtomicBool,
    /// How often that was asked.
    asked: AtomicUsize,
}

impl<'a> Watched<'a> {
    fn of(folder: &'a DirectoryStore) -> Self {
        Self {
            folder,
            old: Mutex::default(),
            pruned_before: None,
            loses: Mutex::default(),
            ended: None,
            hangs: AtomicBool::default(),
            asked: AtomicUsize::default(),
        }
    }

    fn answer<T>(&self, call: &str, answer: T) -> anyhow::Result<T> {
        match self.loses.lock().unwrap().take_if(|lost| *lost == call) {
            Some(_) => bail!("the answer to {call} is lost"),
            None => Ok(answer),
        }
    }
}

#[async_trait::async_trait]
impl Store for Watched<'_> {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let old = self.old.lock().unwrap().take();
        if let Some(old) = old { Ok(old) } else { self.folder.numbers().await }
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.folder.exists(number).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        let made = self.folder.make(number).await?;
        self.answer("make", made)
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.folder.remove(number).await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.folder.read(number, file).await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        if self.pruned_before == Some(file) {
            come_and_go(self.folder, 30).await;
            assert!(self.folder.make(number).await.unwrap(), "the number comes again");
        }
        self.folder.write(number, file, text).await?;
        self.answer(file, ())
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        self.folder.files(number).await
    }

    fn holder(&self, what: &str, now: u64) -> Holder {
        let this = Holder::this(what, now);
        if self.ended.is_some() { Holder { who: format!("controller {what}"), process: None, ..this } } else { this }
    }

    async fn has_ended(&self, holder: &Holder) -> anyhow::Result<bool> {
        Ok(self.ended.map_or_else(|| holder.is_dead(), |ended| ended.contains(&&*holder.who)))
    }
}

/// Takes the lease from any holder and releases it, `count` times.
async fn come_and_go(folder: &DirectoryStore, count: usize) {
    for _ in 0..count {
        let hold = frozen(folder).await;
        remove_old(&hold, u64::MAX).await;
        hold.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn late_command_removes_a_number_used_before() {
    let (_directory, folder) = folder();
    let first = frozen(&folder).await;
    come_and_go(&folder, 30).await;
    let alive = frozen(&folder).await;
    // It looked before the first lease existed, and then slept.
    let late = Watched { old: Mutex::new(Some(Vec::new())), ..Watched::of(&folder) };
    let refused = Lease::acquire(&late, "late", TakeOver::FromTheDead, &|_| {}).await.err().unwrap();
    assert!(refused.is::<Held>() && refused.to_string().contains("a test"), "{refused:#}");
    assert!(!folder.exists(1).await.unwrap());
    first.confirm().await.unwrap_err().downcast::<Lost>().unwrap();
    alive.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn frozen_lease_is_lost_if_number_comes_again() {
    let (_directory, folder) = folder();
    let first = frozen(&folder).await;
    come_and_go(&folder, 30).await;
    let alive = frozen(&folder).await;
    // All files that a late command may have written before it finds that it is late.
    assert!(folder.make(1).await.unwrap());
    first.confirm().await.unwrap_err().downcast::<Lost>().unwrap();
    for file in [HOLDER, DOUBTED, WITHDRAWN] {
        folder.write(1, file, "").await.unwrap();
        first.confirm().await.unwrap_err().downcast::<Lost>().unwrap();
    }
    alive.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acquire_fails_if_number_comes_again_during_sleep() {
    for file in [HOLDER, ALONE] {
        let (_directory, folder) = folder();
        let sleeper = Watched { pruned_before: Some(file), ..Watched::of(&folder) };
        let refused = Lease::acquire(&sleeper, "late", TakeOver::FromTheDead, &|_| {}).await.err();
        assert!(refused.unwrap().is::<Held>(), "before {file}");
        assert!(!folder.exists(1).await.unwrap(), "before {file}");
    }
}

#[tokio::test(start_paused = true)]
async fn unused_number_stays_after_takeover_of_its_maker() {
    let (_directory, folder) = folder();
    let first = take(&folder, TakeOver::FromTheDead).await.unwrap();
    let second = take(&folder, TakeOver::FromAnyone).await.unwrap();
    let third = take(&folder, TakeOver::FromAnyone).await.unwrap();
    second.all_when_highest(&watch::channel(false).1).await.unwrap_err().downcast::<Held>().unwrap();
    assert!(folder.exists(2).await.unwrap(), "the first one is lost by it");
    first.confirm().await.unwrap_err().downcast::<Lost>().unwrap();
    third.confirm().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_acquire_blocks_no_later_command() {
    // This store knows of no ended holder, not even in this very process.
    for lost in ["make", HOLDER, ALONE] {
        let (_directory, folder) = folder();
        let nobody = Watched { ended: Some(&[]), ..Watched::of(&folder) };
        *nobody.loses.lock().unwrap() = Some(lost);
        let failed = Lease::acquire(&nobody, "first", TakeOver::FromTheDead, &|_| {}).await.err().unwrap();
        assert!(format!("{failed:#}").contains("taking the deployment: the answer to"), "{failed:#}");
        assert_eq!(standing(&nobody).await.unwrap(), LeaseState::Free, "{lost}");
        let hold = Lease::acquire(&nobody, "again", TakeOver::FromTheDead, &|_| {}).await.unwrap();
        // A live holder is not hidden by a command that came later and withdrew.
        *nobody.loses.lock().unwrap() = Some(lost);
        Lease::acquire(&nobody, "after", TakeOver::FromAnyone, &|_| {}).await.err().unwrap();
        let LeaseState::Held(held) = standing(&nobody).await.unwrap() else { panic!("{lost}") };
        assert!(held.who().contains("controller again"), "{lost}: {held}");
        drop(hold);
    }
}

#[tokio::test(start_paused = true)]
async fn doubted_number_is_not_used_by_its_maker() {
    let (_directory, folder) = folder();
    let store = Watched::of(&folder);
    assert!(folder.make(1).await.unwrap());
    folder.write(1, DOUBTED, "").await.unwrap();
    assert_eq!(standing(&store).await.unwrap(), LeaseState::Free, "it has no name, and gets none that counts");
    let mut hold = take(&folder, TakeOver::FromTheDead).await.unwrap();
    folder.write(2, DOUBTED, "").await.unwrap();
    let refused = hold.begin("a test", None, &|_| {}, &watch::channel(false).1).await.unwrap_err().to_string();
    assert!(refused.contains("try again"), "{refused}");
    assert!(
        matches!(standing(&store).await.unwrap(), LeaseState::Held(_)),
        "a holder that wrote its name before may be alive"
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_task_frees_lease_after_the_margin() {
    let (_directory, folder) = folder();
    let hold = take(&folder, TakeOver::FromTheDead).await.unwrap();
    assert!(matches!(standing(&folder).await.unwrap(), LeaseState::Held(_)));
    drop(hold);
    assert_eq!(standing(&folder).await.unwrap(), LeaseState::Free);
    let (begun, said) = (tokio::time::Instant::now(), Mutex::new(String::new()));
    let say = |words: &str| said.lock().unwrap().push_str(words);
    let next = Lease::acquire(&folder, "next", TakeOver::FromTheDead, &say).await.unwrap();
    assert!(begun.elapsed() >= MARGIN && begun.elapsed() < REACH);
    let said = said.into_inner().unwrap();
    let words = "has ended without giving the deployment back: 20 s until its last request has arrived or failed";
    assert!(said.contains("a test") && said.contains(words), "{said}");
    next.release().await;
    let begun = tokio::time::Instant::now();
    Lease::acquire(&folder, "after it", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO, "what was given back is free at once");
}

#[tokio::test(start_paused = true)]
async fn store_names_holder_and_says_which_have_ended() {
    let (_directory, folder) = folder();
    let mut store = Watched { ended: Some(&[]), ..Watched::of(&folder) };
    let hold = Lease::acquire(&store, "a", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    drop(hold);
    let refused = Lease::acquire(&store, "b", TakeOver::FromTheDead, &|_| {}).await.err().unwrap().to_string();
    assert!(refused.contains("controller a (a; last seen"), "{refused}");
    let by_process = standing(&folder).await.unwrap();
    assert!(matches!(by_process, LeaseState::Held(_)), "others do not know: it may be alive");
    store.ended = Some(&["controller a"]);
    assert_eq!(Lease::acquire(&store, "b", TakeOver::FromTheDead, &|_| {}).await.unwrap().number(), 2);
}

#[tokio::test(start_paused = true)]
async fn waiting_command_asks_hanging_store_once_a_minute() {
    let (_directory, folder) = folder();
    let store = Watched::of(&folder);
    let hold = Lease::acquire(&store, "a test", TakeOver::FromTheDead, &|_| {}).await.unwrap();
    let asked = || store.asked.swap(0, Ordering::SeqCst);
    asked();
    hold.forget();
    store.hangs.store(true, Ordering::SeqCst);
    assert_eq!(hold.rest(), Duration::ZERO);
    for _ in 0..5 {
        hold.renew().await.unwrap();
    }
    assert_eq!(asked(), 1);
    {
        let mut state = hold.state();
        state.unsaid = state.unsaid.map(|at| at.saturating_sub(AGAIN));
    }
    hold.renew().await.unwrap();
    assert_eq!(asked(), 1);
    // A command that is about to change something asks each time, and asks as usual after an answer.
    assert!(hold.confirm().await.unwrap_err().is::<LeaseUnconfirmed>());
    store.hangs.store(false, Ordering::SeqCst);
    hold.confirm().await.unwrap();
    assert_eq!((asked(), hold.rest()), (2, Duration::ZERO));
    hold.forget();
    hold.renew().await.unwrap();
    assert_eq!(asked(), 1);
    // A command that needs an answer pauses for the same time.
    hold.state().unsaid = Some(boot_time().saturating_add(AGAIN));
    assert_eq!(hold.rest(), AGAIN);
}
