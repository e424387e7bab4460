//! Follows the health of the programs on this node, in a separate thread. Tells keepalived whether this node may hold the
//! virtual IP, and updates the status.

mod judgement;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, anyhow};
use contract::node::VirtualAddress;
use judgement::{ApiHealth, Look};

use crate::cluster::REQUEST;
use crate::cluster::etcd::member;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::virtual_ip;
use crate::host::files;
use crate::intake::config::ControlPlane;
use crate::maintenance::worker_health::WorkerWatch;
use crate::status::{Health, Member, Reporter};

/// The pause between two looks, times the timeout factor while the API on this node serves.
const PACE: Duration = Duration::from_secs(1);

/// The pause between two requests to the API itself while it serves. Between them only etcd is asked.
const ASKING: Duration = Duration::from_secs(3);

/// The pause between two looks while the API does not serve, and between two checks whether etcd was asked to stop.
const HASTE: Duration = Duration::from_millis(500);

/// How long the API may take to report that it serves, times the timeout factor. Without etcd it takes four seconds to report
/// that it does not.
const ANSWER: Duration = Duration::from_secs(2);

/// How long etcd's member may take to report that it has no leader, times the timeout factor. It answers from memory.
const KNOWN: Duration = Duration::from_secs(1);

/// How long another node may take to take over the virtual IP, times the timeout factor.
const YIELDING: Duration = Duration::from_secs(5);

/// How long one look may last before it counts as hung, times the timeout factor.
const ROUND: Duration = Duration::from_secs(120);

/// The pause between two looks at the whole cluster once all is healthy …
const CALM: Duration = Duration::from_secs(30);

/// … and while something is not.
const EAGER: Duration = Duration::from_secs(3);

pub enum Watch {
    ControlPlane(HealthWatch),
    Worker(Box<WorkerWatch>),
}

impl Watch {
    pub fn look_if_due(&self) {
        match self {
            Self::ControlPlane(watch) => watch.look_if_due(),
            Self::Worker(watch) => watch.look_if_due(),
        }
    }
}

/// A handle on the watch; clones share it. The watch ends with the last one.
#[derive(Clone)]
pub struct HealthWatch {
    shared: Arc<Shared>,
}

struct Shared {
    config: ControlPlane,
    root: PathBuf,
    reporter: Reporter,
    due: Mutex<Option<Instant>>,
}

impl HealthWatch {
    /// Starts to watch. The API need not be up yet, but its credentials must exist.
    pub fn start(config: &ControlPlane, root: &Path, reporter: Reporter) -> anyhow::Result<Self> {
        let kubeconfig = files::below(root, api::KUBECONFIG);
        let api = ReloadingApi::new(config, kubeconfig)?;
        let shared =
            Arc::new(Shared { config: config.clone(), root: root.to_owned(), reporter, due: Mutex::new(None) });
        let own = Arc::downgrade(&shared);
        thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || ApiProbe { api, judgement: ApiHealth::default(), asked: None }.follow(&own))
            .context("starting to watch the API")?;
        Ok(Self { shared })
    }

    /// Looks at the whole cluster, unless that was done a short while ago.
    pub fn look_if_due(&self) {
        let mut due = self.shared.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|due| Instant::now() >= due) {
            let well = self.shared.look();
            *due = Some(Instant::now() + if well { CALM } else { EAGER });
        }
    }
}

/// A client of the API that loads renewed credentials.
struct ReloadingApi {
    api: Api,
    kubeconfig: PathBuf,
    written: Option<SystemTime>,
}

impl ReloadingApi {
    fn new(config: &ControlPlane, kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let written = written(&kubeconfig);
        Ok(Self { api: Api::new(config.address(), &kubeconfig, config.timeout(ANSWER))?, kubeconfig, written })
    }

    fn get(&mut self, config: &ControlPlane) -> &Api {
        if written(&self.kubeconfig) != self.written {
            match Self::new(config, self.kubeconfig.clone()) {
                Ok(renewed) => *self = renewed,
                Err(error) => log::warn!("going on with renewed credentials: {error:#}"),
            }
        }
        &self.api
    }
}

fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Gives the virtual IP to another node before the API here is away for a while, if one is ready.
pub(super) fn yield_virtual_address(config: &ControlPlane, root: &Path, reporter: &Reporter) -> anyhow::Result<()> {
    let Some(address) = config.cluster.virtual_address else { return Ok(()) };
    let health = reporter.status().health.unwrap_or_default();
    let others = health.nodes.iter().flatten().filter(|other| other.name != config.node.name);
    if others.filter(|node| node.ready).count() == 0 {
        return Ok(());
    }
    if !virtual_ip::release(root, address, config.timeout(YIELDING))? {
        log::warn!("the virtual IP {address} was not released in time: the API is away from it for a moment");
    }
    Ok(())
}

/// Follows the API on this node.
///
/// A node that the network has cut off must release the virtual IP before it comes back. Otherwise it would take the address
/// from the node that holds it then. Its etcd has no leader within two seconds.
struct ApiProbe {
    api: ReloadingApi,
    judgement: ApiHealth,
    asked: Option<Instant>,
}

impl ApiProbe {
    fn follow(mut self, shared: &Weak<Shared>) {
        while let Some(shared) = shared.upgrade() {
            let pause = self.look(&shared);
            let root = shared.root.clone();
            drop(shared);
            rest(&root, pause);
        }
    }

    /// One look. Returns the pause before the next.
    fn look(&mut self, shared: &Shared) -> Duration {
        shared.reporter.alive("the watch of the API", shared.config.timeout(ROUND));
        let began = Instant::now();
        let (look, why) = self.ask(&shared.config, &shared.root);
        let ended = self.judgement.note(look, began, Instant::now());
        if let (true, Some(why)) = (ended, why) {
            log::warn!("the API on this node does not serve: {why:#}");
        }
        let told = self.judgement.told(shared.config.peers().next().is_none());
        if let (Some(address), Some(may_hold)) = (shared.config.cluster.virtual_address, told)
            && let Err(error) = virtual_ip::set_health(&shared.root, address, may_hold)
        {
            log::warn!("telling keepalived about the API: {error}");
        }
        let serves = self.judgement.serves();
        shared.reporter.update(|status| status.health.get_or_insert_default().api = serves);
        if look == Look::Serves { shared.config.timeout(PACE) } else { HASTE }
    }

    /// Asks etcd on this node, and the API as well if that is due. Returns the observation, and the reason if the API does not
    /// serve.
    fn ask(&mut self, config: &ControlPlane, root: &Path) -> (Look, Option<anyhow::Error>) {
        if member::own_is_stopping(root) {
            return (Look::Stops, Some(anyhow!("etcd on this node was asked to stop")));
        }
        if member::own_is_away(config.timeout(KNOWN)) {
            return (Look::Refuses, Some(anyhow!("etcd on this node is off or sees no leader")));
        }
        if !self.judgement.doubts() && self.asked.is_some_and(|asked| asked.elapsed() < ASKING) {
            return (Look::Serves, None);
        }
        self.asked = Some(Instant::now());
        match self.api.get(config).ready() {
            Ok(()) => (Look::Serves, None),
            Err(late) if is_late(&late) => (Look::Late, Some(late)),
            Err(refusal) => (Look::Refuses, Some(refusal)),
        }
    }
}

/// Waits for so long, or until etcd is asked to stop.
fn rest(root: &Path, pause: Duration) {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        thread::sleep(left.min(HASTE));
        if left <= HASTE || member::own_is_stopping(root) {
            return;
        }
    }
}

fn is_late(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<reqwest::Error>()).any(reqwest::Error::is_timeout)
}

impl Shared {
    /// Looks at nodes, etcd and the virtual IP. Returns whether all are healthy.
    fn look(&self) -> bool {
        let timeout = self.config.timeout(REQUEST);
        let kubeconfig = files::below(&self.root, api::KUBECONFIG);
        let own = &self.config.node.name;
        let nodes = Api::new(self.config.address(), &kubeconfig, timeout).and_then(|api| api.nodes_or(own)).ok();
        let pki = files::below(&self.root, PKI);
        let members = self.config.cluster.control_nodes.iter();
        let etcd: Vec<Member> = members
            .map(|node| Member { name: node.name.clone(), healthy: member::healthy(node, &pki, timeout) })
            .collect();
        let virtual_address = self
            .config
            .cluster
            .virtual_address
            .map(|address| VirtualAddress { address, held: virtual_ip::held(address) });
        let well = nodes.as_ref().is_some_and(|nodes| {
            nodes.len() >= self.config.cluster.control_nodes.len() && nodes.iter().all(|node| node.ready)
        }) && etcd.iter().all(|member| member.healthy);
        self.reporter.update(|status| {
            let api = status.health.as_ref().is_some_and(|health| health.api);
            status.health = Some(Health { api, nodes, etcd, virtual_address });
        });
        well
    }
}
