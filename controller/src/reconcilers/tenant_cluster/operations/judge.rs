//! Checks whether a change may begin, from the place, the nodes and their VMs. Read-only.

use std::collections::BTreeSet;
use std::time::Duration;

use fleet::upgrade::Target;
use kube::ResourceExt;

use super::super::Reconciler;
use super::super::place::ProviderSession;
use super::decide::ChangeDecision;
use super::translate::{is_done, kubernetes, options, target, unfit};
use super::upgrade_context::UpgradeContext;
use crate::context::ReconcileError;
use crate::decisions::{Change, Obstacle, left_prepared, may_cancel, with_size};
use crate::objects::{ControlPlaneSize, Machine, NodeImage, Resolved, TenantCluster, TenantClusterReason};

/// The limit of these checks.
pub(in crate::reconcilers::tenant_cluster) const JUDGING: Duration = Duration::from_secs(300);

impl Reconciler<'_> {
    /// Replaces a change by its obstacle, if the place, the nodes or their VMs prevent it. If nothing is left to do, the change
    /// becomes a pin of the current state. `None` if the desired state changes meanwhile, or the term is closing: nodes may
    /// answer slowly.
    pub(in crate::reconcilers::tenant_cluster) async fn with_obstacles(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        changing: ChangeDecision,
        opened: &ProviderSession,
        operator: &UpgradeContext<'_>,
    ) -> Result<Option<ChangeDecision>, ReconcileError> {
        let judging = async {
            let decided = match &changing.change {
                Change::Judge(image, size, then) => self.judged_nodes(cluster, (image, *size), then, operator).await,
                change => change.clone(),
            };
            let obstacle = match &decided {
                Change::Swap(image, _, size) => {
                    self.judged_swap(cluster, machines, (image, *size), opened, operator).await?
                }
                Change::Raise(to, _) => {
                    let planned = operator.plans_kubernetes(&kubernetes(cluster, *to)).await;
                    planned.err().filter(|error| !is_done(error)).map(|error| Change::Blocked(unfit(&error)))
                }
                _ => None,
            };
            let change = obstacle.unwrap_or(decided);
            let drifted = Box::pin(self.prepared_otherwise(cluster, &change, opened, operator)).await?;
            Ok::<_, ReconcileError>((change, drifted))
        };
        // The checks are read-only, so they may be interrupted.
        let judged = tokio::select! {
            judged = tokio::time::timeout(JUDGING, judging) => judged,
            () = self.until_superseded(cluster) => return Ok(None),
            () = self.term.ended() => return Err(self.over()),
        };
        let (change, drifted) = match judged {
            Ok(judged) => judged?,
            Err(_) => {
                let words = format!("its control-plane nodes were not all looked at within {} s", JUDGING.as_secs());
                (Change::Blocked(Obstacle::new(TenantClusterReason::PreflightNotKnown, words)), None)
            }
        };
        self.term.ensure_active()?;
        Ok(Some(ChangeDecision { change, drifted, ..changing }))
    }

    /// The message about control-plane nodes that are unfit for a change, if some have prepared a swap which no Operation can
    /// end. `None` if none of those that answer has.
    async fn prepared_otherwise(
        &self,
        cluster: &TenantCluster,
        change: &Change,
        opened: &ProviderSession,
        operator: &UpgradeContext<'_>,
    ) -> Result<Option<String>, ReconcileError> {
        let unfit = change.obstacle().filter(|obstacle| obstacle.reason == TenantClusterReason::ControlPlaneUnfit);
        let Some(unfit) = unfit else { return Ok(None) };
        let Ok(vms) = opened.hypervisor.vms().await else { return Ok(None) };
        let said = operator.told(&vms).await.into_iter().flatten().collect();
        let words = may_cancel(&left_prepared(said, &self.operations(cluster).await?), &vms, cluster);
        // With the other obstacles.
        Ok(words.map(|words| format!("{words}. It is blocked by: {}", unfit.message)))
    }

    /// The next change, if all nodes run an image, in VMs of this size if one is given. Otherwise the obstacle.
    async fn judged_nodes(
        &self,
        cluster: &TenantCluster,
        (image, size): (&NodeImage, Option<ControlPlaneSize>),
        then: &Change,
        operator: &UpgradeContext<'_>,
    ) -> Change {
        use TenantClusterReason::{ControlPlaneUnfit, PreflightNotKnown};
        let name = image.name_any();
        let Some(target) = target(image) else {
            let words = format!("it is not known yet which build the NodeImage {name} is");
            return Change::Blocked(Obstacle::new(PreflightNotKnown, words));
        };
        match operator.plans(&target, &options(cluster, None)).await {
            Err(error) if is_done(&error) => match size {
                Some(size) => self.judged_sizes(cluster, &target, size, then, operator).await,
                None => then.clone(),
            },
            // The swap would be possible, so another image runs.
            Ok(()) => {
                let words = format!(
                    "not all control-plane nodes run {name}, and no object says what they run: name the image that they are to run"
                );
                Change::Blocked(Obstacle::new(ControlPlaneUnfit, words))
            }
            Err(error) => Change::Blocked(unfit(&error)),
        }
    }

    /// As `judged_nodes`, for the size of VMs.
    async fn judged_sizes(
        &self,
        cluster: &TenantCluster,
        target: &Target,
        size: ControlPlaneSize,
        then: &Change,
        operator: &UpgradeContext<'_>,
    ) -> Change {
        match operator.plans(target, &options(cluster, Some(size))).await {
            Err(error) if is_done(&error) => then.clone(),
            Err(error) => Change::Blocked(unfit(&error)),
            Ok(()) => {
                let words = format!(
                    "not all control-plane nodes have {size}, and no object says what they have: name a vmClass of the size that they are \
                     to have; where that is this one, another one before"
                );
                Change::Blocked(Obstacle::new(TenantClusterReason::ControlPlaneUnfit, words))
            }
        }
    }

    async fn judged_swap(
        &self,
        cluster: &TenantCluster,
        machines: &[Machine],
        (image, size): (&NodeImage, ControlPlaneSize),
        opened: &ProviderSession,
        operator: &UpgradeContext<'_>,
    ) -> Result<Option<Change>, ReconcileError> {
        let pinned = cluster.status.as_ref().and_then(|status| status.resolved.clone()).unwrap_or_default();
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
        Ok(match operator.plans(&target, &options(cluster, Some(size))).await {
            Ok(()) => None,
            // All nodes run it with that size, for whatever reason.
            Err(error) if is_done(&error) => Some(Change::Pin(Box::new(with_size(resolved, Some(size))), None)),
            Err(error) => Some(Change::Blocked(unfit(&error))),
        })
    }
}
