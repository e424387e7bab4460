//! What the other control nodes know of this node's data disk, asked before etcd starts.
//!
//! A peer's member of etcd knows best. While that is not up, as when all nodes start together, its agent tells what the
//! member knew last: each node keeps that on its data disk. So an old copy is recognized although no etcd runs yet, and
//! etcd starts once one other node has answered: alone it could do nothing but lead another one astray. Only where
//! nobody answers for minutes, as behind a firewall that keeps agents apart, it starts unasked.
//!
//! A single control node, and one that was restored alone, has nobody to ask. An old copy of its disk is the whole
//! cluster as it was: consistent in itself, and what came later is lost, as with a restore. Nothing on the disk could
//! tell it from the true one.

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

/// Where an agent tells what its node knows.
pub const PATH: &str = "/v1/disks";

/// How long a peer may take to answer, times the timeout factor. A node that is off does not answer at all.
const ASKING: Duration = Duration::from_secs(2);

/// The certificate that a peer is asked with is good for so long before and after this node's time: clocks may differ
/// after a long time without power.
const SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// What a node knows of the data disks of all, itself included: kept on its data disk, and told to its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDisks {
    nodes: BTreeMap<String, NodeRecord>,
}

impl Entry for KnownDisks {
    const FILE: &'static str = "known-disks.json";
    const WHAT: &'static str = "what is known of the nodes' data disks";
}

impl KnownDisks {
    /// What the own member knows, for later.
    ///
    /// # Errors
    /// It does not answer, or the file system's.
    pub fn remember(etcd: &EtcdClient, records: &Records) -> anyhow::Result<()> {
        let nodes = node_record::list(etcd).context("looking what is known of the data disks")?.into_iter().collect();
        records.begin_entry(&Self { nodes }).map(drop)
    }

    /// What the node `own` tells: what it remembers of the others, and of itself what its disk says now.
    pub fn for_peers(own: &str, identity: &Identity, build: &str, records: &Records) -> anyhow::Result<Self> {
        let mut known = records.entry::<Self>()?.unwrap_or_default();
        known.nodes.insert(own.to_owned(), NodeRecord::of_disk(identity, build, records)?);
        Ok(known)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing stands against it.
    True,
    /// It is not the node's true disk.
    Refused(Findings),
    /// None of the others answers.
    Unknown,
}

/// Asks the peers and decides whether the disk is the node's true one.
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

/// Whether etcd on this node needs another one's: not if it is the only one, or was restored alone and no node has
/// joined it since.
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

/// Asks all peers at once. One that does not answer is passed over.
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

/// Asks a peer's agent, as an administrator. One whose image does not know of the question knows nothing.
fn ask_agent(peer: &ControlNode, pki: &Path, timeout: Duration) -> anyhow::Result<NodeRecords> {
    // Whoever holds the authority's key may sign for this one question; the certificate is kept nowhere.
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
    fn a_node_with_nobody_to_ask_goes_by_its_own_disk_and_one_with_peers_waits_for_one() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut three = three_nodes();
        // Nobody answers there.
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
    fn what_the_members_know_is_remembered_and_told_with_what_the_own_disk_says_now() {
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
