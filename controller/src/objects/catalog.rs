//! `Catalog`: what the clusters of a namespace may use, and what they use. The controller writes one into each namespace of a
//! Tenant.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes;
use super::tenant::{AllowedProvider, Quota};

/// The names that clusters may use, and what they use.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Catalog",
    doc = "The names that clusters in a namespace may use, with the quota and the use of its Tenant. The controller writes it.",
    derive = "PartialEq",
    namespaced,
    category = "kaas",
    shortname = "cat",
    printcolumn(name = "Clusters", type_ = "integer", json_path = ".spec.used.clusters"),
    printcolumn(name = "Cluster quota", type_ = "integer", json_path = ".spec.quota.clusters"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".spec.used.nodes"),
    printcolumn(name = "Node quota", type_ = "integer", json_path = ".spec.quota.nodes"),
    printcolumn(name = "Processors", type_ = "integer", json_path = ".spec.used.processors"),
    printcolumn(name = "Processor quota", type_ = "integer", json_path = ".spec.quota.processors"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CatalogSpec {
    /// The Tenant of the namespace.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub tenant: String,
    /// The Providers, with the zones and networks that clusters may use.
    #[serde(default)]
    #[schemars(length(max = 16), transform = shapes::keyed(&["name"]))]
    pub providers: Vec<AllowedProvider>,
    /// The IPPools that clusters may name for endpoints and Services.
    #[serde(default)]
    #[schemars(schema_with = "shapes::catalog_names")]
    pub ip_pools: Vec<String>,
    /// The VMClasses that clusters and pools may name.
    #[serde(default)]
    #[schemars(schema_with = "shapes::catalog_names")]
    pub vm_classes: Vec<String>,
    /// The NodeImages that clusters may name.
    #[serde(default)]
    #[schemars(schema_with = "shapes::catalog_names")]
    pub images: Vec<String>,
    /// The quota of the Tenant, for all its namespaces together. A missing value means no limit.
    #[serde(default)]
    pub quota: Quota,
    /// The use of the Tenant in all its namespaces together. It is renewed each minute.
    #[serde(default)]
    pub used: Used,
}

/// The resources that the clusters of a Tenant use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Used {
    /// Clusters.
    #[schemars(range(min = 0))]
    pub clusters: u64,
    /// Nodes.
    #[schemars(range(min = 0))]
    pub nodes: u64,
    /// Virtual processors.
    #[schemars(range(min = 0))]
    pub processors: u64,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 0))]
    pub memory_mib: u64,
    /// Addresses of nodes, endpoints and Services. A node counts as one, with DHCP too.
    #[schemars(range(min = 0))]
    pub addresses: u64,
}
