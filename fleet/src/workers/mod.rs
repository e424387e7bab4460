//! The workers of a tenant cluster: a pool of VMs that join it, are replaced by a newer image, and leave.
//!
//! 1. [`Pool`] says what is wanted, a [`WorkerRecord`] what was begun for each worker, [`Inventory`] what exists;
//! 2. [`next()`] decides, purely, what comes next: from what exists, not from an earlier plan;
//! 3. [`Records`] keeps pool and workers outside the cluster, each change before anything follows from it;
//! 4. [`ReconcileLoop`] reads once, decides, and acts; [`Workers`] repeats that until nothing is left to do. Both can be
//!    interrupted anywhere.
//!
//! There is no plan and no rollback: the next command reads again. [`crate::hypervisor`] is the interface to the VMs' host,
//! [`Cluster`] to the cluster, [`crate::lease`] to the right to change the pool. The stamp of a worker's VM names its worker: no
//! other VM is ever changed, whatever its name is.

mod act;
mod action;
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
pub use ca_hash::ca_hash;
pub use changes::Changes;
pub use cluster::{Cluster, ClusterChange, Evicted, NodeSeen, PodSeen};
pub use decide::{Next, next};
pub use discards::Discards;
pub use goal::Goal;
pub use inventory::{Inventory, Whose, whose};
pub(crate) use newer::Newer;
pub use pool::{Addresses, Image, OvaImage, Pool, Rollout, Template};
pub use reason::{OUTDATED, REASONS, UNHEALTHY};
pub use reconcile_loop::{ReconcileLoop, Round};
pub use records::{PoolRecord, Record, Records, noted};
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

/// The deployment in the stamps of a pool's VMs. It differs from that of the cluster's control-plane nodes: an upgrade of these
/// never sees the workers.
pub fn deployment(cluster: Uuid, pool: &str) -> Uuid {
    Uuid::new_v5(&cluster, format!("workers/{pool}").as_bytes())
}
