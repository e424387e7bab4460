//! All tables of codes, for `kaas explain` and the reference.

use crate::engine::{self, Code};
use crate::{control_plane, upgrade, workers};

pub struct CodeTable {
    /// Where the codes occur, such as `reason of workers`.
    pub of: &'static str,
    /// The block of the reference that lists the codes. Tables that follow each other may share one.
    pub block: &'static str,
    pub codes: &'static [Code],
}

/// In the order of the reference.
pub const CODE_TABLES: [CodeTable; 5] = [
    CodeTable { of: "refusal of an upgrade", block: "refusals", codes: upgrade::CODES },
    CodeTable { of: "reason of a command that waits", block: "reasons", codes: engine::REASONS },
    CodeTable { of: "reason of an upgrade", block: "reasons", codes: upgrade::REASONS },
    CodeTable { of: "reason of workers", block: "workers", codes: workers::REASONS },
    CodeTable { of: "reason of a control cluster", block: "deployments", codes: control_plane::REASONS },
];
