//! Points at which something goes wrong on the way of a command: each of its calls, with each fault that suits it, and each entry
//! that it writes into its journal. `make test-long` tries all of them, everybody else a part that is drawn each time anew.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::bed::{Bed, Count};

/// One in so many points is tried, if this does not say another number: 1 is all.
const EACH: &str = "KAAS_TEST_VCENTER_EACH";
/// What is drawn follows from this number alone.
const SEED: &str = "KAAS_TEST_VCENTER_SEED";
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

    /// Whether it may be any call. Most only look, and are made once more by themselves: what comes of the command then is as if nothing
    /// had gone wrong, and so is what a person does afterwards, which is tried elsewhere.
    pub fn is_any(&self) -> bool {
        self.method.is_empty()
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
    testbed::drawn(what, points, EACH, SEED)
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
