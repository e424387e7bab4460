//! `Provider`: a vCenter that runs the VMs of tenant clusters, and the namespaces that may use it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::reference::Reference;
use super::rules::{at, fixed, rule};
use super::shapes;

/// A vCenter, and how to reach it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Provider",
    doc = "A vCenter that runs the VMs of tenant clusters, the places in it, and the namespaces whose clusters may use it.",
    derive = "PartialEq",
    status = "ProviderStatus",
    category = "kaas",
    shortname = "prov",
    validation = (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
        "the name is no DNS label of at most 63 characters"
    ),
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.vsphere.server"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Free",
        type_ = "integer",
        json_path = ".status.freeStorageGiB",
        description = "GiB free on the datastores of all zones"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "(self.type == 'vSphere') == has(self.vsphere)",
    "give vsphere with the type vSphere"
)]))]
pub struct ProviderSpec {
    /// Type of the Provider.
    #[serde(rename = "type")]
    pub kind: ProviderType,
    /// The vCenter. Required with the type `vSphere`.
    #[serde(default, rename = "vsphere", skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VSphere>,
    /// The Secret in the namespace `kaas-system` with `username` and `password`. It is read again after each change. It cannot be
    /// deleted while clusters use the Provider.
    pub credentials_ref: Reference,
    /// The namespaces whose clusters may use the Provider.
    #[serde(default)]
    pub allowed_namespaces: AllowedNamespaces,
    /// Limits for all clusters here together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Type of a Provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderType {
    /// A vCenter 7, 8 or 9.
    #[serde(rename = "vSphere")]
    VSphere,
}

/// A vCenter. All names but the data center's are paths below the data center, as vSphere Client shows them. In names, write `/`,
/// `\` and `%` as `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = vsphere_rules()))]
pub struct VSphere {
    /// Host name or address, with a port if it is not 443.
    #[schemars(schema_with = "shapes::server", example = &"vcenter.example.com")]
    pub server: String,
    /// The CAs that have signed the vCenter's certificate, in PEM. Without this and without `thumbprint`, the CAs that the
    /// control cluster's nodes trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::pem")]
    pub ca_bundle: Option<String>,
    /// SHA-256 of the vCenter's certificate, in place of a CA: hexadecimal, with colons or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::thumbprint")]
    pub thumbprint: Option<String>,
    /// Inventory path of the data center. It cannot change.
    #[schemars(schema_with = "shapes::inventory", example = &"DC1")]
    pub datacenter: String,
    /// The folder in which the controller creates a folder for each cluster. It must exist. It cannot change.
    #[schemars(schema_with = "shapes::inventory", example = &"clusters/tenants")]
    pub folder: String,
    /// The folder of image templates. By default, `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"templates")]
    pub templates_folder: Option<String>,
    /// How system disks of VMs are created from a template.
    #[serde(default)]
    pub clones: Clones,
    /// Whether the control-plane nodes of a cluster are kept on different hosts.
    #[serde(default = "yes")]
    pub anti_affinity: bool,
    /// Restart priority of control-plane nodes in vSphere HA. By default, that of the vSphere cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_priority: Option<RestartPriority>,
    /// Key of the registered extension that vSphere Client shows as the manager of the VMs, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub managed_by: Option<String>,
    /// The places for VMs. A zone is a fault domain: its parts fail together.
    #[schemars(length(min = 1, max = 16), transform = shapes::keyed(&["name"]))]
    pub zones: Vec<Zone>,
    /// The networks for VMs.
    #[schemars(length(min = 1, max = 64), transform = shapes::keyed(&["name"]))]
    pub networks: Vec<ProviderNetwork>,
    /// Maximum number of concurrent requests, for all clusters together.
    #[serde(default = "requests")]
    #[schemars(range(min = 1, max = 64))]
    pub requests: u32,
    /// Maximum number of concurrent clones, for all clusters together.
    #[serde(default = "clones_at_once")]
    #[schemars(range(min = 1, max = 64))]
    pub clones_at_once: u32,
    /// How long one task of the vCenter may take, in minutes, before it counts as stuck.
    #[serde(default = "task_minutes")]
    #[schemars(range(min = 1, max = 1440))]
    pub task_minutes: u32,
}

fn vsphere_rules() -> Vec<Value> {
    let stays = "VMs are found by it: make another Provider";
    vec![
        rule("!has(self.caBundle) || !has(self.thumbprint)", "give one of caBundle and thumbprint, or neither"),
        fixed("datacenter", stays),
        fixed("folder", stays),
        at(
            "zones",
            "oldSelf.zones.all(before, self.zones.all(zone, zone.name != before.name || \
             (zone.cluster == before.cluster && has(zone.datastore) == has(before.datastore) && \
             (!has(zone.datastore) || zone.datastore == before.datastore))))",
            "a zone keeps its cluster and its datastore: add a zone in its place",
        ),
    ]
}

/// How a VM's system disk is created from its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Clones {
    /// As a difference to the template's disk: takes seconds. The template must exist as long as the VM.
    #[default]
    Linked,
    /// As a full copy.
    Full,
}

/// Restart priority in vSphere HA after a host failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPriority {
    /// After VMs of medium priority.
    Low,
    /// The default of vSphere HA.
    Medium,
    /// Before VMs of medium priority.
    High,
    /// Before all other VMs.
    Highest,
}

/// A place for VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule("has(self.datastore)", "name the datastore that VMs are put on")]))]
pub struct Zone {
    /// Name of the zone. Nodes there carry it as `topology.kubernetes.io/zone`.
    #[schemars(schema_with = "shapes::label", example = &"a")]
    pub name: String,
    /// The vSphere cluster, or a stand-alone host.
    #[schemars(schema_with = "shapes::inventory", example = &"cluster-1")]
    pub cluster: String,
    /// A resource pool of the cluster. By default, its root resource pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"tenants")]
    pub resource_pool: Option<String>,
    /// The datastore. Required. A datastore cluster is rejected: VMs cannot be placed on it as a whole.
    // Optional in the schema: a later version may have a storage policy in its place, and this version has to read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"vsan-1")]
    pub datastore: Option<String>,
}

/// A network for VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "(self.addressing == 'Pool') == has(self.poolRef)",
    "give poolRef with the addressing Pool, and not with DHCP"
)]))]
pub struct ProviderNetwork {
    /// The name that clusters and pools use.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub name: String,
    /// The port group. It must exist.
    #[schemars(schema_with = "shapes::inventory", example = &"VM Network 12")]
    pub port_group: String,
    /// The source of nodes' addresses.
    pub addressing: Addressing,
    /// The IPPool of the subnet. Required with the addressing `Pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
}

/// The source of nodes' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Addressing {
    /// From an IPPool.
    Pool,
    /// From a DHCP server of the network with reservations. For workers only.
    #[serde(rename = "DHCP")]
    Dhcp,
}

/// The namespaces whose clusters may use a Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "self.from == 'Listed' || !has(self.names) || self.names.size() == 0",
    "names go with Listed alone"
)]))]
pub struct AllowedNamespaces {
    /// Selection of namespaces.
    pub from: FromNamespaces,
    /// Names of the namespaces, with `Listed`. Without any, no cluster can be created here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::namespaces", extend("x-kubernetes-list-type" = "set"))]
    pub names: Vec<String>,
}

/// Selection of namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FromNamespaces {
    /// The namespaces in `names`.
    #[default]
    Listed,
    /// All namespaces.
    All,
}

/// Limits for all clusters together. Workers and their replacements count. A missing value means no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Limits {
    /// Nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000), example = 500)]
    pub nodes: Option<u32>,
    /// Virtual processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000), example = 2000)]
    pub processors: Option<u32>,
    /// Memory in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000000), example = 4194304)]
    pub memory_mib: Option<u64>,
}

/// The state of a Provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether the Provider can be used, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The version that the vCenter reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub version: Option<String>,
    /// The vCenter's own identifier. Another vCenter under the same name is not accepted.
    #[serde(rename = "instanceUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub instance_uuid: Option<String>,
    /// The `server` of the spec when its name was last resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::server")]
    pub resolved_server: Option<String>,
    /// The IPv4 addresses that the name of the vCenter had since the spec names it. No cluster gets one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::server_addresses")]
    pub server_addresses: Vec<String>,
    /// Free capacity of each zone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), transform = shapes::keyed(&["name"]))]
    pub zones: Vec<ZoneRoom>,
    /// Free space on the datastores of all zones together, each counted once, in GiB.
    #[serde(rename = "freeStorageGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_storage_gib: Option<i64>,
    /// Number of clusters here.
    #[schemars(range(min = 0))]
    pub clusters: i64,
    /// Number of nodes here.
    #[schemars(range(min = 0))]
    pub nodes: i64,
}

/// Free capacity of a zone, and its place when the first VM was created there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneRoom {
    /// Name of the zone.
    #[schemars(schema_with = "shapes::label")]
    pub name: String,
    /// Free space on its datastore, in GiB.
    #[serde(default, rename = "freeStorageGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_storage_gib: Option<i64>,
    /// Memory for further VMs, in MiB: unreserved in its resource pool, and free on its hosts.
    #[serde(default, rename = "freeMemoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_memory_mib: Option<i64>,
    /// The most processors that a VM may have on one of its hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub host_processors: Option<i64>,
    /// Number of Machines in the zone. As long as there are any, its place cannot change.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub machines: i64,
    /// The vSphere cluster of these Machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory")]
    pub cluster: Option<String>,
    /// The datastore of these Machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory")]
    pub datastore: Option<String>,
}

fn yes() -> bool {
    true
}

fn requests() -> u32 {
    8
}

fn clones_at_once() -> u32 {
    8
}

/// The default of the vSphere client.
fn task_minutes() -> u32 {
    30
}

reasons! {
    /// Why a condition of a Provider has its status.
    ProviderReason:
    /// The server answers, and its certificate is trusted.
    Reachable {
        /// The server answers.
        Connected = True,
        /// The server does not answer: check `server`, firewalls between it and the control-plane nodes, and the proxy.
        Unreachable = False helps "check `spec.vsphere.server`, and firewalls between it and the control-plane nodes",
        /// No trusted CA has signed its certificate, or its thumbprint is another one: compare the certificate before you change
        /// either.
        Untrusted = False for operator
            helps "compare the certificate, then correct `spec.vsphere.thumbprint` or `spec.vsphere.caBundle`",
        /// The server is not a vCenter, has an unsupported version, or is another one than before under the same name.
        OtherServer = False for operator helps "correct `spec.vsphere.server`",
        /// The server was not asked yet.
        NotAsked = Unknown,
    }
    /// The account may log in.
    Authenticated {
        /// The account is logged in.
        LoggedIn = True,
        /// The Secret is missing, or lacks `username` or `password`: create it in `kaas-system`.
        SecretMissing = False for operator helps "create the Secret of `spec.credentialsRef` in `kaas-system`",
        /// The vCenter rejects the user or the password. The controller tries again only after the Secret changes, so that the
        /// account is not locked.
        LoginRefused = False for operator helps "correct the Secret of `spec.credentialsRef` in `kaas-system`",
        /// The server is not reached.
        LoginNotAsked as NotReached = Unknown,
    }
    /// All objects of the spec exist, and the account has the privileges that it needs on them.
    Privileged {
        /// Nothing is missing.
        Complete = True,
        /// Privileges are missing; the message names each, and its object. `kaas provider role` prints them all.
        PrivilegesMissing = False for operator helps "`kaas provider role` prints all that are needed",
        /// A data center, cluster, resource pool, folder, datastore or port group of the spec is missing; the message names each.
        ObjectsMissing = False for operator helps "correct `spec.vsphere`, or create them in the vCenter",
        /// The account is not logged in.
        PrivilegesNotAsked as NotLoggedIn = Unknown,
    }
    /// Clusters can be created here.
    Ready {
        /// Clusters can be created here.
        Available = True,
        /// Another condition says what is wrong.
        NotReady = False helps "see `kubectl describe providers`",
        /// A zone with Machines was removed from the spec, or has another cluster or datastore. Restore its former values; the
        /// message has both.
        ZoneInUse = False for operator helps "restore the former values in `spec.vsphere.zones`",
        /// Requests failed so often that none is sent for a while; the message says until when.
        BackingOff = False helps "see Reachable in `kubectl describe providers`",
        /// Something that has to be known is unknown.
        NotKnown = Unknown,
    }
}
