//! The swap that is open on a data disk: part of its identity, and what its ownership goes by.

use contract::swap::{Image, Use};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A swap, from its preparation or the release of the disk until it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// Its identifier.
    pub id: Uuid,
    /// Who may take the disk back.
    pub from: Use,
    /// Which image may take the disk; none for a swap by hand: any that is not older.
    #[serde(default)]
    pub to: Option<Image>,
    /// Who released the disk last, if not `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<Use>,
    /// Whether a person took the disk over from a VM that had not released it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Fingerprint of the key that is to be pinned at the commit, if somebody has named another one than is
    /// pinned: an image that it has signed may take the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}
