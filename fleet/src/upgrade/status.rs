//! The state of an upgrade, from its journal.

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::copies;
use super::entry::{Direction, Entry, Outcome, plan_of};
use super::kept_copy::DiskCopy;
use super::order::Order;
use super::plan::{Plan, Step};
use super::progress::{Next, Progress};
use crate::engine::Reason;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UpgradeStatus {
    /// The identifier of its plan.
    pub id: Uuid,
    /// The way that it goes.
    pub direction: Direction,
    /// The one node that the direction is for, by its name. `None` for all.
    pub only: Option<String>,
    /// In which order the nodes go back.
    pub order: Order,
    /// The nodes that a rollback leaves out, by their names: nothing is left that could go back.
    pub left_out: Vec<String>,
    /// Why it turned, if it did.
    pub reason: Option<Reason>,
    /// Its end, if it is reached.
    pub outcome: Option<Outcome>,
    /// Whether one node is back, and the operator decides how to go on.
    pub waits_for_a_person: bool,
    /// Why it cannot go on now, if it cannot.
    pub paused: Option<Reason>,
    /// How many steps of the way are done.
    pub done: usize,
    pub total: usize,
    pub next: Option<Step>,
    /// The present holder of the deployment.
    pub held_by: Option<String>,
    /// The copies of data disks next to them, for the operator: nothing here attaches one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<DiskCopy>,
    /// The plan that is carried out.
    pub plan: Plan,
    #[schemars(with = "Vec<serde_json::Map<String, serde_json::Value>>")]
    pub entries: Vec<Entry>,
}

impl UpgradeStatus {
    /// The status by these entries. `held_by` is the present holder of the deployment.
    pub(super) fn of(entries: Vec<Entry>, held_by: Option<String>) -> anyhow::Result<Self> {
        let plan = plan_of(&entries).context("a journal without a plan")?.clone();
        let progress = Progress::of(&plan, &entries);
        let (next, (done, total)) = (progress.next(&plan), progress.count(&plan));
        let step = match next {
            Next::Take { step, .. } => Some(step),
            Next::End(_) | Next::Ended(_) | Next::NodeIsBack(_) => None,
        };
        Ok(Self {
            id: plan.id,
            direction: progress.direction,
            only: progress.only.map(|node| plan.nodes[node].name.clone()),
            order: progress.order.clone(),
            left_out: progress.left_out.iter().map(|node| plan.nodes[*node].name.clone()).collect(),
            reason: progress.reason,
            outcome: progress.outcome,
            waits_for_a_person: matches!(next, Next::NodeIsBack(_)),
            paused: progress.paused,
            done,
            total,
            next: step,
            held_by,
            copies: copies::of_all(&plan, &entries),
            plan,
            entries,
        })
    }
}
