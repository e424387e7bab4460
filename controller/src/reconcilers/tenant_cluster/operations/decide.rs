//! Decides the next change, from objects and the observed sizes of VMs.

use fleet::control_plane::DeployStatus;
use fleet::upgrade::Request;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::super::Reconciler;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    Change, ObservedCluster, Obstacle, PauseReason, Stage, SwapProgress, asked, control_cluster, has_drifted,
    last_swap, lowest_minor, raise_name, unsettled,
};
use crate::objects::{
    ControlPlaneSize, Machine, NodeImage, Operation, OperationKind, TenantCluster, TenantClusterReason,
};
use crate::reach::kinds;

/// A decision with its inputs.
pub(in crate::reconcilers::tenant_cluster) struct ChangeDecision {
    pub(in crate::reconcilers::tenant_cluster) change: Change,
    /// The name of the last Operation.
    pub(in crate::reconcilers::tenant_cluster) operation: Option<String>,
    /// The name of the last swap, which may have ended, and its progress.
    pub(in crate::reconcilers::tenant_cluster) swap: Option<(String, SwapProgress)>,
    /// Whether a planned swap is ended only because there is no room.
    pub(super) ends_for_room: bool,
    /// Why the size of the spec is not possible now, if another change comes next.
    pub(in crate::reconcilers::tenant_cluster) size_waits: Option<String>,
    /// The message about control-plane nodes that have prepared a swap which no Operation can end. They block the change.
    pub(in crate::reconcilers::tenant_cluster) drifted: Option<String>,
    /// Why the operator's request to adopt is still open. `None` without a request.
    pub(in crate::reconcilers::tenant_cluster) adopts: Option<String>,
    /// The inputs. `None` if the last swap cannot be parsed: then nothing else was read.
    pub(super) looked: Option<ChangeInputs>,
}

/// All inputs except the cluster and its Machines.
pub(super) struct ChangeInputs {
    operations: Vec<Operation>,
    images: Vec<NodeImage>,
    /// Why no change begins now. `None` if none is prevented.
    rests: Option<PauseReason>,
    /// The desired size of control-plane nodes, or why it is unknown.
    size: Result<ControlPlaneSize, Obstacle>,
    /// Why the Provider has no room for that size, and for the size of a planned swap.
    room: Option<Obstacle>,
    plan_room: Option<Obstacle>,
}

impl ChangeDecision {
    /// Whether a swap is open: only its Operation creates VMs or powers them on, unless it [waits](Self::is_left).
    pub(in crate::reconcilers::tenant_cluster) fn is_open(&self) -> bool {
        self.swap.as_ref().is_some_and(|(_, swapping)| swapping.is_open())
    }

    /// Whether a swap is open and may wait for days. All nodes have the new image, a node was rolled back, or the swap is only
    /// planned. A request for it comes first, except its begin: all nodes must be healthy before one of them is swapped.
    pub(in crate::reconcilers::tenant_cluster) fn is_left(&self) -> bool {
        let Some((_, swapping)) = &self.swap else { return false };
        let (is_to_do, begins) = (self.change.is_to_do(), matches!(self.change, Change::Go(_, Request::Resume)));
        match swapping.stage {
            Stage::Goes => self.is_plan() && (begins || !is_to_do),
            Stage::Upgraded | Stage::NodeIsBack(_) => !is_to_do,
            Stage::Ended(_) => false,
        }
    }

    /// Whether a swap is planned, and does not begin now: no node was swapped for it.
    pub(in crate::reconcilers::tenant_cluster) fn is_held_up(&self) -> bool {
        self.is_plan() && !self.change.is_to_do()
    }

    /// The name of the Operation of a planned swap.
    pub(in crate::reconcilers::tenant_cluster) fn plan(&self) -> Option<&str> {
        self.swap.as_ref().filter(|_| self.is_plan()).map(|(name, _)| name.as_str())
    }

    fn is_plan(&self) -> bool {
        let is_plan = |swapping: &SwapProgress| swapping.stage == Stage::Goes && swapping.is_planned();
        self.swap.as_ref().is_some_and(|(_, swapping)| is_plan(swapping))
    }

    /// Whether no change begins now, and running ones are paused. False if it is unknown.
    pub(super) fn rests(&self) -> bool {
        self.looked.as_ref().is_some_and(|looked| looked.rests.is_some())
    }

    /// The decision after the last swap has recorded since when all nodes are healthy, and when that was last observed. Nothing
    /// else is read again.
    pub(super) fn with_good(
        self,
        cluster: &TenantCluster,
        machines: &[Machine],
        good: (Option<Time>, Option<Time>),
        now: Timestamp,
    ) -> Self {
        match self {
            Self { swap: Some((name, swapping)), looked: Some(looked), .. } => {
                looked.with_good(&name, good).decides(cluster, machines, Some(swapping), now)
            }
            changing => changing,
        }
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
    fn decides(
        self,
        cluster: &TenantCluster,
        machines: &[Machine],
        swapping: Option<SwapProgress>,
        now: Timestamp,
    ) -> ChangeDecision {
        let swap = last_swap(&self.operations);
        // A running upgrade of Kubernetes comes first, even if another version is wanted now.
        let wanted = raise_name(cluster, &cluster.spec.version);
        let is_raising = |operation: &&Operation| {
            let outcome = operation.status.as_ref().and_then(|status| status.outcome.as_ref());
            operation.spec.kind == OperationKind::KubernetesUpgrade && outcome.is_none()
        };
        let named = || self.operations.iter().find(|operation| operation.name_any() == wanted);
        let raise = self.operations.iter().find(is_raising).or_else(named);
        let deployment = cluster.status.as_ref().and_then(|status| status.deployment.as_ref());
        let seen = ObservedCluster {
            cluster,
            swap: swap.zip(swapping.clone()),
            abandoned: unsettled(&self.operations),
            raise,
            images: &self.images,
            minor: lowest_minor(machines),
            size: self.size.clone(),
            room: self.room.clone(),
            plan_room: self.plan_room.clone(),
            rests: self.rests.clone(),
            has_drifted: has_drifted(deployment, machines, &self.operations),
            now,
        };
        // Requests for other Operations are rejected.
        let known = [swap, raise].into_iter().flatten().map(ResourceExt::name_any).collect::<Vec<_>>();
        let other = self.operations.iter().find(|it| asked(it).is_some() && !known.contains(&it.name_any()));
        let change = match other {
            Some(other) => Change::Answer(other.name_any(), Some("it is not the last one, and has ended".to_owned())),
            None => seen.next(),
        };
        let (size_waits, ends_for_room) = (seen.size_waits(&change), seen.ends_for_room(&change));
        let before = cluster.status.as_ref().and_then(|status| status.operation.clone());
        let open = swap.filter(|_| swapping.as_ref().is_some_and(SwapProgress::is_open));
        let operation = raise.filter(is_raising).or(open).map(ResourceExt::name_any).or(before);
        let swap = swap.map(ResourceExt::name_any).zip(swapping);
        let (drifted, adopts, looked) = (None, None, Some(self));
        ChangeDecision { change, operation, swap, ends_for_room, size_waits, drifted, adopts, looked }
    }

    /// The inputs after an Operation has recorded since when all nodes are healthy, and when that was last observed.
    fn with_good(mut self, name: &str, (since, seen): (Option<Time>, Option<Time>)) -> Self {
        let named = self.operations.iter_mut().filter(|operation| operation.name_any() == name);
        for status in named.filter_map(|operation| operation.status.as_mut()) {
            (status.healthy_since, status.last_healthy) = (since.clone(), seen.clone());
        }
        self
    }
}

impl Reconciler<'_> {
    /// Why no change of a cluster's control-plane nodes begins now, and running ones are paused. `None` if none is prevented.
    pub(super) async fn rest(&self, cluster: &TenantCluster) -> Result<Option<PauseReason>, ReconcileError> {
        let nodes = kinds::list::<Node>(self.objects, None, None).await;
        let nodes = nodes.attempting("looking for the control cluster's nodes")?;
        Ok(PauseReason::of(cluster, control_cluster(self.is_marked, &nodes)))
    }

    /// Decides the next change, from objects and the observed sizes of VMs.
    pub(in crate::reconcilers::tenant_cluster) async fn changing(
        &self,
        cluster: &TenantCluster,
        (machines, seen): (&[Machine], &DeployStatus),
    ) -> Result<ChangeDecision, ReconcileError> {
        let operations = self.operations(cluster).await?;
        let images = kinds::list::<NodeImage>(self.objects, None, None).await.attempting("looking for NodeImages")?;
        let swap = last_swap(&operations);
        let swapping = match swap.map(SwapProgress::of).transpose() {
            Ok(swapping) => swapping.flatten(),
            Err(mismatch) => {
                let words = format!("the last Operation is not understood: {mismatch}");
                let change = Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
                let operation = swap.map(ResourceExt::name_any);
                let (swap, ends_for_room, size_waits, drifted, adopts, looked) = (None, false, None, None, None, None);
                return Ok(ChangeDecision {
                    change,
                    operation,
                    swap,
                    ends_for_room,
                    size_waits,
                    drifted,
                    adopts,
                    looked,
                });
            }
        };
        let rests = self.rest(cluster).await?;
        let size = self.size(cluster).await?;
        let room = match &size {
            Ok(size) => self.no_room(cluster, (machines, seen), *size).await?,
            Err(_) => None,
        };
        let plan = swapping.as_ref().filter(|swapping| swapping.is_planned()).and_then(|swapping| swapping.size);
        let plan_room = match plan {
            Some(size) => self.no_room(cluster, (machines, seen), size).await?,
            None => None,
        };
        let looked = ChangeInputs { operations, images, rests, size, room, plan_room };
        Ok(looked.decides(cluster, machines, swapping, self.clock.time().0))
    }
}
