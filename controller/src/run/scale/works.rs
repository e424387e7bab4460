//! The reconcilers of clusters, pools and addresses, running as in [`crate::run`]: with the same queues, waits, tasks and
//! triggers. Their watches are of an API server in memory, which loses nothing. Reconcilers of Providers, classes and images do
//! not run here: there are few such objects, however many clusters there are.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, LocalBoxFuture, join_all};
use futures_util::{FutureExt, StreamExt, stream};
use kube::ResourceExt;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::counted::{Whose, as_of};
use super::places::Places;
use crate::context::{Context, ReconcileError};
use crate::objects::{IPPool, Machine, NodePool, PoolAddress, TenantCluster};
use crate::reach::in_memory::{Heard, InMemory};
use crate::reach::kinds::Kind;
use crate::reconcilers::{ip_pool, node_pool, pool_address, tenant_cluster};
use crate::run::attempts::Attempts;
use crate::run::{ALL_AT_ONCE, AT_ONCE, GATHERED, Guarded, at_most, claimed, gathered, named, task, triggers};

pub struct Shared {
    pub api: InMemory,
    pub places: Places,
    pub context: Arc<Context>,
}

type Reconciling = BoxFuture<'static, Result<Action, ReconcileError>>;
type Asked<K> = (Store<Guarded<K>>, UnboundedReceiver<ObjectRef<Guarded<K>>>);

fn cluster(cluster: Arc<TenantCluster>, shared: Arc<Shared>) -> Reconciling {
    async move {
        let Context { objects, term, clock, .. } = &*shared.context;
        tenant_cluster::tests::reconcile(&cluster, &**objects, &shared.places, (term, clock)).await
    }
    .boxed()
}

fn pool(pool: Arc<NodePool>, shared: Arc<Shared>) -> Reconciling {
    async move {
        let Context { objects, term, clock, .. } = &*shared.context;
        node_pool::tests::reconcile(&pool, &**objects, &shared.places, (term, clock)).await
    }
    .boxed()
}

fn address(address: Arc<PoolAddress>, shared: Arc<Shared>) -> Reconciling {
    pool_address::reconcile(address, Arc::clone(&shared.context)).boxed()
}

fn ranges(pool: Arc<IPPool>, shared: Arc<Shared>) -> Reconciling {
    ip_pool::reconcile(pool, Arc::clone(&shared.context)).boxed()
}

fn namespace<K: Kind>(object: &K) -> String {
    object.namespace().unwrap_or_default()
}

fn namespace_of_claimant(address: &PoolAddress) -> String {
    address.spec.claimant.namespace.clone()
}

/// Runs all reconcilers on objects that are stored from now on, forever.
pub fn all(shared: &Arc<Shared>) -> LocalBoxFuture<'static, ()> {
    let heard = shared.api.watched();
    let (clusters, of_clusters) = Watched::<TenantCluster>::new();
    let (pools, of_pools) = Watched::<NodePool>::new();
    let (addresses, of_addresses) = Watched::<PoolAddress>::new();
    let (ip_pools, of_ip_pools) = Watched::<IPPool>::new();
    let at_once = at_most(ALL_AT_ONCE);
    let watches = Watches { clusters, pools, addresses, ip_pools };
    let all = vec![
        works(shared, of_clusters, (at_once.clone(), GATHERED), namespace, cluster),
        works(shared, of_pools, (at_once, GATHERED), namespace, pool),
        works(shared, of_addresses, (at_most(AT_ONCE), Duration::ZERO), namespace_of_claimant, address),
        works(shared, of_ip_pools, (at_most(AT_ONCE), GATHERED), namespace, ranges),
        watches.hear(heard).boxed_local(),
    ];
    join_all(all).map(drop).boxed_local()
}

/// Reconciles objects of a queue, as `Controllers::works` does.
fn works<K: Kind + 'static>(
    shared: &Arc<Shared>,
    (store, queue): Asked<K>,
    (config, gathers): (Config, Duration),
    of: fn(&K) -> String,
    reconcile: fn(Arc<K>, Arc<Shared>) -> Reconciling,
) -> LocalBoxFuture<'static, ()> {
    let attempts = Attempts::<Guarded<K>>::default();
    let (counted, known) = (attempts.clone(), store.clone());
    let reconcile = move |object: Arc<Guarded<K>>, shared: Arc<Shared>| {
        let (attempts, known) = (attempts.clone(), known.clone());
        async move {
            let object = gathered(&known, object, gathers).await;
            let readable = object.0.as_ref().unwrap();
            let whose = Whose { namespace: of(readable), reconciler: K::plural(&()).into_owned() };
            let reconciling = reconcile(Arc::new(readable.clone()), shared);
            let reconciled = task::alone(as_of(whose, reconciling)).await;
            attempts.note(&object, reconciled.as_ref().err(), |reference| known.get(reference).is_some());
            reconciled
        }
        .boxed()
    };
    let again =
        move |object: Arc<Guarded<K>>, trouble: &ReconcileError, _: Arc<Shared>| trouble.again(counted.of(&object));
    let queue = stream::unfold(queue, |mut queue| async move {
        let next = queue.recv().await?;
        Some((Ok::<_, Infallible>(next), queue))
    });
    let done = applier(reconcile, again, Arc::clone(shared), store, queue, config);
    done.for_each(|_| std::future::ready(())).boxed_local()
}

/// The watch of a kind: its objects, and the queue of those to reconcile.
struct Watched<K: Kind + 'static> {
    writer: Writer<Guarded<K>>,
    store: Store<Guarded<K>>,
    queue: UnboundedSender<ObjectRef<Guarded<K>>>,
}

impl<K: Kind + 'static> Watched<K> {
    fn new() -> (Self, Asked<K>) {
        let mut writer = Writer::<Guarded<K>>::new(());
        // There are no objects yet.
        writer.apply_watcher_event(&Event::Init);
        writer.apply_watcher_event(&Event::InitDone);
        let (queue, asked) = unbounded_channel();
        let store = writer.as_reader();
        (Self { writer, store: store.clone(), queue }, (store, asked))
    }

    fn hears(&mut self, object: &K, is_there: bool) {
        let guarded = Guarded(Ok(object.clone()));
        if is_there {
            self.writer.apply_watcher_event(&Event::Apply(guarded));
            self.ask([ObjectRef::from_obj(object)]);
        } else {
            self.writer.apply_watcher_event(&Event::Delete(guarded));
        }
    }

    fn ask(&self, these: impl IntoIterator<Item = ObjectRef<K>>) {
        for one in these {
            // All receivers end together.
            let _ = self.queue.send(one.into_kind_unchecked(()));
        }
    }
}

struct Watches {
    clusters: Watched<TenantCluster>,
    pools: Watched<NodePool>,
    addresses: Watched<PoolAddress>,
    ip_pools: Watched<IPPool>,
}

fn read<K: Kind>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

impl Watches {
    async fn hear(mut self, mut heard: UnboundedReceiver<Heard>) {
        while let Some(Heard { plural, object, is_there }) = heard.recv().await {
            match plural.as_str() {
                "tenantclusters" => self.hears_cluster(&read(object), is_there),
                "nodepools" => self.hears_pool(&read(object), is_there),
                "machines" => self.hears_machine(&read(object)),
                "pooladdresses" => self.hears_address(&read(object), is_there),
                "ippools" => self.ip_pools.hears(&read(object), is_there),
                _ => {}
            }
        }
    }

    fn hears_cluster(&mut self, cluster: &TenantCluster, is_there: bool) {
        self.clusters.hears(cluster, is_there);
        self.pools.ask(named(&self.pools.store, |pool| triggers::concerns(cluster, pool)));
        self.addresses.ask(claimed(&self.addresses.store, cluster));
    }

    fn hears_pool(&mut self, pool: &NodePool, is_there: bool) {
        self.pools.hears(pool, is_there);
        self.clusters.ask([triggers::cluster_of_pool(pool)]);
    }

    fn hears_machine(&mut self, machine: &Machine) {
        self.clusters.ask(triggers::cluster_of_machine(machine));
        self.pools.ask(triggers::pool_of_machine(machine));
        self.addresses.ask(claimed(&self.addresses.store, machine));
    }

    fn hears_address(&mut self, address: &PoolAddress, is_there: bool) {
        self.addresses.hears(address, is_there);
        self.ip_pools.ask([ObjectRef::new(&address.spec.pool_ref.name)]);
    }
}
