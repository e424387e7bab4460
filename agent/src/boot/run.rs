//! The boot flow, from power-on to a node that does its part of the cluster,
//! and maintenance after that.
//!
//! ```text
//! platform → data disk → Config (saved, or from the OVF environment) → Plan → steps → maintenance
//! ```
//!
//! What of maintenance needs only the data disk or etcd begins between the steps: a boot may wait for long.
//!
//! Whatever is wrong is shown and looked at again: the agent never gives up,
//! never restarts itself and changes nothing before it has a plan.

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use contract::codes;
use contract::finding::{Finding, Findings};
use contract::image::ImageFacts;
use contract::secret::Secret;

use crate::boot::corrections::{AGAIN, Found, corrected, from_environment, is_untouched};
use crate::boot::plan::{self, Observed, Plan, Step};
use crate::boot::reset;
use crate::boot::steps::{StepContext, StepError, StepOutcome};
use crate::cluster::kubernetes::upgrade::Begun;
use crate::cluster::records::{Progress, Records};
use crate::cluster::rendezvous::Record;
use crate::host::bus;
use crate::host::command::Host;
use crate::host::disk::ownership::Candidate;
use crate::host::disk::{self, DataDisk, DiskState};
use crate::host::files;
use crate::host::image;
use crate::host::platform::Platform;
use crate::host::services;
use crate::intake::config::Config;
use crate::intake::preflight::{self, Clock, Facts};
use crate::maintenance::{Maintenance, Needs};
use crate::node::context::NodeContext;
use crate::status::{self, Phase, Reporter, Status, Work};
use crate::system::clock;

/// The pause before disks are looked at again: proving one blank reads all of it.
const DISKS_AGAIN: Duration = Duration::from_secs(30);

/// The pause after something failed that should not have.
const LATER: Duration = Duration::from_secs(30);

/// The pause between two looks at the cluster once the plan is done. What is
/// looked at then is decided by the watch.
const CALM: Duration = Duration::from_secs(5);

/// What the watchdog calls this loop.
pub(crate) const LOOP: &str = "the main loop";

/// How long a step, or looking at the disks, may last at the very most before
/// the agent counts as hung: checking a large, damaged file system takes its time.
pub(crate) const STEP: Duration = Duration::from_secs(2 * 60 * 60);

/// How long a round of maintenance may last at the very most.
const ROUND: Duration = Duration::from_secs(20 * 60);

/// Runs until the process is ended: it never returns.
pub fn run(root: &Path) -> ExitCode {
    let reporter = Reporter::new(root, Status::default());
    // The services are ordered after the agent, which starts them: its own
    // start is over when it has begun to work.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    reporter.start_watchdog();
    loop {
        reporter.alive(LOOP, STEP);
        let Err(error) = boot(root, &reporter);
        log::error!("{error:#}");
        failed(&reporter, &error);
        thread::sleep(LATER);
    }
}

/// Says that the agent came to no plan.
fn failed(reporter: &Reporter, error: &anyhow::Error) {
    reporter.update(|status| {
        status.phase = Phase::Refused;
        let action = "It is tried again; if it stays, look at the journal of kaas-agent";
        status.findings = codes::AGENT_FAILED.finding("the appliance", format!("{error:#}"), action).into();
    });
}

/// What is known before deciding.
struct Known {
    config: Config,
    secret: Option<Secret>,
    /// The fingerprint of the OVF environment, if they are from there.
    environment: Option<String>,
    data_disk: DataDisk,
    disk: plan::Disk,
    progress: Progress,
    rendezvous_closed: bool,
    upgrading: Option<String>,
    warnings: Findings,
}

fn boot(root: &Path, reporter: &Reporter) -> anyhow::Result<Infallible> {
    let platform = Platform::detect(root)?;
    let image = image::read(root)?;
    reporter.update(|status| status.image = image.title());
    let (known, plan) = loop {
        let known = learn(&platform, &image, reporter)?;
        let observed = Observed {
            image: image.clone(),
            disk: known.disk.clone(),
            progress: known.progress,
            rendezvous_closed: known.rendezvous_closed,
            upgrading: known.upgrading.clone(),
        };
        reporter.update(|status| {
            status.node = Some(known.config.node().name.clone());
            status.address = Some(known.config.address());
            status.cluster = Some(known.config.cluster_name().to_owned());
            status.findings = known.warnings.clone();
        });
        match plan::decide(&known.config, &observed) {
            Ok(plan) => break (known, plan),
            // What it is made from may be corrected meanwhile.
            Err(finding) => refuse(reporter, finding.into(), LATER),
        }
    };
    save(root, &plan)?;
    log::info!("decided: {} steps to {:?}", plan.steps.len(), plan.goal);
    reporter.update(|status| {
        status.phase = Phase::Working;
        status.times.verdict = status.times.verdict.or_else(status::since_power_on);
    });
    let (config, data_disk, progress) = ((known.config, known.secret), known.data_disk, known.progress);
    let (config, secret) = config;
    let host = (bus::system()?, Box::new(Host) as _);
    let node = NodeContext::new(platform, image, config, data_disk, reporter.clone(), host);
    let mut context = StepContext::new(node, secret, progress, plan);
    context.environment = known.environment;
    context.warn(known.warnings);
    let mut maintenance = Maintenance::default();
    let steps = context.plan.steps.clone();
    carry_out(&mut context, &steps, &mut maintenance, reporter);
    let manager = context.node.endpoint.swaps();
    if let Some(context) = manager.context()
        && let Err(error) = context.announcer.tell(manager.under_way())
    {
        log::warn!("telling the cluster of this node's data disk: {error:#}");
    }
    maintenance.begin(context.node.config.role(), Needs::Node, Instant::now());
    maintenance.remember(&context.passing);
    loop {
        reporter.alive(LOOP, ROUND);
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

/// Does the steps in order, each until it is done, and looks after what the node has by then.
pub(crate) fn carry_out(context: &mut StepContext, steps: &[Step], maintenance: &mut Maintenance, reporter: &Reporter) {
    let total = steps.len();
    for (index, step) in steps.iter().enumerate() {
        let work = Work { number: index + 1, total, step: step.to_string(), waiting: None };
        let mut attempt = 0;
        loop {
            if attempt == 0 {
                reporter.update(|status| {
                    status.phase = Phase::Working;
                    status.work = Some(work.clone());
                });
            }
            reporter.alive(LOOP, STEP);
            let error = match context.run(step) {
                Ok(done) => {
                    let what = match (attempt, done) {
                        (0, StepOutcome::Already) => "nothing to do",
                        (0, StepOutcome::Changed) => "done",
                        _ => "done in the end",
                    };
                    log::info!("{step}: {what}");
                    break;
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
        }
        let begins = match step {
            Step::MountDataDisk { .. } => Some(Needs::DataDisk),
            Step::Etcd => Some(Needs::Etcd),
            _ => None,
        };
        if let Some(needs) = begins {
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

/// Waits until a step is tried again, and does what of maintenance is due. Properties that are corrected meanwhile
/// are taken up as at power-on, while they count.
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
    status.phase = phase;
    if let Some(work) = &mut status.work {
        work.waiting = waiting;
    }
}

/// Shows findings that a person must mend, for this long.
fn refuse(reporter: &Reporter, findings: Findings, time: Duration) {
    reporter.update(|status| {
        status.phase = Phase::Refused;
        status.findings = findings;
        status.times.verdict = status.times.verdict.or_else(status::since_power_on);
    });
    reporter.alive(LOOP, time + STEP);
    thread::sleep(time);
}

/// Looks at the data disk, mounts it if it is ours, and gets the
/// configuration from there or from the OVF environment: as often as it takes.
fn learn(platform: &Platform, image: &ImageFacts, reporter: &Reporter) -> anyhow::Result<Known> {
    let records = Records::new(platform.root());
    let candidate = Candidate::of(platform, image);
    loop {
        let examination =
            disk::examine(platform, &candidate, platform.root(), &Host).context("looking at the disks")?;
        let mut findings = examination.findings;
        let (disk, saved) = match &examination.data_disk {
            DataDisk::Ours { disk, identity } if identity.state == DiskState::Erasing => {
                let mut tell = |finding: Finding| {
                    reporter.alive(LOOP, STEP);
                    reporter.update(|status| status.findings = finding.into());
                };
                if let Err(finding) = reset::finish(disk, platform, &Host, &mut tell) {
                    refuse(reporter, finding.into(), DISKS_AGAIN);
                }
                continue;
            }
            DataDisk::Ours { disk, identity } if !findings.has_errors() => {
                if let Err(finding) = disk::mount(disk, identity, platform, &Host) {
                    refuse(reporter, finding.into(), DISKS_AGAIN);
                    continue;
                }
                findings.extend(clock::raise(platform));
                match records.config() {
                    Ok(saved) => (Some(plan::Disk::Ours(disk.path.clone())), saved),
                    Err(error) => {
                        refuse(reporter, not_understood(&error, &identity.image_version).into(), DISKS_AGAIN);
                        continue;
                    }
                }
            }
            DataDisk::Blank { disk } | DataDisk::Interrupted { disk, .. } if !findings.has_errors() => {
                (Some(plan::Disk::Fresh(disk.path.clone())), None)
            }
            _ => (None, None),
        };
        let blank = !matches!(disk, Some(plan::Disk::Ours(_)));
        let role = saved.as_ref().map_or(image.roles.first(), Config::role);
        let facts = Facts::of(platform, examination.data_disk.size(), blank, role);
        findings.extend(preflight::judge(&facts, saved.as_ref()));
        let looked = Instant::now();
        let saved = match saved {
            Some(config) => match corrected(platform, image)? {
                (None, passed_over) => {
                    findings.extend(passed_over);
                    Some((config, records.secret()?, None))
                }
                (Some(Ok(found)), _) => {
                    log::info!("the node belongs to no cluster yet and was given other properties: it takes them");
                    findings.extend(found.warnings);
                    Some((found.config, Some(found.secret), found.fingerprint))
                }
                (Some(Err(mut wrong)), _) => {
                    wrong.extend(findings);
                    refuse(reporter, wrong, AGAIN);
                    continue;
                }
            },
            None => None,
        };
        let (config, secret, environment) = match saved {
            Some(known) => known,
            // What is wrong with disk and environment is said together.
            None => {
                match wait_for_environment(platform, image, reporter, &examination.data_disk, &findings, &facts, looked)
                {
                    Some(found) => {
                        findings.extend(found.warnings);
                        (found.config, Some(found.secret), found.fingerprint)
                    }
                    None => continue,
                }
            }
        };
        let disk = disk.context("the data disk cannot be used, and nothing was said about it")?;
        let ours = matches!(disk, plan::Disk::Ours(_));
        return Ok(Known {
            progress: if ours { records.progress()? } else { Progress::default() },
            upgrading: match ours {
                true => records.entry::<Begun>()?.filter(Begun::is_under_way).map(|begun| begun.to),
                false => None,
            },
            rendezvous_closed: ours && matches!(records.rendezvous()?, Record::Closed { .. }),
            data_disk: examination.data_disk,
            config,
            secret,
            environment,
            disk,
            warnings: findings,
        });
    }
}

/// Reads the OVF environment until there is one that is in order. None if
/// meanwhile it is time to look again at a `machine` that has something wrong.
fn wait_for_environment(
    platform: &Platform,
    image: &ImageFacts,
    reporter: &Reporter,
    data_disk: &DataDisk,
    machine: &Findings,
    facts: &Facts,
    looked: Instant,
) -> Option<Found> {
    // Whoever gives this VM the disk of a node may leave the form as it comes: then the disk alone is what is wrong.
    let takes_over =
        machine.has_errors() && matches!(data_disk, DataDisk::Ours { .. } | DataDisk::HeldElsewhere { .. });
    loop {
        let (mut all, found) = match from_environment(platform, image) {
            Ok(mut found) => {
                let facts = Facts { clock: Clock::of(platform.root()), role: found.config.role(), ..*facts };
                let judged = preflight::judge(&facts, Some(&found.config));
                found.warnings.extend(judged.without(machine).without(&found.warnings));
                if found.warnings.has_errors() { (found.warnings, None) } else { (Findings::default(), Some(found)) }
            }
            Err(findings) if takes_over && is_untouched(&findings, &image.roles) => (Findings::default(), None),
            Err(findings) => (findings, None),
        };
        all.extend(machine.clone());
        match found {
            Some(found) if !machine.has_errors() => return Some(found),
            _ => refuse(reporter, all, AGAIN),
        }
        if machine.has_errors() && looked.elapsed() >= DISKS_AGAIN {
            return None;
        }
    }
}

fn save(root: &Path, plan: &Plan) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(plan)?;
    files::write_atomically(&files::below(root, plan::PATH), &text, 0o644).context("saving the plan")
}

/// Says that the saved configuration cannot be read, which the image `last` has used last.
fn not_understood(error: &anyhow::Error, last: &str) -> Finding {
    let action = format!(
        "Give the disk back to a VM of the image that last used it, {last}; if this is that image, the record is damaged: \
         reset the node and replace it"
    );
    codes::CONFIG_NOT_UNDERSTOOD.finding("data disk", format!("{error:#}"), action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_comes_to_no_plan_says_why() {
        let root = tempfile::tempdir().unwrap();
        let reporter = Reporter::new(root.path(), Status::default());
        // There is nothing there, no image either.
        let Err(error) = boot(root.path(), &reporter);
        failed(&reporter, &error);
        let status = reporter.status();
        let found: Vec<_> = status.findings.iter().map(|finding| (finding.code.as_str(), &finding.seen)).collect();
        assert_eq!(found, [("agent.failed", &format!("{error:#}"))]);
        assert_eq!(status.phase, Phase::Refused);
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_named_with_the_image_that_wrote_it() {
        let root = tempfile::tempdir().unwrap();
        let file = files::below(root.path(), "/data/kaas/config.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, r#"{"role": "of tomorrow"}"#).unwrap();
        let error = Records::new(root.path()).config().unwrap_err();
        let finding = not_understood(&error, "9.9.9");
        assert_eq!(finding.code, "config.not-understood");
        assert!(finding.seen.contains("config.json") && finding.action.contains("9.9.9"), "{finding}");
    }
}
