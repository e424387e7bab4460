//! Brings the cluster's add-ons to what this image has and the properties say, once every node runs it for good: the
//! last commit of an upgrade changes them. Until then they are what the former image made of them, and
//! each node runs the container image that its own appliance image carries. Says which add-on of a tenant does not run.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use contract::properties::CLUSTER_METRICS;
use contract::role::Role;
use zeroize::Zeroizing;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::addons::{self, AddOn, metrics_server};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::{AUTHORITY, PKI};
use crate::cluster::pki::Authorities;
use crate::host::command::{Host, Runner};
use crate::host::files;
use crate::node::context::NodeContext;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;

/// Says, until the VM restarts, of which build and with which settings the add-ons were seen to be, for which level of pods'
/// security, and in which month: certificates among them end.
const SEEN: &str = "/run/kaas/addons";

/// Seconds.
const MONTH: u64 = 30 * 24 * 60 * 60;

fn seen(context: &SwapContext, now: SystemTime) -> String {
    let month = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / MONTH;
    let cluster = &context.config.cluster;
    format!("{} {} {} month {month}", context.image.build, cluster.pod_security, cluster.add_ons)
}

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context() else { return Ok(None) };
    if !context.reporter.status().is_ready() {
        return Ok(None);
    }
    let now = SystemTime::now();
    let done = fs::read_to_string(files::below(&context.root, SEEN)).is_ok_and(|done| done == seen(&context, now));
    let due = !done && manager.state().is_none();
    let looks = context.config.role != Role::ControlPlane;
    if !due && !looks {
        return Ok(None);
    }
    Ok(Some(Box::new(move |last| {
        if due {
            let etcd = EtcdClient::new(&context.announcer.node, &context.pki, context.announcer.timeout)?;
            let known = node_record::list(&etcd).context("looking what the other nodes run")?;
            if node_record::settled(&context.config, &known, &context.image.build) {
                renew(&context, &Host, now)?;
            }
        }
        if !looks {
            return Ok(Findings::default());
        }
        let config = &context.config;
        let api = Api::as_administrator(config.address(), &context.root, config.timeout(REQUEST));
        let wanted = addons::wanted(config, &context.image);
        Ok(api.and_then(|api| troubles(&api, &wanted)).unwrap_or_else(|error| {
            log::debug!("how the add-ons run is not known: {error:#}");
            last.findings()
        }))
    })))
}

/// Which of the add-ons do not run.
fn troubles(api: &Api, wanted: &[AddOn]) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for add_on in wanted {
        for workload in add_on.workloads() {
            let Some(trouble) = api.trouble(&workload)? else { continue };
            findings.push(codes::ADD_ON_NOT_READY.finding(
                add_on.name,
                trouble,
                format!(
                    "Look why: `kubectl --namespace={} describe pods`. It is left out with `kaas-agent configure`",
                    workload.namespace
                ),
            ));
        }
    }
    Ok(findings)
}

/// Applies the add-ons unless they are this image's already, and takes away those that the cluster is not to have.
fn renew(context: &SwapContext, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<()> {
    let (config, address) = (&context.config, context.config.address());
    let wanted = addons::wanted(config, &context.image);
    let mut applied = Vec::new();
    for add_on in &wanted {
        if add_on.name == CLUSTER_METRICS {
            certify(&context.root, address, runner, now).context("seeing to the certificate of metrics-server")?;
        }
        if mark(add_on, address, runner)?.is_some_and(|mark| mark == add_on.mark) {
            continue;
        }
        if let Some(kinds) = add_on.kinds {
            api::apply_kinds(runner, address, kinds)
                .with_context(|| format!("applying the kinds of {}", add_on.name))?;
        }
        api::apply(runner, address, &add_on.objects).with_context(|| format!("applying {}", add_on.name))?;
        applied.push(add_on.name);
    }
    for name in addons::unwanted(config, &wanted) {
        take_away(name, address, runner).with_context(|| format!("taking away {name}"))?;
    }
    if !applied.is_empty() {
        let applied = applied.join(", ");
        context.note(&format!("all nodes run image {}: its add-ons were applied: {applied}", context.image.version));
    }
    if config.role.takes_workers() {
        let authority = files::below(&context.root, AUTHORITY);
        let authority = fs::read_to_string(authority).context("reading the cluster's authority")?;
        api::apply(runner, address, &addons::workers(config, &authority)).context("applying what workers join with")?;
    }
    let priorities = addons::priorities(config.cluster.pod_security);
    if !priorities.is_empty() {
        api::apply(runner, address, &priorities).context("applying who may have the system's priorities")?;
    }
    files::write_atomically(&files::below(&context.root, SEEN), seen(context, now).as_bytes(), 0o644)?;
    Ok(())
}

/// Which build and settings the cluster's objects of an add-on are of; none if they are not there.
fn mark(add_on: &AddOn, address: Ipv4Addr, runner: &dyn Runner) -> anyhow::Result<Option<String>> {
    let Some(workload) = add_on.workloads().into_iter().next() else { return Ok(None) };
    let path = addons::BUILD.replace('.', "\\.");
    let question = api::kubectl(address).args([
        "get",
        workload.kind.name(),
        &workload.name,
        &format!("--namespace={}", workload.namespace),
        "--ignore-not-found",
        &format!("--output=jsonpath={{.metadata.annotations.{path}}}"),
    ]);
    Ok(Some(String::from_utf8_lossy(runner.run(&question)?.trim_ascii()).into_owned()))
}

/// Makes a certificate for metrics-server unless it has one that is good for long.
fn certify(root: &Path, address: Ipv4Addr, runner: &dyn Runner, now: SystemTime) -> anyhow::Result<()> {
    let authority = Authorities::read(&files::below(root, PKI))?.kubernetes;
    let question = api::kubectl(address).args([
        "get",
        "secret",
        metrics_server::CERTIFICATE,
        "--namespace=kube-system",
        "--ignore-not-found",
        "--output=json",
    ]);
    let there = Zeroizing::new(runner.run(&question)?);
    if !metrics_server::holds(&there, &authority, now) {
        api::apply(runner, address, &metrics_server::credentials(&authority, now)?)?;
    }
    Ok(())
}

/// Deletes what has the label of an add-on: nothing that somebody else has brought.
fn take_away(name: &str, address: Ipv4Addr, runner: &dyn Runner) -> anyhow::Result<()> {
    let command = api::kubectl(address).args([
        "delete",
        addons::REMOVED,
        "--all-namespaces",
        &format!("--selector={}={name}", addons::LABEL),
        "--ignore-not-found",
        "--wait=false",
    ]);
    runner.run(&command)?;
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
        let (build, now) = (context.image.build.clone(), SystemTime::now());
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
            renew(&context, &cluster, now).unwrap();
            let asked = cluster.1.into_inner().unwrap();
            assert_eq!(asked.len(), commands, "{asked:?}");
            assert!(asked[0].contains("{.metadata.annotations.kaas\\.local/build}"), "{asked:?}");
            let done = fs::read_to_string(files::below(root.path(), SEEN)).unwrap();
            assert_eq!(done, seen(&context, now));
            assert!(done.contains(level.name()), "{done}");
            assert_ne!(done, seen(&context, now + std::time::Duration::from_secs(MONTH)));
        }
    }

    /// Has all that is asked for, but no Secret; notes what is asked, without the answer.
    #[derive(Default)]
    struct Tenant(Mutex<Vec<String>>);

    impl Runner for Tenant {
        fn run(&self, command: &Command) -> Result<Vec<u8>, Error> {
            let words: Vec<String> = command.to_string().split(' ').skip(3).map(str::to_owned).collect();
            self.0.lock().unwrap().push(words.join(" "));
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_tenant_gets_the_add_ons_that_it_is_to_have_and_loses_the_others() {
        let root = tempfile::tempdir().unwrap();
        Authorities::make(SystemTime::now()).unwrap().ensure(&files::below(root.path(), PKI)).unwrap();
        let mut context = context(root.path(), None);
        context.config.role = Role::TenantControlPlane;
        let chosen = &mut context.config.cluster.add_ons;
        chosen.metrics = true;
        let first = Ipv4Addr::new(10, 0, 0, 50);
        chosen.service_addresses = vec![contract::properties::AddressRange { first, last: first }];
        let tenant = Tenant::default();
        renew(&context, &tenant, SystemTime::now()).unwrap();
        insta::assert_snapshot!(tenant.0.into_inner().unwrap().join("\n"));
    }
}
