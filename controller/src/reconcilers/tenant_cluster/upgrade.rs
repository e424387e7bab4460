//! Runs the change that `change.rs` has decided and checked. A swap of images or sizes is `fleet`'s upgrade:
//!
//! 1. [`Round::run_change`] carries the decision out: a request is answered, a state recorded, or a run begins.
//! 2. [`Round::begin_swap`] removes Operations that are over. The store keeps the plan and journal of the new swap as an Operation.
//! 3. [`Round::run_swap`] runs `fleet`, shows the Operation, and removes the operator's request once the journal has its result.
//! 4. [`Round::run_upgrade`] calls `fleet`. The run ends where it can be resumed, when the desired state changes. While changes are
//!    paused it ends at a step at which no node is away. The next leader reads the progress, and `fleet` continues.
//!
//! Kubernetes is upgraded in `kubernetes.rs`, by the same call of `fleet`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context as _;
use contract::minor::Minor;
use contract::swap::Image;
use fleet::control_plane::DeploymentRecord;
use fleet::lease::{Snapshots, TakeOver};
use fleet::nodes::Credentials;
use fleet::upgrade::{
    Asking, Deployment, Direction, GaveUp, Given, KubernetesOptions, Mode, Notice, OnFailure, Options, Renewed,
    Request, RunOutcome, Target,
};
use kube::ResourceExt;
use tokio::sync::watch;
use uuid::Uuid;

use super::fleet_run::{PACE, PAUSE_LIMIT, RunResult};
use super::own_nodes::{OwnNodes, issued};
use super::run_progress::{RunProgress, rests};
use super::{Round, StepOutcome, WAITING};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{Change, Stage, SwapProgress, blocked, is_open_swap, last_swap, outlived, pinned_size};
use crate::objects::{
    self, AUTO, ControlPlaneSize, NodeImage, Operation, OperationKind, OperationReason, TenantCluster,
    TenantClusterReason, UpgradeMode,
};
use crate::reach::kinds::{self, full_name};
use crate::reach::{ClusterStore, Swap};
use crate::records::digits_of;

/// The limit for the upgrade of one node to another minor version of Kubernetes.
const KUBERNETES: Duration = Duration::from_secs(1800);

/// The operator's request to try again.
pub(super) const RESUME: &str = "resume";

/// Only former controllers have worked on a cluster, and their calls have ended.
const OVER: TakeOver = TakeOver::FromAnyone;

#[derive(Clone, Copy)]
pub(super) enum Task<'t> {
    Swap(&'t Target, &'t Options),
    Go(Request, Uuid),
    Raise(&'t KubernetesOptions),
}

pub(super) enum UpgradeResult {
    /// The end of a run of a swap.
    Arrived(RunOutcome),
    /// All control-plane nodes have the minor version.
    Raised,
    /// It was asked to end.
    Cancelled,
    /// A node rejects the request, or gave up. It is not asked again until the operator requests it.
    GaveUp(String),
    /// It cannot be done now, and is tried again.
    Failed(String),
}

/// The parts of `fleet`'s upgrades for one cluster: the clients of its nodes, and the stores of journals and snapshots.
pub(super) struct UpgradeContext<'a> {
    of: Round<'a>,
    /// The record of the control-plane nodes that were made for the cluster.
    pub(super) kept: &'a DeploymentRecord,
    pub(super) nodes: Renewed<'a>,
    store: ClusterStore<'a>,
    snapshots: Box<dyn Snapshots>,
}

impl<'a> UpgradeContext<'a> {
    fn deployment<'d>(
        &'d self,
        watch: &'d (dyn Fn(&Notice<'_>) + Sync),
        cancelled: watch::Receiver<bool>,
    ) -> Deployment<'d> {
        Deployment {
            hypervisor: &*self.of.opened.hypervisor,
            nodes: &self.nodes,
            store: &self.store,
            snapshots: &*self.snapshots,
            what: "a TenantCluster",
            watch,
            pace: PACE,
            pause_limit: PAUSE_LIMIT,
            other_cluster: None,
            cancelled,
        }
    }

    /// Checks whether a swap may begin. Read-only.
    ///
    /// # Errors
    /// Why it may not: [`fleet::upgrade::Refusals`], if it was checked.
    pub(super) async fn plans(&self, target: &Target, options: &Options) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_for(target, options, OVER).await.map(drop)
    }

    /// As `plans`, for an upgrade of Kubernetes.
    pub(super) async fn plans_kubernetes(&self, options: &KubernetesOptions) -> anyhow::Result<()> {
        self.deployment(&|_| (), watch::channel(false).1).plan_kubernetes_over(options, OVER).await.map(drop)
    }

    /// Sets the swap for an upgrade that begins.
    fn beginning(self, swap: Swap) -> Self {
        Self { store: self.store.beginning(swap), ..self }
    }
}

impl Round<'_> {
    /// Carries out a decided change. `swap` is the last one.
    pub(super) async fn run_change(
        &self,
        change: &Change,
        swap: Option<Uuid>,
        upgrade: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        match change {
            Change::Nothing | Change::Blocked(_) | Change::Waits(..) | Change::Judge(..) => {
                Ok(StepOutcome::RequeueAfter(WAITING))
            }
            Change::Show(name) => {
                if let Some(operation) = self.operation(name).await? {
                    self.show_operation(&operation).await?;
                }
                Ok(StepOutcome::RequeueNow)
            }
            Change::Answer(name, refused) => {
                if let Some(words) = refused {
                    let operation = self.operation(name).await?;
                    let raises = operation.filter(|it| it.spec.kind == OperationKind::KubernetesUpgrade);
                    let said = match raises.as_ref().and_then(blocked) {
                        // A blocked upgrade is not resumed by itself, and no other condition says so.
                        Some(why) => (OperationReason::Blocked, format!("{why} ({words})")),
                        None => (OperationReason::Rejected, words.clone()),
                    };
                    self.note_operation(name, &[said], |_| ()).await?;
                }
                self.remove_any_request(name).await?;
                Ok(StepOutcome::RequeueNow)
            }
            Change::Pin(resolved, of) => self.pin(resolved, of.as_deref()).await,
            Change::Swap(image, again, size) => self.begin_swap(image, *size, again.as_deref(), upgrade).await,
            Change::Go(name, verb) => {
                let Some(swap) = swap else { return Ok(StepOutcome::RequeueNow) };
                self.run_swap(Some(name), Task::Go(*verb, swap), upgrade).await
            }
            Change::Raise(to, again) => self.upgrade_kubernetes(*to, again.is_some(), upgrade).await,
            Change::Abandon(name) => {
                let said = [
                    (OperationReason::Ended, "abandoned".to_owned()),
                    (OperationReason::Abandoned, "the operator has asked for it".to_owned()),
                ];
                let outcome = "abandoned".to_owned();
                self.note_operation(name, &said, |status| status.outcome = Some(outcome.clone())).await?;
                self.remove_any_request(name).await?;
                Ok(StepOutcome::RequeueNow)
            }
        }
    }

    /// Begins a swap. Only plans it if the cluster is paused.
    async fn begin_swap(
        &self,
        image: &NodeImage,
        size: ControlPlaneSize,
        again: Option<&str>,
        upgrade: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        let cluster = self.cluster;
        let Some(target) = target(image) else { return Ok(StepOutcome::RequeueAfter(WAITING)) };
        // Operations of a controller that ended before it began them: nothing followed from them.
        let is_begun = |it: &Operation| it.status.as_ref().is_some_and(|status| !status.entries.is_empty());
        let all = self.operations(cluster).await?;
        for left in all.iter().filter(|it| it.spec.kind == OperationKind::ImageSwap && !is_begun(it)) {
            kinds::delete(self.objects, left).await.attempting("removing an Operation that was never begun")?;
        }
        for ended in outlived(&all) {
            kinds::delete(self.objects, ended).await.attempting("removing an Operation that has ended long ago")?;
        }
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let upgrade = upgrade.beginning(Swap {
            sizes: (pinned_size(&pinned), Some(size)),
            class: Some(cluster.spec.control_plane.vm_class.clone()).filter(|class| class != AUTO),
            from_image: pinned.image.unwrap_or_default(),
            to_image: image.name_any(),
            generation: cluster.metadata.generation.unwrap_or(1),
        });
        self.run_swap(again, Task::Swap(&target, &swap_options(cluster, Some(size))), upgrade).await
    }

    /// Continues a swap. `asked_of` is the Operation with the operator's request, if any.
    async fn run_swap(
        &self,
        asked_of: Option<&str>,
        task: Task<'_>,
        upgrade: UpgradeContext<'_>,
    ) -> Result<StepOutcome, ReconcileError> {
        let cluster = self.cluster;
        // This request is removed if it was made. A different one that has come meanwhile is handled next.
        let word = match task {
            Task::Go(verb, _) => word_of(verb),
            Task::Swap(..) | Task::Raise(_) => RESUME,
        };
        let operations = self.operations(cluster).await?;
        let before = last_swap(&operations).map(ResourceExt::name_any);
        let had = asked_of.map(|name| length(&operations, name));
        let done = self.run_upgrade(asked_of, word, task, &upgrade).await?;
        let operations = self.operations(cluster).await?;
        // A swap that did not begin has no Operation: the last one is a former swap.
        let is_its = |last: &&Operation| matches!(task, Task::Go(..)) || before.as_ref() != Some(&last.name_any());
        let last = last_swap(&operations).filter(is_its);
        if let Some(last) = last {
            self.show_operation(last).await?;
            let name = last.name_any();
            self.note(cluster, &[], |status| status.operation = Some(name.clone())).await?;
        }
        let has_arrived = matches!(&done, UpgradeResult::Arrived(arrived) if *arrived != RunOutcome::Cancelled);
        let has_noted = |name: &str| match task {
            Task::Go(verb, _) => {
                let has_grown = had < Some(length(&operations, name));
                operations.iter().any(|it| it.name_any() == name && is_noted(it, verb, has_arrived, has_grown))
            }
            Task::Swap(..) | Task::Raise(_) => last.is_some(),
        };
        // A request without an entry in the journal is handled again.
        if let Some(name) = asked_of.filter(|name| has_noted(name)) {
            self.remove_request(name, word).await?;
        }
        Ok(match done {
            UpgradeResult::Arrived(RunOutcome::Paused(_)) => StepOutcome::RequeueAfter(WAITING),
            UpgradeResult::Failed(words) | UpgradeResult::GaveUp(words) => {
                log::warn!("{}: {words}", full_name(cluster));
                match last.filter(is_open_swap) {
                    Some(last) => {
                        let said = [(OperationReason::Waiting, words)];
                        self.note_operation(&last.name_any(), &said, |_| ()).await?;
                    }
                    // No Operation can have the message.
                    None => self.note(cluster, &[(TenantClusterReason::Changing, words)], |_| ()).await?,
                }
                StepOutcome::RequeueAfter(WAITING)
            }
            UpgradeResult::Arrived(_) | UpgradeResult::Raised | UpgradeResult::Cancelled => StepOutcome::RequeueNow,
        })
    }

    /// Runs `fleet` for the operator's request `word` on an Operation. The run ends with the term: the next leader continues from
    /// the stored journal.
    pub(super) async fn run_upgrade(
        &self,
        asked_of: Option<&str>,
        word: &str,
        task: Task<'_>,
        upgrade: &UpgradeContext<'_>,
    ) -> Result<UpgradeResult, ReconcileError> {
        // A new swap has no Operation yet. The request on the former one is being carried out.
        let (under_way, done_already) = match task {
            Task::Swap(..) => (None, None),
            Task::Go(..) | Task::Raise(_) => (asked_of, Some(word)),
        };
        let ((end, cancelled), doing) = (watch::channel(false), RunProgress::default());
        doing.is_to_rest.store(self.pause_reason(self.cluster).await?.is_some(), Ordering::SeqCst);
        let told = |notice: &Notice<'_>| {
            doing.told(notice);
            if doing.is_to_rest.load(Ordering::SeqCst) && rests(notice) {
                end.send_replace(true);
            }
        };
        let deployment = upgrade.deployment(&told, cancelled);
        let going = Box::pin(async {
            let (arrived, _) = match task {
                Task::Swap(target, options) => deployment.apply_to(target, options, OVER).await?,
                Task::Go(Request::Abandon, id) => deployment.abandon(id, OVER).await?,
                Task::Go(verb, _) => deployment.go_on(verb, None, OVER).await?,
                Task::Raise(options) => {
                    deployment.upgrade_kubernetes(options, OVER).await?;
                    return Ok(UpgradeResult::Raised);
                }
            };
            anyhow::Ok(UpgradeResult::Arrived(arrived))
        });
        let otherwise = Box::pin(async {
            tokio::select! {
                () = self.until_superseded(self.cluster) => {}
                () = self.until_new_request(under_way, done_already) => {}
            }
            doing.settles().await;
        });
        let beside = Box::pin(async {
            tokio::join!(self.pause_when_due(&doing), self.report_progress(asked_of.map(|name| (name, word)), &doing));
        });
        let (gone, _) = self.run_until_superseded(going, &end, otherwise, beside).await?;
        self.note_snapshot(asked_of, &doing).await?;
        Ok(match RunResult::of(gone)? {
            RunResult::Arrived(done) => done,
            RunResult::Cancelled => UpgradeResult::Cancelled,
            RunResult::Failed(error) if error.is::<GaveUp>() => UpgradeResult::GaveUp(format!("{error:#}")),
            RunResult::Failed(error) => UpgradeResult::Failed(format!("{error:#}")),
        })
    }

    pub(super) async fn upgrade_context<'o>(
        &'o self,
        kept: &'o DeploymentRecord,
    ) -> Result<UpgradeContext<'o>, ReconcileError> {
        let cluster = self.cluster;
        let first = match self.kubeconfig(cluster).await? {
            Some(kubeconfig) => self.given(&kubeconfig, "the Secret of the kubeconfig").ok(),
            None => None,
        };
        let renew = move || -> Asking<'o> {
            Box::pin(async move {
                let kubeconfig = issued(self.opened, self.guests, kept).await?;
                self.given(&kubeconfig, "a control-plane node")
            })
        };
        Ok(UpgradeContext {
            of: *self,
            kept,
            nodes: Renewed::new(first, None, renew),
            store: self.store(cluster),
            snapshots: self.places.snapshots(cluster),
        })
    }

    fn given(&self, kubeconfig: &str, whence: &str) -> anyhow::Result<Given> {
        let ends = Credentials::parse(kubeconfig)?.ends().context("its certificate does not say when it ends")?;
        let nodes = Arc::new(OwnNodes::new(self.places.nodes(kubeconfig)?, self.cluster));
        Ok(Given { nodes, ends, whence: whence.to_owned() })
    }
}

/// The request that this verb answers. A request to resume a planned swap is also answered by the swap that replaces it.
fn word_of(verb: Request) -> &'static str {
    match verb {
        Request::Resume | Request::Withdraw => RESUME,
        Request::Rollback | Request::RollbackAtOnce => "rollback",
        Request::Commit => "commit",
        Request::Abandon => "abandon",
    }
}

/// The number of entries in the journal of an Operation.
fn length(operations: &[Operation], name: &str) -> usize {
    let named = operations.iter().find(|operation| operation.name_any() == name);
    named.and_then(|operation| operation.status.as_ref()).map_or(0, |status| status.entries.len())
}

/// Whether the journal has the request for a swap, so that it need not be repeated. `has_arrived` is whether the run came to its
/// own end, `has_grown` whether the journal has new entries.
fn is_noted(operation: &Operation, verb: Request, has_arrived: bool, has_grown: bool) -> bool {
    let Ok(Some(swapping)) = SwapProgress::of(operation) else { return false };
    let goes = match verb {
        // A node that was rolled back stays so if the journal could not be written.
        Request::Resume => has_arrived && (has_grown || !matches!(swapping.stage, Stage::NodeIsBack(_))),
        Request::Rollback | Request::RollbackAtOnce => swapping.direction == Direction::Back && swapping.is_of_all,
        Request::Commit => swapping.direction == Direction::Commit,
        Request::Abandon => swapping.direction == Direction::Abandon,
        // The operator cannot request this: a request on the plan is for the swap that replaces it.
        Request::Withdraw => return false,
    };
    // A swap that is over answers no request.
    goes || !swapping.is_open()
}

/// An image as the target of a swap. `None` if a part of it is unknown.
pub(super) fn target(image: &NodeImage) -> Option<Target> {
    let status = image.status.as_ref()?;
    Some(Target {
        ova: Default::default(),
        digest: digits_of(&image.spec.digest)?,
        name: status.appliance.clone()?,
        image: Image { version: status.version.clone()?, build: status.build.clone()? },
        upgrades_from: status.upgrades_from.as_deref().map(str::parse).transpose().ok()?,
        etcd: status.etcd.as_deref().map(str::parse).transpose().ok()?,
        kubernetes: status.kubernetes.clone(),
        signer: image.spec.publisher.clone(),
    })
}

/// The options of a swap. A new VM is created on the datastore of the former one, so its data disk does not move. Without a size
/// it has the former one.
pub(super) fn swap_options(cluster: &TenantCluster, size: Option<ControlPlaneSize>) -> Options {
    let upgrade = &cluster.spec.upgrade;
    Options {
        mode: match upgrade.mode {
            UpgradeMode::Rolling => Mode::Rolling,
            UpgradeMode::AllAtOnce => Mode::AllAtOnce,
        },
        gate_seconds: upgrade.gate_seconds.into(),
        drain_seconds: upgrade.drain_seconds.into(),
        on_failure: match upgrade.on_failure {
            objects::OnFailure::Node => OnFailure::Node,
            objects::OnFailure::All => OnFailure::All,
        },
        downgrade: false,
        publisher: None,
        described_publisher: None,
        placement: Default::default(),
        size: size.map(Into::into),
        copy_disks: false,
    }
}

/// The options of an upgrade to a minor version.
pub(super) fn kubernetes_options(cluster: &TenantCluster, to: Minor) -> KubernetesOptions {
    let drain_seconds = cluster.spec.upgrade.drain_seconds.into();
    KubernetesOptions { to: Some(to.to_string()), drain_seconds, limit: KUBERNETES }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decisions::fixture;
    use crate::records::fixture::plan;

    /// A swap whose first node was rolled back.
    fn of_node_that_is_back() -> Operation {
        let back = json!({
            "event": "direction-changed", "direction": "back", "only": 0, "code": "upgrade.asked", "reason": "it is ill",
        });
        fixture::swap(plan(), &[back])
    }

    /// The store may be unavailable when the direction is to be changed, and the run only says that it waits.
    #[test]
    fn a_retry_is_answered_after_its_journal_entry() {
        let operation = of_node_that_is_back();
        let all = [operation.clone()];
        assert_eq!((length(&all, "shop-1"), length(&all, "shop-2")), (2, 0));
        assert!(matches!(SwapProgress::of(&operation).unwrap().unwrap().stage, Stage::NodeIsBack(_)));
        for (has_arrived, has_grown) in [(false, false), (false, true), (true, false), (true, true)] {
            // Grown and back: it was tried, and is back once more.
            let noted = is_noted(&operation, Request::Resume, has_arrived, has_grown);
            assert_eq!(noted, has_arrived && has_grown, "{has_arrived} {has_grown}");
        }
    }
}
