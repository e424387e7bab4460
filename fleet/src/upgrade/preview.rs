//! The dry run of a request to an upgrade: what each node gets, and the remaining steps. It makes the same checks and
//! reads as the request, holds no lease and changes nothing.

use std::collections::BTreeSet;

use anyhow::anyhow;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::context::StepContext;
use super::copies;
use super::deployment::Deployment;
use super::entry::{Direction, Entry, Event, Outcome};
use super::kept_copy::DiskCopy;
use super::offline_nodes::OfflineNodes;
use super::order::Order;
use super::plan::{Action, Options, Plan, Step};
use super::progress::Progress;
use super::request::{Request, Turn};
use super::salvage;
use super::snapshot_name::before_swap;
use super::step_error::StepError;
use crate::cancel::{Cancelled, unless_cancelled};
use crate::lease::{Lease, LeaseState, TakeOver, standing};
use crate::timestamp;

/// The changes that a request to an upgrade would make.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Always true.
    pub dry_run: bool,
    /// The identifier of the upgrade.
    pub id: Uuid,
    /// The command from which the request would take the lease over. It would start nothing more. `None` if the lease is free.
    pub takes_over_from: Option<String>,
    /// The direction of the steps.
    pub direction: Direction,
    /// The one node that the direction is for. `None` for all.
    pub only: Option<String>,
    /// In which order the nodes would go back.
    pub order: Order,
    /// The nodes that a rollback would leave out, because their old VMs are gone.
    pub left_out: Vec<String>,
    /// The end that the upgrade has reached already. There are no steps then.
    pub outcome: Option<Outcome>,
    /// The nodes that the steps are for, in the order of their first step.
    pub nodes: Vec<PreviewedNode>,
    /// Copies of data disks. A commit would remove them. Otherwise they stay.
    pub copies: Vec<DiskCopy>,
    /// For a commit: the place of the etcd snapshot from before the upgrade, which stays. `None` if it is not stored.
    pub snapshot: Option<String>,
    /// The steps, in their order.
    pub steps: Vec<PreviewedStep>,
    #[serde(skip)]
    pub plan: Plan,
}

/// A node, and the change of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedNode {
    pub name: String,
    /// Name of the VM with the old image.
    pub old_vm: String,
    /// Name of the VM with the new image.
    pub new_vm: String,
    pub change: NodeChange,
    /// The state in which an abandoned upgrade would leave the node and its VMs. `None` for other requests.
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeChange {
    /// The new VM replaces the old one, and gets the data disk.
    MoveToNew,
    /// The old VM replaces the new one, and gets the data disk as it is now. The new VM is removed.
    ReturnToOld,
    /// The node runs in its old VM. Its swap is withdrawn, and the new VM is removed.
    WithdrawSwap,
    /// The node runs in its old VM. The new VM is removed.
    RemoveNew,
    /// The swap is made final, and the old VM is removed.
    Commit,
    /// An operator has replaced the node. It stays in its present VM. Only its former VMs may be removed.
    Replaced,
    /// The node and its VMs stay as they are. The rollback and the commit are given up.
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedStep {
    pub action: Action,
    /// Name of the node. `None` for a step of the whole upgrade.
    pub node: Option<String>,
    #[serde(skip)]
    pub step: Step,
}

/// The changes that the end of an upgrade would make of which nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadPreview {
    /// Always true.
    pub dry_run: bool,
    /// The lease whose journal cannot be read.
    pub unread: u64,
    /// Whether an earlier command has ended the upgrade. The notes are its notes then.
    pub abandoned: bool,
    /// The state of the deployment's VMs and nodes, and the swaps that would be withdrawn.
    pub notes: Vec<String>,
}

impl UnreadPreview {
    pub(super) fn new(unread: u64, abandoned: bool, notes: Vec<String>) -> Self {
        Self { dry_run: true, unread, abandoned, notes }
    }
}

impl Deployment<'_> {
    /// The changes that a request to the last upgrade would make.
    ///
    /// # Errors
    /// As [`Deployment::go_on`]. A commit is also refused if a node is not healthy on the new image.
    pub async fn preview(&self, verb: Request, over: TakeOver) -> anyhow::Result<Preview> {
        let (plan, entries) = unless_cancelled(&self.cancelled, self.permitted(None, verb)).await??;
        self.previewed(plan, entries, verb, over).await
    }

    /// The changes that the end of the upgrade `id` where it is would make.
    pub async fn preview_abandon(&self, id: Uuid, over: TakeOver) -> anyhow::Result<Preview> {
        let (nodes, verb) = (OfflineNodes::of_another_cluster(), Request::Abandon);
        let unasked = Deployment { nodes: &nodes, cancelled: self.cancelled.clone(), ..*self };
        let deployment = if self.other_cluster.is_some() { &unasked } else { self };
        let (plan, entries) = match unless_cancelled(&self.cancelled, salvage::read(self.store)).await? {
            Err(error) => (deployment.permitted_by_plan(id, &error.downcast()?).await?, Vec::new()),
            Ok(_) => unless_cancelled(&self.cancelled, deployment.permitted(Some(id), verb)).await??,
        };
        deployment.previewed(plan, entries, verb, over).await
    }

    async fn previewed(
        &self,
        plan: Plan,
        mut entries: Vec<Entry>,
        verb: Request,
        over: TakeOver,
    ) -> anyhow::Result<Preview> {
        let takes_over_from = unless_cancelled(&self.cancelled, self.may_be_taken(over)).await??;
        let hold = Lease::unacquired();
        let context = self.context(&hold, None);
        let before = Progress::of(&plan, &entries);
        let turn = context.turn_of(&plan, &before, verb).await.map_err(failed)?;
        entries.extend(turn.map(|turn| turned(&before, turn)));
        let after = Progress::of(&plan, &entries);
        let left = |step: &Step| after.outcome.is_none() && !after.is_done(*step);
        let steps: Vec<Step> = after.steps(&plan).into_iter().filter(left).collect();
        if steps.iter().any(|step| step.action == Action::Check) {
            // A dry run looks once, and waits for no node.
            let once = Plan { options: Options { gate_seconds: 0, ..plan.options.clone() }, ..plan.clone() };
            context.check(&once, &after).await.map_err(failed)?;
        }
        let snapshot = match after.direction {
            Direction::Commit => {
                let file = before_swap(plan.id);
                unless_cancelled(&self.cancelled, self.snapshots.kept(&file)).await??
            }
            Direction::Forward | Direction::Back | Direction::Abandon => None,
        };
        let name = |index: &usize| plan.nodes[*index].name.clone();
        let step = |step: &Step| PreviewedStep { action: step.action, node: step.node.as_ref().map(name), step: *step };
        Ok(Preview {
            dry_run: true,
            id: plan.id,
            takes_over_from,
            direction: after.direction,
            only: after.only.as_ref().map(name),
            order: after.order.clone(),
            left_out: after.left_out.iter().map(name).collect(),
            outcome: after.outcome,
            nodes: previewed_nodes(&context, &plan, &entries, &steps).await?,
            copies: copies::of_all(&plan, &entries),
            snapshot,
            steps: steps.iter().map(step).collect(),
            plan,
        })
    }

    /// The holder of the lease. Refuses a deployment that another command holds, unless it may be taken over.
    pub(super) async fn may_be_taken(&self, over: TakeOver) -> anyhow::Result<Option<String>> {
        match (standing(self.store).await?, over) {
            (LeaseState::Held(held), TakeOver::FromTheDead) => Err(held.into()),
            (state, _) => Ok(state.holder()),
        }
    }
}

/// The entry of a turn, as if it were in the journal.
fn turned(before: &Progress, Turn { direction, order, gone, reason }: Turn) -> Entry {
    let left_out = match direction {
        Direction::Back => &before.left_out | &gone,
        Direction::Forward | Direction::Commit | Direction::Abandon => BTreeSet::new(),
    };
    let event = Event::DirectionChanged { direction, only: None, order, left_out, reason };
    Entry { at: timestamp::now(), lease: 0, event }
}

/// The nodes of the steps, each once.
async fn previewed_nodes(
    context: &StepContext<'_>,
    plan: &Plan,
    entries: &[Entry],
    steps: &[Step],
) -> Result<Vec<PreviewedNode>, Cancelled> {
    let (progress, mut nodes, mut seen) = (Progress::of(plan, entries), Vec::new(), BTreeSet::new());
    for index in steps.iter().filter_map(|step| step.node) {
        if !seen.insert(index) {
            continue;
        }
        let node = &plan.nodes[index];
        let change = change(&progress, plan, index);
        let note = match change {
            NodeChange::Keep => Some(context.would_leave(plan, entries, index).await?),
            _ => None,
        };
        let (name, old_vm, new_vm) = (node.name.clone(), node.old_name.clone(), node.new_name.clone());
        nodes.push(PreviewedNode { name, old_vm, new_vm, change, note });
    }
    Ok(nodes)
}

fn change(progress: &Progress, plan: &Plan, node: usize) -> NodeChange {
    match progress.direction {
        Direction::Abandon => NodeChange::Keep,
        _ if progress.is_replaced(node) => NodeChange::Replaced,
        Direction::Forward => NodeChange::MoveToNew,
        Direction::Commit => NodeChange::Commit,
        Direction::Back => {
            let back = progress.back_of(plan, node);
            if back.contains(&Action::AttachOld) {
                NodeChange::ReturnToOld
            } else if back.contains(&Action::Cancel) {
                NodeChange::WithdrawSwap
            } else {
                NodeChange::RemoveNew
            }
        }
    }
}

/// The error of a dry run that could not look.
fn failed(trouble: StepError) -> anyhow::Error {
    match trouble {
        StepError::Stop(error) => error,
        StepError::Cancelled => Cancelled.into(),
        StepError::Cannot(obstacle) => anyhow!("{}; nothing was changed", obstacle.reason),
        StepError::JournalUnwritable(reason) => anyhow!("{reason}; nothing was changed"),
    }
}
