//! The parts that the engines of upgrades, control planes and workers share. Knows nothing of any of them.

mod action_error;
mod guard;
mod reason;

pub(crate) use action_error::{ActionError, TO_END};
pub use guard::{Call, GuardedHypervisor, Scope};
pub(crate) use guard::{Noting, Unconfirmed, guarded, may};
pub use reason::{Code, REASONS, Reason};
pub(crate) use reason::{HYPERVISOR_TRANSIENT, STORE, codes};
