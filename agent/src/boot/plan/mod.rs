//! What is to be done on this boot, decided before any of it is done.
//!
//! A plan is a straight list of steps. It is saved before the first one runs;
//! after a power cut it is decided again from what is on the disks, and running
//! it again completes what was cut off. Deciding reads and writes nothing.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use contract::codes;
use contract::finding::Finding;
use contract::image::ImageFacts;
use serde::{Deserialize, Serialize};

use crate::cluster::records::Progress;
use crate::intake::config::{Config, ControlPlane};

/// Where the plan of this boot is kept for everybody to read.
pub const PATH: &str = "/run/kaas/plan.json";

/// What was seen before deciding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The running image.
    pub image: ImageFacts,
    /// The data disk.
    pub disk: Disk,
    /// What the data disk remembers, or the default.
    pub progress: Progress,
    /// Whether the rendezvous has closed for good.
    pub rendezvous_closed: bool,
    /// The Kubernetes minor that the node is being upgraded to, if it is.
    pub upgrading: Option<String>,
}

/// The data disk, when it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Proved blank, or its preparation was interrupted.
    Fresh(PathBuf),
    /// Prepared before. Nothing but the configuration may be missing.
    Ours(PathBuf),
}

/// Why the plan is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Becoming part of a new cluster.
    Form,
    /// Going on as part of a cluster.
    Resume,
}

/// One step. Each looks first, then acts, and says whether it changed anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Partition and format the blank data disk.
    PrepareDataDisk {
        /// The disk.
        disk: PathBuf,
    },
    /// Mount the data disk under the paths that are kept on it.
    MountDataDisk {
        /// The disk.
        disk: PathBuf,
    },
    /// Save the configuration, so that the OVF environment is not needed again.
    SaveConfiguration,
    /// Remove the secrets from guestinfo, where any local user can read them.
    Scrub,
    /// Set the host name.
    HostName,
    /// Trust the further certificate authorities.
    Trust,
    /// Set the proxy.
    Proxy,
    /// Let in what the node is there for, and nothing else.
    Firewall,
    /// Make sure that nobody else has the address, then configure the network.
    Network,
    /// Ask whether gateway, DNS servers, time servers and the other nodes are there.
    Surroundings,
    /// Name the time servers.
    Time,
    /// Let in whom the configuration names, by SSH and on the console.
    Access,
    /// Put the cluster's Kubernetes minor in place.
    Programs {
        /// The minor, such as `1.36`.
        minor: String,
        /// The full version, such as `1.36.3`.
        version: String,
    },
    /// Start the container runtime.
    Runtime,
    /// Load the container images that the appliance carries.
    Images,
    /// Meet the other control nodes; get or make the cluster's authorities.
    Meet,
    /// See to this node's etcd certificates.
    EtcdCertificates,
    /// Answer to load balancers, monitoring and administrators.
    Endpoint,
    /// Start etcd and wait for a quorum.
    Etcd,
    /// See to this node's Kubernetes certificates and kubeconfigs.
    Credentials,
    /// Make the control plane's manifests from this image.
    Manifests,
    /// Compete for the virtual IP, as soon as the API here is healthy.
    VirtualAddress,
    /// Start the kubelet, which starts the control plane.
    Kubelet,
    /// Wait until the API on this node serves.
    Api,
    /// Apply the rights of the host services.
    Rights,
    /// Start kube-proxy.
    ServiceNetwork,
    /// Start the pod network.
    PodNetwork,
    /// Wait until Kubernetes calls the node ready.
    NodeReady,
    /// End the upgrade of Kubernetes once API server and kubelet are of the new version.
    EndUpgrade {
        /// The full version, such as `1.36.3`.
        version: String,
    },
    /// Record the cluster's configuration in the cluster.
    Register,
    /// Apply cluster DNS.
    ClusterDns,
    /// Tell the first node, or wait until all have told.
    Complete,
    /// Erase the deployment secret and mark the data disk as a cluster's.
    Finish,
}

impl Step {
    /// The step in words, such as `starting etcd`.
    pub fn title(&self) -> &'static str {
        match self {
            Self::PrepareDataDisk { .. } => "preparing the data disk",
            Self::MountDataDisk { .. } => "mounting the data disk",
            Self::SaveConfiguration => "saving the configuration",
            Self::Scrub => "removing secrets from guestinfo",
            Self::HostName => "setting the host name",
            Self::Trust => "trusting certificate authorities",
            Self::Proxy => "setting the proxy",
            Self::Firewall => "closing the firewall",
            Self::Network => "configuring the network",
            Self::Surroundings => "asking for the servers of the network",
            Self::Time => "setting the time servers",
            Self::Access => "setting up access",
            Self::Programs { .. } => "choosing the Kubernetes version",
            Self::Runtime => "starting the container runtime",
            Self::Images => "loading container images",
            Self::Meet => "meeting the other control nodes",
            Self::EtcdCertificates => "checking etcd's certificates",
            Self::Endpoint => "opening the status endpoint",
            Self::Etcd => "starting etcd",
            Self::Credentials => "making Kubernetes certificates",
            Self::Manifests => "making the control plane's manifests",
            Self::VirtualAddress => "setting up the virtual IP",
            Self::Kubelet => "starting the kubelet",
            Self::Api => "starting the Kubernetes API",
            Self::Rights => "applying access rights",
            Self::ServiceNetwork => "starting the service network",
            Self::PodNetwork => "starting the pod network",
            Self::NodeReady => "waiting for the node to be ready",
            Self::EndUpgrade { .. } => "upgrading Kubernetes to",
            Self::Register => "recording the cluster's configuration",
            Self::ClusterDns => "applying cluster DNS",
            Self::Complete => "completing the cluster",
            Self::Finish => "finishing",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())?;
        match self {
            Self::PrepareDataDisk { disk } | Self::MountDataDisk { disk } => write!(f, " {}", disk.display()),
            Self::Programs { version, .. } | Self::EndUpgrade { version } => write!(f, " {version}"),
            _ => Ok(()),
        }
    }
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What the steps lead to.
    pub goal: Goal,
    /// The node it was decided for.
    pub node: String,
    /// The version of the image that decided it.
    pub image: String,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether the node is being upgraded to another minor of Kubernetes.
    pub fn upgrades(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::EndUpgrade { .. }))
    }

    /// The data disk that the plan uses.
    pub fn data_disk(&self) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::MountDataDisk { disk } => Some(disk.as_path()),
            _ => None,
        })
    }
}

/// Decides what is to be done on this boot.
///
/// # Errors
/// A finding, when this image cannot serve the cluster.
pub fn decide(config: &Config, observed: &Observed) -> Result<Plan, Finding> {
    config.fits(&observed.image)?;
    match config {
        Config::ControlPlane(config) => control_node(config, observed),
    }
}

/// The plan of a control node: etcd, the control plane, the node.
fn control_node(config: &ControlPlane, observed: &Observed) -> Result<Plan, Finding> {
    let minor = &config.cluster.kubernetes_minor;
    let Some(kubernetes) = observed.image.kubernetes(minor) else {
        let inside: Vec<&str> = observed.image.kubernetes.iter().map(|release| release.minor.as_str()).collect();
        return Err(codes::KUBERNETES_NOT_IN_IMAGE.finding(
            "the cluster's Kubernetes version",
            format!("the cluster runs Kubernetes {minor}, this image carries {}", inside.join(" and ")),
            "Use an image that carries the cluster's version",
        ));
    };
    let formed = observed.progress.formed;
    // The firewall comes before the network, and the network before anything is written: a node without an adapter,
    // or whose address is somebody else's, leaves a blank disk blank.
    let mut steps = vec![Step::Firewall, Step::Network];
    let disk = match &observed.disk {
        Disk::Fresh(disk) => {
            steps.push(Step::PrepareDataDisk { disk: disk.clone() });
            disk
        }
        Disk::Ours(disk) => disk,
    };
    steps.push(Step::MountDataDisk { disk: disk.clone() });
    if !formed {
        steps.push(Step::SaveConfiguration);
    }
    steps.extend([Step::Scrub, Step::HostName, Step::Trust, Step::Proxy, Step::Surroundings, Step::Time, Step::Access]);
    steps.push(Step::Programs { minor: minor.clone(), version: kubernetes.version.clone() });
    steps.extend([Step::Runtime, Step::Images]);
    if !observed.rendezvous_closed {
        steps.push(Step::Meet);
    }
    // The endpoint tells of a node that waits for its peers' etcd, too.
    steps.extend([Step::EtcdCertificates, Step::Endpoint, Step::Etcd, Step::Credentials, Step::Manifests]);
    if config.cluster.virtual_address.is_some() {
        steps.push(Step::VirtualAddress);
    }
    steps.extend([Step::Kubelet, Step::Api]);
    if !formed {
        steps.push(Step::Rights);
    }
    steps.extend([Step::ServiceNetwork, Step::PodNetwork, Step::NodeReady]);
    if formed && observed.upgrading.as_ref() == Some(minor) {
        steps.push(Step::EndUpgrade { version: kubernetes.version.clone() });
    }
    if !formed {
        // Each node applies the same objects: the cluster is whole even if
        // the first one is cut off for good here.
        steps.extend([Step::Register, Step::ClusterDns, Step::Complete, Step::Finish]);
    }
    let goal = if formed { Goal::Resume } else { Goal::Form };
    Ok(Plan { goal, node: config.node.name.clone(), image: observed.image.version.clone(), steps })
}
