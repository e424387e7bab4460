//! The boot flow, from power-on to a working node of the cluster, and maintenance after that.
//!
//! ```text
//! platform → data disk → Config (saved, or from the OVF environment) → Plan → steps → maintenance
//! ```
//!
//! Maintenance tasks that need only the data disk or etcd begin between the steps, because a boot may wait for long.
//!
//! Errors are shown and checked again. The agent never gives up and never restarts itself. Before it has a plan it
//! changes nothing except console and SSH access.

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;

use crate::boot::corrections::AGAIN;
use crate::boot::learn::{introduce, learn, refuse};
use crate::boot::plan::{self, Observed, Plan, Step};
use crate::boot::steps::{StepContext, StepError, StepOutcome};
use crate::boot::{LOOP, STEP, early_access};
use crate::host::bus;
use crate::host::command::SlowHost;
use crate::host::files;
use crate::host::image;
use crate::host::platform::Platform;
use crate::host::services;
use crate::maintenance::{Maintenance, Prerequisite, storage};
use crate::node::context::NodeContext;
use crate::status::{self, Phase, Reporter, Status, Work};

/// The pause after an unexpected failure.
const LATER: Duration = Duration::from_secs(30);

/// The pause between two rounds of maintenance after the plan is done. [`Maintenance`] decides which checks are due.
const CALM: Duration = Duration::from_secs(5);

/// How long a round of maintenance may last before the agent counts as hung, times the timeout factor.
const ROUND: Duration = Duration::from_secs(20 * 60);

/// Runs until the process is killed. It never returns.
pub fn run(root: &Path) -> ExitCode {
    let reporter = Reporter::new(root, Status::default());
    // Other services are ordered after the agent, and the agent starts them. Its own start ends when it begins to work.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    reporter.start_watchdog();
    let mut watching = false;
    loop {
        reporter.alive(LOOP, STEP);
        watching = watching || watch_storage(root, &reporter);
        let Err(error) = boot(root, &reporter);
        log::error!("{error:#}");
        failed(&reporter, &error);
        early_access::open_without_plan(root, None);
        thread::sleep(LATER);
    }
}

/// Begins to watch the storage. True if it succeeded.
fn watch_storage(root: &Path, reporter: &Reporter) -> bool {
    let begun = Platform::detect(root).and_then(|platform| Ok(storage::watch(platform, reporter.clone())?));
    begun.inspect_err(|error| log::error!("watching the storage: {error:#}")).is_ok()
}

fn failed(reporter: &Reporter, error: &anyhow::Error) {
    reporter.update(|status| {
        status.phase = Phase::Refused;
        let action = "It is tried again; if it stays, look at the journal of kaas-agent";
        status.findings = codes::AGENT_FAILED.finding("the appliance", format!("{error:#}"), action).into();
    });
}

fn boot(root: &Path, reporter: &Reporter) -> anyhow::Result<Infallible> {
    let platform = Platform::detect(root)?;
    let image = image::read(root)?;
    reporter.update(|status| status.image = image.title());
    let (known, plan) = loop {
        let known = learn(&platform, &image, reporter)?;
        let observed = Observed {
            image: image.clone(),
            storage: known.storage.clone(),
            progress: known.progress,
            rendezvous_closed: known.rendezvous_closed,
            upgrading: known.upgrading.clone(),
            volumes: known.volumes.clone(),
        };
        introduce(reporter, &known.config);
        reporter.update(|status| status.findings = known.warnings.clone());
        match plan::decide(&known.config, &observed) {
            Ok(plan) => break (known, plan),
            // The input may be corrected in the meantime.
            Err(finding) => {
                early_access::open_without_plan(root, Some(&known.config));
                refuse(reporter, finding.into(), LATER);
            }
        }
    };
    save(root, &plan)?;
    log::info!("decided: {} steps to {:?}", plan.steps.len(), plan.goal);
    reporter.update(|status| {
        status.phase = Phase::Working;
        status.refusals = 0;
        status.times.verdict = status.times.verdict.or_else(status::since_power_on);
    });
    let (config, data_disk, progress) = ((known.config, known.secret), known.data_disk, known.progress);
    let (config, secret) = config;
    let host = (bus::system()?, Box::new(SlowHost(config.timeout_factor())) as _);
    let node = NodeContext::new(platform, image, config, data_disk, reporter.clone(), host);
    early_access::open_before_steps(&node.platform, node.runner(), node.bus(), &node.config);
    let mut context = StepContext::new(node, secret, progress, plan);
    context.environment = known.environment;
    context.warn(known.warnings);
    let mut maintenance = Maintenance::default();
    let steps = context.plan.steps.clone();
    run_steps(&mut context, &steps, &mut maintenance, reporter);
    let manager = context.node.endpoint.swaps();
    if let Some(context) = manager.context()
        && let Err(error) = context.announce(|| manager.under_way())
    {
        log::warn!("telling the cluster of this node's data disk: {error:#}");
    }
    maintenance.begin(context.node.config.role(), Prerequisite::Node, Instant::now());
    maintenance.remember(&context.passing);
    loop {
        reporter.alive(LOOP, context.node.config.timeout(ROUND));
        if let Some(health) = &context.health {
            health.look_if_due();
        }
        if maintenance.run(&context.node, Instant::now()) {
            let mut all = context.warnings().clone();
            all.extend(maintenance.findings());
            reporter.update(|status| status.findings = all);
        }
        thread::sleep(CALM);
    }
}

/// Runs the steps in order, each until it succeeds, and the maintenance that has begun.
pub(crate) fn run_steps(context: &mut StepContext, steps: &[Step], maintenance: &mut Maintenance, reporter: &Reporter) {
    for (index, step) in steps.iter().enumerate() {
        carry_out_one(context, steps, index, maintenance, reporter);
        if let Some(needs) = gives(step) {
            maintenance.begin(context.node.config.role(), needs, Instant::now());
        }
        let mut findings = context.findings();
        findings.extend(maintenance.findings());
        reporter.update(|status| status.findings = findings);
    }
    reporter.update(|status| {
        status.phase = Phase::Done;
        status.work = None;
        status.times.done = status.times.done.or_else(status::since_power_on);
    });
}

/// Runs one step until it succeeds. If the clock was set while it waits, the earlier steps that depend on the clock run
/// again. The step may wait for certificates that are not valid.
fn carry_out_one(
    context: &mut StepContext,
    steps: &[Step],
    index: usize,
    maintenance: &mut Maintenance,
    reporter: &Reporter,
) {
    let step = &steps[index];
    let work = Work { number: index + 1, total: steps.len(), step: step.to_string(), waiting: None };
    let mut attempt = 0;
    loop {
        if attempt == 0 {
            reporter.update(|status| {
                status.phase = Phase::Working;
                status.refusals = 0;
                status.work = Some(work.clone());
            });
        }
        reporter.alive(LOOP, STEP);
        let error = match context.run(step) {
            Ok(done) => {
                let what = match (attempt, done) {
                    (0, StepOutcome::Unchanged) => "nothing to do",
                    (0, StepOutcome::Changed) => "done",
                    _ => "done in the end",
                };
                log::info!("{step}: {what}");
                return;
            }
            Err(error) => error,
        };
        let mut findings = context.findings();
        findings.extend(context.passed_over().without(&findings));
        findings.extend(maintenance.findings());
        reporter.update(|status| show(status, &error, findings));
        if let StepError::Failed(error) = &error {
            log::warn!("{step}: {error:#}");
        }
        if let Some(health) = &context.health {
            health.look_if_due();
        }
        wait(context, maintenance, error.pause(attempt));
        attempt += 1;
        if context.clock.was_set() {
            log::warn!("the clock was set while this step waits: the node looks at its certificates again");
            for earlier in (0..index).filter(|earlier| steps[*earlier].follows_the_clock()) {
                carry_out_one(context, steps, earlier, maintenance, reporter);
            }
            attempt = 0;
        }
    }
}

/// The prerequisite of maintenance that this step provides.
fn gives(step: &Step) -> Option<Prerequisite> {
    match step {
        Step::MountDataDisk { .. } | Step::KeepOnScratch => Some(Prerequisite::DataDisk),
        Step::Etcd => Some(Prerequisite::Etcd),
        Step::Join => Some(Prerequisite::Membership),
        _ => None,
    }
}

/// Waits until a step is tried again, and runs maintenance that is due. Properties that are corrected in the meantime
/// are used as at power-on, while that is allowed.
fn wait(context: &StepContext, maintenance: &mut Maintenance, time: Duration) {
    let until = Instant::now() + time;
    loop {
        if context.sees_corrections() {
            log::info!("the node belongs to no cluster yet and was given other properties: it starts again with them");
            match services::restart_agent() {
                // systemd ends this process.
                Ok(()) => thread::sleep(LATER),
                Err(error) => log::warn!("starting again: {error:#}"),
            }
        }
        maintenance.run(&context.node, Instant::now());
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(AGAIN));
    }
}

fn show(status: &mut Status, error: &StepError, findings: Findings) {
    status.findings = findings;
    let (phase, waiting) = match error {
        StepError::Waiting(what) => (Phase::Waiting, Some(what.clone())),
        StepError::Refused(findings) => {
            status.findings.extend(findings.clone());
            (Phase::Refused, None)
        }
        StepError::Failed(error) => (Phase::Waiting, Some(format!("failed and will be tried again: {error:#}"))),
    };
    status.refusals = if phase == Phase::Refused { status.refusals.saturating_add(1) } else { 0 };
    status.phase = phase;
    if let Some(work) = &mut status.work {
        work.waiting = waiting;
    }
}

fn save(root: &Path, plan: &Plan) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(plan)?;
    files::write_atomically(&files::below(root, plan::PATH), &text, 0o644).context("saving the plan")
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::role::Role;

    #[test]
    fn worker_renews_its_lease_before_it_is_ready() {
        let mut maintenance = Maintenance::default();
        for needs in [Step::KeepOnScratch, Step::Join, Step::Kubelet].iter().filter_map(gives) {
            maintenance.begin(Role::Worker, needs, Instant::now());
        }
        assert!(maintenance.has_begun("the lease of the address") && !maintenance.has_begun("the clock"));
    }

    #[test]
    fn agent_without_a_plan_reports_the_reason() {
        let root = tempfile::tempdir().unwrap();
        let reporter = Reporter::new(root.path(), Status::default());
        // The root is empty and has no image.
        let Err(error) = boot(root.path(), &reporter);
        failed(&reporter, &error);
        let status = reporter.status();
        let found: Vec<_> = status.findings.iter().map(|finding| (finding.code.as_str(), &finding.seen)).collect();
        assert_eq!(found, [("agent.failed", &format!("{error:#}"))]);
        assert_eq!(status.phase, Phase::Refused);
    }
}
