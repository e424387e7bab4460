//! The gateway, DNS and time servers and the other control nodes, looked at
//! again: what was mended is no longer spoken of, and what fails later is.

use contract::finding::Findings;

use crate::cluster::reachability;
use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    Ok(reachability::judge(&reachability::look(&node.config, true)))
}
