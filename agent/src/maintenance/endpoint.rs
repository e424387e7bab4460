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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::Config;
    use crate::intake::config::fixture::one_node;
    use crate::node::fixture;

    #[test]
    fn an_endpoint_that_cannot_be_opened_is_named_and_the_node_goes_on() {
        let root = tempfile::tempdir().unwrap();
        // There is no authority that could sign its certificate.
        let findings = look(&fixture::node(root.path(), Config::ControlPlane(one_node()))).unwrap();
        let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(found, ["endpoint.closed"]);
        assert!(!findings.has_errors());
    }
}
