//! Adopts workers whose VMs are newer than the control cluster's database, once the operator asks for it in their cluster. Each
//! gets a Machine and its address again. An interrupted adoption is repeated: a VM counts as newer until its Machine's status
//! names it.

use std::net::Ipv4Addr;

use contract::properties as keys;
use fleet::hypervisor::{Hypervisor, Vm};
use fleet::workers::{Cluster, NodeSeen};
use kube::ResourceExt;

use super::PoolReconciler;
use super::pool_context::PoolContext;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{AdoptedWorker, Evidence, adopted_workers, claimant, claimed, gives_out};
use crate::objects::{Machine, NodePool, Reason as _, TenantCluster, TenantClusterReason};
use crate::reach::{Failure, kinds};

impl PoolReconciler<'_> {
    /// Adopts the workers in these VMs.
    ///
    /// # Errors
    /// Outer error: a call failed. Inner error, for the operator: the workers that cannot be adopted. The others are adopted.
    pub(super) async fn adopts(
        &self,
        pool: &NodePool,
        known: &PoolContext,
        (hypervisor, newer): (&dyn Hypervisor, &[Vm]),
    ) -> Result<Result<(), String>, ReconcileError> {
        if known.goes || pool.metadata.deletion_timestamp.is_some() {
            return Ok(Err("the pool is being deleted: remove them in the vCenter, and it goes on".to_owned()));
        }
        if has_drifted(&known.cluster) {
            return Ok(Err("the control-plane nodes of its cluster come first".to_owned()));
        }
        let nodes = match known.api.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => return Ok(Err(format!("asking the cluster for its nodes: {error:#}"))),
        };
        let witnesses = match gather_evidence(&*known.api, hypervisor, newer, &nodes).await {
            Ok(witnesses) => witnesses,
            Err(error) => return Ok(Err(format!("asking the cluster which workers it has admitted: {error:#}"))),
        };
        self.0.term.ensure_active()?;
        let (workers, mut refused) = adopted_workers(&pool.name_any(), newer, &nodes, &witnesses);
        for worker in workers {
            if let Err(why) = self.adopts_one(&worker, known).await? {
                refused.push(why);
            }
        }
        Ok(if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) })
    }

    async fn adopts_one(
        &self,
        worker: &AdoptedWorker,
        known: &PoolContext,
    ) -> Result<Result<(), String>, ReconcileError> {
        let (objects, namespace) = (self.0.objects, known.like.namespace());
        let there = kinds::find::<Machine>(objects, namespace.as_deref(), &worker.name).await;
        let there = there.attempting("looking for a Machine")?;
        if let Some(other) = there.as_ref().filter(|there| !worker.may_have(there)) {
            return Ok(Err(format!(
                "there is a Machine {} of another VM than {}: delete one of both",
                other.name_any(),
                worker.vm
            )));
        }
        let address = match self.is_to_have(worker, there.as_ref(), known).await? {
            Ok(address) => address,
            Err(why) => return Ok(Err(why)),
        };
        let machine = match there {
            Some(there) => there,
            None => {
                let made = kinds::create(objects, &worker.machine(&known.like, &known.provider)).await;
                made.attempting("making the Machine of a worker that is adopted")?
            }
        };
        if let (Some(address), Some(addresses)) = (address, &known.addresses) {
            let claim = claimed(&addresses.name_any(), address, claimant(&machine));
            match kinds::create(objects, &claim).await {
                // Its own claim from before, or one that another claimant has just made. The next check decides.
                Ok(_) | Err(Failure::Exists) => {}
                Err(failure) => return Err(failure).attempting("claiming the address of a worker that is adopted"),
            }
            if let Err(why) = self.is_to_have(worker, Some(&machine), known).await? {
                return Ok(Err(why));
            }
        }
        let status = worker.status(&machine, address, &self.0.clock.time());
        let noted = kinds::note(objects, &machine, machine.status.as_ref(), &status).await;
        noted.attempting("noting a worker that is adopted")?;
        log::info!("{}: its VM {} was adopted", worker.name, worker.vm);
        Ok(Ok(()))
    }

    /// The address that a worker was given, if its pool contains it and no other claimant has it. `None` with DHCP.
    async fn is_to_have(
        &self,
        worker: &AdoptedWorker,
        machine: Option<&Machine>,
        known: &PoolContext,
    ) -> Result<Result<Option<Ipv4Addr>, String>, ReconcileError> {
        let Some(addresses) = &known.addresses else { return Ok(Ok(None)) };
        let Some(address) = worker.address else {
            return Ok(Err(format!("the form of the VM of {} does not say which address it has", worker.name)));
        };
        match gives_out(&addresses.spec, address) {
            Ok(true) => {}
            Ok(false) => {
                return Ok(Err(format!(
                    "{} was given the address {address}, which the IPPool {} does not give out: it is in no range, or reserved",
                    worker.name,
                    addresses.name_any()
                )));
            }
            Err(error) => return Ok(Err(format!("the IPPool {}: {error}", addresses.name_any()))),
        }
        let all = self.0.objects.in_use(None).await.attempting("looking for PoolAddresses")?;
        let own = machine.and_then(|machine| machine.metadata.uid.as_ref());
        let text = address.to_string();
        let other = all.specs().find(|it| it.address == text && Some(&it.claimant.uid) != own);
        Ok(match other {
            Some(other) => {
                let claimant = &other.claimant;
                // Names in other namespaces are not shown.
                let is_near = claimant.namespace == known.like.namespace().unwrap_or_default();
                let whose = if is_near { claimant.name.as_str() } else { "a claimant in another namespace" };
                Err(format!("{} has the address {text}, which is now taken by {whose}", worker.name))
            }
            None => Ok(Some(address)),
        })
    }
}

/// Reads the evidence about these VMs from hypervisor and cluster. A VM that cannot be read has no evidence.
async fn gather_evidence(
    api: &dyn Cluster,
    hypervisor: &dyn Hypervisor,
    newer: &[Vm],
    nodes: &[NodeSeen],
) -> anyhow::Result<Evidence> {
    let stamped = |name: &str| newer.iter().any(|vm| vm.stamp.as_ref().is_some_and(|stamp| stamp.node == name));
    let own: Vec<&NodeSeen> = nodes.iter().filter(|node| stamped(&node.name)).collect();
    let mut witnesses = Evidence { admitted_keys: api.let_in(&own).await?, ..Evidence::default() };
    for vm in newer {
        match hypervisor.property(&vm.reference, keys::ADDRESS).await {
            Ok(given) => witnesses.given.extend(given.map(|given| (vm.uuid(), given))),
            Err(error) => log::debug!("asking for the form of {vm}: {error}"),
        }
        match hypervisor.statement(&vm.reference).await {
            Ok(said) => witnesses.said.extend(said.map(|said| (vm.uuid(), said))),
            Err(error) => log::debug!("asking what {vm} says: {error}"),
        }
    }
    Ok(witnesses)
}

/// Whether the condition of the cluster says that its control-plane nodes are newer than the database.
fn has_drifted(cluster: &TenantCluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let reason = TenantClusterReason::AdoptionRequired;
    let mut conditions = conditions.filter(|condition| condition.about == reason.condition());
    conditions.any(|condition| condition.reason == reason.word())
}
