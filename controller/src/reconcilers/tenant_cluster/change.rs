//! Decides the next change of control-plane nodes to another image, size or minor version, and checks whether it may begin:
//!
//! 1. [`Round::decide_change`] reads Operations, images, the size and the Provider's limits. The decision is pure:
//!    [`ObservedCluster::next`], from the cluster's spec, its stored state, its Operations and the observed sizes of VMs.
//! 2. [`Round::record_health`] counts how long all nodes are healthy before a commit, and decides again.
//! 3. [`Round::check_change`] replaces the change by its obstacle, from the place (a template in each zone) and from `fleet`'s checks of
//!    nodes and VMs. Read-only.
//!
//! `upgrade.rs` runs the change. The state is read again each time: nothing is in memory.

use std::collections::BTreeSet;

use fleet::control_plane::DeployStatus;
use fleet::upgrade::{Refusals, Request, Target};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::settings::{PendingSettings, is_open_configure};
use super::upgrade::{UpgradeContext, kubernetes_options, swap_options, target};
use super::{JUDGING, Reconciler, Round};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    Access, Change, ClusterCondition, ObservedCluster, Obstacle, PauseReason, Stage, SwapProgress, asked,
    control_cluster, has_drifted, health_times, last_swap, left_prepared, lowest_minor, may_cancel, raise_name,
    unsettled, with_size,
};
use crate::objects::{
    ControlPlaneSize, Machine, MachineRole, NodeImage, Operation, OperationKind, Resolved, TenantCluster,
    TenantClusterReason,
};
use crate::reach::kinds::Tolerant;
use crate::reconcilers::{all, tenants, tolerant};

pub(super) struct ChangeDecision {
    pub(super) change: Change,
    /// The name of the last Operation.
    pub(super) operation: Option<String>,
    /// The name of the last swap, which may have ended, and its progress.
    pub(super) swap: Option<(String, SwapProgress)>,
    /// Whether a planned swap is ended only because there is no room.
    ends_for_room: bool,
    /// Why the size of the spec is not possible now, if another change comes next.
    pub(super) size_waits: Option<String>,
    /// The message about control-plane nodes that have prepared a swap which no Operation can end. They block the change.
    pub(super) drifted: Option<String>,
    /// Why the operator's request to adopt is still open. `None` without a request.
    pub(super) adopts: Option<String>,
    /// The settings that nodes do not have yet.
    pub(super) settings: Option<PendingSettings>,
    /// The inputs. `None` if the last swap cannot be parsed: then nothing else was read.
    looked: Option<ChangeInputs>,
}

/// All inputs except the cluster and its Machines.
struct ChangeInputs {
    operations: Vec<Operation>,
    images: Vec<NodeImage>,
    /// The Machines of workers, if the spec names another minor version than the control-plane nodes run.
    workers: Vec<Machine>,
    /// Why no change begins now. `None` if none is prevented.
    rests: Option<PauseReason>,
    /// The desired size of control-plane nodes, or why it is unknown.
    size: Result<ControlPlaneSize, Obstacle>,
    /// Why the Provider has no room for that size, and for the size of a planned swap.
    room: Option<Obstacle>,
    plan_room: Option<Obstacle>,
}

impl ChangeDecision {
    /// The cluster's Operations. `None` if the last swap cannot be parsed.
    pub(super) fn operations(&self) -> Option<&[Operation]> {
        self.looked.as_ref().map(|looked| &looked.operations[..])
    }

    pub(super) fn await_settings(&mut self, pending: PendingSettings) {
        self.operation = pending.operation.clone().or(self.operation.take());
        self.settings = Some(pending);
    }

    pub(super) fn doing(&self) -> ClusterCondition {
        let operation = self.settings.as_ref().and_then(|pending| pending.operation.as_ref());
        match (self.change.doing(), operation) {
            ((TenantClusterReason::Idle, _), Some(name)) => (TenantClusterReason::OperationRuns, name.clone()),
            (doing, _) => doing,
        }
    }

    /// Whether a swap is open: only its Operation creates VMs or powers them on, unless it [waits](Self::is_left).
    pub(super) fn is_open(&self) -> bool {
        self.swap.as_ref().is_some_and(|(_, swapping)| swapping.is_open())
    }

    /// Whether a swap is open and may wait for days. All nodes have the new image, a node was rolled back, or the swap is only
    /// planned. A request for it comes first, except its begin: all nodes must be healthy before one of them is swapped.
    pub(super) fn is_left(&self) -> bool {
        let Some((_, swapping)) = &self.swap else { return false };
        let (is_to_do, begins) = (self.change.is_to_do(), matches!(self.change, Change::Go(_, Request::Resume)));
        match swapping.stage {
            Stage::Goes => self.is_plan() && (begins || !is_to_do),
            Stage::Upgraded | Stage::NodeIsBack(_) => !is_to_do,
            Stage::Ended(_) => false,
        }
    }

    /// Whether a swap is planned, and does not begin now: no node was swapped for it.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_plan() && !self.change.is_to_do()
    }

    /// The name of the Operation of a planned swap.
    pub(super) fn plan(&self) -> Option<&str> {
        self.swap.as_ref().filter(|_| self.is_plan()).map(|(name, _)| name.as_str())
    }

    fn is_plan(&self) -> bool {
        let is_plan = |swapping: &SwapProgress| swapping.stage == Stage::Goes && swapping.is_planned();
        self.swap.as_ref().is_some_and(|(_, swapping)| is_plan(swapping))
    }

    /// The size for which a Provider has no room, if that alone blocks the change or ends a planned swap. A size that is no
    /// longer wanted does not wait.
    pub(super) fn lacks_room_for(&self) -> Option<ControlPlaneSize> {
        let looked = self.looked.as_ref()?;
        let obstacle = self.change.obstacle();
        if looked.plan_room.is_some() && (self.ends_for_room || looked.plan_room.as_ref() == obstacle) {
            return self.swap.as_ref()?.1.size;
        }
        looked.size.as_ref().ok().copied().filter(|_| obstacle.is_some() && looked.room.as_ref() == obstacle)
    }
}

impl ChangeInputs {
    /// Decides the next change at this time. `swapping` is the progress of the last swap.
    fn decides(self, of: &Round<'_>, swapping: Option<SwapProgress>, now: Timestamp) -> ChangeDecision {
        let Round { cluster, machines, .. } = *of;
        let swap = last_swap(&self.operations);
        // A running upgrade of Kubernetes comes first, even if another version is wanted now.
        let wanted = raise_name(cluster, &cluster.spec.version);
        let is_raising =
            |operation: &&Operation| operation.spec.kind == OperationKind::KubernetesUpgrade && !operation.has_ended();
        let named = || self.operations.iter().find(|operation| operation.name_any() == wanted);
        let raise = self.operations.iter().find(is_raising).or_else(named);
        let seen = ObservedCluster {
            cluster,
            swap: swap.zip(swapping.clone()),
            abandoned: unsettled(&self.operations),
            raise,
            images: &self.images,
            minor: lowest_minor(machines),
            workers: &self.workers,
            size: self.size.clone(),
            room: self.room.clone(),
            plan_room: self.plan_room.clone(),
            rests: self.rests.clone(),
            has_drifted: has_drifted(cluster.deployment(), machines, &self.operations),
            now,
        };
        // Requests for other Operations are rejected.
        let known = [swap, raise].into_iter().flatten().map(ResourceExt::name_any).collect::<Vec<_>>();
        let other = self.operations.iter().find(|it| asked(it).is_some() && !known.contains(&it.name_any()));
        let change = match other {
            Some(other) if is_open_configure(other) => {
                let words = "it takes no requests: set the former settings in the TenantCluster".to_owned();
                Change::Answer(other.name_any(), Some(words))
            }
            Some(other) => Change::Answer(other.name_any(), Some("it is not the last one, and has ended".to_owned())),
            None => seen.next(),
        };
        let (size_waits, ends_for_room) = (seen.size_waits(&change), seen.ends_for_room(&change));
        let before = cluster.status.as_ref().and_then(|status| status.operation.clone());
        let open = swap.filter(|_| swapping.as_ref().is_some_and(SwapProgress::is_open));
        let operation = raise.filter(is_raising).or(open).map(ResourceExt::name_any).or(before);
        let swap = swap.map(ResourceExt::name_any).zip(swapping);
        let (drifted, adopts, settings, looked) = (None, None, None, Some(self));
        ChangeDecision { change, operation, swap, ends_for_room, size_waits, drifted, adopts, settings, looked }
    }
}

impl Reconciler<'_> {
    /// Why no change of a cluster's control-plane nodes begins now, and running ones are paused. `None` if none is prevented.
    pub(super) async fn pause_reason(&self, cluster: &TenantCluster) -> Result<Option<PauseReason>, ReconcileError> {
        let nodes = all::<Node>(self.objects).await?;
        Ok(PauseReason::of(cluster, control_cluster(self.is_marked, &nodes)))
    }

    /// All NodeImages. Another one than the cluster's may lack its status.
    pub(super) async fn images(&self, cluster: &TenantCluster) -> Result<Vec<NodeImage>, ReconcileError> {
        let Tolerant { whole: mut images, unread } = tolerant::<NodeImage>(self.objects).await?;
        let own = [cluster.spec.image.as_ref(), cluster.resolved().and_then(|resolved| resolved.image.as_ref())];
        for (image, failure) in unread {
            if own.contains(&image.metadata.name.as_ref()) {
                return Err(failure).attempting("reading the cluster's NodeImage");
            }
            images.push(image);
        }
        Ok(images)
    }
}

impl Round<'_> {
    /// Decides the next change, from objects and the observed sizes of VMs.
    pub(super) async fn decide_change(&self, seen: &DeployStatus) -> Result<ChangeDecision, ReconcileError> {
        let operations = self.operations(self.cluster).await?;
        let images = self.images(self.cluster).await?;
        let swap = last_swap(&operations);
        let swapping = match swap.map(SwapProgress::of).transpose() {
            Ok(swapping) => swapping.flatten(),
            Err(mismatch) => {
                let words = format!("the last Operation is not understood: {mismatch}");
                return Ok(ChangeDecision {
                    change: Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words)),
                    operation: swap.map(ResourceExt::name_any),
                    swap: None,
                    ends_for_room: false,
                    size_waits: None,
                    drifted: None,
                    adopts: None,
                    settings: None,
                    looked: None,
                });
            }
        };
        let rests = self.pause_reason(self.cluster).await?;
        let size = self.size().await?;
        let room = match &size {
            Ok(size) => self.no_room(seen, *size).await?,
            Err(_) => None,
        };
        let plan = swapping.as_ref().filter(|swapping| swapping.is_planned()).and_then(|swapping| swapping.size);
        let plan_room = match plan {
            Some(size) => self.no_room(seen, size).await?,
            None => None,
        };
        let wanted = self.cluster.spec.version.parse::<contract::minor::Minor>().ok();
        let is_raise = lowest_minor(self.machines) != wanted;
        let mut workers = if is_raise { self.reconciler.machines(self.cluster).await? } else { Vec::new() };
        workers.retain(|machine| machine.spec.role == MachineRole::Worker);
        let looked = ChangeInputs { operations, images, workers, rests, size, room, plan_room };
        Ok(looked.decides(self, swapping, self.clock.time().0))
    }

    /// Records since when all control-plane nodes are healthy on the new image, as long as the operator may roll back, or removes
    /// the record. Decides again with it. Nothing else is read again.
    pub(super) async fn record_health(
        &self,
        decision: ChangeDecision,
        are_good: bool,
    ) -> Result<ChangeDecision, ReconcileError> {
        let Some((name, swapping)) = &decision.swap else { return Ok(decision) };
        let Some(operation) = self.operation(name).await? else { return Ok(decision) };
        let before = operation.status.unwrap_or_default();
        // While it is paused requests are rejected: the operator gets the whole time afterwards.
        let rests = decision.looked.as_ref().is_some_and(|looked| looked.rests.is_some());
        let is_counted = are_good && swapping.stage == Stage::Upgraded && !rests;
        let (since, seen) = is_counted.then(|| health_times(&before, &self.clock.time())).unzip();
        if since == before.healthy_since && seen == before.last_healthy {
            return Ok(decision);
        }
        self.note_operation(name, &[], |status| {
            (status.healthy_since, status.last_healthy) = (since.clone(), seen.clone());
        })
        .await?;
        Ok(match decision {
            ChangeDecision { swap: Some((name, swapping)), looked: Some(mut looked), .. } => {
                let named = looked.operations.iter_mut().filter(|operation| operation.name_any() == name);
                for status in named.filter_map(|operation| operation.status.as_mut()) {
                    (status.healthy_since, status.last_healthy) = (since.clone(), seen.clone());
                }
                looked.decides(self, Some(swapping), self.clock.time().0)
            }
            decision => decision,
        })
    }

    /// Replaces a change by its obstacle, if the place, the nodes or their VMs prevent it. If nothing is left to do, the change
    /// becomes a pin of the current state. `None` if the desired state changes meanwhile, or the term is closing: nodes may
    /// answer slowly.
    pub(super) async fn check_change(
        &self,
        decision: ChangeDecision,
        upgrade: &UpgradeContext<'_>,
    ) -> Result<Option<ChangeDecision>, ReconcileError> {
        let checking = async {
            let decided = match &decision.change {
                Change::Judge(image, size, then) => self.check_nodes(image, *size, then, upgrade).await,
                change => change.clone(),
            };
            let obstacle = match &decided {
                Change::Swap(image, _, size) => match self.image_denied(image).await? {
                    Some(obstacle) => Some(Change::Blocked(obstacle)),
                    None => self.check_swap(image, *size, upgrade).await?,
                },
                Change::Raise(to, _) => {
                    let planned = upgrade.plans_kubernetes(&kubernetes_options(self.cluster, *to)).await;
                    planned.err().filter(|error| !is_done(error)).map(|error| Change::Blocked(unfit(&error)))
                }
                _ => None,
            };
            let change = obstacle.unwrap_or(decided);
            let drifted = Box::pin(self.prepared_otherwise(&change, upgrade)).await?;
            Ok::<_, ReconcileError>((change, drifted))
        };
        // The checks are read-only, so they may be interrupted.
        let checked = tokio::select! {
            checked = tokio::time::timeout(JUDGING, checking) => checked,
            () = self.until_superseded(self.cluster) => return Ok(None),
            () = self.term.ended() => return Err(self.over()),
        };
        let (change, drifted) = match checked {
            Ok(checked) => checked?,
            Err(_) => {
                let words = format!("its control-plane nodes were not all looked at within {} s", JUDGING.as_secs());
                (Change::Blocked(Obstacle::new(TenantClusterReason::PreflightNotKnown, words)), None)
            }
        };
        self.term.ensure_active()?;
        Ok(Some(ChangeDecision { change, drifted, ..decision }))
    }

    /// Why the cluster may not change to an image, by its Tenant. The present image stays.
    async fn image_denied(&self, image: &NodeImage) -> Result<Option<Obstacle>, ReconcileError> {
        let (name, resolved) = (image.name_any(), self.cluster.resolved().and_then(|resolved| resolved.image.as_ref()));
        if resolved == Some(&name) {
            return Ok(None);
        }
        let namespace = self.cluster.namespace().unwrap_or_default();
        Ok(Access::of(&tenants(self.objects).await?, &namespace).image(&name))
    }

    /// The message about control-plane nodes that are unfit for a change, if some have prepared a swap which no Operation can
    /// end. `None` if none of those that answer has.
    async fn prepared_otherwise(
        &self,
        change: &Change,
        upgrade: &UpgradeContext<'_>,
    ) -> Result<Option<String>, ReconcileError> {
        let cluster = self.cluster;
        let unfit = change.obstacle().filter(|obstacle| obstacle.reason == TenantClusterReason::ControlPlaneUnfit);
        let Some(unfit) = unfit else { return Ok(None) };
        let Ok(vms) = self.opened.hypervisor.vms().await else { return Ok(None) };
        let said = upgrade.told(&vms).await.into_iter().flatten().collect();
        let words = may_cancel(&left_prepared(said, &self.operations(cluster).await?), &vms, cluster);
        // With the other obstacles.
        Ok(words.map(|words| format!("{words}. It is blocked by: {}", unfit.message)))
    }

    /// The next change, if all nodes run an image, in VMs of this size if one is given. Otherwise the obstacle.
    async fn check_nodes(
        &self,
        image: &NodeImage,
        size: Option<ControlPlaneSize>,
        then: &Change,
        upgrade: &UpgradeContext<'_>,
    ) -> Change {
        use TenantClusterReason::{ControlPlaneUnfit, PreflightNotKnown};
        let name = image.name_any();
        let Some(target) = target(image) else {
            let words = format!("it is not known yet which build the NodeImage {name} is");
            return Change::Blocked(Obstacle::new(PreflightNotKnown, words));
        };
        match upgrade.plans(&target, &swap_options(self.cluster, None)).await {
            Err(error) if is_done(&error) => match size {
                Some(size) => self.check_sizes(&target, size, then, upgrade).await,
                None => then.clone(),
            },
            // The swap would be possible, so another image runs.
            Ok(()) => {
                let words = format!(
                    "not all control-plane nodes run {name}, and no object records what they run: set the image that they are to run"
                );
                Change::Blocked(Obstacle::new(ControlPlaneUnfit, words))
            }
            Err(error) => Change::Blocked(unfit(&error)),
        }
    }

    /// As `check_nodes`, for the size of VMs.
    async fn check_sizes(
        &self,
        target: &Target,
        size: ControlPlaneSize,
        then: &Change,
        upgrade: &UpgradeContext<'_>,
    ) -> Change {
        match upgrade.plans(target, &swap_options(self.cluster, Some(size))).await {
            Err(error) if is_done(&error) => then.clone(),
            Err(error) => Change::Blocked(unfit(&error)),
            Ok(()) => {
                let words = format!(
                    "not all control-plane nodes have {size}, and no object records what they have: set a vmClass of the size that they are \
                     to have; where that is this one, another one before"
                );
                Change::Blocked(Obstacle::new(TenantClusterReason::ControlPlaneUnfit, words))
            }
        }
    }

    async fn check_swap(
        &self,
        image: &NodeImage,
        size: ControlPlaneSize,
        upgrade: &UpgradeContext<'_>,
    ) -> Result<Option<Change>, ReconcileError> {
        let Self { cluster, machines, opened, .. } = *self;
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let resolved =
            Resolved { image: image.metadata.name.clone(), digest: Some(image.spec.digest.clone()), ..pinned };
        let zones: BTreeSet<String> = machines.iter().map(|machine| machine.spec.zone.clone()).collect();
        let zones: Vec<String> = zones.into_iter().collect();
        if let Some(obstacle) = self.obstacle_at(opened, &cluster.spec.provider_ref.name, &resolved, &zones).await {
            return Ok(Some(Change::Blocked(obstacle)));
        }
        let Some(target) = target(image) else {
            let words = format!("it is not known yet which build the NodeImage {} is", image.name_any());
            return Ok(Some(Change::Blocked(Obstacle::new(TenantClusterReason::PreflightNotKnown, words))));
        };
        Ok(match upgrade.plans(&target, &swap_options(cluster, Some(size))).await {
            Ok(()) => None,
            // All nodes run it with that size, for whatever reason.
            Err(error) if is_done(&error) => Some(Change::Pin(Box::new(with_size(resolved, Some(size))), None)),
            Err(error) => Some(Change::Blocked(unfit(&error))),
        })
    }
}

/// Whether nothing is left to do.
pub(super) fn is_done(error: &anyhow::Error) -> bool {
    let refusals = error.downcast_ref::<Refusals>();
    refusals.is_some_and(|refusals| refusals.0.iter().all(|refusal| refusal.code == "upgrade.nothing-to-do"))
}

/// Why a change does not begin, from `fleet`'s checks or their error.
fn unfit(error: &anyhow::Error) -> Obstacle {
    use TenantClusterReason::{ControlPlaneUnfit, ImageUnsuitable, PreflightNotKnown};
    const OF_THE_IMAGE: [&str; 8] = [
        "upgrade.product",
        "upgrade.downgrade",
        "upgrade.from-version",
        "upgrade.version",
        "upgrade.etcd",
        "upgrade.kubernetes",
        "upgrade.unsigned",
        "upgrade.publisher",
    ];
    let Some(Refusals(refusals)) = error.downcast_ref::<Refusals>() else {
        return Obstacle::new(PreflightNotKnown, format!("{error:#}"));
    };
    let is_of_image = refusals.iter().any(|refusal| OF_THE_IMAGE.contains(&refusal.code));
    let words = refusals.iter().map(|refusal| format!("{}: {} [{}]", refusal.subject, refusal.reason, refusal.code));
    let reason = if is_of_image { ImageUnsuitable } else { ControlPlaneUnfit };
    Obstacle::new(reason, words.collect::<Vec<_>>().join("; "))
}
