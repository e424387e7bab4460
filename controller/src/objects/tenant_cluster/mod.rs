//! `TenantCluster`: the Kubernetes cluster that a user wants. Its status is in `status.rs`, the reasons of its conditions in
//! `reasons.rs`.

mod reasons;
mod status;

pub use self::reasons::TenantClusterReason;
pub use self::status::{ControlPlaneStatus, NodeRepair, NodesStatus, Resolved, TenantClusterStatus};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AUTO;
use super::deployment::Deployment;
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
        "the name is no DNS label of at most 30 characters that begins with a letter: nodes and VMs are named after it"
    ),
    // A rule of the whole object, because it reads the status. So it is evaluated at each write of the status too, and rejects
    // none.
    validation = (
        "self.spec.version == oldSelf.spec.version || (has(self.status) && has(self.status.kubernetes) ? \
         int(self.spec.version.split('.')[1]) - int(self.status.kubernetes.split('.')[1]) in [0, 1] : \
         int(self.spec.version.split('.')[1]) - int(oldSelf.spec.version.split('.')[1]) in [-1, 0, 1])",
        "Kubernetes goes up by one minor version from the one that all control-plane nodes have reached, and never below that"
    ),
    validation = (
        "!has(oldSelf.status) || !has(oldSelf.status.deployment) || (has(self.status) && has(self.status.deployment))",
        "status.deployment stays as long as the cluster: deletion needs it"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.resolved.image"),
    printcolumn(
        name = "CP-Ready",
        type_ = "integer",
        json_path = ".status.controlPlane.ready",
        description = "Control-plane nodes that are Ready"
    ),
    printcolumn(
        name = "CP",
        type_ = "integer",
        json_path = ".status.controlPlane.replicas",
        description = "Control-plane nodes"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.ready", description = "Workers that are Ready"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".status.operation"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.resolved.endpoint", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    selectable = ".spec.providerRef.name"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cluster_rules()))]
pub struct TenantClusterSpec {
    /// The Provider that runs its VMs. It cannot change.
    pub provider_ref: Reference,
    /// Minor version of Kubernetes. Raise it by one at a time, to one that the image carries, once the named image is in use. A
    /// rollback is not possible once a control-plane node was upgraded.
    #[schemars(schema_with = "shapes::minor", example = &"1.36")]
    pub version: String,
    /// The NodeImage. Without it, the newest supported image at creation, which is then in `status.resolved`. Another image
    /// starts an upgrade. The former image, named again before the commit, starts a rollback. With `maintenance.autoUpdate`, name
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::name", example = &"kaas-tenant-0.2.0")]
    pub image: Option<String>,
    /// The control-plane nodes.
    #[serde(default)]
    pub control_plane: ControlPlane,
    /// The network of nodes, and the addresses inside the cluster.
    pub network: Network,
    /// Settings of the site. A change reaches running nodes.
    #[serde(default)]
    pub site: Site,
    /// The enforced level of the Pod Security Standards, for namespaces without a label of their level. `kube-system` is exempt.
    #[serde(default)]
    pub pod_security: PodSecurity,
    /// The components that the appliance installs in the cluster.
    #[serde(default, rename = "addons")]
    pub add_ons: AddOns,
    /// How often snapshots of the cluster's store are taken, and where they are copied. Without it, control-plane nodes take one
    /// every 6 hours. They always keep some on their own disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Reserved for the snapshot that a new cluster starts from. This version restores no snapshot: it creates no VM for a cluster
    /// that sets this field (`Preflight: NotSupported`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// How images and minor versions are changed.
    #[serde(default)]
    pub upgrade: Upgrade,
    /// When automatic changes may begin.
    #[serde(default)]
    pub maintenance: Maintenance,
    /// Whether new changes are suspended. A running change continues to a point where it can stay.
    #[serde(default)]
    pub paused: bool,
}

impl TenantCluster {
    /// The record of its control-plane nodes. `None` before the first VM.
    pub fn deployment(&self) -> Option<&Deployment> {
        self.status.as_ref()?.deployment.as_ref()
    }

    pub fn resolved(&self) -> Option<&Resolved> {
        self.status.as_ref()?.resolved.as_ref()
    }
}

fn cluster_rules() -> Vec<Value> {
    vec![
        fixed("providerRef", "the Provider of a cluster stays: make another cluster there"),
        fixed_if_given("restore", "restore cannot change after the cluster was created"),
        rule(
            "!has(self.restore) || has(self.image)",
            "with restore, name the image of the cluster that the snapshot is of",
        ),
        // Otherwise a former image that the user forgot and one that the user returns to would look the same.
        rule(
            "!self.maintenance.autoUpdate || !has(self.image)",
            "with maintenance.autoUpdate name no image. To stay on one or go back to it, name it and set autoUpdate to false in \
             the same edit",
        ),
    ]
}

/// The control-plane nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = control_plane_rules()))]
pub struct ControlPlane {
    /// Number of nodes: 1, or 3, of which one may fail. It cannot change.
    #[schemars(range(min = 1, max = 3), extend("enum" = [1, 3]))]
    pub replicas: u8,
    /// The VMClass, or `auto` for a size by the number of workers. Another class starts an image swap to VMs of its size. With
    /// `auto`, nodes grow with each change of the image and in the maintenance window. They never shrink.
    #[schemars(schema_with = "shapes::label", example = &"auto")]
    pub vm_class: String,
    /// The zones that control-plane nodes are spread over. Without any, all zones of the Provider. They cannot change: disks do
    /// not move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::zones", length(max = 3), example = ["a"])]
    pub zones: Vec<String>,
    /// When a lost node is replaced.
    pub repair: ControlPlaneRepair,
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self { replicas: 1, vm_class: AUTO.to_owned(), zones: Vec::new(), repair: ControlPlaneRepair::default() }
    }
}

/// When a lost control-plane node is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneRepair {
    /// Whether the controller replaces one of three nodes by itself, at most one a day. Otherwise `kaas cluster replace-node` does.
    pub automatic: bool,
    /// How long the VM of the node must be proved off without its data disk, or gone, in seconds.
    #[schemars(range(min = 300, max = 86400))]
    pub after_seconds: u32,
}

impl Default for ControlPlaneRepair {
    fn default() -> Self {
        Self { automatic: true, after_seconds: 900 }
    }
}

fn control_plane_rules() -> Vec<Value> {
    vec![
        fixed("replicas", "the number of control-plane nodes stays: make another cluster"),
        fixed_if_given("zones", "the zones of control-plane nodes stay: their disks do not move"),
        rule(
            format!("!has(self.zones) || {}", distinct("self.zones", "")["rule"].as_str().unwrap_or_default()),
            "a zone is listed twice",
        ),
    ]
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// Unrestricted.
    Privileged,
    /// Prevents known privilege escalations.
    #[default]
    Baseline,
    /// Follows current hardening practices for pods.
    Restricted,
}

/// The components that the appliance installs in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AddOns {
    /// Cluster DNS. Without it, run your own at the tenth address of the range of services.
    pub cluster_dns: bool,
    /// metrics-server: `kubectl top` and horizontal scaling need it.
    pub cluster_metrics: bool,
    /// The storage class `local`: volumes on the data disks of workers that have one. A volume is lost with its worker.
    pub local_volumes: bool,
}

impl Default for AddOns {
    fn default() -> Self {
        Self { cluster_dns: true, cluster_metrics: true, local_volumes: true }
    }
}

/// How often snapshots are taken, and where they are copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// The longest time between snapshots: whole minutes, hours or days, from 15 minutes to 7 days.
    #[serde(default = "every")]
    #[schemars(schema_with = "shapes::pace", example = &"1h")]
    pub every: String,
    /// A directory on a WebDAV or similar server, without a user and a password. Each snapshot is copied there with HTTP PUT.
    #[schemars(schema_with = "shapes::directory", example = &"https://backup.example.com/clusters/shop/")]
    pub target: String,
    /// The Secret of the cluster's namespace with `username` and `password` for the target. Unset if the target needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<Reference>,
    /// The public key, as `kaas recovery-key new` prints it. Each snapshot contains the keys that encrypt the cluster's Secrets,
    /// sealed to this key. Without it, no snapshot can be restored after the loss of all control-plane nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::recovery_key")]
    pub recovery_public_key: Option<String>,
}

/// The snapshot that a cluster starts from. The preflight rejects it in this version.
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
    /// The Secret of the cluster's namespace with `username` and `password` for the server. Unset if the server needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<Reference>,
}

/// How images and minor versions are changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Upgrade {
    /// Whether the controller or the operator commits. After the commit, no rollback is possible.
    pub commit: Commit,
    /// The order in which control-plane nodes are swapped.
    pub mode: UpgradeMode,
    /// Which control-plane nodes are rolled back when one is unhealthy on the new image.
    pub on_failure: OnFailure,
    /// How long a swapped control-plane node may take to become healthy, in seconds. After that it is rolled back.
    #[schemars(range(min = 60, max = 86400))]
    pub gate_seconds: u32,
    /// How long pods may take to leave a control-plane node, in seconds. After that nothing is forced: the operator has to act.
    #[schemars(range(min = 0, max = 86400))]
    pub drain_seconds: u32,
}

impl Default for Upgrade {
    fn default() -> Self {
        Self {
            commit: Commit::default(),
            mode: UpgradeMode::default(),
            on_failure: OnFailure::default(),
            // As `kaas control upgrade`.
            gate_seconds: 900,
            drain_seconds: 300,
        }
    }
}

/// Whether the controller or the operator commits an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Commit {
    /// The controller, once all control-plane nodes have been healthy for ten minutes.
    #[default]
    Auto,
    /// The operator, with the annotation `kaas.local/do: commit` on the Operation.
    Manual,
}

/// The order in which control-plane nodes are swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpgradeMode {
    /// One after the other. Each must be healthy before the next.
    #[default]
    Rolling,
    /// All at the same time. The Kubernetes API is unavailable during the swap.
    AllAtOnce,
}

/// Which control-plane nodes are rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The unhealthy one. The others stay where they are, and the upgrade waits for the operator.
    #[default]
    Node,
    /// All nodes.
    All,
}

/// When automatic changes may begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = maintenance_rules()))]
pub struct Maintenance {
    /// When automatic updates and `auto` sizes may begin: days and hours in UTC. A window from a later to an earlier hour spans
    /// midnight. Without it, updates begin at any time, and sizes change only with the next image. Other edits of the spec begin
    /// at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::window", example = &"Sat 02:00-06:00")]
    pub window: Option<String>,
    /// Whether the controller upgrades the cluster when a newer image is supported that can replace its own. Then leave `image`
    /// out: the current image is in `status.resolved`.
    pub auto_update: bool,
}

fn maintenance_rules() -> Vec<Value> {
    vec![rule(
        "!has(self.window) || self.window.size() < 11 || \
         self.window.substring(self.window.size() - 11, self.window.size() - 6) != self.window.substring(self.window.size() - 5)",
        "the window has no length",
    )]
}

/// The default of the property of control-plane nodes.
fn every() -> String {
    "6h".to_owned()
}
