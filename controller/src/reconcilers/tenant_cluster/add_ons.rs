//! The add-ons of a cluster, as its API shows them.

use super::Reconciler;
use crate::context::ReconcileError;
use crate::decisions::{ClusterCondition, add_ons};
use crate::objects::TenantCluster;

impl Reconciler<'_> {
    /// Whether the add-ons of a cluster run. `None` if it has not formed.
    pub(super) async fn add_ons(
        &self,
        cluster: &TenantCluster,
        has_formed: bool,
    ) -> Result<Option<ClusterCondition>, ReconcileError> {
        if !has_formed {
            return Ok(None);
        }
        let Some(kubeconfig) = self.kubeconfig(cluster).await? else {
            return Ok(Some(add_ons(&cluster.spec, Err("its kubeconfig is not at hand".to_owned()))));
        };
        let seen = self.places.add_ons(&kubeconfig).await;
        Ok(Some(add_ons(&cluster.spec, seen.as_deref().map_err(|error| format!("{error:#}")))))
    }
}
