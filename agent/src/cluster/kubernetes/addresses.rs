//! The addresses of a Node object (Kubernetes API, `NodeAddress`). A node writes its own: what they say is believed only as far
//! as it harms nobody else.

use std::net::IpAddr;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// Those by which other nodes reach it.
pub fn internal(addresses: &[Address]) -> impl Iterator<Item = &str> {
    addresses.iter().filter(|one| one.kind == "InternalIP").map(|one| one.address.as_str())
}

/// The one that counts against others: the first, so that nobody keeps all others from their own.
pub fn counting(addresses: &[Address]) -> Option<IpAddr> {
    internal(addresses).next()?.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}
