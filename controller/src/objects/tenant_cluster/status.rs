//! What is known of a cluster: how it is, what was decided for it, and what was made.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::condition::Condition;
use super::super::deployment::Deployment;
use super::super::shapes;

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantClusterStatus {
    /// The generation of the spec that this was judged by.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// How the cluster is, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::super::condition::list")]
    pub conditions: Vec<Condition>,
    /// What was left open in the spec, as it was decided once: it stays until the spec says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// The version of Kubernetes that all control nodes run, such as `1.36.3`; none while they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub version: Option<String>,
    /// The minor of Kubernetes that the cluster has reached: the lowest one that a control node runs or the cluster's own settings
    /// name. There is no way below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub kubernetes: Option<String>,
    /// The control nodes.
    #[serde(default)]
    pub control_plane: ControlPlaneStatus,
    /// The workers of all pools.
    #[serde(default)]
    pub nodes: NodesStatus,
    /// The Operation that is under way, or was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub operation: Option<String>,
    /// UID of the cluster's namespace `kube-system`: whatever answers with another one is not this cluster.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub cluster_uid: Option<String>,
    /// What was begun for the control nodes: kept before anything follows from it, for the cluster's life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

/// What was left open in the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resolved {
    /// The NodeImage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub image: Option<String>,
    /// Its digest: another object of the same name is not taken for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub digest: Option<String>,
    /// Virtual processors of each control node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub processors: Option<u32>,
    /// Memory of each control node in MiB.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 4194304))]
    pub memory_mib: Option<u32>,
    /// Data disk of each control node in GiB.
    #[serde(default, rename = "dataDiskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 63488))]
    pub data_disk_gib: Option<u32>,
    /// The address of the Kubernetes API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4")]
    pub endpoint: Option<String>,
    /// The addresses for Services that the cluster has, by their number: those that it names, or that were taken from a pool.
    #[serde(default, rename = "serviceVIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::service_vips")]
    pub service_vips: Vec<String>,
    /// What control nodes were told of the spec when they were made, by its fields: the SHA-256 of each value as JSON. It is empty
    /// where an earlier version has made them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::digests")]
    pub node_settings: BTreeMap<String, String>,
}

/// The control nodes as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    /// How many there are.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// How many of them are Ready.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready: i32,
    /// How many of them are made as the spec has it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub updated: i32,
}

/// The workers as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesStatus {
    /// How many all pools want.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub desired: i32,
    /// How many there are.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// How many of them are Ready.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready: i32,
}
