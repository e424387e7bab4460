//! A TenantCluster: its control nodes made, kept and removed by `fleet`, its addresses, its Machines, its kubeconfig, and what it says of
//! itself. One thing at a time: what comes next is decided by [`crate::decisions`], done here, and looked at again. Whoever takes over
//! goes on by looking. Its workers are its NodePools' own.
//!
//! | Where | What is done there |
//! |---|---|
//! | `begin.rs` | all that comes before the first VM |
//! | `maintain.rs` | control nodes formed, and looked at for as long as the cluster is there |
//! | `adoption` | VMs that are newer than the database told, and adopted |
//! | `operations` | another image, size or minor |
//! | `leave.rs`, `left.rs` | the cluster removed, and what is left of it said |
//! | `fleet_deploy.rs`, `operations/fleet_upgrade.rs` | runs of `fleet`: one makes and removes control nodes, the other one upgrades them |
//! | `heeding.rs` | what else may end such a run, and one of a pool |
//! | `place.rs`, `secrets.rs`, `own_guests.rs` | the Provider opened; keys and kubeconfigs; control nodes asked for credentials |
//! | `note.rs`, `add_ons.rs` | what is written of the cluster and its Machines; what its add-ons say |

mod add_ons;
mod adoption;
mod begin;
mod fleet_deploy;
mod fleet_run;
mod leave;
mod maintain;
mod note;
mod operations;
mod own_guests;
mod place;
mod retained;
mod secrets;
#[cfg(test)]
pub(crate) mod tests;

pub(super) use self::begin::node_settings;
pub(super) use self::maintain::nodes;
pub(super) use self::place::deployment;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{is_begun, is_leaving};
use crate::objects::TenantCluster;
use crate::reach::kinds::Kind;
use crate::reach::{Failure, Infrastructure, Objects, kinds};
use crate::term::{Clock, Term};

/// So many things are done for a cluster in one go at most: what goes on in a circle is seen by it.
const STEPS: usize = 600;
/// So often what is under way looks whether a person wants something else by now.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Brings a cluster to where it is to be, as far as that can be done now.
///
/// # Errors
/// Why it could not be gone on with.
pub async fn reconcile(cluster: Arc<TenantCluster>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    Reconciler::of(&context).reconcile(&cluster).await
}

#[derive(Clone, Copy)]
pub(super) struct Reconciler<'a> {
    pub(super) objects: &'a dyn Objects,
    pub(super) places: &'a dyn Infrastructure,
    pub(super) term: &'a Term,
    pub(super) clock: &'a Clock,
    /// Whether the controller is of the build that the control cluster's kinds are of.
    pub(super) is_marked: bool,
}

/// How long a cluster is left alone after a look by which a person has to see to something.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum StepOutcome {
    /// It is looked at again at once.
    RequeueNow,
    /// It is left alone until something changes, or for so long.
    RequeueAfter(Duration),
    /// There is nothing of it any more.
    Deleted,
}

impl<'a> Reconciler<'a> {
    /// With what all reconcilers share.
    pub(super) fn of(context: &'a Context) -> Self {
        Self {
            objects: &*context.objects,
            places: &context.providers,
            term: &context.term,
            clock: &context.clock,
            is_marked: context.is_marked,
        }
    }
}

impl Reconciler<'_> {
    /// As far as it can be done now. `known` is the cluster as it was seen last: it may be otherwise by now.
    async fn reconcile(&self, known: &TenantCluster) -> Result<Action, ReconcileError> {
        // How often somebody else had an address first.
        let mut races = 0_u32;
        for _ in 0..STEPS {
            if self.term.is_closing() {
                // Whoever leads next goes on.
                return Ok(Action::await_change());
            }
            let Some(cluster) = self.find(known).await? else { return Ok(Action::await_change()) };
            let after = if is_leaving(&cluster) {
                self.leave(&cluster).await
            } else if is_begun(&cluster) {
                self.maintain(&cluster).await
            } else {
                self.begin(&cluster, races).await
            };
            match after {
                Ok(StepOutcome::RequeueNow) => {}
                Ok(StepOutcome::RequeueAfter(time)) => return Ok(Action::requeue(time)),
                Ok(StepOutcome::Deleted) => return Ok(Action::await_change()),
                // Somebody else has written what was to be written: it is looked at again.
                Err(trouble) if trouble.is_race() => {
                    let is_late = matches!(trouble, ReconcileError::Objects { failure: Failure::Exists, .. });
                    races = races.saturating_add(u32::from(is_late));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(ReconcileError::Other(anyhow::anyhow!("{STEPS} steps lead to no end for the cluster {}", known.name_any())))
    }

    /// Returns once a person wants something else of an object than was seen: its spec is another one, or it is to go. Or once all that
    /// lasts is to end.
    pub(super) async fn until_superseded<K: Kind>(&self, seen: &K) {
        let wanted = |of: &K| (of.uid(), of.meta().generation, of.meta().deletion_timestamp.is_some());
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = self.term.closing() => return,
            }
            match kinds::find::<K>(self.objects, seen.namespace().as_deref(), &seen.name_any()).await {
                Ok(Some(now)) if wanted(&now) == wanted(seen) => {}
                // What is not known is no reason to end.
                Err(_) => {}
                Ok(_) => return,
            }
        }
    }

    /// The cluster as it is now; none if it is gone, or another one has its name.
    async fn find(&self, known: &TenantCluster) -> Result<Option<TenantCluster>, ReconcileError> {
        let namespace = known.namespace();
        let found = kinds::find::<TenantCluster>(self.objects, namespace.as_deref(), &known.name_any()).await;
        let found = found.attempting("looking for the cluster")?;
        Ok(found.filter(|found| found.metadata.uid == known.metadata.uid))
    }
}
