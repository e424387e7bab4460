//! The entries of a journal: the plan, then each step's begin and end, one JSON object a line.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::kept_copy::KeptCopy;
use super::order::{IllNodes, Order};
use super::plan::{Plan, Step};
use crate::engine::Reason;
use crate::hypervisor::DiskRef;

/// Which way an upgrade goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To the new image.
    Forward,
    /// Back to the old one.
    Back,
    /// To the commit, after which no rollback is possible.
    Commit,
    /// To an end where it is.
    Abandon,
}

/// How an upgrade, or a way of it, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All nodes run the new image; the old VMs are kept for a rollback.
    Upgraded,
    /// All nodes run what they ran before.
    RolledBack,
    /// The new image is final.
    Committed,
    /// It was ended where it was; VMs of both images may be left.
    Abandoned,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The plan was decided. Only the first entry is one.
    Planned {
        /// The steps, and the inventory that decided them.
        plan: Box<Plan>,
    },
    /// A step is being taken.
    Begun {
        /// The step that is noted before anything of it is done.
        #[serde(flatten)]
        step: Step,
        /// The disk that it takes away from its VM: once detached, only the path leads to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<DiskRef>,
        /// BIOS UUID for the VM that the step creates. It identifies an incomplete VM: anyone who may change a VM's
        /// settings may write a stamp. `None` for other steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<Uuid>,
        /// The path of the copy of a data disk that it makes. It identifies an incomplete copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<String>,
        /// The hypervisor's identifier of the datastore of the disk that it takes away, or of the settings: the name
        /// may change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        datastore: Option<String>,
        /// The settings file of the VM that it stops or powers on. If the file still exists, a VM that is not shown may
        /// run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<String>,
    },
    Done {
        /// The step that is not taken again.
        #[serde(flatten)]
        step: Step,
        note: String,
        /// BIOS UUID of the VM that it made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<Uuid>,
        /// Whether it found that an operator has replaced the node: nothing more is done with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        replaced: bool,
        /// The copies of the node's data disk that exist after it: the one that it made, or those that it could not
        /// remove.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies: Vec<KeptCopy>,
    },
    /// A step cannot be taken now; it is tried again.
    Paused {
        /// The step that stays the next one.
        #[serde(flatten)]
        step: Step,
        #[serde(flatten)]
        reason: Reason,
        /// For how many seconds the step was looked at until then, all commands together.
        #[serde(default, skip_serializing_if = "is_zero")]
        looked: u64,
    },
    /// From here on it goes in another direction.
    DirectionChanged {
        direction: Direction,
        /// The one node that it is for, by its place in the plan. `None` for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<usize>,
        /// The nodes that a rollback leaves out, by their place in the plan: nothing is left that could go back.
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        left_out: BTreeSet<usize>,
        /// In which order nodes go back.
        #[serde(default, skip_serializing_if = "Order::is_usual")]
        order: Order,
        /// Why it changed.
        #[serde(flatten)]
        reason: Reason,
    },
    /// The last step in this direction is done.
    Ended { outcome: Outcome },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(seconds: &u64) -> bool {
    *seconds == 0
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When: seconds of Unix time.
    pub at: u64,
    /// The lease under which it was written.
    pub lease: u64,
    #[serde(flatten)]
    pub event: Event,
}

/// Reads a journal's text.
pub fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let read = |(number, line): (usize, &str)| -> anyhow::Result<Entry> {
        serde_json::from_str(line).with_context(|| {
            format!("line {} is not understood; if another version wrote it, end that upgrade with it", number + 1)
        })
    };
    let entries: Vec<Entry> = text.lines().enumerate().map(read).collect::<Result<_, _>>()?;
    let plans = entries.iter().filter(|entry| matches!(entry.event, Event::Planned { .. })).count();
    let Some(plan) = plan_of(&entries).filter(|_| plans == 1) else { bail!("it does not begin with the one plan") };
    for entry in &entries {
        let named = match &entry.event {
            Event::Begun { step, .. } | Event::Done { step, .. } | Event::Paused { step, .. } => step.node,
            Event::DirectionChanged { only, order, left_out, .. } => {
                let ill = order.ill().into_iter().flat_map(IllNodes::nodes);
                ill.chain(*only).chain(left_out.last().copied()).max()
            }
            Event::Planned { .. } | Event::Ended { .. } => None,
        };
        if named.is_some_and(|node| node >= plan.nodes.len()) {
            bail!("it names a node that is not in its plan");
        }
    }
    let planned = plan.steps.iter().filter_map(|step| step.node).max();
    if planned.is_some_and(|node| node >= plan.nodes.len()) {
        bail!("its plan names a node that it does not have");
    }
    Ok(entries)
}

/// Where a node's disk was when it was last taken from a VM. `None` if it was not.
pub fn disk_of(entries: &[Entry], node: usize) -> Option<&DiskRef> {
    entries.iter().rev().find_map(|entry| match &entry.event {
        Event::Begun { step, disk: Some(disk), .. } if step.node == Some(node) => Some(disk),
        _ => None,
    })
}

/// The datastore of a node's disk then, by the hypervisor's identifier. `None` if that is not noted.
pub fn datastore_of(entries: &[Entry], node: usize) -> Option<&str> {
    entries.iter().rev().find_map(|entry| match &entry.event {
        Event::Begun { step, disk: Some(_), datastore, .. } if step.node == Some(node) => Some(datastore.as_deref()),
        _ => None,
    })?
}

/// The plan that a journal begins with.
pub fn plan_of(entries: &[Entry]) -> Option<&Plan> {
    match entries.first() {
        Some(Entry { event: Event::Planned { plan }, .. }) => Some(plan),
        _ => None,
    }
}
