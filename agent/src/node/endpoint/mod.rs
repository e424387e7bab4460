//! The node's answers over HTTPS: to load balancers whether its API serves, to monitoring status and metrics, to administrators
//! the rest.
//!
//! | Path         | Who may ask      | Answer                                            |
//! |--------------|------------------|---------------------------------------------------|
//! | `/livez`     | anyone           | 200 `ok` while the API here serves, else 503      |
//! | `/v1/status` | monitoring       | the status document, JSON                         |
//! | `/metrics`   | monitoring       | metrics in Prometheus' text format                |
//! | `/v1/snapshot` | administrators | a fresh snapshot of etcd; 202 while it is taken   |
//! | `/v1/node`   | administrators   | the node as a swap sees it, JSON                  |
//! | `/v1/disks`  | administrators   | what the node knows of the nodes' data disks, JSON: for its peers |
//! | `/v1/swap`   | administrators   | POST: prepare a swap; 200 prepared, 202 under way |
//! | `/v1/swap/<id>` | administrators | DELETE: withdraw it                              |
//! | `/v1/commit` | administrators   | POST: commit the swap                             |
//! | `/v1/evacuate` | administrators | POST: let the VM be shut down; 200 done, 202 under way |
//! | `/v1/evacuate/<id>` | administrators | DELETE: withdraw that                        |
//! | `/v1/kubernetes` | administrators | POST: go to the next minor version of Kubernetes, or check it |
//! | `/v1/certificates` | administrators | POST: renew the node's certificates; 200 done, 202 under way |
//! | `/v1/configure` | administrators | POST: change properties, or check them (`?dryRun`) |
//! | `/v1/replace-member` | administrators | POST: admit a blank VM in place of a lost control-plane node |
//! | `/v1/deployer` | the holder of the deployer's key | POST: an administrator's certificate for that key |
//!
//! A refusal is a 409 with code and reason as JSON; see [`contract::swap`] and [`contract::configure`].
//!
//! Callers show a client certificate of the cluster's CA. [`access`] has the rules. The server runs in a separate thread, with
//! limits for connections, time and memory. It does not depend on how the status is made. Only routes for administrators return
//! secrets.

mod access;
mod answer;
mod configure;
mod connection_slots;
mod deployer;
mod idle_limit;
mod metrics;
mod renewal;
mod replacement;
mod routes;
mod server;
mod snapshot;
mod swap;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use anyhow::Context as _;
use contract::deployer::{Fingerprint, Fingerprints};
use contract::ports;
use zeroize::Zeroizing;

use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::{CertificateAuthorities, Leaf};
use crate::host::{files, services, tls};
use crate::intake::config::ControlPlane;
use crate::status::Reporter;
use crate::upgrade::swap::manager::SwapManager;
use connection_slots::ConnectionSlots;

/// The server's certificate and key, without their extensions: on the data disk.
pub const CERTIFICATE: &str = "/etc/kubernetes/pki/kaas-endpoint";

pub(crate) struct EndpointContext {
    pub root: PathBuf,
    pub reporter: Reporter,
    pub snapshots: snapshot::SnapshotTaker,
    pub swaps: SwapManager,
    /// Restarts the agent, so that it reads changed properties.
    pub restart: fn() -> anyhow::Result<()>,
}

/// A handle on the endpoint; clones share it. It closes with the process.
#[derive(Clone)]
pub struct Endpoint {
    shared: Arc<Shared>,
}

struct Shared {
    context: Arc<EndpointContext>,
    limits: server::Limits,
    seats: Arc<ConnectionSlots>,
    /// The TLS configuration of new connections. `None` while closed.
    open: Mutex<Option<Open>>,
}

struct Open {
    address: SocketAddr,
    certificate: String,
    tls: server::Tls,
}

impl Endpoint {
    pub fn new(root: &Path, reporter: Reporter) -> Self {
        Self::with_limits(root, reporter, server::Limits::USUAL, services::restart_agent)
    }

    fn with_limits(
        root: &Path,
        reporter: Reporter,
        limits: server::Limits,
        restart: fn() -> anyhow::Result<()>,
    ) -> Self {
        let context = Arc::new(EndpointContext {
            root: root.to_owned(),
            reporter,
            snapshots: snapshot::SnapshotTaker::default(),
            swaps: SwapManager::default(),
            restart,
        });
        Self { shared: Arc::new(Shared { context, limits, seats: Arc::default(), open: Mutex::new(None) }) }
    }

    pub fn swaps(&self) -> &SwapManager {
        &self.shared.context.swaps
    }

    /// Renews the server's certificate if necessary and opens the port. If the port is open, uses the renewed
    /// certificate. Returns whether anything changed.
    pub fn open(&self, config: &ControlPlane, now: SystemTime) -> anyhow::Result<bool> {
        let nodes = config.cluster.control_nodes.iter().map(|node| IpAddr::V4(node.address));
        self.shared.seats.keep_for(nodes.chain([IpAddr::V4(Ipv4Addr::LOCALHOST)]).collect());
        self.open_at(SocketAddr::from((config.address(), ports::NODE)), &leaf(config), now).map(|(changed, _)| changed)
    }

    fn open_at(&self, address: SocketAddr, leaf: &Leaf, now: SystemTime) -> anyhow::Result<(bool, SocketAddr)> {
        let pki = files::below(&self.shared.context.root, PKI);
        let authority = CertificateAuthorities::read(&pki)?.kubernetes;
        let base = files::below(&self.shared.context.root, CERTIFICATE);
        leaf.ensure(&authority, &base, now)?;
        let certificate = fs::read_to_string(base.with_extension("crt"))?;
        let fingerprints = fingerprints(&authority.certificate, &certificate)?;
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*open
            && open.certificate == certificate
        {
            self.shared.context.reporter.update(|status| status.fingerprints = Some(fingerprints));
            return Ok((false, open.address));
        }
        let key = Zeroizing::new(fs::read_to_string(base.with_extension("key"))?);
        let tls = server::tls(&authority.certificate, &certificate, &key)?;
        let opened = match &mut *open {
            Some(open) => {
                open.certificate = certificate;
                *open.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
                Ok((true, open.address))
            }
            none => {
                let tls = Arc::new(RwLock::new(tls));
                let Shared { context, seats, limits, .. } = &*self.shared;
                let address = server::start(address, Arc::clone(&tls), Arc::clone(context), Arc::clone(seats), *limits)
                    .with_context(|| format!("listening on {address}"))?;
                *none = Some(Open { address, certificate, tls });
                Ok((true, address))
            }
        };
        self.shared.context.reporter.update(|status| status.fingerprints = Some(fingerprints));
        opened
    }
}

/// The fingerprints of the cluster and of the endpoint, from their certificates in PEM.
fn fingerprints(authority: &str, certificate: &str) -> anyhow::Result<Fingerprints> {
    let der = |pem: &str| tls::certificates(pem)?.into_iter().next().context("there is no certificate");
    let authority = Fingerprint::of_key_of(&der(authority)?).context("reading the certificate of the CA")?;
    Ok(Fingerprints { ca: authority, endpoint: Fingerprint::of(&der(certificate)?) })
}

/// The content of the server's certificate: this node's name and address, and the virtual IP, behind which a load balancer may
/// check it.
pub fn leaf(config: &ControlPlane) -> Leaf {
    let mut addresses = [IpAddr::V4(config.address()), IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().collect::<Vec<_>>();
    addresses.extend(config.cluster.virtual_address.map(IpAddr::V4));
    Leaf {
        common_name: format!("kaas-endpoint:{}", config.node.name),
        group: None,
        names: [config.node.name.clone(), "localhost".to_owned()].into(),
        addresses: addresses.into_iter().collect(),
        server: true,
        client: false,
    }
}
