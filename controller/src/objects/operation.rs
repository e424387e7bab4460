//! `Operation`: a change of a control plane, as a plan that was decided before its first step, and the journal of its steps. Does
//! not know how steps run.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::reference::Reference;
use super::rules::{rule, unchanged};
use super::shapes;

/// The plan of a change.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Operation",
    doc = "A change of a TenantCluster's control plane: the plan, which cannot change, and the journal of its steps. The \
           controller creates it. To read it before it begins, set `paused` on the cluster. The annotation `kaas.local/do` asks \
           something of it: `resume`, `rollback`, `commit` or `abandon`; the controller removes it once that is recorded.",
    derive = "PartialEq",
    status = "OperationStatus",
    namespaced,
    category = "kaas",
    shortname = "op",
    validation = (
        "self.metadata.name.startsWith(self.spec.clusterRef.name + '-')",
        "the name does not begin with the cluster's name and a dash"
    ),
    // A rule of the whole object: an API server does not evaluate the rule of a part that is removed.
    validation = (
        "!has(oldSelf.status) || !has(oldSelf.status.entries) || (has(self.status) && has(self.status.entries) && \
         self.status.entries.size() >= oldSelf.status.entries.size())",
        "entries of a journal stay"
    ),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Done", type_ = "integer", json_path = ".status.stepsDone", description = "Steps that are done"),
    printcolumn(name = "Outcome", type_ = "string", json_path = ".status.outcome"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Progressing\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = operation_rules()))]
pub struct OperationSpec {
    /// The cluster, in the same namespace.
    pub cluster_ref: Reference,
    /// Type of the change.
    #[serde(rename = "type")]
    pub kind: OperationKind,
    /// The image before an image swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub from_image: Option<String>,
    /// The image after an image swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub to_image: Option<String>,
    /// Size of control-plane nodes before an image swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_size: Option<ControlPlaneSize>,
    /// Size of control-plane nodes after an image swap. With the same image, the swap changes the size alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_size: Option<ControlPlaneSize>,
    /// The VMClass for an image swap that the spec names. Unset if the cluster has `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"medium")]
    pub to_class: Option<String>,
    /// Minor version of Kubernetes before an upgrade of Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub from_version: Option<String>,
    /// Minor version of Kubernetes after an upgrade of Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub to_version: Option<String>,
    /// The generation of the cluster's spec that the plan is based on.
    #[schemars(range(min = 1))]
    pub cluster_generation: i64,
    /// The steps in their order.
    #[schemars(length(min = 1, max = 256))]
    pub steps: Vec<PlannedStep>,
    /// The same plan as the program stores it, with the inventory that it is based on. It has the format of `plan` in the journal
    /// of `kaas control upgrade`. The plan of `Configure` has `fields`: the fields of the cluster's spec that nodes get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::kept")]
    pub plan: Option<Value>,
}

fn operation_rules() -> Vec<Value> {
    vec![
        unchanged("a plan stays as it was decided: change the TenantCluster instead"),
        rule(
            "self.type != 'ImageSwap' || (has(self.fromImage) && has(self.toImage) && \
             (self.fromImage != self.toImage || has(self.toSize)))",
            "a swap is from one image to another one, or to a size",
        ),
        rule(
            "self.type != 'KubernetesUpgrade' || (has(self.fromVersion) && has(self.toVersion) && \
             int(self.toVersion.split('.')[1]) - int(self.fromVersion.split('.')[1]) == 1)",
            "Kubernetes is raised by one minor version",
        ),
    ]
}

/// Size of a control-plane node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneSize {
    /// Virtual processors.
    #[schemars(range(min = 1, max = 128), example = 4)]
    pub processors: u32,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 1024, max = 4194304), example = 16384)]
    pub memory_mib: u32,
}

/// Type of an Operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationKind {
    /// Swaps the control-plane nodes to another image or size. Each keeps its data disk.
    ImageSwap,
    /// Upgrades the control-plane nodes to the next minor version of Kubernetes.
    KubernetesUpgrade,
    /// Replaces a lost control-plane node by a new VM. It cannot be rolled back or abandoned.
    ReplaceNode,
    /// Changes settings of the control-plane nodes, one node after the other.
    Configure,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// The action: a word of `kaas control upgrade`'s plans.
    #[schemars(length(min = 1, max = 64), example = &"power-on")]
    pub action: String,
    /// The node of the step. Unset for steps of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"shop-cp1")]
    pub node: Option<String>,
}

/// The journal and state of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = journal_rules()))]
pub struct OperationStatus {
    /// The number of the lease that writes the journal. A holder of a lower number adds nothing.
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// The state of the Operation, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The generation of the cluster's spec at which the end of the Operation was reported. Unset before its first report.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_cluster_generation: Option<i64>,
    /// The journal. Each entry is stored before it is acted on, and none is changed or removed. One exception: while a step
    /// waits, the last entry has the reason, and the next reason replaces it. `plan` of the first entry is `spec.plan`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048), extend("x-kubernetes-list-type" = "atomic"))]
    pub entries: Vec<JournalEntry>,
    /// The current or next step, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word", example = &"gate shop-cp2")]
    pub step: Option<String>,
    /// How many steps of the plan are done.
    #[schemars(range(min = 0))]
    pub steps_done: i32,
    /// Since when all control-plane nodes are healthy on the new image without interruption. With `upgrade.commit: Auto` on the
    /// cluster, the commit follows ten minutes later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// When control-plane nodes were last seen healthy. If their state is unknown for more than two minutes, `healthySince`
    /// starts again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_healthy: Option<Time>,
    /// Outcome of the Operation. Unset while it runs or can be rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word", example = &"committed")]
    pub outcome: Option<String>,
    /// Whether the result is in the cluster's `status.resolved`, which pools and the next change use. After an abandoned
    /// Operation: whether all control-plane nodes were seen to match that status since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resolved_updated: bool,
}

/// The first entry, the last one and the one before it represent all: a reordered list differs in one of them.
fn journal_rules() -> Vec<Value> {
    let same = |place: &str| format!("self.entries[{place}] == oldSelf.entries[{place}]");
    let last = "oldSelf.entries.size() - 1";
    vec![rule(
        format!(
            "!has(oldSelf.entries) || oldSelf.entries.size() == 0 || !has(self.entries) || \
                 self.entries.size() < oldSelf.entries.size() || \
                 ((oldSelf.entries.size() < 2 || ({} && {})) && ({} || (self.entries[{last}].event == 'paused' && \
                 oldSelf.entries[{last}].event == 'paused')))",
            same("0"),
            same("oldSelf.entries.size() - 2"),
            same(last),
        ),
        "entries of a journal stay as they are: only the last one may be another one, if it says why a step waits",
    )]
}

/// An entry of the journal: the same JSON as a line of `kaas control upgrade`'s journal. Its further members are stored unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Time in seconds of Unix time.
    #[schemars(range(min = 0))]
    pub at: u64,
    /// Number of the lease under which the entry was written. Each take-over of the cluster's control-plane nodes has the next
    /// number, and a Lease.
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// Name of the event.
    #[schemars(length(min = 1, max = 64), example = &"begun")]
    pub event: String,
    /// Further members of the event.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Operation {
    pub fn has_ended(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.outcome.is_some())
    }
}

impl OperationStatus {
    /// When the last entry was written.
    pub fn last(&self) -> Option<Time> {
        let at = i64::try_from(self.entries.last()?.at).ok()?;
        k8s_openapi::jiff::Timestamp::from_second(at).ok().map(Time)
    }
}

reasons! {
    /// Why a condition of an Operation has its status.
    OperationReason:
    /// Steps run.
    Progressing {
        /// Steps run.
        Running = True,
        /// The rollback runs; the message has the reason.
        RollingBack = True,
        /// The cluster's `paused` is set.
        Paused = False helps "set `spec.paused` of the TenantCluster to false",
        /// A step waits; the message says for what. The step is tried again.
        Waiting = False helps "it is tried again: see `kubectl describe tenantclusters,machines`",
        /// A step failed and waits for the operator; the message says what can be done. The annotation `kaas.local/do` retries it
        /// (`resume`), rolls back (`rollback`), or ends the Operation where it is (`abandon`).
        Blocked = False for operator
            helps "`kaas cluster upgrade` retries it with `--do resume`, or ends it with `--do abandon`",
        /// All nodes are healthy on the new image, and the commit is awaited. Set the annotation `kaas.local/do` to `commit`, or
        /// to `rollback`.
        AwaitingCommit = False helps "`kaas cluster upgrade` ends it with `--do commit` or `--do rollback`",
        /// The annotation `kaas.local/do` has an unknown word, or one that the Operation no longer allows; the message says
        /// which. Known are `resume`, `rollback`, `commit` and `abandon`.
        Rejected = False for operator helps "see `kaas cluster upgrade --help` for the words of `--do`",
        /// The Operation has ended.
        Ended = False,
        /// The control cluster itself is being upgraded, or one of its nodes takes no pods. The Operation continues afterwards.
        ControlClusterChanges = False helps "see `kubectl get nodes` in the control cluster",
    }
    /// The change is complete.
    Succeeded {
        /// The change is complete.
        Done = True,
        /// All nodes run the former image again.
        RolledBack = False helps "remove the cause, then run `kaas cluster upgrade` with `--do resume`",
        /// The operator ended the Operation where it was, with `kaas.local/do` and `abandon`.
        Abandoned = False helps "see `kubectl describe tenantclusters`",
        /// A node refuses the settings; the message has its words. All nodes have their former settings.
        Refused = False helps "correct the field in `spec` of the TenantCluster",
        /// The Operation has not ended.
        NotEnded = Unknown,
    }
}
