//! Runs all reconcilers while this process leads. Each kind has its own watch and queue. Each object under way has a separate
//! task: one that fails or takes long does not delay others. A change of an object also reconciles other objects that depend on
//! it: [`triggers`].

mod announcer;
mod attempts;
mod exec;
mod health;
#[cfg(test)]
mod scale;
mod signals;
mod task;
mod triggers;

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api as Watched, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use self::announcer::Announcer;
use self::attempts::Attempts;
use self::exec::was_re_executed;
use crate::context::{Context, ReconcileError};
use crate::documents::ACCOUNT;
use crate::leadership::Candidate;
use crate::objects::{
    Condition, IPPool, Machine, NodeImage, NodePool, PoolAddress, Provider, SYSTEM, TenantCluster, VMClass,
};
use crate::reach::providers::Providers;
use crate::reach::{Api, Fenced, Objects, clear_left_over};
use crate::reconcilers::{ip_pool, node_image, node_pool, pool_address, provider, tenant_cluster, vm_class};
use crate::term::{Clock, Term, TermEnded, identity};

pub use self::exec::{name_process, re_exec};
pub use self::signals::Signals;

/// How long work may take to end after the process was asked to. If it has not ended by then, the lease is not released.
const GRACE: Duration = Duration::from_secs(20);
/// How long changes are collected before a reconcile: nodes often change together.
const GATHERED: Duration = Duration::from_secs(1);
/// The number of objects of a kind that are reconciled at once.
const AT_ONCE: u16 = 16;
/// As [`AT_ONCE`], for clusters and their pools. 0 means no limit (kube). A reconcile lasts as long as VMs take, mostly waiting.
/// The session limits the calls to a vCenter.
const ALL_AT_ONCE: u16 = 0;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The kubeconfig for the API server. `None` uses the service account of this process.
    pub kubeconfig: Option<PathBuf>,
    /// The name of its node in messages.
    pub node: String,
    /// The address of the health check, on the loopback interface.
    pub health: Option<SocketAddr>,
    /// How long it leaves an expired Lease to others.
    pub patience: Duration,
    /// The directory for files that stay on this node: snapshots that are taken before upgrades.
    pub directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to end, and has ended.
    Asked,
    /// It lost the Lease. The caller executes the program again, which ends all work that is left.
    Lost,
}

/// Waits for the election, and works until it is asked to end (SIGTERM, SIGINT) or loses the Lease.
///
/// # Errors
/// The API server's credentials cannot be read; or the process was asked to end, and not all work has ended in time.
pub async fn run(settings: &Settings, signals: &Signals) -> anyhow::Result<ExitReason> {
    let api = Api::connect(settings.kubeconfig.as_deref()).await?;
    let health = match settings.health {
        Some(address) => Some(health::listen(address).await?),
        None => None,
    };
    // It answers while the runtime polls its tasks.
    let _answering = health.map(|listener| tokio::spawn(health::answers(listener)));
    let (asked, stopping) = watch::channel(false);
    let signals = signals.listen()?;
    let leading = lead(api, settings, stopping.clone());
    tokio::pin!(leading);
    tokio::select! {
        biased;
        // A signal that is not read here is read by the program that is executed again.
        read = signals.asked() => read?,
        led = &mut leading => {
            if led.is_err() {
                log::warn!("this program starts again, so that nothing of its term continues, and takes part in the election again");
            }
            return Ok(if led.is_ok() { ExitReason::Asked } else { ExitReason::Lost });
        }
    }
    asked.send_replace(true);
    leading.await.context("ending what was under way")?;
    Ok(ExitReason::Asked)
}

/// Leads on an API server, until it is asked to end.
///
/// # Errors
/// The term has ended.
pub async fn lead(api: Api, settings: &Settings, stopping: watch::Receiver<bool>) -> Result<(), TermEnded> {
    let (clock, objects) = (Clock::default(), Arc::new(api.clone()) as Arc<dyn Objects>);
    let candidate = Candidate::new(Arc::clone(&objects), clock.clone(), &identity(&settings.node), settings.patience)
        .having_led(was_re_executed())
        .until(stopping.clone());
    // Any other patience means that this is another build.
    let (directory, node, is_marked) = (settings.directory.clone(), settings.node.clone(), settings.patience.is_zero());
    let work = |term: Term| async move {
        let objects: Arc<dyn Objects> = Arc::new(Fenced::new(objects, term.clone()));
        let providers = Providers::keeping(Arc::clone(&objects), term.clone(), clock.clone(), directory, &node);
        let context = Arc::new(Context { objects, providers, term, clock, is_marked });
        if let Err(error) = clear_left_over(&*context.objects, &context.providers).await {
            log::warn!("what is kept here of clusters that are gone stays: {error:#}");
        }
        looks_after_all(api.client(), &context, stopping).await;
    };
    candidate.lead(work).await
}

/// Runs all reconcilers until they are asked to end and have ended, or [`GRACE`] is over.
async fn looks_after_all(client: &Client, context: &Arc<Context>, mut stopping: watch::Receiver<bool>) {
    let work = Controllers { client: client.clone(), context: Arc::clone(context), stopping: stopping.clone() };
    let all = join_all([
        work.providers(),
        work.pools(),
        work.addresses(),
        work.classes(),
        work.images(),
        work.clusters(),
        work.node_pools(),
    ]);
    let late = async {
        // The sender lives as long as the program.
        let _ = stopping.wait_for(|asked| *asked).await;
        context.term.close();
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        _ = all => {}
        () = work.announces() => {}
        () = late => {
            log::warn!("not all has ended within {} s", GRACE.as_secs());
            context.term.end();
        }
    }
}

struct Controllers {
    client: Client,
    context: Arc<Context>,
    stopping: watch::Receiver<bool>,
}

impl Controllers {
    fn providers(&self) -> BoxFuture<'static, ()> {
        let controller = self.watches::<Provider>();
        let providers = controller.store();
        let secrets = Watched::<Secret>::namespaced(self.client.clone(), SYSTEM);
        let controller = controller.watches(secrets, watcher::Config::default(), move |secret| {
            let name = secret.name_any();
            named(&providers, move |provider| provider.spec.credentials_ref.name == name)
        });
        self.works(controller, provider::reconcile, at_most(AT_ONCE))
    }

    fn pools(&self) -> BoxFuture<'static, ()> {
        let addresses = Watched::<PoolAddress>::all(self.client.clone());
        let controller = self.watches::<IPPool>().watches(addresses, watcher::Config::default(), |address| {
            [ObjectRef::<IPPool>::new(&address.spec.pool_ref.name)]
        });
        self.works(controller, ip_pool::reconcile, at_most(AT_ONCE).debounce(GATHERED))
    }

    fn addresses(&self) -> BoxFuture<'static, ()> {
        let controller = self.watches::<PoolAddress>();
        let [by_machine, by_cluster] = [controller.store(), controller.store()];
        let machines = Watched::<Machine>::all(self.client.clone());
        let clusters = Watched::<TenantCluster>::all(self.client.clone());
        let controller = controller
            .watches(machines, watcher::Config::default(), move |machine| claimed(&by_machine, &machine))
            .watches(clusters, watcher::Config::default(), move |cluster| claimed(&by_cluster, &cluster));
        self.works(controller, pool_address::reconcile, at_most(AT_ONCE))
    }

    fn classes(&self) -> BoxFuture<'static, ()> {
        self.works(self.watches::<VMClass>(), vm_class::reconcile, at_most(AT_ONCE))
    }

    fn images(&self) -> BoxFuture<'static, ()> {
        let controller = self.watches::<NodeImage>();
        let images = controller.store();
        let providers = Watched::<Provider>::all(self.client.clone());
        // Changes of the free capacity are frequent, and do not concern images.
        let is_new = |provider: &Provider| {
            let observed = provider.status.as_ref().map(|status| status.observed_generation);
            provider.metadata.generation != observed
        };
        let controller = controller.watches(providers, watcher::Config::default(), move |provider| {
            if is_new(&provider) { named(&images, |_| true) } else { Vec::new() }
        });
        self.works(controller, node_image::reconcile, at_most(AT_ONCE))
    }

    fn clusters(&self) -> BoxFuture<'static, ()> {
        let machines = Watched::<Machine>::all(self.client.clone());
        let pools = Watched::<NodePool>::all(self.client.clone());
        let controller = self
            .watches::<TenantCluster>()
            .watches(machines, watcher::Config::default(), |machine| triggers::cluster_of_machine(&machine))
            .watches(pools, watcher::Config::default(), |pool| Some(triggers::cluster_of_pool(&pool)));
        self.works(controller, tenant_cluster::reconcile, at_most(ALL_AT_ONCE).debounce(GATHERED))
    }

    fn node_pools(&self) -> BoxFuture<'static, ()> {
        let controller = self.watches::<NodePool>();
        let pools = controller.store();
        let machines = Watched::<Machine>::all(self.client.clone());
        let clusters = Watched::<TenantCluster>::all(self.client.clone());
        let controller = controller
            .watches(machines, watcher::Config::default(), |machine| triggers::pool_of_machine(&machine))
            .watches(clusters, watcher::Config::default(), move |cluster| {
                named(&pools, |pool| triggers::concerns(&cluster, pool))
            });
        self.works(controller, node_pool::reconcile, at_most(ALL_AT_ONCE).debounce(GATHERED))
    }

    /// Publishes Events of changed conditions, for ever.
    async fn announces(&self) {
        let identity = self.context.term.identity();
        // The limit of an Event's field: 128 characters.
        let instance = identity.chars().take(128).collect();
        let reporter = Reporter { controller: ACCOUNT.to_owned(), instance: Some(instance) };
        let announcer = || Announcer::new(self.client.clone(), reporter.clone());
        tokio::join!(
            announcer().announces::<TenantCluster>(|it| said(it.status.as_ref().map(|it| &it.conditions))),
            announcer().announces::<NodePool>(|it| said(it.status.as_ref().map(|it| &it.conditions))),
            announcer().announces::<Machine>(|it| said(it.status.as_ref().map(|it| &it.conditions))),
            announcer().announces::<Provider>(|it| said(it.status.as_ref().map(|it| &it.conditions))),
            announcer().announces::<NodeImage>(|it| said(it.status.as_ref().map(|it| &it.conditions))),
        );
    }

    fn watches<K>(&self) -> Controller<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        Controller::new(Watched::<K>::all(self.client.clone()), watcher::Config::default())
    }

    /// Reconciles until it is asked to end and all work under way has ended.
    fn works<K, F>(
        &self,
        controller: Controller<K>,
        reconcile: fn(Arc<K>, Arc<Context>) -> F,
        config: Config,
    ) -> BoxFuture<'static, ()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let (attempts, mut stopping) = (Attempts::<K>::default(), self.stopping.clone());
        let (counted, asked) = (attempts.clone(), async move {
            let _ = stopping.wait_for(|asked| *asked).await;
        });
        let (store, mut ending) = (controller.store(), self.stopping.clone());
        // Before the first list is complete no object is under way, and the wait for it does not end by itself.
        let unseen = async move {
            let _ = ending.wait_for(|asked| *asked).await;
            if store.wait_until_ready().now_or_never().is_some() {
                std::future::pending::<()>().await;
            }
        };
        let reconcile = move |object: Arc<K>, context: Arc<Context>| {
            let attempts = attempts.clone();
            async move {
                let reconciled = task::alone(reconcile(Arc::clone(&object), context)).await;
                attempts.note(&object, reconciled.as_ref().err());
                reconciled
            }
        };
        let again = move |object: Arc<K>, trouble: &ReconcileError, _| trouble.again(counted.of(&object));
        let controller = controller.with_config(config).graceful_shutdown_on(asked);
        let done = controller.run(reconcile, again, Arc::clone(&self.context)).for_each(|done| {
            // Errors of reconciles are logged already. The others are from the watch, which continues by itself.
            if let Err(error @ kube::runtime::controller::Error::QueueError(_)) = done {
                log::warn!("watching {}: {error}", K::plural(&()));
            }
            std::future::ready(())
        });
        let work = async move {
            tokio::select! {
                () = done => {}
                () = unseen => {}
            }
        };
        work.boxed()
    }
}

fn said(conditions: Option<&Vec<Condition>>) -> &[Condition] {
    conditions.map(Vec::as_slice).unwrap_or_default()
}

fn at_most(objects: u16) -> Config {
    Config::default().concurrency(objects)
}

/// The matching objects of a kind.
fn named<K>(store: &Store<K>, is_meant: impl Fn(&K) -> bool) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().filter(|object| is_meant(object)).map(|object| ObjectRef::from_obj(&**object)).collect()
}

/// The addresses of a claimant that is being deleted. Those of others need no reconcile.
fn claimed<K: Resource<DynamicType = ()>>(addresses: &Store<PoolAddress>, claimant: &K) -> Vec<ObjectRef<PoolAddress>> {
    let meta = claimant.meta();
    if meta.deletion_timestamp.is_none() {
        return Vec::new();
    }
    named(addresses, |address| Some(&address.spec.claimant.uid) == meta.uid.as_ref())
}
