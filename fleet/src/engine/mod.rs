//! The parts that the engines of upgrades, control planes and workers share. Knows nothing of any of them.

mod guard;

pub use guard::{Call, GuardedHypervisor, Scope};
pub(crate) use guard::{Noting, Unconfirmed, Unless, guarded, may};
