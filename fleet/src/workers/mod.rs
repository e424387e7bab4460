//! The workers of a tenant cluster: a pool of VMs that join it, are replaced by a newer image, and leave.
//!
//! 1. [`Pool`] says what is wanted, a [`WorkerRecord`] what was begun for each worker, [`Inventory`] what is there;
//! 2. [`next()`] decides, purely, what comes next: it goes by what is there, not by what was planned once;
//! 3. [`Records`] keeps pool and machines outside the cluster, each change before anything follows from it;
//! 4. [`ReconcileLoop`] looks once, decides, and acts; [`Workers`] does so until nothing is left to do. Both can be interrupted
//!    anywhere.
//!
//! There is no plan and no way back: whoever goes on looks again. What is asked of the VMs' host is
//! [`crate::hypervisor`], of the cluster [`Cluster`], of whoever knows who may change the pool [`crate::lease`].
//! The stamp of a worker's VM names its machine: no other VM is ever changed, whatever it is called.

mod act;
mod action;
mod action_error;
mod api;
mod ca_hash;
mod changes;
mod cluster;
mod copies;
mod decide;
mod discards;
mod goal;
mod guarded_cluster;
mod inventory;
mod look;
mod missing;
mod newer;
mod pool;
mod reason;
mod reconcile_loop;
mod records;
mod removal;
mod run;
mod site;
mod skew;
mod status;
mod token;
mod token_remedy;
mod unreachable_cluster;
mod wait;
mod worker_pool;
mod worker_record;
mod worker_step;

#[cfg(test)]
mod tests;

pub use action::Action;
pub(crate) use action_error::{ActionError, TO_END};
pub use ca_hash::ca_hash;
pub use changes::Changes;
pub use cluster::{Cluster, Evicted, NodeSeen, PodSeen};
pub use decide::{Next, next};
pub use discards::Discards;
pub use goal::Goal;
pub use inventory::{Inventory, Whose, whose};
pub(crate) use newer::Newer;
pub use pool::{Addresses, Image, OvaImage, Pool, Rollout, Template};
pub use reason::{OUTDATED, REASONS, UNHEALTHY};
pub use reconcile_loop::{ReconcileLoop, Round};
pub use records::{Noted, PoolRecord, Records, noted};
pub use removal::Removal;
pub use site::Site;
pub use skew::{cluster_minor, worker_minor};
pub use status::{Says, WorkerStatus, WorkersStatus};
pub use token::Token;
pub use unreachable_cluster::UnreachableCluster;
pub use wait::Wait;
pub use worker_pool::{Notice, Placed, RunOutcome, Workers};
pub use worker_record::{State, WorkerRecord};

use uuid::Uuid;

/// What the VMs of a pool are stamped with, beside those of the cluster's control nodes: an upgrade of these never sees
/// them.
pub fn deployment(cluster: Uuid, pool: &str) -> Uuid {
    Uuid::new_v5(&cluster, format!("workers/{pool}").as_bytes())
}
