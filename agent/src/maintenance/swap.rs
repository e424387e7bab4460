//! Each minute, announces the state of this node's data disk to the cluster and remembers the state of the others'. Resumes an
//! upgrade of Kubernetes. Uncordons a node that is ready again after it was drained.

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::kubernetes::upgrade::UpgradeRecord;
use crate::cluster::records::Cordon;
use crate::host::command::SlowHost;
use crate::node::context::NodeContext;
use crate::upgrade::kubernetes;
use crate::upgrade::swap::evacuate::uncordon_unless;
use crate::upgrade::swap::peers::KnownDisks;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context() else { return Ok(None) };
    Ok(Some(Box::new(move |_| {
        context.announce(|| manager.under_way())?;
        KnownDisks::remember(&context.etcd()?, &context.records())?;
        Ok(Findings::default())
    })))
}

/// The upgrade of Kubernetes drains the node as a swap does.
pub(super) fn upgrade(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let Some(context) = node.endpoint.swaps().context() else { return Ok(None) };
    if context.records().entry::<UpgradeRecord>()?.is_none() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |_| kubernetes::resume(&context))))
}

pub(super) fn uncordon(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context() else { return Ok(None) };
    if manager.under_way().is_some()
        || context.records().entry::<Cordon>()?.is_none()
        || !context.reporter.status().is_ready()
    {
        return Ok(None);
    }
    Ok(Some(Box::new(move |_| {
        if uncordon_unless(&context, &SlowHost(context.config.timeout_factor), || manager.under_way().is_some())? {
            context.note("the node is ready after its swap: pods may come back");
        }
        Ok(Findings::default())
    })))
}
