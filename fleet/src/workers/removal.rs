//! What becomes of a worker's VM once the worker has left.

use serde::{Deserialize, Serialize};

/// What a person has said of one worker, each time anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Removal {
    /// It is destroyed. Data disks that it holds are detached before.
    #[default]
    Destroy,
    /// It is given up: off, on no network, with all its disks, and nobody's. What was not made to the end is destroyed all the same.
    Keep,
}
