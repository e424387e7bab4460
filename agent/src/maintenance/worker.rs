//! Tasks of workers, and tasks of control-plane nodes for workers.

use std::time::SystemTime;

use contract::finding::Findings;

use super::certificates::{early, replace_the_kubelets};
use super::job::{Job, failed};
use crate::cluster::REQUEST;
use crate::cluster::certificates::{self, users};
use crate::cluster::join::{self, CERTIFICATE, WorkerMembership, credentials};
use crate::cluster::kubernetes::api::Api;
use crate::cluster::kubernetes::approval;
use crate::cluster::kubernetes::kubelet;
use crate::node::context::NodeContext;

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
