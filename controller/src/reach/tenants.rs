//! All clusters and all Machines, as a Provider's limits are judged by them.

use super::failure::Failure;
use super::kinds;
use super::objects::Objects;
use crate::decisions::ClusterInventory;

/// Looks at all of them: at the Machines first, so that the cluster of each is seen as well.
pub async fn cluster_inventory(objects: &dyn Objects) -> Result<ClusterInventory, Failure> {
    let machines = kinds::list(objects, None, None).await?;
    let clusters = kinds::list(objects, None, None).await?;
    Ok(ClusterInventory { clusters, machines })
}
