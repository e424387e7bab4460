//! A control node that is lost for good, and the blank VM that takes its part in the cluster.

use std::time::Duration;

use anyhow::{Context, bail};
use contract::properties::DEPLOYMENT_SECRET;
use fleet::hypervisor::{PowerState, Stamp};
use serde_json::Value;
use uuid::Uuid;

use super::records::VmRecord;
use super::{Lab, NewVm, Source};

/// How long a node may take to let another one in.
const ANSWER: Duration = Duration::from_secs(120);

/// What has become of a lost control node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The new VM, which is on.
    pub vm: String,
    /// The data disks that were the lost node's. Nobody holds them any more.
    pub disks: Vec<Uuid>,
}

impl Lab {
    /// Replaces a control node that is off for good by a blank VM, with a data disk of so many bytes. A node that runs
    /// lets it in with a one-time code. Of a command that was killed the next one finds a VM that is off, which it makes
    /// anew, or the node in its place.
    ///
    /// # Errors
    /// When the cluster has no other node that runs, the lost one's VM is on, or nobody lets the new one in. The lost
    /// node's VM is gone then; its data disk stays.
    pub fn replace_node(&self, node: &str, source: Option<Source>, data_disk: u64) -> anyhow::Result<Replaced> {
        let planned = self.plan().nodes.iter().find(|planned| planned.name == node);
        let Some(planned) = planned else {
            let nodes: Vec<&str> = self.plan().nodes.iter().map(|node| node.name.as_str()).collect();
            bail!("the lab {} has no control node {node}; it has {}", self.name, nodes.join(", "));
        };
        if self.plan().nodes.len() < 2 {
            bail!("{node} is the only control node: what it knew is restored from a snapshot, not from others");
        }
        let of = |record: &VmRecord, wanted: &dyn Fn(&str) -> bool| {
            let own = record.stamp.as_ref().filter(|stamp| stamp.deployment == self.deployment());
            own.is_some_and(|stamp| wanted(&stamp.node))
        };
        let records = self.vms()?.iter().map(|vm| self.directory.load_vm(vm)).collect::<anyhow::Result<Vec<_>>>()?;
        let is_on = |record: &VmRecord| Ok::<_, anyhow::Error>(self.power_state(&record.name)? != PowerState::Off);
        let lost: Vec<&VmRecord> = records.iter().filter(|record| of(record, &|of| of == node)).collect();
        for record in &lost {
            if is_on(record)? {
                bail!("{} is on; a node that runs is not replaced. `kaas lab cut {0}` ends it", record.name);
            }
        }
        let mut others = records.iter().filter(|record| of(record, &|of| of != node));
        let from = others.find(|record| is_on(record).unwrap_or_default());
        let from = from.with_context(|| format!("no other control node of {} is on to let {node} in", self.name))?;
        let disks = self.clear(&lost)?;
        let answer =
            self.run_inside(&from.name, &["kaas-agent", "replace-member", node, "--output", "json"], ANSWER)?;
        let answer: Value = serde_json::from_str(&answer).context("reading the one-time code")?;
        let code = answer["code"].as_str().context("the answer holds no one-time code")?;
        let mut properties = planned.properties.clone();
        properties.insert(DEPLOYMENT_SECRET.to_owned(), code.to_owned());
        self.import(&NewVm {
            name: node.to_owned(),
            memory: from.memory,
            processors: from.processors,
            data_disk: Some(data_disk),
            network_interface: true,
            properties,
            source,
            engine: self.replacements(),
            stamp: Some(Stamp { deployment: self.deployment(), node: node.to_owned(), swap: None }),
        })?;
        self.power_on(node)?;
        Ok(Replaced { vm: node.to_owned(), disks })
    }

    /// Removes VMs that are off; their data disks stay.
    fn clear(&self, vms: &[&VmRecord]) -> anyhow::Result<Vec<Uuid>> {
        let mut disks = Vec::new();
        for record in vms {
            for disk in self.disks(&record.name)? {
                self.detach_disk(&record.name, disk)?;
                disks.push(disk);
            }
            self.destroy(&record.name)?;
        }
        Ok(disks)
    }
}
