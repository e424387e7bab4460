//! Collects the preconditions of an upgrade, and runs kubeadm's preflight.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use contract::codes;
use contract::swap::Rejection;

use super::deprecated;
use super::judge::UpgradePreconditions;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::member;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::kubernetes::{ADMINISTRATOR, MINORS};
use crate::host::at_once;
use crate::host::command::{self, Command, Runner};
use crate::host::files;
use crate::status::Phase;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::{boot_health, quorum};

/// How long a member or an API server may take to answer, times the timeout factor.
const ASKING: Duration = Duration::from_secs(5);
/// The directory for the results of kubeadm's dry run, in memory.
const DRY_RUN: &str = "/run/kaas/kubeadm-upgrade";
/// The variable with that directory (`cmd/kubeadm/app/constants`).
const DRY_RUN_DIRECTORY: &str = "KUBEADM_UPGRADE_DRYRUN_DIR";
/// Checks that the image makes unnecessary: its kernel and cgroups, and the cluster DNS that it brings.
const NOT_KUBEADMS: &str = "SystemVerification,CoreDNSUnsupportedPlugins,CoreDNSMigration";

/// Looks at the node and its cluster. `swap` is a swap or an evacuation of the node that blocks the upgrade.
pub(super) fn look(context: &SwapContext, to: &str, swap: Option<String>, runner: &dyn Runner) -> UpgradePreconditions {
    let (config, status) = (&context.config, context.reporter.status());
    let timeout = config.timeout(ASKING);
    let members = at_once::ask(&config.cluster.control_nodes, |node| {
        let healthy = member::healthy(node, &context.pki, timeout);
        let status = || EtcdClient::new(node, &context.pki, timeout)?.status();
        healthy.then(status).and_then(Result::ok).map(|status| status.version)
    });
    UpgradePreconditions {
        from: config.cluster.kubernetes_minor.clone(),
        to: to.to_owned(),
        available: context.image.kubernetes.iter().map(|release| release.minor.clone()).collect(),
        ready: status.phase == Phase::Done && status.is_ready() && boot_health::read(&context.root).is_some(),
        swap,
        others: context.others_under_way().map_err(said),
        not_ready: not_ready(context).map_err(said),
        quorum: quorum::look(context),
        etcd: members.into_iter().map(|(node, version)| (node.name.clone(), version)).collect(),
        removed: removed(context, to, runner).map_err(said),
    }
}

fn said(error: anyhow::Error) -> String {
    format!("{error:#}")
}

fn not_ready(context: &SwapContext) -> anyhow::Result<Vec<String>> {
    let kubeconfig = files::below(&context.root, api::KUBECONFIG);
    let api = Api::new(context.config.address(), &kubeconfig, context.config.timeout(ASKING))?;
    let mut missing = Vec::new();
    // By their names, so that workers' entries in their own Node objects do not matter.
    for node in &context.config.cluster.control_nodes {
        if !api.node(&node.name)?.is_some_and(|node| node.ready) {
            missing.push(node.name.clone());
        }
    }
    Ok(missing)
}

/// Each API server counts its own requests.
fn removed(context: &SwapContext, to: &str, runner: &dyn Runner) -> anyhow::Result<Vec<String>> {
    let to = to.parse().with_context(|| format!("{to:?}"))?;
    let mut all = Vec::new();
    for node in &context.config.cluster.control_nodes {
        let ask = api::kubectl(node.address).args(["get", "--raw", "/metrics"]);
        let metrics = runner.run(&ask).with_context(|| format!("the metrics of {}'s API server", node.name))?;
        all.extend(deprecated::removed_in(&String::from_utf8_lossy(&metrics), to));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// Runs the preflight of the new minor version's kubeadm: versions and their skew, the cluster's health, its
/// configuration.
pub(super) fn preflight(
    context: &SwapContext,
    minor: &str,
    version: &str,
    runner: &dyn Runner,
) -> Result<(), Rejection> {
    let directory = files::below(&context.root, DRY_RUN);
    let command = Command::new(format!("{MINORS}/{minor}/kubeadm"))
        .args(["upgrade", "apply", "phase", "preflight", &format!("v{version}"), "--dry-run", "--yes"])
        .arg(format!("--kubeconfig={ADMINISTRATOR}"))
        .arg(format!("--ignore-preflight-errors={NOT_KUBEADMS}"))
        .env(DRY_RUN_DIRECTORY, DRY_RUN);
    let judged = fs::create_dir_all(&directory)
        .map_err(|source| command::Error::Start { command: command.to_string(), source })
        .and_then(|()| runner.run(&command).map(drop));
    // Its files are of no use.
    let _ = fs::remove_dir_all(&directory);
    judged.map_err(|error| {
        let reason = match error {
            command::Error::Failed { tail, .. } => reasons(&tail),
            other => other.to_string(),
        };
        Rejection::of(&codes::KUBERNETES_PREFLIGHT, format!("kubeadm refuses: {reason}"))
    })
}

/// The lines with kubeadm's reasons, or all lines if no reason is found.
fn reasons(tail: &str) -> String {
    let why = |line: &&str| line.starts_with("[ERROR") || line.starts_with("- ") || line.starts_with("error:");
    let lines: Vec<&str> = tail.lines().map(str::trim).filter(why).collect();
    if lines.is_empty() { tail.trim().to_owned() } else { lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::command::Host;
    use crate::upgrade::swap::manager::tests::context;

    /// A kubeadm whose preflight fails.
    struct Unwilling;

    impl Runner for Unwilling {
        fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
            assert!(command.to_string().contains("1.36/kubeadm upgrade apply phase preflight v1.36.3"), "{command}");
            let say = "echo 'error: [ERROR ControlPlaneNodesReady]: cp2' >&2; exit 1";
            Host.run(&Command::new("sh").args(["-c", say]))
        }
    }

    #[test]
    fn kubeadms_refusal_keeps_its_words() {
        let root = tempfile::tempdir().unwrap();
        let refused = preflight(&context(root.path(), None), "1.36", "1.36.3", &Unwilling).unwrap_err();
        assert_eq!(refused.code, "kubernetes.preflight");
        assert_eq!(refused.reason, "kubeadm refuses: error: [ERROR ControlPlaneNodesReady]: cp2");
        assert!(!files::below(root.path(), DRY_RUN).exists(), "its files are left");
    }

    #[test]
    fn reasons_are_found_in_kubeadms_output() {
        let tail = "W1121 x constants.go:631] Using dry-run directory\n[preflight] Some fatal errors occurred:\n\
                    \t[ERROR ControlPlaneNodesReady]: there are NotReady control-planes in the cluster: [cp2]\n\
                    [preflight] If you know what you are doing\nerror: error execution phase preflight\n";
        assert_eq!(
            reasons(tail),
            "[ERROR ControlPlaneNodesReady]: there are NotReady control-planes in the cluster: [cp2]; \
             error: error execution phase preflight"
        );
        assert_eq!(reasons("killed\n"), "killed");
    }
}
