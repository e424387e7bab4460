//! Creates a cluster's control-plane nodes in an empty place, and removes them.
//!
//! 1. [`DesiredState`] says what is to be created, [`DeploymentRecord`] what was begun, [`Inventory`] what exists;
//! 2. [`next()`] decides, purely, what comes next: from what exists, not from an earlier plan;
//! 3. [`Records`] keeps what was begun outside the cluster, each change before anything follows from it;
//! 4. [`Deploy`] reads, decides and acts until nothing is left to do, and can be interrupted anywhere.
//!
//! A lost node of a formed cluster is replaced in the same rounds. `replacement.rs` begins it, `next.rs` decides, and `replace.rs`
//! acts. `proof.rs` proves that its VM does not run.
//!
//! There is no plan and no rollback: the next command reads again, and a removal removes what it finds. [`crate::hypervisor`] is
//! the interface to the VMs' host, [`Guests`] to the new nodes, [`crate::lease`] to the right to change the deployment. Only VMs
//! that carry the deployment's stamp are ever changed, whatever their names are.

mod act;
mod action;
mod attempts;
mod create_attempts;
mod deployment_record;
mod desired_state;
mod go;
mod goal;
mod guests;
mod inventory;
mod look;
mod moved;
mod newer;
mod next;
mod proof;
mod reason;
mod records;
mod replace;
mod replacement;
mod replacement_record;
mod replica;
mod run;
mod status;
mod unconfirmed_deletions;
mod unfinished;
mod upgraded;
mod wait;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use deployment_record::{AdoptedVm, DeploymentRecord, Lifecycle, Node, OtherDeployment};
pub use desired_state::{DesiredState, WantedNode};
pub use go::{Deploy, HeldDisk, Notice, RunOutcome, UnattachedDisk};
pub use goal::{Goal, MadeOtherwise};
pub use guests::{ByKey, Guests, USER};
pub use inventory::{Inventory, NodeReport};
pub use moved::moved;
pub use next::{Next, next};
pub use proof::{PowerEvidence, PowerProof};
pub use reason::{REASONS, VM_ODD};
pub use records::{Records, authority, begun, ended_with_its_cluster};
pub use replacement_record::{ATTEMPTS, Replacement};
pub use replica::LeftVm;
pub use status::{DeployStatus, NodeStatus, left_in_words};
pub use unfinished::Unfinished;
pub use wait::Wait;
