//! The value of a property's text, or its problems.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::codes::Code;
use crate::pod_security::PodSecurity;
use crate::role::Role;
use crate::secret::Secret;

/// One entry of the list of control-plane nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlNode {
    /// Host name, a DNS label.
    pub name: String,
    /// Address on the primary network.
    pub address: Ipv4Addr,
}

/// Where a node has its address from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The operator configures it, with the prefix length of its subnet.
    Static(Ipv4Net),
    /// A DHCP server leases it.
    Dhcp,
}

/// A network behind a gateway other than the default one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network.
    pub network: Ipv4Net,
    /// The gateway, in a subnet of one of the interfaces.
    pub gateway: Ipv4Addr,
}

/// Addresses from a first to a last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRange {
    /// The first one.
    pub first: Ipv4Addr,
    /// The last one: not before the first.
    pub last: Ipv4Addr,
}

impl AddressRange {
    /// Whether an address is in it.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Whether both have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl From<Ipv4Net> for AddressRange {
    fn from(network: Ipv4Net) -> Self {
        Self { first: network.network(), last: network.broadcast() }
    }
}

/// As the property has it: `192.168.10.200-192.168.10.219`.
impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.network, self.gateway)
    }
}

/// A span of time as a property has it: whole minutes, hours or days. It is kept as minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Period(u32);

impl Period {
    const HOUR: u32 = 60;
    const DAY: u32 = 24 * Self::HOUR;

    /// So many minutes.
    pub const fn minutes(count: u16) -> Self {
        Self(count as u32)
    }

    /// So many hours.
    pub const fn hours(count: u16) -> Self {
        Self(count as u32 * Self::HOUR)
    }

    /// So many days.
    pub const fn days(count: u16) -> Self {
        Self(count as u32 * Self::DAY)
    }

    /// How long it is.
    pub fn duration(self) -> Duration {
        Duration::from_secs(u64::from(self.0) * 60)
    }
}

/// As the property has it, in the largest unit that it is a whole number of: `90m`, `6h`, `7d`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(Self::DAY, "d"), (Self::HOUR, "h")];
        let (minutes, unit) =
            units.into_iter().find(|(minutes, _)| self.0.is_multiple_of(*minutes)).unwrap_or((1, "m"));
        write!(f, "{}{unit}", self.0 / minutes)
    }
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// With its prefix, if it has one.
    pub key: String,
    /// May be empty.
    pub value: String,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// With its prefix, if it has one.
    pub key: String,
    /// May be empty.
    #[serde(default)]
    pub value: String,
    /// Its effect on pods that do not tolerate it.
    pub effect: Effect,
}

/// The effect of a taint on pods that do not tolerate it, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// None is put on the node.
    NoSchedule,
    /// None is put on the node as long as there is another one.
    PreferNoSchedule,
    /// None is put on the node, and those that run there leave.
    NoExecute,
}

impl Effect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute];

    /// Kubernetes' word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.name())
    }
}

/// A value whose form is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A name, URL, hash or version.
    Text(String),
    /// A list of names, keys or certificates.
    Texts(Vec<String>),
    /// An address.
    Address(Ipv4Addr),
    /// A list of addresses.
    Addresses(Vec<Ipv4Addr>),
    /// An address with its prefix length, or a range.
    Network(Ipv4Net),
    /// An address with its prefix length, or the word for DHCP.
    AddressSource(AddressSource),
    /// A list of networks.
    Networks(Vec<Ipv4Net>),
    /// Static routes.
    Routes(Vec<Route>),
    /// The list of control-plane nodes.
    ControlNodes(Vec<ControlNode>),
    /// A number.
    Number(u32),
    /// A span of time.
    Period(Period),
    /// A secret.
    Secret(Secret),
    /// The role of a VM in its cluster.
    Role(Role),
    /// The enforced level of the Pod Security Standards.
    PodSecurity(PodSecurity),
    /// Labels of a node.
    Labels(Vec<Label>),
    /// Taints of a node.
    Taints(Vec<Taint>),
    /// Ranges of addresses.
    AddressRanges(Vec<AddressRange>),
    /// True or false.
    Switch(bool),
}

macro_rules! try_from_value {
    ($($variant:ident($type:ty);)*) => {
        $(impl TryFrom<Value> for $type {
            type Error = Value;
            fn try_from(value: Value) -> Result<Self, Value> {
                match value {
                    Value::$variant(inner) => Ok(inner),
                    other => Err(other),
                }
            }
        })*
    };
}

try_from_value! {
    Text(String);
    Texts(Vec<String>);
    Routes(Vec<Route>);
    Address(Ipv4Addr);
    Addresses(Vec<Ipv4Addr>);
    Network(Ipv4Net);
    AddressSource(AddressSource);
    Networks(Vec<Ipv4Net>);
    ControlNodes(Vec<ControlNode>);
    Role(Role);
    PodSecurity(PodSecurity);
    Labels(Vec<Label>);
    Taints(Vec<Taint>);
    Number(u32);
    Period(Period);
    Secret(Secret);
    AddressRanges(Vec<AddressRange>);
    Switch(bool);
}

/// Something wrong with a single value.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of mistake.
    pub code: &'static Code,
    /// The finding, without secrets.
    pub seen: String,
    /// The remedy.
    pub action: String,
}

impl Problem {
    /// A mistake.
    pub fn new(code: &'static Code, seen: impl Into<String>, action: impl Into<String>) -> Self {
        Self { code, seen: seen.into(), action: action.into() }
    }
}

impl From<Problem> for Vec<Problem> {
    fn from(problem: Problem) -> Self {
        vec![problem]
    }
}
