//! The steps of an upgrade before and after the agent's restart with the new minor version. Between them the agent's ordinary
//! plan makes certificates, manifests and kubelet again.

use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use contract::codes;
use contract::finding::Findings;
use contract::swap::Rejection;

use crate::cluster::addons;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::kubeadm::Kubeadm;
use crate::cluster::kubernetes::upgrade::UpgradeRecord;
use crate::cluster::virtual_ip;
use crate::host::command::{Runner, SlowHost};
use crate::host::services;
use crate::intake::config::Config;
use crate::upgrade::swap::boot_health;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::evacuate::{Evacuation, failure, uncordon};
use crate::upgrade::swap::manager::SwapManager;

/// Continues an upgrade up to the restart of the agent with the new minor version. Returns a finding if the upgrade was given
/// up.
pub fn resume(context: &SwapContext) -> anyhow::Result<Findings> {
    let records = context.records();
    let Some(begun) = records.entry::<UpgradeRecord>()? else { return Ok(Findings::default()) };
    if let Some(error) = &begun.error {
        return Ok(given_up(&begun, error));
    }
    if context.config.cluster.kubernetes_minor == begun.to {
        // The plan of this boot finishes it.
        return Ok(Findings::default());
    }
    match change_over(context, &begun) {
        Ok(()) => {
            services::restart_agent().context(services::NOT_TAKEN_UP)?;
            Ok(Findings::default())
        }
        Err(error) => {
            let Rejection { code, reason: error } = failure(&error, &codes::KUBERNETES_FAILED);
            log::warn!("the upgrade to Kubernetes {} is cancelled: {error} [{code}]", begun.to);
            virtual_ip::enable(&context.root)?;
            uncordon(context, &SlowHost(context.config.timeout_factor))?;
            let given = UpgradeRecord { error: Some(error.clone()), code: Some(code), ..begun };
            records.update_entry(&given)?;
            context.announce(|| None)?;
            Ok(given_up(&given, &error))
        }
    }
}

fn given_up(begun: &UpgradeRecord, error: &str) -> Findings {
    codes::KUBERNETES_FAILED
        .finding(
            "Kubernetes",
            format!("the upgrade from {} to {} was cancelled: {error}", begun.from, begun.to),
            "The node is as before. Fix the cause and upgrade again: `kaas-agent upgrade-kubernetes`",
        )
        .into()
}

fn change_over(context: &SwapContext, begun: &UpgradeRecord) -> anyhow::Result<()> {
    // The others must see it before anything changes: of two nodes that begin at once, one gives way.
    context.announce(|| Some(begun.id)).context("telling the cluster of the upgrade")?;
    let others = context.others_under_way().context("looking for other nodes' swaps and upgrades")?;
    if !others.is_empty() {
        bail!("{} is being swapped or upgraded as well: it goes first", others.join(" and "));
    }
    let never = AtomicBool::new(false);
    let runner = &SlowHost(context.config.timeout_factor);
    let leave = Evacuation { context, id: begun.id, drain_seconds: begun.drain_seconds, cancelled: &never, runner };
    leave.yield_address()?;
    leave.cordon()?;
    leave.losses()?;
    leave.drain()?;
    let records = context.records();
    let config = records.config()?.context("this node has no configuration")?;
    let mut config = config.control_plane()?.clone();
    config.cluster.kubernetes_minor.clone_from(&begun.to);
    boot_health::forget(&context.root)?;
    // From here on the upgrade only goes forward.
    records.update_config(&Config::ControlPlane(config), None)?;
    Ok(())
}

/// Whether the node has arrived: its API server and its kubelet have this `version`.
fn arrived(context: &SwapContext, api: &Api, version: &str, runner: &dyn Runner) -> anyhow::Result<Result<(), String>> {
    let wanted = format!("v{version}");
    let server = api.version()?;
    if server != wanted {
        return Ok(Err(format!("the API server is still {server}")));
    }
    let ask = ["get", "node", &context.config.node.name, "--output=jsonpath={.status.nodeInfo.kubeletVersion}"];
    let kubelet = runner.run(&api::kubectl(context.config.address()).args(ask))?;
    let kubelet = String::from_utf8_lossy(&kubelet).trim().to_owned();
    Ok(if kubelet == wanted { Ok(()) } else { Err(format!("the kubelet is still {kubelet}")) })
}

/// Ends an upgrade once the node runs the new `version`: records it in the cluster, enables the virtual IP and
/// uncordons the node. The inner error says what it waits for. After an error calling it again continues.
pub fn finish(
    manager: &SwapManager,
    api: &Api,
    version: &str,
    runner: &dyn Runner,
) -> anyhow::Result<Result<(), String>> {
    let context = manager.context().context("the manager of swaps is not open")?;
    if let Err(waiting) = arrived(&context, api, version, runner)? {
        return Ok(Err(waiting));
    }
    Kubeadm::new(&context.root, runner).upload().context("recording the new version in the cluster")?;
    api::apply(runner, context.config.address(), &addons::rights(&context.config.cluster))?;
    virtual_ip::enable(&context.root)?;
    uncordon(&context, runner)?;
    context.records().forget::<UpgradeRecord>()?;
    context.note(&format!("Kubernetes was upgraded to {version}"));
    services::restart(boot_health::UNIT)?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_upgrade_is_reported_with_its_reason() {
        let begun = UpgradeRecord {
            id: uuid::Uuid::nil(),
            from: "1.35".into(),
            to: "1.36".into(),
            drain_seconds: 1,
            error: Some("draining cp1".into()),
            code: None,
        };
        let said = given_up(&begun, "draining cp1");
        let said: Vec<_> = said.iter().map(|finding| (finding.code.as_str(), finding.seen.as_str())).collect();
        assert_eq!(said, [("kubernetes.upgrade-failed", "the upgrade from 1.35 to 1.36 was cancelled: draining cp1")]);
        assert!(!begun.is_under_way());
    }
}
