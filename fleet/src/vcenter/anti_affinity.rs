//! A rule of the cluster that keeps the deployment's VMs on different hosts. It is created and updated before a VM is
//! powered on. A VM is removed from the rule before it is destroyed or given up. The rule is deleted when one VM would
//! be left.
//!
//! The rule is optional: a cluster with too few hosts, or with a conflicting rule, may refuse it. The refusal is
//! logged. It blocks no power-on and no removal.

use std::collections::BTreeMap;

use vsphere::MoRef;

use super::VcenterHypervisor;
use super::trouble::granted;
use crate::hypervisor::{Error, ErrorKind, Fence, Result};

impl VcenterHypervisor {
    /// The rule's name, which vSphere Client shows.
    fn rule(&self) -> String {
        format!("kaas-{}: on different hosts", self.deployment)
    }

    /// Puts all VMs of the deployment in this VM's cluster into the rule, if the rule is wanted and there are two.
    pub(super) async fn keep_apart(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        match self.try_keep_apart(vm, permit).await {
            Err(error) if error.kind != ErrorKind::Fenced => {
                let why = self.unkept(vm, &error).await;
                granted(Err(Error::new(error.kind, anyhow::anyhow!(why))), &self.rule_words())
            }
            kept => kept,
        }
    }

    async fn try_keep_apart(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        let Some(cluster) = self.ruled_cluster_of(vm).await? else { return Ok(()) };
        let vms = self.own_in(&cluster).await?;
        if vms.len() > 1 {
            self.client.changes(&permit).keep_apart(&cluster, &self.rule(), &vms).await?;
        }
        Ok(())
    }

    fn rule_words(&self) -> String {
        format!("the rule {:?}", self.rule())
    }

    /// The reason for the refusal, with the cluster's hosts.
    async fn unkept(&self, vm: &vsphere::Vm, error: &Error) -> String {
        let hosts = async {
            let Some(cluster) = self.cluster_of(vm).await? else { return Ok(Vec::new()) };
            let hosts = self.client.look(&cluster, &["host"]).await?.references_at("host");
            Result::Ok(self.client.hosts(&hosts).await?)
        };
        unkept(hosts.await.unwrap_or_default().iter().map(|host| (host.name.as_str(), host.takes_vms())), error)
    }

    /// Removes a VM from the rule before it is destroyed or given up. If one VM is left, the rule is deleted: it needs
    /// two. If vCenter refuses, it still removes a destroyed VM by itself. A VM that was given up leaves the rule at
    /// its next update.
    pub(super) async fn let_go(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        granted(self.try_let_go(vm, permit).await, &format!("{} without {}", self.rule_words(), vm.name))
    }

    async fn try_let_go(&self, vm: &vsphere::Vm, permit: &dyn Fence) -> Result<()> {
        let Some(cluster) = self.ruled_cluster_of(vm).await? else { return Ok(()) };
        let mut others = self.own_in(&cluster).await?;
        others.retain(|own| *own != vm.reference);
        let changes = self.client.changes(&permit);
        if others.len() > 1 {
            changes.keep_apart(&cluster, &self.rule(), &others).await?;
        } else {
            changes.remove_rule(&cluster, &self.rule()).await?;
        }
        Ok(())
    }

    /// The deployment's VMs that run on hosts of a cluster. vCenter refuses the whole rule if it contains any other VM.
    async fn own_in(&self, cluster: &MoRef) -> Result<Vec<MoRef>> {
        let (mut clusters, mut found) = (BTreeMap::new(), Vec::new());
        for vm in self.all_own().await? {
            // A VM runs on the hosts of its pool's owner.
            let Some(pool) = &vm.pool else { continue };
            if !clusters.contains_key(pool) {
                clusters.insert(pool.clone(), self.cluster_over(pool).await?);
            }
            if clusters[pool].as_ref() == Some(cluster) {
                found.push(vm.reference);
            }
        }
        Ok(found)
    }

    /// The cluster whose settings apply to a VM. `None` if its host is in no cluster.
    pub(super) async fn cluster_of(&self, vm: &vsphere::Vm) -> Result<Option<MoRef>> {
        let Some(pool) = &vm.pool else { return Ok(None) };
        Ok(self.cluster_over(pool).await?)
    }

    /// The cluster that a resource pool belongs to. `None` for the pool of a single host.
    pub(super) async fn cluster_over(&self, pool: &MoRef) -> vsphere::Result<Option<MoRef>> {
        let owner = self.client.look(pool, &["owner"]).await?.reference_at("owner");
        Ok(owner.filter(|owner| owner.kind == "ClusterComputeResource"))
    }

    /// As [`Self::cluster_of`], but `None` if no rule is wanted.
    async fn ruled_cluster_of(&self, vm: &vsphere::Vm) -> Result<Option<MoRef>> {
        if self.places.different_hosts { self.cluster_of(vm).await } else { Ok(None) }
    }
}

/// vCenter's reason, and the hosts that could separate the VMs, each with whether it takes VMs now.
fn unkept<'h>(hosts: impl Iterator<Item = (&'h str, bool)>, error: &Error) -> String {
    let mut hosts: Vec<String> =
        hosts.map(|(name, able)| format!("{name}{}", if able { "" } else { " (takes no VMs now)" })).collect();
    hosts.sort();
    let hosts = if hosts.is_empty() { "not known".to_owned() } else { hosts.join(", ") };
    format!("{error}; the cluster's hosts: {hosts}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_rule_is_reported_with_the_hosts() {
        let error = Error::transient(anyhow::anyhow!("RuleViolation"));
        let told = unkept([("b", false), ("a", true)].into_iter(), &error);
        assert_eq!(told, "RuleViolation; the cluster's hosts: a, b (takes no VMs now)");
        assert_eq!(unkept(std::iter::empty(), &error), "RuleViolation; the cluster's hosts: not known");
    }
}
