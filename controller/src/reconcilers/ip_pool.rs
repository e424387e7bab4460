//! `IPPool`: counts addresses in use, and reports inconsistencies. A pool with addresses in use is not deleted.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::{IN_USE, NOW_AND_THEN, tolerant};
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{POOL, PoolUsage, pool_usage};
use crate::objects::{IPPool, IPPoolReason, IPPoolStatus, PoolAddress, set};
use crate::reach::kinds;

/// Adds the finalizer, counts the addresses in use, and writes the status. Removes the finalizer with the last address.
pub async fn reconcile(pool: Arc<IPPool>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let (objects, name) = (&*context.objects, pool.name_any());
    if pool.metadata.deletion_timestamp.is_none()
        && kinds::add_finalizer(objects, &*pool, IN_USE).await.attempting("keeping the IPPool")?
    {
        // The write reconciles it again.
        return Ok(Action::await_change());
    }
    let addresses = kinds::list::<PoolAddress>(objects, None, Some((POOL, &name))).await;
    let addresses = addresses.attempting("listing the addresses of the IPPool")?;
    if pool.metadata.deletion_timestamp.is_some() && addresses.is_empty() {
        kinds::remove_finalizer(objects, &*pool, IN_USE).await.attempting("letting the IPPool go")?;
        return Ok(Action::await_change());
    }
    let all = tolerant::<IPPool>(objects).await?.all();
    let before = pool.status.clone();
    let mut now = before.clone().unwrap_or_default();
    let generation = pool.metadata.generation.unwrap_or_default();
    let ready = match pool_usage(&pool, &addresses, &all) {
        Ok(PoolUsage { total, used, ready, consistent }) => {
            let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            (now.total, now.used) = (number(total), number(used));
            set(&mut now.conditions, consistent.0, &consistent.1, generation, &context.clock.time());
            ready
        }
        Err(malformed) => (IPPoolReason::NotCounted, malformed.to_string()),
    };
    set(&mut now.conditions, ready.0, &ready.1, generation, &context.clock.time());
    now.observed_generation = generation;
    kinds::note::<IPPool, IPPoolStatus>(objects, &pool, before.as_ref(), &now)
        .await
        .attempting("noting what was counted")?;
    Ok(Action::requeue(NOW_AND_THEN))
}
