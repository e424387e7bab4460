//! The lease decides which command may change a deployment: one at a time. Leases have rising numbers and are stored
//! outside the cluster that is changed. Each lease has its own copy of the journal, so that a command that was taken
//! over from cannot write into its successor's.
//!
//! Creating a numbered directory fails if it exists: that is the lock. The higher number fences: before each change a
//! command asks whether the next number exists. It also checks the clock: a change begins within [`WINDOW`] of asking,
//! or not at all.
//!
//! A command that takes over from one that may be alive creates the next number and waits for [`REACH`]. After that,
//! the former command begins nothing more. Its requests have arrived or failed, and can be waited for. After a command
//! that has ended without a release, only its last request is waited for: [`MARGIN`].
//!
//! A command that stops before that marks its directory as withdrawn: it has begun nothing, and says nothing about the
//! lease before it. A lease of this very process has ended when its value is dropped: a dropped task has released
//! nothing.
//!
//! A holder whose state is unknown counts as alive. Examples: a process of another machine, an unknown form of holder,
//! a directory whose maker was killed before it wrote its name. The store judges a holder ([`Store::has_ended`]).

mod attempt;
mod directory_store;
mod eviction;
mod held;
mod holder;
mod latest_snapshot;
mod lease_state;
mod no_store;
mod space_quota;
mod store;

pub use directory_store::{DirectoryStore, clear_spools};
pub(crate) use held::LeaseUnconfirmed;
pub use held::{Lease, MARGIN, REACH, TakeOver, WINDOW};
pub use holder::{Holder, Process};
pub use latest_snapshot::LatestSnapshot;
pub use lease_state::{Held, LeaseState, Lost, standing};
pub(crate) use lease_state::{is_of_hold, sorted};
pub use space_quota::{Budget, Promised, SpaceQuota};
pub(crate) use store::name_of;
pub use store::{AllocatedIds, Snapshots, Store, number_of};
