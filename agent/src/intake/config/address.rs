use std::fmt;
use std::net::Ipv4Addr;

use contract::properties::parse::addresses::DHCP;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The source of an interface's address. A static address is saved as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Address {
    Static(Ipv4Net),
    /// A DHCP server leases the address.
    Dhcp {
        /// The lease. `None` before the first one. A worker that has joined never changes its address.
        #[serde(rename = "dhcp")]
        lease: Option<Lease>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address, with the prefix length of its subnet.
    pub address: Ipv4Net,
    /// Time servers, which are used if the form has none.
    #[serde(default)]
    pub ntp_servers: Vec<Ipv4Addr>,
}

impl Address {
    pub fn known(&self) -> Option<Ipv4Net> {
        match self {
            Self::Static(address) => Some(*address),
            Self::Dhcp { lease } => lease.as_ref().map(|lease| lease.address),
        }
    }

    pub fn is_leased(&self) -> bool {
        matches!(self, Self::Dhcp { .. })
    }
}

impl From<Ipv4Net> for Address {
    fn from(address: Ipv4Net) -> Self {
        Self::Static(address)
    }
}

/// In the property's format.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(address) => address.fmt(f),
            Self::Dhcp { .. } => f.write_str(DHCP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_and_leased_addresses_are_saved_and_read() {
        let leased = Lease { address: "10.0.0.21/24".parse().unwrap(), ntp_servers: Vec::new() };
        for (address, saved) in [
            (Address::Static("10.0.0.21/24".parse().unwrap()), r#""10.0.0.21/24""#),
            (Address::Dhcp { lease: None }, r#"{"dhcp":null}"#),
            (Address::Dhcp { lease: Some(leased) }, r#"{"dhcp":{"address":"10.0.0.21/24","ntp_servers":[]}}"#),
        ] {
            assert_eq!(serde_json::to_string(&address).unwrap(), saved);
            assert_eq!(serde_json::from_str::<Address>(saved).unwrap(), address);
        }
        assert!(serde_json::from_str::<Address>(r#""dhcp""#).is_err());
    }
}
