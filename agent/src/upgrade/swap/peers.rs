//! Asks the other control-plane nodes about this node's data disk, before etcd starts.
//!
//! A peer's member of etcd knows best. If it does not run, as when all nodes start together, the peer's agent returns
//! the records that it keeps on its data disk. Therefore an old copy is recognized before any etcd runs. This node's
//! etcd starts once one other node has answered, because alone it can only mislead another one. If no peer answers for
//! minutes, for example behind a firewall, etcd starts without an answer.
//!
//! A single control-plane node, and one that was restored alone, has no peers. An old copy of its disk is the whole cluster at
//! an earlier time. It is consistent, and later changes are lost, as with a restore. Nothing on the disk could tell it from the
//! true one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::finding::Findings;
use contract::ports;
use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};

use super::node_record::{self, NodeRecord, NodeRecords};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::pki::groups::ADMINISTRATORS;
use crate::cluster::pki::{CertificateAuthorities, Leaf};
use crate::cluster::records::{Entry, Records};
use crate::host::at_once;
use crate::host::disk::Identity;
use crate::host::https::Client;
use crate::intake::config::ControlPlane;

pub const PATH: &str = "/v1/disks";

/// How long a peer may take to answer, times the timeout factor. A node that is off does not answer at all.
const ASKING: Duration = Duration::from_secs(2);

/// The client certificate for a peer is valid for so long before and after this node's time. Clocks may differ after a long
/// time without power.
const SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// The records of all nodes' data disks, this node included. They are kept on its data disk, and returned to its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDisks {
    nodes: BTreeMap<String, NodeRecord>,
}

impl Entry for KnownDisks {
    const FILE: &'static str = "known-disks.json";
    const WHAT: &'static str = "the records of the nodes' data disks";
}

impl KnownDisks {
    /// Saves the records of this node's member for later.
    pub fn remember(etcd: &EtcdClient, records: &Records) -> anyhow::Result<()> {
        let nodes = node_record::list(etcd).context("reading the records of the data disks")?.into_iter().collect();
        records.begin_entry(&Self { nodes }).map(drop)
    }

    /// The records for peers of the node `own`: the saved ones of the others, and a current one of its disk.
    pub fn for_peers(own: &str, identity: &Identity, build: &str, records: &Records) -> anyhow::Result<Self> {
        let mut known = records.entry::<Self>()?.unwrap_or_default();
        known.nodes.insert(own.to_owned(), NodeRecord::of_disk(identity, build, records)?);
        Ok(known)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    True,
    Refused(Findings),
    /// None of the others answers.
    Unknown,
}

pub fn judge(
    config: &ControlPlane,
    identity: &Identity,
    build: &str,
    records: &Records,
    pki: &Path,
) -> anyhow::Result<Verdict> {
    let own = NodeRecord::of_disk(identity, build, records)?;
    let answers = ask(config, pki);
    if answers.is_empty() && has_peers(config, records)? {
        return Ok(Verdict::Unknown);
    }
    let judged = node_record::judge(&config.node.name, &own, &answers);
    Ok(judged.map_or_else(|finding| Verdict::Refused(finding.into()), |()| Verdict::True))
}

/// Whether etcd on this node needs another one's. It does not if it is the only one. It also does not if it was restored alone
/// and no node has joined since.
fn has_peers(config: &ControlPlane, records: &Records) -> anyhow::Result<bool> {
    if config.peers().next().is_none() {
        return Ok(false);
    }
    let Some(restored) = records.entry::<RestoreRecord>()?.filter(|restored| restored.members.len() == 1) else {
        return Ok(true);
    };
    let known = records.entry::<KnownDisks>()?.unwrap_or_default();
    let others = known.nodes.iter().filter(|(name, _)| **name != config.node.name);
    let mut epochs = others.filter_map(|(_, record)| record.restored.as_ref());
    Ok(epochs.any(|epoch| epoch.token == restored.token))
}

/// Asks all peers at once. Those that do not answer are left out.
fn ask(config: &ControlPlane, pki: &Path) -> Vec<(String, NodeRecords)> {
    let timeout = config.timeout(ASKING);
    let asked = at_once::ask(config.peers(), |peer| {
        let member = EtcdClient::new(peer, pki, timeout).and_then(|etcd| node_record::list(&etcd));
        member.or_else(|no_member| ask_agent(peer, pki, timeout).map_err(|error| error.context(no_member)))
    });
    let mut answers = Vec::new();
    for (peer, answer) in asked {
        match answer {
            Ok(known) => answers.push((peer.name.clone(), known)),
            Err(error) => log::info!("{} cannot be asked about this data disk: {error:#}", peer.name),
        }
    }
    answers
}

/// Asks a peer's agent, as an administrator. A peer whose image lacks the route has no records.
fn ask_agent(peer: &ControlNode, pki: &Path, timeout: Duration) -> anyhow::Result<NodeRecords> {
    // This node has the CA's key, so it signs a certificate for this one request, which is not stored.
    let authority = CertificateAuthorities::read(pki)?.kubernetes;
    let leaf = Leaf { group: Some(ADMINISTRATORS[0].to_owned()), ..Leaf::client("kaas-agent:disks") };
    let own = leaf.issue_for(&authority, SystemTime::now() - SKEW, 2 * SKEW)?;
    let server = SocketAddr::from((peer.address, ports::NODE));
    let client = Client::new(server, &authority.certificate, &own.certificate, own.key.expose(), timeout)?;
    let answer = client.get(PATH)?;
    match answer.code {
        200 => {
            let known: KnownDisks = serde_json::from_slice(&answer.body).context("understanding the agent's answer")?;
            Ok(known.nodes.into_iter().collect())
        }
        404 => Ok(NodeRecords::new()),
        code => anyhow::bail!("the agent answers {code}: {}", String::from_utf8_lossy(&answer.body).trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::host::disk::{DiskState, fixture};
    use crate::intake::config::fixture::{one_node, three_nodes};

    fn identity() -> Identity {
        Identity { node: "node1".into(), state: DiskState::Formed, ..fixture::identity() }
    }

    #[test]
    fn only_nodes_with_peers_wait_for_answers() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut three = three_nodes();
        // No peer answers at these addresses.
        for (node, low) in three.cluster.control_nodes.iter_mut().zip(1..) {
            node.address = [127, 255, 255, low].into();
        }
        let judged = |config: &ControlPlane| judge(config, &identity(), "b", &records, root.path()).unwrap();
        assert_eq!((judged(&one_node()), judged(&three)), (Verdict::True, Verdict::Unknown));
        let restored = |members: &[&str]| {
            let members = members.iter().map(|&name| name.to_owned()).collect();
            let at = "2026-11-21T10:00:00Z".to_owned();
            records.begin_entry(&RestoreRecord { token: "t".into(), members, at }).unwrap();
        };
        restored(&["node1", "node2", "node3"]);
        assert_eq!(judged(&three), Verdict::Unknown);
        restored(&["node1"]);
        assert_eq!(judged(&three), Verdict::True);
        // Another node was replaced since, and belongs to the restored cluster.
        let of_epoch = NodeRecord::of_disk(&identity(), "b", &records).unwrap();
        records.begin_entry(&KnownDisks { nodes: [("node2".to_owned(), of_epoch)].into() }).unwrap();
        assert_eq!(judged(&three), Verdict::Unknown);
    }

    #[test]
    fn answers_have_saved_records_and_the_own_disk() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut config = three_nodes();
        let _etcd = FakeEtcd::start(&mut config, root.path());
        let etcd = EtcdClient::new(config.control_node().unwrap(), root.path(), Duration::from_secs(5)).unwrap();
        let record = |counter| NodeRecord { counter, ..NodeRecord::of_disk(&identity(), "b", &records).unwrap() };
        for (name, counter) in [("node1", 7), ("node2", 9)] {
            etcd.put(&format!("/kaas/nodes/{name}"), &serde_json::to_vec(&record(counter)).unwrap()).unwrap();
        }
        KnownDisks::remember(&etcd, &records).unwrap();
        let told = KnownDisks::for_peers("node1", &identity(), "c", &records).unwrap();
        assert_eq!(told.nodes.keys().collect::<Vec<_>>(), ["node1", "node2"]);
        assert_eq!((told.nodes["node1"].counter, &*told.nodes["node1"].build), (0, "c"));
        assert_eq!(told.nodes["node2"], record(9));
    }
}
