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
use crate::context::{Attempt, Halt};
use crate::decisions::{AdoptedWorker, Evidence, adopted_workers, claimant, claimed, gives_out};
use crate::objects::{Machine, NodePool, Reason as _, TenantCluster, TenantClusterReason};
use crate::reach::{Failure, claim, kinds};

impl PoolReconciler<'_> {
    /// Adopts the workers in these VMs.
    ///
    /// # Errors
    /// The workers that cannot be adopted. The others are adopted.
    pub(super) async fn adopts(
        &self,
        pool: &NodePool,
        known: &PoolContext,
        (hypervisor, newer): (&dyn Hypervisor, &[Vm]),
    ) -> Result<(), Halt<String>> {
        if known.goes || pool.metadata.deletion_timestamp.is_some() {
            return refused("the pool is being deleted: remove them in the vCenter, and the deletion continues");
        }
        if has_drifted(&known.cluster) {
            return refused("the control-plane nodes of its cluster come first");
        }
        let nodes = match known.api.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => return refused(format!("asking the cluster for its nodes: {error:#}")),
        };
        let witnesses = match gather_evidence(&*known.api, hypervisor, newer, &nodes).await {
            Ok(witnesses) => witnesses,
            Err(error) => return refused(format!("asking the cluster which workers it has admitted: {error:#}")),
        };
        self.0.term.ensure_active()?;
        let (workers, mut not_adopted) = adopted_workers(&pool.name_any(), newer, &nodes, &witnesses);
        for worker in workers {
            match self.adopts_one(&worker, known).await {
                Err(Halt::Refused(why)) => not_adopted.push(why),
                adopted => adopted?,
            }
        }
        if not_adopted.is_empty() { Ok(()) } else { refused(not_adopted.join("; ")) }
    }

    async fn adopts_one(&self, worker: &AdoptedWorker, known: &PoolContext) -> Result<(), Halt<String>> {
        let (objects, namespace) = (self.0.objects, known.like.namespace());
        let there = kinds::find::<Machine>(objects, namespace.as_deref(), &worker.name).await;
        let there = there.attempting("looking for a Machine")?;
        if let Some(other) = there.as_ref().filter(|there| !worker.may_have(there)) {
            let name = other.name_any();
            return refused(format!("there is a Machine {name} of another VM than {}: delete one of both", worker.vm));
        }
        let address = self.is_to_have(worker, there.as_ref(), known).await?;
        let machine = match there {
            Some(there) => there,
            None => {
                let made = kinds::create(objects, &worker.machine(&known.like, &known.provider)).await;
                made.attempting("making the Machine of a worker that is adopted")?
            }
        };
        if let (Some(address), Some(addresses)) = (address, &known.addresses) {
            let claimed = claimed(&addresses.name_any(), address, claimant(&machine));
            match claim(objects, &claimed).await {
                // Its own claim from before, or one that another claimant has just made. The next check decides.
                Ok(()) | Err(Failure::Exists) => {}
                Err(failure) => Err(failure).attempting("claiming the address of a worker that is adopted")?,
            }
            self.is_to_have(worker, Some(&machine), known).await?;
        }
        let status = worker.status(&machine, address, &self.0.clock.time());
        let noted = kinds::note(objects, &machine, machine.status.as_ref(), &status).await;
        noted.attempting("noting a worker that is adopted")?;
        log::info!("{}: its VM {} was adopted", worker.name, worker.vm);
        Ok(())
    }

    /// The address that a worker was given, if its pool contains it and no other claimant has it. `None` with DHCP.
    async fn is_to_have(
        &self,
        worker: &AdoptedWorker,
        machine: Option<&Machine>,
        known: &PoolContext,
    ) -> Result<Option<Ipv4Addr>, Halt<String>> {
        let Some(addresses) = &known.addresses else { return Ok(None) };
        let Some(address) = worker.address else {
            return refused(format!("the form of the VM of {} does not say which address it has", worker.name));
        };
        match gives_out(&addresses.spec, address) {
            Ok(true) => {}
            Ok(false) => {
                return refused(format!(
                    "{} was given the address {address}, which the IPPool {} does not give out: it is in no range, or reserved",
                    worker.name,
                    addresses.name_any()
                ));
            }
            Err(error) => return refused(format!("the IPPool {}: {error}", addresses.name_any())),
        }
        let all = self.0.objects.in_use(None).await.attempting("looking for PoolAddresses")?;
        let own = machine.and_then(|machine| machine.metadata.uid.as_ref());
        let text = address.to_string();
        let other = all.specs().find(|it| it.address == text && Some(&it.claimant.uid) != own);
        let Some(other) = other else { return Ok(Some(address)) };
        // Names in other namespaces are not shown.
        let is_near = other.claimant.namespace == known.like.namespace().unwrap_or_default();
        let whose = if is_near { other.claimant.name.as_str() } else { "a claimant in another namespace" };
        refused(format!("{} has the address {text}, which is now taken by {whose}", worker.name))
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, Halt<String>> {
    Err(Halt::Refused(why.into()))
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
