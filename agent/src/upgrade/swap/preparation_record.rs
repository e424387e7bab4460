//! The purpose for which a node leaves its work, and its stage. The record is in memory while this VM runs. Therefore a
//! restart of the agent continues the preparation, and a restart of the VM ends it.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use contract::swap::{EvacuationRequest, EvacuationState, Losses, Request, Stage, SwapState, VmImage};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::files;

const SAVED: &str = "/run/kaas/swap.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Purpose {
    /// A VM of another image will take the disk.
    Swap(Request),
    /// This VM will be shut down. The right to take the disk stays as it is.
    Evacuation(EvacuationRequest),
}

impl Purpose {
    pub(super) fn id(&self) -> Uuid {
        match self {
            Self::Swap(request) => request.id,
            Self::Evacuation(request) => request.id,
        }
    }

    /// How long a drain may take, in seconds.
    pub(super) fn drain_seconds(&self) -> u64 {
        match self {
            Self::Swap(request) => request.drain_seconds,
            Self::Evacuation(request) => request.drain_seconds,
        }
    }

    pub(super) fn is_same_request(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Swap(one), Self::Swap(other)) => one.id == other.id && one.to == other.to,
            (Self::Evacuation(one), Self::Evacuation(other)) => one.id == other.id,
            _ => false,
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Swap(request) => write!(f, "the swap {}", request.id),
            Self::Evacuation(request) => write!(f, "the evacuation {}", request.id),
        }
    }
}

/// A node that leaves its work, has left it, or could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PreparationRecord {
    pub(super) purpose: Purpose,
    pub(super) stage: Stage,
    /// Why it failed: in words, and the stable code.
    pub(super) failure: Option<(String, String)>,
    pub(super) losses: Losses,
    pub(super) cancelled: bool,
}

impl PreparationRecord {
    pub(super) fn begun(purpose: Purpose) -> Self {
        Self { purpose, stage: Stage::Judging, failure: None, losses: Losses::default(), cancelled: false }
    }

    /// The swap of this record, from the view of the VM `own`. `None` if it is an evacuation.
    pub(super) fn swap(&self, own: &VmImage) -> Option<SwapState> {
        let Purpose::Swap(request) = &self.purpose else { return None };
        let (error, code) = self.failure.clone().unzip();
        let (stage, losses) = (self.stage, self.losses.clone());
        Some(SwapState { id: request.id, stage, error, code, losses, from: own.clone(), to: Some(request.to.clone()) })
    }

    pub(super) fn evacuation(&self) -> Option<EvacuationState> {
        let Purpose::Evacuation(request) = &self.purpose else { return None };
        let (error, code) = self.failure.clone().unzip();
        Some(EvacuationState { id: request.id, stage: self.stage, error, code, losses: self.losses.clone() })
    }

    pub(super) fn load(root: &Path) -> anyhow::Result<Option<Self>> {
        files::read_record(&files::below(root, SAVED))
    }

    pub(super) fn save(&self, root: &Path) -> anyhow::Result<()> {
        let path = files::below(root, SAVED);
        let text = serde_json::to_vec_pretty(self)?;
        files::write_atomically(&path, &text, 0o600).with_context(|| format!("saving {}", path.display()))
    }

    pub(super) fn forget(root: &Path) -> anyhow::Result<()> {
        files::remove(&files::below(root, SAVED)).map(drop).context("forgetting what the node leaves its work for")
    }
}
