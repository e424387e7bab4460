//! All clusters and Machines, from which the usage of a Provider's limits is computed.

use super::failure::Failure;
use super::kinds::{Tolerant, list_tolerant};
use super::objects::Objects;
use crate::decisions::ClusterInventory;
use crate::objects::{Machine, TenantCluster};

/// Lists the Machines first, so that the cluster of each Machine is in the list of clusters.
pub async fn cluster_inventory(objects: &dyn Objects) -> Result<ClusterInventory, Failure> {
    let machines = list_tolerant::<Machine>(objects, None, None).await?.all();
    let Tolerant { whole: clusters, unread } = list_tolerant::<TenantCluster>(objects, None, None).await?;
    let unread = unread.into_iter().map(|(cluster, _)| cluster).collect();
    Ok(ClusterInventory { clusters, unread, machines })
}
