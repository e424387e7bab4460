//! The record of a replacement that has not ended: a part of the deployment's record.

use std::time::{Duration, SystemTime};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hypervisor::Stamp;
use crate::schema;

/// How many new VMs one replacement makes.
pub const ATTEMPTS: u32 = 3;

/// How long a new VM may take to join. Its code is valid for an hour, and may be used in the last minute.
const JOINING: Duration = Duration::from_secs(70 * 60);

/// The replacement of a lost control-plane node that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Name of the node.
    #[schemars(schema_with = "schema::label")]
    pub node: String,
    /// Why the lost VM does not run.
    #[schemars(schema_with = "schema::sentence")]
    pub evidence: String,
    /// Number of the new VM, from 1. Three are made at most.
    #[schemars(range(min = 1, max = 3))]
    pub attempt: u32,
    /// BIOS UUID for the new VM, recorded before the VM is created.
    #[serde(rename = "allocatedUUID")]
    #[schemars(schema_with = "schema::uuid")]
    pub allocated_uuid: Uuid,
    /// When another node admitted the new VM, in seconds of Unix time. Recorded once the VM is complete: an incomplete VM has a
    /// code that is void.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub admitted: Option<u64>,
    /// Whether the new VM was ever powered on.
    #[serde(default)]
    pub started: bool,
    /// UUID of the new VM's data disk, recorded before it is first powered on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uuid")]
    pub data_disk: Option<Uuid>,
}

impl Replacement {
    pub(super) fn begin(node: &str, evidence: String, attempt: u32, drawn: Uuid) -> Self {
        Self {
            node: node.to_owned(),
            evidence,
            attempt,
            allocated_uuid: drawn,
            admitted: None,
            started: false,
            data_disk: None,
        }
    }

    /// Name of the new VM: another one than the lost VM's, which the inventory may still have.
    pub(super) fn vm_name(&self) -> String {
        let drawn = self.allocated_uuid.simple().to_string();
        format!("{}-{}", self.node, drawn.get(..7).unwrap_or_default())
    }

    /// The stamp of the new VM. It differs from that of the lost one.
    pub(super) fn stamp(&self, deployment: Uuid) -> Stamp {
        Stamp { deployment, node: self.node.clone(), swap: Some(self.allocated_uuid) }
    }

    /// Until when the new VM may join, in seconds of Unix time. `None` before it is complete.
    pub(super) fn ends(&self) -> Option<u64> {
        Some(self.admitted?.saturating_add(JOINING.as_secs()))
    }

    /// Until when the new VM may join, in words. `None` before it is complete.
    pub fn ends_at(&self) -> Option<String> {
        let ends = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.ends()?))?;
        Some(humantime::format_rfc3339_seconds(ends).to_string())
    }
}
