//! Workers whose VMs are newer than the control cluster's database are taken as they are, by a person's word to their cluster: each has a
//! Machine and its address again. What is not written to the end is done again: until its Machine says so a VM stays newer.

use std::net::Ipv4Addr;

use fleet::hypervisor::Vm;
use kube::ResourceExt;

use super::{Known, PoolWork};
use crate::context::{Attempt, Trouble};
use crate::decisions::{AdoptedWorker, adopted_workers, claimant, claimed};
use crate::objects::{IPAddress, Machine, NodePool, Reason as _, TenantCluster, TenantClusterReason};
use crate::reach::{Failure, kinds};

impl PoolWork<'_> {
    /// Takes workers as they are in these VMs.
    ///
    /// # Errors
    /// The inner one, in words: which cannot be taken. The others are.
    pub(super) async fn adopts(
        &self,
        pool: &NodePool,
        known: &Known,
        newer: &[Vm],
    ) -> Result<Result<(), String>, Trouble> {
        if known.goes || pool.metadata.deletion_timestamp.is_some() {
            return Ok(Err("the pool is being deleted: remove them in the vCenter, and it goes on".to_owned()));
        }
        if has_drifted(&known.cluster) {
            return Ok(Err("the control nodes of its cluster come first".to_owned()));
        }
        let nodes = match known.api.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => return Ok(Err(format!("asking the cluster for its nodes: {error:#}"))),
        };
        self.0.term.may()?;
        let (workers, mut refused) = adopted_workers(&pool.name_any(), newer, &nodes);
        for worker in workers {
            if let Err(why) = self.adopts_one(&worker, known).await? {
                refused.push(why);
            }
        }
        Ok(if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) })
    }

    async fn adopts_one(&self, worker: &AdoptedWorker, known: &Known) -> Result<Result<(), String>, Trouble> {
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
                // Its own, as it was looked at; or somebody has taken it just now, which the next look says.
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

    /// The address that a worker has, if nobody else is said to have it; none where it asks for one by DHCP.
    async fn is_to_have(
        &self,
        worker: &AdoptedWorker,
        machine: Option<&Machine>,
        known: &Known,
    ) -> Result<Result<Option<Ipv4Addr>, String>, Trouble> {
        if known.addresses.is_none() {
            return Ok(Ok(None));
        }
        let Some(address) = worker.address else {
            return Ok(Err(format!("the cluster does not say which address {} has", worker.name)));
        };
        let all = kinds::list::<IPAddress>(self.0.objects, None, None).await.attempting("looking for IPAddresses")?;
        let own = machine.and_then(|machine| machine.metadata.uid.as_ref());
        let text = address.to_string();
        let other = all.into_iter().find(|it| it.spec.address == text && Some(&it.spec.claimant.uid) != own);
        Ok(match other {
            Some(other) => {
                Err(format!("{} has the address {text}, which is {}'s by now", worker.name, other.spec.claimant.name))
            }
            None => Ok(Some(address)),
        })
    }
}

/// Whether control nodes of a cluster are newer than the database, as it says itself.
fn has_drifted(cluster: &TenantCluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let reason = TenantClusterReason::Drifted;
    let mut conditions = conditions.filter(|condition| condition.about == reason.condition());
    conditions.any(|condition| condition.reason == reason.word())
}
