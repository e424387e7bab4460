//! The serving certificates of workers' kubelets, which the API server verifies. A request is right if it names the node
//! that asks, at the one address that its Node object has, and if that is an address that a worker may have.

use super::node::{Node, reserved_address, reserved_name};
use super::{Refusal, Spec};
use crate::cluster::kubernetes::NODES;
use crate::intake::config::ControlPlane;

/// Who signs such a certificate.
pub(super) const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// What such a certificate may be used for.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

/// Judges a request by the nodes that the cluster has.
///
/// A node writes its own Node object, so nothing in there gives it what is known to be another's. Of two nodes with one
/// address the one that was there before is right.
pub(super) fn judge(spec: &Spec, config: &ControlPlane, nodes: &[Node]) -> Result<(), Refusal> {
    let name = spec.username.strip_prefix("system:node:").filter(|_| spec.is_of(NODES));
    let name = name.ok_or_else(|| Refusal::never("it is no node that asks"))?;
    if let Some(whose) = reserved_name(name, config) {
        return Err(Refusal::Never(format!("no worker has the name {name}, {whose}")));
    }
    let asked = spec.asked(&USAGES)?;
    if asked.common_name != spec.username || asked.organization != NODES {
        return Err(Refusal::never("its subject is another one's"));
    }
    if let Some(other) = asked.names.iter().find(|one| *one != name) {
        return Err(Refusal::Never(format!("it names {other}")));
    }
    if asked.addresses.is_empty() {
        return Err(Refusal::never("it names no address"));
    }
    let node = nodes.iter().find(|node| node.name() == name).ok_or_else(|| Refusal::now("there is no such node"))?;
    let own =
        node.only_address().ok_or_else(|| Refusal::now("its Node object has not exactly one InternalIP, of IPv4"))?;
    if let Some(whose) = reserved_address(own, config) {
        return Err(Refusal::Now(format!("its Node object has the address {own}, {whose}")));
    }
    let has_it = |other: &&Node| other.name() != name && other.address() == Some(own.into());
    if let Some(other) = nodes.iter().filter(has_it).find(|other| !node.is_older_than(other)) {
        return Err(Refusal::Now(format!("node {}, which was there before, has its address {own} too", other.name())));
    }
    match asked.addresses.iter().find(|address| **address != own) {
        Some(other) => Err(Refusal::Now(format!("it names {other}, and its Node object has the address {own}"))),
        None => Ok(()),
    }
}
