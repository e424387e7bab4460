//! Opens the status endpoint if that failed before, and renews its certificate.

use std::time::SystemTime;

use contract::codes;
use contract::finding::Findings;
use contract::ports;

use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    let config = node.control_plane()?;
    Ok(match node.endpoint.open(config, SystemTime::now()) {
        // Nothing else asks the hypervisor for them.
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

/// The finding about the fingerprints that the hypervisor shows.
fn shown(looked: anyhow::Result<bool>) -> Findings {
    let (seen, action) = match looked {
        Ok(false) => return Findings::default(),
        Ok(true) => (
            "the hypervisor showed other fingerprints than this node's; they were written again".to_owned(),
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
    fn foreign_fingerprints_become_a_finding() {
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
    fn closed_endpoint_becomes_a_finding() {
        let root = tempfile::tempdir().unwrap();
        // There is no CA that could sign its certificate.
        let findings = look(&fixture::node(root.path(), Config::ControlPlane(one_node()))).unwrap();
        let found: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(found, ["endpoint.closed"]);
        assert!(!findings.has_errors());
    }
}
