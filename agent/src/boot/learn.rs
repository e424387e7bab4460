//! Collects the input of the plan: the data disk or a worker's scratch state, and the configuration. That comes from
//! there or from the OVF environment.
//!
//! Errors are shown and checked again until they are gone.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::finding::{Finding, Findings};
use contract::image::ImageFacts;
use contract::secret::Secret;

use crate::boot::corrections::{AGAIN, EnvironmentConfig, asked_elsewhere, corrected, from_environment, is_untouched};
use crate::boot::early_access;
use crate::boot::plan::{self, NodeStorage};
use crate::boot::reset;
use crate::boot::volumes;
use crate::boot::{LOOP, STEP};
use crate::cluster::join;
use crate::cluster::kubernetes::upgrade::UpgradeRecord;
use crate::cluster::records::{Progress, Records};
use crate::cluster::rendezvous::RendezvousRecord;
use crate::host::command::Host;
use crate::host::disk::ownership::Claimant;
use crate::host::disk::{self, DataDisk, DiskState, Disks, Examination};
use crate::host::platform::Platform;
use crate::host::worker_state;
use crate::intake::config::Config;
use crate::intake::preflight::{self, Clock, Facts};
use crate::status::{self, Phase, Reporter};
use crate::system::clock;

/// The pause before the disks are examined again. The check that a disk is blank reads all of it.
const DISKS_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct BootInputs {
    pub(super) config: Config,
    /// The role's one-time secret, while it exists.
    pub(super) secret: Option<Secret>,
    /// The fingerprint of the OVF environment, if `config` is from there.
    pub(super) environment: Option<String>,
    pub(super) data_disk: DataDisk,
    pub(super) storage: NodeStorage,
    /// Progress of earlier boots.
    pub(super) progress: Progress,
    /// Whether all nodes that join through this one have joined.
    pub(super) rendezvous_closed: bool,
    /// The Kubernetes minor version of an unfinished upgrade.
    pub(super) upgrading: Option<String>,
    pub(super) volumes: Option<plan::Disk>,
    /// Findings that are no errors.
    pub(super) warnings: Findings,
}

/// Shows findings that the operator must fix, for this long.
pub(super) fn refuse(reporter: &Reporter, findings: Findings, time: Duration) {
    reporter.update(|status| {
        status.phase = Phase::Refused;
        status.refusals = status.refusals.saturating_add(1);
        status.findings = findings;
        status.times.verdict = status.times.verdict.or_else(status::since_power_on);
    });
    reporter.alive(LOOP, time + STEP);
    thread::sleep(time);
}

/// Shows the node's role, name, address and cluster.
pub(super) fn introduce(reporter: &Reporter, config: &Config) {
    reporter.update(|status| {
        status.role = Some(config.role());
        status.node = Some(config.node().name.clone());
        status.address = config.address();
        status.cluster = Some(config.cluster_name().to_owned());
    });
}

/// The configuration, its secret, and the fingerprint of the OVF environment if they are from there.
type ConfigAndSecret = (Config, Option<Secret>, Option<String>);

/// Examines the data disk, mounts the node's own, and reads the configuration from there or from the OVF environment.
/// Repeats that until it succeeds.
pub(super) fn learn(platform: &Platform, image: &ImageFacts, reporter: &Reporter) -> anyhow::Result<BootInputs> {
    let records = Records::new(platform.root());
    let claimant = Claimant::of(platform, image);
    loop {
        if worker_state::is_marked(platform) {
            finish_reset(reporter, |tell| reset::finish_worker(platform, &Host, tell));
            continue;
        }
        if worker_state::has_config(platform) {
            match worker(platform, image, reporter, &records)? {
                Some(known) => return Ok(known),
                None => continue,
            }
        }
        let disks = Disks::look(platform, platform.root(), &Host).context("looking at the disks")?;
        if let Some(disk) = disks.erasing_volumes(platform.bios_uuid()) {
            finish_reset(reporter, |tell| reset::finish(disk, platform, &Host, tell));
            continue;
        }
        let Examination { mut data_disk, mut findings } = disks.for_node(&claimant);
        let (disk, saved) = match &data_disk {
            DataDisk::Ours { disk, identity } if identity.state == DiskState::Erasing => {
                finish_reset(reporter, |tell| reset::finish(disk, platform, &Host, tell));
                continue;
            }
            DataDisk::Ours { disk, identity } if !findings.has_errors() => {
                if let Err(finding) = disk::mount(disk, identity, platform, &Host) {
                    refuse(reporter, finding.into(), DISKS_AGAIN);
                    continue;
                }
                findings.extend(clock::raise(platform));
                match records.recover_config() {
                    Ok((saved, recovered)) => {
                        findings.extend(recovered);
                        (Some(plan::Disk::Ours(disk.path.clone())), saved)
                    }
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
        let facts = Facts::of(platform, data_disk.size(), blank, role);
        findings.extend(preflight::judge(&facts, saved.as_ref()));
        let looked = Instant::now();
        let saved = match saved {
            Some(config) => match given_since(config, platform, image, reporter, &records, &mut findings)? {
                Some(given) => Some(given),
                None => continue,
            },
            None => None,
        };
        let (config, secret, environment) = match saved {
            Some(known) => known,
            // The errors of disk and environment are shown together.
            None => {
                let seen = DiskInspection { disks: &disks, data_disk: &data_disk, machine: &findings, looked };
                match wait_for_environment(platform, image, reporter, &seen, &facts) {
                    Some(found) => {
                        if let Config::Worker(worker) = &found.config {
                            // The requirements of a control-plane node do not apply to a worker.
                            Examination { data_disk, findings } = disks.for_worker(&volumes::owner(worker, None));
                        }
                        findings.extend(found.warnings);
                        (found.config, Some(found.secret), found.fingerprint)
                    }
                    None => continue,
                }
            }
        };
        let ours = matches!(disk, Some(plan::Disk::Ours(_)));
        let (keeping, volumes) = match &config {
            Config::Worker(_) => (NodeStorage::Scratch, plan::Disk::of(&data_disk)),
            Config::ControlPlane(_) => {
                let disk = disk.context("the data disk cannot be used, and nothing was said about it")?;
                (NodeStorage::DataDisk(disk), None)
            }
        };
        return Ok(BootInputs {
            progress: if ours { records.progress()? } else { Progress::default() },
            upgrading: match ours {
                true => records.entry::<UpgradeRecord>()?.filter(UpgradeRecord::is_under_way).map(|begun| begun.to),
                false => None,
            },
            rendezvous_closed: ours && matches!(records.rendezvous()?, RendezvousRecord::Closed { .. }),
            volumes,
            data_disk,
            config,
            secret,
            environment,
            storage: keeping,
            warnings: findings,
        });
    }
}

/// Continues an interrupted reset. `finish` reports its progress to the given function.
fn finish_reset(reporter: &Reporter, finish: impl FnOnce(&mut dyn FnMut(Finding)) -> Result<(), Finding>) {
    let mut tell = |finding: Finding| {
        reporter.alive(LOOP, STEP);
        reporter.update(|status| status.findings = finding.into());
    };
    if let Err(finding) = finish(&mut tell) {
        refuse(reporter, finding.into(), DISKS_AGAIN);
    }
}

/// The saved configuration, or a corrected one while that may be used. `None` if the correction has errors, which were
/// shown.
fn given_since(
    saved: Config,
    platform: &Platform,
    image: &ImageFacts,
    reporter: &Reporter,
    records: &Records,
    findings: &mut Findings,
) -> anyhow::Result<Option<ConfigAndSecret>> {
    Ok(match corrected(platform, image)? {
        (None, passed_over) => {
            findings.extend(passed_over);
            Some((saved, records.secret()?, None))
        }
        (Some(Ok(found)), _) => {
            log::info!("the node belongs to no cluster yet and was given other properties: it takes them");
            findings.extend(found.warnings);
            Some((found.config, Some(found.secret), found.fingerprint))
        }
        (Some(Err(mut wrong)), _) => {
            wrong.extend(findings.clone());
            refuse(reporter, wrong, AGAIN);
            None
        }
    })
}

/// The inputs of a worker with its configuration on scratch. `None` if it must look again.
fn worker(
    platform: &Platform,
    image: &ImageFacts,
    reporter: &Reporter,
    records: &Records,
) -> anyhow::Result<Option<BootInputs>> {
    if let Err(finding) = worker_state::mount(platform) {
        refuse(reporter, finding.into(), DISKS_AGAIN);
        return Ok(None);
    }
    let mut findings = clock::raise(platform);
    let saved = match records.recover_config() {
        Ok((Some(saved), recovered)) => {
            findings.extend(recovered);
            saved
        }
        Ok((None, _)) => return Ok(None),
        Err(error) => {
            refuse(reporter, not_understood(&error, &image.version).into(), DISKS_AGAIN);
            return Ok(None);
        }
    };
    let progress = join::progress(platform.root(), &saved, SystemTime::now())?;
    let facts = Facts::of(platform, None, !progress.formed, saved.role());
    findings.extend(preflight::judge(&facts, Some(&saved)));
    findings.extend(asked_elsewhere(&saved, platform));
    let Some((config, secret, environment)) = given_since(saved, platform, image, reporter, records, &mut findings)?
    else {
        return Ok(None);
    };
    let owner = volumes::owner(config.worker()?, records.entry()?);
    let disks = Disks::look(platform, platform.root(), &Host).context("looking at the disks")?;
    let Examination { data_disk, findings: of_disks } = disks.for_worker(&owner);
    if disks.erasing_volumes(platform.bios_uuid()).is_some() {
        log::warn!("the disk for local volumes is marked to be erased, and the reset that this belongs to was cut off");
        worker_state::mark(platform).context("going on with the reset")?;
        return Ok(None);
    }
    let refused = of_disks.has_errors();
    findings.extend(of_disks);
    if refused {
        introduce(reporter, &config);
        early_access::open_without_plan(platform.root(), Some(&config));
        refuse(reporter, findings, DISKS_AGAIN);
        return Ok(None);
    }
    Ok(Some(BootInputs {
        config,
        secret,
        environment,
        volumes: plan::Disk::of(&data_disk),
        data_disk,
        storage: NodeStorage::Scratch,
        progress,
        rendezvous_closed: false,
        upgrading: None,
        warnings: findings,
    }))
}

/// The state of the disks before the environment is known.
struct DiskInspection<'a> {
    disks: &'a Disks,
    data_disk: &'a DataDisk,
    machine: &'a Findings,
    /// When the disks were examined.
    looked: Instant,
}

/// Reads the OVF environment until it is valid. `None` if the disks have errors and must be examined again.
fn wait_for_environment(
    platform: &Platform,
    image: &ImageFacts,
    reporter: &Reporter,
    seen: &DiskInspection,
    facts: &Facts,
) -> Option<EnvironmentConfig> {
    // If an operator attaches a node's disk to this VM, the form may be untouched. Then only the disk is wrong.
    let takes_over =
        seen.machine.has_errors() && matches!(seen.data_disk, DataDisk::Ours { .. } | DataDisk::HeldElsewhere { .. });
    loop {
        let (mut all, found) = match from_environment(platform, image) {
            Ok(mut found) => {
                let facts = Facts { clock: Clock::of(platform.root()), role: found.config.role(), ..*facts };
                let judged = preflight::judge(&facts, Some(&found.config));
                let judged = if found.config.role().has_data_disk() { judged.without(seen.machine) } else { judged };
                found.warnings.extend(judged.without(&found.warnings));
                if found.warnings.has_errors() { (found.warnings, None) } else { (Findings::default(), Some(found)) }
            }
            Err(findings) if takes_over && is_untouched(&findings, &image.roles) => (Findings::default(), None),
            Err(findings) => (findings, None),
        };
        let machine = match found.as_ref().map(|found| &found.config) {
            Some(Config::Worker(worker)) => seen.disks.for_worker(&volumes::owner(worker, None)).findings,
            Some(Config::ControlPlane(_)) | None => seen.machine.clone(),
        };
        let refused = machine.has_errors();
        all.extend(machine);
        match found {
            Some(found) if !refused => return Some(found),
            _ => refuse(reporter, all, AGAIN),
        }
        if refused && seen.looked.elapsed() >= DISKS_AGAIN {
            return None;
        }
    }
}

/// The finding for an unreadable configuration. `last` is the version of the image that last used it.
fn not_understood(error: &anyhow::Error, last: &str) -> Finding {
    let action = format!(
        "Give the disk back to a VM of the image that last used it, {last}; if this is that image, the record is damaged: \
         reset the node at its console, which needs no password then, and replace it"
    );
    codes::CONFIG_NOT_UNDERSTOOD.finding("data disk", format!("{error:#}"), action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files;

    #[test]
    fn unreadable_configuration_is_reported_with_its_images_version() {
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
