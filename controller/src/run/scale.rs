//! The cost of many clusters: all of them are created at once, reconciled, one of them is changed and deleted. The reconcilers
//! run as in this process, on an API server and hypervisors in memory. The test counts calls by verb and kind, the objects that
//! they read, and stored objects. The cost must grow at most linearly with the number of clusters. A change of one cluster must
//! cost the same for any number.
//!
//! With `KAAS_TEST_CONTROLLER_SCALE` (`200x5`: 200 clusters of five nodes each) the test also measures both clocks and memory, as
//! `make test-long` and `make bench` do.

mod counted;
mod places;
mod works;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use self::counted::{Call, Count, Counted, Counts, Whose};
use self::places::Places;
use self::works::Shared;
use crate::context::Context;
use crate::decisions::{NAMESPACES_IN_USE, fixture};
use crate::objects::{
    AddressRange, Condition, ConditionStatus, FromNamespaces, NodePool, SYSTEM, TenantCluster, VMClass,
};
use crate::reach::in_memory::InMemory;
use crate::reach::providers::Providers;
use crate::reach::{Fenced, Objects};
use crate::term::{Clock, Term};

/// The plural of the kind that each claim of an address lists.
const ADDRESSES: &str = "pooladdresses";
/// The variable that sets the numbers of clusters and nodes, and enables the measurement.
const SCALE: &str = "KAAS_TEST_CONTROLLER_SCALE";
/// The interval of checks, and the limit of a wait.
const LOOKING: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3600);
/// The consequences of a change are over within this time.
const AFTER: Duration = Duration::from_secs(5);
/// How long the test watches without changes. The rarest reconcile, of each address, happens once.
const IDLE: Duration = Duration::from_secs(600);

/// The number of clusters, and of nodes in each: one control-plane node and workers.
#[derive(Clone, Copy, Debug)]
struct Scale {
    clusters: usize,
    nodes: usize,
}

impl Scale {
    fn of(text: &str) -> Self {
        let (clusters, nodes) = text.split_once('x').expect("clusters x nodes, as 200x5");
        let number = |text: &str| text.parse().expect("a number");
        Self { clusters: number(clusters), nodes: number(nodes) }
    }

    fn workers(self) -> u32 {
        u32::try_from(self.nodes - 1).unwrap()
    }
}

/// Each cluster has a separate namespace.
fn team(number: usize) -> String {
    format!("team-{number:03}")
}

fn name(number: usize) -> String {
    format!("c{number:03}")
}

fn name_of_pool(number: usize) -> String {
    format!("{}-general", name(number))
}

fn cluster(number: usize) -> TenantCluster {
    let mut cluster = fixture::cluster();
    let uid = Uuid::from_u128(0x5ca1_e000_0000_0000 + number as u128).to_string();
    let metadata = &mut cluster.metadata;
    (metadata.name, metadata.namespace, metadata.uid) = (Some(name(number)), Some(team(number)), Some(uid));
    cluster.spec.control_plane.replicas = 1;
    cluster.spec.network.endpoint = serde_json::from_value(json!({"poolRef": {"name": "blue-nodes"}})).unwrap();
    cluster
}

fn pool(number: usize, replicas: u32) -> NodePool {
    let spec = json!({"clusterRef": {"name": name(number)}, "vmClass": "small", "replicas": replicas});
    let mut pool = NodePool::new(&name_of_pool(number), serde_json::from_value(spec).unwrap());
    pool.metadata.namespace = Some(team(number));
    pool
}

/// An API server with all objects that clusters refer to, and all reconcilers running.
struct Running {
    scale: Scale,
    shared: Arc<Shared>,
    counted: Counted,
    works: LocalBoxFuture<'static, ()>,
}

impl Running {
    fn begin(scale: Scale) -> Self {
        // Machines skip free addresses depending on their UIDs: each run uses the same UIDs.
        let (api, places) = (InMemory::repeatable(), Places::default());
        let counted = Counted::new(&api);
        let (term, clock) = (Term::unlimited("controller of a test"), Clock::of_tests());
        // As in this process.
        let objects: Arc<dyn Objects> = Arc::new(Fenced::new(Arc::new(counted.clone()), term.clone()));
        let providers = Providers::new(Arc::clone(&objects), term.clone(), clock.clone());
        let context = Arc::new(Context { objects, providers, term, clock, is_marked: true });
        let shared = Arc::new(Shared { api, places, context });
        let works = works::all(&shared);
        let api = &shared.api;
        let mut provider = fixture::provider();
        provider.spec.allowed_namespaces.from = FromNamespaces::All;
        api.put(&provider);
        let mut addresses = fixture::pool();
        addresses.spec.subnet = "192.168.0.0/16".to_owned();
        addresses.spec.ranges =
            vec![AddressRange { first: "192.168.16.1".to_owned(), last: "192.168.255.254".to_owned() }];
        api.put(&addresses);
        api.put(&fixture::image("kaas-tenant-0.2.0", "0.2.0"));
        let class = serde_json::from_value(json!({"processors": 2, "memoryMiB": 4096})).unwrap();
        api.put(&VMClass::new("small", class));
        // A running controller has created the list of namespaces before.
        let mut list = ConfigMap::default();
        list.metadata.name = Some(NAMESPACES_IN_USE.to_owned());
        list.metadata.namespace = Some(SYSTEM.to_owned());
        api.put(&list);
        for number in 0..scale.clusters {
            api.put(&pool(number, scale.workers()));
            api.put(&cluster(number));
        }
        Self { scale, shared, counted, works }
    }

    /// Runs until the condition holds. Returns the time by the paused clock.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        loop {
            if is_so(self) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < LONGEST, "never {what}: {:?}", self.left());
            self.goes_on(LOOKING).await;
        }
    }

    async fn goes_on(&mut self, time: Duration) {
        tokio::select! {
            () = &mut self.works => panic!("all has ended"),
            () = tokio::time::sleep(time) => {}
        }
    }

    /// Whether a cluster and its pool are ready, with this number of workers.
    fn is_ready(&self, number: usize, workers: u32) -> bool {
        let api = &self.shared.api;
        let cluster = api.read::<TenantCluster>(Some(&team(number)), &name(number));
        let pool = api.read::<NodePool>(Some(&team(number)), &name_of_pool(number));
        let (Some(cluster), Some(pool)) = (cluster.and_then(|it| it.status), pool.and_then(|it| it.status)) else {
            return false;
        };
        is_good(&cluster.conditions)
            && is_good(&pool.conditions)
            && i64::from(pool.ready_replicas) == i64::from(workers)
    }

    /// Up to three clusters that are not ready, with their conditions.
    fn left(&self) -> Vec<String> {
        let said = |number: usize| {
            let cluster = self.shared.api.named("tenantclusters", &name(number)).unwrap_or_default();
            let pool = self.shared.api.named("nodepools", &name_of_pool(number)).unwrap_or_default();
            format!("{}: {} {}", name(number), cluster["status"]["conditions"], pool["status"]["conditions"])
        };
        let workers = self.scale.workers();
        (0..self.scale.clusters).filter(|number| !self.is_ready(*number, workers)).map(said).take(3).collect()
    }

    /// The cost and duration of a change of the first cluster. It begins right after a reconcile of that cluster, so that as few
    /// further reconciles as possible are counted.
    async fn change(
        &mut self,
        what: &str,
        change: impl FnOnce(&InMemory),
        is_so: impl Fn(&Self) -> bool,
    ) -> (Counts, Duration) {
        let looks = Whose { namespace: team(0), reconciler: "tenantclusters".to_owned() };
        self.counted.take();
        self.until("a look", |it| it.counted.has_called(&looks)).await;
        self.goes_on(LOOKING).await;
        self.counted.take();
        change(&self.shared.api);
        let took = self.until(what, is_so).await;
        self.goes_on(AFTER).await;
        let mut counts = self.counted.take();
        counts.retain(|(whose, _), _| whose.namespace == team(0));
        (counts, took)
    }
}

fn is_good(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| condition.about == "Ready" && condition.status == ConditionStatus::True)
}

fn sum<'c>(counts: impl IntoIterator<Item = (&'c (Whose, Call), &'c Count)>) -> Count {
    let add = |sum: Count, (_, count): (_, &Count)| Count {
        calls: sum.calls + count.calls,
        objects: sum.objects + count.objects,
    };
    counts.into_iter().fold(Count::default(), add)
}

/// The sum without calls of a kind.
fn sum_but(counts: &Counts, plural: &str) -> Count {
    sum(counts.iter().filter(|((_, (_, of)), _)| of != plural))
}

/// The sum of the calls of a kind.
fn sum_of(counts: &Counts, plural: &str) -> Count {
    sum(counts.iter().filter(|((_, (_, of)), _)| of == plural))
}

/// Resident memory of this process, in KiB: proc_pid_status(5).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

struct Cost {
    scale: Scale,
    /// Until all are ready: calls, and the time by both clocks.
    made: Counts,
    took: Duration,
    wall: Duration,
    /// Without changes.
    idle: Counts,
    /// One more worker for the first cluster, and the deletion of that cluster.
    grown: Counts,
    grown_in: Duration,
    removed: Counts,
    /// The stored objects and their bytes, and the growth of this process in KiB.
    kept: (usize, usize),
    memory: u64,
}

impl Cost {
    /// `before` is the memory of this process at the beginning, in KiB: memory that an earlier run freed is used again.
    async fn of(scale: Scale, before: u64) -> Self {
        let real = std::time::Instant::now();
        let mut running = Running::begin(scale);
        let workers = scale.workers();
        let took =
            running.until("all ready", |it| (0..scale.clusters).all(|number| it.is_ready(number, workers))).await;
        let (wall, made) = (real.elapsed(), running.counted.take());
        assert_eq!(running.shared.places.vms(), scale.clusters * scale.nodes);
        running.goes_on(AFTER).await;
        let (kept, memory) = (running.shared.api.size(), resident().saturating_sub(before));
        running.counted.take();
        running.goes_on(IDLE).await;
        let idle = running.counted.take();
        let grow = |api: &InMemory| {
            let mut pool = api.read::<NodePool>(Some(&team(0)), &name_of_pool(0)).unwrap();
            pool.spec.replicas += 1;
            api.put(&pool);
        };
        let (grown, grown_in) = running.change("grown", grow, |it| it.is_ready(0, workers + 1)).await;
        let remove = |api: &InMemory| api.remove::<TenantCluster>(Some(&team(0)), &name(0));
        let is_gone = |it: &Running| it.shared.api.read::<TenantCluster>(Some(&team(0)), &name(0)).is_none();
        let (removed, _) = running.change("gone", remove, is_gone).await;
        assert_eq!(running.shared.places.vms(), (scale.clusters - 1) * scale.nodes);
        assert!((1..scale.clusters).all(|number| running.is_ready(number, workers)), "{:?}", running.left());
        Self { scale, made, took, wall, idle, grown, grown_in, removed, kept, memory }
    }

    fn per_cluster(&self, count: u64) -> f64 {
        count as f64 / self.scale.clusters as f64
    }

    fn look(&self) -> Count {
        let own = sum(self.idle.iter().filter(|((whose, _), _)| whose.namespace == team(0)));
        let minutes = IDLE.as_secs() / 60;
        Count { calls: own.calls.div_ceil(minutes), objects: own.objects.div_ceil(minutes) }
    }

    fn tell(&self) {
        let Self { scale: Scale { clusters, nodes }, took, wall, memory, grown_in, .. } = self;
        let (objects, bytes) = self.kept;
        let made = sum(&self.made);
        println!(
            "scale: {clusters} clusters of {nodes} nodes, ready in {:.0} s by the clock and {:.1} s of this machine; {:.0} calls and {:.0} \
             objects read each",
            took.as_secs_f64(),
            wall.as_secs_f64(),
            self.per_cluster(made.calls),
            self.per_cluster(made.objects),
        );
        let idle = sum(&self.idle);
        println!(
            "scale: {:.1} KiB of {:.1} objects kept each; {:.1} MiB of memory more, {:.1} KiB each, VMs and API server in memory included",
            self.per_cluster(bytes as u64) / 1024.0,
            self.per_cluster(objects as u64),
            *memory as f64 / 1024.0,
            self.per_cluster(*memory),
        );
        println!(
            "scale: while nothing changes {:.1} calls and {:.1} objects read a minute each; a worker more takes {} calls and {:.0} s, a \
             removal {} calls",
            self.per_cluster(idle.calls) * 60.0 / IDLE.as_secs_f64(),
            self.per_cluster(idle.objects) * 60.0 / IDLE.as_secs_f64(),
            sum(&self.grown).calls,
            grown_in.as_secs_f64(),
            sum(&self.removed).calls,
        );
        let mut by_call: BTreeMap<&Call, Count> = BTreeMap::new();
        for ((_, call), count) in &self.made {
            let of = by_call.entry(call).or_default();
            (of.calls, of.objects) = (of.calls + count.calls, of.objects + count.objects);
        }
        for ((verb, plural), Count { calls, objects }) in by_call {
            let (calls, objects) = (self.per_cluster(calls), self.per_cluster(objects));
            println!("scale:   {verb} {plural}: {calls:.1} calls and {objects:.1} objects read each");
        }
    }
}

/// The cost of each cluster among few, and among many.
fn each((few, many): (&Cost, &Cost), of: fn(&Cost) -> u64) -> (f64, f64) {
    (few.per_cluster(of(few)), many.per_cluster(of(many)))
}

/// Checks that each of many costs at most `times` as much as each of few.
fn is_linear(what: &str, (few, many): (f64, f64), times: f64) {
    assert!(many <= few * times, "{what}: {many:.1} each of many, {few:.1} each of few");
}

/// Checks that a change of one cluster costs the same among few and among many, within the cost of one reconcile.
fn is_equal(what: &str, few: Count, many: Count, look: Count) {
    let is_within = |one: u64, other: u64, most: u64| one.abs_diff(other) <= most;
    assert!(
        is_within(few.calls, many.calls, look.calls) && is_within(few.objects, many.objects, look.objects),
        "{what}: {few:?} among few, {many:?} among many; a look takes {look:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_a_cluster_is_constant() {
    let measured = std::env::var(SCALE).ok().map(|text| Scale::of(&text));
    let scale = measured.unwrap_or(Scale { clusters: 8, nodes: 3 });
    let before = resident();
    let few = Cost::of(Scale { clusters: (scale.clusters / 4).max(2), ..scale }, before).await;
    let many = Cost::of(scale, before).await;
    if measured.is_some() {
        few.tell();
        many.tell();
    }
    let both = (&few, &many);
    // A claim that lost a race lists the addresses again, somewhat more often among many.
    is_linear("calls until they are ready", each(both, |cost| sum(&cost.made).calls), 1.5);
    is_linear("objects read until they are ready", each(both, |cost| sum(&cost.made).objects), 1.5);
    // Each list has the addresses of all clusters, and concurrent claims share it. The number of lists depends on lost races: a
    // few times more among many, but less than four times as for four times as many clusters.
    is_linear("addresses read until they are ready", each(both, |cost| sum_of(&cost.made, ADDRESSES).objects), 3.0);
    is_linear("objects kept", each(both, |cost| cost.kept.0 as u64), 1.1);
    is_linear("bytes kept", each(both, |cost| cost.kept.1 as u64), 1.1);
    is_linear("calls while nothing changes", each(both, |cost| sum(&cost.idle).calls), 1.1);
    is_linear("objects read while nothing changes", each(both, |cost| sum(&cost.idle).objects), 1.1);
    is_linear("the time until they are ready", (few.took.as_secs_f64(), many.took.as_secs_f64()), 2.0);
    let look =
        Count { calls: few.look().calls.max(many.look().calls), objects: few.look().objects.max(many.look().objects) };
    // A claim lists all addresses once.
    let of_grown = |cost: &Cost| Count { calls: sum(&cost.grown).calls, ..sum_but(&cost.grown, ADDRESSES) };
    is_equal("a worker more", of_grown(&few), of_grown(&many), look);
    is_linear("addresses read for a worker more", each(both, |cost| sum_of(&cost.grown, ADDRESSES).objects), 1.1);
    is_equal("a removal", sum(&few.removed), sum(&many.removed), look);
}
