//! A NodePool: `fleet` creates, replaces and removes its workers, from the journals in their Machines. A pool that is up to date
//! is only looked at. Otherwise the reconciler acquires a lease, and runs rounds until there is no progress for a while.
//!
//! - `pool_context.rs` reads the objects that the pool names.
//! - `show.rs` writes the observed state.
//! - `adopt.rs` adopts workers that are newer than the database.
//! - `deleted_cluster.rs` replaces the API of a cluster that is being deleted.
//!
//! Not implemented: another network than that of the control-plane nodes.

mod adopt;
mod deleted_cluster;
mod pool_context;
mod show;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Duration;

use fleet::journals;
use fleet::lease::{Lease, Store as _, TakeOver};
use fleet::workers::{self, Notice, Placed, PoolRecord, ReconcileLoop, Records, Workers};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use tokio::sync::watch;
use tokio::time::Instant;

use self::pool_context::{PoolContext, Unready};
use crate::context::{Attempt, Context, Halt, ReconcileError};
use crate::decisions::{
    CLUSTER_REF, MOST_POOLS, NODE_POOL, POOL_FINALIZER, forget_old_illness, is_one_too_many, is_to_adopt, pool_record,
    repaired, repairs,
};
use crate::objects::{Machine, NodePool, NodePoolReason, Phase, Provider, TenantCluster};
use crate::reach::providers::{ClusterPlacement, placement};
use crate::reach::{Failure, PoolStore, kinds};
use crate::reconcilers::tenant_cluster::{POLL_INTERVAL, Reconciler, deployment};
use crate::reconcilers::{NOW_AND_THEN, log_unwritten};

/// The label of nodes with their zone (Kubernetes, "Well-Known Labels, Annotations and Taints").
const ZONE: &str = "topology.kubernetes.io/zone";
/// The pause between two rounds, and how long rounds continue without progress. A VM that is missing for less than that is not
/// yet gone.
const PACE: Duration = Duration::from_secs(5);
const PAUSE_LIMIT: Duration = Duration::from_secs(90);
/// How often the state of workers is written between two rounds.
const SHOWING: Duration = Duration::from_secs(15);
/// The pause while another object blocks the pool, and after rounds that left work.
const AWAITING: Duration = Duration::from_secs(30);
/// The interval of looks at a pool that is up to date.
const WATCHING: Duration = Duration::from_secs(60);

/// Brings a pool towards its spec, as far as possible now:
///
/// 1. Resolve: reads the pool's Machines, and all objects that it names (`pool_context.rs`).
/// 2. A pool without workers that needs none calls the API server only. One that is being deleted is let go.
/// 3. Report: if something blocks the pool, its status says so.
/// 4. Plan and run: looks at the workers, and runs `fleet` if there is work (`PoolReconciler::go`).
pub async fn reconcile(pool: Arc<NodePool>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    PoolReconciler(Reconciler::of(&context)).reconcile(&pool).await
}

struct PoolReconciler<'a>(Reconciler<'a>);

impl PoolReconciler<'_> {
    async fn reconcile(&self, known: &NodePool) -> Result<Action, ReconcileError> {
        let done = self.advance(known).await;
        let unreadable = done.as_ref().err().and_then(|trouble| trouble.unreadable(known.namespace().as_deref()));
        if let Some(words) = unreadable {
            log_unwritten(known, self.say(known, NodePoolReason::Unfit, &words).await);
        }
        done
    }

    async fn advance(&self, known: &NodePool) -> Result<Action, ReconcileError> {
        let work = &self.0;
        let Some(pool) = self.find(known).await? else { return Ok(Action::await_change()) };
        let is_leaving = pool.metadata.deletion_timestamp.is_some();
        if !is_leaving
            && kinds::add_finalizer(work.objects, &pool, POOL_FINALIZER)
                .await
                .attempting("noting that the pool is kept")?
        {
            return Ok(Action::requeue(Duration::ZERO));
        }
        let machines = self.counted(&pool, self.machines(&pool).await?);
        if is_leaving && machines.is_empty() {
            return self.let_go(&pool).await;
        }
        // Such pools call the API server only, however many there are.
        if machines.is_empty() && pool.spec.replicas == 0 {
            return self.report_empty(&pool).await;
        }
        if machines.is_empty() && self.is_one_too_many(&pool).await? {
            let words = format!("the cluster {} has {MOST_POOLS} older pools", pool.spec.cluster_ref.name);
            self.say(&pool, NodePoolReason::TooMany, &words).await?;
            return Ok(Action::requeue(NOW_AND_THEN));
        }
        let known = match self.known(&pool, &machines).await {
            Ok(known) => known,
            Err(Halt::Refused(why)) => return self.rest(&pool, why).await,
            Err(Halt::Failed(error)) => return Err(error),
        };
        let is_at_rest = machines.is_empty() && known.wanted.count == 0 && !is_to_adopt(&known.cluster);
        if let Some(why) = known.held.why.clone().filter(|_| is_at_rest) {
            // There is no room for the first worker, so no further call is needed, unless an adoption is requested.
            return self.rest(&pool, why).await;
        }
        self.go(&pool, machines, known).await
    }

    /// Whether a cluster has so many older pools that this one gets no workers.
    async fn is_one_too_many(&self, pool: &NodePool) -> Result<bool, ReconcileError> {
        let of_cluster = Some((CLUSTER_REF, pool.spec.cluster_ref.name.as_str()));
        let all = kinds::list_tolerant::<NodePool>(self.0.objects, pool.namespace().as_deref(), of_cluster).await;
        Ok(is_one_too_many(pool, &all.attempting("looking for the cluster's NodePools")?.all()))
    }

    async fn find(&self, known: &NodePool) -> Result<Option<NodePool>, ReconcileError> {
        let found = kinds::find::<NodePool>(self.0.objects, known.namespace().as_deref(), &known.name_any()).await;
        let found = found.attempting("looking for the NodePool")?;
        Ok(found.filter(|found| found.metadata.uid == known.metadata.uid))
    }

    /// The Machines of a pool, as they are stored.
    async fn machines(&self, pool: &NodePool) -> Result<Vec<Machine>, ReconcileError> {
        let name = pool.name_any();
        let all = kinds::list::<Machine>(self.0.objects, pool.namespace().as_deref(), Some((NODE_POOL, &name))).await;
        let all = all.attempting("looking for the pool's Machines")?;
        let is_its = |machine: &Machine| machine.spec.pool_ref.as_ref().is_some_and(|of| of.name == name);
        Ok(all.into_iter().filter(is_its).collect())
    }

    /// Without the unhealthy times of workers that were not seen for a while.
    fn counted(&self, pool: &NodePool, mut machines: Vec<Machine>) -> Vec<Machine> {
        for status in machines.iter_mut().filter_map(|machine| machine.status.as_mut()) {
            forget_old_illness(status, &pool.spec.repair, &self.0.clock.time());
        }
        machines
    }

    /// Deletes the leases of a pool without workers, and then its finalizer.
    async fn let_go(&self, pool: &NodePool) -> Result<Action, ReconcileError> {
        let store = PoolStore::holds(self.0.objects, pool, self.0.term);
        let mut numbers = store.numbers().await?;
        numbers.sort_unstable();
        for number in numbers {
            store.remove(number).await?;
        }
        kinds::remove_finalizer(self.0.objects, pool, POOL_FINALIZER).await.attempting("letting the pool go")?;
        self.0.term.forgets(pool.metadata.uid.as_deref().unwrap_or_default());
        Ok(Action::await_change())
    }

    /// Looks at a pool's workers, and runs `fleet` if there is work:
    ///
    /// 1. Resolve: opens a session on the Provider, and reads the state of the workers.
    /// 2. Workers that are newer than the database block all else, until the operator has them adopted (`adopt.rs`).
    /// 3. Plan: gives addresses to new Machines, and marks unhealthy workers.
    /// 4. Run: rounds of `fleet`, until there is no progress for a while or the desired state changes.
    /// 5. Report: writes the status of the pool and its Machines (`show.rs`).
    async fn go(&self, pool: &NodePool, machines: Vec<Machine>, known: PoolContext) -> Result<Action, ReconcileError> {
        let work = &self.0;
        let namespace = pool.namespace().unwrap_or_default();
        let (deployment, cluster) = (deployment(&known.cluster), known.cluster.name_any());
        let network = known.like.spec.network.clone();
        let place = ClusterPlacement {
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
        let store = store.over(&known.zones).within(&known.provider, &known.tenants).unless(known.overlap.as_deref());
        let placed = |name: &str| {
            let noted = || machines.iter().find(|it| it.name_any() == name).map(|machine| machine.spec.zone.clone());
            placed(&known.provider, store.zone_of(name).or_else(noted))
        };
        let seconds = || u64::try_from(work.clock.time().0.as_second()).unwrap_or_default();
        let mut kept =
            pool_record(known.wanted.clone(), &machines, known.goes, seconds()).map_err(anyhow::Error::from)?;
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
        work.term.ensure_active()?;
        if !seen.looked {
            // It is unknown whether VMs are newer than the database. A round would look again, and act on that.
            self.show(pool, &known, &seen).await?;
            return Ok(Action::requeue(AWAITING));
        }
        if !seen.newer.is_empty() {
            // The stored state is incomplete, so no address is claimed or released either.
            let refused = match is_to_adopt(&known.cluster) {
                true => match self.adopts(pool, &known, (&*hypervisor, &seen.newer)).await {
                    Ok(()) => return Ok(Action::requeue(Duration::ZERO)),
                    Err(Halt::Refused(why)) => Some(why),
                    Err(Halt::Failed(error)) => return Err(error),
                },
                false => None,
            };
            self.show_drifted(pool, &known, &seen, refused.as_deref()).await?;
            return Ok(Action::requeue(AWAITING));
        }
        if self.addressed(&store, &machines, &known, &mut kept).await? {
            seen = workers.status_of(&kept).await?;
            work.term.ensure_active()?;
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
            // After a change of the desired state the next reconcile continues. The state of workers is written between two
            // rounds.
            let otherwise = Box::pin(self.until_superseded(pool, &known.cluster, &machines));
            let (kept, is_heard) =
                work.run_until_superseded(going, &end, otherwise, Box::pin(std::future::pending())).await?;
            (workers.status_of(&kept?).await?, is_heard)
        };
        work.term.ensure_active()?;
        let is_due = self.show(pool, &known, &seen).await?;
        Ok(Action::requeue(match (is_heard || is_due, seen.done) {
            (true, _) if !work.term.is_closing() => Duration::ZERO,
            (_, true) => WATCHING,
            (_, false) => AWAITING,
        }))
    }

    /// A VM of the control plane: workers are created in its folder, on its networks.
    async fn beside(&self, known: &PoolContext) -> Result<Option<fleet::hypervisor::Vm>, String> {
        let opened = self.0.open(&known.cluster, &known.provider, false).await.map_err(|why| why.to_string())?;
        let vms = opened.hypervisor.vms().await.map_err(|error| error.to_string())?;
        Ok(vms.into_iter().next())
    }

    /// Gives addresses to Machines for which nothing else was begun. A Machine without a free address is deleted. True if there
    /// was such a Machine.
    async fn addressed(
        &self,
        store: &PoolStore<'_>,
        machines: &[Machine],
        known: &PoolContext,
        kept: &mut PoolRecord,
    ) -> Result<bool, ReconcileError> {
        let lacks = |machine: &&Machine| {
            let status = machine.status.clone().unwrap_or_default();
            status.phase == Phase::Provisioning && status.journal.address.is_none()
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
                Err(why) if why.chain().any(|cause| cause.is::<Failure>()) => return Err(ReconcileError::Other(why)),
                Err(why) => {
                    log::info!("{why:#}");
                    store.forget(&name).await?;
                    kept.machines.retain(|worker| worker.name != name);
                }
            }
        }
        Ok(!lacking.is_empty())
    }

    /// Runs rounds with one lease, until there is no work, no progress for a while, or a request to end. Returns the record.
    async fn rounds(
        &self,
        pool: &NodePool,
        known: &PoolContext,
        workers: &Workers<'_>,
        store: &PoolStore<'_>,
        kept: PoolRecord,
    ) -> anyhow::Result<PoolRecord> {
        let hold =
            Lease::acquire(store, workers.what, TakeOver::FromAnyone, &|words: &str| log::info!("{words}")).await?;
        journals::prune_beside_upgrades(&hold, &workers.cancelled).await;
        let gone = async {
            let mut rounds = ReconcileLoop::new(workers, &hold, Records::begin(&hold, kept).await?);
            let (mut led_on, mut shown) = (Instant::now(), Instant::now());
            loop {
                if *workers.cancelled.borrow() {
                    return anyhow::Ok(rounds.kept().clone());
                }
                let round = rounds.step().await?;
                store.ensure_readable()?;
                if round.progressed {
                    led_on = Instant::now();
                }
                let goes_on = round.changed && !round.failed;
                let has_ended = round.done
                    || *workers.cancelled.borrow()
                    || (round.needs_a_person && !round.changed)
                    || led_on.elapsed() >= PAUSE_LIMIT;
                if has_ended && !goes_on {
                    return anyhow::Ok(rounds.kept().clone());
                }
                // The Machine of a VM that was kept is deleted next. Before that its status shows the VM's name.
                if round.released || (!goes_on && shown.elapsed() >= SHOWING) {
                    let seen = workers.status_of(rounds.kept()).await?;
                    match self.show(pool, known, &seen).await {
                        // A worker has become due for repair.
                        Ok(true) => return anyhow::Ok(rounds.kept().clone()),
                        Ok(false) => {}
                        Err(trouble) => log::debug!("saying how workers are: {trouble}"),
                    }
                    shown = Instant::now();
                }
                if !goes_on {
                    tokio::time::sleep(workers.pace).await;
                }
            }
        }
        .await;
        hold.release().await;
        gone
    }

    /// Returns once the spec of the pool or its cluster has changed, or one of them is being deleted. Also once a Machine is
    /// being deleted, or its settings for removal have changed. Also once the term is closing.
    async fn until_superseded(&self, pool: &NodePool, cluster: &TenantCluster, machines: &[Machine]) {
        tokio::select! {
            () = self.0.until_superseded(pool) => {}
            () = self.0.until_superseded(cluster) => {}
            () = self.are_wanted_otherwise(pool, machines) => {}
        }
    }

    async fn are_wanted_otherwise(&self, pool: &NodePool, seen: &[Machine]) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // A failed read is no reason to end.
            let Ok(now) = self.machines(pool).await else { continue };
            if is_otherwise(seen, &now) {
                return;
            }
        }
    }

    async fn rest(&self, pool: &NodePool, (reason, words): Unready) -> Result<Action, ReconcileError> {
        self.say(pool, reason, &words).await?;
        Ok(Action::requeue(AWAITING))
    }
}

/// Whether the operator has changed Machines: one was deleted, or its settings for drain and removal differ. The reconciler
/// itself creates Machines, and deletes those that are in the phase `Deleting`.
fn is_otherwise(seen: &[Machine], now: &[Machine]) -> bool {
    now.iter().any(|machine| {
        let before = seen.iter().find(|before| before.uid() == machine.uid());
        let is_deleted = |of: &Machine| of.metadata.deletion_timestamp.is_some();
        let leaves = machine.status.as_ref().is_some_and(|status| status.phase == Phase::Deleting);
        let said = |of: &Machine| (of.spec.drain, of.spec.removal);
        let was_said = before.map(said).unwrap_or_default();
        (is_deleted(machine) && !leaves && !before.is_some_and(is_deleted)) || said(machine) != was_said
    })
}

/// The place of the VM of a worker in a zone, and the labels of its node.
fn placed(provider: &Provider, zone: Option<String>) -> Placed {
    let vsphere = provider.spec.vsphere.as_ref();
    let placement = vsphere.zip(zone.as_ref()).and_then(|(vsphere, zone)| placement(vsphere, zone));
    let labels = zone.map(|zone| (ZONE.to_owned(), zone)).into_iter().collect();
    Placed { placement: placement.unwrap_or_default(), labels }
}

/// Why the VM of a worker has no place: its zone was removed from the Provider before the VM was created.
fn nowhere(machines: &[Machine], known: &PoolContext) -> Option<String> {
    let vsphere = known.provider.spec.vsphere.as_ref()?;
    let is_new = |machine: &&Machine| machine.status.as_ref().is_none_or(|status| status.phase == Phase::Provisioning);
    let lost = machines.iter().filter(is_new).find(|machine| placement(vsphere, &machine.spec.zone).is_none())?;
    Some(format!("the Provider no longer has the zone {}, where {} is to be", lost.spec.zone, lost.name_any()))
}

fn told_of(notice: &Notice<'_>) {
    match notice {
        Notice::TakingOver(words) => log::info!("{words}"),
        Notice::Staging => log::info!("laying the image ready"),
        Notice::Begun(workers::Action::Release(worker, name)) => {
            log::info!("the VM of {worker} is released, and kept as {name}");
        }
        Notice::Begun(workers::Action::Forget(worker, left)) if !left.is_empty() => {
            let left = left.join(", ");
            log::info!("{worker} is gone; what has the BIOS UUID of its VM elsewhere, and is off, stays: {left}");
        }
        Notice::Begun(action) => log::info!("{action:?}"),
        Notice::Waits(wait) => log::debug!("waiting: {wait}"),
    }
}
