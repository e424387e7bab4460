//! `Operation`: a change of a control plane, as a plan that was decided before its first step, and the journal of what was done.
//! Knows nothing of how steps are taken.

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

/// A plan.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Operation",
    doc = "A change of a TenantCluster's control plane: the plan, which stays as it was decided, and what was done of it. The \
           controller makes it. Read it before it begins with `paused` on the cluster. The annotation `kaas.local/do` asks \
           something of it: `resume`, `rollback`, `commit` or `abandon`; the controller takes it away once that is noted.",
    derive = "PartialEq",
    status = "OperationStatus",
    namespaced,
    category = "kaas",
    shortname = "op",
    validation = (
        "self.metadata.name.startsWith(self.spec.clusterRef.name + '-')",
        "the name does not begin with the cluster's name and a dash"
    ),
    // Of the whole object: no rule of a part is asked where the part goes.
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
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].reason",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.clusterRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = operation_rules()))]
pub struct OperationSpec {
    /// The cluster, in the same namespace.
    pub cluster_ref: Reference,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: OperationKind,
    /// The image before; of a swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub from_image: Option<String>,
    /// The image after; of a swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name")]
    pub to_image: Option<String>,
    /// How large control nodes are before; of a swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_size: Option<ControlPlaneSize>,
    /// How large they are after; of a swap. One of the same image is for that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_size: Option<ControlPlaneSize>,
    /// The VMClass that a person had named for it; of a swap. None where the cluster had `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"medium")]
    pub to_class: Option<String>,
    /// The minor of Kubernetes before; where that is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub from_version: Option<String>,
    /// The minor of Kubernetes after; where that is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::minor")]
    pub to_version: Option<String>,
    /// The generation of the cluster's spec that it was decided by.
    #[schemars(range(min = 1))]
    pub cluster_generation: i64,
    /// The steps in their order.
    #[schemars(length(min = 1, max = 256))]
    pub steps: Vec<PlannedStep>,
    /// The same plan as the program keeps it, with what was seen when it was decided: as `plan` in the journal of
    /// `kaas upgrade`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::kept")]
    pub plan: Option<Value>,
}

fn operation_rules() -> Vec<Value> {
    vec![
        unchanged("a plan stays as it was decided: what is wanted otherwise is said in the TenantCluster"),
        rule(
            "self.type != 'ImageSwap' || (has(self.fromImage) && has(self.toImage) && \
             (self.fromImage != self.toImage || has(self.toSize)))",
            "a swap is from one image to another one, or to a size",
        ),
        rule(
            "self.type != 'KubernetesUpgrade' || (has(self.fromVersion) && has(self.toVersion) && \
             int(self.toVersion.split('.')[1]) - int(self.fromVersion.split('.')[1]) == 1)",
            "Kubernetes is raised by one minor",
        ),
    ]
}

/// How large a control node is.
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

/// What an Operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationKind {
    /// Takes the control nodes to another image or size, each with its data disk.
    ImageSwap,
    /// Takes the control nodes to the next minor of Kubernetes.
    KubernetesUpgrade,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// What it does: a word of `kaas upgrade`'s plans.
    #[schemars(length(min = 1, max = 64), example = &"power-on")]
    pub action: String,
    /// The node that it is for; none for the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::label", example = &"shop-cp1")]
    pub node: Option<String>,
}

/// What was done of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = journal_rules()))]
pub struct OperationStatus {
    /// The hold that goes on with the journal: one of a lower number adds nothing to it.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// How it stands, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The journal: each entry is kept before anything follows from it. None is changed, and none goes; but as long as a step
    /// waits, the last entry says for what, and the next reason takes its place. `plan` of the first one is `spec.plan`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2048), extend("x-kubernetes-list-type" = "atomic"))]
    pub entries: Vec<JournalEntry>,
    /// The step that is taken, or comes next, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word", example = &"gate shop-cp2")]
    pub step: Option<String>,
    /// How many steps of the plan are done.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub steps_done: i32,
    /// Since when all control nodes are good on the new image, for as long as they are: with `upgrade.commit: Auto` on the cluster it is
    /// committed ten minutes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// When control nodes were last seen to be good: where nobody could look for more than two minutes `healthySince` begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_healthy: Option<Time>,
    /// How it has ended; none while it goes on, or has a way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word", example = &"committed")]
    pub outcome: Option<String>,
    /// Whether what it has come to stands in the cluster's `status.resolved`, from which pools and the next change go. Of one that was
    /// abandoned: whether all control nodes were found to be as it stands there since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resolved_updated: bool,
}

/// The first entry, the last one and the one before it stand for all: a list that was mixed up differs in one of them.
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

/// An entry of the journal: the same JSON as a line of `kaas upgrade`'s journal, whose further members are kept as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// When: seconds of Unix time.
    #[schemars(range(min = 0))]
    pub at: u64,
    /// The hold under which it was written: each take-over of the cluster's control nodes has the next number, and a Lease.
    #[schemars(range(min = 0))]
    pub lease: u64,
    /// What happened.
    #[schemars(length(min = 1, max = 64), example = &"begun")]
    pub event: String,
    /// What belongs to that event.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// Since when an Operation is as it is: for the program that shows it.
impl OperationStatus {
    /// When the last entry was written.
    pub fn last(&self) -> Option<Time> {
        let at = i64::try_from(self.entries.last()?.at).ok()?;
        k8s_openapi::jiff::Timestamp::from_second(at).ok().map(Time)
    }
}

reasons! {
    /// Why a condition of an Operation is as it is.
    OperationReason:
    /// Steps are taken.
    Progressing {
        /// They are.
        Running = True,
        /// The way back is taken; the message says why.
        RollingBack = True,
        /// The cluster's `paused` is set.
        Paused = False,
        /// A step waits for something; the message says for what, and it is tried again.
        Waiting = False,
        /// A step failed and waits for a person; the message says what can be done. With the annotation `kaas.local/do` it is tried
        /// again (`resume`), taken back (`rollback`), or ended where it stands (`abandon`).
        Blocked = False,
        /// All nodes are good on the new image; the commit is awaited: the annotation `kaas.local/do` with `commit`, or with
        /// `rollback` for the way back.
        AwaitingCommit = False,
        /// The annotation `kaas.local/do` has another word than `resume`, `rollback`, `commit` and `abandon`, or one for which it
        /// has gone too far; the message says which.
        Rejected = False,
        /// It has ended.
        Ended = False,
        /// The control cluster itself is being upgraded, or a control node of it takes no pods: it goes on afterwards.
        ControlClusterChanges = False,
    }
    /// What it was for is done.
    Succeeded {
        /// It is.
        Done = True,
        /// All nodes run what they ran before.
        RolledBack = False,
        /// A person has ended it where it stood, with `kaas.local/do` and `abandon`.
        Abandoned = False,
        /// It goes on.
        NotEnded = Unknown,
    }
}
