//! The record of an upgrade to another Kubernetes minor version, on the data disk.

use contract::kubernetes_upgrade::UpgradeState;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::{Entry, Records};

/// An upgrade that was begun. It stays on the data disk until its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeRecord {
    /// The other nodes know it by this ID.
    pub id: Uuid,
    /// The former minor version.
    pub from: String,
    /// The requested minor version.
    pub to: String,
    /// How long pods may take to move away, in seconds.
    pub drain_seconds: u64,
    /// The reason if it was given up before anything changed.
    pub error: Option<String>,
    /// The stable code of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Entry for UpgradeRecord {
    const FILE: &'static str = "kubernetes-upgrade.json";
    const WHAT: &'static str = "the upgrade of Kubernetes";
}

impl UpgradeRecord {
    pub fn is_under_way(&self) -> bool {
        self.error.is_none()
    }
}

/// The upgrade that is under way or was given up, if one is.
pub fn state(records: &Records) -> Option<UpgradeState> {
    let begun = records.entry::<UpgradeRecord>().ok()??;
    Some(UpgradeState { to: begun.to, error: begun.error, code: begun.code })
}
