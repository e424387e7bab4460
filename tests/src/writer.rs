//! A client that goes on writing to the cluster through its API's address, and
//! remembers what was acknowledged.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fleet::nodes::{Client, Method};
use serde_json::{Value, json};

use crate::scenario::Scenario;

/// The pause between two writes, and between a failed one and the next try.
const PACE: Duration = Duration::from_millis(200);
/// How long a write may take before it is tried again.
const HASTY_LIMIT: Duration = Duration::from_secs(3);
const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

pub struct Writer {
    client: Client,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    thread: JoinHandle<Figures>,
}

/// The results of its writes.
#[derive(Debug, Default)]
pub struct Figures {
    /// Writes that were acknowledged.
    pub acknowledged: BTreeSet<String>,
    /// Tries that failed.
    pub failed: usize,
    /// How often a try failed after one that was acknowledged: runs of failures.
    pub outages: usize,
    /// The longest time without an acknowledgement.
    pub longest_gap: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (acknowledged, gap) = (self.acknowledged.len(), self.longest_gap.as_secs_f64());
        write!(f, "{acknowledged} writes acknowledged and none lost, ")?;
        write!(f, "{} tries failed in {} outages, ", self.failed, self.outages)?;
        write!(f, "longest gap {gap:.1} s")
    }
}

impl Figures {
    fn check(&self) {
        assert!(!self.acknowledged.is_empty(), "no write was acknowledged, {} tries failed", self.failed);
    }
}

impl Writer {
    /// Begins to write.
    pub fn start(scenario: &Scenario) -> Self {
        let lab = scenario.lab();
        let kubeconfig = lab.kubeconfig().unwrap_or_else(|error| panic!("{error:#}"));
        let client = Client::from_inside(&kubeconfig, lab.network_namespace());
        Self::through(client.unwrap_or_else(|error| panic!("{error:#}")))
    }

    /// The same through whatever API this client asks.
    pub fn through(client: Client) -> Self {
        let hasty = client.clone().with_limit(HASTY_LIMIT);
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (stopped, counter) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        let thread = thread::spawn(move || write(&hasty, &stopped, &counter));
        Self { client, stop, acknowledged, thread }
    }

    /// How many writes were acknowledged until now.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends it, and checks that nothing acknowledged was lost, and that anything was: no write would prove nothing.
    pub fn end(self) -> Figures {
        self.stop.store(true, Ordering::SeqCst);
        let figures = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        figures.check();
        let answer = self
            .client
            .wait(self.client.ask_api(Method::GET, OBJECTS, None))
            .unwrap_or_else(|error| panic!("{error:#}"));
        let list: Value = answer.json().unwrap_or_else(|error| panic!("{error:#}"));
        let items = list["items"].as_array().expect("a list");
        let kept: BTreeSet<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        let lost: Vec<&String> = figures.acknowledged.iter().filter(|name| !kept.contains(name.as_str())).collect();
        assert!(lost.is_empty(), "acknowledged writes were lost: {lost:?}");
        figures
    }
}

fn write(client: &Client, stop: &AtomicBool, acknowledged: &AtomicUsize) -> Figures {
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    let writer = WRITERS.fetch_add(1, Ordering::SeqCst);
    let mut figures = Figures::default();
    let (mut last, mut failing) = (Instant::now(), false);
    for number in 0.. {
        let name = format!("write-{}-{writer}-{number}", std::process::id());
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        while !stop.load(Ordering::SeqCst) {
            // 409: an earlier try had come through, only its acknowledgement had not.
            let done = client
                .wait(client.ask_api(Method::POST, OBJECTS, Some(&object)))
                .is_ok_and(|answer| matches!(answer.status, 201 | 409));
            if done {
                figures.longest_gap = figures.longest_gap.max(last.elapsed());
                (last, failing) = (Instant::now(), false);
                figures.acknowledged.insert(name);
                acknowledged.fetch_add(1, Ordering::SeqCst);
                break;
            }
            figures.failed += 1;
            figures.outages += usize::from(!std::mem::replace(&mut failing, true));
            thread::sleep(PACE);
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
        thread::sleep(PACE);
    }
    figures.longest_gap = figures.longest_gap.max(last.elapsed());
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no write was acknowledged, 3 tries failed")]
    fn a_writer_that_never_writes_proves_nothing() {
        Figures { failed: 3, ..Figures::default() }.check();
    }

    #[test]
    fn one_write_is_enough() {
        Figures { acknowledged: ["write".to_owned()].into(), ..Figures::default() }.check();
    }
}
