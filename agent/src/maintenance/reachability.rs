//! Checks the gateway, DNS servers, time servers and the other control-plane nodes again. Findings that were fixed go, and new
//! ones come.

use contract::finding::Findings;

use crate::cluster::reachability;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    Ok(reachability::judge(&reachability::look(&node.config, true)))
}
