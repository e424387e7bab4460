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
        "the name is no DNS label of at most 52 characters that begins with the cluster's name and a dash. Names of nodes and VMs \
         begin with it"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Updated", type_ = "integer", json_path = ".status.updatedReplicas"),
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.vmClass", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = pool_rules()))]
pub struct NodePoolSpec {
    /// The cluster, in the same namespace. It cannot change.
    pub cluster_ref: Reference,
    /// Wanted number of workers.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000), example = 3)]
    pub replicas: u32,
    /// Workers that leave before all others if there are more than `replicas`. They are drained as others are, and
    /// `rollout.maxUnavailable` does not delay them. Lower `replicas` in the same change. The controller does not change this
    /// list. A name may stay after its worker is gone: names are never used again, and such a name is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::workers", example = ["shop-workers-w2"])]
    pub remove_first: Vec<String>,
    /// Name of the VMClass.
    #[schemars(schema_with = "shapes::label", example = &"medium")]
    pub vm_class: String,
    /// The zones that workers are spread over. Without any, all zones of the Provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::zones", example = ["a"])]
    pub zones: Vec<String>,
    /// The network of the Provider for workers. It can be left out, and must be that of the control-plane nodes. Another one is
    /// `NotSupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub network: Option<String>,
    /// Labels of the nodes when they join. The labels of zone and pool are always set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "shapes::labels", example = [("example.com/tier", "edge")].into_iter().collect::<BTreeMap<_, _>>())]
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes when they join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = shapes::keyed(&["key", "effect"]))]
    pub taints: Vec<Taint>,
    /// How workers are replaced and drained.
    #[serde(default)]
    pub rollout: Rollout,
    /// How unhealthy workers are replaced.
    #[serde(default)]
    pub repair: Repair,
}

fn pool_rules() -> Vec<Value> {
    vec![
        fixed("clusterRef", "the cluster of a pool stays: make another pool"),
        rule(
            format!("!has(self.zones) || {}", distinct("self.zones", "")["rule"].as_str().unwrap_or_default()),
            "a zone is listed twice",
        ),
        // The cost of a rule on the pool's own name has no bound, because the schema of metadata has none.
        rule(
            "!has(self.removeFirst) || self.removeFirst.all(name, name.startsWith(self.clusterRef.name + '-'))",
            "removeFirst names a worker of another cluster: run `kubectl get machines` for the names",
        ),
    ]
}

/// A taint of nodes. Pods that do not tolerate it are kept away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key of the taint.
    #[schemars(schema_with = "shapes::key", example = &"example.com/edge")]
    pub key: String,
    /// Value of the taint. It may be empty.
    #[serde(default)]
    #[schemars(schema_with = "shapes::value", example = &"true")]
    pub value: String,
    /// Effect of the taint.
    pub effect: Effect,
}

/// The effect on pods that do not tolerate the taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Effect {
    /// The pods are not placed on the node.
    NoSchedule,
    /// The pods are placed on other nodes if possible.
    PreferNoSchedule,
    /// The pods are not placed on the node, and running ones are evicted.
    NoExecute,
}

/// How workers are replaced and drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "self.maxSurge > 0 || self.maxUnavailable > 0",
    "with neither a further worker nor one that may be missing none can be replaced: raise one of both"
)]))]
pub struct Rollout {
    /// How many VMs may exist above the wanted number during a replacement.
    #[schemars(range(min = 0, max = 100))]
    pub max_surge: u32,
    /// How many of the wanted workers may be missing while one is replaced.
    #[schemars(range(min = 0, max = 100))]
    pub max_unavailable: u32,
    /// How long pods may take to leave a worker, in seconds. After that nothing is forced: the operator has to act.
    #[schemars(range(min = 0, max = 86400))]
    pub drain_seconds: u32,
    /// How long a worker may take to join, in seconds from its power-on.
    #[schemars(range(min = 60, max = 1500))]
    pub join_seconds: u32,
    /// Whether the replacement of outdated workers is suspended.
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            max_surge: 1,
            max_unavailable: 0,
            // As in `fleet`.
            drain_seconds: 300,
            join_seconds: 900,
            paused: false,
        }
    }
}

/// How unhealthy workers are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Repair {
    /// How long a worker may be unhealthy before it is replaced, in seconds. A worker is unhealthy if it is not Ready, or its VM
    /// is off or missing. A cordoned node is not unhealthy. 0 means never.
    #[schemars(range(min = 0, max = 86400))]
    pub after_seconds: u32,
    /// Maximum share of unhealthy workers among those that have joined, in percent, up to which workers are replaced. If more are
    /// unhealthy, the cause is elsewhere, and none is replaced. One worker may always be unhealthy, unless this is 0.
    #[schemars(range(min = 0, max = 100))]
    pub max_unhealthy_percent: u8,
}

impl Default for Repair {
    fn default() -> Self {
        // kube-controller-manager moves the pods of a silent node after 300 s.
        Self { after_seconds: 300, max_unhealthy_percent: 40 }
    }
}

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// The state of the pool, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// Number of workers, without those that leave.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Number of these that are Ready.
    #[schemars(range(min = 0))]
    pub ready_replicas: i32,
    /// Number of these that match the spec.
    #[schemars(range(min = 0))]
    pub updated_replicas: i32,
    /// The labels of the pool's Machines, as a selector for autoscalers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::sentence")]
    pub selector: Option<String>,
    /// The highest number that a Machine got. Names are never used again.
    #[schemars(range(min = 0))]
    pub last_index: i64,
    /// How many workers in a row did not join. Another one is created in place of each after 1, 2, 4, 8 and then 15 minutes. From
    /// 10 % of `replicas` on, and at least three, that stops: `Ready` is `JoinFailed`. A worker that joins resets the number, and so
    /// does the deletion of a failed Machine.
    #[schemars(range(min = 0))]
    pub failed_joins: u32,
}

fn one() -> u32 {
    1
}

reasons! {
    /// Why a condition of a pool has its status.
    NodePoolReason:
    /// All wanted workers exist and are Ready.
    Ready {
        /// All are Ready.
        AllReady = True,
        /// Workers are being created or removed.
        Scaling = False helps "see `kubectl describe machines`",
        /// Some workers are not Ready; the message names them, with the reason.
        WorkersNotReady = False helps "see `kubectl describe machines`",
        /// Too many joins in a row have failed, or another client has joined in place of a worker. The message has the numbers and
        /// names the workers. They stay as they are, and outdated workers are not replaced. Repair and scaling continue. Remove the
        /// cause, then delete their Machines: the pool creates others. A change of the image or the class replaces them too.
        JoinFailed = False for operator
            helps "remove the cause, then delete their Machines with `kubectl delete machines`",
        /// The controller's database is older than VMs of workers, which the message names, as after a restore of the control
        /// cluster. No worker is changed, powered off, deleted or created until the operator decides.
        AdoptionRequired = False for operator helps "compare the VMs, then run `kaas cluster adopt`",
        /// The Provider's limits, or the free capacity that the vCenter reports, do not suffice for all wanted workers; the message
        /// has the numbers. Existing workers stay.
        CapacityMissing = False for operator helps "lower `spec.replicas`, or ask the operator for capacity",
        /// The Tenant's quota does not suffice for all wanted workers; the message has the numbers. Existing workers stay.
        QuotaExceeded = False for operator
            helps "lower `spec.replicas`: `kubectl get catalogs --output yaml` shows quota and use",
        /// The range of pods of the cluster does not hold all wanted workers; the message has the numbers. Existing workers stay.
        PodRangeExhausted = False for operator
            helps "lower `spec.replicas`: `network.pods` of the cluster cannot change",
        /// The namespace may no longer use the Provider, or what the pool names, and fewer workers exist than are wanted: none is
        /// created. The message names it. Existing workers stay.
        NamespaceNotAllowed = False for operator
            helps "`kubectl get catalogs --output yaml` shows what the namespace may use",
        /// The cluster has 16 older pools: no worker is created for this one. Enlarge those, or delete one of them.
        TooMany = False for operator
            helps "raise `spec.replicas` of an older pool, or remove one with `kubectl delete nodepools`",
        /// The cluster is missing, or not Ready for workers yet.
        ClusterNotReady = False helps "see `kubectl describe tenantclusters`",
        /// An object that the spec names is missing or unsuitable, or a Machine of the pool cannot be read. The message names it.
        Unfit = False for operator helps "correct this in `spec`, or have the object created",
        /// The spec asks for something that this version of the controller does not support; the message names it.
        NotSupported = False for operator helps "remove this from `spec`, or upgrade the control cluster",
        /// The cluster does not answer.
        NotReached = Unknown,
    }
    /// All workers match the spec, and the cluster's image and minor version. Changes of the cluster's `site` do not count.
    UpToDate {
        /// All workers match it.
        Current = True,
        /// Outdated workers are being replaced.
        Replacing = False helps "see `kubectl describe machines`",
        /// `rollout.paused` or the cluster's `paused` is set.
        Paused = False helps "set `spec.rollout.paused`, and `spec.paused` of the cluster, to false",
        /// A worker cannot leave; the message names the pods, budgets or volumes that block it.
        DrainBlocked = False for operator helps "remove what blocks it, or set `spec.drain` of the Machine",
        /// The control-plane nodes have to be changed first.
        AwaitingControlPlane = False helps "see `kubectl describe tenantclusters`",
    }
    /// Unhealthy workers may be replaced.
    Repairable {
        /// Few enough workers are unhealthy.
        FewUnhealthy = True,
        /// More workers are unhealthy than `repair.maxUnhealthyPercent` allows. Look for a common cause. None is replaced until
        /// then.
        TooManyUnhealthy = False for operator
            helps "see `kubectl describe machines` and `spec.repair.maxUnhealthyPercent`",
        /// There is no capacity for a replacement; the message has the numbers. The unhealthy worker stays until then.
        NoRoom as CapacityMissing = False for operator helps "lower `spec.replicas`, or ask the operator for capacity",
        /// `repair.afterSeconds` is 0.
        RepairOff = False helps "set `spec.repair.afterSeconds` to have unhealthy workers replaced",
        /// The cluster or its Provider does not answer: the health of workers is unknown.
        RepairNotKnown as NotKnown = Unknown,
    }
}
