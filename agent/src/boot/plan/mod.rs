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
use crate::host::disk::{DataDisk, beside_worker};
use crate::intake::config::{Config, ControlPlane, Worker};

/// Where the plan of this boot is kept for everybody to read.
pub const PATH: &str = "/run/kaas/plan.json";

/// What was seen before deciding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The running image.
    pub image: ImageFacts,
    /// Where it is kept what outlives a reboot.
    pub storage: NodeStorage,
    /// What is remembered there, or the default.
    pub progress: Progress,
    /// Whether the rendezvous has closed for good.
    pub rendezvous_closed: bool,
    /// The Kubernetes minor that the node is being upgraded to, if it is.
    pub upgrading: Option<String>,
    /// The disk of a worker's local volumes, if it has one.
    pub volumes: Option<Disk>,
}

/// Where a node keeps what outlives a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStorage {
    /// On its data disk, which outlives the VM.
    DataDisk(Disk),
    /// On the scratch partition, which ends with the VM.
    Scratch,
}

/// The data disk, when it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Proved blank, or its preparation was interrupted.
    Fresh(PathBuf),
    /// Prepared before. Nothing but the configuration may be missing.
    Ours(PathBuf),
}

impl Disk {
    /// The disk that an examination has found, if it may be used.
    pub fn of(found: &DataDisk) -> Option<Self> {
        match found {
            DataDisk::Blank { disk } | DataDisk::Interrupted { disk, .. } => Some(Self::Fresh(disk.path.clone())),
            DataDisk::Ours { disk, .. } => Some(Self::Ours(disk.path.clone())),
            _ => None,
        }
    }

    /// Its device.
    pub fn path(&self) -> &Path {
        match self {
            Self::Fresh(disk) | Self::Ours(disk) => disk,
        }
    }
}

/// Why the plan is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Becoming part of a cluster: with others of a new one, or as a worker of one that is there.
    Form,
    /// Going on as part of a cluster.
    Resume,
}

/// One step. Each looks first, then acts, and says whether it changed anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Partition and format the blank data disk.
    PrepareDataDisk { disk: PathBuf },
    /// Mount the data disk under the paths that are kept on it.
    MountDataDisk { disk: PathBuf },
    /// Lay what outlives a reboot on the scratch partition under the same paths.
    KeepOnScratch,
    /// Mount a worker's disk for local volumes; before that, prepare it unless that was done.
    LocalVolumes { disk: PathBuf },
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
    /// Join the cluster with token and pinned authority, unless that was done; learn what it says.
    Join,
    /// Put the Kubernetes minor in place that the cluster takes.
    ProgramsOfCluster,
    /// Meet the other control nodes; get or make the cluster's authorities.
    Meet,
    /// See to this node's etcd certificates.
    EtcdCertificates,
    /// Answer to load balancers, monitoring and administrators.
    Endpoint,
    /// Start etcd and wait for a quorum.
    Etcd,
    /// Lay the keys of Secrets for the API server; make the first one of a new cluster.
    Encryption,
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
    /// Record in the cluster's store that this node has joined.
    Complete,
    /// Mark the data disk as a cluster's, and erase the deployment secret unless other nodes may still need it here.
    Finish,
}

impl Step {
    /// Whether it makes certificates that are valid from now on or for so long, or starts what reads them.
    pub fn follows_the_clock(&self) -> bool {
        matches!(
            self,
            Self::Time
                | Self::EtcdCertificates
                | Self::Endpoint
                | Self::Credentials
                | Self::Manifests
                | Self::Kubelet
                | Self::ServiceNetwork
                | Self::PodNetwork
        )
    }

    /// The step in words, such as `starting etcd`.
    pub fn title(&self) -> &'static str {
        match self {
            Self::PrepareDataDisk { .. } => "preparing the data disk",
            Self::MountDataDisk { .. } => "mounting the data disk",
            Self::KeepOnScratch => "laying what is kept on the scratch partition",
            Self::LocalVolumes { .. } => "mounting the disk for local volumes",
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
            Self::Join => "joining the cluster",
            Self::ProgramsOfCluster => "choosing the cluster's Kubernetes version",
            Self::Meet => "meeting the other control nodes",
            Self::EtcdCertificates => "checking etcd's certificates",
            Self::Endpoint => "opening the status endpoint",
            Self::Etcd => "starting etcd",
            Self::Encryption => "laying the encryption keys of Secrets",
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
            Self::Complete => "recording that the node has joined",
            Self::Finish => "finishing",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())?;
        match self {
            Self::PrepareDataDisk { disk } | Self::MountDataDisk { disk } | Self::LocalVolumes { disk } => {
                write!(f, " {}", disk.display())
            }
            Self::Programs { version, .. } | Self::EndUpgrade { version } => write!(f, " {version}"),
            _ => Ok(()),
        }
    }
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub goal: Goal,
    /// The node it was decided for.
    pub node: String,
    /// The version of the image that decided it.
    pub image: String,
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

    /// The disk that the plan mounts for a worker's local volumes.
    pub fn volumes_disk(&self) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::LocalVolumes { disk } => Some(disk.as_path()),
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
    match (config, &observed.storage) {
        (Config::ControlPlane(config), NodeStorage::DataDisk(disk)) => control_node(config, disk, observed),
        (Config::Worker(config), NodeStorage::Scratch) => worker(config, observed),
        (Config::ControlPlane(_), NodeStorage::Scratch) => Err(codes::DISK_ABSENT.finding(
            "data disk",
            format!("this VM is to be {}, and has no data disk", config.role().title()),
            "Power off, add the data disk, power on",
        )),
        (Config::Worker(_), NodeStorage::DataDisk(disk)) => Err(beside_worker(disk.path())),
    }
}

/// Says that an image lacks a minor.
fn not_in_image(minor: &str, image: &ImageFacts) -> Finding {
    let inside: Vec<&str> = image.kubernetes.iter().map(|release| release.minor.as_str()).collect();
    codes::KUBERNETES_NOT_IN_IMAGE.finding(
        "the cluster's Kubernetes version",
        format!("the cluster runs Kubernetes {minor}, this image carries {}", inside.join(" and ")),
        "Use an image that carries the cluster's version",
    )
}

/// The plan of a worker: it joins, and runs what the cluster gives it.
fn worker(config: &Worker, observed: &Observed) -> Result<Plan, Finding> {
    if let Some(said) = &config.cluster.learned
        && observed.image.kubernetes(&said.kubernetes_minor).is_none()
    {
        return Err(not_in_image(&said.kubernetes_minor, &observed.image));
    }
    let joined = observed.progress.formed;
    let mut steps = vec![Step::Firewall, Step::Network, Step::KeepOnScratch];
    if !joined {
        steps.push(Step::SaveConfiguration);
    }
    steps.extend([Step::Scrub, Step::HostName, Step::Trust, Step::Surroundings, Step::Time, Step::Access, Step::Join]);
    // The cluster has said which addresses are its own.
    steps.extend([Step::Firewall, Step::Proxy, Step::ProgramsOfCluster]);
    // Whose the volumes are is certain once it has joined, and no pod runs before they are there.
    if let Some(disk) = &observed.volumes {
        steps.push(Step::LocalVolumes { disk: disk.path().to_owned() });
    }
    steps.extend([Step::Runtime, Step::Images]);
    steps.extend([Step::Kubelet, Step::ServiceNetwork, Step::PodNetwork, Step::NodeReady]);
    let goal = if joined { Goal::Resume } else { Goal::Form };
    Ok(Plan { goal, node: config.node.name.clone(), image: observed.image.version.clone(), steps })
}

/// The plan of a control node: etcd, the control plane, the node.
fn control_node(config: &ControlPlane, disk: &Disk, observed: &Observed) -> Result<Plan, Finding> {
    let minor = &config.cluster.kubernetes_minor;
    let Some(kubernetes) = observed.image.kubernetes(minor) else {
        return Err(not_in_image(minor, &observed.image));
    };
    let formed = observed.progress.formed;
    // The firewall comes before the network, and the network before anything is written: a node without an adapter,
    // or whose address is somebody else's, leaves a blank disk blank.
    let mut steps = vec![Step::Firewall, Step::Network];
    if let Disk::Fresh(disk) = disk {
        steps.push(Step::PrepareDataDisk { disk: disk.clone() });
    }
    steps.push(Step::MountDataDisk { disk: disk.path().to_owned() });
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
    steps.extend([Step::EtcdCertificates, Step::Endpoint, Step::Etcd, Step::Encryption, Step::Credentials]);
    steps.push(Step::Manifests);
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
