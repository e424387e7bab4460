//! What is remembered of a swap while this VM runs: in memory, so that a restart of the
//! agent goes on with it and a restart of the VM ends it.

use std::path::Path;

use anyhow::Context as _;
use contract::swap::{Request, Stage};
use serde::{Deserialize, Serialize};

use crate::host::files;

const SAVED: &str = "/run/kaas/swap.json";

/// A swap that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) request: Request,
    pub(super) stage: Stage,
    pub(super) error: Option<String>,
    /// It is to be withdrawn.
    #[serde(default)]
    pub(super) cancelled: bool,
}

impl Saved {
    /// What is remembered, if anything is.
    pub(super) fn load(root: &Path) -> anyhow::Result<Option<Self>> {
        files::read_record(&files::below(root, SAVED))
    }

    pub(super) fn save(&self, root: &Path) -> anyhow::Result<()> {
        let path = files::below(root, SAVED);
        let text = serde_json::to_vec_pretty(self)?;
        files::write_atomically(&path, &text, 0o600).with_context(|| format!("saving {}", path.display()))
    }

    /// Remembers nothing any more.
    pub(super) fn forget(root: &Path) -> anyhow::Result<()> {
        files::remove(&files::below(root, SAVED)).map(drop).context("forgetting the swap")
    }
}
