//! The addresses of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::Reference;
use super::rules::{at, fixed, number, one_of, rule};
use super::shapes;

/// Addresses from a first to a last one, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = range_rules()))]
pub struct AddressRange {
    /// The first address.
    #[schemars(schema_with = "shapes::ipv4", example = &"192.168.10.20")]
    pub first: String,
    /// The last address; the first one for a single address.
    #[schemars(schema_with = "shapes::ipv4", example = &"192.168.10.99")]
    pub last: String,
}

fn range_rules() -> Vec<Value> {
    let (first, last) = (number("self.first"), number("self.last"));
    vec![rule(
        format!("!isIP(self.first) || !isIP(self.last) || {first} <= {last}"),
        "the last address comes before the first one",
    )]
}

/// The ranges of a list are disjoint.
pub(super) fn apart(list: &str, message: &str) -> Value {
    let (before, after) = (
        format!("{} < {}", number("one.last"), number("other.first")),
        format!("{} < {}", number("other.last"), number("one.first")),
    );
    rule(format!("{list}.all(one, {list}.exists_one(other, !({before}) && !({after})))"), message)
}

/// Address of the cluster's Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [one_of("address", "poolRef", "give one of address and poolRef")]))]
pub struct Endpoint {
    /// An unused IPv4 address in the subnet of the control-plane nodes. They hand it over to each other (VRRP). It need not be in
    /// a range of their IPPool. No other cluster gets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shapes::ipv4", example = &"192.168.10.10")]
    pub address: Option<String>,
    /// The IPPool that the address is taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
}

/// Addresses for Services of the type LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = vip_rules()))]
pub struct ServiceVips {
    /// Unused addresses in the subnet of the workers, at most 256. They need not be in a range of their IPPool. No other cluster
    /// gets them. An edit adds addresses. None can be taken away once control-plane nodes exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub ranges: Option<Vec<AddressRange>>,
    /// The IPPool that addresses are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<Reference>,
    /// How many addresses are taken from the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256), example = 16)]
    pub count: Option<u32>,
}

fn vip_rules() -> Vec<Value> {
    vec![
        one_of("ranges", "poolRef", "give one of ranges and poolRef"),
        rule("has(self.poolRef) == has(self.count)", "give count with poolRef, and with nothing else"),
        apart_if_given("ranges", "two of the ranges share an address"),
    ]
}

fn apart_if_given(field: &str, message: &str) -> Value {
    let mut rule = apart(&format!("self.{field}"), message);
    let text = rule["rule"].as_str().unwrap_or_default().to_owned();
    rule["rule"] = format!("!has(self.{field}) || {text}").into();
    rule
}

/// The network of a cluster's nodes, and the addresses inside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = network_rules()))]
pub struct Network {
    /// The network of the Provider for control-plane nodes, and for workers of pools that name no other. Its addresses come from
    /// an IPPool: control-plane nodes do not use DHCP. It cannot change.
    #[schemars(schema_with = "shapes::label", example = &"blue")]
    pub name: String,
    /// Address of the Kubernetes API. It cannot change.
    pub endpoint: Endpoint,
    /// IPv4 range of pods, a /8 to a /24. Each node takes a part of it: the default has room for 1,024 nodes. It must not overlap
    /// the subnet of nodes, the services or any network that pods need to reach. It cannot change.
    #[serde(default = "pods")]
    #[schemars(schema_with = "shapes::pods", example = &"10.244.0.0/14")]
    pub pods: String,
    /// Prefix length of each node's part of the range of pods: 24 for 253 pod addresses, 25 for 125. An image that lacks the
    /// property `node-prefix` forms clusters with 24 only. It cannot change.
    #[serde(default = "node_prefix")]
    #[schemars(range(min = 24, max = 25))]
    pub node_prefix: u8,
    /// IPv4 range of Services, a /12 to a /24. It must not overlap the subnet of nodes or the pods. It cannot change.
    #[serde(default = "services")]
    #[schemars(schema_with = "shapes::services", example = &"10.96.0.0/16")]
    pub services: String,
    /// Addresses for Services of the type LoadBalancer. Without any, the cluster has no load balancer.
    #[serde(default, rename = "serviceVIPs", skip_serializing_if = "Option::is_none")]
    pub service_vips: Option<ServiceVips>,
    /// UDP port of the pod network between nodes. Set another one if the physical network or NSX uses 8472 itself. It cannot
    /// change.
    #[serde(default = "vxlan_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub vxlan_port: u16,
}

fn network_rules() -> Vec<Value> {
    let endpoint = "!has(self.endpoint.address) || !isIP(self.endpoint.address)";
    vec![
        fixed("name", "the network of a cluster stays: make another cluster there"),
        fixed("endpoint", "the endpoint of a cluster stays: its certificates and its nodes name it"),
        fixed("pods", "the range of pods never changes in a cluster"),
        fixed("nodePrefix", "the size of a node's part never changes in a cluster"),
        fixed("services", "the range of services never changes in a cluster"),
        fixed("vxlanPort", "the VXLAN port never changes in a cluster"),
        at(
            "pods",
            "!isCIDR(self.pods) || self.nodePrefix - cidr(self.pods).prefixLength() <= 16",
            "is too large for this nodePrefix: Kubernetes splits a range by 16 bits at most",
        ),
        at(
            "services",
            "!isCIDR(self.pods) || !isCIDR(self.services) || (!cidr(self.pods).containsCIDR(cidr(self.services)) && \
             !cidr(self.services).containsCIDR(cidr(self.pods)))",
            "overlaps the range of pods",
        ),
        at(
            "endpoint",
            format!(
                "{endpoint} || !isCIDR(self.pods) || !isCIDR(self.services) || \
                 (!cidr(self.pods).containsIP(ip(self.endpoint.address)) && \
                 !cidr(self.services).containsIP(ip(self.endpoint.address)))"
            ),
            "is inside the range of pods or services",
        ),
    ]
}

fn pods() -> String {
    "10.244.0.0/14".to_owned()
}

/// The default of Kubernetes.
fn node_prefix() -> u8 {
    24
}

fn services() -> String {
    "10.96.0.0/16".to_owned()
}

/// The default of Linux and Flannel for VXLAN. IANA's port is 4789.
fn vxlan_port() -> u16 {
    8472
}
