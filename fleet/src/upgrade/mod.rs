//! Image-swap upgrades, driven from outside the VMs:
//!
//! 1. [`Target::read`] verifies the OVA, [`Inventory::take`] looks at what is there;
//! 2. [`plan()`] decides, purely, or refuses with all reasons;
//! 3. [`Journal`] keeps the plan and what was begun and done, [`next::next`] says what comes next;
//! 4. [`Run::go`] takes the steps, forward, back or towards the commit, and can be interrupted anywhere.
//!
//! [`Site::upgrade_kubernetes`] takes the nodes to the next Kubernetes minor afterwards.
//!
//! What is asked of the VMs' host is [`Hypervisor`], of the nodes and their cluster [`Nodes`].

mod act;
mod command;
mod decide;
pub mod describe;
mod entry;
mod hypervisor;
mod inventory;
mod journal;
mod judge;
mod kubernetes;
mod lease;
mod lock;
mod next;
mod nodes;
mod plan;
mod refusal;
mod run;
mod target;

#[cfg(test)]
mod tests;

pub use command::{Command, UpgradeStatus};
pub use decide::plan;
pub use entry::{Direction, Entry, Event, Outcome, StepIndex};
pub use hypervisor::{Hypervisor, PowerState, ReplacementVm, Vm};
pub use inventory::{Earlier, Inventory, SeenNode};
pub use journal::Journal;
pub use kubernetes::{KubernetesNode, KubernetesOptions, KubernetesPlan, plan_kubernetes};
pub use lease::Lease;
pub use next::{Next, next, steps};
pub use nodes::{Asked, Nodes};
pub use plan::{Action, Evidence, Mode, Options, Plan, PlannedNode, Step};
pub use refusal::{CODES, Refusal, Refusals};
pub use run::{Done, Failure, Moment, Run};
pub use target::Target;
