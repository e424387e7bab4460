//! Follows the health of what runs on this node, on a thread of its own, at a
//! calm pace: tells keepalived whether this node may hold the virtual IP,
//! and keeps the status fresh.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use contract::node::VirtualAddress;

use crate::cluster::etcd::member;
use crate::cluster::kubernetes::PKI;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::virtual_address;
use crate::host::files;
use crate::intake::config::ControlPlane;
use crate::status::{Health, Member, Reporter};

/// The pause between two looks at the API on this node while it serves …
const PACE: Duration = Duration::from_secs(3);

/// … and while it does not.
const QUICK: Duration = Duration::from_secs(1);

/// How often in a row the API must be found wanting before this node gives the
/// virtual IP up. One slow answer is no outage.
const FAILURES: u32 = 3;

/// How long one answer may take, times the timeout factor.
const REQUEST: Duration = Duration::from_secs(5);

/// How long one look may last at the very most before it counts as hung,
/// times the timeout factor.
const ROUND: Duration = Duration::from_secs(120);

/// The pause between two looks at the whole cluster once all is well …
const CALM: Duration = Duration::from_secs(30);

/// … and while something is not.
const EAGER: Duration = Duration::from_secs(3);

/// A handle on the watch; clones share it. The watch ends with the process.
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
    /// Starts to watch. The API need not be up yet, its credentials must be there.
    ///
    /// # Errors
    /// The credentials cannot be read, or no thread can be made.
    pub fn start(config: &ControlPlane, root: &Path, reporter: Reporter) -> anyhow::Result<Self> {
        let kubeconfig = files::below(root, api::KUBECONFIG);
        let api = Renewing::new(config, kubeconfig)?;
        let shared =
            Arc::new(Shared { config: config.clone(), root: root.to_owned(), reporter, due: Mutex::new(None) });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || own.follow_api(api))
            .context("starting to watch the API")?;
        Ok(Self { shared })
    }

    /// Looks at the cluster as a whole, unless that was done a short while ago.
    pub fn look_if_due(&self) {
        let mut due = self.shared.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.is_none_or(|due| Instant::now() >= due) {
            let well = self.shared.look();
            *due = Some(Instant::now() + if well { CALM } else { EAGER });
        }
    }
}

/// A client of the API that goes on with renewed credentials.
struct Renewing {
    api: Api,
    kubeconfig: PathBuf,
    written: Option<SystemTime>,
}

impl Renewing {
    fn new(config: &ControlPlane, kubeconfig: PathBuf) -> anyhow::Result<Self> {
        let written = written(&kubeconfig);
        Ok(Self { api: Api::new(config.address(), &kubeconfig, config.timeout(REQUEST))?, kubeconfig, written })
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

impl Shared {
    /// Tells keepalived at once that the API serves, and after some failures
    /// in a row that it does not.
    fn follow_api(&self, mut api: Renewing) {
        let mut failures = FAILURES;
        loop {
            self.reporter.alive("the watch of the API", self.config.timeout(ROUND));
            match api.get(&self.config).ready() {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == FAILURES {
                        log::warn!("the API on this node does not serve: {error:#}");
                    }
                }
            }
            let healthy = failures < FAILURES;
            if self.config.cluster.virtual_address.is_some()
                && let Err(error) = virtual_address::tell(&self.root, healthy)
            {
                log::warn!("telling keepalived about the API: {error}");
            }
            self.reporter.update(|status| status.health.get_or_insert_default().api = healthy);
            thread::sleep(if failures == 0 { PACE } else { QUICK });
        }
    }

    /// Looks at nodes, etcd and the virtual IP; says whether all is well.
    fn look(&self) -> bool {
        let timeout = self.config.timeout(REQUEST);
        let kubeconfig = files::below(&self.root, api::KUBECONFIG);
        let nodes = Api::new(self.config.address(), &kubeconfig, timeout).and_then(|api| api.nodes()).ok();
        let pki = files::below(&self.root, PKI);
        let members = self.config.cluster.control_nodes.iter();
        let etcd: Vec<Member> = members
            .map(|node| Member { name: node.name.clone(), healthy: member::healthy(node, &pki, timeout) })
            .collect();
        let virtual_address = self
            .config
            .cluster
            .virtual_address
            .map(|address| VirtualAddress { address, held: virtual_address::held(address) });
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
