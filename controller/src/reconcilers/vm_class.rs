//! `VMClass`: not deleted while a cluster or a pool names it. Its definition checks everything else when it is created.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::{IN_USE, NOW_AND_THEN, all, keeps, tenants, tolerant};
use crate::context::{Attempt, Context, ReconcileError};
use crate::objects::{NodePool, Provider, TenantCluster, VMClass};
use crate::reach::kinds::{self, full_name};

/// Adds the finalizer, and removes it once neither a cluster nor a pool names the class.
pub async fn reconcile(class: Arc<VMClass>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let (objects, name) = (&*context.objects, class.name_any());
    if class.metadata.deletion_timestamp.is_none() {
        kinds::add_finalizer(objects, &*class, IN_USE).await.attempting("keeping the VMClass")?;
        return Ok(Action::await_change());
    }
    let clusters = all::<TenantCluster>(objects).await?;
    let pools = tolerant::<NodePool>(objects).await?.all();
    let providers = tolerant::<Provider>(objects).await?.all();
    let tenants = tenants(objects).await?;
    let clusters: Vec<_> = clusters.into_iter().filter(|cluster| keeps(cluster, &providers, &tenants)).collect();
    let cluster = clusters.iter().find(|cluster| cluster.spec.control_plane.vm_class == name);
    let user = cluster.map(|cluster| format!("TenantCluster {}", full_name(cluster)));
    let is_theirs = |pool: &&NodePool| {
        let of = |cluster: &TenantCluster| {
            (cluster.namespace(), cluster.name_any()) == (pool.namespace(), pool.spec.cluster_ref.name.clone())
        };
        pool.spec.vm_class == name && clusters.iter().any(of)
    };
    let pool = pools.iter().find(is_theirs);
    let pool = pool.map(|pool| format!("NodePool {}", full_name(pool)));
    if let Some(user) = user.or(pool) {
        log::info!("the VMClass {name} is to go, and stays for now: the {user} names it");
        return Ok(Action::requeue(NOW_AND_THEN));
    }
    kinds::remove_finalizer(objects, &*class, IN_USE).await.attempting("letting the VMClass go")?;
    Ok(Action::await_change())
}
