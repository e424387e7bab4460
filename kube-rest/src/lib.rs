//! The part of a Kubernetes API client that is the same for each transport. It sends nothing, and reads only the declared
//! fields of an object.

mod list;
mod status;

pub use list::{Limits, ListReader, Page};
pub use status::{Cause, Status};

use serde::Deserialize;

/// The path of a collection. `version` is `v1`, or a group with its version.
pub fn collection(version: &str, namespace: Option<&str>, plural: &str) -> String {
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    format!("{root}/{version}{within}/{plural}")
}

/// The fields of `metadata` that are small in every object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta {
    pub name: String,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub resource_version: String,
    /// Such as `2026-01-31T12:00:00Z`, which sorts by time.
    #[serde(default)]
    pub creation_timestamp: String,
}

/// Whether a request of this status was rejected: it changed nothing, and changes nothing if it is repeated. Other errors leave
/// that unknown (Kubernetes API conventions, "HTTP Status codes").
pub fn is_rejected(code: u16) -> bool {
    (400..=499).contains(&code) && code != 408
}
