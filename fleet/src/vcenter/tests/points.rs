//! The points of a command at which a fault is injected. They are each of its calls, with each suitable fault, and each
//! entry of its journal. `make test-long` tries all of them. Other runs try a random part.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::bed::{Bed, Count};

/// One of this many points is tried, if this variable has no other value. 1 tries all.
const EACH: &str = "KAAS_TEST_VCENTER_EACH";
/// The seed of the random choice.
const SEED: &str = "KAAS_TEST_VCENTER_SEED";
/// How many points are tried at once, each on its own vCenter: each spends most of its time waiting.
const LANES: usize = 4;

/// A call with a fault.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its method. Any method if empty.
    method: &'static str,
    /// How many of these calls succeed before.
    skip: u64,
    /// The fault, and its parameters.
    fault: (&'static str, Value),
}

impl Call {
    /// Each counted call with its faults. A call that is in `change` gets all faults. Any call, including those that
    /// only look, gets one of three: a lost connection, an ended session, or an answer of a proxy. A caller that looks
    /// cannot tell these apart, and the number of looks differs from run to run.
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

    /// Whether the fault applies to any call. Most calls only look, and are repeated automatically: the command then
    /// ends as without a fault, and so does the operator's next command. Other tests try that.
    pub fn is_any(&self) -> bool {
        self.method.is_empty()
    }

    /// Injects the fault.
    pub async fn spoil(&self, bed: &Bed) {
        let (what, mut more) = self.fault.clone();
        more["skip"] = json!(self.skip);
        bed.spoil(self.method, what, more).await;
    }
}

/// The faults of a call that changes something.
fn faults(method: &str) -> Vec<(&'static str, Value)> {
    let mut faults = vec![("lose-answer", json!({})), ("drop", json!({})), ("end-session", json!({}))];
    if method.ends_with("_Task") {
        faults.push(("fail-task", json!({ "fault": "HostCommunication" })));
        faults.push(("fail-task-late", json!({ "fault": "HostCommunication" })));
    }
    faults
}

/// The points that are tried.
pub fn drawn<P>(what: &str, points: Vec<P>) -> Vec<P> {
    testbed::drawn(what, points, EACH, SEED)
}

/// The points that are left, for several workers.
pub struct Queue<'a, P> {
    points: &'a [P],
    next: AtomicUsize,
    met: AtomicUsize,
}

impl<'a, P> Queue<'a, P> {
    pub fn next(&self) -> Option<&'a P> {
        self.points.get(self.next.fetch_add(1, Ordering::SeqCst))
    }

    /// Counts a point where the fault occurred: the number of looks differs a little each time.
    pub fn count(&self, met: bool) {
        self.met.fetch_add(usize::from(met), Ordering::SeqCst);
    }
}

/// Runs work in its own runtime.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Tries all points, several at once: `work` takes one after the other. Panics if one fails, or if most faults did not
/// occur.
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

/// Prints the point of a failed test.
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
