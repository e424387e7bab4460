//! What adoption asks of the nodes: in which VMs they run, and that swaps which no journal leads to the end of are ended.

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

/// How long a node may take to say how it is.
const ANSWERS: Duration = Duration::from_secs(30);

impl UpgradeContext<'_> {
    /// What each control node says of itself, once it says that it runs in the VM that is kept of it. One that has no VM which holds a data
    /// disk is lost, and stays as it is noted: it is not waited for, and may not answer from elsewhere.
    ///
    /// # Errors
    /// Which one does not say so, or does not answer; or the cluster's API lists control nodes that were not made for it.
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
                "{name} runs in a new VM that is not final, and is not found good: mend what it says, and it becomes final with the others"
            );
            said.push(told);
        }
        Ok(said)
    }

    /// What each control node says of itself, or why it does not. One that is lost is not asked, nor one of which nobody knows whether it
    /// runs, as where its host is dead: nobody waits for these. One that is off or suspended is not asked either, and is waited for: one that is
    /// off is powered on, and a person has the other one go on.
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

    /// Ends the swaps that are open on these nodes, of which no journal is believed any more: a node that runs in its new VM stays there for
    /// good, and one that was to leave its VM stays in that. While one is open a node takes part in no other one.
    ///
    /// # Errors
    /// Which one is not ended, and why. Others may be.
    pub(super) async fn ends_swaps(&self, said: &[Node]) -> anyhow::Result<()> {
        for node in said {
            let name = &node.node;
            let Some(swap) = &node.swap else { continue };
            let address = self.kept.node(name).with_context(|| format!("there is no node {name}"))?.address;
            // What changes something goes by what is at hand.
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
