//! What the data disk keeps of an upgrade to another Kubernetes minor.

use contract::kubernetes_upgrade::UpgradeState;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::records::{Entry, Records};

/// An upgrade that was begun, as the data disk keeps it until its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeRecord {
    /// What the other nodes know it by.
    pub id: Uuid,
    /// The minor before.
    pub from: String,
    /// The minor that the node is taken to.
    pub to: String,
    /// How long pods may take to move away, in seconds.
    pub drain_seconds: u64,
    /// Why it was given up before anything changed, if it was.
    pub error: Option<String>,
    /// The stable code of why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Entry for UpgradeRecord {
    const FILE: &'static str = "kubernetes-upgrade.json";
    const WHAT: &'static str = "the upgrade of Kubernetes";
}

impl UpgradeRecord {
    /// Whether it is still to be done.
    pub fn is_under_way(&self) -> bool {
        self.error.is_none()
    }
}

/// The upgrade that is under way or was given up, if one is.
pub fn state(records: &Records) -> Option<UpgradeState> {
    let begun = records.entry::<UpgradeRecord>().ok()??;
    Some(UpgradeState { to: begun.to, error: begun.error, code: begun.code })
}
