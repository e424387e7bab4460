//! Images swapped on many clusters at once, on one vCenter by one session. Calls and clones stay within its limits, and
//! a VM has one task at a time.
//!
//! If `KAAS_TEST_VCENTER_SCALE` gives a number of VMs, the test also measures, as `make bench` does. Calls and tasks
//! then take the time that they take on a vCenter, and the swaps are compared with the bound by these latencies.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::LocalSet;
use vsphere::{Client, Settings};

use super::bed::Count;
use super::mirrored::Mirrored;
use super::upgrade::give;
use super::*;
use crate::hypervisor::PowerState;
use crate::upgrade::tests::fake::{self, Ill, World};
use crate::upgrade::{Mode, Outcome, RunOutcome};
use crate::vcenter::{DatastoreStore, Site};

/// How many VMs are swapped and measured.
const SCALE: &str = "KAAS_TEST_VCENTER_SCALE";
/// How many clusters are swapped at once when measured. It is then also the limit of calls and that of tasks.
const ENGINES: usize = 8;
/// How long the vCenter's machines take to shut down.
const SHUT_DOWN: Duration = Duration::from_secs(3);

/// The duration of calls and tasks in milliseconds. The empty name is the default. The tasks are a linked clone, a
/// power-on and a change of settings on idle hosts.
struct Latencies {
    calls: &'static [(&'static str, u64)],
    tasks: &'static [(&'static str, u64)],
}

const LATENCIES: Latencies = Latencies {
    // A wait for updates lasts as long as its task.
    calls: &[("WaitForUpdatesEx", 1), ("", 40)],
    // Searches are vcsim's own: no rule delays these.
    tasks: &[("CloneVM_Task", 5000), ("PowerOnVM_Task", 2000), ("SearchDatastore_Task", 0), ("", 1000)],
};

/// Just long enough for calls and tasks to overlap.
const SHORT: Latencies = Latencies { calls: &[("WaitForUpdatesEx", 1), ("", 2)], tasks: &[("", 50)] };

impl Latencies {
    async fn inject(&self, bed: &Bed) {
        for (of, what) in [(self.calls, "delay"), (self.tasks, "delay-task")] {
            for (method, milliseconds) in of.iter().filter(|(_, milliseconds)| *milliseconds > 0) {
                bed.spoil(method, what, json!({ "milliseconds": milliseconds, "times": -1 })).await;
            }
        }
    }

    /// The sum of all injected latencies without waits for updates: a caller that waits for a task has the task's
    /// latency.
    fn met(&self, counts: &BTreeMap<String, Count>) -> Duration {
        let of = |table: &[(&str, u64)], name: &str| {
            let named = table.iter().find(|(method, _)| *method == name);
            named.or_else(|| table.iter().find(|(method, _)| method.is_empty())).map_or(0, |(_, latency)| *latency)
        };
        let met = |(name, count): (&String, &Count)| {
            let task = if name.ends_with("_Task") { of(self.tasks, name) } else { 0 };
            let guest = if name == "ShutdownGuest" { SHUT_DOWN.as_millis() as u64 } else { 0 };
            let call = if name == "WaitForUpdatesEx" { 0 } else { of(self.calls, name) };
            Duration::from_millis(count.calls * (call + task + guest))
        };
        counts.iter().map(met).sum()
    }
}

/// One cluster on the vCenter, with its own folder, journal and template.
struct Cluster {
    hypervisor: VcenterHypervisor,
    store: DatastoreStore,
    guests: World,
    snapshots: TempDir,
}

impl Cluster {
    async fn found(bed: &Bed, client: &Client, number: usize, nodes: usize, old: &Ova) -> Self {
        let deployment = Uuid::from_u128(0x0005_ca1e_0000 + number as u128);
        let site = Site { folder: format!("control-{number}"), ..bed.site() };
        let hypervisor = bed.hypervisor_by(client.clone(), deployment, &site).await;
        let store = DatastoreStore::new(client.clone(), "DC0", journal_of(deployment)).await.unwrap();
        let guests = World::of(nodes, Mode::Rolling, Ill::Well);
        let image = hypervisor.lay(old).await;
        for node in &fake::NODES[..nodes] {
            hypervisor.started(node, &image).await;
        }
        Mirrored { vcenter: &hypervisor, guests: &guests }.adopt().await;
        Self { hypervisor, store, guests, snapshots: tempfile::tempdir().unwrap() }
    }

    /// Swaps the image of each of its nodes. Returns how many.
    async fn swap(&self) -> usize {
        let given = give(&self.hypervisor, &self.guests, &self.store, self.snapshots.path(), None).await;
        assert_eq!(given.unwrap(), RunOutcome::Ended(Outcome::Upgraded));
        let vms = self.hypervisor.vms().await.unwrap();
        let runs = |vm: &&Vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.swap.is_some());
        let (new, old): (Vec<&Vm>, Vec<&Vm>) = vms.iter().partition(runs);
        assert_eq!((new.len(), old.len()), (self.guests.lock().nodes.len(), new.len()));
        assert!(new.iter().all(|vm| vm.power == PowerState::On && vm.data_disks().count() == 1), "{new:#?}");
        assert!(old.iter().all(|vm| vm.power == PowerState::Off && vm.is_fenced()), "{old:#?}");
        new.len()
    }
}

/// Runs `work` on each of these, `many` at once, on this thread.
async fn at_once<T: 'static>(many: usize, these: Vec<T>, work: impl AsyncFn(T) + 'static) {
    let (local, queue) = (LocalSet::new(), Rc::new(RefCell::new(VecDeque::from(these))));
    let work = Rc::new(work);
    let lane = || {
        let (queue, work) = (queue.clone(), work.clone());
        local.spawn_local(async move {
            loop {
                let Some(next) = queue.borrow_mut().pop_front() else { return };
                work(next).await;
            }
        })
    };
    let lanes: Vec<_> = (0..many).map(|_| lane()).collect();
    local.await;
    for lane in lanes {
        lane.await.unwrap();
    }
}

/// Resident memory of this process, in KiB: proc_pid_status(5).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The node counts of clusters of three nodes and of one with this many VMs in total. All engines get the same number
/// of three-node clusters.
fn clusters(vms: usize) -> Vec<usize> {
    let threes = vms / 3 / ENGINES * ENGINES;
    [vec![3; threes], vec![1; vms - 3 * threes]].concat()
}

#[tokio::test]
async fn one_session_swaps_clusters_within_its_limits() {
    let scale: Option<usize> = std::env::var(SCALE).ok().map(|text| text.parse().expect("a number"));
    let (nodes, latencies) = match scale {
        Some(vms) => (clusters(vms), LATENCIES),
        None => (vec![3, 3, 1, 1, 1, 1], SHORT),
    };
    let limits = if scale.is_some() { (ENGINES, ENGINES) } else { (4, 3) };
    let settings = Settings { calls: limits.0, tasks: limits.1, ..Bed::settings() };
    let shut_down = if scale.is_some() { format!("{}s", SHUT_DOWN.as_secs()) } else { "50ms".to_owned() };
    let bed = Rc::new(Bed::start(&["-hosts", "8", "-shutdown", &shut_down]));
    let client = bed.limited(settings).await;
    let vms: usize = nodes.iter().sum();
    let (founded, old) =
        (Rc::new(RefCell::new(Vec::new())), Rc::new(ova_with(vec![("kaas.test".to_owned(), "old".to_owned())])));
    let (to, on, by) = (founded.clone(), bed.clone(), client.clone());
    at_once(ENGINES, nodes.into_iter().enumerate().collect(), async move |(number, nodes)| {
        let cluster = Cluster::found(&on, &by, number, nodes, &old).await;
        to.borrow_mut().push(cluster);
    })
    .await;
    assert_eq!(bed.count("Login").await, 1);
    let mut clusters = founded.take();
    clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.guests.lock().nodes.len()));

    bed.count_anew().await;
    if scale.is_some() {
        latencies.inject(&bed).await;
    } else {
        // All that may begin at once has begun.
        bed.spoil("CloneVM_Task", "delay-task", json!({ "milliseconds": 600_000, "times": -1 })).await;
    }
    let (begun, memory) = (Instant::now(), Rc::new(RefCell::new(Vec::new())));
    let told = memory.clone();
    let swaps = at_once(ENGINES, clusters, async move |cluster| {
        let swapped = cluster.swap().await;
        told.borrow_mut().push((swapped, resident()));
    });
    let held = async {
        if scale.is_none() {
            while bed.count("CloneVM_Task").await < limits.1 as u64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            bed.quiet().await;
            assert_eq!(bed.count("CloneVM_Task").await, limits.1 as u64, "all were held until so many were begun");
            bed.spoil_nothing().await;
            latencies.inject(&bed).await;
        }
    };
    tokio::join!(swaps, held);
    let (wall, said) = (begun.elapsed(), bed.calls().await);
    bed.spoil_nothing().await;

    assert_eq!(memory.borrow().iter().map(|(swapped, _)| swapped).sum::<usize>(), vms);
    assert!(said.calls_at_once <= limits.0 && said.calls_at_once > 1, "{} calls at once", said.calls_at_once);
    assert!(said.tasks_at_once <= ENGINES, "{} tasks at once: each engine has one", said.tasks_at_once);
    assert_eq!(said.busy, 0, "tasks met a VM on which another one was at work");
    let (calls, tasks) = (said.calls_at_once, said.tasks_at_once);
    let counts = said.by_name();
    assert!(!counts.contains_key("Login"), "all is done in the session that was there before");
    if scale.is_some() {
        tell(vms, wall, &latencies, &counts, &memory.borrow());
        println!("scale: at most {calls} calls and {tasks} tasks at once");
    }
}

/// Prints the measurements.
fn tell(vms: usize, wall: Duration, latencies: &Latencies, counts: &BTreeMap<String, Count>, memory: &[(usize, u64)]) {
    let bound = latencies.met(counts) / ENGINES as u32;
    let calls: u64 = counts.values().map(|count| count.calls).sum();
    let tasks: u64 = counts.iter().filter(|(name, _)| name.ends_with("_Task")).map(|(_, count)| count.calls).sum();
    println!(
        "scale: {vms} VMs swapped, {ENGINES} at once, in {:.1} s, {:.2} of the {:.1} s that latencies set; {:.0} calls and {:.1} tasks each",
        wall.as_secs_f64(),
        wall.as_secs_f64() / bound.as_secs_f64(),
        bound.as_secs_f64(),
        calls as f64 / vms as f64,
        tasks as f64 / vms as f64,
    );
    let mut swapped = 0;
    let quarter = memory.iter().find(|(more, _)| {
        swapped += more;
        4 * swapped >= vms
    });
    let (quarter, end) = (quarter.expect("a quarter").1 as f64, memory.last().expect("an end").1 as f64);
    println!(
        "scale: {:.1} MiB of memory once all were swapped, {:.2} of the {:.1} MiB once a quarter was",
        end / 1024.0,
        end / quarter,
        quarter / 1024.0
    );
}
