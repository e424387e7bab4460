//! Keeps the firewall. Loads its rules again when they were changed, and opens the ports that pods in the host's network
//! request. While the API does not answer, the ports requested last stay open.

use contract::finding::Findings;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::firewall::{HostPorts, Rules};
use crate::cluster::kubernetes::ADMINISTRATOR;
use crate::cluster::kubernetes::api::{self, Api};
use crate::host::command::SlowHost;
use crate::host::files;
use crate::intake::config::Config;
use crate::node::context::NodeContext;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (config, root, firewall) = (node.config.clone(), node.root().to_owned(), node.firewall.clone());
    let ready = node.reporter.status().is_ready();
    Ok(Some(Box::new(move |_| {
        if ready {
            // The kubelet of a worker may list its own node's pods.
            let kubeconfig = match &config {
                Config::ControlPlane(_) => ADMINISTRATOR,
                Config::Worker(_) => api::KUBECONFIG,
            };
            let kubeconfig = files::below(&root, kubeconfig);
            let listed = Api::new(config.api_address(), &kubeconfig, config.timeout(REQUEST))
                .and_then(|api| api.pods_in_the_network_of(&config.node().name))
                .map(HostPorts::of_pods);
            match listed {
                Ok(ports) => firewall.open(ports)?,
                Err(error) => log::debug!("the pods' host ports stay as they are: {error:#}"),
            }
        }
        match firewall.ensure(&SlowHost(config.timeout_factor()), &Rules::of(&config)) {
            Ok(true) => log::info!("the firewall has been laid again"),
            Ok(false) => {}
            Err(finding) => return Ok(finding.into()),
        }
        Ok(Findings::default())
    })))
}
