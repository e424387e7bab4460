//! A TenantCluster: `fleet` creates, maintains and removes its control-plane nodes. The reconciler manages its addresses,
//! Machines, kubeconfig and status. It runs one step at a time: [`crate::decisions`] decides the next one, which is run here, and
//! then it looks again. The next leader does the same. Workers belong to NodePools.
//!
//! | Where | Content |
//! |---|---|
//! | `begin.rs` | the steps before the first VM |
//! | `maintain.rs` | control-plane nodes: creation, and looks while the cluster exists |
//! | `adoption` | VMs that are newer than the database, and their adoption |
//! | `operations` | another image, size or minor version |
//! | `leave.rs`, `retained.rs` | deletion, and what it leaves |
//! | `fleet_deploy.rs`, `operations/fleet_upgrade.rs` | runs of `fleet`: creation and removal of control-plane nodes, and upgrades |
//! | `fleet_run.rs` | the ends of such a run, and of one of a pool |
//! | `place.rs`, `secrets.rs`, `own_guests.rs` | sessions on the Provider; keys and kubeconfigs; credentials from control-plane nodes |
//! | `note.rs`, `add_ons.rs` | the status of the cluster and its Machines; its add-ons |

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

/// The limit of steps in one reconcile. Reaching it means a loop without progress.
const STEPS: usize = 600;
/// How often running work checks whether the desired state has changed.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Brings a cluster towards its spec, as far as possible now.
///
/// # Errors
/// A call failed, or [`STEPS`] were not enough.
pub async fn reconcile(cluster: Arc<TenantCluster>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    Reconciler::of(&context).reconcile(&cluster).await
}

#[derive(Clone, Copy)]
pub(super) struct Reconciler<'a> {
    pub(super) objects: &'a dyn Objects,
    pub(super) places: &'a dyn Infrastructure,
    pub(super) term: &'a Term,
    pub(super) clock: &'a Clock,
    /// Whether the controller's build is that of the control cluster's definitions of kinds.
    pub(super) is_marked: bool,
}

/// The pause while the operator has to act.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum StepOutcome {
    /// Look again at once.
    RequeueNow,
    /// Look again after a change, or after this time.
    RequeueAfter(Duration),
    /// Nothing is left.
    Deleted,
}

impl<'a> Reconciler<'a> {
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
    /// Reconciles as far as possible now. `known` may be outdated.
    async fn reconcile(&self, known: &TenantCluster) -> Result<Action, ReconcileError> {
        // How often another claimant got an address first.
        let mut races = 0_u32;
        for _ in 0..STEPS {
            if self.term.is_closing() {
                // The next leader continues.
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
                // Another client wrote the object first: look again.
                Err(trouble) if trouble.is_race() => {
                    let is_late = matches!(trouble, ReconcileError::Objects { failure: Failure::Exists, .. });
                    races = races.saturating_add(u32::from(is_late));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(ReconcileError::Other(anyhow::anyhow!("{STEPS} steps lead to no end for the cluster {}", known.name_any())))
    }

    /// Returns once the spec of an object has changed, or it is being deleted or replaced. Also once the term is closing.
    pub(super) async fn until_superseded<K: Kind>(&self, seen: &K) {
        let wanted = |of: &K| (of.uid(), of.meta().generation, of.meta().deletion_timestamp.is_some());
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = self.term.closing() => return,
            }
            match kinds::find::<K>(self.objects, seen.namespace().as_deref(), &seen.name_any()).await {
                Ok(Some(now)) if wanted(&now) == wanted(seen) => {}
                // A failed read is no reason to end.
                Err(_) => {}
                Ok(_) => return,
            }
        }
    }

    /// The current cluster. `None` if it is gone, or if another one has its name.
    async fn find(&self, known: &TenantCluster) -> Result<Option<TenantCluster>, ReconcileError> {
        let namespace = known.namespace();
        let found = kinds::find::<TenantCluster>(self.objects, namespace.as_deref(), &known.name_any()).await;
        let found = found.attempting("looking for the cluster")?;
        Ok(found.filter(|found| found.metadata.uid == known.metadata.uid))
    }
}
