//! Adopts VMs of control-plane nodes that are newer than the control cluster's database, once the operator asks for it. The nodes
//! report in which VM each of them runs, to the holder of the deployer's key. The record follows from that, and the resolved
//! image and size from what they run. An interrupted adoption is repeated: the record is written last.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use contract::deployer::Fingerprint;
use contract::minor::Minor;
use contract::node::Node;
use fleet::control_plane::{DeploymentRecord, Guests};
use fleet::hypervisor::{PowerState, Vm};
use kube::ResourceExt;

use super::super::Reconciler;
use super::super::operations::JUDGING;
use super::super::place::ProviderSession;
use super::words::shortened;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{adopted, left_prepared, may_cancel, pinned_as_run, superseded};
use crate::objects::{ControlPlaneSize, Deployment, Machine, NodeImage, TenantCluster};
use crate::reach::kinds;

/// The result of cancelling swaps that nodes have prepared, or failed to prepare.
pub(super) enum CancelResult {
    /// None is left.
    All,
    /// Swaps that were not cancelled, with the reason.
    Refused(String),
    /// It is unknown whether there are any, with the reason. The next look tries again.
    Waits(String),
    /// The desired state has changed, or the term is closing.
    Otherwise,
}

impl Reconciler<'_> {
    /// Adopts the VMs of control-plane nodes.
    ///
    /// # Errors
    /// Outer error: a call failed. Inner error, for the operator: why they cannot be adopted. Then nothing was written, but swaps
    /// of nodes that were ended stay so.
    pub(super) async fn adopts(
        &self,
        cluster: &TenantCluster,
        (deployment, machines): (&Deployment, &[Machine]),
        (opened, guests): (&ProviderSession, &dyn Guests),
    ) -> Result<Result<(), String>, ReconcileError> {
        let name = cluster.name_any();
        let proving = Box::pin(self.proved(cluster, &deployment.record, (opened, guests)));
        let (kept, vms, said) = match self.within(JUDGING, proving).await? {
            Some(Ok(proved)) => proved,
            Some(Err(error)) => return Ok(Err(format!("{error:#}"))),
            None => return Ok(Err(not_all_asked())),
        };
        let images = kinds::list::<NodeImage>(self.objects, None, None).await.attempting("looking for NodeImages")?;
        let run: Vec<_> = said.iter().map(|node| (node.node.clone(), node.image.clone())).collect();
        let sizes: Vec<_> = said.iter().map(|node| size_of(node, &vms)).collect();
        let resolved = match pinned_as_run(cluster, &run, &sizes, &images) {
            Ok(resolved) => resolved,
            Err(why) => return Ok(Err(why)),
        };
        let operations = self.operations(cluster).await?;
        let superseded = match superseded(&operations) {
            Ok(superseded) => superseded,
            Err(why) => return Ok(Err(why)),
        };
        let operator = self.upgrade_context(cluster, opened, guests, &kept).await?;
        match self.within(JUDGING, Box::pin(operator.ends_swaps(&said))).await? {
            Some(Ok(())) => {}
            Some(Err(error)) => return Ok(Err(format!("{error:#}"))),
            None => return Ok(Err(format!("swaps were not all ended within {} s", JUDGING.as_secs()))),
        }
        for swap in superseded {
            let removed = kinds::delete(self.objects, swap).await;
            removed.attempting("removing an Operation that the VMs are ahead of")?;
        }
        self.pin(cluster, machines, &resolved, None).await?;
        let minors: BTreeSet<Option<Minor>> = said.iter().map(|node| Minor::of(&node.kubernetes.version)).collect();
        if let (Some(Some(minor)), 1) = (minors.first().copied(), minors.len()) {
            self.pin_minor(&self.control_machines(cluster).await?, minor).await?;
        }
        let deployment = Deployment { lease: deployment.lease, record: kept.clone() };
        self.note(cluster, &[], |status| status.deployment = Some(deployment.clone())).await?;
        log::info!("{name}: the VMs of its control-plane nodes were adopted");
        Ok(Ok(()))
    }

    /// Cancels swaps that control-plane nodes have prepared, are preparing, or failed to prepare, if no Operation can end them.
    pub(super) async fn cancels_prepared(
        &self,
        cluster: &TenantCluster,
        deployment: &Deployment,
        (opened, guests): (&ProviderSession, &dyn Guests),
    ) -> Result<CancelResult, ReconcileError> {
        let name = cluster.name_any();
        let kept = &deployment.record;
        if !kept.formed {
            // No swap begins before.
            return Ok(CancelResult::All);
        }
        let operator = self.upgrade_context(cluster, opened, guests, kept).await?;
        let asking = Box::pin(async {
            let vms = opened.hypervisor.vms().await?;
            let said = operator.told(&vms).await;
            anyhow::Ok((vms, said))
        });
        // A change of the desired state ends the wait for a silent node.
        let asked = tokio::select! {
            asked = self.within(JUDGING, asking) => asked?,
            () = self.until_superseded(cluster) => return Ok(CancelResult::Otherwise),
        };
        let (vms, said) = match asked {
            Some(Ok(told)) => told,
            Some(Err(error)) => return Ok(CancelResult::Waits(format!("looking for VMs: {error:#}"))),
            None => return Ok(CancelResult::Waits(not_all_asked())),
        };
        let (mut told, mut silent) = (Vec::new(), Vec::new());
        for said in said {
            match said {
                Ok(node) => told.push(node),
                Err(error) => silent.push(shortened(&format!("{error:#}"))),
            }
        }
        if !silent.is_empty() {
            let silent = silent.join("; ");
            return Ok(CancelResult::Waits(format!(
                "not all control-plane nodes say what they are ready for: {silent}"
            )));
        }
        let left = left_prepared(told, &self.operations(cluster).await?);
        let Some(words) = may_cancel(&left, &vms, cluster) else { return Ok(CancelResult::All) };
        let why = match self.within(JUDGING, Box::pin(operator.ends_swaps(&left))).await? {
            Some(Ok(())) => {
                log::warn!("{name}: it is cancelled at the operator's request: {words}");
                return Ok(CancelResult::All);
            }
            Some(Err(error)) => format!("{error:#}"),
            None => not_all_asked(),
        };
        Ok(CancelResult::Refused(format!("{words}. It is not cancelled yet: {why}")))
    }

    /// The record of control-plane nodes in the existing VMs, these VMs, and the report of each node, which must name its VM.
    async fn proved(
        &self,
        cluster: &TenantCluster,
        kept: &DeploymentRecord,
        (opened, guests): (&ProviderSession, &dyn Guests),
    ) -> anyhow::Result<(DeploymentRecord, Vec<Vm>, Vec<Node>)> {
        let vms = opened.hypervisor.vms().await?;
        let adopted = adopted(kept, &vms).map_err(anyhow::Error::msg)?;
        let authority = shown(opened, &adopted, &vms).await?;
        let adopted = DeploymentRecord { ca_fingerprint: Some(authority), ..adopted };
        let said = {
            let operator =
                self.upgrade_context(cluster, opened, guests, &adopted).await.map_err(anyhow::Error::from)?;
            operator.proved(&vms).await?
        };
        Ok((adopted, vms, said))
    }
}

/// The CA that the VMs of all running nodes show. It must be that with which the cluster has formed, if that is recorded.
async fn shown(opened: &ProviderSession, kept: &DeploymentRecord, vms: &[Vm]) -> anyhow::Result<Fingerprint> {
    let mut all = BTreeSet::new();
    let runs = |vm: &&Vm| vm.power == PowerState::On && kept.nodes.iter().any(|node| node.bios_uuid == Some(vm.uuid()));
    for vm in vms.iter().filter(runs) {
        let shown = opened.hypervisor.fingerprints(&vm.reference).await?;
        all.insert(shown.with_context(|| format!("{vm} shows no cluster yet"))?.ca);
    }
    ensure!(all.len() == 1, "the VMs of its control-plane nodes show {} different CAs", all.len());
    let shown = all.into_iter().next().context("there is no VM of a control-plane node")?;
    ensure!(
        kept.ca_fingerprint.is_none_or(|noted| noted == shown),
        "the VMs of its control-plane nodes show the CA {shown}, and the cluster has formed with another one"
    );
    Ok(shown)
}

fn not_all_asked() -> String {
    format!("the control-plane nodes were not all asked within {} s", JUDGING.as_secs())
}

/// The size of a node's VM.
fn size_of(node: &Node, vms: &[Vm]) -> Option<ControlPlaneSize> {
    let size = vms.iter().find(|vm| vm.is_named(node.holder))?.size?;
    Some(ControlPlaneSize { processors: size.processors, memory_mib: u32::try_from(size.memory).ok()? })
}
