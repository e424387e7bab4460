//! The plan of a boot, decided before its first step runs.
//!
//! A plan is a straight list of steps. It is saved before the first one runs. After a power cut the node decides again
//! from the state of its disks, and running the plan again completes interrupted steps. Deciding reads and writes
//! nothing.

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

/// File with the plan of this boot. All users can read it.
pub const PATH: &str = "/run/kaas/plan.json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    pub image: ImageFacts,
    pub storage: NodeStorage,
    pub progress: Progress,
    pub rendezvous_closed: bool,
    /// The Kubernetes minor version that an unfinished upgrade leads to.
    pub upgrading: Option<String>,
    pub volumes: Option<Disk>,
}

/// Storage that survives a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStorage {
    /// The data disk. It survives the VM.
    DataDisk(Disk),
    /// The scratch partition. It is lost with the VM.
    Scratch,
}

/// A usable data disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// The disk is blank, or its preparation was interrupted.
    Fresh(PathBuf),
    /// The disk was prepared before. At most its configuration is missing.
    Ours(PathBuf),
}

impl Disk {
    /// The disk of an examination, if it is usable.
    pub fn of(found: &DataDisk) -> Option<Self> {
        match found {
            DataDisk::Blank { disk } | DataDisk::Interrupted { disk, .. } => Some(Self::Fresh(disk.path.clone())),
            DataDisk::Ours { disk, .. } => Some(Self::Ours(disk.path.clone())),
            _ => None,
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Fresh(disk) | Self::Ours(disk) => disk,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The node becomes part of a cluster: with others of a new one, or as a worker of an existing one.
    Form,
    /// The node continues as part of its cluster.
    Resume,
}

/// One step. It looks first, then acts, and returns whether it changed anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "step")]
pub enum Step {
    /// Partition and format the blank data disk.
    PrepareDataDisk { disk: PathBuf },
    /// Mount the data disk and bind its directories to their paths.
    MountDataDisk { disk: PathBuf },
    /// Bind the directories of persistent state on the scratch partition to the same paths.
    KeepOnScratch,
    /// Mount a worker's disk for local volumes. If it is blank, prepare it before.
    LocalVolumes { disk: PathBuf },
    /// Save the configuration, so that the OVF environment is not needed again.
    SaveConfiguration,
    /// Remove the secrets from guestinfo, where any local user can read them.
    Scrub,
    /// Set the host name.
    HostName,
    /// Trust the additional CAs.
    Trust,
    /// Configure the proxy.
    Proxy,
    /// Admit the traffic that the node's role requires, and nothing else.
    Firewall,
    /// Check that no other machine has the address, then configure the network.
    Network,
    /// Check whether gateway, DNS servers, time servers and the other nodes answer.
    Surroundings,
    /// Configure the time servers.
    Time,
    /// Admit the configured users by SSH and on the console.
    Access,
    /// Select the programs of the cluster's Kubernetes minor version.
    Programs {
        /// The minor version, such as `1.36`.
        minor: String,
        /// The full version, such as `1.36.3`.
        version: String,
    },
    /// Start the container runtime.
    Runtime,
    /// Load the container images that the appliance carries.
    Images,
    /// Join the cluster with token and pinned CA, unless the worker has joined; learn the cluster's settings.
    Join,
    /// Select the programs of the Kubernetes minor version that the cluster runs.
    ProgramsOfCluster,
    /// Meet the other control-plane nodes; get or create the cluster's CAs.
    Meet,
    /// Check and renew this node's etcd certificates.
    EtcdCertificates,
    /// Open the status endpoint for load balancers, monitoring and administrators.
    Endpoint,
    /// Start etcd and wait for a quorum.
    Etcd,
    /// Write the encryption keys of Secrets for the API server; create the first one of a new cluster.
    Encryption,
    /// Check and renew this node's Kubernetes certificates and kubeconfigs.
    Credentials,
    /// Write the control plane's manifests from this image.
    Manifests,
    /// Compete for the virtual IP while this node's API is healthy.
    VirtualAddress,
    /// Start the kubelet, which starts the control plane.
    Kubelet,
    /// Wait until the API on this node is ready.
    Api,
    /// Apply the access rights of the host services.
    Rights,
    /// Start kube-proxy.
    ServiceNetwork,
    /// Start the pod network.
    PodNetwork,
    /// Wait until Kubernetes reports the node as ready.
    NodeReady,
    /// End the upgrade of Kubernetes after API server and kubelet run the new version.
    EndUpgrade {
        /// The full version, such as `1.36.3`.
        version: String,
    },
    /// Record the cluster's configuration in the cluster.
    Register,
    /// Apply cluster DNS.
    ClusterDns,
    /// Record in etcd that this node has joined.
    Complete,
    /// Mark the data disk as part of a cluster; erase the deployment secret unless other nodes may still need it.
    Finish,
}

impl Step {
    /// Whether the step creates certificates, whose validity begins now, or starts programs that read them.
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
            Self::Meet => "meeting the other control-plane nodes",
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

/// The steps of a boot, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub goal: Goal,
    pub node: String,
    /// The version of the image that decided the plan.
    pub image: String,
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether the plan ends an upgrade to another Kubernetes minor version.
    pub fn upgrades(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::EndUpgrade { .. }))
    }

    pub fn data_disk(&self) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::MountDataDisk { disk } => Some(disk.as_path()),
            _ => None,
        })
    }

    pub fn volumes_disk(&self) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::LocalVolumes { disk } => Some(disk.as_path()),
            _ => None,
        })
    }
}

/// Decides the steps of this boot. A finding, if this image cannot run the node.
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

fn not_in_image(minor: &str, image: &ImageFacts) -> Finding {
    let inside: Vec<&str> = image.kubernetes.iter().map(|release| release.minor.as_str()).collect();
    codes::KUBERNETES_NOT_IN_IMAGE.finding(
        "the cluster's Kubernetes version",
        format!("the cluster runs Kubernetes {minor}, this image carries {}", inside.join(" and ")),
        "Use an image that carries the cluster's version",
    )
}

/// The plan of a worker: it joins its cluster and runs its pods.
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
    // The addresses of the cluster are known now.
    steps.extend([Step::Firewall, Step::Proxy, Step::ProgramsOfCluster]);
    // The owner of the volumes is certain after the join, and no pod may run before they are mounted.
    if let Some(disk) = &observed.volumes {
        steps.push(Step::LocalVolumes { disk: disk.path().to_owned() });
    }
    steps.extend([Step::Runtime, Step::Images]);
    steps.extend([Step::Kubelet, Step::ServiceNetwork, Step::PodNetwork, Step::NodeReady]);
    let goal = if joined { Goal::Resume } else { Goal::Form };
    Ok(Plan { goal, node: config.node.name.clone(), image: observed.image.version.clone(), steps })
}

/// The plan of a control-plane node: etcd, the control plane, the node.
fn control_node(config: &ControlPlane, disk: &Disk, observed: &Observed) -> Result<Plan, Finding> {
    let minor = &config.cluster.kubernetes_minor;
    let Some(kubernetes) = observed.image.kubernetes(minor) else {
        return Err(not_in_image(minor, &observed.image));
    };
    let formed = observed.progress.formed;
    // The firewall comes before the network, and the network before the first write. A node without an adapter, or with
    // an address that another machine has, therefore leaves a blank disk blank.
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
    // The endpoint also reports on a node that waits for the etcd of its peers.
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
        // Each node applies the same objects, so that the cluster is complete even if the first node is lost here.
        steps.extend([Step::Register, Step::ClusterDns, Step::Complete, Step::Finish]);
    }
    let goal = if formed { Goal::Resume } else { Goal::Form };
    Ok(Plan { goal, node: config.node.name.clone(), image: observed.image.version.clone(), steps })
}
