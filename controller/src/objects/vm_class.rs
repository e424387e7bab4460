//! `VMClass`: a size of VMs.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rules::unchanged;

/// A size of VMs.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "VMClass",
    plural = "vmclasses",
    doc = "A size of VMs, by a name that clusters and pools use. It cannot change, so that no edit replaces nodes \
           of many clusters at once.",
    derive = "PartialEq",
    category = "kaas",
    shortname = "vmc",
    validation = (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.') && self.metadata.name != 'auto'",
        "the name is no DNS label of at most 63 characters, or is auto, which means a size by the number of nodes"
    ),
    printcolumn(name = "Processors", type_ = "integer", json_path = ".spec.processors"),
    printcolumn(name = "Memory", type_ = "integer", json_path = ".spec.memoryMiB", description = "MiB"),
    printcolumn(name = "Disk", type_ = "integer", json_path = ".spec.dataDiskGiB", description = "GiB"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = class_rules()))]
pub struct VMClassSpec {
    /// Virtual processors.
    #[schemars(range(min = 2, max = 128), example = 4)]
    pub processors: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 2048, max = 4194304), extend("multipleOf" = 4), example = 16384)]
    pub memory_mib: u32,
    /// Data disk in GiB. A control-plane node has one of 32 GiB if this is unset. A worker has one, for local volumes, only if
    /// this is set.
    #[serde(default, rename = "dataDiskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 63488), example = 40)]
    pub data_disk_gib: Option<u32>,
}

fn class_rules() -> Vec<Value> {
    vec![unchanged("a class stays as it is: make another one, and name it in clusters and pools")]
}
