//! `Provider`: checks whether its vCenter answers, accepts the account, grants its privileges, and has free capacity. It and its
//! credentials are not deleted while clusters use it.

mod conditions;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use self::conditions::conditions;
use super::{IN_USE, users};
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::provider::{add_addresses, free_storage, moved, zones};
use crate::objects::{Machine, Provider, ProviderStatus, TenantCluster, set};
use crate::reach::kinds;
use crate::reach::providers::{UnavailableReason, resolved, vsphere};

/// How often a vCenter is looked at.
const INTERVAL: Duration = Duration::from_secs(60);

/// Reconciles a Provider:
///
/// 1. Reads its clusters. Without any, one that is being deleted is let go.
/// 2. Adds finalizers to it and its Secret.
/// 3. Looks at the vCenter.
/// 4. Resolves its name, also if it does not answer: no cluster gets one of its addresses.
/// 5. Writes the status, with the number of Machines in each zone.
///
/// # Errors
/// A call to the API server failed. A Provider that cannot be used is no error: its status says why.
pub async fn reconcile(provider: Arc<Provider>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let objects = &*context.objects;
    let name = provider.name_any();
    let clusters = users(objects, std::slice::from_ref(&*provider)).await?;
    let clusters: Vec<_> = clusters.into_iter().filter(|cluster| cluster.spec.provider_ref.name == name).collect();
    if provider.metadata.deletion_timestamp.is_some() && clusters.is_empty() {
        context.providers.forget(&provider).await;
        secrets::release(objects, Some(&name)).await?;
        kinds::remove_finalizer(objects, &*provider, IN_USE).await.attempting("letting the Provider go")?;
        return Ok(Action::await_change());
    }
    if provider.metadata.deletion_timestamp.is_none()
        && kinds::add_finalizer(objects, &*provider, IN_USE).await.attempting("keeping the Provider")?
    {
        return Ok(Action::await_change());
    }
    secrets::keep(objects, &provider, !clusters.is_empty()).await?;
    let machines = machines(&context, &clusters).await?;
    context.term.ensure_active()?;
    let looked = context.providers.look(&provider).await.map_err(|unavailable| unavailable.why);
    let before = provider.status.clone();
    let mut now = before.clone().unwrap_or_default();
    let seen = looked.as_deref().ok();
    if let Ok(described) = vsphere(&provider) {
        add_addresses(&mut now, &described.server, &resolved(described).await);
        now.zones = zones(described, &now.zones, seen, &machines);
    }
    if let Some(seen) = seen {
        now.version = Some(seen.version.clone());
        // Its first instance UUID. A different one was rejected before this.
        now.instance_uuid = Some(seen.instance.clone());
        now.free_storage_gib = Some(free_storage(seen));
    }
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    (now.clusters, now.nodes) = (count(clusters.len()), machines.values().sum());
    let moved = vsphere(&provider).map(|described| moved(described, &now.zones)).unwrap_or_default();
    let generation = provider.metadata.generation.unwrap_or_default();
    for (reason, message) in conditions(looked.as_deref(), &moved) {
        set(&mut now.conditions, reason, &message, generation, &context.clock.time());
    }
    now.observed_generation = generation;
    let noted = kinds::note::<Provider, ProviderStatus>(objects, &provider, before.as_ref(), &now).await;
    noted.attempting("noting what was seen of the Provider")?;
    Ok(Action::requeue(match &looked {
        Err(UnavailableReason::BackingOff { seconds, .. }) => Duration::from_secs(*seconds),
        _ => INTERVAL,
    }))
}

/// The number of Machines of a Provider's clusters, by zone. Without clusters there is no call.
async fn machines(context: &Context, clusters: &[TenantCluster]) -> Result<BTreeMap<String, i64>, ReconcileError> {
    let mut counts = BTreeMap::new();
    let of: BTreeSet<_> = clusters.iter().map(|cluster| (cluster.namespace(), cluster.name_any())).collect();
    for namespace in of.iter().map(|(namespace, _)| namespace).collect::<BTreeSet<_>>() {
        let all = kinds::list_tolerant::<Machine>(&*context.objects, namespace.as_deref(), None).await;
        for machine in all.attempting("listing Machines")?.all() {
            if of.contains(&(machine.namespace(), machine.spec.cluster_ref.name.clone())) {
                *counts.entry(machine.spec.zone).or_default() += 1;
            }
        }
    }
    Ok(counts)
}
