//! What is written of a pool and its Machines: what was seen of workers, or why nothing can be done for them now.

use fleet::workers::WorkersStatus;
use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::PoolReconciler;
use super::pool_context::PoolContext;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{NODE_POOL, PoolObservation, awaited, drifted, may_adopt, pool_status, repairs, shown_worker};
use crate::objects::{NodePool, NodePoolReason, set};
use crate::reach::{Failure, kinds};

impl PoolReconciler<'_> {
    /// Says of a pool that wants no worker, and has none, that it is as it is to be.
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

    /// Notes that what a pool says of its workers is of this term, as this generation of it is. One that goes says nothing that anybody waits
    /// for: it would be noted for ever.
    pub(super) fn looked_at(&self, pool: &NodePool, generation: i64) {
        if let Some(uid) = pool.metadata.uid.as_ref().filter(|_| pool.metadata.deletion_timestamp.is_none()) {
            self.0.term.looked_at(uid, generation);
        }
    }

    /// Says why nothing can be done for a pool, by the spec that was judged: a newer one is judged in its turn.
    pub(super) async fn say(
        &self,
        judged: &NodePool,
        reason: NodePoolReason,
        words: &str,
    ) -> Result<(), ReconcileError> {
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
    async fn unseen(&self, pool: &NodePool) -> Result<(), ReconcileError> {
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
    pub(super) async fn show(
        &self,
        judged: &NodePool,
        known: &PoolContext,
        seen: &WorkersStatus,
    ) -> Result<bool, ReconcileError> {
        self.show_drifted(judged, known, seen, None).await
    }

    /// The same, with why workers that are newer than the database are not adopted, if that is asked for.
    pub(super) async fn show_drifted(
        &self,
        judged: &NodePool,
        known: &PoolContext,
        seen: &WorkersStatus,
        refused: Option<&str>,
    ) -> Result<bool, ReconcileError> {
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
