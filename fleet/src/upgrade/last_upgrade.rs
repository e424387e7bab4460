//! The records of the last upgrade of a deployment, for the removal of the deployment's VMs. Its VMs are those that it
//! created or has begun to create, and those that an operator was shown in its plan. The latter include VMs of nodes
//! that it leaves alone. The records also say where the data disks are that it has taken from VMs, and their copies.
//! Its plan carries on the records of upgrades before it: their journals may be gone. A stamp alone proves nothing.
//! Unreadable records never count as missing.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::copies;
use super::entry::{Direction, Entry, Event, Outcome, disk_of, plan_of};
use super::kept_copy::DiskCopy;
use super::plan::{Action, Plan};
use super::progress::{Next, Progress};
use super::salvage::{self, Damaged, Last};
use crate::hypervisor::{DiskRef, LastSeen, Place};
use crate::lease::Store;

/// The state of the last upgrade in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastUpgrade {
    /// There was no upgrade.
    Nothing,
    /// All of it is understood.
    Known(UpgradeSummary),
    /// Not all of it is understood: its VMs, and the disks that it has moved, may be unknown.
    Unknown {
        /// The damage. `None` once it was abandoned unread, which has ended it.
        damage: Option<Damaged>,
        /// The records of its plan, if a copy of that is left.
        plan: Option<UpgradeSummary>,
    },
}

/// The records of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeSummary {
    pub id: Uuid,
    pub deployment: Uuid,
    /// Whether it has not come to an end after which nothing follows.
    pub is_open: bool,
    /// Whether it is open and nodes may be in their VMs for as long as it is. All nodes run the new image, and it waits
    /// for the commit or a rollback. Or one node is back on the image before, and an operator decides. Or it is
    /// planned, and nothing was begun of any node.
    pub is_at_rest: bool,
    /// BIOS UUIDs of the deployment's VMs, as far as this upgrade and those before it know them.
    pub vms: BTreeSet<Uuid>,
    /// The data disks of their nodes, each where it was when it was last taken from a VM, or when the plan was made.
    /// Kept also after an end: a node that was left out or replaced may have no VM that holds its disk.
    pub disks: Vec<DiskRef>,
    /// UUIDs of the data disks that its nodes' VMs held when it was planned. `disks` has those of earlier upgrades too.
    pub planned: BTreeSet<Uuid>,
    /// BIOS UUIDs of the VMs that it made and never powered on. VMs of earlier upgrades are not among them.
    pub never_on: BTreeSet<Uuid>,
    /// The last known place of the settings of its nodes' VMs, with the node of each, by BIOS UUID. Only from the notes
    /// of this upgrade.
    pub places: BTreeMap<Uuid, Place>,
    /// Those of the VMs that the upgrade has destroyed, except for nodes that an operator has replaced.
    pub removed: BTreeSet<Uuid>,
    /// Names of the nodes whose data disks its plan has noted.
    pub nodes: BTreeSet<String>,
    /// The copies of data disks that it, and those before it, have made and not removed: they are only named.
    pub copies: Vec<DiskCopy>,
}

impl LastUpgrade {
    pub async fn find(store: &dyn Store) -> anyhow::Result<Self> {
        match salvage::last(store).await {
            Ok(Last::Nothing) => Ok(Self::Nothing),
            Ok(Last::Unread(_)) => Ok(Self::Unknown { damage: None, plan: None }),
            Ok(Last::Entries(entries)) => Ok(match plan_of(&entries) {
                Some(plan) => Self::Known(UpgradeSummary::of(plan, &entries)),
                None => Self::Unknown { damage: None, plan: None },
            }),
            Err(error) => {
                let damage: Damaged = error.downcast()?;
                let plan = damage.plan.as_deref().map(|plan| UpgradeSummary::of(plan, &[]));
                Ok(Self::Unknown { damage: Some(damage), plan })
            }
        }
    }

    /// The known records.
    pub fn noted(&self) -> Option<&UpgradeSummary> {
        match self {
            Self::Nothing => None,
            Self::Known(noted) => Some(noted),
            Self::Unknown { plan, .. } => plan.as_ref(),
        }
    }
}

impl UpgradeSummary {
    pub(super) fn of(plan: &Plan, entries: &[Entry]) -> Self {
        let made = entries.iter().filter_map(|entry| match &entry.event {
            Event::Begun { vm, .. } | Event::Done { vm, .. } => *vm,
            _ => None,
        });
        let nodes = plan.nodes.iter().enumerate();
        let moved = nodes.map(|(index, node)| disk_of(entries, index).unwrap_or(&node.disk).clone());
        let progress = Progress::of(plan, entries);
        let outcome = progress.outcome;
        let (mut places, mut never_on) = (BTreeMap::new(), BTreeSet::new());
        for (index, node) in plan.nodes.iter().enumerate() {
            let new = progress.noted(index).map(|new| (new, progress.new_seen(index)));
            for (vm, seen) in [Some((node.old, progress.old_seen(index))), new].into_iter().flatten() {
                if seen == LastSeen::NeverOn {
                    never_on.insert(vm);
                }
                if let LastSeen::At(settings, datastore) = seen {
                    let (node, settings, datastore) =
                        (node.name.clone(), settings.to_owned(), datastore.map(str::to_owned));
                    places.insert(vm, Place { node, settings, datastore, data_disk: None });
                }
            }
        }
        Self {
            id: plan.id,
            deployment: plan.deployment,
            is_open: matches!(outcome, None | Some(Outcome::Upgraded)),
            is_at_rest: is_at_rest(plan, &progress),
            vms: plan.nodes.iter().map(|node| node.old).chain(made).chain(plan.other_vms.iter().copied()).collect(),
            disks: moved.chain(plan.other_disks.iter().cloned()).collect(),
            planned: plan.nodes.iter().map(|node| node.disk.uuid).collect(),
            never_on,
            places,
            removed: removed(plan, entries),
            nodes: noted_nodes(plan),
            copies: copies::of_all(plan, entries).into_iter().chain(plan.other_copies.iter().cloned()).collect(),
        }
    }
}

/// The VMs whose destruction is done.
fn removed(plan: &Plan, entries: &[Entry]) -> BTreeSet<Uuid> {
    let (mut made, mut removed) = (BTreeMap::new(), BTreeSet::new());
    for entry in entries {
        match &entry.event {
            Event::Begun { step, vm: Some(vm), .. } | Event::Done { step, vm: Some(vm), .. } => {
                made.insert(step.node, *vm);
            }
            // If an operator has replaced the node, its VM may have been missing from the inventory.
            Event::Done { step, replaced: false, .. } => match step.action {
                Action::DestroyOld => removed.extend(step.node.and_then(|node| Some(plan.nodes.get(node)?.old))),
                Action::DestroyNew => removed.extend(made.get(&step.node)),
                _ => {}
            },
            _ => {}
        }
    }
    removed
}

/// The names of the nodes whose data disks a plan has noted: those that it swaps, and all members. A plan of an earlier
/// version has noted nothing of the others.
fn noted_nodes(plan: &Plan) -> BTreeSet<String> {
    let has_all = plan.nodes.len() + plan.other_disks.len() >= plan.members.len();
    let members = plan.members.iter().filter(|_| has_all).map(|member| &member.name);
    plan.nodes.iter().map(|node| &node.name).chain(members).cloned().collect()
}

/// Whether no node is between two VMs, and none has to be before the operator continues.
fn is_at_rest(plan: &Plan, progress: &Progress) -> bool {
    match progress.next(plan) {
        Next::Ended(Outcome::Upgraded) | Next::NodeIsBack(_) => true,
        Next::Take { .. } => progress.direction == Direction::Forward && progress.is_untouched(),
        Next::End(_) | Next::Ended(_) => false,
    }
}
