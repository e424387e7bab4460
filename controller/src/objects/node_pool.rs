//! `NodePool`: workers of a cluster that are alike.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::reference::Reference;
use super::rules::{distinct, fixed, rule};
use super::shapes;

/// Workers that are alike.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "NodePool",
    doc = "Workers of a TenantCluster that are alike.",
    derive = "PartialEq",
    status = "NodePoolStatus",
    namespaced,
    category = "kaas",
    shortname = "np",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    validation = (
        "self.metadata.name.startsWith(self.spec.clusterRef.name + '-') && self.metadata.name.size() <= 52 && \
         self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "the name is no DNS label of at most 52 characters that begins with the cluster's name and a dash: names of nodes and VMs \
         begin with it"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.vmClass", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = pool_rules()))]
pub struct NodePoolSpec {
    /// The cluster, in the same namespace. It stays.
    pub cluster_ref: Reference,
    /// How many workers there are to be.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000), example = 3)]
    pub replicas: u32,
    /// The VMClass.
    #[schemars(schema_with = "shapes::label", example = &"medium")]
    pub vm_class: String,
    /// The zones that workers are spread over; without any all of the Provider's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::zones", example = ["a"])]
    pub zones: Vec<String>,
    /// The network of the Provider that workers are on: that of the control nodes, which may be left out. Another one is `NotSupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub network: Option<String>,
    /// Labels of the nodes when they join. A node carries its zone and its pool by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::labels", example = [("example.com/tier", "edge")].into_iter().collect::<BTreeMap<_, _>>())]
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes when they join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"])
    )]
    pub taints: Vec<Taint>,
    /// How workers are replaced, and how any leaves.
    #[serde(default)]
    pub rollout: Rollout,
    /// What is done about workers that are ill.
    #[serde(default)]
    pub repair: Repair,
}

fn pool_rules() -> Vec<Value> {
    vec![
        fixed("clusterRef", "the cluster of a pool stays: make another pool"),
        rule(
            format!("!has(self.zones) || {}", distinct("self.zones", "")["rule"].as_str().unwrap_or_default()),
            "a zone is there twice",
        ),
    ]
}

/// A taint of nodes: pods that do not tolerate it are kept away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    #[schemars(schema_with = "shapes::key", example = &"example.com/edge")]
    pub key: String,
    /// Its value; it may be empty.
    #[serde(default)]
    #[schemars(schema_with = "shapes::value", example = &"true")]
    pub value: String,
    /// What it does.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Effect {
    /// They are not placed.
    NoSchedule,
    /// They are placed elsewhere if that can be.
    PreferNoSchedule,
    /// They are not placed, and those that run are evicted.
    NoExecute,
}

/// How workers are replaced, and how any leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rollout_rules()))]
pub struct Rollout {
    /// How many VMs there may be beyond the wanted workers meanwhile.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub max_surge: u32,
    /// How many of the wanted workers may be missing while one is replaced.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub max_unavailable: u32,
    /// How long pods may take to move away from a worker, in seconds. Nothing is forced then: a person is waited for.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 0, max = 86400))]
    pub drain_seconds: u32,
    /// How long a worker may take to join, in seconds from its power-on.
    #[serde(default = "join_seconds")]
    #[schemars(range(min = 60, max = 1500))]
    pub join_seconds: u32,
    /// Whether no outdated worker is replaced for now.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_surge: one(),
            max_unavailable: 0,
            drain_seconds: drain_seconds(),
            join_seconds: join_seconds(),
            paused: false,
        }
    }
}

fn rollout_rules() -> Vec<Value> {
    vec![rule(
        "self.maxSurge > 0 || self.maxUnavailable > 0",
        "with neither a further worker nor one that may be missing none can be replaced: raise one of both",
    )]
}

/// What is done about workers that are ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// For how long a worker is not Ready, or its VM is off or gone, before another one takes its place, in seconds; 0 for never. That a
    /// node is cordoned is no illness.
    #[serde(default = "after_seconds")]
    #[schemars(range(min = 0, max = 86400))]
    pub after_seconds: u32,
    /// How many of the workers that have joined may be ill, in percent, for any to be repaired: where more are, the cause is elsewhere,
    /// and nothing is done. One may always be, unless this is 0.
    #[serde(default = "max_unhealthy_percent")]
    #[schemars(range(min = 0, max = 100))]
    pub max_unhealthy_percent: u8,
}

impl Default for Repair {
    fn default() -> Self {
        Self { after_seconds: after_seconds(), max_unhealthy_percent: max_unhealthy_percent() }
    }
}

/// What is known of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// The generation of the spec that this was judged by.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// How the pool is, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// How many workers there are, those that leave left out.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// How many of them are Ready.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub ready_replicas: i32,
    /// How many of them are made as the spec has it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub updated_replicas: i32,
    /// The labels of the pool's Machines, as a selector: for what scales by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::sentence")]
    pub selector: Option<String>,
    /// The highest number that a Machine was given: names are never used again.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub last_index: i64,
}

fn one() -> u32 {
    1
}

/// As `fleet` has it.
fn drain_seconds() -> u32 {
    300
}

/// As `fleet` has it.
fn join_seconds() -> u32 {
    900
}

/// As kube-controller-manager waits before it takes a silent node's pods elsewhere.
fn after_seconds() -> u32 {
    300
}

fn max_unhealthy_percent() -> u8 {
    40
}

reasons! {
    /// Why a condition of a pool is as it is.
    NodePoolReason:
    /// All workers that are wanted are there and Ready.
    Ready {
        /// They are.
        AllReady = True,
        /// Some come or go.
        Scaling = False,
        /// Some are not Ready; the message names them, and says why.
        WorkersNotReady = False,
        /// Some did not join and are left as they are: their Machines say why. Another image or class, or the deletion of such a
        /// Machine, has them made anew.
        JoinFailed = False,
        /// The controller's database is older than VMs of workers, which the message names, as after a restore of the control cluster: nothing
        /// of any worker is changed, powered off, deleted or made before a person has seen to it.
        AdoptionRequired = False,
        /// What the Provider's limits leave does not suffice for all that are wanted; the message has the numbers. Those that are there
        /// stay.
        CapacityMissing = False,
        /// The namespace is none of those that the Provider allows any more, and there are fewer workers than are wanted: none is made.
        /// Those that are there stay.
        NamespaceNotAllowed = False,
        /// The cluster has 16 older pools: no worker is made for this one. Make those larger, or delete one of them.
        TooMany = False,
        /// The cluster is not there, or not Ready for workers yet.
        ClusterNotReady = False,
        /// Something that the spec names is not there, or no worker can be made of it; the message names it.
        Unfit = False,
        /// The spec asks for something that this version of the controller does not do; the message names it.
        NotSupported = False,
        /// The cluster does not answer.
        NotReached = Unknown,
    }
    /// All workers are made as the spec has it, of the cluster's image and minor. What its `site` says by now is none of it.
    UpToDate {
        /// They are.
        Current = True,
        /// Outdated ones are replaced.
        Replacing = False,
        /// `rollout.paused` or the cluster's `paused` is set.
        Paused = False,
        /// A worker cannot leave; the message names the pods, budgets or volumes that keep it.
        DrainBlocked = False,
        /// The control nodes have to come first.
        AwaitingControlPlane = False,
    }
    /// Workers that are ill may be repaired.
    Repairable {
        /// They may.
        FewUnhealthy = True,
        /// More are ill than `repair.maxUnhealthyPercent` has: look for a cause that they share. Nothing is repaired meanwhile.
        TooManyUnhealthy = False,
        /// Some did not join: none would take the place of one that is ill. Their Machines say why.
        RepairStopped as JoinFailed = False,
        /// There is no room for one that would take the place of one that is ill; the message has the numbers. It stays meanwhile.
        NoRoom as CapacityMissing = False,
        /// `repair.afterSeconds` is 0.
        RepairOff = False,
        /// The cluster or its Provider does not answer: nobody knows who is ill.
        RepairNotKnown as NotKnown = Unknown,
    }
}
