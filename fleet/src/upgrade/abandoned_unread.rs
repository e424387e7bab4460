//! The record that replaces the journal of an upgrade of which nothing could be read, not even its plan.

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::Reason;
use crate::journals::beginning;
use crate::journals::upgrade::FILE;
use crate::lease::Lease;

/// The end of an upgrade of which nothing could be read. It replaces a lease's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbandonedUnread {
    /// When: seconds of Unix time.
    pub at: u64,
    /// The lease under which it was written.
    pub lease: u64,
    /// The lease whose journal could not be read.
    pub unread: u64,
    /// The unreadable part, and that the end was asked for.
    #[serde(flatten)]
    pub reason: Reason,
    /// The state of the deployment's VMs and nodes, and what was withdrawn.
    pub notes: Vec<String>,
}

impl AbandonedUnread {
    /// The record in a lease's journal. `None` if that is another journal.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Keeps it in place of the lease's journal.
    pub(super) async fn write(&self, hold: &Lease<'_>) -> anyhow::Result<()> {
        let whole = beginning(&(serde_json::to_string(self)? + "\n"))?;
        hold.confirm().await?;
        hold.store().write(hold.number(), FILE, &whole).await.context("noting that the upgrade is abandoned")
    }
}
