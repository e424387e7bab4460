//! The pod network: pods of all nodes reach each other over VXLAN.
//!
//! It is a separate process (`kaas-agent pod-network`). Therefore a restart or failure of the agent does not affect the
//! pods' traffic, and the other way round. When it stops, its settings in the kernel stay and continue to work.
//!
//! ```text
//! nodes of the cluster → desired → compared with what is observed → commands
//! ```
//!
//! For each other node the kernel gets a route to its pods, the neighbour behind the route and the forwarding entry of
//! the tunnel. The MAC addresses come from the nodes' addresses, so nodes exchange no messages. Each pod of this node
//! has a device and a route (CNI). It knows nothing of services, which kube-proxy handles, and of network policies.
//!
//! Its only input is the list of nodes: a name, an address and a pod CIDR for each. Nodes change rarely, so it sleeps
//! nearly all the time.

mod api;
pub mod changes;
pub mod cni;
pub mod desired;
pub mod node;
pub mod observed;
pub mod offload;
pub(in crate::cluster) mod packets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use sd_notify::NotifyState;
use tokio::time::{Instant, sleep, timeout_at};

use crate::host::command::Runner;
use crate::host::files;
use crate::host::nftables::Table;
use crate::intake::config::{ClusterNetwork, Config};

use api::Follower;
use desired::Settings;
use observed::Observed;

pub const UNIT: &str = "kaas-pod-network.service";

/// The file of its client certificate: its own on a control-plane node, the kubelet's on a worker.
pub const KUBECONFIG: &str = "/etc/kubernetes/pod-network.conf";

/// How often to check whether the state is still as desired.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// The pause before the next try after a failure, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

impl Settings {
    /// The settings of this node. `None` on a worker that has not joined.
    pub fn of(config: &Config) -> Option<Self> {
        let ClusterNetwork { pod_cidr, vxlan_port, .. } = config.network()?;
        Some(Self { node: config.node().name.clone(), address: config.address()?, pod_cidr, port: vxlan_port })
    }
}

/// Keeps the pod network up to date forever. `root` is `/` on a VM. [`crate::cluster::pki::ensure_kubeconfig`] writes
/// `kubeconfig`, which is read again after each failure. Returns an error only if it cannot begin. Later failures are
/// logged, and it tries again.
pub fn run(settings: &Settings, kubeconfig: PathBuf, root: &Path, runner: &dyn Runner) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(follow(settings, kubeconfig, root, runner));
    Ok(())
}

async fn follow(settings: &Settings, kubeconfig: PathBuf, root: &Path, runner: &dyn Runner) {
    let mut follower = Follower::new(kubeconfig);
    let mut keeper = PodNetworkReconciler::new(settings, root, runner);
    let (mut retry, mut wait) = (RETRY.0, LOOK_AGAIN);
    loop {
        // Without news in that time, the known nodes are checked again.
        let news = timeout_at(Instant::now() + wait, follower.changed()).await.unwrap_or(Ok(()));
        let synced = keeper.sync(&follower.nodes);
        let failed = match (news, synced) {
            (Ok(()), Ok(())) => {
                (retry, wait) = (RETRY.0, LOOK_AGAIN);
                continue;
            }
            (Err(error), _) => format!("no news of the nodes: {error:#}"),
            (Ok(()), Err(error)) => format!("{error:#}"),
        };
        keeper.say(&failed);
        sleep(retry).await;
        (retry, wait) = ((retry * 2).min(RETRY.1), RETRY.1);
    }
}

struct PodNetworkReconciler<'a> {
    settings: &'a Settings,
    root: &'a Path,
    runner: &'a dyn Runner,
    table: Table,
    ready: bool,
    logged_warnings: BTreeSet<String>,
}

impl<'a> PodNetworkReconciler<'a> {
    fn new(settings: &'a Settings, root: &'a Path, runner: &'a dyn Runner) -> Self {
        Self { settings, root, runner, table: packets::table(), ready: false, logged_warnings: BTreeSet::new() }
    }

    /// Observes, compares and changes the differences. Reports "ready" to systemd when this node's pods can reach the
    /// others for the first time.
    fn sync(&mut self, nodes: &node::Nodes) -> anyhow::Result<()> {
        let address = self.settings.address;
        let observed = Observed::look(self.runner, address).context("looking at the network devices")?;
        let Some(underlay) = observed.underlay.clone() else {
            bail!("no network device has this node's address {address}");
        };
        let (desired, warnings) = desired::desired(self.settings, &underlay, nodes);
        for warning in warnings {
            self.say(&warning);
        }
        let Some(desired) = desired else {
            self.say("the cluster has no pod CIDR for this node yet");
            return Ok(());
        };
        if let Err(error) = offload::ensure(self.runner, self.root, &underlay.device) {
            self.say(&format!("large packets between pods may be lost: {error}"));
        }
        // Before the tunnel exists: only packets of known nodes come through it.
        let rules = packets::content(self.settings.pod_cidr, &desired);
        if self.table.ensure(self.runner, &rules).context("setting the rules for pods' packets")? {
            log::info!("the nftables table of the pods has been laid");
        }
        for command in changes::changes(&desired, &observed) {
            log::info!("{command}");
            self.runner.run(&command).context("setting up the pod network")?;
        }
        let conflist = self.root.join(cni::PATH);
        let content = cni::conflist(desired.pod_cidr, desired.mtu);
        files::ensure_content(&conflist, content.as_bytes(), 0o600)
            .with_context(|| format!("writing {}", conflist.display()))?;
        self.done(&format!("pods {}, {} other nodes", desired.pod_cidr, desired.remotes.len()));
        Ok(())
    }

    fn done(&mut self, status: &str) {
        self.logged_warnings.clear();
        if !self.ready {
            log::info!("ready: {status}");
        }
        self.ready = true;
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Logs the same warning once until the next success.
    fn say(&mut self, what: &str) {
        if self.logged_warnings.len() > 100 {
            self.logged_warnings.clear();
        }
        if self.logged_warnings.insert(what.to_owned()) {
            log::warn!("{what}");
        }
        notify(&[NotifyState::Status(what)]);
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::debug!("telling systemd: {error}");
    }
}
