//! Opens the status endpoint where that failed before, and renews its
//! certificate.

use std::time::SystemTime;

use contract::codes;
use contract::finding::Findings;
use contract::ports;

use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let config = node.control_plane()?;
    Ok(match node.endpoint.open(config, SystemTime::now()) {
        // Nobody else asks the hypervisor for them.
        Ok(_) if config.deployer_public_key.is_some() => shown(node.reporter.show_fingerprints()),
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

/// What is to be said of the fingerprints that the hypervisor shows.
fn shown(looked: anyhow::Result<bool>) -> Findings {
    let (seen, action) = match looked {
        Ok(false) => return Findings::default(),
        Ok(true) => (
            "other fingerprints stood where the hypervisor shows this node's; they were written again".to_owned(),
            "Look for the pod on this node that did it, and deploy nothing to this cluster until you know. The finding ends \
             when the agent is restarted",
        ),
        Err(error) => (
            format!("the hypervisor does not show this node's fingerprints: {error:#}"),
            "Let the VM write guestinfo (isolation.tools.setInfo.disable), or read them on the console",
        ),
    };
    codes::FINGERPRINTS_CHANGED.finding("guestinfo", seen, action).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_that_somebody_else_has_written_are_named() {
        assert!(shown(Ok(false)).is_empty());
        for (looked, words) in [(Ok(true), "other fingerprints"), (Err(anyhow::anyhow!("no")), "does not show")] {
            let findings = shown(looked);
            assert!(!findings.has_errors() && findings.iter().all(|finding| finding.code == "fingerprints.changed"));
            assert!(findings.to_string().contains(words), "{findings}");
        }
    }
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
