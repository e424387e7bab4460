//! Warns when users who may create pods can take over the nodes of these pods (`pod-security` is `privileged`).

use contract::codes;
use contract::finding::Findings;
use contract::pod_security::PodSecurity;
use contract::properties;

use crate::node::context::NodeContext;

pub(super) fn look(node: &NodeContext) -> anyhow::Result<Findings> {
    Ok(judge(node.control_plane()?.cluster.pod_security))
}

fn judge(level: PodSecurity) -> Findings {
    match level {
        PodSecurity::Baseline | PodSecurity::Restricted => Findings::default(),
        PodSecurity::Privileged => codes::POD_SECURITY_PRIVILEGED
            .finding(
                properties::POD_SECURITY,
                "it is privileged: users who may create pods in any namespace can take over the node of these pods",
                "Label namespaces whose pods need more with pod-security.kubernetes.io/enforce=privileged, then set it to \
                 baseline on each control-plane node: `kaas-agent configure pod-security=baseline`",
            )
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileged_level_is_a_warning() {
        let found = judge(PodSecurity::Privileged);
        assert!(!found.has_errors() && found.iter().any(|one| one.code == "pod-security.privileged"), "{found}");
        assert!(judge(PodSecurity::Baseline).is_empty() && judge(PodSecurity::Restricted).is_empty());
    }
}
