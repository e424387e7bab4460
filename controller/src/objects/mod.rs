//! The kinds, one file or room each: what users write, what the controller writes into the status, and which values an API server
//! rejects.
//!
//! Conventions, the same in all files:
//!
//! - The types are read tolerantly and not yet checked. Decisions check what a rule cannot see, such as other objects or a
//!   vCenter. The API server drops unknown fields of a later version.
//! - Kinds only grow: a new field is optional or has a default. A field that is used is not removed. A rule rejects a value that
//!   the controller does not implement, because a user would rely on it.
//! - Each list, map and string has a bound. An API server estimates the cost of a rule by these bounds. It rejects a kind whose
//!   rules could take too long (Kubernetes, "Validation rules", "Resource use by validation functions").
//! - Names of fields contain the unit: `memoryMiB`, `drainSeconds`.
//! - Settings that are also in the cluster's file or in the OVF form have the same words here.
#![allow(clippy::duplicated_attributes, reason = "each column of a kind has a type, and several are texts")]

mod all;
mod catalog;
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
mod tenant;
mod tenant_cluster;
mod vm_class;

pub use self::all::{Described, Kind, all};
pub use self::catalog::{Catalog, CatalogSpec, Used};
pub use self::condition::{Condition, ConditionStatus, Reason, set};
pub use self::deployment::Deployment;
pub use self::ip_pool::{IPPool, IPPoolReason, IPPoolSpec, IPPoolStatus};
pub use self::machine::{
    Machine, MachineReason, MachineRole, MachineSpec, MachineStatus, MachineVm, PinnedImage, VmState,
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
pub use self::tenant::{Allow, AllowedProvider, People, Quota, Tenant, TenantReason, TenantSpec, TenantStatus};
pub use self::tenant_cluster::{
    AddOns, Backup, Commit, ControlPlane, ControlPlaneRepair, ControlPlaneStatus, Maintenance, NodeRepair, NodesStatus,
    OnFailure, PodSecurity, Resolved, Restore, TenantCluster, TenantClusterReason, TenantClusterSpec,
    TenantClusterStatus, Upgrade, UpgradeMode,
};
pub use self::vm_class::{VMClass, VMClassSpec};
pub use fleet::workers::{Discards, Removal, State as Phase};

/// The group of all kinds.
pub const GROUP: &str = "kaas.local";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";
/// The namespace of the controller's own objects.
pub const SYSTEM: &str = "kaas-system";
/// The annotation without which a [`TenantCluster`] is not deleted. Its value is the cluster's name.
pub const CONFIRM_DELETE: &str = "kaas.local/confirm-delete";
/// The annotation that accepts VMs of a [`TenantCluster`] that are newer than the database. Its value is the cluster's name.
pub const ADOPT: &str = "kaas.local/adopt";
/// The annotation that asks for the replacement of a lost control-plane node of a [`TenantCluster`]. Its value is the node's name.
pub const REPLACE_NODE: &str = "kaas.local/replace-node";
/// The annotation with which the operator confirms that the host of a lost control-plane node is off. Its value is the host's name,
/// as the controller has named it.
pub const HOST_IS_OFF: &str = "kaas.local/host-is-off";
/// The annotation that asks something of an [`Operation`]: `resume`, `rollback`, `commit` or `abandon`.
pub const DO: &str = "kaas.local/do";
/// The value of a control plane's `vmClass` that derives the size from the number of workers.
pub const AUTO: &str = "auto";
