//! The parts of a running node: its platform, configuration, records and host. The steps of a boot and the tasks of maintenance
//! share it. It uses neither.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use contract::image::ImageFacts;
use contract::properties::ControlNode;
use contract::secret::Secret;
use ipnet::Ipv4Net;

use crate::cluster::REQUEST;
use crate::cluster::firewall::Firewall;
use crate::cluster::join_window;
use crate::cluster::kubernetes;
use crate::cluster::kubernetes::api::{self, Api};
use crate::cluster::records::Records;
use crate::cluster::rendezvous::{Proof, Rendezvous, RendezvousRecord, Settings};
use crate::host::bus::Bus;
use crate::host::command::Runner;
use crate::host::disk::DataDisk;
use crate::host::platform::Platform;
use crate::host::services::Services;
use crate::intake::config::{ClusterNetwork, Config, ControlPlane};
use crate::node::endpoint::Endpoint;
use crate::status::Reporter;

/// The error if a worker without a cluster is asked for settings of its cluster.
const NOT_JOINED: &str = "this worker has not joined its cluster";

/// Observations of the Node object of a control-plane node (`maintenance/registration.rs`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistrationState {
    /// The number of looks in a row that missed it.
    pub missing: u32,
    /// Whether the kubelet must still restart for a new object.
    pub restart: bool,
    pub restarted: Option<Instant>,
    /// The range that all sandboxes were checked against.
    pub range: Option<Ipv4Net>,
}

/// The replacement of certificates that the kubelet cannot use.
#[derive(Debug, Default)]
pub struct Replacement {
    /// Whether the kubelet must still restart without them.
    pub restart: bool,
    pub last: Option<SystemTime>,
}

pub struct NodeContext {
    pub platform: Platform,
    pub image: ImageFacts,
    pub config: Config,
    pub data_disk: DataDisk,
    pub records: Records,
    pub reporter: Reporter,
    pub endpoint: Endpoint,
    pub firewall: Arc<Firewall>,
    pub registration: Arc<Mutex<RegistrationState>>,
    pub replacement: Mutex<Replacement>,
    /// The rendezvous of the forming, from the end of this node's own part until all nodes have joined.
    rendezvous: Mutex<Option<Rendezvous>>,
    bus: Bus,
    runner: Box<dyn Runner>,
}

impl NodeContext {
    /// A node on `platform`. Its services are reached over `bus`, and `runner` runs its programs.
    pub fn new(
        platform: Platform,
        image: ImageFacts,
        config: Config,
        data_disk: DataDisk,
        reporter: Reporter,
        (bus, runner): (Bus, Box<dyn Runner>),
    ) -> Self {
        Self {
            records: Records::new(platform.root()),
            endpoint: Endpoint::new(platform.root(), reporter.clone()),
            firewall: Arc::new(Firewall::new(platform.root())),
            registration: Arc::default(),
            replacement: Mutex::default(),
            rendezvous: Mutex::default(),
            bus,
            platform,
            image,
            config,
            data_disk,
            reporter,
            runner,
        }
    }

    /// A client of the Kubernetes API: of the server on this node, or of a worker's cluster.
    pub fn api(&self) -> anyhow::Result<Api> {
        Api::new(self.config.api_address(), &self.path(api::KUBECONFIG), self.config.timeout(REQUEST))
    }

    pub fn root(&self) -> &Path {
        self.platform.root()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.platform.path(path)
    }

    pub fn pki(&self) -> PathBuf {
        self.path(kubernetes::PKI)
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    pub fn services(&self) -> Services<'_> {
        Services::new(&self.bus)
    }

    pub fn control_plane(&self) -> anyhow::Result<&ControlPlane> {
        Ok(self.config.control_plane()?)
    }

    /// An error on a worker that has not joined.
    pub fn network(&self) -> anyhow::Result<ClusterNetwork> {
        self.config.network().context(NOT_JOINED)
    }

    pub fn control_node(&self) -> anyhow::Result<&ControlNode> {
        Ok(self.control_plane()?.control_node()?)
    }

    /// This node's address on the primary network. An error until a DHCP server has leased one.
    pub fn address(&self) -> anyhow::Result<Ipv4Addr> {
        self.config.address().context("this node has no address yet")
    }

    /// The full version of this node's Kubernetes in this image.
    pub fn kubernetes_version(&self) -> anyhow::Result<&str> {
        let minor = self.config.kubernetes_minor().context(NOT_JOINED)?;
        let release = self.image.kubernetes(minor).with_context(|| format!("this image has no Kubernetes {minor}"))?;
        Ok(&release.version)
    }

    /// Names the image and its Kubernetes version. All nodes that form a cluster have the same.
    pub fn forming_image(&self) -> String {
        let minor = self.config.kubernetes_minor().unwrap_or_default();
        let version = self.image.kubernetes(minor).map_or(minor, |release| release.version.as_str());
        format!("{} {} with Kubernetes {version}", self.image.name, self.image.version)
    }

    pub fn runner(&self) -> &dyn Runner {
        &*self.runner
    }

    /// Opens the rendezvous of the forming with the state of `record`.
    pub fn open_rendezvous(&self, secret: &Secret, record: RendezvousRecord) -> anyhow::Result<Rendezvous> {
        let records = Records::new(self.root());
        let keep = Box::new(move |record: &RendezvousRecord| records.save_rendezvous(record));
        let settings = Settings::new(self.control_plane()?.clone(), Proof::of(secret), self.forming_image());
        let records = Records::new(self.root());
        let window = Box::new(move |node: &str| join_window::is_open(&records, node, join_window::uptime()?));
        Ok(Rendezvous::open_within(settings, record, keep, window)?)
    }

    /// Leaves the open rendezvous to maintenance, which continues it.
    pub fn leave_rendezvous(&self, open: Option<Rendezvous>) {
        *self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    pub fn take_rendezvous(&self) -> Option<Rendezvous> {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
