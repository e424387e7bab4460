//! Adopts VMs of control-plane nodes that are newer than the control cluster's database, once the operator asks for it. The nodes
//! report in which VM each of them runs, to the holder of the deployer's key. The record follows from that, and the resolved
//! image and size from what they run. An interrupted adoption is repeated: the record is written last.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use contract::bios_uuid::BiosUuid;
use contract::deployer::Fingerprint;
use contract::minor::Minor;
use contract::node::Node;
use contract::swap::{Rejection, Stage};
use fleet::control_plane::DeploymentRecord;
use fleet::hypervisor::{PowerState, Vm};
use fleet::upgrade::{Asked, NodeRequest, Nodes};
use futures_util::future::join_all;
use kube::ResourceExt;

use super::drift::{CancelResult, shortened};
use super::place::ProviderSession;
use super::upgrade::UpgradeContext;
use super::{JUDGING, Round};
use crate::context::{Attempt, Halt, ReconcileError};
use crate::decisions::{adopted, is_lost, left_prepared, may_cancel, pinned_as_run, power_of, superseded};
use crate::objects::{ControlPlaneSize, Deployment};
use crate::reach::kinds;

/// The limit for a node's report.
const ANSWERS: Duration = Duration::from_secs(30);

impl Round<'_> {
    /// Adopts the VMs of control-plane nodes.
    ///
    /// # Errors
    /// Why they cannot be adopted. Then nothing was written, but swaps of nodes that were ended stay so.
    pub(super) async fn adopt_nodes(&self) -> Result<(), Halt<String>> {
        let cluster = self.cluster;
        let proving = Box::pin(self.proved(self.record()?));
        let (kept, vms, said) = match self.within(JUDGING, proving).await? {
            Some(Ok(proved)) => proved,
            Some(Err(error)) => return Err(Halt::Refused(format!("{error:#}"))),
            None => return Err(Halt::Refused(not_all_asked())),
        };
        let images = self.images(cluster).await?;
        let run: Vec<_> = said.iter().map(|node| (node.node.clone(), node.image.clone())).collect();
        let sizes: Vec<_> = said.iter().map(|node| size_of(node, &vms)).collect();
        let resolved = pinned_as_run(cluster, &run, &sizes, &images).map_err(Halt::Refused)?;
        let operations = self.operations(cluster).await?;
        let superseded = superseded(&operations).map_err(Halt::Refused)?;
        let upgrade = self.upgrade_context(&kept).await?;
        match self.within(JUDGING, Box::pin(upgrade.ends_swaps(&said))).await? {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(Halt::Refused(format!("{error:#}"))),
            None => return Err(Halt::Refused(format!("swaps were not all ended within {} s", JUDGING.as_secs()))),
        }
        for swap in superseded {
            let removed = kinds::delete(self.objects, swap).await;
            removed.attempting("removing an Operation that the VMs are ahead of")?;
        }
        self.pin(&resolved, None).await?;
        let minors: BTreeSet<Option<Minor>> = said.iter().map(|node| Minor::of(&node.kubernetes.version)).collect();
        if let (Some(Some(minor)), 1) = (minors.first().copied(), minors.len()) {
            self.pin_minor(&self.control_machines(cluster).await?, minor).await?;
        }
        let lease = cluster.deployment().map_or(0, |deployment| deployment.lease);
        let deployment = Deployment { lease, record: kept.clone() };
        self.note(cluster, &[], |status| status.deployment = Some(deployment.clone())).await?;
        log::info!("{}: the VMs of its control-plane nodes were adopted", cluster.name_any());
        Ok(())
    }

    /// Cancels swaps that control-plane nodes have prepared, are preparing, or failed to prepare, if no Operation can end them.
    pub(super) async fn cancel_prepared(&self) -> Result<CancelResult, ReconcileError> {
        let Self { cluster, opened, .. } = *self;
        let kept = self.record()?;
        if !kept.formed {
            // No swap begins before.
            return Ok(CancelResult::All);
        }
        let upgrade = self.upgrade_context(kept).await?;
        let asking = Box::pin(async {
            let vms = opened.hypervisor.vms().await?;
            let said = upgrade.told(&vms).await;
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
        let why = match self.within(JUDGING, Box::pin(upgrade.ends_swaps(&left))).await? {
            Some(Ok(())) => {
                log::warn!("{}: it is cancelled at the operator's request: {words}", cluster.name_any());
                return Ok(CancelResult::All);
            }
            Some(Err(error)) => format!("{error:#}"),
            None => not_all_asked(),
        };
        Ok(CancelResult::Refused(format!("{words}. It is not cancelled yet: {why}")))
    }

    /// The record of control-plane nodes in the existing VMs, these VMs, and the report of each node, which must name its VM.
    async fn proved(&self, kept: &DeploymentRecord) -> anyhow::Result<(DeploymentRecord, Vec<Vm>, Vec<Node>)> {
        let vms = self.opened.hypervisor.vms().await?;
        let adopted = adopted(kept, &vms).map_err(anyhow::Error::msg)?;
        let authority = shown(self.opened, &adopted, &vms).await?;
        let adopted = DeploymentRecord { ca_fingerprint: Some(authority), ..adopted };
        let said = self.upgrade_context(&adopted).await?.proved(&vms).await?;
        Ok((adopted, vms, said))
    }
}

impl UpgradeContext<'_> {
    /// The report of each control-plane node, which must name its recorded VM. A node without a VM that has a data disk is lost,
    /// and its record stays. The adoption does not wait for it, and it must not answer from elsewhere.
    ///
    /// # Errors
    /// A node does not answer, or names another VM; or the cluster's API lists control-plane nodes that were not made for it.
    pub(super) async fn proved(&self, vms: &[Vm]) -> anyhow::Result<Vec<Node>> {
        self.nodes.control_nodes().await?;
        let mut said = Vec::new();
        for node in &self.kept.nodes {
            let name = &node.name;
            let told = self.nodes.facts(node.address).await;
            if is_lost(node, vms) {
                let is_silent = told.is_err();
                ensure!(is_silent, "{name} answers, and no VM that carries the cluster's stamp holds its data disk");
                log::warn!("{name} has no VM that holds a data disk: it is not adopted");
                continue;
            }
            let told = told.with_context(|| format!("asking {name}"))?;
            ensure!(
                told.node == *name && told.holder == node.bios_uuid.map(BiosUuid::from),
                "{name} does not report that it runs in the VM that holds its data disk"
            );
            let is_final = told.swap.as_ref().is_none_or(|swap| swap.stage != Stage::Taken);
            ensure!(
                is_final || told.healthy.is_some(),
                "{name} runs in a new VM that is not final, and is not healthy: fix its findings, and it becomes final with the others"
            );
            said.push(told);
        }
        Ok(said)
    }

    /// The report of each control-plane node, or its error. A lost node is not called, nor one whose power state is unknown, as
    /// on a dead host: the caller does not wait for these. A node that is off or suspended is an error without a call. `fleet`
    /// powers on one that is off, and the operator resumes a suspended one.
    pub(super) async fn told(&self, vms: &[Vm]) -> Vec<anyhow::Result<Node>> {
        let powers = self.kept.nodes.iter().filter_map(|node| Some((node, power_of(node, vms)?)));
        let asked = powers.filter(|(_, power)| *power != PowerState::Unknown);
        let asked: Vec<_> = asked.map(|(node, power)| self.told_by(node, power)).collect();
        join_all(asked).await
    }

    async fn told_by(&self, node: &fleet::control_plane::Node, power: PowerState) -> anyhow::Result<Node> {
        let name = &node.name;
        ensure!(power == PowerState::On, "{name} is {power}");
        let Ok(told) = tokio::time::timeout(ANSWERS, self.nodes.facts(node.address)).await else {
            bail!("{name} has not answered within {} s", ANSWERS.as_secs());
        };
        let told = told.with_context(|| format!("asking {name}"))?;
        ensure!(told.node == *name, "another node answers in the place of {name}");
        Ok(told)
    }

    /// Ends the open swaps of these nodes, whose journal is outdated. A node that runs in its new VM stays there, and one that
    /// was to leave its VM stays in that. A node with an open swap takes part in no other one.
    ///
    /// # Errors
    /// A node whose swap was not ended, with the reason. Others may have been ended.
    pub(super) async fn ends_swaps(&self, said: &[Node]) -> anyhow::Result<()> {
        for node in said {
            let name = &node.node;
            let Some(swap) = &node.swap else { continue };
            let address = self.kept.node(name).with_context(|| format!("there is no node {name}"))?.address;
            // Changes use a current kubeconfig.
            Nodes::ready(&self.nodes).await?;
            let request = match swap.stage {
                Stage::Taken => NodeRequest::Commit(swap.id),
                _ => NodeRequest::CancelSwap(swap.id),
            };
            let asked = self.nodes.request(address, request).await;
            match asked.with_context(|| format!("asking {name} to end its swap"))? {
                Asked::Done => {}
                Asked::Begun => bail!("{name} is ending its swap"),
                Asked::Refused(Rejection { code, reason }) => {
                    bail!("{name} refuses to end its swap: {reason} ({code})")
                }
                Asked::Unknown => bail!("{name} has a swap open, and its image ends none when it is asked"),
            }
        }
        Ok(())
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

fn size_of(node: &Node, vms: &[Vm]) -> Option<ControlPlaneSize> {
    let size = vms.iter().find(|vm| vm.is_named(node.holder))?.size?;
    Some(ControlPlaneSize { processors: size.processors, memory_mib: u32::try_from(size.memory).ok()? })
}
