//! A TenantCluster: `fleet` creates, maintains and removes its control-plane nodes. The reconciler manages its addresses,
//! Machines, kubeconfig and status. Workers belong to NodePools. It runs one step at a time: [`crate::decisions`] decides the next
//! one, which is run here, and then it looks again. The next leader does the same.
//!
//! | File | Content |
//! |---|---|
//! | `begin.rs` | the steps before the first VM |
//! | `maintain.rs` | control-plane nodes: creation, and looks while the cluster exists |
//! | `change.rs` | the next change to another image, size or minor version, and the checks before it |
//! | `upgrade.rs` | runs the change: image swaps |
//! | `kubernetes.rs`, `size.rs` | upgrades of Kubernetes, and what nodes run; the size of VMs |
//! | `settings.rs` | changes of settings of control-plane nodes |
//! | `operation.rs`, `run_progress.rs` | the status of Operations; the activity of a run |
//! | `replace.rs` | the replacement of a lost control-plane node |
//! | `drift.rs`, `adopt.rs` | VMs that are newer than the database, and their adoption |
//! | `leave.rs` | deletion, and what it leaves |
//! | `report.rs` | the status of the cluster and its Machines |
//! | `fleet_run.rs` | runs of `fleet`: how they end; creation and removal of control-plane nodes |
//! | `place.rs`, `keys.rs`, `secrets.rs`, `own_nodes.rs` | sessions on the Provider; keys; kubeconfigs for users; calls to control-plane nodes |

mod adopt;
mod begin;
mod change;
mod drift;
mod fleet_run;
mod keys;
mod kubernetes;
mod leave;
mod maintain;
mod operation;
mod own_nodes;
mod place;
mod replace;
mod report;
mod run_progress;
mod secrets;
mod settings;
mod size;
#[cfg(test)]
pub(crate) mod tests;
mod upgrade;

pub(super) use self::begin::node_settings;
pub(super) use self::own_nodes::nodes;
pub(super) use self::place::{deployment, ensure_own_record};

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fleet::control_plane::{DeploymentRecord, Guests};
use kube::ResourceExt;
use kube::runtime::controller::Action;

use self::own_nodes::ClusterAccess;
use self::place::ProviderSession;
use crate::context::{Attempt, Context, ReconcileError};
use crate::decisions::{is_begun, is_leaving};
use crate::objects::{Machine, TenantCluster};
use crate::reach::kinds::Kind;
use crate::reach::{Failure, Infrastructure, Objects, kinds};
use crate::term::{Clock, Term};

/// The limit of steps in one reconcile. Reaching it means a loop without progress.
const STEPS: usize = 600;
/// How often running work checks whether the desired state has changed.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The limit of calls to all control-plane nodes of a cluster.
const JUDGING: Duration = Duration::from_secs(300);
/// The pause after a run that waits.
const WAITING: Duration = Duration::from_secs(15);
/// The pause while the operator has to act.
const STUCK: Duration = Duration::from_secs(60);

/// Brings a cluster towards its spec, as far as possible now.
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

/// A cluster with an open session on its place: the input of all work on its control-plane nodes.
#[derive(Clone, Copy)]
struct Round<'a> {
    reconciler: Reconciler<'a>,
    cluster: &'a TenantCluster,
    /// The Machines of control-plane nodes.
    machines: &'a [Machine],
    opened: &'a ProviderSession,
    guests: &'a dyn Guests,
    access: &'a ClusterAccess,
}

#[derive(Debug)]
enum StepOutcome {
    /// Look again at once.
    RequeueNow,
    /// Look again after a change, or after this time.
    RequeueAfter(Duration),
    /// Nothing is left.
    Deleted,
}

impl<'a> Deref for Round<'a> {
    type Target = Reconciler<'a>;

    fn deref(&self) -> &Reconciler<'a> {
        &self.reconciler
    }
}

impl<'a> Round<'a> {
    /// The stored record of control-plane nodes.
    fn record(&self) -> anyhow::Result<&'a DeploymentRecord> {
        let deployment = self.cluster.deployment().context("nothing of the cluster was begun")?;
        Ok(&deployment.record)
    }
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
    /// Reconciles as far as possible now. `known` may be outdated. Each step reads the cluster again:
    ///
    /// 1. A cluster that is being deleted leaves ([`Self::leave`]).
    /// 2. A cluster with control-plane nodes is maintained ([`Self::maintain`]).
    /// 3. Any other cluster begins ([`Self::begin`]).
    /// 4. The outcome of the step says whether another one follows at once.
    async fn reconcile(&self, known: &TenantCluster) -> Result<Action, ReconcileError> {
        // How often another claimant got an address first.
        let mut races = 0_u32;
        for _ in 0..STEPS {
            if self.term.is_closing() {
                // The next leader continues.
                return Ok(Action::await_change());
            }
            let Some(cluster) = self.find(known).await? else { return Ok(Action::await_change()) };
            if let Err(error) = ensure_own_record(&cluster) {
                self.report_unreadable(&cluster, &error.to_string()).await;
                return Err(error.into());
            }
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
                Err(trouble) => {
                    if let Some(words) = trouble.unreadable(cluster.namespace().as_deref()) {
                        self.report_unreadable(&cluster, &words).await;
                    }
                    return Err(trouble);
                }
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
