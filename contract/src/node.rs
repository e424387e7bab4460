//! A node's facts: `GET /v1/node`.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bios_uuid::BiosUuid;
use crate::kubernetes_upgrade;
use crate::swap::{EvacuationState, Image, Losses, SwapState};

/// A node, as `GET /v1/node` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub node: String,
    /// The image that it runs.
    pub image: RunningImage,
    /// Fingerprint of the publisher's key that is pinned on its data disk. `None` if none is pinned.
    #[serde(default)]
    pub pinned: Option<String>,
    /// The GPT disk GUID of its data disk.
    pub disk: Uuid,
    /// BIOS UUID of the VM that holds the data disk. `None` if the hypervisor gives none.
    pub holder: Option<BiosUuid>,
    /// How many VMs have held the data disk.
    pub generation: u64,
    /// Its Kubernetes.
    pub kubernetes: Kubernetes,
    /// Its etcd member. `None` while it does not answer, or cannot list the members.
    pub etcd: Option<Etcd>,
    /// The cluster's virtual IP, if it has one.
    pub virtual_address: Option<VirtualAddress>,
    /// Whether its API serves and Kubernetes calls it ready.
    pub ready: bool,
    /// Since when this boot counts as healthy. `None` until then.
    #[serde(rename = "good")]
    pub healthy: Option<HealthySince>,
    /// The swap that is under way, or not committed yet.
    pub swap: Option<SwapState>,
    /// The evacuation requested since power-on: under way, done, or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evacuation: Option<EvacuationState>,
    /// The facts about its pods that an upgrade needs. `None` from early images, which do not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Pods>,
}

impl Node {
    /// Whether the node may run in the VM that vCenter shows with this BIOS UUID.
    pub fn runs_in(&self, vm: Uuid) -> bool {
        self.holder == Some(vm.into())
    }
}

/// The pods of a node, as its API server has them. `None` means unknown now, and must not count as good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pods {
    /// Whether the node is cordoned, so that no new pods come to it.
    pub cordoned: Option<bool>,
    /// The pods and data that a drain would delete for good.
    pub losses: Option<Losses>,
}

/// The image that a VM runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningImage {
    /// Name of the appliance.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its build identifier.
    pub build: String,
    /// Fingerprint of the publisher's key. `None` for a development image.
    pub publisher: Option<String>,
}

impl RunningImage {
    /// The version and build identifier.
    pub fn build(&self) -> Image {
        Image { version: self.version.clone(), build: self.build.clone() }
    }
}

/// Kubernetes on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kubernetes {
    /// The full version, in this image, of the cluster's minor version.
    pub version: String,
    /// All versions in this image.
    #[serde(rename = "carried")]
    pub available: Vec<String>,
    /// The upgrade that is under way or was given up, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<kubernetes_upgrade::UpgradeState>,
}

/// The etcd member of a node, and its view of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Etcd {
    /// Version of etcd.
    pub version: String,
    /// The member's identity in hexadecimal.
    pub member: String,
    /// Whether it is the leader.
    pub leader: bool,
    /// The index that it has applied.
    pub applied: u64,
    /// All members, as a majority agrees on them. Never empty.
    pub members: Vec<Member>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its name; empty until it has started.
    pub name: String,
    /// Its identity in hexadecimal.
    pub id: String,
    /// Whether it is a learner, without a vote.
    pub learner: bool,
    /// Whether it sees a leader and answers a read that needs a quorum.
    pub healthy: bool,
}

/// The virtual IP as a node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VirtualAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Whether this node holds it now.
    pub held: bool,
}

/// The time since when a boot counts as healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthySince {
    /// Seconds since 1970.
    pub since: u64,
}
