//! What a VM is in its cluster. An image has one role; which properties a form asks for, what the agent makes of them
//! and what it does at boot follow from it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a VM is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A node of the control cluster: control plane and workloads.
    ControlPlane,
    /// A control node of a tenant cluster, which leaves workloads to workers.
    TenantControlPlane,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::TenantControlPlane];

    /// The word in specs, in `image.json` and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::TenantControlPlane => "tenant-control-plane",
        }
    }

    /// The role in a sentence: "a node of the control cluster".
    pub fn title(self) -> &'static str {
        match self {
            Self::ControlPlane => "a node of the control cluster",
            Self::TenantControlPlane => "a control node of a tenant cluster",
        }
    }

    /// Whether workloads run on it without tolerating a taint.
    pub fn runs_workloads(self) -> bool {
        match self {
            Self::ControlPlane => true,
            Self::TenantControlPlane => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No role has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such role")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(UnknownRole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_read_as_it_is_written() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert_eq!("master".parse::<Role>(), Err(UnknownRole));
    }
}
