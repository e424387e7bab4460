//! `Provider`: what runs the VMs of tenant clusters, and who may use it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::reference::Reference;
use super::rules::{at, fixed, rule};
use super::shapes;

/// What runs VMs, and how it is reached.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "Provider",
    doc = "What runs the VMs of tenant clusters: a vCenter, the places in it, and the namespaces whose clusters may be there.",
    derive = "PartialEq",
    status = "ProviderStatus",
    category = "kaas",
    shortname = "prov",
    validation = (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
        "the name is no DNS label of at most 63 characters"
    ),
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.vsphere.server"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Free",
        type_ = "integer",
        json_path = ".status.freeStorageGiB",
        description = "GiB free on the datastores of all zones"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = provider_rules()))]
pub struct ProviderSpec {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: ProviderType,
    /// The vCenter; of the type `vSphere`.
    #[serde(default, rename = "vsphere", skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VSphere>,
    /// The Secret in the namespace `kaas-system` with `username` and `password`. It is read anew whenever it changes, and kept
    /// while clusters use the Provider.
    pub credentials_ref: Reference,
    /// Whose clusters may be here.
    #[serde(default)]
    pub allowed_namespaces: AllowedNamespaces,
    /// What all clusters here may have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

fn provider_rules() -> Vec<Value> {
    vec![rule("(self.type == 'vSphere') == has(self.vsphere)", "give vsphere with the type vSphere")]
}

/// What runs VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderType {
    /// A vCenter 7, 8 or 9.
    #[serde(rename = "vSphere")]
    VSphere,
}

/// A vCenter. All names but the data center's are paths below it, as vSphere Client shows them; in names `/`, `\` and `%` are
/// written `%2f`, `%5c` and `%25`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = vsphere_rules()))]
pub struct VSphere {
    /// Host name or address, with a port if it is another one than 443.
    #[schemars(schema_with = "shapes::server", example = &"vcenter.example.com")]
    pub server: String,
    /// The authorities that have signed the vCenter's certificate, in PEM. Without this and without `thumbprint` those are taken
    /// that the control cluster's nodes trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::pem")]
    pub ca_bundle: Option<String>,
    /// SHA-256 of the vCenter's certificate, in place of an authority: hexadecimal, with colons or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::thumbprint")]
    pub thumbprint: Option<String>,
    /// The data center: its inventory path. It stays.
    #[schemars(schema_with = "shapes::inventory", example = &"DC1")]
    pub datacenter: String,
    /// The folder below which each cluster gets a folder of its own. It is there already. It stays.
    #[schemars(schema_with = "shapes::inventory", example = &"clusters/tenants")]
    pub folder: String,
    /// The folder of image templates, if not `folder`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"templates")]
    pub templates_folder: Option<String>,
    /// How system disks of VMs are made from a template.
    #[serde(default)]
    pub clones: Clones,
    /// Whether the control nodes of a cluster are kept on different hosts.
    #[serde(default = "yes")]
    pub anti_affinity: bool,
    /// When vSphere HA starts control nodes after their host has failed, if not as the vSphere cluster says for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_priority: Option<RestartPriority>,
    /// The key of the extension that vSphere Client names as the one whose the VMs are, if one is registered for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub managed_by: Option<String>,
    /// Where VMs are put. A zone is a fault domain: what fails together.
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub zones: Vec<Zone>,
    /// What VMs may be on.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub networks: Vec<ProviderNetwork>,
    /// How many requests are under way at once, for all clusters together.
    #[serde(default = "requests")]
    #[schemars(range(min = 1, max = 64))]
    pub requests: u32,
    /// How many VMs are cloned at once, for all clusters together.
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

/// How a VM's system disk is made from its template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Clones {
    /// As a difference to the template's, which stays for as long as the VM does: made in seconds.
    #[default]
    Linked,
    /// As a copy.
    Full,
}

/// When vSphere HA starts control nodes after their host has failed, if not as the vSphere cluster says for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPriority {
    /// After others.
    Low,
    /// As VMs of which nothing is said.
    Medium,
    /// Before others.
    High,
    /// Before all others.
    Highest,
}

/// A place for VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = zone_rules()))]
pub struct Zone {
    /// Its name; nodes there carry it as `topology.kubernetes.io/zone`.
    #[schemars(schema_with = "shapes::label", example = &"a")]
    pub name: String,
    /// The vSphere cluster, or a host without one.
    #[schemars(schema_with = "shapes::inventory", example = &"cluster-1")]
    pub cluster: String,
    /// A resource pool of it, if not its topmost one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"tenants")]
    pub resource_pool: Option<String>,
    /// The datastore. It has to be named. A datastore cluster is refused: no VM can be put onto the whole.
    // Not required by the schema: a later version may take a storage policy in its place, and this one has to read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory", example = &"vsan-1")]
    pub datastore: Option<String>,
}

fn zone_rules() -> Vec<Value> {
    vec![rule("has(self.datastore)", "name the datastore that VMs are put on")]
}

/// A network for VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = provider_network_rules()))]
pub struct ProviderNetwork {
    /// The name that clusters and pools choose it by.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub name: String,
    /// The port group, which is there already.
    #[schemars(schema_with = "shapes::inventory", example = &"VM Network 12")]
    pub port_group: String,
    /// Where nodes have their addresses from.
    pub addressing: Addressing,
    /// The IPPool of the subnet; with the addressing `Pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
}

fn provider_network_rules() -> Vec<Value> {
    vec![rule(
        "(self.addressing == 'Pool') == has(self.poolRef)",
        "give poolRef with the addressing Pool, and not with DHCP",
    )]
}

/// Where nodes have their addresses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Addressing {
    /// From an IPPool.
    Pool,
    /// From a DHCP server of the network, which reserves them. For workers alone.
    #[serde(rename = "DHCP")]
    Dhcp,
}

/// Whose clusters may be on a Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = namespace_rules()))]
pub struct AllowedNamespaces {
    /// Which namespaces.
    #[serde(default)]
    pub from: FromNamespaces,
    /// Their names; with `Listed`. None means that no cluster may be made here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::namespaces", extend("x-kubernetes-list-type" = "set"))]
    pub names: Vec<String>,
}

fn namespace_rules() -> Vec<Value> {
    vec![rule("self.from == 'Listed' || !has(self.names) || self.names.size() == 0", "names go with Listed alone")]
}

/// Which namespaces are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FromNamespaces {
    /// Those that are listed.
    #[default]
    Listed,
    /// All.
    All,
}

/// What clusters may have together, workers and those that take others' places included. What is left out has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10000), example = 500)]
    pub nodes: Option<u32>,
    /// Virtual processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000), example = 2000)]
    pub processors: Option<u32>,
    /// Memory in MiB.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000000), example = 4194304)]
    pub memory_mib: Option<u64>,
}

/// What is known of a Provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The generation of the spec that this was judged by.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether it can be used, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// The vCenter's own version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::word")]
    pub version: Option<String>,
    /// The vCenter's own identifier: another one under the same name is not taken for it.
    #[serde(default, rename = "instanceUUID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::uuid")]
    pub instance_uuid: Option<String>,
    /// What is free in each zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub zones: Vec<ZoneRoom>,
    /// What is free on the datastores of all zones together, each counted once, in GiB.
    #[serde(default, rename = "freeStorageGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free_storage_gib: Option<i64>,
    /// How many clusters are here.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub clusters: i64,
    /// How many nodes are here.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub nodes: i64,
}

/// What is free in a zone, and where it was when the first VM was put there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneRoom {
    /// Its name.
    #[schemars(schema_with = "shapes::label")]
    pub name: String,
    /// Free on its datastore, in GiB.
    #[serde(default, rename = "freeStorageGiB")]
    #[schemars(range(min = 0))]
    pub free_storage_gib: i64,
    /// Not reserved in its resource pool, in MiB.
    #[serde(default, rename = "freeMemoryMiB")]
    #[schemars(range(min = 0))]
    pub free_memory_mib: i64,
    /// How many Machines are in it: as long as there are any, it stays where it is.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub machines: i64,
    /// The vSphere cluster that they are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::inventory")]
    pub cluster: Option<String>,
    /// The datastore that they are on.
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

/// As the vSphere client has it by itself.
fn task_minutes() -> u32 {
    30
}

reasons! {
    /// Why a condition of a Provider is as it is.
    ProviderReason:
    /// The server answers and proves itself.
    Reachable {
        /// It answers.
        Connected = True,
        /// It does not answer: look at `server`, at firewalls between it and the control nodes, and at the proxy.
        Unreachable = False,
        /// It proves itself by none of the authorities, or has another thumbprint than is given: compare the certificate before
        /// you change either.
        Untrusted = False,
        /// It is no vCenter, of a version that is not supported, or another one than before under the same name.
        OtherServer = False,
        /// Nobody has asked yet.
        NotAsked = Unknown,
    }
    /// The account may log in.
    Authenticated {
        /// It is logged in.
        LoggedIn = True,
        /// The Secret is not there, or lacks `username` or `password`: make it in `kaas-system`.
        SecretMissing = False,
        /// User or password is refused. It is not tried again before the Secret changes, so that the account is not locked.
        LoginRefused = False,
        /// The server is not reached.
        LoginNotAsked as NotReached = Unknown,
    }
    /// All that the spec names is there, and the account has the privileges that it needs on it.
    Privileged {
        /// Nothing is missing.
        Complete = True,
        /// Privileges are missing; the message names each, and on what. `kaas provider role` prints them all.
        PrivilegesMissing = False,
        /// A data center, cluster, resource pool, folder, datastore or port group of the spec is not there; the message names
        /// each.
        ObjectsMissing = False,
        /// The account is not logged in.
        PrivilegesNotAsked as NotLoggedIn = Unknown,
    }
    /// Clusters can be made here.
    Ready {
        /// They can.
        Available = True,
        /// Another condition says what is in the way.
        NotReady = False,
        /// A zone that Machines are in was taken out of the spec, or is there with another cluster or datastore: put it back as
        /// it was; the message has both.
        ZoneInUse = False,
        /// Requests failed so often that none is sent for a while; the message says until when.
        BackingOff = False,
        /// Something that has to be known is not.
        NotKnown = Unknown,
    }
}
