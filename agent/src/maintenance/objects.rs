//! Findings about objects of the cluster: NetworkPolicies, which are not enforced.

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::kubernetes::api::Api;
use crate::node::context::NodeContext;

pub(super) fn network_policies(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    if !node.reporter.status().is_ready() {
        return Ok(None);
    }
    let (config, root) = (node.control_plane()?.clone(), node.root().to_owned());
    Ok(Some(Box::new(move |last| {
        let api = Api::as_administrator(config.address(), &root, config.timeout(REQUEST));
        Ok(api.and_then(|api| api.network_policies()).unwrap_or_else(|error| {
            log::debug!("the NetworkPolicies are not known: {error:#}");
            last.findings()
        }))
    })))
}
