//! The role of a VM in its cluster, and the roles of an image. The properties of a form, the agent's configuration and the boot
//! depend on the role.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The role of a VM in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A node of the control cluster: control plane and workloads.
    ControlPlane,
    /// A control-plane node of a tenant cluster, which leaves workloads to workers.
    TenantControlPlane,
    /// A node of a tenant cluster that runs workloads, and keeps nothing that must outlive its VM.
    Worker,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::ControlPlane, Self::TenantControlPlane, Self::Worker];

    /// The name in forms, in specs, in `image.json` and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::TenantControlPlane => "tenant-control-plane",
            Self::Worker => "worker",
        }
    }

    /// The role in a sentence: "a node of the control cluster".
    pub fn title(self) -> &'static str {
        match self {
            Self::ControlPlane => "a node of the control cluster",
            Self::TenantControlPlane => "a control-plane node of a tenant cluster",
            Self::Worker => "a worker of a tenant cluster",
        }
    }

    /// Whether workloads run on it without tolerating a taint.
    pub fn runs_workloads(self) -> bool {
        match self {
            Self::ControlPlane | Self::Worker => true,
            Self::TenantControlPlane => false,
        }
    }

    /// Whether workers join the cluster of such a control-plane node.
    pub fn takes_workers(self) -> bool {
        match self {
            Self::TenantControlPlane => true,
            Self::ControlPlane | Self::Worker => false,
        }
    }

    /// Whether its records are on a data disk, which outlives the VM.
    pub fn has_data_disk(self) -> bool {
        match self {
            Self::ControlPlane | Self::TenantControlPlane => true,
            Self::Worker => false,
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

/// The possible roles of an image's VMs: at least one, each once. A VM without a configured role gets the first.
///
/// Written as the fields `role`, the first one, and `roles`. Early agents, whose images had one role, read and write only
/// `role`. Roles of later versions are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RolesInput", into = "RolesOutput")]
pub struct Roles(Vec<Role>);

impl Roles {
    /// These roles. `None` if the list is empty or repeats a role.
    pub fn new(roles: Vec<Role>) -> Option<Self> {
        let twice = roles.iter().enumerate().any(|(index, role)| roles[..index].contains(role));
        (!roles.is_empty() && !twice).then_some(Self(roles))
    }

    /// All roles, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = Role> + '_ {
        self.0.iter().copied()
    }

    /// The role of a VM without a configured role.
    pub fn first(&self) -> Role {
        self.0[0]
    }

    /// The role that each VM of the image has. `None` if there is a choice.
    pub fn only(&self) -> Option<Role> {
        (self.0.len() == 1).then(|| self.first())
    }

    /// Whether a VM may have this role.
    pub fn contains(&self, role: Role) -> bool {
        self.0.contains(&role)
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Self {
        Self(vec![role])
    }
}

/// The names, in a sentence: `control-plane or tenant-control-plane`.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|role| role.name()).collect::<Vec<_>>().join(" or "))
    }
}

/// The written form of [`Roles`].
#[derive(Serialize)]
struct RolesOutput {
    role: Role,
    roles: Vec<Role>,
}

impl From<Roles> for RolesOutput {
    fn from(roles: Roles) -> Self {
        Self { role: roles.first(), roles: roles.0 }
    }
}

/// The forms that are read: of images with one role, of current ones, of later ones.
#[derive(Deserialize)]
struct RolesInput {
    role: String,
    roles: Option<Vec<String>>,
}

impl TryFrom<RolesInput> for Roles {
    type Error = String;

    fn try_from(told: RolesInput) -> Result<Self, String> {
        let names = told.roles.unwrap_or_else(|| vec![told.role]);
        let known = names.iter().filter_map(|name| name.parse().ok()).collect();
        Self::new(known).ok_or_else(|| format!("no role of {} is known, or one is named twice", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_has_roles_and_none_twice() {
        let roles = Roles::new(vec![Role::TenantControlPlane, Role::ControlPlane]).unwrap();
        assert_eq!((roles.first(), roles.only()), (Role::TenantControlPlane, None));
        assert_eq!(roles.to_string(), "tenant-control-plane or control-plane");
        assert_eq!(Roles::from(Role::ControlPlane).only(), Some(Role::ControlPlane));
        assert_eq!(Roles::new(Vec::new()), None);
        assert_eq!(Roles::new(vec![Role::ControlPlane, Role::ControlPlane]), None);
    }

    #[test]
    fn roles_of_earlier_and_later_images_are_read() {
        let read = |value| serde_json::from_value::<Roles>(value);
        let one = Roles::from(Role::ControlPlane);
        assert_eq!(read(json!({ "role": "control-plane" })).unwrap(), one);
        assert_eq!(serde_json::to_value(&one).unwrap(), json!({ "role": "control-plane", "roles": ["control-plane"] }));
        let both = Roles::new(Role::ALL.to_vec()).unwrap();
        assert_eq!(read(serde_json::to_value(&both).unwrap()).unwrap(), both);
        let later = json!({ "role": "later", "roles": ["later", "control-plane"] });
        assert_eq!(read(later).unwrap(), one);
        let error = read(json!({ "role": "later", "roles": ["later"] })).unwrap_err();
        assert_eq!(error.to_string(), "no role of later is known, or one is named twice");
        assert!(read(json!({ "roles": ["control-plane"] })).is_err());
    }

    #[test]
    fn a_role_is_read_as_it_is_written() {
        for (index, role) in Role::ALL.into_iter().enumerate() {
            assert_eq!(role as usize, index, "tables have a column for each role, in this order");
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
        assert_eq!("master".parse::<Role>(), Err(UnknownRole));
    }
}
