//! Keeps the cluster's add-ons at the state of this image and of the properties. They change once every node runs this image
//! and its upgrade is committed. Until then they stay as the former image applied them, and each node runs the container image
//! that its own appliance image contains. Deleted objects of add-ons are applied again. Findings: an add-on of a tenant that
//! does not run, and no leader among the controllers of tenants.

mod leader;
mod part;

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use contract::properties::CLUSTER_METRICS;
use contract::role::Role;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::job::Job;
use crate::cluster::REQUEST;
use crate::cluster::addons::{self, AddOn, metrics_server};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::join::settings;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::rollout::{Workload, WorkloadProblem};
use crate::cluster::pki::CertificateAuthorities;
use crate::cluster::records::Records;
use crate::host::command::{Runner, SlowHost};
use crate::host::files;
use crate::host::hex;
use crate::node::context::NodeContext;
use crate::status::{self, Times};
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::node_record;
use part::{Find, Part};

/// Records, until the VM restarts, the state in which the add-ons were last seen: build, settings, settings of workers, level of
/// pod security and month. The month is part of it because some of their certificates expire. The last restore of the store is
/// part of it, too.
const SEEN: &str = "/run/kaas/addons";

/// How long pods may take to start once this node works. Pods of a node that was just powered on are not reported before.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds.
const MONTH: u64 = 30 * 24 * 60 * 60;

fn seen(context: &SwapContext, now: SystemTime) -> anyhow::Result<String> {
    let month = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / MONTH;
    let cluster = &context.config.cluster;
    let restored = Records::new(&context.root).entry::<RestoreRecord>()?;
    let since = restored.map(|restored| format!(" restored {}", restored.token)).unwrap_or_default();
    let (build, resolvers) = (&context.image.build, addons::resolvers(&context.config.node));
    // The settings may be secrets.
    let of_workers = Sha256::digest(serde_json::to_vec(&settings::of(&context.config))?);
    let of_workers = hex::lower(of_workers.as_slice());
    let (security, add_ons) = (cluster.pod_security, &cluster.add_ons);
    Ok(format!("{build} {security} {add_ons} {resolvers} workers {of_workers} month {month}{since}"))
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

/// How long this node has worked since its power-on. `up` is in seconds. [`Duration::MAX`] if it is unknown.
fn works_for(times: &Times, up: Option<u64>) -> Duration {
    times.done.zip(up).map_or(Duration::MAX, |(done, up)| Duration::from_secs(up.saturating_sub(done)))
}

/// Looks for a problem of a workload.
type Look<'a> = &'a dyn Fn(&Workload) -> anyhow::Result<Option<WorkloadProblem>>;

/// The add-ons that do not run. `up` is how long this node has worked. Problems that may pass are reported after [`PATIENCE`].
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
    /// Applies everything once for this boot and these settings; after that, only what is missing. Returns the
    /// findings, or the reason why the objects cannot be looked up. After an error the next look tries again.
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

    /// Applies the parts that are not of this image, and deletes the add-ons that the cluster should not have.
    fn renew(&self, wanted: &[AddOn], parts: &[Part]) -> anyhow::Result<()> {
        let context = self.context;
        let mut applied = Vec::new();
        for part in parts {
            if part.is_current(self.find)? {
                self.certify(part)?;
                continue;
            }
            self.bring(part)?;
            if part.name == addons::CONTROLLER {
                self.remove_former().context("removing what a former image applied")?;
            }
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

    /// Applies again the objects of the parts that were deleted. Leaves a part alone that another node has applied with other
    /// settings.
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
                "It is applied again, but not while an image is swapped. If this stays, find what removes it: see the audit \
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

    fn bring(&self, part: &Part) -> anyhow::Result<()> {
        self.certify(part)?;
        part.apply(self.runner, self.context.config.address())
    }

    /// Makes a certificate for metrics-server, unless it has one that is valid for long and is registered for metrics.
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

    /// Deletes the objects that former images applied for the controller and this one lacks.
    fn remove_former(&self) -> anyhow::Result<()> {
        let command = api::kubectl(self.context.config.address())
            .args(["delete", "--ignore-not-found", "--wait=false"])
            .args(addons::FORMER_OF_CONTROLLER);
        self.runner.run(&command)?;
        Ok(())
    }

    /// Deletes the objects that have the label of an add-on. Objects of other origin stay.
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
