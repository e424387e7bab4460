//! Writes the status of a cluster and of its control-plane nodes' Machines.

use fleet::control_plane::DeployStatus;
use kube::ResourceExt;

use super::Reconciler;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{CLUSTER, ClusterCondition, control_machine_status};
use crate::objects::{Machine, MachineRole, TenantCluster, TenantClusterStatus, set};
use crate::reach::{Failure, kinds};

/// The number of attempts of a write that conflicts with another one.
const TRIES: usize = 10;

impl Reconciler<'_> {
    /// Writes conditions, and other changes of the status. Without a change there is no request.
    pub(super) async fn note(
        &self,
        cluster: &TenantCluster,
        said: &[ClusterCondition],
        change: impl Fn(&mut TenantClusterStatus),
    ) -> Result<(), ReconcileError> {
        let mut now = cluster.clone();
        for attempt in 1.. {
            // With the generation that was judged: a newer one is judged later.
            let generation = cluster.metadata.generation.unwrap_or_default();
            let mut status = now.status.clone().unwrap_or_default();
            change(&mut status);
            for (reason, words) in said {
                set(&mut status.conditions, *reason, words, generation, &self.clock.time());
            }
            status.observed_generation = generation;
            match kinds::note(self.objects, &now, now.status.as_ref(), &status).await {
                Err(Failure::Changed) if attempt < TRIES => match self.find(cluster).await? {
                    Some(found) => now = found,
                    None => return Ok(()),
                },
                Err(Failure::Missing) => return Ok(()),
                written => return written.map(drop).attempting("writing the cluster's status"),
            }
        }
        Ok(())
    }

    /// The Machines that a cluster owns, of control-plane nodes and workers.
    pub(super) async fn machines(&self, cluster: &TenantCluster) -> Result<Vec<Machine>, ReconcileError> {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        let all = kinds::list::<Machine>(self.objects, namespace.as_deref(), Some((CLUSTER, &name))).await;
        let is_own = |machine: &Machine| {
            machine.owner_references().iter().any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref())
        };
        let all = all.attempting("looking for the cluster's Machines")?;
        Ok(all.into_iter().filter(|machine| is_own(machine)).collect())
    }

    pub(in crate::reconcilers) async fn control_machines(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Vec<Machine>, ReconcileError> {
        let all = self.machines(cluster).await?;
        Ok(all.into_iter().filter(|machine| machine.spec.role == MachineRole::ControlPlane).collect())
    }

    /// Writes the observed state of control-plane nodes to their Machines.
    pub(super) async fn show(&self, machines: &[Machine], seen: &DeployStatus) -> Result<(), ReconcileError> {
        for machine in machines {
            let status = control_machine_status(machine, seen, &self.clock.time());
            match kinds::note(self.objects, machine, machine.status.as_ref(), &status).await {
                // The next look writes it.
                Err(Failure::Changed | Failure::Missing) => {}
                written => written.map(drop).attempting("writing a Machine's status")?,
            }
        }
        Ok(())
    }
}
