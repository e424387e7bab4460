//! What a container engine tells a node that it runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Where a container engine tells the node what it gave it. Its presence makes
/// the node a container.
pub const CONTAINER_FILE: &str = "/run/host/kaas/platform.json";

/// What a container engine tells the node, as JSON in [`CONTAINER_FILE`].
/// Paths are as the node sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The ISO 9660 image with the OVF environment; none for an empty drive.
    pub cdrom: Option<PathBuf>,
    /// Block devices that stand for the VM's disks besides the system disk.
    pub data_disks: Vec<PathBuf>,
    /// Stands for the VM's BIOS UUID: the same at each start of the same node.
    pub bios_uuid: Uuid,
    /// The cgroup below which the kubelet makes its own, such as
    /// `/kaas-lab/node1`; none where the node has a hierarchy to itself.
    #[serde(default)]
    pub cgroup_root: Option<String>,
    /// Whether the kubelet refuses cgroup v1, as it does unless told otherwise.
    /// `false` on lab hosts that have only cgroup v1.
    #[serde(default = "yes")]
    pub fail_cgroup_v1: bool,
    /// Whether containers must keep the agent's OOM score, because the host
    /// withholds `CAP_SYS_RESOURCE`.
    #[serde(default)]
    pub restrict_oom_score_adj: bool,
    /// Where the node writes the fingerprints of its cluster's authority and of its endpoint, for the engine to read
    /// ([`crate::deployer::Fingerprints`]): what stands in guestinfo elsewhere. Engines of before asked for none.
    #[serde(default)]
    pub fingerprints: Option<PathBuf>,
    /// Where the node writes what it says of itself ([`crate::statement::Statement`]), as above.
    #[serde(default)]
    pub statement: Option<PathBuf>,
}

fn yes() -> bool {
    true
}
