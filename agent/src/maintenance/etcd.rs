//! etcd's alarms, size and fragmentation; see [`crate::cluster::etcd::upkeep`].

use std::time::Duration;

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::upkeep;
use crate::node::context::NodeContext;

/// How long a member may take for a short answer, times the timeout factor …
const REQUEST: Duration = Duration::from_secs(5);
/// … and for defragmenting its database: 4 GiB on a slow disk.
const WORK: Duration = Duration::from_secs(600);

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (config, pki) = (node.control_plane()?.clone(), node.pki());
    let Ok(node) = config.control_node().cloned() else { return Ok(None) };
    Ok(Some(Box::new(move |_| {
        let quickly = |node: &_| EtcdClient::new(node, &pki, config.timeout(REQUEST));
        let own = quickly(&node)?;
        let status = own.status()?;
        let alarms = own.alarms()?;
        if !status.is_leader() {
            let seen = [(&node, Some(status))];
            return Ok(upkeep::findings(&seen, &alarms));
        }
        let nodes = &config.cluster.control_nodes;
        let seen: Vec<_> = nodes.iter().map(|node| (node, quickly(node).and_then(|it| it.status()).ok())).collect();
        upkeep::forget_history(&own, &status, &alarms);
        let task = upkeep::decide(&seen, &status, &alarms);
        upkeep::carry_out(&task, &own, &alarms, |node| EtcdClient::new(node, &pki, config.timeout(WORK)))?;
        let alarms = if task == upkeep::Task::Rest { alarms } else { own.alarms()? };
        let findings: Findings = upkeep::findings(&seen, &alarms);
        Ok(findings)
    })))
}
