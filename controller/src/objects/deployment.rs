//! The record of a cluster's control-plane nodes that `fleet` stores. It is part of the TenantCluster's status, not several
//! objects. One write stores all of it or nothing. Deletion has what it needs as long as the cluster exists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes;

/// The record of the control-plane nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The number of the lease that wrote this. A holder of a lower number writes nothing.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// The deployment ID in the stamp of the cluster's VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub id: Option<String>,
    /// Whether the nodes run, or are being removed.
    pub lifecycle: DeploymentLifecycle,
    /// The image of their first VMs.
    pub image: DeployedImage,
    /// The control-plane nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 3),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub nodes: Vec<DeployedNode>,
    /// Whether the nodes have formed a cluster.
    #[serde(default)]
    pub formed: bool,
    /// Fingerprint of the cluster's CA, as all nodes showed it when they formed the cluster. A node with another CA is not
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub ca_fingerprint: Option<String>,
    /// Fingerprint of the deployer's key in the OVF properties of the VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub deployer_fingerprint: Option<String>,
    /// Whether data disks are deleted with the cluster.
    #[serde(default)]
    pub removes_disks: bool,
    /// VMs that are deleted with the cluster because the operator adopted them.
    #[serde(default, rename = "adoptedVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["biosUUID"])
    )]
    pub adopted_vms: Vec<AdoptedVmStatus>,
    /// The last upgrade before the cluster was deleted. It ended with the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub upgrade: Option<String>,
    /// Disks that are kept. Recorded before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub retained_disks: Vec<DiskPlace>,
    /// Disks that are deleted once no VM holds them. Recorded before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub disks_to_delete: Vec<DiskPlace>,
    /// UUIDs of disks whose deletion was requested. Recorded before the request: a disk that is missing later was deleted or
    /// moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::removals")]
    pub requested_disk_deletions: Vec<String>,
    /// VMs whose removal was requested while the cluster is deleted. Another VM with such a BIOS UUID is a copy.
    #[serde(default, rename = "deletingVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub deleting_vms: Vec<DeletingVm>,
    /// Where VMs were last seen. While a file of a VM exists, a VM that the vCenter does not show may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub places: Vec<VmPlace>,
}

/// Where a VM was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmPlace {
    /// BIOS UUID of the VM.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// Name of the node.
    #[schemars(schema_with = "shapes::word")]
    pub node: String,
    /// Path of the file with the VM's settings.
    #[schemars(schema_with = "shapes::word")]
    pub settings: String,
    /// The vCenter's identifier of the datastore of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub datastore: Option<String>,
}

/// The lifecycle of control-plane nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeploymentLifecycle {
    /// The nodes are created, and run.
    Active,
    /// The nodes are being removed.
    Deleting,
    /// The nodes were removed.
    Deleted,
}

/// The image of VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedImage {
    /// Name of the image, for operators.
    #[schemars(schema_with = "shapes::word")]
    pub name: String,
    /// Digest of the image. Unset for VMs that the controller did not create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub digest: Option<String>,
}

/// A control-plane node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedNode {
    /// Name of the node, of its Machine, and of the first VM that is created for it.
    #[schemars(schema_with = "shapes::label")]
    pub name: String,
    /// IPv4 address of the node.
    #[schemars(schema_with = "shapes::ipv4")]
    pub address: String,
    /// Hash of the settings that its VM is created with.
    #[schemars(schema_with = "shapes::word")]
    pub settings_hash: String,
    /// Hash of the deployment secret in the OVF properties of its VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub secret_hash: Option<String>,
    /// BIOS UUID for its VM, recorded before the VM is created: it identifies an incomplete VM. It is the UID of its Machine.
    #[serde(default, rename = "allocatedUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub allocated_uuid: Option<String>,
    /// BIOS UUID of its VM, once the VM is complete.
    #[serde(default, rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: Option<String>,
    /// Whether that VM was ever powered on.
    #[serde(default)]
    pub ever_powered_on: bool,
    /// UUID of the data disk that its VM was created with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub data_disk: Option<String>,
}

/// A VM that the operator adopted for deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedVmStatus {
    /// BIOS UUID of the VM.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// UUIDs of the data disks that the VM held then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::uuids")]
    pub disks: Vec<String>,
    /// Whether the adoption belongs to an earlier removal. Then its disks are the cluster's, and the VM is deleted only after
    /// another adoption.
    #[serde(default)]
    pub earlier: bool,
}

/// A VM whose removal was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletingVm {
    /// BIOS UUID of the VM.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// Identifier of the VM in the vCenter. It is empty only in a TenantCluster, for a VM that was removed before the cluster.
    #[schemars(length(max = 253))]
    pub id: String,
}

/// A disk, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPlace {
    /// UUID of the disk.
    #[schemars(schema_with = "shapes::uuid")]
    pub uuid: String,
    /// Path of the disk as the vCenter writes it.
    #[schemars(length(max = 1024))]
    pub path: String,
}
