//! The addresses of a Node object (Kubernetes API, `NodeAddress`). A node writes its own, so they count only as far as
//! they harm no other node.

use std::net::IpAddr;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// The addresses at which other nodes reach it.
pub fn internal(addresses: &[Address]) -> impl Iterator<Item = &str> {
    addresses.iter().filter(|one| one.kind == "InternalIP").map(|one| one.address.as_str())
}

/// The address that counts against others: the first one, so that a node cannot keep all others from their own.
pub fn counting(addresses: &[Address]) -> Option<IpAddr> {
    internal(addresses).next()?.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}
