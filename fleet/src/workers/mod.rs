//! The workers of a tenant cluster: a pool of VMs that join it, are replaced by a newer image, and leave.
//!
//! 1. [`Pool`] says what is wanted, a [`Machine`] what was begun for each worker, [`Seen`] what is there;
//! 2. [`next()`] decides, purely, what comes next: it goes by what is there, not by what was planned once;
//! 3. [`Records`] keeps pool and machines outside the cluster, each change before anything follows from it;
//! 4. [`Rounds`] looks once, decides, and acts; [`Workers`] does so until nothing is left to do. Both can be interrupted
//!    anywhere.
//!
//! There is no plan and no way back: whoever goes on looks again. What is asked of the VMs' host is
//! [`crate::hypervisor`], of the cluster [`Cluster`], of whoever knows who may change the pool [`crate::authority`].
//! The stamp of a worker's VM names its machine: no other VM is ever changed, whatever it is called.

mod act;
mod action;
mod api;
mod away;
mod ca_hash;
mod changes;
mod cluster;
mod copies;
mod crew;
mod decide;
mod discards;
mod guarded_cluster;
mod look;
mod machine;
mod mends;
mod missing;
mod newer;
mod one;
mod pool;
mod reason;
mod records;
mod removal;
mod rounds;
mod run;
mod seen;
mod site;
mod skew;
mod status;
mod token;
mod trouble;
mod wait;
mod wish;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use away::Away;
pub use ca_hash::ca_hash;
pub use changes::Changes;
pub use cluster::{Cluster, Evicted, NodeSeen, PodSeen};
pub use crew::{Arrived, Notice, Placed, Workers};
pub use decide::{Next, next};
pub use discards::Discards;
pub use machine::{Machine, State};
pub(crate) use newer::Newer;
pub use pool::{Addresses, Image, OvaImage, Pool, Rollout, Template};
pub use reason::{OUTDATED, REASONS, UNHEALTHY};
pub use records::{Kept, Noted, Records, noted};
pub use removal::Removal;
pub use rounds::{Round, Rounds};
pub use seen::{Seen, Whose, whose};
pub use site::Site;
pub use skew::{cluster_minor, worker_minor};
pub use status::{Says, WorkerStatus, WorkersStatus};
pub use token::Token;
pub(crate) use trouble::{TO_END, Trouble};
pub use wait::Wait;
pub use wish::Wish;

use uuid::Uuid;

/// What the VMs of a pool are stamped with, beside those of the cluster's control nodes: an upgrade of these never sees
/// them.
pub fn deployment(cluster: Uuid, pool: &str) -> Uuid {
    Uuid::new_v5(&cluster, format!("workers/{pool}").as_bytes())
}
