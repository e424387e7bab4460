//! `TenantCluster`: a Kubernetes cluster that a person wants. What is known of it is `status.rs`, and why its conditions are as they are
//! `reasons.rs`.

mod reasons;
mod status;

pub use self::reasons::TenantClusterReason;
pub use self::status::{ControlPlaneStatus, NodesStatus, Resolved, TenantClusterStatus};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::network::Network;
use super::reference::Reference;
use super::rules::{distinct, fixed, fixed_if_given, rule};
use super::shapes;
use super::site::Site;

/// A Kubernetes cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "TenantCluster",
    doc = "A Kubernetes cluster on a Provider. Its workers are those of its NodePools.",
    derive = "PartialEq",
    status = "TenantClusterStatus",
    namespaced,
    category = "kaas",
    shortname = "tc",
    validation = (
        "self.metadata.name.size() <= 30 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && \
         self.metadata.name != 'localhost'",
        "the name is no DNS label of at most 30 characters that begins with a letter: names of nodes and VMs begin with it"
    ),
    // Of the whole object, where the status is seen: so it is asked at each write of the status too, and refuses none.
    validation = (
        "self.spec.version == oldSelf.spec.version || (has(self.status) && has(self.status.kubernetes) ? \
         int(self.spec.version.split('.')[1]) - int(self.status.kubernetes.split('.')[1]) in [0, 1] : \
         int(self.spec.version.split('.')[1]) - int(oldSelf.spec.version.split('.')[1]) in [-1, 0, 1])",
        "Kubernetes goes up by one minor from the one that all control nodes have reached, and never below that"
    ),
    validation = (
        "!has(oldSelf.status) || !has(oldSelf.status.deployment) || (has(self.status) && has(self.status.deployment))",
        "what was begun for control nodes stays as long as the cluster: by that it is deleted"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.resolved.image"),
    printcolumn(
        name = "CP",
        type_ = "integer",
        json_path = ".status.controlPlane.ready",
        description = "Control nodes that are Ready"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.ready", description = "Workers that are Ready"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.resolved.endpoint", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.providerRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cluster_rules()))]
pub struct TenantClusterSpec {
    /// The Provider that runs its VMs. It stays.
    pub provider_ref: Reference,
    /// Minor version of Kubernetes. It goes up by one at a time, to what the image carries, once the image is as it is named. There is no
    /// way back once a control node was taken there.
    #[schemars(schema_with = "shapes::minor", example = &"1.36")]
    pub version: String,
    /// The NodeImage. Left out, the newest one that is supported when the cluster is made; `status.resolved` has it from then on.
    /// Another one is an upgrade; the one before, named again before the upgrade is committed, is the way back. With
    /// `maintenance.autoUpdate` none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name", example = &"kaas-tenant-0.2.0")]
    pub image: Option<String>,
    /// The control nodes.
    #[serde(default)]
    pub control_plane: ControlPlane,
    /// What nodes are on, and the addresses inside the cluster.
    pub network: Network,
    /// What nodes are told of their site.
    #[serde(default)]
    pub site: Site,
    /// What pods may ask for in namespaces that do not say it with their own label: the level of the Pod Security Standards that
    /// is enforced. `kube-system` is exempt.
    #[serde(default)]
    pub pod_security: PodSecurity,
    /// What the appliance brings into the cluster.
    #[serde(default, rename = "addons")]
    pub add_ons: AddOns,
    /// How often snapshots of the cluster's store are taken, and where they are copied. Without it control nodes take one every 6
    /// hours; they keep some on their own disks in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Reserved for the snapshot that a new cluster starts from. This version restores no snapshot: it creates no VM for a cluster
    /// that sets this field (`Preflight: NotSupported`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// How images and minors are changed.
    #[serde(default)]
    pub upgrade: Upgrade,
    /// When changes may begin that nobody asked for at once.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// Whether nothing further is begun for the cluster. What is under way is brought to a place where it can stay.
    #[serde(default)]
    pub paused: bool,
}

fn cluster_rules() -> Vec<Value> {
    vec![
        fixed("providerRef", "the Provider of a cluster stays: make another cluster there"),
        fixed_if_given("restore", "restore cannot change after the cluster was created"),
        rule(
            "!has(self.restore) || has(self.image)",
            "with restore, name the image of the cluster that the snapshot is of",
        ),
        // Otherwise nobody could tell an image that was left behind from one that a person goes back to.
        rule(
            "!self.maintenance.autoUpdate || !has(self.image)",
            "with maintenance.autoUpdate name no image; to stay on one or go back to it, name it and set autoUpdate to false in \
             the same edit",
        ),
    ]
}

/// The control nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = control_plane_rules()))]
pub struct ControlPlane {
    /// How many: 1, or 3 of which one may be lost. It stays.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 3), extend("enum" = [1, 3]))]
    pub replicas: u8,
    /// The VMClass, or `auto` for a size by the number of workers. Another class swaps the control nodes into VMs of its size. With
    /// `auto` they grow with each change of the image and in the maintenance window, and never shrink.
    #[serde(default = "auto")]
    #[schemars(schema_with = "shapes::label", example = &"auto")]
    pub vm_class: String,
    /// The zones that control nodes are spread over; without any all of the Provider's. They stay: disks do not move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::zones", length(max = 3), example = ["a"])]
    pub zones: Vec<String>,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self { replicas: one(), vm_class: auto(), zones: Vec::new() }
    }
}

fn control_plane_rules() -> Vec<Value> {
    vec![
        fixed("replicas", "the number of control nodes stays: make another cluster"),
        fixed_if_given("zones", "the zones of control nodes stay: their disks do not move"),
        rule(
            format!("!has(self.zones) || {}", distinct("self.zones", "")["rule"].as_str().unwrap_or_default()),
            "a zone is there twice",
        ),
    ]
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// All is allowed.
    Privileged,
    /// Nothing that is known to lead out of a pod.
    #[default]
    Baseline,
    /// Nothing that hardening advises against.
    Restricted,
}

/// What the appliance brings into a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddOns {
    /// Cluster DNS. Without it you bring your own, behind the tenth address of the range of services.
    #[serde(default = "yes")]
    pub cluster_dns: bool,
    /// metrics-server: `kubectl top` and horizontal scaling need it.
    #[serde(default = "yes")]
    pub cluster_metrics: bool,
    /// The storage class `local`: volumes on the data disks of workers that have one. A volume is lost with its worker.
    #[serde(default = "yes")]
    pub local_volumes: bool,
}

impl Default for AddOns {
    fn default() -> Self {
        Self { cluster_dns: true, cluster_metrics: true, local_volumes: true }
    }
}

/// How often snapshots are taken, and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// How often one is taken, at least: whole minutes, hours or days, from 15 minutes to 7 days. Only an image that knows the
    /// property `snapshot-every` takes another span than `6h`.
    #[serde(default = "every")]
    #[schemars(schema_with = "shapes::pace", example = &"1h")]
    pub every: String,
    /// A directory on a WebDAV or similar server, to which each snapshot is copied with HTTP PUT. Without a user and a password.
    #[schemars(schema_with = "shapes::directory", example = &"https://backup.example.com/clusters/shop/")]
    pub target: String,
    /// The Secret of the cluster's namespace with `username` and `password` for the target; none where it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<Reference>,
    /// The public key to which the keys that encrypt the cluster's Secrets are sealed inside each snapshot, as `kaas recovery new`
    /// prints it. Without it no snapshot can be restored after all control nodes were lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::recovery_key")]
    pub recovery_public_key: Option<String>,
}

/// The snapshot that a cluster starts from. The preflight refuses it today.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Restore {
    /// The URL of the snapshot, without a user and a password.
    #[schemars(schema_with = "shapes::url", example = &"https://backup.example.com/clusters/shop/snapshot.db")]
    pub snapshot: String,
    /// SHA-256 of the snapshot.
    #[schemars(schema_with = "shapes::digest")]
    pub digest: String,
    /// The Secret of the cluster's namespace with `recovery-key`, the private key that the snapshot's keys are sealed to.
    pub recovery_key_ref: Reference,
    /// The Secret of the cluster's namespace with `username` and `password` for the server; none where it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<Reference>,
}

/// How images and minors are changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Who says that there is no way back any more.
    #[serde(default)]
    pub commit: Commit,
    /// In which order control nodes are swapped.
    #[serde(default)]
    pub mode: UpgradeMode,
    /// Which control nodes go back when one is not found good on the new image.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How long a swapped control node may take to be found good, in seconds; then it goes back.
    #[serde(default = "gate_seconds")]
    #[schemars(range(min = 60, max = 86400))]
    pub gate_seconds: u32,
    /// How long pods may take to move away from a control node, in seconds. Nothing is forced then: a person is waited for.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 0, max = 86400))]
    pub drain_seconds: u32,
}

impl Default for Upgrade {
    fn default() -> Self {
        Self {
            commit: Commit::default(),
            mode: UpgradeMode::default(),
            on_failure: OnFailure::default(),
            gate_seconds: gate_seconds(),
            drain_seconds: drain_seconds(),
        }
    }
}

/// Who says that an upgrade is final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Commit {
    /// The controller, once all control nodes have been good for ten minutes.
    #[default]
    Auto,
    /// A person, with the annotation `kaas.local/do: commit` on the Operation.
    Manual,
}

/// In which order control nodes are swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeMode {
    /// One after the other, each found good before the next.
    #[default]
    Rolling,
    /// All off, all on; the Kubernetes API is away meanwhile.
    AllAtOnce,
}

/// Which control nodes go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The one that is not found good. The others stay where they are, and the upgrade waits for a person.
    #[default]
    Node,
    /// All.
    All,
}

/// When changes may begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = maintenance_rules()))]
pub struct Maintenance {
    /// When automatic updates and `auto` sizes may begin: days and hours in UTC; from a later to an earlier hour is over
    /// midnight. Left out, updates at any time, and sizes with the next image alone. What a person changes begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::window", example = &"Sat 02:00-06:00")]
    pub window: Option<String>,
    /// Whether the cluster goes to newer images by itself, as soon as one is supported that may take the place of its own. Then
    /// `image` is left out: `status.resolved` has the one that it is on.
    #[serde(default)]
    pub auto_update: bool,
}

fn maintenance_rules() -> Vec<Value> {
    vec![rule(
        "!has(self.window) || self.window.size() < 11 || \
         self.window.substring(self.window.size() - 11, self.window.size() - 6) != self.window.substring(self.window.size() - 5)",
        "the window has no length",
    )]
}

fn one() -> u8 {
    1
}

fn auto() -> String {
    super::AUTO.to_owned()
}

fn yes() -> bool {
    true
}

/// As the property of control nodes has it.
fn every() -> String {
    "6h".to_owned()
}

/// As `kaas upgrade` has it.
fn gate_seconds() -> u32 {
    900
}

/// As `kaas upgrade` has it.
fn drain_seconds() -> u32 {
    300
}
