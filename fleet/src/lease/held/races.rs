//! Many commands at once on one deployment, over stores that are slow and lose answers. Two commands must never both be
//! permitted to continue, and a command that has lost the lease must learn it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use anyhow::{Context, bail};
use async_trait::async_trait;
use tokio::task::LocalSet;

use super::tests::remove_old;
use super::*;
use crate::lease::DirectoryStore;

/// How long a confirmation is valid in these tests.
const SHORT: Duration = Duration::from_millis(80);
/// The margin of a successor.
const PAUSE: Duration = Duration::from_millis(10);

/// Pseudo-random numbers (xorshift64).
#[derive(Debug)]
struct Chance(Mutex<u64>);

impl Chance {
    fn of(seed: u64) -> Self {
        Self(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    fn below(&self, end: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % end
    }

    async fn nap(&self) {
        tokio::time::sleep(Duration::from_millis(self.below(6))).await;
    }
}

/// A store, in a directory or in memory, that is slow, fails before or after the operation, and cuts writes in half.
struct Lossy {
    within: Option<DirectoryStore>,
    holds: Mutex<BTreeMap<u64, BTreeMap<String, String>>>,
    chance: Chance,
    /// One of this many calls fails. None if 0.
    fails: u64,
}

impl Lossy {
    fn fails(&self) -> bool {
        self.fails > 0 && self.chance.below(self.fails) == 0
    }

    async fn asked(&self) -> anyhow::Result<()> {
        self.chance.nap().await;
        if self.fails() {
            bail!("the store does not answer");
        }
        Ok(())
    }

    async fn answered<T>(&self, answer: T) -> anyhow::Result<T> {
        self.chance.nap().await;
        if self.fails() {
            bail!("the store's answer is lost");
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for Lossy {
    async fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        self.asked().await?;
        let numbers = match &self.within {
            Some(folder) => folder.numbers().await?,
            None => self.holds.lock().unwrap().keys().copied().collect(),
        };
        self.answered(numbers).await
    }

    async fn exists(&self, number: u64) -> anyhow::Result<bool> {
        self.asked().await?;
        let there = match &self.within {
            Some(folder) => folder.exists(number).await?,
            None => self.holds.lock().unwrap().contains_key(&number),
        };
        self.answered(there).await
    }

    async fn make(&self, number: u64) -> anyhow::Result<bool> {
        self.asked().await?;
        let made = match &self.within {
            Some(folder) => folder.make(number).await?,
            None => {
                let mut holds = self.holds.lock().unwrap();
                let new = !holds.contains_key(&number);
                holds.entry(number).or_default();
                new
            }
        };
        self.answered(made).await
    }

    async fn remove(&self, number: u64) -> anyhow::Result<()> {
        self.asked().await?;
        match &self.within {
            Some(folder) => folder.remove(number).await?,
            None => drop(self.holds.lock().unwrap().remove(&number)),
        }
        self.answered(()).await
    }

    async fn read(&self, number: u64, file: &str) -> anyhow::Result<Option<String>> {
        self.asked().await?;
        let text = match &self.within {
            Some(folder) => folder.read(number, file).await?,
            None => self.holds.lock().unwrap().get(&number).and_then(|files| files.get(file)).cloned(),
        };
        self.answered(text).await
    }

    async fn write(&self, number: u64, file: &str, text: &str) -> anyhow::Result<()> {
        self.asked().await?;
        let cut = self.fails();
        let text = if cut { &text[..text.len() / 2] } else { text };
        match &self.within {
            Some(folder) => folder.write(number, file, text).await?,
            None => {
                let mut holds = self.holds.lock().unwrap();
                holds.get_mut(&number).context("no hold")?.insert(file.to_owned(), text.to_owned());
            }
        }
        if cut {
            bail!("the write was cut");
        }
        self.answered(()).await
    }

    async fn files(&self, number: u64) -> anyhow::Result<Vec<String>> {
        bail!("no test lists the files of lease {number}")
    }
}

/// The events on one deployment. All run in one thread: nothing comes between a look and an act.
#[derive(Default)]
struct Seen {
    /// The highest number with which a command has begun to work.
    highest: AtomicUsize,
    acts: AtomicUsize,
    takes: AtomicUsize,
    refused: AtomicUsize,
    lost: AtomicUsize,
    /// The command and the event, in order.
    order: Mutex<Vec<(u64, u8)>>,
}

impl Seen {
    fn note(&self, who: u64, what: u8, count: &AtomicUsize) {
        count.fetch_add(1, Ordering::SeqCst);
        self.order.lock().unwrap().push((who, what));
    }
}

/// Acquires the lease again and again, works, and releases it or keeps it as a frozen command does.
async fn contend(who: u64, store: &Lossy, seen: &Seen) {
    let chance = Chance::of(store.chance.below(u64::MAX));
    for _ in 0..4 {
        chance.nap().await;
        let over = if chance.below(4) > 0 { TakeOver::FromAnyone } else { TakeOver::FromTheDead };
        let hold = match Lease::take_with(store, "a race", over, &|_| {}, SHORT, PAUSE).await {
            Ok(hold) => hold,
            Err(_) => {
                seen.note(who, 0, &seen.refused);
                continue;
            }
        };
        let number = usize::try_from(hold.number()).unwrap();
        assert!(seen.highest.fetch_max(number, Ordering::SeqCst) < number, "{number} was another one's");
        seen.note(who, 1, &seen.takes);
        let mut overtaken = false;
        for _ in 0..4 {
            let confirmed = hold.confirm().await;
            // Sometimes frozen for longer than the window.
            let longest = if chance.below(3) == 0 { 150 } else { 10 };
            tokio::time::sleep(Duration::from_millis(chance.below(longest))).await;
            match confirmed {
                Ok(()) if hold.is_fresh() => {
                    let highest = seen.highest.load(Ordering::SeqCst);
                    assert_eq!(highest, number, "{number} acts, and {highest} may go on");
                    seen.note(who, 2, &seen.acts);
                }
                Err(error) if error.is::<Lost>() => {
                    overtaken = true;
                    break;
                }
                _ => {}
            }
        }
        if !overtaken && chance.below(3) > 0 {
            hold.release().await;
            continue;
        }
        // It stays frozen for a while, in which others may take over.
        for _ in 0..60 {
            if seen.highest.load(Ordering::SeqCst) == number {
                chance.nap().await;
            }
        }
        // A command that was taken over from learns it, however often the store fails.
        while seen.highest.load(Ordering::SeqCst) > number {
            match hold.confirm().await {
                Ok(()) => panic!("{number} is confirmed, and there is a higher one"),
                Err(error) if error.is::<Lost>() => {
                    seen.note(who, 3, &seen.lost);
                    break;
                }
                Err(_) => {}
            }
        }
    }
}

/// Races of four commands on many deployments.
async fn races(what: &str, count: u64, store: impl Fn(u64) -> Lossy) {
    let all: Vec<(Arc<Lossy>, Arc<Seen>)> = (1..=count).map(|seed| (Arc::new(store(seed)), Arc::default())).collect();
    let set = LocalSet::new();
    for (store, seen) in &all {
        for who in 0..4 {
            let (store, seen) = (Arc::clone(store), Arc::clone(seen));
            set.spawn_local(async move { contend(who, &store, &seen).await });
        }
    }
    // A failed task ends the wait for all of them.
    set.await;
    let sum =
        |of: fn(&Seen) -> &AtomicUsize| all.iter().map(|(_, seen)| of(seen).load(Ordering::SeqCst)).sum::<usize>();
    let [takes, acts, refused, lost] =
        [sum(|seen| &seen.takes), sum(|seen| &seen.acts), sum(|seen| &seen.refused), sum(|seen| &seen.lost)];
    let orders: BTreeSet<Vec<(u64, u8)>> = all.iter().map(|(_, seen)| seen.order.lock().unwrap().clone()).collect();
    println!(
        "{what}: {} orders of events in {count} races: {takes} times taken, {acts} changes, {refused} times refused, \
         {lost} times overtaken",
        orders.len()
    );
    assert_eq!(takes + refused, usize::try_from(count).unwrap() * 16, "a command has failed");
    assert!(orders.len() * 10 > all.len() * 9 && acts > 0 && refused > 0 && lost > 0);
}

#[tokio::test]
async fn races_over_an_unreliable_store_in_memory() {
    let store = |seed| Lossy { within: None, holds: Mutex::default(), chance: Chance::of(seed), fails: 40 };
    races("memory, each call fails once in twenty times", 150, store).await;
}

#[tokio::test]
async fn races_over_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = |seed: u64| Lossy {
        within: Some(DirectoryStore::at(directory.path().join(seed.to_string()))),
        holds: Mutex::default(),
        chance: Chance::of(seed),
        fails: 0,
    };
    races("folder", 40, store).await;
}

#[test]
fn one_of_simultaneous_threads_gets_the_lease() {
    const THREADS: usize = 6;
    const ROUNDS: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let folder = DirectoryStore::at(directory.path().join("authority"));
    let (barrier, winners) = (Barrier::new(THREADS), AtomicUsize::new(0));
    let (barrier, winners, folder) = (&barrier, &winners, &folder);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                for round in 1..=ROUNDS {
                    barrier.wait();
                    let taken = runtime.block_on(Lease::acquire(folder, "a race", TakeOver::FromTheDead, &|_| {}));
                    winners.fetch_add(usize::from(taken.is_ok()), Ordering::SeqCst);
                    barrier.wait();
                    if let Ok(hold) = taken {
                        assert_eq!(hold.number(), round);
                        runtime.block_on(async {
                            remove_old(&hold, u64::MAX).await;
                            hold.release().await;
                        });
                    }
                }
            });
        }
    });
    assert_eq!(winners.load(Ordering::SeqCst), usize::try_from(ROUNDS).unwrap());
    assert_eq!(std::fs::read_dir(directory.path().join("authority")).unwrap().count(), KEPT);
}
