//! `IPPool`: the addresses of a subnet for nodes, endpoints and Services.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::{Condition, reasons};
use super::network::{AddressRange, apart};
use super::rules::{at, fixed, number, rule};
use super::shapes;

/// Addresses of one subnet.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kaas.local",
    version = "v1alpha1",
    kind = "IPPool",
    plural = "ippools",
    doc = "Addresses of one subnet for nodes, endpoints and Services. Each address in use is a PoolAddress.",
    derive = "PartialEq",
    status = "IPPoolStatus",
    category = "kaas",
    shortname = "ipp",
    validation = (
        "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
        "the name is no DNS label of at most 63 characters: its addresses have it as a label"
    ),
    printcolumn(name = "Subnet", type_ = "string", json_path = ".spec.subnet"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = pool_rules()))]
pub struct IPPoolSpec {
    /// The subnet, by its first address and prefix length, a /8 to a /30. It cannot change.
    #[schemars(schema_with = "shapes::subnet", example = &"192.168.10.0/24")]
    pub subnet: String,
    /// The addresses that can be assigned, all in the subnet. An address in use that is no longer in a range stays in use. A
    /// condition names it.
    #[schemars(length(min = 1, max = 16))]
    pub ranges: Vec<AddressRange>,
    /// Addresses of the subnet that no cluster gets, in a range or not. None is assigned, and a cluster that names one is
    /// rejected. Name the other hosts of the subnet, such as further routers. Reserved in any case are the gateways of all pools,
    /// and the DNS servers, nodes and virtual IP of the control cluster. The vCenter of each Provider is also reserved, with the
    /// addresses in `status.serverAddresses`. A cluster that has such an address keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::reserved", extend("x-kubernetes-list-type" = "set"))]
    pub reserved: Vec<String>,
    /// How many addresses of this pool the clusters of one namespace may have for endpoints and Services (virtual IPs) together.
    /// Addresses that they name in its subnet count too. Addresses of nodes do not count and are not limited by it: a Provider
    /// limits those. Without it there is no limit. One cluster may then take 256 for Services for its life, and nodes of other
    /// namespaces wait. A cluster keeps the addresses that it has, even if this value is lowered. Claims at the same moment may
    /// exceed it by a few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16777214))]
    pub vips_per_namespace: Option<u32>,
    /// The default gateway, if the network has one. It applies to nodes that are created later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4", example = &"192.168.10.1")]
    pub gateway: Option<String>,
    /// DNS servers for nodes here, if their cluster names none. They apply to nodes that are created later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::addresses", example = ["192.168.10.2"])]
    pub dns_servers: Vec<String>,
    /// Search domains for nodes here, if their cluster names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shapes::domains", example = ["example.com"])]
    pub search_domains: Vec<String>,
}

fn pool_rules() -> Vec<Value> {
    let outside = format!(
        "!isIP(range.first) || !isIP(range.last) || {gateway} < {} || {gateway} > {}",
        number("range.first"),
        number("range.last"),
        gateway = format_args!("({})", number("self.gateway")),
    );
    vec![
        fixed("subnet", "the subnet of a pool stays: make another pool"),
        at(
            "ranges",
            "!isCIDR(self.subnet) || self.ranges.all(range, !isIP(range.first) || !isIP(range.last) || \
             (cidr(self.subnet).containsIP(range.first) && cidr(self.subnet).containsIP(range.last)))",
            "a range is not inside the subnet",
        ),
        at("ranges", apart("self.ranges", "")["rule"].as_str().unwrap_or_default(), "two ranges share an address"),
        rule(
            "!has(self.gateway) || !isCIDR(self.subnet) || !isIP(self.gateway) || \
             cidr(self.subnet).containsIP(self.gateway)",
            "the gateway is not inside the subnet",
        ),
        rule(
            format!(
                "!has(self.gateway) || !isIP(self.gateway) || (has(self.reserved) && self.gateway in self.reserved) || \
                 self.ranges.all(range, {outside})"
            ),
            "the gateway is inside a range: name it under reserved, or a node gets it",
        ),
    ]
}

/// The state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IPPoolStatus {
    /// The generation of the spec that was evaluated.
    #[schemars(range(min = 0))]
    pub observed_generation: i64,
    /// Whether addresses are available, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::condition::list")]
    pub conditions: Vec<Condition>,
    /// How many addresses can be assigned.
    #[schemars(range(min = 0))]
    pub total: i64,
    /// How many of them are in use.
    #[schemars(range(min = 0))]
    pub used: i64,
}

reasons! {
    /// Why a condition of a pool has its status.
    IPPoolReason:
    /// Addresses are available.
    Ready {
        /// Some addresses are free.
        AddressesFree = True,
        /// No address is free: add a range.
        Exhausted = False for operator helps "add a range to `spec.ranges`",
        /// A range is in another pool as well; the message names it. Neither pool assigns addresses until one of them is changed.
        Overlaps = False for operator helps "change `spec.ranges` of one of them",
        /// The addresses were not counted yet.
        NotCounted = Unknown,
    }
    /// All addresses in use are in the pool's ranges.
    Consistent {
        /// No address in use is outside the ranges.
        AllInRanges = True,
        /// Some addresses are no longer in a range; the message names them. They stay in use until their nodes are deleted.
        OutsideRanges = False helps "add them to `spec.ranges`, or delete their nodes",
    }
}
