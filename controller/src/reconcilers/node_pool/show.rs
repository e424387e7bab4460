//! Writes the status of a pool and its Machines: the observed workers, or why the pool cannot be reconciled.

use fleet::workers::WorkersStatus;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::PoolReconciler;
use super::pool_context::PoolContext;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{NODE_POOL, PoolObservation, awaited, drifted, may_adopt, pool_status, repairs, shown_worker};
use crate::objects::{NodePool, NodePoolReason, set};
use crate::reach::kinds;

impl PoolReconciler<'_> {
    /// Writes the status of a pool that needs no workers and has none.
    pub(super) async fn report_empty(&self, pool: &NodePool) -> Result<Action, ReconcileError> {
        use NodePoolReason::{AllReady, Current, FewUnhealthy, RepairOff};
        let (now, generation) = (self.0.clock.time(), pool.metadata.generation.unwrap_or_default());
        let mut status = pool.status.clone().unwrap_or_default();
        status.observed_generation = generation;
        (status.replicas, status.ready_replicas, status.updated_replicas) = (0, 0, 0);
        status.selector = Some(format!("{NODE_POOL}={}", pool.name_any()));
        let repairable = if pool.spec.repair.after_seconds == 0 { RepairOff } else { FewUnhealthy };
        for reason in [AllReady, Current, repairable] {
            set(&mut status.conditions, reason, "", generation, &now);
        }
        let noted = kinds::note(self.0.objects, pool, pool.status.as_ref(), &status).await;
        noted.attempting("writing the pool's status")?;
        self.looked_at(pool, generation);
        Ok(Action::await_change())
    }

    /// Records that the pool's status is of this term and generation. Not for a pool that is being deleted: its record would stay
    /// forever.
    pub(super) fn looked_at(&self, pool: &NodePool, generation: i64) {
        if let Some(uid) = pool.metadata.uid.as_ref().filter(|_| pool.metadata.deletion_timestamp.is_none()) {
            self.0.term.looked_at(uid, generation);
        }
    }

    /// Writes why a pool cannot be reconciled, with the generation that was judged. A newer one is judged later.
    pub(super) async fn say(
        &self,
        judged: &NodePool,
        reason: NodePoolReason,
        words: &str,
    ) -> Result<(), ReconcileError> {
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

    /// Writes the observed state of workers, in the pool and its Machines, with the generation that was judged. True if a worker
    /// has become due for repair since the work began.
    pub(super) async fn show(
        &self,
        judged: &NodePool,
        known: &PoolContext,
        seen: &WorkersStatus,
    ) -> Result<bool, ReconcileError> {
        self.show_drifted(judged, known, seen, None).await
    }

    /// As `show`, with the reason why workers that are newer than the database are not adopted, if that was requested.
    pub(super) async fn show_drifted(
        &self,
        judged: &NodePool,
        known: &PoolContext,
        seen: &WorkersStatus,
        refused: Option<&str>,
    ) -> Result<bool, ReconcileError> {
        let now = self.0.clock.time();
        let noted = self.machines(judged).await?;
        let machines = self.counted(judged, noted.clone());
        let ill = repairs(&judged.spec.repair, &machines, seen, &now).with_room(known.held.stands.as_deref());
        // Without repairs no unhealthy time counts: a worker that was off, as for maintenance of a host, gets time to return.
        // While workers are newer than the database it does not count either.
        let is_counted = judged.spec.repair.after_seconds > 0 && !known.cluster.spec.paused && seen.newer.is_empty();
        for (noted, machine) in noted.iter().zip(&machines) {
            let mut status = shown_worker(machine, seen, &now);
            if !is_counted {
                (status.unhealthy_since, status.last_unhealthy) = (None, None);
            }
            self.0.note_machine(noted, &status).await?;
        }
        let Some(pool) = self.find(judged).await? else { return Ok(false) };
        let is_going = known.goes || pool.metadata.deletion_timestamp.is_some();
        let generation = judged.metadata.generation.unwrap_or_default();
        let drifted = drifted(&seen.newer).map(|words| match refused {
            Some(why) => format!("{words}. They are not adopted yet: {why}"),
            None => may_adopt(&words, &known.cluster),
        });
        let (held, awaited) = (&known.held, awaited(&known.cluster));
        let looked = PoolObservation { seen, drifted, held, repairs: &ill, awaited, going: is_going };
        let status = pool_status(&pool, generation, &looked, &now);
        kinds::note(self.0.objects, &pool, pool.status.as_ref(), &status)
            .await
            .attempting("writing the pool's status")?;
        if seen.looked {
            self.looked_at(&pool, generation);
        }
        Ok(!ill.now.is_empty() && !is_going && !known.cluster.spec.paused)
    }
}
