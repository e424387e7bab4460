//! Who may change a deployment: one command at a time, by holds with rising numbers that are kept outside the cluster
//! that is changed. Each hold has its own copy of the journal, so that a command that was overtaken cannot write into
//! its successor's.
//!
//! Making a numbered directory fails when it is there: that is the lock. The higher number fences: a command asks
//! before each change whether there is the next one. It also asks the clock: a change is made within [`WINDOW`] of
//! asking, or not at all. Whoever takes over from a command that may be alive makes the next number and waits for
//! [`REACH`]: the other begins nothing more then, and what it had begun has arrived or failed, and can be waited for. Of
//! one that has ended without giving the deployment back only the last request is waited for: [`MARGIN`].
//!
//! A command that does not get as far as that marks what it has made as withdrawn: it has begun nothing, and says nothing
//! of the one before it. A hold of this very process has ended when its value is gone: a task that was dropped has
//! given nothing back.
//!
//! Who cannot be judged counts as alive: a process of another machine, a form of holder that this version does not
//! know, a directory whose maker was killed before he had said his name. How a holder is judged is the store's
//! ([`Store::has_ended`]).

mod attempt;
mod directory_store;
mod eviction;
mod held;
mod holder;
mod latest_snapshot;
mod lease_state;
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
