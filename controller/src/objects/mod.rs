//! The kinds, one file or room each: what a person fills in, what the controller says of it, what an API server refuses by itself.
//!
//! Conventions, the same in all files:
//!
//! - The types are what is written and read, not yet judged: what a rule cannot see (other objects, a vCenter) is judged by
//!   decisions. They read tolerantly; unknown fields of a later version are dropped by the API server.
//! - Kinds only grow: a field that comes later is optional or has a default, and none goes that anybody does or reads. A value of a
//!   spec that nobody does is refused by a rule: a person would count on it.
//! - Each list, map and string is bounded. An API server estimates what a rule may cost by these bounds, and refuses a kind
//!   whose rules could take too long (Kubernetes, "Validation rules", "Resource use by validation functions").
//! - Units stand in names: `memoryMiB`, `drainSeconds`.
//! - What stands in the cluster's file or in the OVF form too has the same words here.
#![allow(clippy::duplicated_attributes, reason = "each column of a kind has a type, and several are texts")]

mod all;
mod condition;
mod deployment;
#[cfg(test)]
pub(crate) mod fixture;
mod ip_pool;
mod machine;
mod network;
mod node_image;
mod node_pool;
mod operation;
mod pool_address;
mod provider;
mod reference;
mod rules;
mod shapes;
mod site;
mod tenant_cluster;
mod vm_class;

pub use self::all::{Described, Kind, all};
pub use self::condition::{Condition, ConditionStatus, Reason, set};
pub use self::deployment::{
    AdoptedVmStatus, DeletingVm, DeployedImage, DeployedNode, Deployment, DeploymentLifecycle, DiskPlace, VmPlace,
};
pub use self::ip_pool::{IPPool, IPPoolReason, IPPoolSpec, IPPoolStatus};
pub use self::machine::{
    Discards, Journal, Machine, MachineReason, MachineRole, MachineSpec, MachineStatus, MachineVm, Phase, PinnedImage,
    Removal, VmState,
};
pub use self::network::{AddressRange, Endpoint, Network, ServiceVips};
pub use self::node_image::{
    Lifecycle, LifecyclePhase, NodeImage, NodeImageReason, NodeImageSpec, NodeImageStatus, Template,
};
pub use self::node_pool::{Effect, NodePool, NodePoolReason, NodePoolSpec, NodePoolStatus, Repair, Rollout, Taint};
pub use self::operation::{
    ControlPlaneSize, JournalEntry, Operation, OperationKind, OperationReason, OperationSpec, OperationStatus,
    PlannedStep,
};
pub use self::pool_address::{Claimant, PoolAddress, PoolAddressSpec, Purpose};
pub use self::provider::{
    Addressing, AllowedNamespaces, Clones, FromNamespaces, Limits, Provider, ProviderNetwork, ProviderReason,
    ProviderSpec, ProviderStatus, ProviderType, RestartPriority, VSphere, Zone, ZoneRoom,
};
pub use self::reference::Reference;
pub use self::site::{Proxy, Site};
pub use self::tenant_cluster::{
    AddOns, Backup, Commit, ControlPlane, ControlPlaneStatus, Maintenance, NodesStatus, OnFailure, PodSecurity,
    Resolved, Restore, TenantCluster, TenantClusterReason, TenantClusterSpec, TenantClusterStatus, Upgrade,
    UpgradeMode,
};
pub use self::vm_class::{VMClass, VMClassSpec};

/// The group of all kinds.
pub const GROUP: &str = "kaas.local";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// The namespace of the controller's own objects.
pub const SYSTEM: &str = "kaas-system";
/// The annotation without which a [`TenantCluster`] is not deleted: its name, as its value.
pub const CONFIRM_DELETE: &str = "kaas.local/confirm-delete";
/// The annotation by which a person has VMs of a [`TenantCluster`] that are newer than the database taken as they are: its name, as its
/// value.
pub const ADOPT: &str = "kaas.local/adopt";
/// The annotation by which a person asks something of an [`Operation`]: `resume`, `rollback`, `commit` or `abandon`.
pub const DO: &str = "kaas.local/do";
/// Of a [`TenantCluster`], a size for its control plane that follows from the number of its nodes.
pub const AUTO: &str = "auto";
