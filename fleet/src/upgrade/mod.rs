//! Image-swap upgrades, driven from outside the VMs:
//!
//! 1. [`Target::read`] verifies the OVA, [`Inventory::take`] looks at the cluster and its VMs.
//! 2. [`plan()`] decides, purely, or refuses with all reasons.
//! 3. [`Journal`] keeps the plan and each step's begin and end, [`Progress`] says what comes next.
//! 4. [`Run::go`] takes the steps, forward, back or towards the commit, and can be interrupted anywhere. Why it waits,
//!    pauses or turns is a [`Reason`] with a stable code.
//!
//! [`Deployment`] has the verbs, and [`Preview`] is the result of a dry run. [`Deployment::upgrade_kubernetes`] takes the
//! nodes to the next Kubernetes minor version afterwards. The caller words each [`Notice`] for users.
//!
//! Requests to the VMs' host are in [`crate::hypervisor`], those to the nodes and their cluster in [`Nodes`].
//! [`crate::lease`] says who may change the deployment.

mod abandon_unread;
mod abandoned_unread;
mod act;
mod adopt;
mod certificates;
mod cluster_seen;
mod context;
mod copies;
mod decide;
mod deployment;
mod entry;
mod guarded_nodes;
mod hold_view;
mod inventory;
mod journal;
mod judge;
mod kept_copy;
mod kubernetes;
mod kubernetes_plan;
mod last_upgrade;
mod moved;
mod nodes;
mod notice;
mod offline_nodes;
mod open;
mod order;
mod place;
mod plan;
mod preview;
mod progress;
mod reason;
mod refusal;
mod renewed;
mod request;
mod run;
mod salvage;
mod snapshot_name;
mod status;
mod step_deadline;
mod step_error;
mod target;
mod way;

#[cfg(test)]
pub(crate) mod tests;

pub use abandoned_unread::AbandonedUnread;
pub use adopt::Adoption;
pub use certificates::NotRenewed;
pub use cluster_seen::{ClusterSeen, Earlier, SeenNode};
pub use decide::plan;
pub use deployment::{Deployment, OtherCluster};
pub use entry::{Direction, Entry, Event, Outcome};
pub use inventory::Inventory;
pub use journal::Journal;
pub use kept_copy::{DiskCopy, KeptCopy};
pub use kubernetes::{GaveUp, KubernetesOptions};
pub use kubernetes_plan::{KubernetesNode, KubernetesPlan, plan_kubernetes};
pub use last_upgrade::{LastUpgrade, UpgradeSummary};
pub use nodes::{Asked, NodeRequest, Nodes};
pub use notice::Notice;
pub use offline_nodes::OfflineNodes;
pub use open::OpenUpgrade;
pub use order::{IllNodes, Order};
pub(crate) use plan::base_of;
pub use plan::{Action, DescribedPublisher, Evidence, Mode, OnFailure, Options, Plan, PlannedNode, Step};
pub use preview::{NodeChange, Preview, PreviewedNode, PreviewedStep, UnreadPreview};
pub use progress::{Next, Progress};
pub use reason::REASONS;
pub use refusal::{CODES, Refusal, Refusals};
pub use renewed::{Asking, Given, Renewed};
pub use request::Request;
pub use run::{Run, RunOutcome};
pub use salvage::Damaged;
pub use snapshot_name::{before_kubernetes, before_swap};
pub use status::UpgradeStatus;
pub use step_deadline::StepDeadline;
pub use target::Target;

pub use crate::engine::Reason;
