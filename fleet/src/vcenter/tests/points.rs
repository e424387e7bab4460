//! Points at which something goes wrong on the way of a command: each of its calls, with each fault that suits it, and each entry
//! that it writes into its journal. `make test-long` tries all of them, everybody else a part that is drawn each time anew.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::bed::{Bed, Count};

/// One in so many points is tried, if this does not say another number: 1 is all.
const EACH: &str = "KAAS_TEST_VCENTER_EACH";
/// What is drawn follows from this number alone.
const SEED: &str = "KAAS_TEST_VCENTER_SEED";
/// What takes a minute or two.
const USUAL: usize = 40;
/// So many points are tried at once, each on a vCenter of its own: most of the time of each goes with waiting.
const LANES: usize = 4;

/// A call at which something goes wrong.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its method; any if it is empty.
    method: &'static str,
    /// How many of these go well before.
    skip: u64,
    /// What goes wrong, and what is to be said of that.
    fault: (&'static str, Value),
}

impl Call {
    /// Each call that was counted: of those that `change` something, or are about a journal, with all that can go wrong there; and
    /// any call at all, what only looks among them, with one of three: it is not answered, its session has ended, a proxy answers
    /// for vCenter. To whoever looks these are the same, and how often a command looks differs each time.
    pub fn all(counts: &BTreeMap<String, Count>, change: &[&'static str]) -> Vec<Self> {
        let mut all = Vec::new();
        for &method in change {
            let calls = counts.get(method).copied().unwrap_or_default().calls;
            let with = |skip| faults(method).into_iter().map(move |fault| Self { method, skip, fault });
            all.extend((0..calls).flat_map(with));
        }
        let calls: u64 = counts.values().map(|count| count.calls).sum();
        let lost = [("drop", json!({})), ("end-session", json!({})), ("status", json!({ "code": 503 }))];
        all.extend((0..calls).zip(lost.into_iter().cycle()).map(|(skip, fault)| Self { method: "", skip, fault }));
        all
    }

    /// Has it go wrong.
    pub async fn spoil(&self, bed: &Bed) {
        let (what, mut more) = self.fault.clone();
        more["skip"] = json!(self.skip);
        bed.spoil(self.method, what, more).await;
    }
}

/// What goes wrong with a call that changes something.
fn faults(method: &str) -> Vec<(&'static str, Value)> {
    let mut faults = vec![("lose-answer", json!({})), ("drop", json!({})), ("end-session", json!({}))];
    if method.ends_with("_Task") {
        faults.push(("fail-task", json!({ "fault": "HostCommunication" })));
        faults.push(("fail-task-late", json!({ "fault": "HostCommunication" })));
    }
    faults
}

/// Of these points those that are tried.
pub fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let each = number(EACH).map_or(USUAL, |each| each.max(1) as usize);
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000);
    let all = points.len();
    let tried = part(points, all.div_ceil(each), seed);
    println!("{what}: {} of {all} points, {SEED}={seed}", tried.len());
    tried
}

/// So many of them, in their order.
fn part<P>(points: Vec<P>, many: usize, seed: u64) -> Vec<P> {
    let mut state = seed;
    // Vigna's splitmix64, as in the xoshiro paper (Blackman and Vigna, 2021).
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut keyed: Vec<(u64, usize, P)> =
        points.into_iter().enumerate().map(|(at, point)| (next(), at, point)).collect();
    keyed.sort_by_key(|(key, at, _)| (*key, *at));
    keyed.truncate(many);
    keyed.sort_by_key(|(_, at, _)| *at);
    keyed.into_iter().map(|(_, _, point)| point).collect()
}

/// Points that are left to try, by several at once.
pub struct Queue<'a, P> {
    points: &'a [P],
    next: AtomicUsize,
    met: AtomicUsize,
}

impl<'a, P> Queue<'a, P> {
    pub fn next(&self) -> Option<&'a P> {
        self.points.get(self.next.fetch_add(1, Ordering::SeqCst))
    }

    /// Counts a point at which something has gone wrong indeed: how often a command looks differs a little each time.
    pub fn count(&self, met: bool) {
        self.met.fetch_add(usize::from(met), Ordering::SeqCst);
    }
}

/// Does work in a runtime of its own.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Tries all points, several at once: `work` takes one after the other. Panics when one does, or when most were not met.
pub fn each<P: Sync>(what: &str, points: &[P], work: impl AsyncFn(&Queue<'_, P>) + Sync) {
    let (begun, queue) = (Instant::now(), Queue { points, next: AtomicUsize::new(0), met: AtomicUsize::new(0) });
    std::thread::scope(|scope| {
        for _ in 0..LANES.min(points.len()) {
            scope.spawn(|| block_on(work(&queue)));
        }
    });
    let met = queue.met.into_inner();
    println!("{what}: {met} of {} points were met, in {:.0} s", points.len(), begun.elapsed().as_secs_f32());
    assert!(2 * met > points.len(), "{what}: {met} of {} points were met", points.len());
}

/// Says, when a test fails, at which point it has.
pub struct Told(String);

impl Told {
    pub fn of(point: impl Debug) -> Self {
        Self(format!("{point:?}"))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("at {}", self.0);
        }
    }
}

#[test]
fn what_is_drawn_follows_from_its_seed_and_in_the_end_all_are_drawn() {
    let of = |seed| part((0..1000).collect(), 100, seed);
    assert_eq!(of(1), of(1));
    assert!(of(1) != of(2) && of(1).len() == 100 && of(1).is_sorted());
    let mut seen: Vec<i32> = (0..200).flat_map(of).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
    assert_eq!(part((0..7).collect(), 7, 3), (0..7).collect::<Vec<_>>());
}
