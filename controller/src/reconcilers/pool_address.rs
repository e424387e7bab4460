//! `PoolAddress`: released once its claimant is gone, and never before. A claimant is deleted after its VMs are proved gone. An
//! unknown state is no proof.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use serde_json::json;

use super::NOW_AND_THEN;
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{CLAIMANT, POOL, claimed};
use crate::objects::{Claimant, Machine, PoolAddress, TenantCluster};
use crate::reach::{Collection, Failure, Objects, claim, kinds};

/// Looks for the claimant, deletes the address of one that is gone, and restores labels.
pub async fn reconcile(address: Arc<PoolAddress>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let objects = &*context.objects;
    if address.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let claimant = &address.spec.claimant;
    let Some(is_there) = is_there(objects, claimant).await.attempting("looking for whose the address is")? else {
        log::warn!("{} is for a {}, which is nothing that this version knows", address.name_any(), claimant.kind);
        return Ok(Action::requeue(NOW_AND_THEN));
    };
    if !is_there {
        log::info!("{} is given back: {} {} is gone", address.name_any(), claimant.kind, claimant.name);
        kinds::delete(objects, &*address).await.attempting("giving the address back")?;
        return Ok(Action::await_change());
    }
    if !objects.control_cluster().has_former_kinds && rename(objects, &address).await? {
        return Ok(Action::await_change());
    }
    let (of, by) = (&address.spec.pool_ref.name, &claimant.uid);
    if address.labels().get(POOL) != Some(of) || address.labels().get(CLAIMANT) != Some(by) {
        // The labels by which pool and claimant find it.
        let part = json!({"metadata": {
            "resourceVersion": address.metadata.resource_version, "labels": {POOL: of, CLAIMANT: by},
        }});
        let patched = objects.patch(&Collection::of::<PoolAddress>(None), &address.name_any(), &part).await;
        patched.attempting("labelling the address")?;
    }
    Ok(Action::requeue(NOW_AND_THEN))
}

/// Replaces the object of a former release, whose name begins with the pool's. The address is never free: both objects exist for a
/// moment. True if the object was replaced.
async fn rename(objects: &dyn Objects, former: &PoolAddress) -> Result<bool, ReconcileError> {
    let Ok(address) = former.spec.address.parse::<Ipv4Addr>() else { return Ok(false) };
    let mut renamed = claimed(&former.spec.pool_ref.name, address, former.spec.claimant.clone());
    renamed.spec.named = former.spec.named;
    if renamed.metadata.name == former.metadata.name {
        return Ok(false);
    }
    match claim(objects, &renamed).await {
        Ok(()) => {}
        Err(Failure::Exists) => {
            let own = kinds::list::<PoolAddress>(objects, None, Some((CLAIMANT, &former.spec.claimant.uid))).await;
            let own = own.attempting("looking for the address under its name")?;
            if !own.iter().any(|own| own.metadata.name == renamed.metadata.name && own.spec == renamed.spec) {
                log::warn!("{} is in use by another claimant too: change one of them", former.name_any());
                return Ok(false);
            }
        }
        Err(failure) => Err(failure).attempting("claiming the address under its name")?,
    }
    kinds::delete(objects, former).await.attempting("removing the address's former object")?;
    Ok(true)
}

/// Whether this claimant exists, by its UID. `None` if its kind is unknown.
async fn is_there(objects: &dyn Objects, claimant: &Claimant) -> Result<Option<bool>, Failure> {
    let (namespace, name) = (Some(claimant.namespace.as_str()), claimant.name.as_str());
    let is_it = |metadata: ObjectMeta| metadata.uid.as_deref() == Some(claimant.uid.as_str());
    Ok(match claimant.kind.as_str() {
        "Machine" => {
            Some(kinds::find::<Machine>(objects, namespace, name).await?.is_some_and(|found| is_it(found.metadata)))
        }
        "TenantCluster" => Some(
            kinds::find::<TenantCluster>(objects, namespace, name).await?.is_some_and(|found| is_it(found.metadata)),
        ),
        _ => None,
    })
}
