//! The progress of a long operation. The module knows nothing of terminals.

/// The progress of a long operation, in bytes of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Processed bytes: never falls, never exceeds `total`.
    pub done: u64,
    /// All bytes; the same in each report of one operation.
    pub total: u64,
}
