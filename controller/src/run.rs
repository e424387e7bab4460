//! Runs all reconcilers as long as this process leads. Each kind has its own watch and queue, and each object its own task, so
//! that a failing or slow one blocks no other. A change of an object can also trigger another object: [`triggers`]. An object
//! that cannot be read fails alone: a watch has the error in its place.

mod announcer;
mod attempts;
mod exec;
mod health;
#[cfg(test)]
mod scale;
mod signals;
mod task;
mod triggers;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DeserializeGuard as Guarded;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api as Watched, Client, Resource, ResourceExt};
use tokio::sync::watch;

use self::announcer::Announcer;
use self::attempts::Attempts;
use self::exec::was_re_executed;
use crate::context::{Context, ReconcileError};
use crate::documents::ACCOUNT;
use crate::leadership::Candidate;
use crate::objects::{
    Condition, IPPool, Machine, NodeImage, NodePool, PoolAddress, Provider, SYSTEM, Tenant, TenantCluster, VMClass,
};
use crate::reach::kinds::Kind;
use crate::reach::providers::Providers;
use crate::reach::{Api, ControlCluster, Fenced, Objects, clear_left_over, correct_used_namespaces};
use crate::reconcilers::{ip_pool, node_image, node_pool, pool_address, provider, tenant, tenant_cluster, vm_class};
use crate::term::{Clock, Term, TermEnded, identity};

pub use self::exec::{name_process, re_exec};
pub use self::signals::Signals;

/// How long running tasks may take to end after SIGTERM. A Lease is not released before they have ended.
const GRACE: Duration = Duration::from_secs(20);
/// How long changes are collected before an object is reconciled: nodes are often created and removed together.
const GATHERED: Duration = Duration::from_secs(1);
/// The interval of corrections of the list of namespaces with clusters.
const CORRECTED: Duration = Duration::from_secs(5 * 60);
/// Objects of a kind that are reconciled at the same time.
const AT_ONCE: u16 = 16;
/// The same for clusters and their pools: no limit (0 in kube). A cluster's task lasts as long as its VMs take to be created, and
/// mostly waits. The vCenter session limits concurrent requests.
const ALL_AT_ONCE: u16 = 0;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Kubeconfig of the API server. Default: the service account of this process.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node that it runs on.
    pub node: String,
    /// Address on the loopback interface for the health check.
    pub health: Option<SocketAddr>,
    /// How long an expired Lease is left to others.
    pub patience: Duration,
    /// Directory for data of this node only: snapshots of clusters' stores before upgrades.
    pub directory: PathBuf,
    /// The virtual IP of the control cluster, which no tenant cluster gets.
    pub virtual_address: Option<Ipv4Addr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to end, and all tasks have ended.
    Asked,
    /// It no longer leads. Remaining tasks end when the program re-executes itself.
    Lost,
}

/// Waits for election, and works until it is asked to end (SIGTERM, SIGINT) or no longer leads:
///
/// 1. Connects to the API server, and answers health checks.
/// 2. [`lead`]: stands for the Lease, and begins a term once it leads.
/// 3. Watches each kind, and reconciles its objects: [`tenant_cluster::reconcile`] and the other reconcilers.
/// 4. Asked to end: closes the term, waits for running tasks, and releases the Lease.
///
/// # Errors
/// The API server's credentials cannot be read. Or it was asked to end, and some tasks did not end in time.
pub async fn run(settings: &Settings, signals: &Signals) -> anyhow::Result<ExitReason> {
    let api = Api::connect(settings.kubeconfig.as_deref()).await?;
    let health = match settings.health {
        Some(address) => Some(health::listen(address).await?),
        None => None,
    };
    // Shows whether this process still schedules tasks.
    let _answering = health.map(|listener| tokio::spawn(health::answers(listener)));
    let (asked, stopping) = watch::channel(false);
    let signals = signals.listen()?;
    let leading = lead(api, settings, stopping.clone());
    tokio::pin!(leading);
    tokio::select! {
        biased;
        // A signal that is not read here is read after the re-execution.
        read = signals.asked() => read?,
        led = &mut leading => {
            if led.is_err() {
                log::warn!("the controller starts again, so that no task of its term continues, and takes part in the next election");
            }
            return Ok(if led.is_ok() { ExitReason::Asked } else { ExitReason::Lost });
        }
    }
    asked.send_replace(true);
    leading.await.context("ending what was under way")?;
    Ok(ExitReason::Asked)
}

/// As [`run`] with a given API server, until it is asked to end.
pub async fn lead(api: Api, settings: &Settings, stopping: watch::Receiver<bool>) -> Result<(), TermEnded> {
    let (clock, objects) = (Clock::default(), Arc::new(api.clone()) as Arc<dyn Objects>);
    let candidate = Candidate::new(Arc::clone(&objects), clock.clone(), &identity(&settings.node), settings.patience)
        .having_led(was_re_executed())
        .until(stopping.clone());
    // A patience above zero means another build than the marked one.
    let (directory, node, is_marked) = (settings.directory.clone(), settings.node.clone(), settings.patience.is_zero());
    let control_cluster = ControlCluster { virtual_address: settings.virtual_address, has_former_kinds: !is_marked };
    let work = |term: Term| async move {
        let objects: Arc<dyn Objects> = Arc::new(Fenced::new(objects, term.clone()).of(control_cluster));
        let providers = Providers::keeping(Arc::clone(&objects), term.clone(), clock.clone(), directory, &node);
        let context = Arc::new(Context { objects, providers, term, clock, is_marked });
        if let Err(error) = clear_left_over(&*context.objects, &context.providers).await {
            log::warn!("cannot remove files of deleted clusters: {error:#}");
        }
        run_reconcilers(api.client(), &context, stopping).await;
    };
    candidate.lead(work).await
}

/// Runs the reconcilers of all kinds until all have ended or the grace period is over.
async fn run_reconcilers(client: &Client, context: &Arc<Context>, stopping: watch::Receiver<bool>) {
    let work = Controllers { client: client.clone(), context: Arc::clone(context), stopping: stopping.clone() };
    let all = join_all([
        work.providers(),
        work.tenants(),
        work.pools(),
        work.addresses(),
        work.classes(),
        work.images(),
        work.clusters(),
        work.node_pools(),
    ]);
    let late = async {
        asked_to_end(stopping).await;
        context.term.close();
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        _ = all => {}
        () = work.announces() => {}
        () = work.corrects_namespaces() => {}
        () = late => {
            log::warn!("some tasks did not end within {} s", GRACE.as_secs());
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
        let controller = self.watch::<Provider>();
        let providers = controller.store();
        let secrets = Watched::<Guarded<Secret>>::namespaced(self.client.clone(), SYSTEM);
        let controller = also(controller, secrets, move |secret: Secret| {
            let name = secret.name_any();
            named(&providers, move |provider| provider.spec.credentials_ref.name == name)
        });
        self.run(controller, provider::reconcile, at_most(AT_ONCE), Duration::ZERO)
    }

    fn tenants(&self) -> BoxFuture<'static, ()> {
        let controller = self.watch::<Tenant>();
        let tenants = controller.store();
        // Tenants that list the same namespace.
        let of_namespaces = move |changed: Tenant| {
            named(&tenants, |tenant| {
                let is_shared = |name: &String| changed.spec.namespaces.contains(name);
                tenant.name_any() != changed.name_any() && tenant.spec.namespaces.iter().any(is_shared)
            })
        };
        self.run(also(controller, self.all(), of_namespaces), tenant::reconcile, at_most(AT_ONCE), Duration::ZERO)
    }

    fn pools(&self) -> BoxFuture<'static, ()> {
        let of_address = |address: PoolAddress| [ObjectRef::<IPPool>::new(&address.spec.pool_ref.name)];
        let controller = also(self.watch::<IPPool>(), self.all(), of_address);
        self.run(controller, ip_pool::reconcile, at_most(AT_ONCE), GATHERED)
    }

    fn addresses(&self) -> BoxFuture<'static, ()> {
        let controller = self.watch::<PoolAddress>();
        let [by_machine, by_cluster] = [controller.store(), controller.store()];
        let of_machine = move |machine: Machine| claimed(&by_machine, &machine);
        let of_cluster = move |cluster: TenantCluster| claimed(&by_cluster, &cluster);
        let controller = also(also(controller, self.all(), of_machine), self.all(), of_cluster);
        self.run(controller, pool_address::reconcile, at_most(AT_ONCE), Duration::ZERO)
    }

    fn classes(&self) -> BoxFuture<'static, ()> {
        self.run(self.watch::<VMClass>(), vm_class::reconcile, at_most(AT_ONCE), Duration::ZERO)
    }

    fn images(&self) -> BoxFuture<'static, ()> {
        let controller = self.watch::<NodeImage>();
        let images = controller.store();
        // The free capacity of a Provider changes often, and does not matter to images.
        let is_new = |provider: &Provider| {
            let observed = provider.status.as_ref().map(|status| status.observed_generation);
            provider.metadata.generation != observed
        };
        let of_provider =
            move |provider: Provider| if is_new(&provider) { named(&images, |_| true) } else { Vec::new() };
        self.run(also(controller, self.all(), of_provider), node_image::reconcile, at_most(AT_ONCE), Duration::ZERO)
    }

    fn clusters(&self) -> BoxFuture<'static, ()> {
        let controller = self.watch::<TenantCluster>();
        let of_machine = |machine: Machine| triggers::cluster_of_machine(&machine);
        let of_pool = |pool: NodePool| Some(triggers::cluster_of_pool(&pool));
        let controller = also(also(controller, self.all(), of_machine), self.all(), of_pool);
        self.run(controller, tenant_cluster::reconcile, at_most(ALL_AT_ONCE), GATHERED)
    }

    fn node_pools(&self) -> BoxFuture<'static, ()> {
        let controller = self.watch::<NodePool>();
        let pools = controller.store();
        let of_machine = |machine: Machine| triggers::pool_of_machine(&machine);
        let of_cluster = move |cluster: TenantCluster| named(&pools, |pool| triggers::concerns(&cluster, pool));
        let controller = also(also(controller, self.all(), of_machine), self.all(), of_cluster);
        self.run(controller, node_pool::reconcile, at_most(ALL_AT_ONCE), GATHERED)
    }

    /// Emits events for changed conditions. Never returns.
    async fn announces(&self) {
        let identity = self.context.term.identity();
        // The limit of an Event: at most 128 characters.
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

    /// Corrects the list of namespaces with clusters. Clusters of an earlier version get their entries here. Never returns.
    async fn corrects_namespaces(&self) {
        loop {
            if let Err(failure) = correct_used_namespaces(&*self.context.objects).await {
                log::warn!("cannot correct the list of namespaces with clusters: {failure}");
            }
            tokio::time::sleep(CORRECTED).await;
        }
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Watched<K> {
        Watched::all(self.client.clone())
    }

    fn watch<K: Kind + 'static>(&self) -> Controller<Guarded<K>> {
        Controller::new(self.all(), watcher::Config::default())
    }

    /// Reconciles until it is asked to end and all tasks have ended.
    fn run<K: Kind + 'static, F>(
        &self,
        controller: Controller<Guarded<K>>,
        reconcile: fn(Arc<K>, Arc<Context>) -> F,
        config: Config,
        gathers: Duration,
    ) -> BoxFuture<'static, ()>
    where
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let (attempts, store, ending) = (Attempts::<Guarded<K>>::default(), controller.store(), self.stopping.clone());
        let (counted, asked, known) = (attempts.clone(), asked_to_end(self.stopping.clone()), controller.store());
        // Until all objects of the kind were listed no task runs, and waiting for the list does not end by itself.
        let unseen = async move {
            asked_to_end(ending).await;
            if store.wait_until_ready().now_or_never().is_some() {
                std::future::pending::<()>().await;
            }
        };
        let reconcile = move |object: Arc<Guarded<K>>, context: Arc<Context>| {
            let (attempts, known) = (attempts.clone(), known.clone());
            async move {
                let object = gathered(&known, object, gathers).await;
                let reconciled = match &object.0 {
                    Ok(read) => task::alone(reconcile(Arc::new(read.clone()), context)).await,
                    Err(invalid) => Err(ReconcileError::Other(anyhow::anyhow!("it cannot be read: {invalid}"))),
                };
                attempts.note(&object, reconciled.as_ref().err(), |reference| known.get(reference).is_some());
                reconciled
            }
        };
        let again = move |object: Arc<Guarded<K>>, trouble: &ReconcileError, _| trouble.again(counted.of(&object));
        let controller = controller.with_config(config).graceful_shutdown_on(asked);
        let done = controller.run(reconcile, again, Arc::clone(&self.context)).for_each(|done| {
            // Errors of reconcilers were logged already. The rest come from the watch, which recovers by itself.
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

async fn asked_to_end(mut stopping: watch::Receiver<bool>) {
    // The sender lives as long as the program.
    let _ = stopping.wait_for(|asked| *asked).await;
}

/// Collects changes of an object for a while, and returns its present state. It ends even if the object changes all the time.
async fn gathered<K: Kind + 'static>(
    known: &Store<Guarded<K>>,
    object: Arc<Guarded<K>>,
    time: Duration,
) -> Arc<Guarded<K>> {
    tokio::time::sleep(time).await;
    known.get(&ObjectRef::from_obj(&*object)).unwrap_or(object)
}

fn said(conditions: Option<&Vec<Condition>>) -> &[Condition] {
    conditions.map(Vec::as_slice).unwrap_or_default()
}

fn at_most(objects: u16) -> Config {
    Config::default().concurrency(objects)
}

/// Also reconciles the objects that `concerned` returns for a changed object of another kind. An object of that kind that cannot
/// be read triggers none: its own reconciler or its owner's reports it.
fn also<K, Other, I>(
    controller: Controller<Guarded<K>>,
    others: Watched<Guarded<Other>>,
    concerned: impl Fn(Other) -> I + Send + Sync + 'static,
) -> Controller<Guarded<K>>
where
    K: Kind + 'static,
    Other: Kind + 'static,
    I: IntoIterator<Item = ObjectRef<K>>,
{
    let concerned = move |other: Guarded<Other>| -> Vec<ObjectRef<Guarded<K>>> {
        let references = other.0.ok().into_iter().flat_map(&concerned);
        references.map(|reference| reference.into_kind_unchecked(())).collect()
    };
    controller.watches(others, watcher::Config::default(), concerned)
}

/// References to the matching objects of a kind, in the order of their names.
fn named<K: Kind + 'static>(store: &Store<Guarded<K>>, is_meant: impl Fn(&K) -> bool) -> Vec<ObjectRef<K>> {
    let objects = store.state();
    let read = objects.iter().filter_map(|object| object.0.as_ref().ok());
    read.filter(|object| is_meant(object)).map(ObjectRef::from_obj).collect()
}

/// The addresses of a claimant that is being deleted. Other claimants need no action.
fn claimed<K: Resource<DynamicType = ()>>(
    addresses: &Store<Guarded<PoolAddress>>,
    claimant: &K,
) -> Vec<ObjectRef<PoolAddress>> {
    let meta = claimant.meta();
    if meta.deletion_timestamp.is_none() {
        return Vec::new();
    }
    named(addresses, |address| Some(&address.spec.claimant.uid) == meta.uid.as_ref())
}
