//! The VMs that the last upgrade of a deployment has noted, for who removes the deployment's VMs: those that it made or has begun
//! to make, and those that an operator was shown in its plan. A stamp alone proves nothing.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::entry::{Entry, Event};
use super::plan::Plan;
use super::salvage::{self, Damaged};
use crate::authority::Store;

/// The BIOS UUIDs that the last upgrade in the store has noted; none if there is none. Of one whose journal is damaged they are
/// those of its plan, and fewer are known.
///
/// # Errors
/// When the store cannot be read.
pub async fn noted_vms(store: &dyn Store) -> anyhow::Result<BTreeSet<Uuid>> {
    match salvage::read(store).await {
        Ok(entries) => Ok(entries.iter().flatten().flat_map(of_entry).collect()),
        Err(error) => match error.downcast::<Damaged>() {
            Ok(damaged) => Ok(damaged.plan.iter().flat_map(|plan| of_plan(plan)).collect()),
            Err(error) => Err(error),
        },
    }
}

fn of_entry(entry: &Entry) -> Vec<Uuid> {
    match &entry.event {
        Event::Planned { plan } => of_plan(plan).collect(),
        Event::Begun { vm, .. } | Event::Done { vm, .. } => vm.iter().copied().collect(),
        _ => Vec::new(),
    }
}

fn of_plan(plan: &Plan) -> impl Iterator<Item = Uuid> {
    plan.nodes.iter().map(|node| node.old)
}
