//! Brings the cluster's add-ons to what this image has and the properties say, once every node runs it for good: the
//! last commit of an upgrade changes them. Until then they are what the former image made of them, and
//! each node runs the container image that its own appliance image carries. What somebody deletes of them comes back. Says
//! which add-on of a tenant does not run, and that no controller of tenants leads.

mod leader;
mod part;

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::rollout::{Workload, WorkloadProblem};
use crate::cluster::pki::CertificateAuthorities;
use crate::cluster::records::Records;
use crate::host::command::{Runner, SlowHost};
use crate::host::files;
use crate::node::context::NodeContext;
use crate::status::{self, Times};
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;
use part::{Find, Part};

/// Says, until the VM restarts, of which build and with which settings the add-ons were seen to be, for which level of pods'
/// security, in which month, for certificates among them end, and since which restore of the store.
const SEEN: &str = "/run/kaas/addons";

/// How long pods may still be coming up once this node does its part: those of a node that was just powered on are no trouble yet.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds.
const MONTH: u64 = 30 * 24 * 60 * 60;

fn seen(context: &SwapContext, now: SystemTime) -> anyhow::Result<String> {
    let month = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / MONTH;
    let cluster = &context.config.cluster;
    let restored = Records::new(&context.root).entry::<RestoreRecord>()?;
    let since = restored.map(|restored| format!(" restored {}", restored.token)).unwrap_or_default();
    let (build, resolvers) = (&context.image.build, addons::resolvers(&context.config.node));
    Ok(format!("{build} {} {} {resolvers} month {month}{since}", cluster.pod_security, cluster.add_ons))
}

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let manager = node.endpoint.swaps().clone();
    let Some(context) = manager.context() else { return Ok(None) };
    if !context.reporter.status().is_ready() {
        return Ok(None);
    }
    let is_swapped = manager.state().is_some();
    Ok(Some(Box::new(move |last| {
        let config = &context.config;
        let wanted = addons::wanted(config, &context.image);
        let api = Api::as_administrator(config.address(), &context.root, config.timeout(REQUEST))?;
        let settled = || -> anyhow::Result<bool> {
            let etcd = EtcdClient::new(&context.announcer.node, &context.pki, context.announcer.timeout)?;
            let known = node_record::list(&etcd).context("looking what the other nodes run")?;
            Ok(node_record::settled(config, &known, &context.image.build))
        };
        let care = AddOnReconciler {
            context: &context,
            runner: &SlowHost(config.timeout_factor),
            find: &|object| api.like(object),
            may: &|| if is_swapped { Ok(false) } else { settled() },
            now: SystemTime::now(),
        };
        let looked = care.take(&wanted)?.and_then(|mut findings| {
            if config.role != Role::ControlPlane {
                let up = works_for(&context.reporter.status().times, status::since_power_on());
                findings.extend(troubles(&|workload| api.workload_problem(workload), &wanted, up)?);
            }
            if wanted.iter().any(|add_on| add_on.name == addons::CONTROLLER) {
                findings.extend(leader::look(&api)?);
            }
            Ok(findings)
        });
        Ok(looked.unwrap_or_else(|error| {
            log::debug!("how the add-ons run is not known: {error:#}");
            last.findings()
        }))
    })))
}

/// How long this node does its part since its power-on, now that it is up for so many seconds. Where that is not known, for long.
fn works_for(times: &Times, up: Option<u64>) -> Duration {
    times.done.zip(up).map_or(Duration::MAX, |(done, up)| Duration::from_secs(up.saturating_sub(done)))
}

/// Looks for what stands in the way of a workload.
type Look<'a> = &'a dyn Fn(&Workload) -> anyhow::Result<Option<WorkloadProblem>>;

/// Which of the add-ons do not run, where this node does its part for so long: what may pass by itself is told after a while.
fn troubles(look: Look<'_>, wanted: &[AddOn], up: Duration) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for add_on in wanted {
        for workload in add_on.workloads() {
            let Some(trouble) = look(&workload)?.filter(|trouble| !trouble.passes || up >= PATIENCE) else { continue };
            findings.push(codes::ADD_ON_NOT_READY.finding(
                add_on.name,
                trouble.seen,
                format!(
                    "Look why: `kubectl --namespace={} describe pods`. It is left out with `kaas-agent configure`",
                    workload.namespace
                ),
            ));
        }
    }
    Ok(findings)
}

struct AddOnReconciler<'a> {
    context: &'a SwapContext,
    runner: &'a dyn Runner,
    find: Find<'a>,
    /// Whether this node may change anything in the cluster now.
    may: &'a dyn Fn() -> anyhow::Result<bool>,
    now: SystemTime,
}

impl AddOnReconciler<'_> {
    /// Brings all of it to what it is to be, once for this boot and these settings; then what is missing. Says what was, or
    /// why that cannot be looked up.
    ///
    /// # Errors
    /// Something cannot be applied; that is done again at the next look.
    fn take(&self, wanted: &[AddOn]) -> anyhow::Result<anyhow::Result<Findings>> {
        let parts = Part::all(self.context, wanted)?;
        let (done, now) = (fs::read_to_string(files::below(&self.context.root, SEEN)), seen(self.context, self.now)?);
        if done.is_ok_and(|done| done == now) {
            return self.complete(&parts);
        }
        if (self.may)()? {
            self.renew(wanted, &parts)?;
        }
        Ok(Ok(Findings::default()))
    }

    /// Applies the parts unless they are this image's already, and takes away those that the cluster is not to have.
    fn renew(&self, wanted: &[AddOn], parts: &[Part]) -> anyhow::Result<()> {
        let context = self.context;
        let mut applied = Vec::new();
        for part in parts {
            if part.is_current(self.find)? {
                self.certify(part)?;
                continue;
            }
            self.bring(part)?;
            if part.is_marked() {
                applied.push(part.name);
            }
        }
        for name in addons::unwanted(&context.config, wanted) {
            self.take_away(name).with_context(|| format!("taking away {name}"))?;
        }
        if !applied.is_empty() {
            let applied = applied.join(", ");
            context
                .note(&format!("all nodes run image {}: its add-ons were applied: {applied}", context.image.version));
        }
        files::write_atomically(&files::below(&context.root, SEEN), seen(context, self.now)?.as_bytes(), 0o644)?;
        Ok(())
    }

    /// Applies again what somebody has deleted of the parts. One that another node has with other settings is left alone.
    fn complete(&self, parts: &[Part]) -> anyhow::Result<anyhow::Result<Findings>> {
        let (mut findings, mut incomplete) = (Findings::default(), Vec::new());
        for part in parts {
            let absent = match part.absent(self.find) {
                Ok(absent) if absent.is_empty() => continue,
                Ok(absent) => absent,
                Err(error) => return Ok(Err(error)),
            };
            findings.push(codes::ADD_ON_NOT_READY.finding(
                part.name,
                format!("not there: {}", absent.join(", ")),
                "It is applied again, but not while an image is swapped. If this stays, somebody removes it: see the audit \
                 log of the API server",
            ));
            incomplete.push(part);
        }
        if !incomplete.is_empty() && (self.may)()? {
            for part in incomplete {
                self.bring(part)?;
                self.context.note(&format!("{}: what was missing was applied again", part.name));
            }
        }
        Ok(Ok(findings))
    }

    /// Applies a part, with the certificate that it needs.
    fn bring(&self, part: &Part) -> anyhow::Result<()> {
        self.certify(part)?;
        part.apply(self.runner, self.context.config.address())
    }

    /// Makes a certificate for metrics-server unless it has one that is good for long, and is asked for metrics.
    fn certify(&self, part: &Part) -> anyhow::Result<()> {
        if part.name != CLUSTER_METRICS {
            return Ok(());
        }
        let address = self.context.config.address();
        let sees = || -> anyhow::Result<()> {
            let authority = CertificateAuthorities::read(&files::below(&self.context.root, PKI))?.kubernetes;
            let question = api::kubectl(address).args([
                "get",
                "secret",
                metrics_server::CERTIFICATE,
                "--namespace=kube-system",
                "--ignore-not-found",
                "--output=json",
            ]);
            let there = Zeroizing::new(self.runner.run(&question)?);
            let registered = (self.find)(&metrics_server::registration())?.is_some();
            if !registered || !metrics_server::holds(&there, &authority, self.now) {
                api::apply(self.runner, address, &metrics_server::credentials(&authority, self.now)?)?;
            }
            Ok(())
        };
        sees().context("seeing to the certificate of metrics-server")
    }

    /// Deletes what has the label of an add-on: nothing that somebody else has brought.
    fn take_away(&self, name: &str) -> anyhow::Result<()> {
        let command = api::kubectl(self.context.config.address()).args([
            "delete",
            addons::REMOVED,
            "--all-namespaces",
            &format!("--selector={}={name}", addons::LABEL),
            "--ignore-not-found",
            "--wait=false",
        ]);
        self.runner.run(&command)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
