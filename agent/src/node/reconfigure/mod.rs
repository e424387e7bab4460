//! Changes of properties: by the operator on the console or with `kaas-agent configure`, by administrators over the endpoint, or
//! by a worker's cluster. All properties are validated together as at the first boot, then saved, then used by the agent. This
//! module does not depend on how the change was requested.
//!
//! Until the configuration is on the data disk, overrides in memory take precedence over the OVF environment. They fix
//! wrong or missing properties without another deployment. After that, changes go into the saved [`Config`]. The
//! properties that the cluster was formed with cannot be changed.

mod command;
mod pending;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use contract::image::ImageFacts;
use contract::properties::{self, Property};
use contract::secret::Secret;
use zeroize::Zeroizing;

use crate::cluster::records::Records;
use crate::cluster::rendezvous::RendezvousRecord;
use crate::host::image;
use crate::host::platform::Platform;
use crate::host::services;
use crate::intake::config::{self, Config, Intake};
use crate::intake::environment::document::Adapter;
use crate::intake::environment::{Document, Outcome, source};
use crate::status::{Phase, Status};
use crate::system::lease;

pub use command::{Options, command};
pub use pending::{Overrides, PATH, forget};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The properties already had these values.
    Nothing,
    /// The changes are saved. The waiting agent reads them within seconds.
    Awaited,
    /// The changes are saved, and the agent was restarted.
    Restarted,
}

#[derive(Debug)]
pub struct ReconfigureResult {
    pub effect: Effect,
    /// Findings of all properties that are no errors.
    pub warnings: Findings,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The changes or the resulting properties are invalid. Nothing was saved.
    #[error("{0}")]
    Refused(Findings),
    /// Another failure. The message says whether the changes were saved before.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// A change of the configuration of a node that belongs to its cluster. It was checked, and is not saved.
#[derive(Debug)]
pub struct CheckedChange {
    pub config: Config,
    secret: Option<Secret>,
    /// Keys of the properties that would have another value, in the order of the table.
    pub changed: Vec<&'static str>,
    /// Findings of all properties that are no errors.
    pub warnings: Findings,
}

impl CheckedChange {
    /// Saves the change. Returns whether anything has changed. After an error the former configuration remains.
    pub fn save(&self, records: &Records) -> anyhow::Result<bool> {
        records.update_config(&self.config, self.secret.as_ref())
    }
}

/// How far this node has come. It decides which properties may be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// No configuration is saved. All properties may be changed.
    Unconfigured,
    /// The configuration is saved, and no other node depends on it yet.
    Unformed(Config),
    /// The cluster is being formed or was formed with it, or a worker has joined.
    Settled(Config),
}

impl Lifecycle {
    pub fn of(root: &Path) -> anyhow::Result<Self> {
        let records = Records::new(root);
        let Some(config) = records.config()? else { return Ok(Self::Unconfigured) };
        let progress = records.progress()?;
        let settled = progress.formed || progress.etcd || records.rendezvous()? != RendezvousRecord::Unformed;
        Ok(if settled { Self::Settled(config) } else { Self::Unformed(config) })
    }
}

/// Changes properties of this node: keys with their new values. An empty value removes the property or restores its
/// default. All properties are validated together, saved, and used by the agent. Requires root. After
/// [`Error::Refused`] nothing is saved. If only the restart fails, the agent uses the saved changes at its next start.
pub fn apply(root: &Path, changes: &[(&str, &str)]) -> Result<ReconfigureResult, Error> {
    apply_with(root, changes, SystemTime::now(), &services::restart_agent)
}

fn apply_with(
    root: &Path,
    changes: &[(&str, &str)],
    now: SystemTime,
    restart: &dyn Fn() -> anyhow::Result<()>,
) -> Result<ReconfigureResult, Error> {
    let changes = known(changes)?;
    let image = image::read(root)?;
    let records = Records::new(root);
    let lifecycle = Lifecycle::of(root)?;
    if let Lifecycle::Unformed(config) | Lifecycle::Settled(config) = &lifecycle {
        config.fits(&image).map_err(|finding| Error::Refused(finding.into()))?;
    }
    let (changed, warnings) = match lifecycle {
        Lifecycle::Unconfigured => change_environment(root, &image, &changes, now)?,
        Lifecycle::Unformed(config) => {
            let secret = records.secret()?;
            let values = config.properties(secret.as_ref());
            let document = with_values(values, &config, &changes);
            let Intake { config: asked, secret, warnings } = judged(config::validate(&document, &image, now))?;
            config.has_role_of(&asked).map_err(|finding| Error::Refused(finding.into()))?;
            let config = asked;
            (records.update_config(&config, Some(&secret))?, warnings)
        }
        Lifecycle::Settled(config) => {
            let checked = check_known(&config, &image, changes, now)?;
            (checked.save(&records)?, checked.warnings)
        }
    };
    let effect = if !changed {
        Effect::Nothing
    } else if awaited(root) {
        Effect::Awaited
    } else {
        restart().context(services::NOT_TAKEN_UP)?;
        Effect::Restarted
    };
    Ok(ReconfigureResult { effect, warnings })
}

/// Checks changes of a node that belongs to its cluster and has this configuration. Saves nothing.
pub fn check(root: &Path, config: &Config, changes: &[(&str, &str)], now: SystemTime) -> Result<CheckedChange, Error> {
    let (changes, image) = (known(changes)?, image::read(root)?);
    config.fits(&image).map_err(|finding| Error::Refused(finding.into()))?;
    check_known(config, &image, changes, now)
}

fn check_known(
    before: &Config,
    image: &ImageFacts,
    changes: Vec<(&'static Property, &str)>,
    now: SystemTime,
) -> Result<CheckedChange, Error> {
    let values = before.properties(None);
    settled(&values, &changes)?;
    let changes: Vec<_> = changes.into_iter().filter(|(property, _)| property.changeable).collect();
    let document = with_values(values.clone(), before, &changes);
    let (asked, secret, warnings) = judged(config::validate_formed(&document, image, now))?;
    let config = asked.after(before);
    if let Config::Worker(worker) = &config
        && let Some(leased) = worker.node.lease()
    {
        judged(lease::check_lease(worker, leased))?;
    }
    let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (values.into_iter().collect(), config.properties(None).into_iter().collect());
    let keys = properties::table().iter().map(|property| property.key);
    let changed = keys.filter(|key| before.get(key) != after.get(key)).collect();
    Ok(CheckedChange { config, secret, changed, warnings })
}

/// The properties that the agent reads at its start and that may change. The deployer's keys are read at each use.
pub fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let is_read = |key: &str| {
        key != properties::DEPLOYER_PUBLIC_KEY && properties::find(key).is_some_and(|property| property.changeable)
    };
    config.properties(None).into_iter().filter(|(key, _)| is_read(key)).collect()
}

/// The present values of the properties, for a form: from the saved configuration, or from the OVF environment with the
/// overrides. Properties that are not set, or set twice, are left out.
pub fn present(root: &Path) -> anyhow::Result<Vec<(&'static Property, Secret)>> {
    let saved = |config: &Config, secret: Option<&Secret>| {
        let values = config.properties(secret).into_iter();
        values.filter_map(|(key, text)| Some((properties::find(key)?, Secret::new(text)))).collect()
    };
    Ok(match Lifecycle::of(root)? {
        Lifecycle::Unformed(config) => saved(&config, Records::new(root).secret()?.as_ref()),
        Lifecycle::Settled(config) => saved(&config, None),
        Lifecycle::Unconfigured => {
            let found = source::from_platform(&Platform::detect(root)?).document();
            let document = found.map_or_else(|_| Document::of(Vec::new(), Vec::new()), |(document, ..)| document);
            let document = document.with_changes(Overrides::load(root)?.iter());
            let text = |property| Some(Secret::new(document.value(property).ok()??.to_owned()));
            properties::table().iter().filter_map(|property| Some((property, text(property)?))).collect()
        }
    })
}

/// The configuration from the OVF `environment` and the overrides of this boot. Also returns the fingerprint of the
/// environment, if it was used and not scrubbed. The agent calls this again until there are no errors.
pub fn intake(
    environment: Outcome,
    image: &ImageFacts,
    overrides: &Overrides,
    now: SystemTime,
) -> Result<(Intake, Option<String>), Findings> {
    let (document, warnings) = match environment.document() {
        Ok((document, _, warnings)) => (document, warnings),
        Err(findings) if overrides.is_empty() => return Err(findings),
        // The overrides may be sufficient.
        Err(findings) => {
            let document = Document::of(Vec::new(), Vec::new()).with_changes(overrides.iter());
            return match config::validate(&document, image, now) {
                Ok(mut intake) => {
                    intake.warnings.extend(ignored(&findings));
                    Ok((intake, None))
                }
                Err(more) => {
                    let mut all = findings;
                    all.extend(more);
                    Err(all)
                }
            };
        }
    };
    let fingerprint = document.fingerprint();
    let mut intake = config::validate(&document.with_changes(overrides.iter()), image, now)?;
    let mut all = warnings;
    all.extend(intake.warnings);
    intake.warnings = all;
    Ok((intake, fingerprint))
}

/// Warnings in place of the errors of an unused environment.
fn ignored(findings: &Findings) -> Findings {
    let mut warnings = Findings::default();
    let real = findings.iter().filter(|finding| finding.code != codes::ENVIRONMENT_ABSENT.code);
    for finding in real {
        let seen = format!("{}; what was given on the console was used", finding.seen);
        warnings.push(codes::ENVIRONMENT_IGNORED.finding(&finding.subject, seen, &finding.action));
    }
    warnings
}

fn change_environment(
    root: &Path,
    image: &ImageFacts,
    changes: &[(&'static Property, &str)],
    now: SystemTime,
) -> Result<(bool, Findings), Error> {
    // A saved configuration may still be found until the disks are known.
    match Status::read(root) {
        Ok(status) if status.phase != Phase::Looking => {}
        _ => {
            return Err(
                anyhow::anyhow!("the agent still looks at disks and configuration: try again in a moment").into()
            );
        }
    }
    let mut overrides = Overrides::load(root)?;
    for (property, text) in changes {
        overrides.set(property, text);
    }
    let environment = source::from_platform(&Platform::detect(root)?);
    let (intake, _) = judged(intake(environment, image, &overrides, now))?;
    Ok((overrides.save(root)?, intake.warnings))
}

fn known<'a>(changes: &[(&str, &'a str)]) -> Result<Vec<(&'static Property, &'a str)>, Error> {
    let mut findings = Findings::default();
    let mut found = Vec::new();
    for (key, text) in changes {
        match properties::find(key) {
            Some(property) => found.push((property, *text)),
            None => findings.push(codes::PROPERTY_UNKNOWN.finding(
                "configuration",
                format!("there is no property {}", properties::parse::quoted(key)),
                "Look for a typing mistake in the key",
            )),
        }
    }
    if findings.is_empty() { Ok(found) } else { Err(Error::Refused(findings)) }
}

/// Rejects other values of properties that the cluster was formed with.
fn settled(values: &[(&'static str, String)], changes: &[(&'static Property, &str)]) -> Result<(), Error> {
    let mut findings = Findings::default();
    for (property, text) in changes.iter().filter(|(property, _)| !property.changeable) {
        let present = values.iter().find(|(key, _)| *key == property.key).map(|(_, value)| value.as_str());
        let same = match present {
            Some(present) => property.parse(present).ok() == property.parse(text).ok(),
            None => text.is_empty(),
        };
        if !same {
            findings.push(codes::PROPERTY_FIXED.finding(
                property.key,
                format!("\"{}\" can no longer be changed: the node belongs to its cluster with it", property.label),
                "Leave it as it is, or deploy a new node and replace this one",
            ));
        }
    }
    if findings.is_empty() { Ok(()) } else { Err(Error::Refused(findings)) }
}

/// The document that would give the saved values with the changes.
fn with_values(
    values: Vec<(&'static str, String)>,
    config: &Config,
    changes: &[(&'static Property, &str)],
) -> Document {
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), Zeroizing::new(value))).collect();
    let adapters = config.node().interfaces.iter();
    let adapters =
        adapters.map(|interface| Adapter { mac: interface.mac.clone(), network: interface.network.clone() }).collect();
    Document::of(values, adapters).with_changes(changes.iter().copied())
}

fn judged<T>(result: Result<T, Findings>) -> Result<T, Error> {
    result.map_err(Error::Refused)
}

/// Whether the agent has no plan yet and reads the overrides every few seconds.
fn awaited(root: &Path) -> bool {
    Status::read(root).is_ok_and(|status| status.phase == Phase::Refused && status.work.is_none())
        && matches!(Lifecycle::of(root), Ok(Lifecycle::Unconfigured))
}
