//! The end of a worker's VM once the worker has left.

use serde::{Deserialize, Serialize};

/// The operator's choice for one worker, given each time again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Removal {
    /// It is destroyed. Its data disks are detached before.
    #[default]
    Destroy,
    /// It is disowned: off, on no network, with all its disks, and no longer managed. An incomplete VM is destroyed anyway.
    Keep,
}
