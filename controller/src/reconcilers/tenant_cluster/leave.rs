//! Deletes a cluster: its pools, its control-plane nodes, and then all its other objects. It reads only what it needs: without
//! VMs no Provider, and never an image, a class, a pool of addresses or a key.

use std::time::Duration;

use fleet::control_plane::{Goal, RunOutcome, Wait};
use kube::ResourceExt;

use super::fleet_deploy::DeployResult;
use super::place::unavailable;
use super::retained::{replicas_left, what_is_left};
use super::{Reconciler, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER_FINALIZER, CLUSTER_REF, DeletionInputs, DeletionStep, deletion_step, drifted, leaving, leaving_drifted,
    leaving_stuck,
};
use crate::objects::{NodePool, Operation, PoolAddress, TenantCluster, TenantClusterReason};
use crate::reach::{Collection, Failure, kinds};

/// The pauses while workers leave, while `fleet` waits, and while the operator has to act.
const WORKERS: Duration = Duration::from_secs(10);
const WAITING: Duration = Duration::from_secs(15);
const AWAITING: Duration = Duration::from_secs(60);

impl Reconciler<'_> {
    /// Runs the next step.
    pub(super) async fn leave(&self, cluster: &TenantCluster) -> Result<StepOutcome, ReconcileError> {
        let seen = self.leaving(cluster).await?;
        let namespace = cluster.namespace();
        match deletion_step(&seen) {
            DeletionStep::Gone => return Ok(StepOutcome::Deleted),
            DeletionStep::DeletePools(pools) => {
                for pool in pools {
                    let of = Collection::of::<NodePool>(namespace.as_deref());
                    gone(self.objects.delete(&of, &pool).await, "deleting a NodePool")?;
                }
            }
            DeletionStep::AwaitWorkers(left) => {
                return self.waits(cluster, &format!("workers go first: {}", left.join(", ")), WORKERS).await;
            }
            DeletionStep::Destroy => return self.destroy(cluster).await,
            DeletionStep::Release(address) => {
                kinds::delete(self.objects, &*address).await.attempting("giving an address back")?;
            }
            DeletionStep::Forget(machine) => self.forget(&machine).await?,
            DeletionStep::RemoveSecret(name) => self.remove_secret(cluster, &name).await?,
            DeletionStep::RemoveOperation(name) => {
                let of = Collection::of::<Operation>(namespace.as_deref());
                gone(self.objects.delete(&of, &name).await, "removing an Operation")?;
            }
            DeletionStep::AwaitOperations(left) => {
                let words = format!("finalizers that are not the controller's keep Operations: {}", left.join(", "));
                return self.waits(cluster, &words, WAITING).await;
            }
            DeletionStep::RemoveLease(number) => self.remove_lease(cluster, number).await?,
            DeletionStep::RemoveFinalizer => {
                // Logged before the finalizer is removed. If this fails, the next leader logs it again.
                what_is_left(cluster).iter().for_each(|words| log::warn!("{words}"));
                if let Err(error) = self.places.clears(cluster).await {
                    let name = cluster.name_any();
                    log::warn!("the snapshot of {name} that came before its last upgrade stays: {error:#}");
                }
                kinds::remove_finalizer(self.objects, cluster, CLUSTER_FINALIZER)
                    .await
                    .attempting("letting the cluster go")?;
                return Ok(StepOutcome::Deleted);
            }
        }
        Ok(StepOutcome::RequeueNow)
    }

    /// Reads the objects of the cluster.
    async fn leaving<'c>(&self, cluster: &'c TenantCluster) -> Result<DeletionInputs<'c>, ReconcileError> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let (machines, pools) = (self.machines(cluster).await?, self.pools(cluster).await?);
        let mut addresses: Vec<PoolAddress> = Vec::new();
        // Workers release their addresses themselves, before.
        if pools.is_empty() {
            for owner in machines.iter().map(|machine| &machine.metadata.uid).chain([&cluster.metadata.uid]) {
                addresses.extend(self.addresses_of(owner.as_deref()).await?);
            }
        }
        let of_cluster = Some((CLUSTER_REF, name.as_str()));
        let operations = kinds::list::<Operation>(self.objects, namespace.as_deref(), of_cluster).await;
        let operations = operations.attempting("looking for Operations")?;
        let is_going = |operation: &&Operation| operation.metadata.deletion_timestamp.is_some();
        let (held, there): (Vec<_>, Vec<_>) = operations.iter().partition(is_going);
        let names = |operations: Vec<&Operation>| operations.into_iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        Ok(DeletionInputs {
            cluster,
            pools,
            addresses,
            secrets: self.own_secrets(cluster).await?,
            operations: names(there),
            held_operations: names(held),
            holds: self.lease_numbers(cluster).await?,
            machines,
        })
    }

    /// Removes the control-plane nodes.
    async fn destroy(&self, cluster: &TenantCluster) -> Result<StepOutcome, ReconcileError> {
        let name = cluster.name_any();
        let Some(provider) = self.provider(cluster).await? else {
            let words =
                format!("its VMs are on the Provider {}, which is gone: make it again", cluster.spec.provider_ref.name);
            return self.report_blocked(cluster, &words).await;
        };
        let opened = match self.open(cluster, &provider, false).await {
            Ok(opened) => opened,
            // The vCenter may answer soon.
            Err(why) if unavailable(&why).reason == TenantClusterReason::PreflightNotKnown => {
                return self.waits(cluster, &why.to_string(), AWAITING).await;
            }
            Err(why) => return self.report_blocked(cluster, &why.to_string()).await,
        };
        let guests = self.guests(cluster, None);
        let words = |waits: &[Wait]| waits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        if let Some(seen) = self.seen(cluster, &opened, &*guests).await? {
            if !seen.looked {
                // It is unknown whether VMs are newer than the record.
                return self.waits(cluster, &words(&seen.waits), WAITING).await;
            }
            if let Some(words) = drifted(&seen.newer) {
                let words = format!("{words}: remove these in the vCenter, and the deletion goes on");
                self.note(cluster, &leaving_drifted(&words), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(AWAITING));
            }
        }
        self.note(cluster, &leaving("its control-plane nodes are removed"), |_| ()).await?;
        // Disks that no VM of the cluster has are not deleted. They are logged.
        let wish = Goal::Destroy { cluster: &name, disks: true, left: &[], doubtful: &[], held: &[], also: &[] };
        match self.run_deploy(cluster, &opened, &*guests, wish).await? {
            DeployResult::Arrived(RunOutcome::Paused(on), _) => self.waits(cluster, &words(&on), WAITING).await,
            DeployResult::Arrived(RunOutcome::Stopped(on), _) => self.report_blocked(cluster, &words(&on)).await,
            DeployResult::Arrived(RunOutcome::Gone, at) => {
                replicas_left(cluster, &at.replicas).iter().for_each(|words| log::warn!("{words}"));
                Ok(StepOutcome::RequeueNow)
            }
            DeployResult::Cancelled | DeployResult::Arrived(RunOutcome::Cancelled | RunOutcome::Up(_), _) => {
                Ok(StepOutcome::RequeueNow)
            }
            DeployResult::Refused(words) => self.report_blocked(cluster, &words).await,
        }
    }

    /// Writes the reason for the wait.
    async fn waits(&self, cluster: &TenantCluster, words: &str, rest: Duration) -> Result<StepOutcome, ReconcileError> {
        self.note(cluster, &leaving(words), |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(rest))
    }

    /// Writes what the operator has to do.
    async fn report_blocked(&self, cluster: &TenantCluster, words: &str) -> Result<StepOutcome, ReconcileError> {
        self.note(cluster, &leaving_stuck(words), |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(AWAITING))
    }
}

/// A missing object counts as deleted.
fn gone(removed: Result<(), Failure>, attempt: &str) -> Result<(), ReconcileError> {
    match removed {
        Err(Failure::Missing) => Ok(()),
        removed => removed.attempting(attempt),
    }
}
