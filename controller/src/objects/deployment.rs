//! The record of a cluster's control-plane nodes that `fleet` stores. It is part of the TenantCluster's status, not several
//! objects. One write stores all of it or nothing. Deletion has what it needs as long as the cluster exists.

use anyhow::ensure;
use fleet::control_plane::DeploymentRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The record of the control-plane nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deployment {
    /// The number of the lease that wrote this. A holder of a lower number writes nothing.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lease: u64,
    #[serde(flatten)]
    pub record: DeploymentRecord,
}

impl Deployment {
    /// Fails if the record is of another cluster, as in a status that was copied. Nothing may follow from such a record.
    pub fn ensure_of(&self, cluster: &str) -> anyhow::Result<()> {
        let of = &self.record.cluster;
        ensure!(
            of == cluster,
            "status.deployment of the TenantCluster {cluster} is the record of the cluster {of}: restore its own record"
        );
        Ok(())
    }
}
