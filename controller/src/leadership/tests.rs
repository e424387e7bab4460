//! Several controllers on one API server whose answers get lost, with a paused clock.

mod mark;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::reach::in_memory::{Fault, InMemory};

/// The controllers that worked, with the times.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Duration, String)>>>);

impl Log {
    fn all(&self) -> Vec<(Duration, String)> {
        self.0.lock().unwrap().clone()
    }

    /// The first time at which a controller worked. It works in short intervals.
    fn first(&self, who: &str) -> Option<Duration> {
        self.all().iter().find(|(_, by)| by == who).map(|(at, _)| *at)
    }

    fn last(&self, who: &str) -> Option<Duration> {
        self.all().iter().rfind(|(_, by)| by == who).map(|(at, _)| *at)
    }

    /// Checks that one controller works at a time, and that none works again after another one.
    fn is_sound(&self, what: &str) {
        let mut ended: Vec<String> = Vec::new();
        for pair in self.all().windows(2) {
            let [(_, before), (_, after)] = pair else { unreachable!() };
            if before != after {
                ended.push(before.clone());
            }
            assert!(!ended.contains(after), "{what}: {after} works again");
        }
    }
}

/// An API server whose answers can stop, that can reject ConfigMaps, or on which another candidate creates the Lease first.
#[derive(Clone, Default)]
struct Cut {
    api: InMemory,
    is_cut: Arc<AtomicBool>,
    lacks_right: Arc<AtomicBool>,
    /// Whether an admission webhook for ConfigMaps is down.
    hook_is_down: Arc<AtomicBool>,
    /// The latency of each answer.
    takes: Duration,
    /// The Lease that another candidate creates just before this one.
    raced: Arc<Mutex<Option<Lease>>>,
}

impl Cut {
    fn of(api: &InMemory) -> Self {
        Self { api: api.clone(), ..Self::default() }
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn lacks_right(&self, lacks: bool) {
        self.lacks_right.store(lacks, Ordering::SeqCst);
    }

    fn hook_is_down(&self, is_down: bool) {
        self.hook_is_down.store(is_down, Ordering::SeqCst);
    }

    /// Waits for the latency, and forever if the connection is cut.
    async fn through(&self) {
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        if self.is_cut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Objects for Cut {
    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        self.through().await;
        self.api.list(of, label).await
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        self.through().await;
        self.api.get(of, name).await
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through().await;
        if of.plural == "configmaps" && self.lacks_right.load(Ordering::SeqCst) {
            return Err(Failure::Refused("403 configmaps is forbidden".to_owned()));
        }
        if of.plural == "configmaps" && self.hook_is_down.load(Ordering::SeqCst) {
            return Err(Failure::Unknown(anyhow::anyhow!("500 failed calling webhook")));
        }
        let raced = if of.plural == "leases" { self.raced.lock().unwrap().take() } else { None };
        if let Some(lease) = raced {
            self.api.put(&lease);
        }
        self.api.create(of, object).await
    }

    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through().await;
        self.api.replace(of, object).await
    }

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.through().await;
        self.api.replace_status(of, object).await
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.through().await;
        self.api.patch(of, name, part).await
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.through().await;
        self.api.patch_status(of, name, part).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.through().await;
        self.api.delete(of, name).await
    }

    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure> {
        self.through().await;
        self.api.delete_as_read(of, object).await
    }
}

/// A controller that works for this time, and checks its term each time.
fn starts(
    api: impl Objects + 'static,
    clock: &Clock,
    log: &Log,
    who: &'static str,
    lasts: Duration,
) -> JoinHandle<bool> {
    starts_of((api, "marked"), clock, log, who, lasts)
}

/// As `starts`, with a build.
fn starts_of(
    (api, build): (impl Objects + 'static, &str),
    clock: &Clock,
    log: &Log,
    who: &'static str,
    lasts: Duration,
) -> JoinHandle<bool> {
    let candidate = Candidate::new(Arc::new(api), clock.clone(), who, patience(build, "marked"));
    let (clock, log) = (clock.clone(), log.clone());
    tokio::spawn(async move {
        let work = |term: Term| async move {
            let end = clock.now() + lasts;
            while clock.now() < end {
                if term.ensure_active().is_ok() {
                    log.0.lock().unwrap().push((clock.now(), who.to_owned()));
                }
                sleep(Duration::from_millis(250)).await;
            }
        };
        candidate.lead(work).await.is_ok()
    })
}

const LONG: Duration = Duration::from_secs(3600);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_elects_the_next_leader() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let one = starts(api.clone(), &clock, &log, "one", seconds(120));
    sleep(seconds(3)).await;
    let two = starts(api.clone(), &clock, &log, "two", seconds(60));
    assert!(one.await.unwrap() && two.await.unwrap());
    log.is_sound("given back");
    // There was no leader before.
    assert!(log.first("one").unwrap() < seconds(1), "{:?}", log.first("one"));
    let gap = log.first("two").unwrap() - log.last("one").unwrap();
    assert!(gap < seconds(4), "{gap:?}");
    assert_eq!(api.object("leases")["spec"]["leaseTransitions"], 2);
    assert_eq!((api.names("leases"), api.names("configmaps")), (vec![NAME.to_owned()], vec![lease::MARK.to_owned()]));
}

/// A node that shuts down: its API server is away for a moment after the work has ended.
#[tokio::test(start_paused = true)]
async fn a_short_outage_does_not_prevent_the_release() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let one = starts(api.clone(), &clock, &log, "one", seconds(60));
    sleep(seconds(3)).await;
    let two = starts(api.clone(), &clock, &log, "two", seconds(20));
    sleep(seconds(56)).await;
    api.is_away(true);
    sleep(seconds(5)).await;
    assert!(!one.is_finished(), "it still tries");
    api.is_away(false);
    assert!(one.await.unwrap() && two.await.unwrap());
    log.is_sound("given back late");
    let gap = log.first("two").unwrap() - log.last("one").unwrap();
    assert!(gap < LEASE, "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_after_its_lease() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let one = starts(api.clone(), &clock, &log, "one", LONG);
    let two = starts(api.clone(), &clock, &log, "two", LONG);
    sleep(seconds(120)).await;
    let (first, second) = if log.first("one").is_some() { ("one", "two") } else { ("two", "one") };
    if first == "one" {
        one.abort()
    } else {
        two.abort()
    }
    sleep(seconds(120)).await;
    log.is_sound("killed");
    let gap = log.first(second).unwrap() - log.last(first).unwrap();
    assert!(gap >= LEASE + MARGIN - INTERVAL && gap < LEASE + MARGIN + seconds(5), "{gap:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_answers_stops_before_its_lease() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let cut = Cut::of(&api);
    let one = starts(cut.clone(), &clock, &log, "one", LONG);
    sleep(seconds(60)).await;
    let two = starts(api.clone(), &clock, &log, "two", LONG);
    sleep(seconds(60)).await;
    cut.cut(true);
    let since = clock.now();
    sleep(seconds(30)).await;
    assert!(one.is_finished(), "it is over");
    cut.cut(false);
    assert!(!one.await.unwrap());
    sleep(seconds(60)).await;
    log.is_sound("cut off");
    assert!(log.last("one").unwrap() <= since + crate::term::TERM);
    let gap = log.first("two").unwrap() - log.last("one").unwrap();
    assert!(gap >= fleet::lease::WINDOW + MARGIN, "{gap:?}");
    two.abort();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_or_taken_lease_ends_the_term() {
    for removed in [true, false] {
        let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
        let one = starts(api.clone(), &clock, &log, "one", LONG);
        sleep(seconds(60)).await;
        if removed {
            api.remove::<Lease>(Some(SYSTEM), NAME);
        } else {
            let taken =
                lease::taken(&serde_json::from_value(api.object("leases")).unwrap(), "somebody", clock.time().0);
            api.put(&taken);
        }
        sleep(INTERVAL * 2).await;
        assert!(one.is_finished() && !one.await.unwrap(), "{removed}");
        // The next leader waits, as after one that did not release the Lease.
        let since = clock.now();
        let two = starts(api.clone(), &clock, &log, "two", LONG);
        sleep(seconds(60)).await;
        assert!(log.first("two").unwrap() >= since + LEASE + MARGIN);
        two.abort();
    }
}

/// The request that takes the Lease is under way when the process is asked to end, and may have taken it.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_ends_keeps_no_lease() {
    let takes = seconds(1);
    // Without a Lease it creates the mark and the Lease. A Lease that was released, or has expired, is read and replaced.
    for begin in ["none", "released", "silent"] {
        for ends in (0..60).map(|tenth| Duration::from_millis(100) * tenth).chain([LEASE + MARGIN / 2]) {
            let (api, clock) = (InMemory::default(), Clock::of_tests());
            let former = lease::new("former", clock.time().0);
            if begin != "none" {
                api.put(&if begin == "released" { lease::released(&former) } else { former });
            }
            let cut = Cut { takes, ..Cut::of(&api) };
            let (asks, asked) = watch::channel(false);
            let candidate = Candidate::new(Arc::new(cut), clock.clone(), "one", Duration::ZERO).until(asked.clone());
            let leading = tokio::spawn(async move {
                let work = |_| async move {
                    let mut asked = asked;
                    let _ = asked.wait_for(|asked| *asked).await;
                };
                candidate.lead(work).await
            });
            sleep(ends).await;
            asks.send_replace(true);
            timeout(MARGIN + GIVING, leading).await.unwrap().unwrap().unwrap();
            let held = match api.names("leases").is_empty() {
                true => false,
                false => lease::is_held_by(&serde_json::from_value(api.object("leases")).unwrap(), "one"),
            };
            assert!(!held, "{begin}, asked to end after {ends:?}");
        }
    }
}

/// Each call of three controllers fails once with each fault: one leads at a time, and all lead in the end.
#[tokio::test(start_paused = true)]
async fn one_controller_leads_despite_lost_answers() {
    for call in (0..60).chain((60..240).step_by(3)) {
        for fault in [Fault::NotDone, Fault::Done, Fault::Changed] {
            let what = format!("{fault:?} at call {call}");
            let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
            api.fails_at(call, fault);
            let all = ["one", "two", "three"].map(|who| starts(api.clone(), &clock, &log, who, seconds(20)));
            sleep(seconds(400)).await;
            log.is_sound(&what);
            for one in all {
                assert!(one.is_finished() && one.await.unwrap(), "{what}");
            }
            for who in ["one", "two", "three"] {
                assert!(log.first(who).is_some(), "{what}: {who} never led");
            }
        }
    }
}

/// An API server that is away for a moment ends no term. A longer outage ends it.
#[tokio::test(start_paused = true)]
async fn a_term_survives_a_short_outage() {
    for (away, lives) in [(seconds(6), true), (seconds(13), false)] {
        let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
        let one = starts(api.clone(), &clock, &log, "one", LONG);
        sleep(seconds(60)).await;
        api.is_away(true);
        sleep(away).await;
        api.is_away(false);
        sleep(seconds(10)).await;
        assert_eq!(!one.is_finished(), lives, "{away:?}");
        one.abort();
    }
}

/// During an upgrade of the control cluster the marked build leads. The other one leads once no node runs it.
#[tokio::test(start_paused = true)]
async fn another_build_leads_after_the_marked_one() {
    let (api, clock, log) = (InMemory::default(), Clock::of_tests(), Log::default());
    let newer = starts_of((api.clone(), "another"), &clock, &log, "newer", LONG);
    let first = starts(api.clone(), &clock, &log, "first", LONG);
    sleep(seconds(120)).await;
    assert!(log.first("first").is_some() && log.first("newer").is_none());
    // The leader is killed, and the next one of its build starts later.
    first.abort();
    sleep(seconds(15)).await;
    let second = starts(api.clone(), &clock, &log, "second", seconds(100));
    sleep(seconds(300)).await;
    assert!(second.is_finished() && second.await.unwrap(), "it has given the Lease back");
    let (given, led) = (log.last("second").unwrap(), log.first("newer").unwrap());
    assert!(led >= given + seconds(60) && led <= given + seconds(70), "{given:?} {led:?}");
    log.is_sound("two builds");
    newer.abort();
}
