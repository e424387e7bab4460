//! Deletes a cluster: its pools, its control-plane nodes, and then all its other objects. It reads only what it needs: without
//! VMs no Provider, and never an image, a class, a pool of addresses or a key.
//!
//! Data disks remain if they are not the cluster's own or their deletion was not confirmed, and so do copies of its VMs. No object names
//! them afterwards, so they are logged.

use std::time::Duration;

use fleet::control_plane::{Goal, LeftVm, RunOutcome, left_in_words};
use kube::ResourceExt;

use super::fleet_run::DeployResult;
use super::own_nodes::ClusterAccess;
use super::place::unavailable;
use super::{Reconciler, Round, STUCK, StepOutcome, WAITING};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{CLUSTER_FINALIZER, DeletionInputs, DeletionStep, deletion_step, drifted, joined, leaving};
use crate::objects::{Deployment, NodePool, Operation, PoolAddress, TenantCluster, TenantClusterReason};
use crate::reach::{Collection, Failure, kinds, remove_used_namespace};

const WORKERS: Duration = Duration::from_secs(10);

impl Reconciler<'_> {
    /// Runs the next step:
    ///
    /// 1. Resolve: reads the cluster's pools, Machines, addresses, Secrets, Operations and leases.
    /// 2. Plan: decides the next step ([`deletion_step`]).
    /// 3. Run: deletes one thing. Control-plane nodes are removed by a run of `fleet` ([`Self::destroy`]).
    /// 4. Report: if something delays the deletion, the status says so.
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
                // The object alone is left. A controller that dies in between continues here.
                let listed = remove_used_namespace(self.objects, cluster).await;
                listed.attempting("removing the namespace from the list of those in use")?;
                kinds::remove_finalizer(self.objects, cluster, CLUSTER_FINALIZER)
                    .await
                    .attempting("letting the cluster go")?;
                return Ok(StepOutcome::Deleted);
            }
        }
        Ok(StepOutcome::RequeueNow)
    }

    async fn leaving<'c>(&self, cluster: &'c TenantCluster) -> Result<DeletionInputs<'c>, ReconcileError> {
        let (machines, pools) = (self.machines(cluster).await?, self.pools(cluster).await?);
        let mut addresses: Vec<PoolAddress> = Vec::new();
        // Workers release their addresses themselves, before.
        if pools.is_empty() {
            for owner in machines.iter().map(|machine| &machine.metadata.uid).chain([&cluster.metadata.uid]) {
                addresses.extend(self.addresses_of(owner.as_deref()).await?);
            }
        }
        let operations = self.operations(cluster).await?;
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
                return self.waits(cluster, &why.to_string(), STUCK).await;
            }
            Err(why) => return self.report_blocked(cluster, &why.to_string()).await,
        };
        let guests = self.guests(cluster, None);
        // The removal reads no Machines.
        let round = Round {
            reconciler: *self,
            cluster,
            machines: &[],
            opened: &opened,
            guests: &guests,
            access: &ClusterAccess::default(),
        };
        if let Some(seen) = round.seen().await? {
            if !seen.looked {
                // It is unknown whether VMs are newer than the record.
                return self.waits(cluster, &joined(&seen.waits), WAITING).await;
            }
            if let Some(words) = drifted(&seen.newer) {
                let words = format!("{words}: remove these in the vCenter, and the deletion continues");
                self.note(cluster, &leaving(TenantClusterReason::AdoptionRequired, &words), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(STUCK));
            }
        }
        self.note(cluster, &leaving(TenantClusterReason::Deleting, "its control-plane nodes are removed"), |_| ())
            .await?;
        // Disks that no VM of the cluster has are not deleted. They are logged.
        let wish = Goal::Destroy { cluster: &name, disks: true, left: &[], doubtful: &[], held: &[], also: &[] };
        match round.run_deploy(wish).await? {
            DeployResult::Arrived(RunOutcome::Paused(on), _) => self.waits(cluster, &joined(&on), WAITING).await,
            DeployResult::Arrived(RunOutcome::Stopped(on), _) => self.report_blocked(cluster, &joined(&on)).await,
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

    async fn waits(&self, cluster: &TenantCluster, words: &str, rest: Duration) -> Result<StepOutcome, ReconcileError> {
        self.note(cluster, &leaving(TenantClusterReason::Deleting, words), |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(rest))
    }

    /// Writes what the operator has to do.
    pub(super) async fn report_blocked(
        &self,
        cluster: &TenantCluster,
        words: &str,
    ) -> Result<StepOutcome, ReconcileError> {
        self.note(cluster, &leaving(TenantClusterReason::Blocked, words), |_| ()).await?;
        Ok(StepOutcome::RequeueAfter(STUCK))
    }
}

/// A missing object counts as deleted.
fn gone(removed: Result<(), Failure>, attempt: &str) -> Result<(), ReconcileError> {
    match removed {
        Err(Failure::Missing) => Ok(()),
        removed => removed.attempting(attempt),
    }
}

/// A log line for each of these disks, from the record in the cluster's status.
fn what_is_left(cluster: &TenantCluster) -> Vec<String> {
    let Some(Deployment { record: kept, .. }) = cluster.deployment() else { return Vec::new() };
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let said = kept.retained_disks.iter().map(|disk| {
        let words = left_in_words(disk, kept.requested_disk_deletions.contains(&disk.uuid));
        format!("{namespace}/{name}: left: {words}")
    });
    said.collect()
}

/// A log line for each copy of a control-plane node's VM that the removal found: it contains the cluster's Secrets. Copies are
/// not recorded, so the caller that removed the VMs logs them.
fn replicas_left(cluster: &TenantCluster, replicas: &[LeftVm]) -> Vec<String> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    replicas.iter().map(|vm| format!("{namespace}/{name}: left: {vm}")).collect()
}

#[cfg(test)]
mod tests {
    use fleet::hypervisor::VmRef;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::decisions::fixture::cluster;
    use crate::objects::TenantClusterStatus;

    #[test]
    fn an_unconfirmed_deletion_is_mentioned() {
        let [there, doubtful] = ["4", "5"].map(|digit| format!("00000000-0000-0000-0000-00000000000{digit}"));
        let deployment = json!({
            "lease": 1, "cluster": "shop", "lifecycle": "Deleted", "image": {"name": "kaas-tenant 0.2.0"},
            "retainedDisks": [{"uuid": there, "path": "[ds] 4.vmdk"}, {"uuid": doubtful, "path": "[ds] 5.vmdk"}],
            "requestedDiskDeletions": [doubtful],
        });
        let deployment = Some(serde_json::from_value(deployment).unwrap());
        let mut cluster = cluster();
        assert_eq!(what_is_left(&cluster), [""; 0]);
        cluster.metadata.namespace = Some("tenants".to_owned());
        cluster.status = Some(TenantClusterStatus { deployment, ..TenantClusterStatus::default() });
        let said = what_is_left(&cluster);
        assert_eq!(said[0], format!("tenants/shop: left: the data disk {there} at [ds] 4.vmdk"));
        assert!(said[1].contains(&doubtful) && said[1].contains("its removal was asked for"), "{said:?}");
        assert_eq!(said.len(), 2);
    }

    #[test]
    fn a_copy_of_a_vm_is_named() {
        let vm = VmRef { uuid: Uuid::from_u128(5), id: "vm-5".to_owned() };
        let mut cluster = cluster();
        cluster.metadata.namespace = Some("tenants".to_owned());
        assert_eq!(replicas_left(&cluster, &[]), [""; 0]);
        let said = replicas_left(&cluster, &[LeftVm { name: "shop-cp1-replica".to_owned(), vm }]);
        assert!(said[0].starts_with("tenants/shop: left: the VM shop-cp1-replica ("), "{said:?}");
        assert!(said[0].contains("vm-5") && said.len() == 1, "{said:?}");
    }
}
