//! What a property's text becomes, or what is wrong with it.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::codes::Code;
use crate::pod_security::PodSecurity;
use crate::role::Role;
use crate::secret::Secret;

/// One entry of the control node list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlNode {
    /// Host name, a DNS label.
    pub name: String,
    /// Address on the primary network.
    pub address: Ipv4Addr,
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
    /// A list of networks.
    Networks(Vec<Ipv4Net>),
    /// Static routes.
    Routes(Vec<Route>),
    /// The control node list.
    ControlNodes(Vec<ControlNode>),
    /// A number.
    Number(u32),
    /// A secret.
    Secret(Secret),
    /// What a VM is in its cluster.
    Role(Role),
    /// What pods may ask for.
    PodSecurity(PodSecurity),
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
    Networks(Vec<Ipv4Net>);
    ControlNodes(Vec<ControlNode>);
    Role(Role);
    PodSecurity(PodSecurity);
    Number(u32);
    Secret(Secret);
    AddressRanges(Vec<AddressRange>);
    Switch(bool);
}

/// Something wrong with a single value.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of mistake it is.
    pub code: &'static Code,
    /// What was seen. Never holds a secret.
    pub seen: String,
    /// What to do about it.
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
