//! Whether the last upgrade of a deployment is still open, for commands that change its VMs outside an upgrade.

use uuid::Uuid;

use super::entry::{Outcome, plan_of};
use super::progress::Progress;
use super::salvage;
use crate::hypervisor::Stamp;
use crate::lease::Store;

/// An upgrade that has not come to a final end: VMs of both images exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenUpgrade {
    /// The names of its swaps: new VMs are stamped with them.
    swaps: Vec<Uuid>,
    /// Whether all nodes run the new image, and it only waits for the commit or a rollback.
    pub upgraded: bool,
}

impl OpenUpgrade {
    /// The open upgrade of the journals in the store. `None` if it has ended, or no upgrade exists.
    ///
    /// # Errors
    /// When the journal cannot be read: the future of the VMs is unknown then.
    pub async fn find(store: &dyn Store) -> anyhow::Result<Option<Self>> {
        let Some(entries) = salvage::read(store).await? else { return Ok(None) };
        let Some(plan) = plan_of(&entries) else { return Ok(None) };
        let outcome = Progress::of(plan, &entries).outcome;
        let open = matches!(outcome, None | Some(Outcome::Upgraded));
        let swaps = plan.nodes.iter().map(|node| node.swap).collect();
        Ok(open.then(|| Self { swaps, upgraded: outcome.is_some() }))
    }

    /// Whether a VM was made by it.
    pub fn made(&self, stamp: &Stamp) -> bool {
        stamp.swap.is_some_and(|swap| self.swaps.contains(&swap))
    }
}
