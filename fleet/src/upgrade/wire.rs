//! What a node's endpoint says and takes about image swaps, as JSON. The node's
//! side of it is the agent's; its golden files are read by the tests here.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An image by version and content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Version, such as `0.2.0`.
    pub version: String,
    /// Build identifier: 32 hexadecimal digits, derived from the image's content.
    pub build: String,
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, short(&self.build))
    }
}

/// The beginning of a build identifier: enough to tell builds apart, short enough for names.
pub fn short(build: &str) -> &str {
    build.get(..7).unwrap_or(build)
}

/// The image that a node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Name of the appliance.
    pub name: String,
    /// Version.
    pub version: String,
    /// Build identifier.
    pub build: String,
    /// Fingerprint of the publisher's key; none for a development image.
    pub publisher: Option<String>,
}

/// Kubernetes on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// What runs.
    pub version: String,
    /// What the image carries.
    pub carried: Vec<String>,
    /// The upgrade that is under way or was given up, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<KubernetesUpgrade>,
}

/// An upgrade of Kubernetes on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesUpgrade {
    /// The minor that the node is taken to.
    pub to: String,
    /// Why it was given up, if it was.
    pub error: Option<String>,
}

/// Body of `POST /v1/kubernetes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesRequest {
    /// The minor.
    pub to: String,
    /// How long pods may take to move away.
    pub drain_seconds: u64,
    /// Whether it is only to be judged.
    pub check: bool,
}

/// A member of etcd, seen from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Name.
    pub name: String,
    /// Identifier, hexadecimal.
    pub id: String,
    /// Whether it has no vote yet.
    pub learner: bool,
    /// Whether it answers and sees a leader.
    pub healthy: bool,
}

/// etcd on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd {
    /// Version.
    pub version: String,
    /// This node's member, hexadecimal.
    pub member: String,
    /// Whether this node's member leads.
    pub leader: bool,
    /// Index of the last entry that was applied.
    pub applied: u64,
    /// All members.
    pub members: Vec<Member>,
}

/// The virtual address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Whether this node holds it.
    pub held: bool,
}

/// A boot that was found good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Good {
    /// Since when: seconds of Unix time.
    pub since: u64,
}

/// How far a swap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Its conditions are being judged.
    Judging,
    /// The virtual address is being handed over.
    Yielding,
    /// etcd's leader is being moved.
    MovingLeader,
    /// Pods are being moved away.
    Draining,
    /// The VM may be shut down.
    Prepared,
    /// It was given up.
    Failed,
    /// Another VM has the disk, and the one before may still have it back.
    Taken,
}

/// The VM and image that had the disk before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// BIOS UUID.
    pub vm: Option<Uuid>,
    /// Version of its image.
    pub version: String,
    /// Build identifier of its image.
    pub build: String,
}

/// A swap that is under way or not committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// Who asked for it.
    pub id: Uuid,
    /// How far it is.
    pub stage: Stage,
    /// Why it failed.
    pub error: Option<String>,
    /// Who may have the disk back.
    pub from: Use,
    /// Which image may take it; none for any that suits.
    pub to: Option<Build>,
}

/// `GET /v1/node`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Name of the node.
    pub node: String,
    /// What it runs.
    pub image: Image,
    /// Fingerprint of the publisher's key that is pinned there; none if none is.
    #[serde(default)]
    pub pinned: Option<String>,
    /// Identity of its data disk.
    pub disk: Option<Uuid>,
    /// BIOS UUID of the VM that holds the disk.
    pub holder: Option<Uuid>,
    /// How many VMs have held the disk.
    pub generation: u64,
    /// Kubernetes.
    pub kubernetes: Kubernetes,
    /// etcd, when it answers.
    pub etcd: Option<Etcd>,
    /// The virtual address, if the cluster has one.
    pub virtual_address: Option<VirtualAddress>,
    /// Whether the node does its part of the cluster.
    pub ready: bool,
    /// Whether this boot was found good.
    pub good: Option<Good>,
    /// The swap.
    pub swap: Option<Swap>,
}

/// Body of `POST /v1/swap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapRequest {
    /// Who asks: asking again with the same identifier begins nothing new.
    pub id: Uuid,
    /// The image that is to take the disk.
    pub to: Build,
    /// How long pods may take to move away.
    pub drain_seconds: u64,
    /// Whether an older image is meant.
    pub downgrade: bool,
    /// Fingerprint of the key that has signed the image, if it is to be pinned in place of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

/// A node's refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Stable code.
    pub code: String,
    /// Why, and what to do.
    pub reason: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}
