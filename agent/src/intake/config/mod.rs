//! The validated configuration: the part of the OVF environment that later stages use.
//!
//! A [`Config`] exists only if every property has been checked, alone and against the others. It is saved in storage
//! that survives a reboot, so that the OVF environment is needed only once.

mod add_ons;
mod address;
mod command;
#[cfg(test)]
pub(crate) mod fixture;
mod properties;
mod saved;
mod validate;
mod worker;

use std::net::Ipv4Addr;
use std::time::Duration;

use contract::codes;
use contract::finding::Finding;
pub use contract::form::clear_text;
use contract::image::ImageFacts;
use contract::pod_security::PodSecurity;
use contract::properties::{self as table, ControlNode, Period, Route};
use contract::role::Role;
use contract::secret::Secret;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

pub use add_ons::AddOns;
pub use address::{Address, Lease};
pub use command::{Output, describe, validate_command};
pub use validate::{Intake, validate, validate_formed};
pub use worker::{ClusterNetwork, JoinedCluster, LearnedCluster, Registration, Worker};

/// The configuration of this VM: all properties of the OVF form. Each kind of node has its own type. This type has what
/// they share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "saved::Saved", into = "saved::Saved")]
pub enum Config {
    ControlPlane(ControlPlane),
    Worker(Worker),
}

/// The configuration of a node with a control plane. Code that only runs on such nodes takes it in place of [`Config`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    pub role: Role,
    /// The cluster, the same on each of its control-plane nodes.
    pub cluster: Cluster,
    pub node: Node,
    /// The directory on a server for copies of etcd snapshots. The URL may contain a password.
    pub snapshot_target: Option<Secret>,
    /// How often a snapshot is taken while this node leads etcd.
    pub snapshot_every: Period,
    /// The operator's public key. Encryption keys are sealed to it.
    pub recovery_public_key: Option<String>,
    /// The public key of the cluster's deployer. A client that proves the private key becomes an administrator.
    pub deployer_public_key: Option<String>,
    /// Factor of all waiting times of the appliance, for slow hosts: 1 to 20.
    pub timeout_factor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// A DNS label.
    pub name: String,
    /// One or three nodes. The first one creates the CAs.
    pub control_nodes: Vec<ControlNode>,
    /// The address of the API for clients. Always set with three control-plane nodes.
    pub virtual_address: Option<Ipv4Addr>,
    /// Addresses of pods. Each node gets a part of it.
    pub pod_cidr: Ipv4Net,
    /// Prefix length of a node's part of it. Configurations of earlier images have none.
    #[serde(default = "default_node_prefix")]
    pub node_prefix: u8,
    /// Addresses of services. The first is the API's, the tenth is cluster DNS.
    pub service_cidr: Ipv4Net,
    /// UDP port of the VXLAN pod network.
    pub vxlan_port: u16,
    /// Kubernetes minor version to form with, such as `1.36`. The image contains it.
    pub kubernetes_minor: String,
    /// The Pod Security level of namespaces without one.
    pub pod_security: PodSecurity,
    pub add_ons: AddOns,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Host name, a DNS label.
    pub name: String,
    /// The network interfaces. The first is the primary one.
    pub interfaces: Vec<Interface>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Resolvers of the form, in order. May be empty.
    pub dns_servers: Vec<Ipv4Addr>,
    /// Search domains, in order.
    pub search_domains: Vec<String>,
    /// Time servers of the form, names or addresses. May be empty. [`Node::time_servers`] has those in use.
    pub ntp_servers: Vec<String>,
    /// Keys for `admin`'s SSH login. SSH stays off without one.
    pub ssh_authorized_keys: Vec<String>,
    /// A crypt(5) hash that unlocks the console. Without one the console shows status only.
    pub console_password_hash: Option<String>,
    /// Networks that SSH and the endpoint are reachable from. Any network if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admin_networks: Vec<Ipv4Net>,
    pub proxy: Option<Proxy>,
    /// Additional CAs to trust, in PEM, one certificate each.
    pub extra_ca_certificates: Vec<String>,
    /// Registry for container images that the appliance does not contain.
    pub registry_mirror: Option<String>,
}

/// A logical network interface. The first boot assigns it to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// MAC address from the OVF environment, lower-case with colons.
    pub mac: Option<String>,
    pub network: Option<String>,
    /// Address and prefix length. A control-plane node's is static.
    pub address: Address,
    pub gateway: Option<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// For http:// addresses.
    pub http: Option<String>,
    /// For https:// addresses.
    pub https: Option<String>,
    /// Hosts, domains and networks that bypass the proxy.
    pub exclusions: Vec<String>,
}

/// The operation is possible on workers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node is no worker")]
pub struct NotAWorker;

/// The operation is possible on control-plane nodes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node is not in the list of control-plane nodes")]
pub struct NotAControlNode;

impl Config {
    pub fn role(&self) -> Role {
        match self {
            Self::ControlPlane(config) => config.role,
            Self::Worker(_) => Role::Worker,
        }
    }

    pub fn node(&self) -> &Node {
        match self {
            Self::ControlPlane(config) => &config.node,
            Self::Worker(config) => &config.node,
        }
    }

    pub fn cluster_name(&self) -> &str {
        match self {
            Self::ControlPlane(config) => &config.cluster.name,
            Self::Worker(config) => &config.cluster.name,
        }
    }

    /// The Kubernetes minor version of this node, such as `1.36`. `None` for a worker that has not joined.
    pub fn kubernetes_minor(&self) -> Option<&str> {
        match self {
            Self::ControlPlane(config) => Some(&config.cluster.kubernetes_minor),
            Self::Worker(config) => config.cluster.learned.as_ref().map(|said| said.kubernetes_minor.as_str()),
        }
    }

    pub fn control_nodes(&self) -> &[ControlNode] {
        match self {
            Self::ControlPlane(config) => &config.cluster.control_nodes,
            Self::Worker(_) => &[],
        }
    }

    /// The virtual IP that this node may hold.
    pub fn virtual_address(&self) -> Option<Ipv4Addr> {
        match self {
            Self::ControlPlane(config) => config.cluster.virtual_address,
            Self::Worker(_) => None,
        }
    }

    /// The cluster's networks. `None` for a worker that has not joined.
    pub fn network(&self) -> Option<ClusterNetwork> {
        match self {
            Self::ControlPlane(config) => Some(config.cluster.network()),
            Self::Worker(config) => config.cluster.learned.as_ref().map(|said| said.network),
        }
    }

    /// The address of the Kubernetes API for this node. A control-plane node uses its own.
    pub fn api_address(&self) -> Ipv4Addr {
        match self {
            Self::ControlPlane(config) => config.address(),
            Self::Worker(config) => config.cluster.api_address,
        }
    }

    /// Factor of all waiting times of the appliance: 1 to 20.
    pub fn timeout_factor(&self) -> u32 {
        match self {
            Self::ControlPlane(config) => config.timeout_factor,
            Self::Worker(config) => config.timeout_factor,
        }
    }

    pub fn control_plane(&self) -> Result<&ControlPlane, NotAControlNode> {
        match self {
            Self::ControlPlane(config) => Ok(config),
            Self::Worker(_) => Err(NotAControlNode),
        }
    }

    pub fn worker(&self) -> Result<&Worker, NotAWorker> {
        match self {
            Self::ControlPlane(_) => Err(NotAWorker),
            Self::Worker(config) => Ok(config),
        }
    }

    /// This configuration with the settings that `before` has from its cluster and DHCP server. No form contains them.
    pub fn after(mut self, before: &Self) -> Self {
        if let (Self::Worker(now), Self::Worker(before)) = (&mut self, before) {
            now.cluster.learned.clone_from(&before.cluster.learned);
            let (now, before) = (&mut now.node.interfaces[0].address, &before.node.interfaces[0].address);
            if now.is_leased() && before.is_leased() {
                now.clone_from(before);
            }
        }
        self
    }

    /// The other control-plane nodes in this node's configuration, in list order.
    pub fn peers(&self) -> impl Iterator<Item = &ControlNode> {
        self.control_nodes().iter().filter(|node| node.name != self.node().name)
    }

    pub fn fits(&self, image: &ImageFacts) -> Result<(), Finding> {
        if image.roles.contains(self.role()) {
            return Ok(());
        }
        let made = image.roles.iter().map(Role::title).collect::<Vec<_>>().join(" or ");
        Err(codes::ROLE_OTHER.finding(
            "the image",
            match self.role().has_data_disk() {
                true => format!("it makes {made}, and the data disk is that of {}", self.role().title()),
                false => format!("it makes {made}, and this VM is {}", self.role().title()),
            },
            match self.role().has_data_disk() {
                true => "Attach the disk to a VM of the right image, and give this VM its own data disk",
                false => "Deploy the VM again",
            },
        ))
    }

    /// The role is fixed once it is on a data disk.
    pub fn has_role_of(&self, asked: &Self) -> Result<(), Finding> {
        if asked.role() == self.role() {
            return Ok(());
        }
        let (asked, own) = (asked.role().title(), self.role().title());
        let (seen, action) = match self.role().has_data_disk() {
            true => (
                format!("it asks for {asked}, and the data disk is that of {own}"),
                "Correct it, or give this VM a blank data disk",
            ),
            false => (format!("it asks for {asked}, and this VM is {own}"), "Correct it, or reset this VM first"),
        };
        Err(codes::ROLE_OTHER.finding(table::ROLE, seen, action))
    }

    /// This node's address on the primary network. `None` before a DHCP server has leased one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.node().address()
    }

    /// A usual waiting time, times the timeout factor.
    pub fn timeout(&self, usual: Duration) -> Duration {
        usual * self.timeout_factor()
    }
}

impl ControlPlane {
    /// This node's address on the primary network.
    pub fn address(&self) -> Ipv4Addr {
        // Validation and loading both reject a control-plane node without a static address.
        self.node.address().expect("a control-plane node's address is static")
    }

    /// A usual waiting time, times the timeout factor.
    pub fn timeout(&self, usual: Duration) -> Duration {
        usual * self.timeout_factor
    }

    pub fn control_node(&self) -> Result<&ControlNode, NotAControlNode> {
        self.cluster.control_nodes.iter().find(|node| node.name == self.node.name).ok_or(NotAControlNode)
    }

    /// Whether this node creates the CAs.
    pub fn is_first(&self) -> bool {
        self.cluster.control_nodes.first().is_some_and(|node| node.name == self.node.name)
    }

    /// The other control-plane nodes, in list order.
    pub fn peers(&self) -> impl Iterator<Item = &ControlNode> {
        self.cluster.control_nodes.iter().filter(|node| node.name != self.node.name)
    }
}

impl Node {
    /// The address on the primary network. `None` before a DHCP server has leased one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.interfaces[0].address.known().map(|address| address.addr())
    }

    /// Whether a DHCP server leases the address on the primary network.
    pub fn is_leased(&self) -> bool {
        self.interfaces.first().is_some_and(|primary| primary.address.is_leased())
    }

    pub fn lease(&self) -> Option<&Lease> {
        match &self.interfaces[0].address {
            Address::Static(_) => None,
            Address::Dhcp { lease } => lease.as_ref(),
        }
    }

    /// Names or addresses of the time servers: those of the form, or otherwise those of the lease.
    pub fn time_servers(&self) -> Vec<String> {
        let leased = || self.lease().iter().flat_map(|lease| &lease.ntp_servers).map(ToString::to_string).collect();
        if self.ntp_servers.is_empty() { leased() } else { self.ntp_servers.clone() }
    }
}

/// The default of Kubernetes. Clusters that earlier images have formed use it.
fn default_node_prefix() -> u8 {
    24
}

impl Cluster {
    /// The address of the API for clients: the virtual IP, or the only node's own.
    pub fn api_address(&self) -> Ipv4Addr {
        self.virtual_address.unwrap_or(self.control_nodes[0].address)
    }

    pub fn network(&self) -> ClusterNetwork {
        let Self { pod_cidr, service_cidr, vxlan_port, .. } = *self;
        ClusterNetwork { pod_cidr, service_cidr, vxlan_port }
    }

    pub fn dns_address(&self) -> Ipv4Addr {
        self.network().dns_address()
    }
}
