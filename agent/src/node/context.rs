//! What a running node works with: what carries it, what it is to be, its records and its host. Steps of a boot and
//! periodic checks have it in common. Knows nothing of either.

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

/// What is missing where a worker is asked for what its cluster says.
const NOT_JOINED: &str = "this worker has not joined its cluster";

/// What was seen of the Node object of a control-plane node (`maintenance/registration.rs`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistrationState {
    /// The number of looks in succession that missed it.
    pub missing: u32,
    /// Whether the kubelet has yet to start again with a new object.
    pub restart: bool,
    /// When that was last tried.
    pub restarted: Option<Instant>,
    /// The range that all sandboxes were held against.
    pub range: Option<Ipv4Net>,
}

/// What was done about certificates that the kubelet cannot use.
#[derive(Debug, Default)]
pub struct Replacement {
    /// Whether the kubelet has yet to start again without them.
    pub restart: bool,
    /// When one was replaced last.
    pub last: Option<SystemTime>,
}

pub struct NodeContext {
    pub platform: Platform,
    pub image: ImageFacts,
    pub config: Config,
    /// The data disk as it was examined.
    pub data_disk: DataDisk,
    /// The records on the data disk.
    pub records: Records,
    /// Tells the world.
    pub reporter: Reporter,
    /// Answers over HTTPS, once it is opened.
    pub endpoint: Endpoint,
    pub firewall: Arc<Firewall>,
    pub registration: Arc<Mutex<RegistrationState>>,
    pub replacement: Mutex<Replacement>,
    /// The rendezvous of the forming, from when this node's own part is done until nobody needs it any more.
    rendezvous: Mutex<Option<Rendezvous>>,
    bus: Bus,
    runner: Box<dyn Runner>,
}

impl NodeContext {
    /// The node that `platform` carries, whose services are reached over `bus` and whose programs `runner` runs.
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

    /// A client of the Kubernetes API: of the server on this node, or a worker's cluster.
    ///
    /// # Errors
    /// The agent has no credentials yet.
    pub fn api(&self) -> anyhow::Result<Api> {
        Api::new(self.config.api_address(), &self.path(api::KUBECONFIG), self.config.timeout(REQUEST))
    }

    /// The directory below which the system is: `/` outside of tests.
    pub fn root(&self) -> &Path {
        self.platform.root()
    }

    /// A path of the running system.
    pub fn path(&self, path: &str) -> PathBuf {
        self.platform.path(path)
    }

    /// The directory of keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.path(kubernetes::PKI)
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The host's units.
    pub fn services(&self) -> Services<'_> {
        Services::new(&self.bus)
    }

    /// The configuration of a node with a control plane.
    ///
    /// # Errors
    /// The node has none.
    pub fn control_plane(&self) -> anyhow::Result<&ControlPlane> {
        Ok(self.config.control_plane()?)
    }

    /// The networks of this node's cluster.
    ///
    /// # Errors
    /// It is a worker that has not joined.
    pub fn network(&self) -> anyhow::Result<ClusterNetwork> {
        self.config.network().context(NOT_JOINED)
    }

    /// This node's entry in the list of control nodes.
    ///
    /// # Errors
    /// It is not in there.
    pub fn control_node(&self) -> anyhow::Result<&ControlNode> {
        Ok(self.control_plane()?.control_node()?)
    }

    /// This node's address on the primary network.
    ///
    /// # Errors
    /// No DHCP server has leased one yet.
    pub fn address(&self) -> anyhow::Result<Ipv4Addr> {
        self.config.address().context("this node has no address yet")
    }

    /// The full version of this node's Kubernetes, as this image carries it.
    ///
    /// # Errors
    /// The image does not carry it, or it is not known yet.
    pub fn kubernetes_version(&self) -> anyhow::Result<&str> {
        let minor = self.config.kubernetes_minor().context(NOT_JOINED)?;
        let release = self.image.kubernetes(minor).with_context(|| format!("this image has no Kubernetes {minor}"))?;
        Ok(&release.version)
    }

    /// Names the image and what it forms with: the same on all nodes.
    pub fn forming_image(&self) -> String {
        let minor = self.config.kubernetes_minor().unwrap_or_default();
        let version = self.image.kubernetes(minor).map_or(minor, |release| release.version.as_str());
        format!("{} {} with Kubernetes {version}", self.image.name, self.image.version)
    }

    /// Runs the host's programs.
    pub fn runner(&self) -> &dyn Runner {
        &*self.runner
    }

    /// Opens the rendezvous of the forming as it is on `record`.
    ///
    /// # Errors
    /// The node is none that forms a cluster, or as [`Rendezvous::open`].
    pub fn open_rendezvous(&self, secret: &Secret, record: RendezvousRecord) -> anyhow::Result<Rendezvous> {
        let records = Records::new(self.root());
        let keep = Box::new(move |record: &RendezvousRecord| records.save_rendezvous(record));
        let settings = Settings::new(self.control_plane()?.clone(), Proof::of(secret), self.forming_image());
        let records = Records::new(self.root());
        let window = Box::new(move |node: &str| join_window::is_open(&records, node, join_window::uptime()?));
        Ok(Rendezvous::open_within(settings, record, keep, window)?)
    }

    /// Leaves the open rendezvous to maintenance, which goes on with it.
    pub fn leave_rendezvous(&self, open: Option<Rendezvous>) {
        *self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner) = open;
    }

    /// The open rendezvous that was left, once.
    pub fn take_rendezvous(&self) -> Option<Rendezvous> {
        self.rendezvous.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
