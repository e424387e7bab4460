//! etcd's alarms, size and fragmentation; see [`crate::cluster::etcd::upkeep`].

use std::time::Duration;

use anyhow::Context as _;

use super::health::yield_virtual_address;
use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::etcd::DATA;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::damage;
use crate::cluster::etcd::listens;
use crate::cluster::etcd::snapshot;
use crate::cluster::etcd::upkeep::{self, Member, Task};
use crate::host::files;
use crate::node::context::NodeContext;

/// How long a member may take to defragment its database, times the timeout factor: 8 GiB on a slow disk.
const WORK: Duration = Duration::from_secs(600);

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    if let Some(damaged) = damage::look(node.control_plane()?, node.root(), &node.services(), node.runner())? {
        return Ok(Some(Box::new(move |_| Ok(damaged.into()))));
    }
    let (config, pki, root, reporter) =
        (node.control_plane()?.clone(), node.pki(), node.platform.root().to_owned(), node.reporter.clone());
    let Ok(node) = config.control_node().cloned() else { return Ok(None) };
    Ok(Some(Box::new(move |_| {
        let quickly = |node: &_| EtcdClient::new(node, &pki, config.timeout(REQUEST));
        let own = quickly(&node)?;
        let status = own.status()?;
        let alarms = own.alarms()?;
        let itself = [(&node, Member::Answers(Box::new(status.clone())))];
        if !upkeep::concerns_all(&status, &alarms) {
            return Ok(upkeep::findings(&itself, &alarms));
        }
        let nodes = &config.cluster.control_nodes;
        let look = |node| {
            let said = quickly(node).and_then(|it| it.status()).ok();
            (node, Member::of(said, || listens(node, config.timeout(REQUEST))))
        };
        let seen: Vec<_> = nodes.iter().map(look).collect();
        upkeep::forget_history(&own, &status, &alarms);
        let task = upkeep::decide(&seen, &status, &alarms);
        match task {
            Task::Idle => {}
            Task::Defragment => {
                let (free, _) = snapshot::room(&files::below(&root, DATA)).context("looking at the free space")?;
                if upkeep::copy_fits(&status, free) {
                    yield_virtual_address(&config, &root, &reporter)?;
                    log::info!("defragmenting etcd's database on this node");
                    EtcdClient::new(&node, &pki, config.timeout(WORK))?.defragment()?;
                } else {
                    log::warn!("etcd's database is not defragmented: only {} MiB are free for its copy", free >> 20);
                }
            }
            Task::Lift => upkeep::lift(&own, &alarms)?,
        }
        let alarms = if task == Task::Idle { alarms } else { own.alarms()? };
        Ok(upkeep::findings(if status.is_leader() { &seen } else { &itself }, &alarms))
    })))
}
