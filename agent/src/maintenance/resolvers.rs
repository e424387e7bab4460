//! Pods with the resolvers of their node have a copy from when they started. If the node's resolvers have changed, the pods of
//! [`settings`] that have another copy are deleted, one a look: their workload makes them again.

use std::path::Path;

use anyhow::Context as _;
use contract::finding::Findings;
use serde_json::Value;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::{kubelet, sandboxes};
use crate::cluster::settings;
use crate::host::command::{Host, Runner};
use crate::host::files;
use crate::intake::config::Config;
use crate::node::context::NodeContext;

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    if !node.reporter.status().is_ready() {
        return Ok(None);
    }
    let root = node.root().to_owned();
    let api = match &node.config {
        Config::ControlPlane(config) => Api::as_administrator(config.address(), &root, config.timeout(REQUEST))?,
        // A kubelet may delete the pods of its own node.
        Config::Worker(_) => node.api()?,
    };
    Ok(Some(Box::new(move |_| {
        for sandboxes::Pod { namespace, name } in outdated(&root, &Host)? {
            if api.delete_with_resolvers_of_node(&namespace, &name)? {
                log::info!(
                    "{namespace}/{name} had the former resolvers and was deleted: its workload creates it again"
                );
                break;
            }
        }
        Ok(Findings::default())
    })))
}

/// The pods that have other resolvers than those of the node.
fn outdated(root: &Path, runner: &dyn Runner) -> anyhow::Result<Vec<sandboxes::Pod>> {
    let text =
        std::fs::read(files::below(root, kubelet::CONFIGURATION)).context("reading the kubelet's configuration")?;
    let configuration: Value = serde_json::from_slice(&text).context("understanding the kubelet's configuration")?;
    let now = sandboxes::resolvers(root, configuration["resolvConf"].as_str().unwrap_or_default())?;
    let mut outdated = Vec::new();
    if now.is_empty() {
        // The network of the node is just being set up.
        return Ok(outdated);
    }
    for settings::Pods { namespace, label } in settings::pods() {
        for sandbox in sandboxes::running(runner, &[&format!("io.kubernetes.pod.namespace={namespace}"), label])? {
            if sandbox.has_others(root, &now)? {
                outdated.push(sandbox.metadata);
            }
        }
    }
    Ok(outdated)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::cluster::kubernetes::sandboxes::tests::Runtime;

    /// As after `kaas-agent configure dns-servers=…`, and after `dns-servers=`.
    #[test]
    fn a_pod_that_keeps_the_former_resolvers_is_found_until_it_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let lay = |path: &str, text: &str| {
            files::write_atomically(&files::below(root.path(), path), text.as_bytes(), 0o644).unwrap();
        };
        let copy = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/a/resolv.conf";
        let runtime = Runtime(vec![("a", "coredns-1", "10.244.0.5")], Mutex::default());
        let found = || outdated(root.path(), &runtime).unwrap().pop().map(|pod| pod.name);
        lay(kubelet::CONFIGURATION, &format!(r#"{{"resolvConf": "{}"}}"#, kubelet::RESOLVERS));
        lay(kubelet::RESOLVERS, "nameserver 10.0.0.2\n");
        lay(copy, "nameserver 10.0.0.2\n");
        assert_eq!(found(), None);
        lay(kubelet::RESOLVERS, "nameserver 10.0.0.9\n");
        assert_eq!(found().as_deref(), Some("coredns-1"));
        lay(copy, "nameserver 10.0.0.9\n");
        assert_eq!(found(), None);
        lay(kubelet::RESOLVERS, "# No DNS servers known.\n");
        assert_eq!(found(), None, "the node is about to have some");
        lay(kubelet::CONFIGURATION, r#"{"resolvConf": ""}"#);
        assert_eq!(found().as_deref(), Some("coredns-1"));
        lay(copy, "nameserver 127.0.0.1\n");
        assert_eq!(found(), None);
    }
}
