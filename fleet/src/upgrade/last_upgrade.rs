//! What the last upgrade of a deployment has noted, for who removes the deployment's VMs: those that it made or has begun to make,
//! and those that an operator was shown in its plan; and where the data disks are that it has taken from theirs. A stamp alone
//! proves nothing.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::entry::{Entry, Event, Outcome, disk_of, plan_of};
use super::plan::Plan;
use super::progress::Progress;
use super::salvage::{self, Damaged};
use crate::authority::Store;
use crate::hypervisor::DiskRef;

/// The last upgrade in a store. Of one whose journal is damaged only the plan counts, and less is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUpgrade {
    /// Its name.
    pub id: Uuid,
    /// The deployment that it is of.
    pub deployment: Uuid,
    /// Whether it has not come to an end after which nothing follows.
    pub is_open: bool,
    /// BIOS UUIDs of the VMs that it has noted.
    pub vms: BTreeSet<Uuid>,
    /// The nodes' data disks, each where it was when it was last taken from a VM, or when the plan was made; none once all nodes
    /// are where they stay: their VMs hold them.
    pub disks: Vec<DiskRef>,
}

impl LastUpgrade {
    /// Finds it; none if there is none, or it was abandoned unread, or nothing is left of it that is understood.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn find(store: &dyn Store) -> anyhow::Result<Option<Self>> {
        match salvage::read(store).await {
            Ok(entries) => Ok(entries.and_then(|entries| Some(Self::of(plan_of(&entries)?, &entries)))),
            Err(error) => match error.downcast::<Damaged>() {
                Ok(damaged) => Ok(damaged.plan.map(|plan| Self::of(&plan, &[]))),
                Err(error) => Err(error),
            },
        }
    }

    fn of(plan: &Plan, entries: &[Entry]) -> Self {
        let outcome = Progress::of(plan, entries).outcome;
        let is_open = matches!(outcome, None | Some(Outcome::Upgraded));
        let made = entries.iter().filter_map(|entry| match &entry.event {
            Event::Begun { vm, .. } | Event::Done { vm, .. } => *vm,
            _ => None,
        });
        let nodes = plan.nodes.iter().enumerate();
        let disks = nodes.map(|(index, node)| disk_of(entries, index).unwrap_or(&node.disk).clone());
        Self {
            id: plan.id,
            deployment: plan.deployment,
            is_open,
            vms: plan.nodes.iter().map(|node| node.old).chain(made).collect(),
            disks: if is_open || outcome == Some(Outcome::Abandoned) { disks.collect() } else { Vec::new() },
        }
    }
}
