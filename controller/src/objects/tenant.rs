//! `Tenant`: a team, its namespaces, what its clusters may use, and its quota.
//!
//! Rules of access (`decisions/access.rs`):
//!
//! - A namespace belongs to at most one Tenant: the one that holds it already, else the oldest.
//! - A namespace of a Tenant may use the Providers that the Tenant lists. `allowedNamespaces` of a Provider does not matter to it.
//! - A namespace without a Tenant may use the Providers whose `allowedNamespaces` admits it, as before Tenants existed.
//! - A network or an IPPool that a Tenant lists is closed to all other namespaces, with a Tenant or without.
//! - An IPPool that serves closed networks alone is closed with them, unless the own Tenant lists it. An address that a cluster
//!   names counts as the IPPool that has it in its ranges.
//! - An empty list of zones, networks, pools, classes or images allows each that is not closed.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::{Condition, reasons};
use super::shapes;

/// A team, and what it may use.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Tenant",
    doc = "A team: its namespaces, what its clusters may use, its quota and its people. Only operators write it.",
    derive = "PartialEq",
    status = "TenantStatus",
    category = "kaas",
    shortname = "ten",
    validation = (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
        "the name is no DNS label of at most 63 characters"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Namespaces", type_ = "string", json_path = ".status.namespaces"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// The namespaces of the team. The controller does not create them. A namespace belongs to at most one Tenant.
    #[schemars(
        schema_with = "shapes::names",
        extend("x-kubernetes-list-type" = "set", "minItems" = 1),
        example = ["team-blue"]
    )]
    pub namespaces: Vec<String>,
    /// The Providers and other objects that clusters in these namespaces may use.
    pub allow: Allow,
    /// How much all clusters of the Tenant may have together, on all Providers. Existing clusters and nodes stay if it is lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// The people who create, change and delete clusters in these namespaces, and read their kubeconfigs.
    #[serde(default)]
    pub admins: People,
    /// The people who see clusters in these namespaces.
    #[serde(default)]
    pub users: People,
}

/// People, by the names that the control cluster's API server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct People {
    /// Users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::people", extend("x-kubernetes-list-type" = "set"), example = ["anna"])]
    pub users: Vec<String>,
    /// Groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::people", extend("x-kubernetes-list-type" = "set"), example = ["blue-admins"])]
    pub groups: Vec<String>,
}

/// A quota of a Tenant. Control-plane nodes, workers and their replacements count. A missing value means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Quota {
    /// Clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000), example = 10)]
    pub clusters: Option<u32>,
    /// Nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000), example = 100)]
    pub nodes: Option<u32>,
    /// Virtual processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000), example = 400)]
    pub processors: Option<u32>,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000000), example = 1638400)]
    pub memory_mib: Option<u64>,
    /// Addresses of nodes, endpoints and Services. A node counts as one, with DHCP too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000), example = 200)]
    pub addresses: Option<u32>,
}

/// The Providers and other objects that clusters of a Tenant may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allow {
    /// The Providers. Clusters use no other Provider.
    #[schemars(length(min = 1, max = 16), transform = shapes::keyed(&["name"]))]
    pub providers: Vec<AllowedProvider>,
    /// The IPPools that clusters may name for endpoints and Services. They are closed to namespaces of others. Without any, each
    /// IPPool that no Tenant lists. The IPPool of a listed network serves its nodes in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::names", extend("x-kubernetes-list-type" = "set"), example = ["blue-vips"])]
    pub ip_pools: Vec<String>,
    /// The VMClasses. Without any, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::names", extend("x-kubernetes-list-type" = "set"), example = ["medium"])]
    pub vm_classes: Vec<String>,
    /// The NodeImages. Without any, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        schema_with = "shapes::image_names",
        extend("x-kubernetes-list-type" = "set"),
        example = ["kaas-tenant-0.2.0"]
    )]
    pub images: Vec<String>,
}

/// The parts of a Provider that clusters may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedProvider {
    /// Name of the Provider.
    #[schemars(schema_with = "shapes::label", example = &"dc1")]
    pub name: String,
    /// The zones. Without any, all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::zones", example = ["a"])]
    pub zones: Vec<String>,
    /// The networks. They are closed to namespaces of others. Without any, each network that no Tenant lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::names", extend("x-kubernetes-list-type" = "set"), example = ["blue"])]
    pub networks: Vec<String>,
}

/// The state of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TenantStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether the Tenant is in effect, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The namespaces that the Tenant holds. Another Tenant that lists one of them later does not get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::names")]
    pub namespaces: Vec<String>,
}

reasons! {
    /// Why a condition of a Tenant has its status.
    TenantReason:
    /// The Tenant is in effect in all its namespaces.
    Ready {
        /// The Tenant holds all namespaces that it lists, and all objects that it names exist.
        InEffect = True,
        /// Another Tenant holds a namespace; the message names it. The Tenant gives nothing to that namespace: remove it from one
        /// of them.
        NamespaceTaken = False for operator helps "remove it from `spec.namespaces` of one of them",
        /// An object that `allow` names does not exist; the message names it. The rest is in effect.
        AllowedMissing as ReferenceMissing = False for operator helps "correct `spec.allow`, or create the object",
        /// The Tenant is being deleted, and clusters in its namespaces still exist. It stays in effect until they are deleted.
        TenantInUse as InUse = False for operator helps "see `kaas cluster delete`",
    }
}
