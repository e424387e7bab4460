//! How a [`Config`] is saved on the data disk. Agents of before read the same form: it has the fields of all roles side
//! by side.

use contract::role::Role;
use contract::secret::Secret;
use serde::{Deserialize, Serialize};

use super::{Cluster, Config, ControlPlane, Node};

/// A configuration as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    /// Before there were roles, none was saved.
    #[serde(default = "before_roles")]
    role: Role,
    cluster: Cluster,
    node: SavedNode,
    timeout_factor: u32,
}

/// The node, with what stands there since it was written of each node.
#[derive(Serialize, Deserialize)]
struct SavedNode {
    #[serde(flatten)]
    node: Node,
    /// Missing in what older images saved.
    #[serde(default)]
    snapshot_target: Option<Secret>,
    /// Missing in what older images saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery_public_key: Option<String>,
    /// Missing in what older images saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deployer_public_key: Option<String>,
}

fn before_roles() -> Role {
    Role::ControlPlane
}

impl From<Saved> for Config {
    fn from(Saved { role, cluster, node, timeout_factor }: Saved) -> Self {
        let SavedNode { node, snapshot_target, recovery_public_key, deployer_public_key } = node;
        match role {
            Role::ControlPlane | Role::TenantControlPlane => Self::ControlPlane(ControlPlane {
                role,
                cluster,
                node,
                snapshot_target,
                recovery_public_key,
                deployer_public_key,
                timeout_factor,
            }),
        }
    }
}

impl From<Config> for Saved {
    fn from(config: Config) -> Self {
        match config {
            Config::ControlPlane(ControlPlane {
                role,
                cluster,
                node,
                snapshot_target,
                recovery_public_key,
                deployer_public_key,
                timeout_factor,
            }) => {
                let node = SavedNode { node, snapshot_target, recovery_public_key, deployer_public_key };
                Self { role, cluster, node, timeout_factor }
            }
        }
    }
}
