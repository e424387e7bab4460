//! How far a long operation has come. Knows nothing of terminals.

/// How far a long operation has come, in bytes of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes dealt with: never falls, never exceeds `total`.
    pub done: u64,
    /// Bytes there are in all; the same in each report of one operation.
    pub total: u64,
}
