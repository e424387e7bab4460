//! Waits for changes of the desired state while workers are reconciled: of the pool, its cluster, and single Machines.

use kube::ResourceExt;

use super::PoolReconciler;
use crate::objects::{Machine, NodePool, Phase, TenantCluster};
use crate::reconcilers::tenant_cluster::POLL_INTERVAL;

impl PoolReconciler<'_> {
    /// Returns once the spec of the pool or its cluster has changed, or one of them is being deleted. Also once a Machine is
    /// being deleted, or its settings for removal have changed. Also once the term is closing.
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
            // A failed read is no reason to end.
            let Ok(now) = self.machines(pool).await else { continue };
            if is_otherwise(seen, &now) {
                return;
            }
        }
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
