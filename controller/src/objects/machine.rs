//! `Machine`: one node of a cluster. The controller creates it. Operators read it, and delete it to have a worker replaced. A
//! Machine is a node and not a VM: a control-plane node has another VM after each image swap, and two VMs during one.

use std::collections::BTreeMap;

use fleet::workers::{Discards, Removal, State as Phase, WorkerRecord};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
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
    doc = "One node of a TenantCluster, whichever VM it runs in. The controller creates it. The first VM for it has the \
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
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Kubernetes", type_ = "string", json_path = ".spec.kubernetes", priority = 1),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image.name", priority = 1),
    printcolumn(name = "VM", type_ = "string", json_path = ".status.vms[?(@.state==\"Current\")].uuid", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = machine_rules()))]
pub struct MachineSpec {
    /// The cluster, in the same namespace. It cannot change.
    pub cluster_ref: Reference,
    /// Role of the node in the cluster. It cannot change.
    pub role: MachineRole,
    /// The NodePool of a worker. It cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
    /// The zone of the Provider that the VM is in. It cannot change.
    #[schemars(schema_with = "shapes::label", example = &"a")]
    pub zone: String,
    /// The network of the Provider that the VM is on. It cannot change.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub network: String,
    /// The image. It never changes on a worker. An image swap changes it for a control-plane node.
    pub image: PinnedImage,
    /// Minor version of Kubernetes that the node is to run. It never changes on a worker.
    #[schemars(schema_with = "shapes::minor", example = &"1.36")]
    pub kubernetes: String,
    /// Virtual processors. It never changes on a worker.
    #[schemars(range(min = 1, max = 128))]
    pub processors: u32,
    /// Memory in MiB. It never changes on a worker.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 1024, max = 4194304))]
    pub memory_mib: u32,
    /// Data disk in GiB. Unset if the node has none. It cannot change.
    #[serde(default, rename = "dataDiskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 63488))]
    pub data_disk_gib: Option<u32>,
    /// Labels of the node when it joins. They cannot change.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::labels")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the node when it joins. They cannot change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = shapes::keyed(&["key", "effect"]))]
    pub taints: Vec<Taint>,
    /// Whether the VM is destroyed with the Machine, or kept. `KeepVM` is for workers only: the VM is powered off, disconnected
    /// and renamed, keeps its disks, and is no longer managed. It can be changed until the removal of the VM begins.
    #[serde(default)]
    pub removal: Removal,
    /// Data that may be lost with the node when it is deleted. Without permission the node stays until the operator decides.
    #[serde(default)]
    pub drain: Discards,
}

fn machine_rules() -> Vec<Value> {
    let of_worker = |field: &str| {
        let text = format!("self.role != 'Worker' || self.{field} == oldSelf.{field}");
        at(field, text, &format!("{field} of a worker cannot change: another worker replaces it"))
    };
    vec![
        rule("(self.role == 'Worker') == has(self.poolRef)", "a worker has poolRef, and no control-plane node has"),
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
        // The data disk of a control-plane node moves to the next VM, and is deleted with the cluster. A kept VM would lack it.
        at(
            "removal",
            "self.removal == 'DestroyVM' || self.role == 'Worker'",
            "only the VM of a worker is kept: clone that of a control-plane node in the vCenter before you delete the cluster",
        ),
    ]
}

/// Role of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MachineRole {
    /// A control-plane node.
    ControlPlane,
    /// A worker.
    Worker,
}

/// An image by its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// Name of the NodeImage, for operators.
    #[schemars(schema_with = "shapes::name", example = &"kaas-tenant-0.2.0")]
    pub name: String,
    /// Digest of the image.
    #[schemars(schema_with = "shapes::digest")]
    pub digest: String,
}

/// The state of a Machine, and the record of its VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// The state of the node, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// Phase of the node.
    pub phase: Phase,
    /// The node's VM, from when it is complete until it is proved deleted. During an image swap of a control-plane node, the VM
    /// that the node runs in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), transform = shapes::keyed(&["uuid"]))]
    pub vms: Vec<MachineVm>,
    /// Minor version of Kubernetes that the node runs, if it is newer than `spec.kubernetes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub kubernetes: Option<String>,
    /// IPv4 address of the node. Unset until an address is claimed or leased by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4")]
    pub address: Option<String>,
    /// Name of its Node object, once the node has joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub node: Option<String>,
    /// Since when a worker that has joined is unhealthy in every check: its node is not Ready, or its VM does not run. The pool's
    /// `repair` uses this time. It starts again if checks fail for longer than a third of `afterSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unhealthy_since: Option<Time>,
    /// When the worker was last seen unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_unhealthy: Option<Time>,
    /// The record of the worker's steps. Each is stored before it is acted on.
    pub journal: WorkerRecord,
}

/// A VM of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineVm {
    /// BIOS UUID of the VM: also in the node's `spec.providerID`, after `vsphere://`.
    #[schemars(schema_with = "shapes::uuid")]
    pub uuid: String,
    /// Name of the VM in the inventory.
    #[schemars(length(min = 1, max = 80))]
    pub name: String,
    /// State of the VM.
    pub state: VmState,
}

/// State of a VM of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VmState {
    /// The node runs in it, or will run in it.
    Current,
}

reasons! {
    /// Why a condition of a Machine has its status.
    MachineReason:
    /// The VM exists and is powered on.
    VMReady {
        /// The VM is powered on.
        VmRuns as Running = True,
        /// The VM is being created.
        VmProvisioning as Provisioning = False helps "see `kubectl describe tenantclusters,nodepools`",
        /// The VM is powered off, and not by the controller. Power it on, or delete the Machine. Otherwise another worker
        /// replaces it according to its pool's `repair`.
        PoweredOff = False for operator
            helps "power it on in the vCenter, or remove a worker with `kubectl delete machines`",
        /// The VM no longer exists.
        VmGone as Gone = False for operator
            helps "see `spec.repair` of the pool; for a control-plane node, `kaas cluster replace-node`",
        /// The VM is kept, as `spec.removal` asks; the message has its name. The controller no longer manages it. Remove it in
        /// the vCenter when you no longer need it.
        VmKept as Kept = False
            helps "`spec.removal` asked for that: remove the VM in the vCenter when it is no longer needed",
        /// The Provider could not be asked, or a VM that may be this one cannot be read now.
        VmNotAsked as NotAsked = Unknown,
    }
    /// The node is Ready.
    NodeReady {
        /// The node is Ready.
        NodeServes as KubeletReady = True,
        /// The node has not joined yet.
        Joining = False helps "see the console of the VM, and `kubectl describe tenantclusters,nodepools`",
        /// The node did not join; the message has the reason, as its console does.
        JoinFailed = False for operator helps "remove the cause, then run `kubectl delete machines`",
        /// The node is not Ready; the message has the reason that the node reports.
        NotReady = False helps "see `kubectl describe nodes` in the cluster",
        /// The node is drained; the message has what blocks that, if something does.
        Draining = False helps "see `spec.drain` for what may be lost",
        /// The cluster does not answer.
        NodeNotReached as NotReached = Unknown,
    }
    /// The node matches the spec of its pool or its cluster.
    UpToDate {
        /// The node matches it.
        Current = True,
        /// The node differs; the message says in what.
        Outdated = False helps "see `kubectl describe nodepools`",
    }
    /// The node does its work.
    Ready {
        /// The node does its work.
        Works as Ready = True,
        /// Another condition says what is wrong.
        WorksNot as NotReady = False helps "see the other conditions in `kubectl describe machines`",
        /// Something that has to be known is unknown.
        NotKnown = Unknown,
    }
}
