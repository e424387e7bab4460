//! All clusters and Machines, from which the usage of a Provider's limits is computed.

use super::failure::Failure;
use super::kinds;
use super::objects::Objects;
use crate::decisions::ClusterInventory;

/// Lists the Machines first, so that the cluster of each Machine is in the list of clusters.
pub async fn cluster_inventory(objects: &dyn Objects) -> Result<ClusterInventory, Failure> {
    let machines = kinds::list(objects, None, None).await?;
    let clusters = kinds::list(objects, None, None).await?;
    Ok(ClusterInventory { clusters, machines })
}
