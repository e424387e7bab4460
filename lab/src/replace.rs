//! Replaces a control-plane node that is lost permanently with a blank VM.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, bail};
use contract::properties::DEPLOYMENT_SECRET;
use contract::replacement::ReplacementGrant;
use fleet::hypervisor::{PowerState, Stamp};
use fleet::lease::Lease;
use fleet::upgrade::OpenUpgrade;
use uuid::Uuid;

use super::environment::{self, asks_for};
use super::records::VmRecord;
use super::{Lab, LeaseRequest, NewVm, PlannedNode, Source};

/// How long a node may take to admit another one.
const ANSWER: Duration = Duration::from_secs(120);

/// The blank VM that replaces a lost node.
#[derive(Clone, Debug, Default)]
pub struct BlankVm {
    /// Its image. `None` for that of the node that admits it.
    pub source: Option<Source>,
    /// Properties that replace the lost node's and the cluster's.
    pub properties: BTreeMap<String, String>,
    /// Size of its data disk in bytes. `None` for that of the node that admits it.
    pub data_disk: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedNode {
    /// The new VM, which is on.
    pub vm: String,
    /// The data disks of the lost node. No VM holds them.
    pub disks: Vec<Uuid>,
}

/// Asks the control-plane node in a VM to admit the new one. Returns its output.
type Ask<'a> = &'a dyn Fn(&str) -> anyhow::Result<String>;

impl Lab {
    /// Replaces a control-plane node that is off permanently with a blank VM. A running node admits the new one with
    /// a one-time code. Only after that, VMs of the lost node are removed. If a command is killed, the next one finds
    /// a VM that is off, which it creates again, or the node with its new VM.
    ///
    /// # Errors
    /// When no other node runs, the lost node's VM is on or part of a swap, or another command changes the
    /// control-plane nodes. When no node admits the new VM. The lost node's VM and disk are unchanged then. When the
    /// new VM cannot be created: the lost node's VM may be removed, but its data disk stays.
    pub fn replace_node(&self, node: &str, by: &BlankVm, asking: &LeaseRequest<'_>) -> anyhow::Result<ReplacedNode> {
        let planned = self.replaceable(node)?;
        let ask = |vm: &str| self.run_inside(vm, &["kaas-agent", "replace-member", node, "--output", "json"], ANSWER);
        self.with_lease(asking, async |hold| self.replace_under(hold, planned, by, &ask).await)
    }

    fn replaceable(&self, node: &str) -> anyhow::Result<&PlannedNode> {
        let nodes = &self.plan().nodes;
        let Some(planned) = nodes.iter().find(|planned| planned.name == node) else {
            let nodes: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            bail!("the lab {} has no control-plane node {node}; it has {}", self.name, nodes.join(", "));
        };
        if nodes.len() < 2 {
            bail!("{node} is the only control-plane node: its data is restored from a snapshot, not from other nodes");
        }
        Ok(planned)
    }

    async fn replace_under(
        &self,
        hold: &Lease<'_>,
        planned: &PlannedNode,
        by: &BlankVm,
        ask: Ask<'_>,
    ) -> anyhow::Result<ReplacedNode> {
        let node = &planned.name;
        let (lost, others): (Vec<VmRecord>, Vec<VmRecord>) =
            self.stamped_nodes()?.into_iter().partition(|record| stamp_of(record).is_some_and(|of| of.node == *node));
        for record in &lost {
            if self.is_not_off(record)? {
                bail!(
                    "{} is on; a node that runs is not replaced. `kaas-dev lab cut {0} --name {1}` ends it",
                    record.name,
                    self.name
                );
            }
        }
        if let Some(open) = OpenUpgrade::find(hold.store()).await?
            && let Some(new) = lost.iter().find(|record| stamp_of(record).is_some_and(|of| open.made(of)))
        {
            bail!(
                "{} takes {node}'s part in an upgrade that has not ended: `kaas-dev control upgrade resume`, `rollback` or `commit` goes \
                 on with it, `abandon` ends it in its present state",
                new.name
            );
        }
        if self.directory.recall_vm(node)?.is_some_and(|record| lost.iter().all(|lost| lost.uuid != record.uuid)) {
            bail!("the lab {} has a VM {node} that is no control-plane node's: remove that one first", self.name);
        }
        let new = self.let_in(planned, &others, by, ask)?;
        let disks = self.clear(hold, &lost).await?;
        hold.confirm().await?;
        self.import(&new)?;
        hold.confirm().await?;
        self.power_on(node)?;
        Ok(ReplacedNode { vm: node.clone(), disks })
    }

    /// Asks running nodes in turn until one admits the new VM. Returns that VM.
    fn let_in(&self, planned: &PlannedNode, others: &[VmRecord], by: &BlankVm, ask: Ask<'_>) -> anyhow::Result<NewVm> {
        let mut refused = Vec::new();
        for from in others {
            if !self.is_not_off(from)? {
                refused.push(format!("{} is off", from.name));
                continue;
            }
            let let_in = || -> anyhow::Result<NewVm> {
                let source = by.source.as_ref().unwrap_or(&from.source);
                let before = with(planned.properties.clone(), by.properties.clone());
                // Properties that vCenter would refuse are refused before a member is removed.
                can_be_powered_on(source, &before)?;
                let mut new = self.blank(planned, from, source, by.data_disk)?;
                let answer: ReplacementGrant =
                    serde_json::from_str(&ask(&from.name)?).context("reading the one-time code")?;
                let agreed = as_agreed(source, before, &answer)?;
                // Properties that the operator has set keep their values.
                new.properties = with(agreed, by.properties.clone());
                new.properties.insert(DEPLOYMENT_SECRET.to_owned(), answer.code);
                can_be_powered_on(source, &new.properties)?;
                Ok(new)
            };
            match let_in() {
                Ok(new) => return Ok(new),
                Err(error) => refused.push(format!("{}: {error:#}", from.name)),
            }
        }
        bail!(
            "no node admits {}; its VM and its disk are unchanged\n  {}",
            planned.name,
            if refused.is_empty() { "there is no other control-plane node".to_owned() } else { refused.join("\n  ") }
        )
    }

    /// A VM for a lost node with the size of the one in `from`, without properties.
    fn blank(
        &self,
        planned: &PlannedNode,
        from: &VmRecord,
        source: &Source,
        data_disk: Option<u64>,
    ) -> anyhow::Result<NewVm> {
        let of_theirs = || -> anyhow::Result<u64> {
            let disk = from.disks.first().with_context(|| format!("{} has no data disk", from.name))?;
            Ok(fs::metadata(self.directory.disk(*disk)).context("looking at its data disk")?.len())
        };
        Ok(NewVm {
            name: planned.name.clone(),
            memory: from.memory,
            processors: from.processors,
            data_disk: Some(data_disk.map_or_else(of_theirs, Ok)?),
            network_interface: true,
            properties: BTreeMap::new(),
            source: Some(source.clone()),
            engine: self.replacements(),
            stamp: Some(Stamp { deployment: self.deployment(), node: planned.name.clone(), swap: None }),
            in_order_uuid: false,
        })
    }

    /// The VMs of its control-plane nodes that have a stamp.
    pub(super) fn stamped_nodes(&self) -> anyhow::Result<Vec<VmRecord>> {
        Ok(self.control_nodes()?.into_iter().filter(|record| record.stamp.is_some()).collect())
    }

    /// Whether a VM is on, or its state is unknown.
    pub(super) fn is_not_off(&self, record: &VmRecord) -> anyhow::Result<bool> {
        Ok(self.power_state(&record.name)? != PowerState::Off)
    }

    /// Removes VMs that are off. Their data disks stay.
    async fn clear(&self, hold: &Lease<'_>, vms: &[VmRecord]) -> anyhow::Result<Vec<Uuid>> {
        let mut disks = Vec::new();
        for record in vms {
            for disk in self.disks(&record.name)? {
                hold.confirm().await?;
                self.detach_disk(&record.name, disk)?;
                disks.push(disk);
            }
            hold.confirm().await?;
            self.destroy(&record.name)?;
        }
        Ok(disks)
    }
}

fn stamp_of(record: &VmRecord) -> Option<&Stamp> {
    record.stamp.as_ref()
}

type Properties = BTreeMap<String, String>;

fn with(mut properties: Properties, others: Properties) -> Properties {
    properties.extend(others);
    properties
}

/// The properties, updated to the values that the members agree on. Skips those that the image's form does not have.
fn as_agreed(source: &Source, mut properties: Properties, answer: &ReplacementGrant) -> anyhow::Result<Properties> {
    for (key, value) in &answer.properties {
        if value.is_empty() {
            properties.remove(key);
        } else if asks_for(source, key)? {
            properties.insert(key.clone(), value.clone());
        }
    }
    Ok(properties)
}

/// Refuses properties with which vCenter would not create the VM, or not power it on.
fn can_be_powered_on(source: &Source, properties: &Properties) -> anyhow::Result<()> {
    let unconfigured = environment::import(source, properties, "")?.unconfigured;
    if !unconfigured.is_empty() {
        bail!("without a value, vCenter powers no VM on: {}", unconfigured.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
