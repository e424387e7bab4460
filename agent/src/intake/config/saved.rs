//! How a [`Config`] is saved on the data disk. Agents of before read the same form: it has the fields of all roles side
//! by side.

use contract::role::Role;
use serde::{Deserialize, Serialize};

use super::{Cluster, Config, Node, RoleConfig};

/// A configuration as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    /// Before there were roles, none was saved.
    #[serde(default = "before_roles")]
    role: Role,
    cluster: Cluster,
    node: Node,
    timeout_factor: u32,
}

fn before_roles() -> Role {
    Role::ControlPlane
}

impl From<Saved> for Config {
    fn from(Saved { role, cluster, node, timeout_factor }: Saved) -> Self {
        Self { role: RoleConfig::new(role, cluster), node, timeout_factor }
    }
}

impl From<Config> for Saved {
    fn from(config: Config) -> Self {
        let role = config.role();
        let (RoleConfig::ControlPlane(cluster) | RoleConfig::TenantControlPlane(cluster)) = config.role;
        Self { role, cluster, node: config.node, timeout_factor: config.timeout_factor }
    }
}
