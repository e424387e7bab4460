//! `Machine`: one node of a cluster. The controller's own: people look at it, and delete it to have a worker made anew. It is a
//! node and not a VM: a control node has another VM after each swap, and two while one lasts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::deployment::DeletingVm;
use super::node_pool::Taint;
use super::reference::Reference;
use super::rules::{at, fixed, fixed_if_given, rule};
use super::shapes;

/// One node.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Machine",
    doc = "One node of a TenantCluster, whichever VM it runs in. The controller makes it. The first VM that is made for it has the \
           Machine's UID as its BIOS UUID.",
    derive = "PartialEq",
    status = "MachineStatus",
    namespaced,
    category = "kaas",
    shortname = "ma",
    validation = (
        "self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && \
         self.metadata.name.startsWith(self.spec.clusterRef.name + '-')",
        "the name is no DNS label of at most 63 characters that begins with the cluster's name and a dash"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Kubernetes", type_ = "string", json_path = ".spec.kubernetes", priority = 1),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image.name", priority = 1),
    printcolumn(name = "VM", type_ = "string", json_path = ".status.vms[?(@.state==\"Current\")].uuid", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = machine_rules()))]
pub struct MachineSpec {
    /// The cluster, in the same namespace. It stays.
    pub cluster_ref: Reference,
    /// What the node is in the cluster. It stays.
    pub role: MachineRole,
    /// The NodePool of a worker. It stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
    /// The zone of the Provider that the VM is in. It stays.
    #[schemars(schema_with = "shapes::label", example = &"a")]
    pub zone: String,
    /// The network of the Provider that the VM is on. It stays.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub network: String,
    /// The image. A worker keeps it for life; a control node is swapped to another one.
    pub image: PinnedImage,
    /// The minor of Kubernetes that it is to run. A worker keeps it for life.
    #[schemars(schema_with = "shapes::minor", example = &"1.36")]
    pub kubernetes: String,
    /// Virtual processors. A worker keeps them for life.
    #[schemars(range(min = 1, max = 128))]
    pub processors: u32,
    /// Memory in MiB. A worker keeps it for life.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 1024, max = 4194304))]
    pub memory_mib: u32,
    /// Data disk in GiB; none without one. It stays.
    #[serde(default, rename = "dataDiskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 63488))]
    pub data_disk_gib: Option<u32>,
    /// Labels of the node when it joins. They stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::labels")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the node when it joins. They stay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints: Vec<Taint>,
    /// What becomes of the VM when the Machine goes: it is destroyed, or, of a worker, kept (`KeepVM`): off, on no network, with its disks, by another name,
    /// and nobody's. It can be changed until the VM is about to go.
    #[serde(default)]
    pub removal: Removal,
    /// What may be lost with the node when it goes: without that it stays until a person has seen to it.
    #[serde(default)]
    pub drain: Discards,
}

fn machine_rules() -> Vec<Value> {
    let of_worker = |field: &str| {
        let text = format!("self.role != 'Worker' || self.{field} == oldSelf.{field}");
        at(field, text, &format!("{field} of a worker cannot change: another worker replaces it"))
    };
    vec![
        rule("(self.role == 'Worker') == has(self.poolRef)", "a worker has poolRef, and no control node has"),
        fixed("clusterRef", "the cluster of a Machine stays"),
        fixed("role", "the role of a Machine stays"),
        fixed_if_given("poolRef", "the pool of a Machine stays"),
        fixed("zone", "the zone of a Machine stays"),
        fixed("network", "the network of a Machine stays"),
        fixed_if_given("dataDiskGiB", "the data disk of a Machine stays"),
        fixed_if_given("labels", "the labels of a Machine cannot change"),
        fixed_if_given("taints", "the taints of a Machine cannot change"),
        of_worker("image"),
        of_worker("kubernetes"),
        of_worker("processors"),
        of_worker("memoryMiB"),
        // Whoever asks for it would find the VM gone: a control node's data disk moves to the next one, and goes with the cluster.
        at(
            "removal",
            "self.removal == 'DestroyVM' || self.role == 'Worker'",
            "only the VM of a worker is kept: clone that of a control node in the vCenter before its cluster goes",
        ),
    ]
}

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MachineRole {
    /// A control node.
    ControlPlane,
    /// A worker.
    Worker,
}

/// An image by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// The NodeImage, for people.
    #[schemars(schema_with = "shapes::name", example = &"kaas-tenant-0.2.0")]
    pub name: String,
    /// Its digest.
    #[schemars(schema_with = "shapes::digest")]
    pub digest: String,
}

/// What becomes of a VM when its Machine goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Removal {
    /// It is destroyed. Disks that are not the appliance's are detached before.
    #[default]
    #[serde(rename = "DestroyVM")]
    DestroyVm,
    /// It is kept: off, with its network adapters disconnected and all its disks, by another name. From then on nobody here counts or touches
    /// it. One that was not made to the end is destroyed.
    #[serde(rename = "KeepVM")]
    KeepVm,
}

/// What may be lost with a node that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Discards {
    /// Volumes that are kept on it and nowhere else.
    #[serde(default)]
    pub delete_local_volumes: bool,
    /// Pods without a controller, which nobody starts elsewhere.
    #[serde(default)]
    pub delete_unmanaged_pods: bool,
}

/// What is known of a Machine, and what was begun for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The generation of the spec that this was judged by.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// How the node is, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// Its VM, from when it was made whole until it is proved gone; of a control node that is swapped the one that it runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uuid"])
    )]
    pub vms: Vec<MachineVm>,
    /// The minor of Kubernetes that it runs, where that is a newer one than `spec.kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub kubernetes: Option<String>,
    /// Its address; none until one was taken, or its DHCP server has leased one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4")]
    pub address: Option<String>,
    /// The name of its Node object, once it has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub node: Option<String>,
    /// Since when a worker that has joined does not do its part, look after look: its node is not Ready, or its VM does not run. Its
    /// pool's `repair` goes by that. What nobody can tell is no illness, and ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// What was begun for it: kept before anything follows from it.
    #[serde(default)]
    pub journal: Journal,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its VM is to be made, or is made and was never powered on.
    #[default]
    Provisioning,
    /// Its VM was powered on, and is to join.
    Joining,
    /// It has joined.
    Running,
    /// It had joined, and is given a new token to join again with.
    Rejoining,
    /// It did not join. What there is of it stays until a person goes on: its console says why.
    Failed,
    /// It is drained, and goes.
    Deleting,
}

/// A VM of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineVm {
    /// Its BIOS UUID: also in the node's `spec.providerID`, after `vsphere://`.
    #[schemars(schema_with = "shapes::uuid")]
    pub uuid: String,
    /// Its name in the inventory.
    #[schemars(length(min = 1, max = 80))]
    pub name: String,
    /// What it is to the node.
    pub state: VmState,
}

/// What a VM is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VmState {
    /// The node runs in it, or is to.
    Current,
}

/// What was begun for a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Since when it is in its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Its address from a pool, as it was taken for it; none where it asks for one by DHCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4")]
    pub address: Option<String>,
    /// The public half of its join token, noted before that is made and until it is removed. The secret half is nowhere here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9]{6}$"), length(min = 6, max = 6))]
    pub token: Option<String>,
    /// Until when that token is good, or the last one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// How many times longer than usual it may take for anything, as it was told when its VM was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub timeout_factor: Option<u32>,
    /// How long it took to join, in seconds from its power-on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub joined_seconds: Option<u64>,
    /// The code of why it failed, or leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word", example = &"workers.not-joined")]
    pub code: Option<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::sentence")]
    pub reason: Option<String>,
    /// Since when its node takes no new pods and leaves the addresses of Services to others, for it to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordoned: Option<Time>,
    /// Since when other nodes answer for the addresses of Services in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<Time>,
    /// When its node had said something last, before its VM was powered on again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub last_heartbeat: Option<String>,
    /// Whether its VM was on before it was powered off for a new token, and was not powered on since.
    #[serde(default)]
    pub was_powered_on: bool,
    /// The key with which its VM asks to join with its last token, as it said before its kubelet was heard, or when somebody else was seen in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub key: Option<String>,
    /// Whether somebody else was seen to have joined in its place, and it was given no other token since.
    #[serde(default)]
    pub impersonated: bool,
    /// Its VM, noted before that is taken apart, removed or given up: another one of the same BIOS UUID is a copy.
    #[serde(default, rename = "deletingVM", skip_serializing_if = "Option::is_none")]
    pub deleting_vm: Option<DeletingVm>,
    /// UUIDs of the disks that its VM held then, but for volumes of storage drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::uuids")]
    pub deleting_disks: Vec<String>,
    /// The file that the settings of its VM were in when the VM was seen last. While the file exists, a VM that is not shown may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub settings: Option<String>,
    /// The vCenter's identifier of the datastore of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub datastore: Option<String>,
    /// What its VM is stamped with in place of the Machine's UID: the UID of the Machine that it was made for, which is not there any more.
    /// It was adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub stamp: Option<String>,
}

reasons! {
    /// Why a condition of a Machine is as it is.
    MachineReason:
    /// Its VM is there and on.
    VMReady {
        /// It is.
        VmRuns as Running = True,
        /// It is being made.
        VmProvisioning as Provisioning = False,
        /// It is off, and nobody here has said so: power it on, or delete the Machine. Otherwise another worker takes its place, as
        /// its pool's `repair` has it.
        PoweredOff = False,
        /// It is not there any more.
        VmGone as Gone = False,
        /// Its VM is kept, as `spec.removal` has it: the message says what it is called. It is nobody's by now, and whoever wants it gone removes it in the vCenter.
        VmKept as Kept = False,
        /// The Provider could not be asked, or what may be its VM cannot be read now.
        VmNotAsked as NotAsked = Unknown,
    }
    /// Its node is Ready.
    NodeReady {
        /// It is.
        NodeServes as KubeletReady = True,
        /// It has not joined yet.
        Joining = False,
        /// It did not join; the message says why, as its console does.
        JoinFailed = False,
        /// It is not Ready; the message says why, as the node does.
        NotReady = False,
        /// It is drained, or what keeps it from that is in the message.
        Draining = False,
        /// Its cluster does not answer.
        NodeNotReached as NotReached = Unknown,
    }
    /// It is made as its pool or its cluster has it.
    UpToDate {
        /// It is.
        Current = True,
        /// It is not: the message says what differs.
        Outdated = False,
    }
    /// It does its work.
    Ready {
        /// It does.
        Works as Ready = True,
        /// Another condition says what is in the way.
        WorksNot as NotReady = False,
        /// Something that has to be known is not.
        NotKnown = Unknown,
    }
}
