//! The route that changes properties of the node, or only checks a change. It checks and saves as [`crate::node::reconfigure`]
//! does for the console and for `kaas-agent configure`.
//!
//! The answer comes before the agent restarts. If power fails in between, the next start reads the saved properties. If the restart
//! fails, the same request restarts the agent again. The deployer's keys need no restart: their readers take them from the data
//! disk at each use.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, SystemTime};

use contract::codes;
use contract::configure::{ConfigureRefusal, Configured, Properties};
use contract::deployer::public_keys;
use contract::finding::{Findings, Severity};
use contract::json;
use contract::properties::{self, DEPLOYER_PUBLIC_KEY};
use hyper::StatusCode;

use super::EndpointContext;
use super::answer::{self, Answer};
use super::deployer::keys_of;
use super::swap::json_answer;
use crate::cluster::records::Records;
use crate::host::services;
use crate::intake::config::Config;
use crate::node::reconfigure::{self, Error, settings};
use crate::status::Phase;

/// The time for the answer to reach the client before the agent restarts.
const ANSWERING: Duration = Duration::from_secs(1);

pub(super) fn answer(context: &EndpointContext, dry_run: bool, body: &[u8]) -> Answer {
    let asked: Properties = match json::read_strictly(body) {
        Ok(asked) => asked,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this is no change of properties: {error}"));
        }
    };
    match configure(context, &asked, dry_run) {
        Ok(Ok(configured)) => json_answer(StatusCode::OK, &configured),
        Ok(Err(refusal)) => json_answer(StatusCode::CONFLICT, &refusal),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

/// Changes the properties together, or refuses them all.
fn configure(
    context: &EndpointContext,
    asked: &Properties,
    dry_run: bool,
) -> anyhow::Result<Result<Configured, ConfigureRefusal>> {
    let records = Records::new(&context.root);
    let (Some(before), true) = (records.config()?, records.progress()?.formed) else {
        let finding = codes::DEPLOYER_NOT_FORMED.finding("node", "it is not part of a formed cluster yet", "Ask again");
        return Ok(Err(refusal(finding.into(), BTreeMap::new())));
    };
    let present = values(&before, asked);
    if let Some(finding) = lockout(&before, asked)? {
        return Ok(Err(refusal(finding, present)));
    }
    // A node without a property need not know how to remove it.
    let is_change = |(key, text): &(&str, &str)| !text.is_empty() || properties::find(key).is_some();
    let changes = asked.properties.iter().map(|(key, text)| (key.as_str(), text.as_str())).filter(is_change);
    let changes: Vec<(&str, &str)> = changes.collect();
    let checked = match reconfigure::check(&context.root, &before, &changes, SystemTime::now()) {
        Ok(checked) => checked,
        Err(Error::Refused(findings)) => return Ok(Err(refusal(findings, present))),
        Err(Error::Failed(error)) => return Err(error),
    };
    let changed: Vec<String> = checked.changed.iter().map(|key| (*key).to_owned()).collect();
    if dry_run {
        let applied = is_applied(context, &before);
        return Ok(Ok(Configured { properties: present, changed, applied, findings: checked.warnings }));
    }
    if checked.save(&records)? {
        log::info!("properties were changed over the endpoint: {}", changed.join(", "));
    }
    let is_new = checked.changed.iter().any(|key| *key != DEPLOYER_PUBLIC_KEY);
    // An earlier restart may have failed.
    if is_new || works_with(context).is_some_and(|it| it != settings(&checked.config)) {
        restart_soon(context.restart)?;
    }
    let (properties, applied) = (values(&checked.config, asked), is_applied(context, &checked.config));
    Ok(Ok(Configured { properties, changed, applied, findings: checked.warnings }))
}

/// One of the present deployer's keys stays, so that its holder is not locked out by a mistake: `kaas-agent configure` sets any key.
fn lockout(before: &Config, asked: &Properties) -> anyhow::Result<Option<Findings>> {
    let Some(text) = asked.properties.get(DEPLOYER_PUBLIC_KEY) else { return Ok(None) };
    let present = keys_of(before.control_plane()?);
    let finding = match public_keys(text) {
        Err(error) => codes::PROPERTY_MALFORMED.finding(DEPLOYER_PUBLIC_KEY, error.to_string(), "Give one key or two"),
        Ok(keys) if !present.is_empty() && !keys.iter().any(|key| present.contains(key)) => codes::DEPLOYER_OTHER_KEY
            .finding(
                DEPLOYER_PUBLIC_KEY,
                "none of these keys is one that the node has",
                "Give it both, then the new one alone",
            ),
        Ok(_) => return Ok(None),
    };
    Ok(Some(finding.into()))
}

/// The requested properties with the values of a configuration. The one-time secret is never among them.
fn values(config: &Config, asked: &Properties) -> BTreeMap<String, String> {
    let mut all: BTreeMap<&str, String> = config.properties(None).into_iter().collect();
    asked.properties.keys().map(|key| (key.clone(), all.remove(key.as_str()).unwrap_or_default())).collect()
}

fn refusal(findings: Findings, properties: BTreeMap<String, String>) -> ConfigureRefusal {
    let errors: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
    let words = errors.iter().map(|it| format!("{}: {}. {} [{}]", it.subject, it.seen, it.action, it.code));
    let reason = words.collect::<Vec<_>>().join("; ");
    let code = errors.first().map(|finding| finding.code.clone()).unwrap_or_default();
    ConfigureRefusal { code, reason, properties, findings }
}

/// The settings that the running agent works with. `None` until it has mounted the data disk.
fn works_with(context: &EndpointContext) -> Option<Vec<(&'static str, String)>> {
    let swaps = context.swaps.context()?;
    Some(settings(&Config::ControlPlane(swaps.config.clone())))
}

fn is_applied(context: &EndpointContext, saved: &Config) -> bool {
    context.reporter.status().phase == Phase::Done && works_with(context).is_some_and(|it| it == settings(saved))
}

fn restart_soon(restart: fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    thread::Builder::new().name("restart".to_owned()).spawn(move || {
        thread::sleep(ANSWERING);
        if let Err(error) = restart() {
            log::error!("{}: {error:#}", services::NOT_TAKEN_UP);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests;
