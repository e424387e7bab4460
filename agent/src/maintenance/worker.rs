//! Tasks of workers, and tasks of control-plane nodes for workers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::configure::Properties;
use contract::finding::{Findings, Severity};

use super::certificates::{early, replace_the_kubelets};
use super::job::{Job, failed};
use crate::cluster::REQUEST;
use crate::cluster::certificates::{self, users};
use crate::cluster::join::{self, CERTIFICATE, WorkerMembership, credentials};
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::approval;
use crate::cluster::kubernetes::kubelet;
use crate::cluster::records::Records;
use crate::host::services;
use crate::intake::config::Config;
use crate::node::context::NodeContext;
use crate::node::reconfigure;

/// The task in which control-plane nodes judge and approve certificates of workers.
pub(super) const CERTIFICATES: &str = "the certificates of workers";

/// The kubelet renews its certificate. Other programs with the same certificate follow it.
pub(super) fn certificates(node: &NodeContext) -> anyhow::Result<Findings> {
    let (root, worker, now) = (node.root(), node.config.worker()?, SystemTime::now());
    // The next certificates of the kubelet may not be valid yet either.
    let action = "Check the clocks of this node and of the control-plane nodes. If they are right, a clock was ahead \
                  when the certificate was made: the kubelet asks for another one each hour. If `kubelet.conf` is \
                  named, replace the worker or wait";
    let mut findings = early(&certificates::inventory(root), now, action);
    let replaced = replace_the_kubelets(node, now);
    credentials::renew(root, worker, now)?;
    for unit in users::units().filter(|unit| *unit != kubelet::UNIT) {
        if users::needs_restart(root, unit)? {
            log::info!("{unit} starts again with renewed credentials");
            node.services().restart(unit)?;
            users::mark_restarted(root, unit)?;
        }
    }
    let present = certificates::inventory(root);
    node.reporter.update(|status| status.certificates = present);
    match join::worker_membership(root, worker, now) {
        WorkerMembership::Expired(ended) => {
            let action = "Check the clock. If it is right, give the worker a new join token: with `kaas-agent configure --from -`, or \
                          in the form, and restart it";
            findings.push(join::expired(CERTIFICATE, ended, action));
        }
        WorkerMembership::Member | WorkerMembership::NotJoined => {}
    }
    if let Err(error) = replaced {
        findings.extend(failed("the kubelet's certificates", &error));
    }
    Ok(findings)
}

/// The pause before the agent restarts with other settings, less than a minute. It depends on the name, so that the workers of a
/// pool do not restart at the same moment.
fn restart_delay(name: &str) -> Duration {
    const MILLISECONDS: u64 = 60_000;
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Duration::from_millis(hasher.finish() % MILLISECONDS)
}

/// A worker of a pool takes over settings that the control-plane nodes publish. Other workers keep the settings that the operator
/// gives them.
pub(super) fn settings(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    if node.config.worker()?.registration.pool.is_none() {
        return Ok(None);
    }
    let (root, running, timeout) = (node.root().to_owned(), node.config.clone(), node.config.timeout(REQUEST));
    let kubeconfig = node.path(api::KUBECONFIG);
    Ok(Some(Box::new(move |_| {
        let api = Api::new(running.api_address(), &kubeconfig, timeout)?;
        let published = api.like_if_allowed(&join::settings::reference())?;
        // Control-plane nodes of an earlier image publish none.
        let Some(published) = published else { return Ok(Findings::default()) };
        let restart = || {
            thread::sleep(restart_delay(&running.node().name));
            services::restart_agent()
        };
        take_over(&root, &running, &join::settings::read(&published)?, &restart)
    })))
}

/// Saves the settings, and restarts the agent until it works with them.
fn take_over(
    root: &Path,
    running: &Config,
    published: &Properties,
    restart: &dyn Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Findings> {
    let records = Records::new(root);
    let saved = records.config()?.context("this node has no configuration")?;
    let asked: Vec<(&str, &str)> =
        published.properties.iter().map(|(key, text)| (key.as_str(), text.as_str())).collect();
    let checked = match reconfigure::check(root, &saved, &asked, SystemTime::now()) {
        Ok(checked) => checked,
        Err(reconfigure::Error::Failed(error)) => return Err(error),
        Err(reconfigure::Error::Refused(findings)) => {
            let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
            let refused = errors.map(|it| {
                let action = format!("{}: set it in the TenantCluster, or replace this worker", it.action);
                codes::SETTINGS_REFUSED.finding(&it.subject, &it.seen, action)
            });
            return Ok(refused.collect());
        }
    };
    if checked.save(&records)? {
        log::info!("the cluster's settings were taken over: {}", checked.changed.join(", "));
    }
    if reconfigure::settings(&checked.config) != reconfigure::settings(running) {
        restart().context(services::NOT_TAKEN_UP)?;
    }
    Ok(Findings::default())
}

/// Each control-plane node judges the requests of workers. The first one decides.
pub(super) fn approve(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let config = node.control_plane()?;
    if !config.role.takes_workers() || !node.reporter.status().is_ready() {
        return Ok(None);
    }
    let (config, root) = (config.clone(), node.root().to_owned());
    Ok(Some(Box::new(move |_| {
        let api = Api::as_administrator(config.address(), &root, config.timeout(REQUEST))?;
        let (decided, done) = api.approve_workers(&config, SystemTime::now());
        if !decided.approved.is_empty() {
            log::info!("approved certificates of workers: {}", decided.approved.join("; "));
        }
        if !decided.denied.is_empty() {
            log::warn!("denied certificates of workers: {}", approval::named(&decided.denied));
        }
        let mut findings = decided.findings();
        if let Err(error) = done {
            findings.extend(failed(CERTIFICATES, &error));
        }
        Ok(findings)
    })))
}

/// Control-plane nodes follow which workers exist.
pub(super) fn follow(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let config = node.control_plane()?;
    if !config.role.takes_workers() || !node.reporter.status().is_ready() {
        return Ok(None);
    }
    let (config, root) = (config.clone(), node.root().to_owned());
    Ok(Some(Box::new(move |_| {
        let api = Api::as_administrator(config.address(), &root, config.timeout(REQUEST))?;
        api.follow_workers(&config, SystemTime::now())
    })))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use contract::secret::Secret;

    use super::*;
    use crate::cluster::records::Progress;
    use crate::intake::config::fixture::joined;

    fn asked(key: &str, text: &str) -> Properties {
        Properties { properties: [(key.to_owned(), text.to_owned())].into() }
    }

    // Finding 14 of controller.md: all workers of a pool restarted their agents at the same moment.
    #[test]
    fn agents_restart_at_different_moments() {
        let mut in_second = [0; 60];
        for number in 1..=600 {
            let delay = restart_delay(&format!("shop-general-w{number}"));
            in_second[usize::try_from(delay.as_secs()).unwrap()] += 1;
        }
        assert!(in_second.iter().all(|count| (1..40).contains(count)), "{in_second:?}");
        assert_eq!(restart_delay("shop-general-w1"), restart_delay("shop-general-w1"));
    }

    // Finding 14 of controller.md: workers kept the settings that they were created with.
    #[test]
    fn published_settings_are_taken_over() {
        let (root, restarts) = (tempfile::tempdir().unwrap(), Cell::new(0));
        let image = root.path().join("usr/lib/kaas");
        fs::create_dir_all(&image).unwrap();
        let facts = include_str!("../intake/config/fixtures/image.json");
        let facts = facts.replace("\"role\": \"control-plane\"", "\"role\": \"worker\"");
        fs::write(image.join("image.json"), facts).unwrap();
        let (records, running) = (Records::new(root.path()), Config::Worker(joined()));
        records.save_config(&running, &Secret::new("abcdef.0123456789abcdef".to_owned())).unwrap();
        records.save_progress(Progress { formed: true, ..Progress::default() }).unwrap();
        records.erase_secret().unwrap();
        let take = |running: &Config, asked: &Properties| {
            let restart = || {
                restarts.set(restarts.get() + 1);
                Ok(())
            };
            take_over(root.path(), running, asked, &restart).unwrap()
        };
        let saved = || records.config().unwrap().unwrap();

        let refused = take(&running, &asked("ntp-servers", "bad!host"));
        assert_eq!(
            refused.iter().map(|it| (it.code.as_str(), it.subject.as_str())).collect::<Vec<_>>(),
            [("settings.refused", "ntp-servers")]
        );
        assert_eq!((saved(), restarts.get()), (running.clone(), 0));

        assert!(take(&running, &asked("ntp-servers", "ntp.example.com")).is_empty());
        assert_eq!((saved().node().ntp_servers.clone(), restarts.get()), (vec!["ntp.example.com".to_owned()], 1));
        // The restart failed, or the node was cut before it.
        take(&running, &asked("ntp-servers", "ntp.example.com"));
        assert_eq!(restarts.get(), 2);
        take(&saved(), &asked("ntp-servers", "ntp.example.com"));
        assert_eq!(restarts.get(), 2);
        assert_eq!(saved().worker().unwrap().cluster.learned, joined().cluster.learned);
    }
}
