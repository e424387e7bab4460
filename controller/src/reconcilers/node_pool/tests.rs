//! Workers of a NodePool, from their creation to their removal.

mod deaths;
mod drift;
mod joins;
mod keeps;
mod limits;
mod remove_first;
mod repair;
mod rollout;

use std::net::Ipv4Addr;
use std::time::Duration;

use fleet::workers::PodSeen;
use serde_json::{Value, json};

use super::*;
use crate::objects::{NodePoolSpec, PoolAddress, TenantCluster, VMClass};
use crate::reach::in_memory::Fault;
use crate::reach::{Fenced, Infrastructure, Objects};
use crate::reconcilers::points::drawn;
use crate::reconcilers::tenant_cluster::tests::{VmFault, World};
use crate::term::{Clock, Term};

/// One reconcile of a pool, on any hypervisor.
pub(crate) async fn reconcile(
    pool: &NodePool,
    objects: &dyn Objects,
    places: &dyn Infrastructure,
    (term, clock): (&Term, &Clock),
) -> Result<Action, ReconcileError> {
    PoolReconciler(Reconciler { objects, places, term, clock, is_marked: true }).reconcile(pool).await
}

struct Pooled(World);

/// Runs a story without faults, and then once for each lost answer of the API server. Returns the numbers of its calls and
/// changes of VMs.
async fn with_lost_answers(
    what: &str,
    begun: impl AsyncFn() -> Pooled,
    story: impl AsyncFn(&Pooled, &str),
) -> (usize, usize) {
    let pooled = begun().await;
    let (calls, changes) = (pooled.0.api.calls(), pooled.0.place.lock().changes.len());
    story(&pooled, "nothing goes wrong").await;
    let (calls, changes) = (pooled.0.api.calls() - calls, pooled.0.place.lock().changes.len() - changes);
    let of_call = |call| [Fault::NotDone, Fault::Done, Fault::Changed].map(|fault| (call, fault));
    for (call, fault) in drawn(what, (0..calls).flat_map(of_call).collect()) {
        let pooled = begun().await;
        pooled.0.api.fails_at(call, fault);
        story(&pooled, &format!("{fault:?} at call {call}")).await;
    }
    (calls, changes)
}

/// Runs a story once for each change of a VM that fails, or whose answer is lost.
async fn with_vm_faults(changes: usize, begun: impl AsyncFn() -> Pooled, story: impl AsyncFn(&Pooled, &str)) {
    for (change, fault) in (0..changes).flat_map(|at| [VmFault::Fails, VmFault::Lost].map(|fault| (at, fault))) {
        let pooled = begun().await;
        let made = pooled.0.place.lock().changes.len();
        pooled.0.place.lock().fault = Some((made + change, fault));
        story(&pooled, &format!("{fault:?} at change {change}")).await;
    }
}

fn pool(replicas: u32) -> NodePool {
    let spec = json!({"clusterRef": {"name": "shop"}, "vmClass": "small", "replicas": replicas});
    let mut pool = NodePool::new("shop-general", serde_json::from_value(spec).unwrap());
    pool.metadata.namespace = Some("team-blue".to_owned());
    pool
}

impl Pooled {
    async fn new(replicas: u32) -> Self {
        let world = World::new();
        let class = serde_json::from_value(json!({"processors": 2, "memoryMiB": 4096})).unwrap();
        world.api.put(&VMClass::new("small", class));
        world.until("ready", World::is_ready).await;
        world.api.put(&pool(replicas));
        Self(world)
    }

    /// Deletes the cluster, and reconciles until it is gone or the time is over.
    async fn goes_with_its_cluster(&self) {
        self.0.delete();
        for _ in 0..30 {
            if !self.0.api.names("nodepools").is_empty() {
                let _ = self.reconcile().await;
            }
            if self.0.is_gone() {
                break;
            }
            let _ = self.0.reconcile().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    fn there(&self) -> NodePool {
        serde_json::from_value(self.0.api.object("nodepools")).unwrap()
    }

    fn cluster(&self) -> TenantCluster {
        serde_json::from_value(self.0.api.object("tenantclusters")).unwrap()
    }

    fn scale(&self, replicas: u32) {
        self.want(|pool| pool.replicas = replicas);
    }

    /// Changes the spec as the operator would.
    fn want(&self, change: impl FnOnce(&mut NodePoolSpec)) {
        let mut pool = self.there();
        change(&mut pool.spec);
        self.0.api.put(&pool);
    }

    /// Reconciles so many times, with a pause of so many seconds.
    async fn reconciles(&self, times: usize, seconds: u64) {
        for _ in 0..times {
            self.reconcile().await.unwrap();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    }

    /// Reconciles for this time, as a controller would.
    async fn for_seconds(&self, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    fn pause(&self, is_paused: bool) {
        let mut cluster = self.cluster();
        cluster.spec.paused = is_paused;
        self.0.api.put(&cluster);
    }

    /// Adds a pod to a worker that cannot be evicted.
    fn sticks_to(&self, worker: &str, bare: bool) {
        let name = "stuck".to_owned();
        let pod = PodSeen { namespace: "default".to_owned(), name, uid: "1".to_owned(), ending: false, bare };
        self.0.place.lock().stuck.insert(worker.to_owned(), pod);
    }

    /// Changes something during a reconcile that does not end by itself, and checks that it ends soon.
    async fn is_heeded(&self, done: impl FnOnce()) {
        let begun = Instant::now();
        let later = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            done();
        };
        let (reconciled, ()) = tokio::join!(self.reconcile(), later);
        reconciled.unwrap();
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(20) && took < Duration::from_secs(40), "{took:?}");
    }

    async fn reconcile(&self) -> Result<Action, ReconcileError> {
        let World { api, place, clock, term, .. } = &self.0;
        PoolReconciler(Reconciler { objects: api, places: place, term, clock, is_marked: true })
            .reconcile(&self.there())
            .await
    }

    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..80 {
            if is_so(self) {
                return;
            }
            let _ = self.reconcile().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        panic!("never {what}: {:#}\n{:?}", self.0.api.object("nodepools"), self.0.place.vms());
    }

    /// Scales the pool, and reconciles until it is settled.
    async fn scales(&self, replicas: u32) {
        self.scale(replicas);
        self.until(&format!("{replicas}"), |it| it.is_settled(replicas.into())).await;
    }

    fn workers(&self) -> Vec<String> {
        self.0.place.vms().into_keys().filter(|name| name.contains("-w") && !name.contains("-kept-")).collect()
    }

    fn ready(&self) -> i64 {
        self.0.api.object("nodepools")["status"]["readyReplicas"].as_i64().unwrap_or_default()
    }

    fn is_settled(&self, replicas: i64) -> bool {
        let said = self.condition("Ready") == "AllReady";
        said && self.ready() == replicas && self.workers().len() as i64 == replicas
    }

    fn condition(&self, about: &str) -> String {
        let status = self.0.api.object("nodepools")["status"].clone();
        let found = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == about).cloned();
        found.unwrap_or(Value::Null)["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks that each worker's VM has the UID and the address of its Machine.
    fn is_consistent(&self, what: &str) {
        let vms = self.0.place.vms();
        for name in self.workers() {
            let machine = self.0.api.named("machines", &name).unwrap_or_else(|| panic!("{what}: no Machine {name}"));
            assert_eq!(machine["metadata"]["uid"], vms[&name].to_string(), "{what}: {name}");
            let address = machine["status"]["journal"]["address"].as_str().unwrap().to_owned();
            let form = self.0.place.lock().forms[&name]["address"].clone();
            assert_eq!(form, format!("{address}/24"), "{what}: {name}");
        }
        let machines = self.0.api.names("machines");
        let addresses = self.0.api.names("pooladdresses").len();
        assert_eq!(addresses, machines.len() + 3, "{what}: one each, two for Services, the endpoint: {machines:?}");
    }

    fn provider(&self, change: impl FnOnce(&mut Provider)) {
        let mut provider = crate::decisions::fixture::provider();
        change(&mut provider);
        self.0.api.put(&provider);
    }

    /// Limits the Provider to this number of nodes. Three are control-plane nodes.
    fn limited(&self, nodes: u32) {
        let limits = crate::objects::Limits { nodes: Some(nodes), processors: None, memory_mib: None };
        self.provider(|provider| provider.spec.limits = Some(limits));
    }

    fn message(&self, about: &str) -> String {
        let status = self.there().status.unwrap_or_default();
        let found = status.conditions.into_iter().find(|condition| condition.about == about);
        found.map(|condition| condition.message).unwrap_or_default()
    }

    /// Checks the reason of a condition, and that its message contains these words.
    fn says(&self, about: &str, reason: &str, words: &str) {
        let message = self.message(about);
        let is = self.condition(about);
        assert!(is == reason && message.contains(words), "{is} instead of {reason} with {words}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_and_shrinks_by_its_replicas() {
    let pooled = Pooled::settled(2).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2"]);
    pooled.is_consistent("two");
    pooled.scales(3).await;
    pooled.scales(1).await;
    assert_eq!(pooled.workers(), ["shop-general-w1"]);
    pooled.is_consistent("one");
    pooled.scales(2).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w4"], "names are never used again");
    let form = pooled.0.place.lock().forms["shop-general-w4"].clone();
    assert_eq!(
        (form["role"].as_str(), form["node-pool"].as_str(), form["api-vip"].as_str()),
        ("worker", "general", "192.168.10.10")
    );
}

/// Limits do not count such pools.
#[tokio::test(start_paused = true)]
async fn an_empty_pool_calls_the_api_server_only() {
    let pooled = Pooled::new(0).await;
    // The first reconcile adds the finalizer.
    pooled.reconcile().await.unwrap();
    pooled.0.place.lock().asked_by.clear();
    let opened = pooled.0.place.lock().opened;
    for _ in 0..3 {
        pooled.reconcile().await.unwrap();
    }
    assert!(pooled.0.place.lock().asked_by.is_empty());
    assert_eq!(pooled.0.place.lock().opened, opened);
    assert!(pooled.is_settled(0));
    assert_eq!(pooled.condition("UpToDate"), "Current");
    assert_eq!(pooled.condition("Repairable"), "FewUnhealthy");
    pooled.scales(1).await;
    pooled.scales(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_seventeenth_pool_gets_no_workers() {
    let pooled = Pooled::new(1).await;
    let mut youngest = pooled.there();
    youngest.metadata.creation_timestamp = Some(pooled.0.clock.time());
    pooled.0.api.put(&youngest);
    for number in 0..16 {
        let mut older = pool(1);
        older.metadata.name = Some(format!("shop-older{number}"));
        pooled.0.api.put(&older);
    }
    pooled.until("one too many", |it| it.condition("Ready") == "TooMany").await;
    assert!(pooled.workers().is_empty());
    pooled.0.api.listed();
    pooled.reconcile().await.unwrap();
    assert!(!pooled.0.api.listed().contains("nodepools"), "pools of others are nothing to it");
    pooled.0.api.remove::<NodePool>(Some("team-blue"), "shop-older7");
    pooled.until("one", |it| it.is_settled(1)).await;
}

/// The running reconcile ends, and writes nothing about the new generation.
#[tokio::test(start_paused = true)]
async fn scaling_during_a_join_takes_effect_immediately() {
    let pooled = Pooled::new(1).await;
    pooled.0.place.lock().is_ill = true;
    // The first reconcile adds the finalizer.
    pooled.reconcile().await.unwrap();
    pooled.is_heeded(|| pooled.scale(3)).await;
    let there = pooled.there();
    let judged = there.status.as_ref().unwrap().observed_generation;
    assert_eq!((there.metadata.generation, judged), (Some(2), 1));
    pooled.0.place.lock().is_ill = false;
    pooled.until("three", |it| it.is_settled(3)).await;
    assert_eq!(pooled.there().status.unwrap().observed_generation, 2);
    pooled.is_consistent("three");
}

#[tokio::test(start_paused = true)]
async fn pausing_the_cluster_stops_drains() {
    let pooled = Pooled::settled(4).await;
    pooled.workers().iter().for_each(|worker| pooled.sticks_to(worker, false));
    pooled.scale(1);
    pooled.is_heeded(|| pooled.pause(true)).await;
    // The drains could succeed now.
    pooled.0.place.lock().stuck.clear();
    for _ in 0..10 {
        pooled.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(pooled.workers().len(), 4);
    }
    pooled.pause(false);
    pooled.until("one", |it| it.is_settled(1)).await;
    pooled.is_consistent("one");
}

#[tokio::test(start_paused = true)]
async fn pausing_the_cluster_stops_growth() {
    let pooled = Pooled::new(2).await;
    pooled.0.place.lock().is_ill = true;
    // The first reconcile adds the finalizer.
    pooled.reconcile().await.unwrap();
    pooled.is_heeded(|| pooled.pause(true)).await;
    pooled.scale(5);
    for _ in 0..3 {
        pooled.reconcile().await.unwrap();
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(pooled.workers().len(), 2);
    }
    pooled.0.place.lock().is_ill = false;
    pooled.pause(false);
    pooled.until("five", |it| it.is_settled(5)).await;
    pooled.is_consistent("five");
}

/// Finding 12 of controller.md: after days of a pause the kubeconfig had expired, and all workers were called not Ready.
#[tokio::test(start_paused = true)]
async fn workers_of_a_paused_cluster_stay_ready() {
    let pooled = Pooled::settled(2).await;
    pooled.pause(true);
    for _ in 0..64 {
        tokio::time::sleep(Duration::from_secs(3 * 3600)).await;
        pooled.0.reconcile().await.unwrap();
        pooled.reconcile().await.unwrap();
        assert!(pooled.0.is_ready(), "{:?}", pooled.0.condition("Ready"));
        assert!(pooled.is_settled(2), "{:?}", pooled.condition("Ready"));
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_machines_take_effect_during_joins() {
    let pooled = Pooled::new(2).await;
    pooled.0.place.lock().is_ill = true;
    pooled.reconcile().await.unwrap();
    pooled
        .is_heeded(|| {
            let mut machine: Machine = pooled.0.api.read(Some("team-blue"), "shop-general-w1").unwrap();
            machine.spec.drain.delete_unmanaged_pods = true;
            pooled.0.api.put(&machine);
        })
        .await;
    pooled.is_heeded(|| pooled.0.api.remove::<Machine>(Some("team-blue"), "shop-general-w1")).await;
    pooled.0.place.lock().is_ill = false;
    pooled.until("again", |it| it.is_settled(2) && !it.workers().contains(&"shop-general-w1".to_owned())).await;
    pooled.is_consistent("again");
}

#[tokio::test(start_paused = true)]
async fn a_closing_term_does_not_await_shutdowns() {
    let mut pooled = Pooled::settled(2).await;
    pooled.0.place.lock().is_slow = true;
    pooled.scale(1);
    pooled.is_heeded(|| pooled.0.term.close()).await;
    assert!(!pooled.0.place.lock().changes.contains(&"cut_power"));
    assert_eq!(pooled.workers().len(), 2);
    pooled.0.term = Term::unlimited("controller two");
    pooled.until("one", |it| it.is_settled(1)).await;
    pooled.is_consistent("one");
}

#[tokio::test(start_paused = true)]
async fn a_pool_waits_for_its_clusters_own_kubeconfig() {
    let pooled = Pooled::settled(1).await;
    let elsewhere = pooled.0.own_kubeconfig().replace("https://192.168.10.", "https://10.0.0.");
    for text in ["x".to_owned(), elsewhere] {
        pooled.0.put_own_kubeconfig(Some(&text));
        pooled.reconcile().await.unwrap();
        assert_eq!(pooled.condition("Ready"), "ClusterNotReady");
        assert!(!pooled.0.place.lock().asked_by.contains(&text));
        pooled.0.reconcile().await.unwrap();
        pooled.reconcile().await.unwrap();
        assert!(pooled.is_settled(1));
    }
    // A kubeconfig that fits, but cannot be used.
    pooled.0.place.lock().is_unusable = true;
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "ClusterNotReady");
}

#[tokio::test(start_paused = true)]
async fn a_settled_pool_acquires_no_lease() {
    let pooled = Pooled::settled(1).await;
    pooled.reconcile().await.unwrap();
    let (leases, object) = (pooled.0.api.names("leases"), pooled.0.api.object("nodepools"));
    pooled.reconciles(5, 60).await;
    assert_eq!((pooled.0.api.names("leases"), pooled.0.api.object("nodepools")), (leases, object));
}

#[tokio::test(start_paused = true)]
async fn deleting_the_cluster_ignores_stuck_pods() {
    let pooled = Pooled::settled(2).await;
    pooled.sticks_to("shop-general-w1", true);
    pooled.goes_with_its_cluster().await;
    pooled.0.is_clean("it went with its workers");
}

#[tokio::test(start_paused = true)]
async fn deleting_a_pool_drains_its_workers() {
    let pooled = Pooled::settled(1).await;
    pooled.sticks_to("shop-general-w1", false);
    pooled.0.api.remove::<NodePool>(Some("team-blue"), "shop-general");
    pooled.reconciles(8, 60).await;
    pooled.says("UpToDate", "DrainBlocked", "set `spec.drain` of the Machine");
    assert_eq!(pooled.workers().len(), 1);
    pooled.0.place.lock().stuck.clear();
    pooled.until("gone", |it| it.0.api.names("nodepools").is_empty()).await;
    assert_eq!((pooled.workers().len(), pooled.0.api.names("machines").len()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_machine_stops_its_pool() {
    let pooled = Pooled::new(2).await;
    pooled.until("two", |it| it.is_settled(2)).await;
    let set_phase = |phase: &str| {
        let mut machine = pooled.0.api.named("machines", "shop-general-w1").unwrap();
        machine["status"]["phase"] = json!(phase);
        pooled.0.api.put_value(&crate::reach::Collection::of::<Machine>(Some("team-blue")), machine);
    };
    set_phase("Dreaming");
    let words = "the Machine team-blue/shop-general-w1 cannot be read: unknown variant `Dreaming`";
    let trouble = pooled.0.without_last_call(async || pooled.reconcile().await).await.unwrap_err().to_string();
    assert!(trouble.contains(words), "the status was not written: {trouble}");
    assert_eq!(pooled.condition("Ready"), "AllReady");
    for replicas in [3, 0] {
        pooled.scale(replicas);
        let trouble = pooled.reconcile().await.unwrap_err().to_string();
        assert!(trouble.contains(words), "{trouble}");
        assert_eq!(pooled.condition("Ready"), "Unfit");
        assert!(pooled.message("Ready").starts_with(words), "{}", pooled.message("Ready"));
        let [machines, addresses] = ["machines", "pooladdresses"].map(|kind| pooled.0.api.names(kind).len());
        assert_eq!((pooled.workers().len(), machines, addresses), (2, 5, 8));
    }
    set_phase("Running");
    pooled.scale(3);
    pooled.until("three", |it| it.is_settled(3)).await;
    assert_eq!(pooled.workers(), ["shop-general-w1", "shop-general-w2", "shop-general-w3"]);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_address_is_reported() {
    let pooled = Pooled::new(1).await;
    pooled.until("one", |it| it.is_settled(1)).await;
    let address = pooled.0.api.object("pooladdresses");
    let put =
        |address: &Value| pooled.0.api.put_value(&crate::reach::Collection::of::<PoolAddress>(None), address.clone());
    let mut other = address.clone();
    other["spec"]["claimant"]["purpose"] = json!("Dreaming");
    put(&other);
    pooled.scale(2);
    let name = address["metadata"]["name"].as_str().unwrap();
    let words = format!("the PoolAddress {name} cannot be read: unknown variant `Dreaming`");
    let trouble = pooled.reconcile().await.unwrap_err().to_string();
    assert!(trouble.contains(&words), "{trouble}");
    assert_eq!(pooled.condition("Ready"), "Unfit");
    assert!(pooled.message("Ready").starts_with(&words), "{}", pooled.message("Ready"));
    put(&address);
    pooled.until("two", |it| it.is_settled(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_reported() {
    let pooled = Pooled::new(1).await;
    pooled.want(|pool| pool.vm_class = "large".to_owned());
    pooled.reconcile().await.unwrap();
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "Unfit");
    pooled.want(|pool| pool.zones = vec!["a".to_owned(), "x".to_owned()]);
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "Unfit");
    pooled.want(|pool| pool.network = Some("leased".to_owned()));
    pooled.reconcile().await.unwrap();
    assert_eq!(pooled.condition("Ready"), "NotSupported");
    assert!(pooled.workers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn exhausted_addresses_leave_no_incomplete_worker() {
    let pooled = Pooled::new(9).await;
    for _ in 0..10 {
        let _ = pooled.reconcile().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    // There are ten addresses, and the cluster uses five.
    assert_eq!(pooled.workers().len(), 5);
    pooled.is_consistent("five of nine");
    pooled.scales(5).await;
}

#[tokio::test(start_paused = true)]
async fn addresses_are_listed_once_for_several_workers() {
    let pooled = Pooled::new(0).await;
    let there = pooled.there();
    let mut like = Machine::new("", crate::objects::fixture::worker());
    (like.metadata.namespace, like.spec.cluster_ref.name) = (Some("team-blue".to_owned()), "shop".to_owned());
    let addresses = crate::decisions::fixture::pool();
    let World { api, term, .. } = &pooled.0;
    let fenced = Fenced::new(Arc::new(api.clone()), term.clone());
    let store = PoolStore::new(&fenced, &there, term, &like, Some(&addresses));
    let draw = async |name: &str| {
        let before = api.calls();
        let address = store.draw(1, name, None).await.unwrap().address.unwrap();
        (api.calls() - before, address)
    };
    let (first, one) = draw("shop-general-w1").await;
    let (second, other) = draw("shop-general-w2").await;
    assert_eq!((second, other), (first - 1, Ipv4Addr::from(u32::from(one) + 1)));
    // Another cluster has claimed the next address since.
    let taken = Ipv4Addr::from(u32::from(other) + 1);
    let claimant = crate::decisions::claimant(&Machine::new("other-cp1", crate::objects::fixture::worker()));
    api.put(&crate::decisions::claimed("blue-nodes", taken, claimant));
    let (_, third) = draw("shop-general-w3").await;
    assert!(third > taken, "{third}");
    assert_eq!(api.names("pooladdresses").len(), 6 + 3 + 1);
    // A repeated call for a Machine finds its address, although no list contains it.
    for (name, address) in [("shop-general-w1", one), ("shop-general-w2", other), ("shop-general-w3", third)] {
        let machine = api.read::<Machine>(Some("team-blue"), name).unwrap();
        assert_eq!(store.admitted(&machine).await.unwrap(), Some(address), "{name}");
    }
    assert_eq!(api.names("pooladdresses").len(), 6 + 3 + 1);
    // A list that another caller requested since is new enough, and its entries count once.
    assert!(fenced.in_use(None).await.unwrap().number() > 1);
    let (fourth, _) = draw("shop-general-w4").await;
    assert_eq!((fourth, api.names("pooladdresses").len()), (second, 6 + 3 + 2));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_worker() {
    /// A Machine whose creation was not confirmed is deleted at the next look.
    fn is_whole(pooled: &Pooled, replicas: i64) -> bool {
        pooled.is_settled(replicas) && pooled.0.api.names("machines").len() as i64 == 3 + replicas
    }
    async fn story(pooled: &Pooled, what: &str) {
        pooled.until(&format!("two: {what}"), |it| is_whole(it, 2)).await;
        pooled.is_consistent(what);
        pooled.scale(1);
        pooled.until(&format!("one: {what}"), |it| is_whole(it, 1)).await;
        pooled.is_consistent(what);
    }
    let (calls, _) = with_lost_answers("answers while a pool grows and shrinks", || Pooled::new(2), story).await;
    assert!(calls > 100, "{calls}");
}
