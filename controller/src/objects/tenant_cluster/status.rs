//! The status of a cluster: its state, its resolved settings, and the record of its control-plane nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::condition::Condition;
use super::super::deployment::Deployment;
use super::super::shapes;

/// The state of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct TenantClusterStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// The state of the cluster, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The values for fields that the spec leaves open. They are decided once, and stay until the spec changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// The version of Kubernetes that all control-plane nodes run, such as `1.36.3`. Unset while they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub version: Option<String>,
    /// The minor version of Kubernetes that the cluster has reached: the lowest one that a control-plane node runs or the
    /// cluster's own settings name. A rollback below it is not possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub kubernetes: Option<String>,
    /// The control-plane nodes.
    pub control_plane: ControlPlaneStatus,
    /// The workers of all pools.
    pub nodes: NodesStatus,
    /// The current or last Operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub operation: Option<String>,
    /// The lost control-plane node, and when one was replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_repair: Option<NodeRepair>,
    /// UID of the cluster's namespace `kube-system`. A server with another UID is not this cluster.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub cluster_uid: Option<String>,
    /// The record of the control-plane nodes. Each step is stored before the controller acts on it, as long as the cluster exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

/// The lost control-plane node of a cluster, and when one was replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeRepair {
    /// Name of the lost node. Unset if none is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label")]
    pub node: Option<String>,
    /// Since when its VM is proved off without its data disk, or gone, without interruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proved_since: Option<Time>,
    /// When that was last proved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_proved: Option<Time>,
    /// The host of its VM, if vCenter shows that host as not responding. The annotation `kaas.local/host-is-off` may name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub host: Option<String>,
    /// When its replacement began. Unset while none is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// When the controller last began to replace a node by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_automatic: Option<Time>,
}

/// The values for fields that the spec leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Resolved {
    /// Name of the NodeImage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub image: Option<String>,
    /// Digest of the image. Another object of the same name is not accepted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub digest: Option<String>,
    /// Virtual processors of each control-plane node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub processors: Option<u32>,
    /// Memory of each control-plane node in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 4194304))]
    pub memory_mib: Option<u32>,
    /// Data disk of each control-plane node in GiB.
    #[serde(rename = "dataDiskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 63488))]
    pub data_disk_gib: Option<u32>,
    /// IPv4 address of the Kubernetes API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4")]
    pub endpoint: Option<String>,
    /// The addresses for Services, in order: named by the spec, or claimed from a pool.
    #[serde(rename = "serviceVIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::service_vips")]
    pub service_vips: Vec<String>,
    /// The settings that control-plane nodes have, by field of the spec: the SHA-256 of each value as JSON. A named Secret counts
    /// with its version.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::digests")]
    pub node_settings: BTreeMap<String, String>,
    /// Whether each Secret that the spec names must have the type `kaas.local/cluster-input`. A cluster from before this type
    /// existed also keeps the Secrets that its control-plane nodes were created with.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requires_input_type: bool,
}

/// Numbers of control-plane nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    /// Existing nodes.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Nodes that are Ready.
    #[schemars(range(min = 0))]
    pub ready: i32,
    /// Nodes that match the spec.
    #[schemars(range(min = 0))]
    pub updated: i32,
}

/// Numbers of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodesStatus {
    /// Workers that all pools want.
    #[schemars(range(min = 0))]
    pub desired: i32,
    /// Existing workers.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Workers that are Ready.
    #[schemars(range(min = 0))]
    pub ready: i32,
}
