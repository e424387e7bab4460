//! Tells the cluster each minute how this node's data disk stands, goes on with an upgrade of
//! Kubernetes, and lets pods come back once a node that they had left is ready.

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::records::Cordon;
use crate::host::command::Host;
use crate::node::context::NodeContext;
use crate::upgrade::kubernetes::{self, Begun};
use crate::upgrade::swap::leave::uncordon as undo;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let desk = node.endpoint.swaps().clone();
    let Some(site) = desk.site() else { return Ok(None) };
    Ok(Some(Box::new(move |_| site.teller.tell(desk.under_way()).map(|()| Findings::default()))))
}

/// The upgrade of Kubernetes leaves the node as a swap does.
pub(super) fn upgrade(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let Some(site) = node.endpoint.swaps().site() else { return Ok(None) };
    if site.records().entry::<Begun>()?.is_none() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |_| kubernetes::go_on(&site))))
}

pub(super) fn uncordon(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let desk = node.endpoint.swaps().clone();
    let Some(site) = desk.site() else { return Ok(None) };
    if desk.under_way().is_some() || site.records().entry::<Cordon>()?.is_none() || !site.reporter.status().is_ready() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |_| {
        if desk.under_way().is_none() && undo(&site, &Host)? {
            site.note("the node is ready after its swap: pods may come back");
        }
        Ok(Findings::default())
    })))
}
