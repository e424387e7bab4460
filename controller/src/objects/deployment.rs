//! What was begun for the control nodes of a cluster, as `fleet` keeps it. It stands whole in the status of the TenantCluster, and
//! not in several objects: one write says all of it, or nothing, and what deletion needs is there as long as the cluster is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes;

/// What was begun for the control nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The hold under which this was written: one of a lower number writes no more.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// What the cluster's VMs are stamped with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub id: Option<String>,
    /// What is to come of them.
    pub lifecycle: DeploymentLifecycle,
    /// What their first VMs were made of.
    pub image: DeployedImage,
    /// The control nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 3),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub nodes: Vec<DeployedNode>,
    /// Whether they have formed a cluster.
    #[serde(default)]
    pub formed: bool,
    /// Fingerprint of the cluster's authority, as all of them showed it then: none that shows another one is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub ca_fingerprint: Option<String>,
    /// Fingerprint of the deployer's key that the VMs were told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub deployer_fingerprint: Option<String>,
    /// Whether data disks go with the cluster.
    #[serde(default)]
    pub removes_disks: bool,
    /// VMs that go with the cluster by a person's word.
    #[serde(default, rename = "adoptedVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["biosUUID"])
    )]
    pub adopted_vms: Vec<AdoptedVmStatus>,
    /// The upgrade that was the last one when the cluster was gone: it has ended with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub upgrade: Option<String>,
    /// Disks that are left where they are, noted before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub retained_disks: Vec<DiskPlace>,
    /// Disks that are removed once nobody holds them, noted before they are detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub disks_to_delete: Vec<DiskPlace>,
    /// UUIDs of disks whose removal was asked for, noted before: one that is not there any more then is gone, or was moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::removals")]
    pub requested_disk_deletions: Vec<String>,
    /// VMs whose removal was requested as the cluster goes. Another VM with such a BIOS UUID is a copy.
    #[serde(default, rename = "deletingVMs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub deleting_vms: Vec<DeletingVm>,
    /// Where VMs were when they were seen last. While a file of them exists, a VM that is not shown may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub places: Vec<VmPlace>,
}

/// Where a VM was when it was seen last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmPlace {
    /// Its BIOS UUID.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// The node that it is of.
    #[schemars(schema_with = "shapes::word")]
    pub node: String,
    /// The file of its settings.
    #[schemars(schema_with = "shapes::word")]
    pub settings: String,
    /// The vCenter's identifier of the datastore of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub datastore: Option<String>,
}

/// What is to come of control nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeploymentLifecycle {
    /// They are made, and run.
    Active,
    /// They are removed.
    Deleting,
    /// They were removed.
    Deleted,
}

/// What VMs were made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedImage {
    /// Its name, for people.
    #[schemars(schema_with = "shapes::word")]
    pub name: String,
    /// Its digest; none of VMs that others have made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::digest")]
    pub digest: Option<String>,
}

/// A control node as it was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedNode {
    /// Its name, that of its Machine, and of the VM that is made for it first.
    #[schemars(schema_with = "shapes::label")]
    pub name: String,
    /// Its address.
    #[schemars(schema_with = "shapes::ipv4")]
    pub address: String,
    /// What its VM is made of, in short.
    #[schemars(schema_with = "shapes::word")]
    pub settings_hash: String,
    /// The deployment secret that its VM was told, in short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub secret_hash: Option<String>,
    /// BIOS UUID that its VM is made with, noted before: half of it is known by that. It is the UID of its Machine.
    #[serde(default, rename = "allocatedUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub allocated_uuid: Option<String>,
    /// BIOS UUID of its VM, once that was made whole.
    #[serde(default, rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: Option<String>,
    /// Whether that was ever powered on.
    #[serde(default)]
    pub ever_powered_on: bool,
    /// UUID of the data disk that its VM was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub data_disk: Option<String>,
}

/// A VM that goes by a person's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdoptedVmStatus {
    /// Its BIOS UUID.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// UUIDs of the data disks that it held then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::uuids")]
    pub disks: Vec<String>,
    /// Whether that was said of an earlier removal: its disks are the cluster's then, and itself it goes only by another word.
    #[serde(default)]
    pub earlier: bool,
}

/// A VM whose removal was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletingVm {
    /// Its BIOS UUID.
    #[serde(rename = "biosUUID")]
    #[schemars(schema_with = "shapes::uuid")]
    pub bios_uuid: String,
    /// Its identifier in the vCenter. It is empty only in a TenantCluster, for a VM that was gone before the cluster.
    #[schemars(length(max = 253))]
    pub id: String,
}

/// A disk, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskPlace {
    /// Its UUID.
    #[schemars(schema_with = "shapes::uuid")]
    pub uuid: String,
    /// Its path, in the vCenter's words.
    #[schemars(length(max = 1024))]
    pub path: String,
}
