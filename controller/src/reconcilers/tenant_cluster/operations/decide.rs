//! What comes next, decided by objects and by how large VMs were seen to be.

use contract::minor::Minor;
use fleet::deploy::DeployStatus;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::super::Work;
use super::tell::asked;
use crate::context::{Attempt, Trouble};
use crate::decisions::{
    Change, Obstacle, Rest, SeenCluster, Stage, Swapping, control_cluster, good, has_drifted, unsettled,
};
use crate::objects::{Machine, NodeImage, Operation, OperationKind, TenantCluster, TenantClusterReason};
use crate::reach::kinds;

/// What was decided, and by what.
pub(in crate::reconcilers::tenant_cluster) struct Changing {
    pub(in crate::reconcilers::tenant_cluster) change: Change,
    /// The last Operation, by its name.
    pub(in crate::reconcilers::tenant_cluster) operation: Option<String>,
    /// The name of the last swap, whether or not it has ended, and how far it is.
    pub(in crate::reconcilers::tenant_cluster) swap: Option<(String, Swapping)>,
    /// Whether something keeps it all from going on. Of a swap that is not understood nobody asks that.
    pub(super) rests: bool,
    /// Why the size of the spec is not to be had now, where something else comes next.
    pub(in crate::reconcilers::tenant_cluster) size_waits: Option<String>,
}

impl Changing {
    /// Whether a swap is open: nobody makes or powers VMs on but its Operation.
    pub(in crate::reconcilers::tenant_cluster) fn is_open(&self) -> bool {
        self.swap.as_ref().is_some_and(|(_, swapping)| swapping.is_open())
    }

    /// Whether one is open, and waits where it may for days: it has come to the new image, or a node is back and a person decides.
    pub(in crate::reconcilers::tenant_cluster) fn is_left(&self) -> bool {
        let swap = self.swap.as_ref();
        swap.is_some_and(|(_, swapping)| matches!(swapping.stage, Stage::Upgraded | Stage::NodeIsBack(_)))
    }
}

/// The lowest minor of Kubernetes that control nodes are at.
pub(in crate::reconcilers::tenant_cluster) fn lowest(machines: &[Machine]) -> Option<Minor> {
    machines.iter().filter_map(|machine| machine.spec.kubernetes.parse().ok()).min()
}

/// The last swap whose journal was begun.
pub(super) fn last_swap(operations: &[Operation]) -> Option<&Operation> {
    let begun = |operation: &&Operation| {
        let status = operation.status.as_ref();
        operation.spec.kind == OperationKind::Swap && status.is_some_and(|status| !status.entries.is_empty())
    };
    operations.iter().filter(begun).max_by_key(|operation| operation.status.as_ref().map(|status| status.hold))
}

/// Whether a swap has not ended.
pub(super) fn is_open(operation: &&Operation) -> bool {
    matches!(Swapping::of(operation), Ok(Some(swapping)) if swapping.is_open())
}

/// The name of the Operation that takes a cluster to a minor.
pub(super) fn raising(cluster: &TenantCluster, to: &str) -> String {
    format!("{}-kubernetes-{}", cluster.name_any(), to.replace('.', "-"))
}

impl Work<'_> {
    /// Why nothing is begun of a cluster's control nodes now, and what is under way rests; none if nothing keeps it.
    pub(super) async fn rest(&self, cluster: &TenantCluster) -> Result<Option<Rest>, Trouble> {
        let nodes = kinds::list::<Node>(self.objects, None, None).await;
        let nodes = nodes.attempting("looking for the control cluster's nodes")?;
        Ok(Rest::of(cluster, control_cluster(self.is_marked, &nodes)))
    }

    /// Decides what comes next, by objects and by how large VMs were seen to be.
    pub(in crate::reconcilers::tenant_cluster) async fn changing(
        &self,
        cluster: &TenantCluster,
        (machines, seen): (&[Machine], &DeployStatus),
    ) -> Result<Changing, Trouble> {
        let operations = self.operations(cluster).await?;
        let images = kinds::list::<NodeImage>(self.objects, None, None).await.attempting("looking for NodeImages")?;
        let swap = last_swap(&operations);
        let swapping = match swap.map(Swapping::of).transpose() {
            Ok(swapping) => swapping.flatten(),
            Err(mismatch) => {
                let words = format!("the last Operation is not understood: {mismatch}");
                let change = Change::Blocked(Obstacle::new(TenantClusterReason::NotSupported, words));
                let operation = swap.map(ResourceExt::name_any);
                return Ok(Changing { change, operation, swap: None, rests: false, size_waits: None });
            }
        };
        // The one that is under way, whatever is wanted by now.
        let wanted = raising(cluster, &cluster.spec.version);
        let is_open = |operation: &&Operation| {
            let outcome = operation.status.as_ref().and_then(|status| status.outcome.as_ref());
            operation.spec.kind == OperationKind::RaiseKubernetes && outcome.is_none()
        };
        let named = || operations.iter().find(|operation| operation.name_any() == wanted);
        let rests = self.rest(cluster).await?;
        let is_resting = rests.is_some();
        let deployment = cluster.status.as_ref().and_then(|status| status.deployment.as_ref());
        let raise = operations.iter().find(is_open).or_else(named);
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
        let looked = SeenCluster {
            cluster,
            swap: swap.zip(swapping.clone()),
            abandoned: unsettled(&operations),
            raise,
            images: &images,
            minor: lowest(machines),
            size,
            room,
            plan_room,
            rests,
            has_drifted: has_drifted(deployment, machines, &operations),
            now: self.clock.time().0,
        };
        let of_raise = raise.filter(is_open);
        // Nobody looks at what is asked of any other one.
        let known = [swap, raise].into_iter().flatten().map(ResourceExt::name_any).collect::<Vec<_>>();
        let other = operations.iter().find(|it| asked(it).is_some() && !known.contains(&it.name_any()));
        let change = match other {
            Some(other) => Change::Answer(other.name_any(), Some("it is not the last one, and has ended".to_owned())),
            None => looked.next(),
        };
        let before = cluster.status.as_ref().and_then(|status| status.operation.clone());
        let size_waits = looked.size_waits(&change);
        Ok(Changing {
            change,
            operation: of_raise
                .or(swap.filter(|_| swapping.as_ref().is_some_and(Swapping::is_open)))
                .map(ResourceExt::name_any)
                .or(before),
            swap: swap.map(ResourceExt::name_any).zip(swapping),
            rests: is_resting,
            size_waits,
        })
    }

    /// Notes since when all control nodes are good on the new image and a person may say that it goes back, or that it is not so.
    pub(in crate::reconcilers::tenant_cluster) async fn counts_good(
        &self,
        cluster: &TenantCluster,
        changing: Changing,
        looked: (&[Machine], &DeployStatus),
        are_good: bool,
    ) -> Result<Changing, Trouble> {
        let Some((name, swapping)) = &changing.swap else { return Ok(changing) };
        let found = kinds::find::<Operation>(self.objects, cluster.namespace().as_deref(), name).await;
        let Some(operation) = found.attempting("reading an Operation")? else { return Ok(changing) };
        let before = operation.status.unwrap_or_default();
        // While it rests words are refused: whoever was told to wait has the whole time afterwards.
        let is_counted = are_good && swapping.stage == Stage::Upgraded && !changing.rests;
        let (since, seen) = is_counted.then(|| good(&before, &self.clock.time())).unzip();
        if since == before.good_since && seen == before.good_seen {
            return Ok(changing);
        }
        self.note_operation(cluster, name, &[], |status| {
            (status.good_since, status.good_seen) = (since.clone(), seen.clone());
        })
        .await?;
        self.changing(cluster, looked).await
    }
}
