//! The calls to nodes during an adoption: in which VMs they run, and the end of swaps that no journal can end.

use std::time::Duration;

use anyhow::Context as _;
use contract::bios_uuid::BiosUuid;
use contract::node::Node;
use contract::swap::{Rejection, Stage};
use fleet::hypervisor::{PowerState, Vm};
use fleet::upgrade::{Asked, Nodes};
use futures_util::future::join_all;

use super::super::operations::UpgradeContext;
use crate::decisions::{is_lost, power_of};

/// The limit for a node's report.
const ANSWERS: Duration = Duration::from_secs(30);

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
                anyhow::ensure!(
                    is_silent,
                    "{name} answers, and no VM that carries the cluster's stamp holds its data disk"
                );
                log::warn!("{name} has no VM that holds a data disk: it is not adopted");
                continue;
            }
            let told = told.with_context(|| format!("asking {name}"))?;
            anyhow::ensure!(
                told.node == *name && told.holder == node.bios_uuid.map(BiosUuid::from),
                "{name} does not say that it runs in the VM that holds its data disk"
            );
            let is_final = told.swap.as_ref().is_none_or(|swap| swap.stage != Stage::Taken);
            anyhow::ensure!(
                is_final || told.healthy.is_some(),
                "{name} runs in a new VM that is not final, and is not healthy: fix what it says, and it becomes final with the others"
            );
            said.push(told);
        }
        Ok(said)
    }

    /// The report of each control-plane node, or its error. A lost node is not called, nor one whose power state is unknown, as
    /// on a dead host: the caller does not wait for these. A node that is off or suspended is an error without a call. `fleet`
    /// powers on one that is off, and the operator resumes a suspended one.
    pub(in crate::reconcilers::tenant_cluster) async fn told(&self, vms: &[Vm]) -> Vec<anyhow::Result<Node>> {
        let powers = self.kept.nodes.iter().filter_map(|node| Some((node, power_of(node, vms)?)));
        let asked = powers.filter(|(_, power)| *power != PowerState::Unknown);
        let asked: Vec<_> = asked.map(|(node, power)| self.told_by(node, power)).collect();
        join_all(asked).await
    }

    async fn told_by(&self, node: &fleet::control_plane::Node, power: PowerState) -> anyhow::Result<Node> {
        let name = &node.name;
        anyhow::ensure!(power == PowerState::On, "{name} is {power}");
        let Ok(told) = tokio::time::timeout(ANSWERS, self.nodes.facts(node.address)).await else {
            anyhow::bail!("{name} has not answered within {} s", ANSWERS.as_secs());
        };
        let told = told.with_context(|| format!("asking {name}"))?;
        anyhow::ensure!(told.node == *name, "another node answers in the place of {name}");
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
            let asked = match swap.stage {
                Stage::Taken => self.nodes.commit(address, swap.id).await,
                _ => self.nodes.cancel_swap(address, swap.id).await,
            };
            match asked.with_context(|| format!("asking {name} to end its swap"))? {
                Asked::Done => {}
                Asked::Begun => anyhow::bail!("{name} is ending its swap"),
                Asked::Refused(Rejection { code, reason }) => {
                    anyhow::bail!("{name} refuses to end its swap: {reason} ({code})")
                }
                Asked::Unknown => anyhow::bail!("{name} has a swap open, and its image ends none when it is asked"),
            }
        }
        Ok(())
    }
}
