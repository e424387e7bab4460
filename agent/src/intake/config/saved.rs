//! The saved format of a [`Config`]. Earlier agents read it too. It contains the fields of all roles, and those of
//! other roles are missing.

use contract::properties::Period;
use contract::role::Role;
use contract::secret::Secret;
use serde::{Deserialize, Serialize};

use super::{Cluster, Config, ControlPlane, JoinedCluster, Node, Registration, Worker};

#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    role: Role,
    /// Only of a node with a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joined_cluster: Option<JoinedCluster>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    registration: Option<Registration>,
    node: SavedNode,
    timeout_factor: u32,
}

/// The node, with fields that the format has in it for all nodes.
#[derive(Serialize, Deserialize)]
struct SavedNode {
    #[serde(flatten)]
    node: Node,
    snapshot_target: Option<Secret>,
    /// Only of a node with a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot_every: Option<Period>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery_public_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deployer_public_key: Option<String>,
}

/// A field that the role requires is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0} is missing")]
pub(super) struct Missing(&'static str);

impl TryFrom<Saved> for Config {
    type Error = Missing;

    fn try_from(saved: Saved) -> Result<Self, Missing> {
        let Saved { role, cluster, joined_cluster, registration, node, timeout_factor } = saved;
        let SavedNode { node, snapshot_target, snapshot_every, recovery_public_key, deployer_public_key } = node;
        Ok(match role {
            Role::ControlPlane | Role::TenantControlPlane if node.is_leased() => {
                return Err(Missing("the static address"));
            }
            Role::ControlPlane | Role::TenantControlPlane => Self::ControlPlane(ControlPlane {
                role,
                cluster: cluster.ok_or(Missing("cluster"))?,
                node,
                snapshot_target,
                snapshot_every: snapshot_every.ok_or(Missing("snapshot_every"))?,
                recovery_public_key,
                deployer_public_key,
                timeout_factor,
            }),
            Role::Worker => Self::Worker(Worker {
                cluster: joined_cluster.ok_or(Missing("joined_cluster"))?,
                node,
                registration: registration.unwrap_or_default(),
                timeout_factor,
            }),
        })
    }
}

impl From<Config> for Saved {
    fn from(config: Config) -> Self {
        match config {
            Config::ControlPlane(config) => Self {
                role: config.role,
                cluster: Some(config.cluster),
                joined_cluster: None,
                registration: None,
                node: SavedNode {
                    node: config.node,
                    snapshot_target: config.snapshot_target,
                    snapshot_every: Some(config.snapshot_every),
                    recovery_public_key: config.recovery_public_key,
                    deployer_public_key: config.deployer_public_key,
                },
                timeout_factor: config.timeout_factor,
            },
            Config::Worker(Worker { cluster, node, registration, timeout_factor }) => Self {
                role: Role::Worker,
                cluster: None,
                joined_cluster: Some(cluster),
                registration: Some(registration),
                node: SavedNode {
                    node,
                    snapshot_target: None,
                    snapshot_every: None,
                    recovery_public_key: None,
                    deployer_public_key: None,
                },
                timeout_factor,
            },
        }
    }
}
