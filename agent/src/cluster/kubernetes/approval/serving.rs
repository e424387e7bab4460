//! The serving certificates of workers' kubelets, which the API server verifies. A request is right if it names the node that
//! asks, at the one address of its Node object. That must also be the address in the node's record: the first one that was
//! approved since it joined. No two nodes have the same.

use std::net::Ipv4Addr;

use super::node::{Node, reserved_address, reserved_name};
use super::records::{WorkerRecord, WorkerRecords};
use super::{Refusal, Spec};
use crate::cluster::kubernetes::NODES;
use crate::intake::config::ControlPlane;

/// The signer of such a certificate.
pub(super) const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// The uses of such a certificate.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

/// Judges a request by the nodes of the cluster and their records. Returns the record that must be written before it is approved,
/// if that is new.
///
/// A node writes its own Node object, so nothing in it gives the node another's address, or takes an address from another node.
/// While the records are incomplete, the older one of two nodes with one address keeps it.
pub(super) fn judge(
    spec: &Spec,
    config: &ControlPlane,
    nodes: &[Node],
    records: Option<&WorkerRecords>,
) -> Result<Option<(String, WorkerRecord)>, Refusal> {
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
    let news = match records.filter(|records| records.are_complete()) {
        None => {
            let has_it = |other: &&Node| other.name() != name && other.address() == Some(own.into());
            if let Some(other) = nodes.iter().filter(has_it).find(|other| !node.is_older_than(other)) {
                let other = other.name();
                return Err(Refusal::Now(format!("node {other}, which is older, has its address {own} too")));
            }
            // Its address is recorded with those of all earlier workers.
            let record = records.and_then(|records| records.record_of(node).ok());
            record.and_then(|record| Some(served(node, record)).filter(|noted| noted != record))
        }
        Some(records) => known(node, own, nodes, records)?,
    };
    match asked.addresses.iter().find(|address| **address != own) {
        Some(other) => Err(Refusal::Now(format!("it names {other}, and its Node object has the address {own}"))),
        None => Ok(news.map(|record| (name.to_owned(), record))),
    }
}

/// Whether the cluster knows the node by this address, or may do so from now on: then the record that must be written.
fn known(node: &Node, own: Ipv4Addr, nodes: &[Node], records: &WorkerRecords) -> Result<Option<WorkerRecord>, Refusal> {
    let record = records.record_of(node).map_err(Refusal::now)?;
    match record.address {
        Some(known) if known == own => {}
        Some(known) => {
            return Err(Refusal::Now(format!(
                "its Node object has the address {own}, and the cluster knows it by {known}: give it that one again, or replace it"
            )));
        }
        None => {
            if let Some(other) = records.holder(own, node.name(), nodes) {
                return Err(Refusal::Now(format!("its Node object has the address {own}, which is node {other}'s")));
            }
        }
    }
    let noted = WorkerRecord { address: Some(own), ..served(node, record) };
    Ok((noted != *record).then_some(noted))
}

/// The record of a worker whose kubelet has a serving certificate: its token is used.
fn served(node: &Node, record: &WorkerRecord) -> WorkerRecord {
    WorkerRecord { uid: Some(node.uid().to_owned()), token: None, key: None, ..record.clone() }
}
