//! Opens the status endpoint where that failed before, and renews its
//! certificate.

use std::time::SystemTime;

use contract::codes;
use contract::finding::Findings;
use contract::ports;

use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    Ok(match node.endpoint.open(node.control_plane()?, SystemTime::now()) {
        Ok(_) => Findings::default(),
        Err(error) => codes::ENDPOINT_CLOSED
            .finding(
                format!("port {}", ports::NODE),
                format!("the status endpoint cannot be opened: {error:#}"),
                "It is tried again each minute; load balancers and monitoring cannot ask this node meanwhile",
            )
            .into(),
    })
}
