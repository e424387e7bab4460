//! The proof that a VM no longer exists. A missing entry in the inventory is no proof: a host that was removed from the
//! inventory keeps its VMs running.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DiskRef;
use crate::schema;

/// Where a VM of a node was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Name of the node.
    #[schemars(schema_with = "schema::word")]
    pub node: String,
    /// Path of the file with the VM's settings.
    #[schemars(schema_with = "schema::word")]
    pub settings: String,
    /// The hypervisor's identifier of the datastore of that file. It stays if the datastore is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub datastore: Option<String>,
    /// The VM's data disk when it last held exactly one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<DiskRef>,
}

/// The notes about a VM that may be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSeen<'a> {
    /// It was never powered on.
    NeverOn,
    /// The settings file when the VM was last seen, and the identifier of its datastore if that was noted.
    At(&'a str, Option<&'a str>),
    /// The place of its settings file was not noted.
    Unnoted,
}

impl<'a> LastSeen<'a> {
    /// For a VM that may have been powered on: the noted settings file and the identifier of its datastore.
    pub fn noted(settings: Option<&'a str>, datastore: Option<&'a str>) -> Self {
        settings.map_or(Self::Unnoted, |settings| Self::At(settings, datastore))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No VM in the inventory has its BIOS UUID, and its settings file is missing from a datastore that is reachable.
    Gone,
    /// Everything else, with the reason: the VM may be running.
    Unknown(String),
}
