//! The clusters, Machines and Tenants from which the usage of limits and quotas is computed, from lists of objects.

use serde_json::Value;

use super::failure::Failure;
use super::kind::{Tolerant, read_tolerant};
use crate::decisions::ClusterInventory;
use crate::objects::{Machine, Tenant, TenantCluster};

/// The inventory from lists of objects.
pub(super) fn inventory_of(
    machines: Vec<Value>,
    clusters: Vec<Value>,
    tenants: Vec<Value>,
) -> Result<ClusterInventory, Failure> {
    let mut machines = read_tolerant::<Machine>(machines)?.all();
    for machine in &mut machines {
        // No limit needs these, and there are as many as nodes of all clusters.
        (machine.status, machine.metadata.managed_fields) = (None, None);
    }
    let Tolerant { whole: clusters, unread } = read_tolerant::<TenantCluster>(clusters)?;
    let unread = unread.into_iter().map(|(cluster, _)| cluster).collect();
    Ok(ClusterInventory { clusters, unread, machines, tenants: read_tolerant::<Tenant>(tenants)?.all() })
}
