//! A NodePool: its workers made, kept, replaced and removed by `fleet`, from what is kept of each in its Machine. A pool that is as it is
//! to be is only looked at; where something is to be done a hold is taken, and rounds are gone until nothing moves for a while.
//!
//! Not done yet: another network than the control nodes'.

mod adopt;
mod going;
mod heed;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use contract::kubeconfig::Kubeconfig;
use fleet::authority::{Hold, Store as _, TakeOver};
use fleet::journals;
use fleet::workers::{Cluster, Kept, Notice, Placed, Pool, Records, Rounds, Site, Workers, WorkersStatus, ca_hash};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use tokio::sync::watch;
use tokio::time::Instant;

use self::going::Going;
use crate::context::{Attempt, Context, Trouble};
use crate::decisions::{
    CLUSTER_REF, Held, Looked, NODE_POOL, NodesImage, POOL_FINALIZER, Used, WantedPool, awaited, drifted, emptied_pool,
    held, is_leaving, is_to_adopt, kept, like, may_adopt, may_make, nodes_image, pool_status, repaired, repairs,
    shown_worker, site, wanted_pool, zones_of_pool,
};
use crate::objects::{
    IPPool, Machine, NodeImage, NodePool, NodePoolReason, Phase, Provider, TenantCluster, VMClass, VMClassSpec, set,
};
use crate::reach::providers::{Place, placement};
use crate::reach::{Failure, PoolStore, kinds, tenants};
use crate::reconcilers::NOW_AND_THEN;
use crate::reconcilers::tenant_cluster::{Work, deployment, nodes, told};

/// The label of nodes with the zone that they are in (Kubernetes, "Well-Known Labels, Annotations and Taints").
const ZONE: &str = "topology.kubernetes.io/zone";
/// The pause between two rounds, and how long rounds go on while nothing leads on: longer than a VM has to be unseen to count as gone.
const PACE: Duration = Duration::from_secs(5);
const PAUSE_LIMIT: Duration = Duration::from_secs(90);
/// So often it is said between two rounds how workers are.
const SHOWING: Duration = Duration::from_secs(15);
/// How long is waited for what somebody else has to do, and after rounds in which something was left to do.
const AWAITING: Duration = Duration::from_secs(30);
/// So often a pool that is as it is to be is looked at.
const WATCHING: Duration = Duration::from_secs(60);
/// So many pools a cluster has: each asks its Provider and its API as often as a large one.
const MOST: usize = 16;

/// Brings a pool to where it is to be, as far as that can be done now.
///
/// # Errors
/// Why it could not be gone on with.
pub async fn reconcile(pool: Arc<NodePool>, context: Arc<Context>) -> Result<Action, Trouble> {
    PoolWork(Work::of(&context)).bring_on(&pool).await
}

/// What one pool is worked on with.
struct PoolWork<'a>(Work<'a>);

/// What is done for a pool, and with whom it is talked about.
struct Known {
    cluster: TenantCluster,
    provider: Provider,
    wanted: Pool,
    like: Machine,
    /// The zones that further workers are spread over.
    zones: Vec<String>,
    addresses: Option<IPPool>,
    site: Site,
    api: Box<dyn Cluster>,
    /// What the Provider permits of what is wanted.
    held: Held,
    /// Whether the cluster goes as a whole: nothing is moved away from workers.
    goes: bool,
}

/// Why nothing can be done for a pool now.
type Unready = (NodePoolReason, String);

impl PoolWork<'_> {
    async fn bring_on(&self, known: &NodePool) -> Result<Action, Trouble> {
        let action = self.step(known).await?;
        // Its conditions are of this term from now on.
        if let Some(uid) = known.metadata.uid.as_ref().filter(|_| known.metadata.deletion_timestamp.is_none()) {
            self.0.term.looked_at(uid, known.metadata.generation.unwrap_or_default());
        }
        Ok(action)
    }

    /// Does what is to be done for it now.
    async fn step(&self, known: &NodePool) -> Result<Action, Trouble> {
        let work = &self.0;
        let Some(pool) = self.find(known).await? else { return Ok(Action::await_change()) };
        let is_leaving = pool.metadata.deletion_timestamp.is_some();
        if !is_leaving
            && kinds::keeps(work.objects, &pool, POOL_FINALIZER).await.attempting("noting that the pool is kept")?
        {
            return Ok(Action::requeue(Duration::ZERO));
        }
        let machines = self.counted(self.machines(&pool).await?);
        if is_leaving && machines.is_empty() {
            return self.let_go(&pool).await;
        }
        // However many such pools there are, they ask nobody but the API server.
        if machines.is_empty() && pool.spec.replicas == 0 {
            return self.is_empty(&pool).await;
        }
        if machines.is_empty() && self.is_one_too_many(&pool).await? {
            let words = format!("the cluster {} has {MOST} older pools", pool.spec.cluster_ref.name);
            self.say(&pool, NodePoolReason::TooMany, &words).await?;
            return Ok(Action::requeue(NOW_AND_THEN));
        }
        let known = match self.known(&pool, &machines).await? {
            Ok(known) => known,
            Err((reason, words)) => {
                self.say(&pool, reason, &words).await?;
                return Ok(Action::requeue(AWAITING));
            }
        };
        if let Some(why) = known.held.why.clone().filter(|_| machines.is_empty() && known.wanted.count == 0) {
            // There is no room for the first one: nobody has to be asked about the others.
            return self.rest(&pool, why).await;
        }
        self.go(&pool, machines, known).await
    }

    /// Says of a pool that wants no worker, and has none, that it is as it is to be.
    async fn is_empty(&self, pool: &NodePool) -> Result<Action, Trouble> {
        use NodePoolReason::{AllReady, Current, FewIll, RepairOff};
        let (now, generation) = (self.0.clock.time(), pool.metadata.generation.unwrap_or_default());
        let mut status = pool.status.clone().unwrap_or_default();
        status.observed_generation = generation;
        (status.replicas, status.ready_replicas, status.updated_replicas) = (0, 0, 0);
        status.selector = Some(format!("{NODE_POOL}={}", pool.name_any()));
        let repairable = if pool.spec.repair.after_seconds == 0 { RepairOff } else { FewIll };
        for reason in [AllReady, Current, repairable] {
            set(&mut status.conditions, reason, "", generation, &now);
        }
        let noted = kinds::note(self.0.objects, pool, pool.status.as_ref(), &status).await;
        noted.attempting("writing the pool's status")?;
        Ok(Action::await_change())
    }

    /// Whether a cluster has so many older pools that no worker is made for this one.
    async fn is_one_too_many(&self, pool: &NodePool) -> Result<bool, Trouble> {
        let of_cluster = Some((CLUSTER_REF, pool.spec.cluster_ref.name.as_str()));
        let all = kinds::list::<NodePool>(self.0.objects, pool.namespace().as_deref(), of_cluster).await;
        let age = |pool: &NodePool| (pool.metadata.creation_timestamp.clone(), pool.name_any());
        let own = age(pool);
        let all = all.attempting("looking for the cluster's NodePools")?;
        Ok(all.iter().filter(|other| age(other) < own).count() >= MOST)
    }

    async fn find(&self, known: &NodePool) -> Result<Option<NodePool>, Trouble> {
        let found = kinds::find::<NodePool>(self.0.objects, known.namespace().as_deref(), &known.name_any()).await;
        let found = found.attempting("looking for the NodePool")?;
        Ok(found.filter(|found| found.metadata.uid == known.metadata.uid))
    }

    /// The Machines of a pool, as they are noted.
    async fn machines(&self, pool: &NodePool) -> Result<Vec<Machine>, Trouble> {
        let name = pool.name_any();
        let all = kinds::list::<Machine>(self.0.objects, pool.namespace().as_deref(), Some((NODE_POOL, &name))).await;
        let all = all.attempting("looking for the pool's Machines")?;
        let is_its = |machine: &Machine| machine.spec.pool_ref.as_ref().is_some_and(|of| of.name == name);
        Ok(all.into_iter().filter(is_its).collect())
    }

    /// The same as they count: since when one was ill before this term says nothing, for it may be what a database says that was turned back.
    fn counted(&self, mut machines: Vec<Machine>) -> Vec<Machine> {
        for status in machines.iter_mut().filter_map(|machine| machine.status.as_mut()) {
            status.unhealthy_since = status.unhealthy_since.take().filter(|since| !self.0.term.is_after(since));
        }
        machines
    }

    /// A pool without a worker goes, and its holds before it: nobody takes one any more.
    async fn let_go(&self, pool: &NodePool) -> Result<Action, Trouble> {
        let store = PoolStore::holds(self.0.objects, pool, self.0.term);
        let mut numbers = store.numbers().await?;
        numbers.sort_unstable();
        for number in numbers {
            store.remove(number).await?;
        }
        kinds::releases(self.0.objects, pool, POOL_FINALIZER).await.attempting("letting the pool go")?;
        self.0.term.forgets(pool.metadata.uid.as_deref().unwrap_or_default());
        Ok(Action::await_change())
    }

    /// Looks at what a pool names.
    async fn known(&self, pool: &NodePool, machines: &[Machine]) -> Result<Result<Known, Unready>, Trouble> {
        use NodePoolReason::{ClusterNotReady, Unfit};
        let (work, name) = (&self.0, &pool.spec.cluster_ref.name);
        let cluster = kinds::find::<TenantCluster>(work.objects, pool.namespace().as_deref(), name).await;
        let Some(cluster) = cluster.attempting("reading the pool's cluster")? else {
            return Ok(Err((ClusterNotReady, format!("there is no TenantCluster {name}"))));
        };
        let Some(provider) = work.provider(&cluster).await? else {
            return Ok(Err((Unfit, format!("there is no Provider {}", cluster.spec.provider_ref.name))));
        };
        let goes = is_leaving(&cluster);
        let api: Box<dyn Cluster> = if goes {
            Box::new(Going)
        } else {
            match work.kubeconfig(&cluster).await? {
                Some(text) => match work.places.cluster(&text) {
                    Ok(api) => api,
                    Err(why) => return Ok(Err((ClusterNotReady, format!("the kubeconfig of {name}: {why:#}")))),
                },
                None => {
                    return Ok(Err((ClusterNotReady, format!("the cluster {name} has no kubeconfig of its own yet"))));
                }
            }
        };
        if goes || pool.metadata.deletion_timestamp.is_some() {
            // Nothing that further workers would be made of is needed, nor looked at.
            let Some(first) = machines.first() else { return Ok(Err((ClusterNotReady, "it goes".to_owned()))) };
            let wanted = emptied_pool(pool, first).map_err(anyhow::Error::from)?;
            let (zones, like) = (vec![first.spec.zone.clone()], first.clone());
            let site = Site::default();
            let held = Held::default();
            return Ok(Ok(Known { cluster, provider, wanted, like, zones, addresses: None, site, api, held, goes }));
        }
        self.made_of(pool, machines, cluster, provider, api).await
    }

    /// What a further worker would be made of.
    async fn made_of(
        &self,
        pool: &NodePool,
        machines: &[Machine],
        cluster: TenantCluster,
        provider: Provider,
        api: Box<dyn Cluster>,
    ) -> Result<Result<Known, Unready>, Trouble> {
        use NodePoolReason::{ClusterNotReady, NotSupported, Unfit};
        let work = &self.0;
        let name = cluster.name_any();
        if pool.spec.network.as_ref().is_some_and(|network| *network != cluster.spec.network.name) {
            return Ok(Err((
                NotSupported,
                "workers are on the network of the control nodes: leave network out".to_owned(),
            )));
        }
        let zones = match zones_of_pool(&pool.spec, &provider) {
            Ok(zones) => zones,
            Err(words) => return Ok(Err((Unfit, words))),
        };
        let class =
            kinds::find::<VMClass>(work.objects, None, &pool.spec.vm_class).await.attempting("reading the VMClass")?;
        let Some(class) = class else {
            return Ok(Err((Unfit, format!("there is no VMClass {}", pool.spec.vm_class))));
        };
        let status = cluster.status.clone().unwrap_or_default();
        let image = match nodes_image(&cluster) {
            Ok(image) => image,
            Err(words) => return Ok(Err((ClusterNotReady, words))),
        };
        let (Some(resolved), Some(deployment)) = (&status.resolved, &status.deployment) else {
            return Ok(Err((ClusterNotReady, format!("the control nodes of {name} have not formed yet"))));
        };
        let NodesImage { name: image, digest, kubernetes } = image;
        let found = kinds::find::<NodeImage>(work.objects, None, &image).await.attempting("reading the NodeImage")?;
        let Some(found) = found.filter(|found| found.spec.digest == digest) else {
            return Ok(Err((Unfit, format!("there is no NodeImage {image} as the cluster is on"))));
        };
        let around = work.around(&cluster).await?;
        let control = work.control_machines(&cluster).await?;
        let nodes = nodes(deployment, &control);
        let (Some(told), Some(first)) = (told(&cluster, &around, resolved, &nodes), nodes.first()) else {
            return Ok(Err((Unfit, "the network of the cluster has no IPPool".to_owned())));
        };
        let form = told.form(first)?;
        let kubeconfig = work.kubeconfig(&cluster).await?.unwrap_or_default();
        let authority = Kubeconfig::parse(&kubeconfig).map_err(anyhow::Error::from)?.authority;
        let site = site(&form, ca_hash(&authority)?);
        let addresses = around.pool_of_nodes(&cluster).cloned();
        let carries = found.status.map(|status| status.kubernetes).unwrap_or_default();
        let wanted = wanted_pool(&WantedPool {
            name: &pool.name_any(),
            spec: &pool.spec,
            class: &class.spec,
            image: &image,
            digest: &digest,
            carries: &carries,
            cluster: kubernetes,
            addresses: addresses.as_ref().map(|pool| &pool.spec),
        });
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Err((Unfit, why.to_string()))),
        };
        wanted.made = pool.status.as_ref().and_then(|status| u64::try_from(status.made).ok()).unwrap_or_default();
        wanted.rollout.paused |= cluster.spec.paused;
        let held = self.held(pool, machines, &provider, &class.spec, &wanted).await?;
        held.holds(&mut wanted);
        let like = like(&cluster, pool, &wanted, &class.spec, zones.first().map_or("", String::as_str));
        Ok(Ok(Known { cluster, provider, wanted, like, zones, addresses, site, api, held, goes: false }))
    }

    /// What the Provider permits of what a pool wants.
    async fn held(
        &self,
        pool: &NodePool,
        machines: &[Machine],
        provider: &Provider,
        class: &VMClassSpec,
        wanted: &Pool,
    ) -> Result<Held, Trouble> {
        let used = match provider.spec.limits {
            Some(_) if may_make(wanted, machines) => {
                let tenants = tenants(self.0.objects).await.attempting("looking at what a Provider's clusters have")?;
                tenants.used(&provider.name_any(), |_| true)
            }
            _ => Used::default(),
        };
        let namespace = pool.namespace().unwrap_or_default();
        Ok(held(provider, (&namespace, machines), used, class, (wanted.count, wanted.rollout.max_surge)))
    }

    /// Looks at a pool's workers, and has `fleet` act where there is something to do.
    async fn go(&self, pool: &NodePool, machines: Vec<Machine>, known: Known) -> Result<Action, Trouble> {
        let work = &self.0;
        let namespace = pool.namespace().unwrap_or_default();
        let (deployment, cluster) = (deployment(&known.cluster), known.cluster.name_any());
        let network = known.like.spec.network.clone();
        let place = Place {
            deployment: fleet::workers::deployment(deployment, &known.wanted.name),
            cluster: &cluster,
            networks: vec![&network],
        };
        let unreached = |words: String| (NodePoolReason::NotReached, words);
        let opened = work.places.hypervisor(&known.provider, &place, !known.goes).await;
        let hypervisor = match opened {
            Ok(hypervisor) => hypervisor,
            Err(why) => return self.rest(pool, unreached(why.to_string())).await,
        };
        if let Some(words) = nowhere(&machines, &known).filter(|_| !known.goes) {
            return self.rest(pool, (NodePoolReason::Unfit, words)).await;
        }
        let beside = if known.goes {
            None
        } else {
            match self.beside(&known).await {
                Ok(beside) => beside,
                Err(words) => return self.rest(pool, unreached(words)).await,
            }
        };
        let store = PoolStore::new(work.objects, pool, work.term, &known.like, known.addresses.as_ref());
        let store = store.over(&known.zones).within(&known.provider);
        let placed = |name: &str| {
            let noted = || machines.iter().find(|it| it.name_any() == name).map(|machine| machine.spec.zone.clone());
            placed(&known.provider, store.zone_of(name).or_else(noted))
        };
        let seconds = || u64::try_from(work.clock.time().0.as_second()).unwrap_or_default();
        let mut kept = kept(known.wanted.clone(), &machines, known.goes, seconds()).map_err(anyhow::Error::from)?;
        let (end, cancelled) = watch::channel(false);
        let workers = Workers {
            hypervisor: &*hypervisor,
            cluster: &*known.api,
            store: &store,
            beside,
            placed: &placed,
            site: known.site.clone(),
            what: "a NodePool",
            watch: &told_of,
            clock: &seconds,
            pace: PACE,
            pause_limit: PAUSE_LIMIT,
            restorable: true,
            cancelled,
        };
        let mut seen = workers.status_of(&kept).await?;
        work.term.may()?;
        if !seen.looked {
            // Nobody can tell whether some are newer than what is kept: rounds look for themselves, and would act on that.
            self.show(pool, &known, &seen).await?;
            return Ok(Action::requeue(AWAITING));
        }
        if !seen.newer.is_empty() {
            // By what is kept nobody can tell who is there: no address is taken or given back either.
            let refused = match is_to_adopt(&known.cluster) {
                true => match self.adopts(pool, &known, (&*hypervisor, &seen.newer)).await? {
                    Ok(()) => return Ok(Action::requeue(Duration::ZERO)),
                    Err(why) => Some(why),
                },
                false => None,
            };
            self.show_drifted(pool, &known, &seen, refused.as_deref()).await?;
            return Ok(Action::requeue(AWAITING));
        }
        if self.addressed(&store, &machines, &known, &mut kept).await? {
            seen = workers.status_of(&kept).await?;
            work.term.may()?;
        }
        let is_going = known.goes || pool.metadata.deletion_timestamp.is_some();
        let ill = repairs(&pool.spec.repair, &machines, &seen, &work.clock.time());
        let ill = ill.with_room(known.held.stands.as_deref());
        if !is_going {
            repaired(&mut kept, &ill, &pool.spec.repair, seconds());
        }
        let is_paused = known.cluster.spec.paused && !known.goes;
        let (seen, is_heard) = if seen.done || is_paused {
            (seen, false)
        } else {
            log::debug!("{namespace}/{}: something is to be done", pool.name_any());
            let going = Box::pin(self.rounds(pool, &known, &workers, &store, kept));
            // It is gone on with by what is wanted then. How workers are is said between two rounds.
            let otherwise = Box::pin(self.is_wanted_otherwise(pool, &known.cluster, &machines));
            let (kept, is_heard) = work.heeding(going, &end, otherwise, Box::pin(std::future::pending())).await?;
            (workers.status_of(&kept?).await?, is_heard)
        };
        work.term.may()?;
        let is_due = self.show(pool, &known, &seen).await?;
        Ok(Action::requeue(match (is_heard || is_due, seen.done) {
            (true, _) if !work.term.is_closing() => Duration::ZERO,
            (_, true) => WATCHING,
            (_, false) => AWAITING,
        }))
    }

    /// A VM of the control plane: workers are put beside it, on its networks.
    async fn beside(&self, known: &Known) -> Result<Option<fleet::hypervisor::Vm>, String> {
        let opened = self.0.open(&known.cluster, &known.provider, false).await.map_err(|why| why.to_string())?;
        let vms = opened.hypervisor.vms().await.map_err(|error| error.to_string())?;
        Ok(vms.into_iter().next())
    }

    /// Gives addresses to those for which nothing was begun after they were drawn. One that can have none goes again: nothing has
    /// followed from it. True if there was one.
    async fn addressed(
        &self,
        store: &PoolStore<'_>,
        machines: &[Machine],
        known: &Known,
        kept: &mut Kept,
    ) -> Result<bool, Trouble> {
        let lacks = |machine: &&Machine| {
            let status = machine.status.clone().unwrap_or_default();
            status.phase == Phase::New && status.journal.address.is_none()
        };
        let lacking: Vec<&Machine> = machines.iter().filter(lacks).filter(|_| known.addresses.is_some()).collect();
        for machine in &lacking {
            let name = machine.name_any();
            match store.admitted(machine).await {
                Ok(address) => {
                    for worker in kept.machines.iter_mut().filter(|worker| worker.name == name) {
                        worker.address = address;
                    }
                }
                Err(why) if why.chain().any(|cause| cause.is::<Failure>()) => return Err(Trouble::Other(why)),
                Err(why) => {
                    log::info!("{why:#}");
                    store.forget(&name).await?;
                    kept.machines.retain(|worker| worker.name != name);
                }
            }
        }
        Ok(!lacking.is_empty())
    }

    /// Goes rounds under one hold until nothing is left to do, nothing leads on for a while, or it is asked to end; what is kept then.
    async fn rounds(
        &self,
        pool: &NodePool,
        known: &Known,
        workers: &Workers<'_>,
        store: &PoolStore<'_>,
        kept: Kept,
    ) -> anyhow::Result<Kept> {
        let hold = Hold::take(store, workers.what, TakeOver::FromAnyone, &|words: &str| log::info!("{words}")).await?;
        journals::prune_beside_upgrades(&hold, &workers.cancelled).await;
        let gone = async {
            let mut rounds = Rounds::new(workers, &hold, Records::begin(&hold, kept).await?);
            let (mut led_on, mut shown) = (Instant::now(), Instant::now());
            loop {
                if *workers.cancelled.borrow() {
                    return anyhow::Ok(rounds.kept().clone());
                }
                let round = rounds.step().await?;
                if round.progressed {
                    led_on = Instant::now();
                }
                if round.changed && !round.failed {
                    continue;
                }
                if round.done
                    || *workers.cancelled.borrow()
                    || (round.needs_a_person && !round.changed)
                    || led_on.elapsed() >= PAUSE_LIMIT
                {
                    return anyhow::Ok(rounds.kept().clone());
                }
                if shown.elapsed() >= SHOWING {
                    let seen = workers.status_of(rounds.kept()).await?;
                    match self.show(pool, known, &seen).await {
                        // Somebody is to be repaired by now.
                        Ok(true) => return anyhow::Ok(rounds.kept().clone()),
                        Ok(false) => {}
                        Err(trouble) => log::debug!("saying how workers are: {trouble}"),
                    }
                    shown = Instant::now();
                }
                tokio::time::sleep(workers.pace).await;
            }
        }
        .await;
        hold.release().await;
        gone
    }

    async fn rest(&self, pool: &NodePool, (reason, words): Unready) -> Result<Action, Trouble> {
        self.say(pool, reason, &words).await?;
        Ok(Action::requeue(AWAITING))
    }

    /// Says why nothing can be done for a pool, by the spec that was judged: a newer one is judged in its turn.
    async fn say(&self, judged: &NodePool, reason: NodePoolReason, words: &str) -> Result<(), Trouble> {
        self.unseen(judged).await?;
        let Some(pool) = self.find(judged).await? else { return Ok(()) };
        let mut status = pool.status.clone().unwrap_or_default();
        let generation = judged.metadata.generation.unwrap_or_default();
        status.observed_generation = generation;
        set(&mut status.conditions, reason, words, generation, &self.0.clock.time());
        kinds::note(self.0.objects, &pool, pool.status.as_ref(), &status)
            .await
            .map(drop)
            .attempting("writing the pool's status")
    }

    /// Nobody has looked at workers: what was seen of an illness before says nothing of the time until somebody looks again.
    async fn unseen(&self, pool: &NodePool) -> Result<(), Trouble> {
        for machine in self.machines(pool).await? {
            let mut status = machine.status.clone().unwrap_or_default();
            if status.unhealthy_since.take().is_none() {
                continue;
            }
            match kinds::note(self.0.objects, &machine, machine.status.as_ref(), &status).await {
                Err(Failure::Changed | Failure::Missing) => {}
                written => written.map(drop).attempting("writing a Machine's status")?,
            }
        }
        Ok(())
    }

    /// Writes what was seen of workers, in the pool and in their Machines, by the spec that was judged. True if somebody is to be
    /// repaired who was well, or not ill for long enough, when work was begun.
    async fn show(&self, judged: &NodePool, known: &Known, seen: &WorkersStatus) -> Result<bool, Trouble> {
        self.show_drifted(judged, known, seen, None).await
    }

    /// The same, with why workers that are newer than the database are not adopted, if that is asked for.
    async fn show_drifted(
        &self,
        judged: &NodePool,
        known: &Known,
        seen: &WorkersStatus,
        refused: Option<&str>,
    ) -> Result<bool, Trouble> {
        let now = self.0.clock.time();
        let noted = self.machines(judged).await?;
        let machines = self.counted(noted.clone());
        let ill = repairs(&judged.spec.repair, &machines, seen, &now).with_room(known.held.stands.as_deref());
        // While nobody is repaired no time of an illness counts: who was off meanwhile, as for a host's maintenance, may come back first.
        // Nor does it beside workers that are newer than the database.
        let is_counted = judged.spec.repair.after_seconds > 0 && !known.cluster.spec.paused && seen.newer.is_empty();
        for (noted, machine) in noted.iter().zip(&machines) {
            let mut status = shown_worker(machine, seen, &now);
            if !is_counted {
                status.unhealthy_since = None;
            }
            match kinds::note(self.0.objects, noted, noted.status.as_ref(), &status).await {
                // It is shown at the next look.
                Err(Failure::Changed | Failure::Missing) => {}
                written => written.map(drop).attempting("writing a Machine's status")?,
            }
        }
        let Some(pool) = self.find(judged).await? else { return Ok(false) };
        let is_going = known.goes || pool.metadata.deletion_timestamp.is_some();
        let generation = judged.metadata.generation.unwrap_or_default();
        let drifted = drifted(&seen.newer).map(|words| match refused {
            Some(why) => format!("{words}. They are not adopted yet: {why}"),
            None => may_adopt(&words, &known.cluster),
        });
        let (held, awaited) = (&known.held, awaited(&known.cluster));
        let looked = Looked { seen, drifted, held, repairs: &ill, awaited, going: is_going };
        let status = pool_status(&pool, generation, &looked, &now);
        kinds::note(self.0.objects, &pool, pool.status.as_ref(), &status)
            .await
            .attempting("writing the pool's status")?;
        Ok(!ill.now.is_empty() && !is_going && !known.cluster.spec.paused)
    }
}

/// Where the VM of a worker of a zone is put, and what its node carries of that.
fn placed(provider: &Provider, zone: Option<String>) -> Placed {
    let vsphere = provider.spec.vsphere.as_ref();
    let placement = vsphere.zip(zone.as_ref()).and_then(|(vsphere, zone)| placement(vsphere, zone));
    let labels = zone.map(|zone| (ZONE.to_owned(), zone)).into_iter().collect();
    Placed { placement: placement.unwrap_or_default(), labels }
}

/// Why the VM of a worker can be put nowhere: its zone was taken out of the Provider before it was made.
fn nowhere(machines: &[Machine], known: &Known) -> Option<String> {
    let vsphere = known.provider.spec.vsphere.as_ref()?;
    let is_new = |machine: &&Machine| machine.status.as_ref().is_none_or(|status| status.phase == Phase::New);
    let lost = machines.iter().filter(is_new).find(|machine| placement(vsphere, &machine.spec.zone).is_none())?;
    Some(format!("the Provider has no zone {} any more, where {} is to be", lost.spec.zone, lost.name_any()))
}

fn told_of(notice: &Notice<'_>) {
    match notice {
        Notice::TakingOver(words) => log::info!("{words}"),
        Notice::Staging => log::info!("laying the image ready"),
        Notice::Begun(action) => log::info!("{action:?}"),
        Notice::Waits(wait) => log::debug!("waiting: {wait}"),
    }
}
