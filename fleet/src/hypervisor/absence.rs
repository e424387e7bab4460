//! What proves that a VM is gone which no look shows. That the inventory has none is no proof: a host that was removed from it keeps its VMs
//! running.

use serde::{Deserialize, Serialize};

/// Where a VM of a node was when it was seen last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: String,
    /// The file of its settings.
    pub settings: String,
    /// The hypervisor's identifier of the datastore of that file, which stays if the datastore is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore: Option<String>,
}

/// What was noted of a VM that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSeen<'a> {
    /// It was never powered on.
    NeverOn,
    /// The file of its settings when it was seen last, and the identifier of its datastore if that was noted.
    At(&'a str, Option<&'a str>),
    /// Where its settings were was not noted.
    Unnoted,
}

impl<'a> LastSeen<'a> {
    /// Where the settings were of a VM that may have been on, if that is noted, and the identifier of their datastore.
    pub fn noted(settings: Option<&'a str>, datastore: Option<&'a str>) -> Self {
        settings.map_or(Self::Unnoted, |settings| Self::At(settings, datastore))
    }
}

/// Whether a VM is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No VM of the inventory has its BIOS UUID, and its settings are not where they were, on a datastore that is reached.
    Gone,
    /// Everything else: it may run. Why, in words.
    Unknown(String),
}
