//! Brings the cluster's add-ons to what this image has, once every node runs it for good: the
//! last commit of an upgrade changes them. Until then they are what the former image made of them, and
//! each node runs the container image that its own appliance image carries.

use std::fs;

use anyhow::Context as _;
use contract::finding::Findings;

use super::job::Job;
use crate::cluster::addons;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::{AUTHORITY, api};
use crate::host::command::{Host, Runner};
use crate::host::files;
use crate::node::context::NodeContext;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;

/// Says, until the VM restarts, which build the add-ons were seen to be of, and for which level of pods' security.
const SEEN: &str = "/run/kaas/addons";

fn seen(context: &SwapContext) -> String {
    format!("{} {}", context.image.build, context.config.cluster.pod_security)
}

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context() else { return Ok(None) };
    let done = fs::read_to_string(files::below(&context.root, SEEN)).is_ok_and(|done| done == seen(&context));
    if done || manager.state().is_some() || !context.reporter.status().is_ready() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |_| {
        let etcd = EtcdClient::new(&context.announcer.node, &context.pki, context.announcer.timeout)?;
        let known = node_record::list(&etcd).context("looking what the other nodes run")?;
        if node_record::settled(&context.config, &known, &context.image.build) {
            renew(&context, &Host)?;
        }
        Ok(Findings::default())
    })))
}

/// Applies the add-ons unless they are this image's already.
fn renew(context: &SwapContext, runner: &dyn Runner) -> anyhow::Result<()> {
    let build = &context.image.build;
    let path = addons::BUILD.replace('.', "\\.");
    let question = api::kubectl(context.config.address()).args([
        "get",
        "deployment",
        "coredns",
        "--namespace=kube-system",
        "--ignore-not-found",
        &format!("--output=jsonpath={{.metadata.annotations.{path}}}"),
    ]);
    if runner.run(&question)?.trim_ascii() != build.as_bytes() {
        api::apply(runner, context.config.address(), &addons::cluster_dns(&context.config, &context.image))
            .context("applying cluster DNS")?;
        context.note(&format!("all nodes run image {}: its add-ons were applied", context.image.version));
    }
    let authority = files::below(&context.root, AUTHORITY);
    if context.config.role.takes_workers() {
        let authority = fs::read_to_string(authority).context("reading the cluster's authority")?;
        api::apply(runner, context.config.address(), &addons::workers(&context.config, &authority))
            .context("applying what workers join with")?;
    }
    let priorities = addons::priorities(context.config.cluster.pod_security);
    if !priorities.is_empty() {
        api::apply(runner, context.config.address(), &priorities)
            .context("applying who may have the system's priorities")?;
    }
    files::write_atomically(&files::below(&context.root, SEEN), seen(context).as_bytes(), 0o644)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::{Command, Error};
    use crate::upgrade::swap::manager::tests::context;
    use contract::pod_security::PodSecurity;
    use std::sync::Mutex;

    /// Answers with a build, and notes what is asked.
    struct Cluster(String, Mutex<Vec<String>>);

    impl Runner for Cluster {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            self.1.lock().unwrap().push(command.to_string());
            Ok(self.0.clone().into_bytes())
        }
    }

    #[test]
    fn addons_of_another_build_are_renewed_and_looked_at_once() {
        let root = tempfile::tempdir().unwrap();
        let mut context = context(root.path(), None);
        let build = context.image.build.clone();
        let (open, closed) = (PodSecurity::Privileged, PodSecurity::Baseline);
        // Where pods may do everything, nothing is said of their priorities.
        let table = [
            (build.clone(), open, 1),
            ("of another one".into(), open, 2),
            (String::new(), open, 2),
            (build, closed, 2),
            (String::new(), closed, 3),
        ];
        for (there, level, commands) in table {
            context.config.cluster.pod_security = level;
            let cluster = Cluster(there, Mutex::default());
            renew(&context, &cluster).unwrap();
            let asked = cluster.1.into_inner().unwrap();
            assert_eq!(asked.len(), commands, "{asked:?}");
            assert!(asked[0].contains("{.metadata.annotations.kaas\\.local/build}"), "{asked:?}");
            let done = fs::read_to_string(files::below(root.path(), SEEN)).unwrap();
            assert_eq!(done, format!("{} {level}", context.image.build));
        }
    }
}
