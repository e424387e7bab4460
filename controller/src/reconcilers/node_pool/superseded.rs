//! What a person wants otherwise of a pool while its workers are being seen to: of the pool itself, of its cluster, which may be paused or
//! go, and of single Machines.

use kube::ResourceExt;

use super::PoolReconciler;
use crate::objects::{Machine, NodePool, Phase, TenantCluster};
use crate::reconcilers::tenant_cluster::POLL_INTERVAL;

impl PoolReconciler<'_> {
    /// Returns once something else is wanted than was seen: the spec of the pool or of its cluster is another one, one of both is to go,
    /// or one of its Machines, or what may be lost with that, or becomes of its VM. Or once all that lasts is to end.
    pub(super) async fn until_superseded(&self, pool: &NodePool, cluster: &TenantCluster, machines: &[Machine]) {
        tokio::select! {
            () = self.0.until_superseded(pool) => {}
            () = self.0.until_superseded(cluster) => {}
            () = self.are_wanted_otherwise(pool, machines) => {}
        }
    }

    async fn are_wanted_otherwise(&self, pool: &NodePool, seen: &[Machine]) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // What is not known is no reason to end.
            let Ok(now) = self.machines(pool).await else { continue };
            if is_otherwise(seen, &now) {
                return;
            }
        }
    }
}

/// Whether a person wants something else of Machines now than was seen: one was deleted that stayed until then, or what may be lost with
/// it, or becomes of its VM, is another thing. What is done for them makes some, and deletes those that leave.
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
