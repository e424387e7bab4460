//! How the cluster tells a node's data disk from its copies. Each node writes facts of its disk to etcd, and [asks the
//! others](super::peers) for them before its etcd starts. Otherwise etcd would admit a member with old data once, and then
//! panic.
//!
//! The record of a node is also the proof that it has joined. It is written in the last step of forming, and again each minute.
//!
//! A counter is raised on the disk first and in the cluster after that. Therefore the cluster's counter is never higher
//! than that of the true disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use contract::bios_uuid::BiosUuid;
use contract::codes;
use contract::finding::Finding;
use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::records::{DiskCounter, Records};
use crate::host::disk::Identity;
use crate::intake::config::ControlPlane;

/// The prefix of the nodes' keys, which end in the nodes' names.
const PREFIX: &str = "/kaas/nodes/";

/// How long this node's member may take, times the timeout factor.
const TELLING: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// GPT disk GUID of the data disk.
    pub disk: Uuid,
    /// How many VMs have taken it over.
    pub generation: u64,
    /// BIOS UUID of the VM that holds it, or held it last.
    pub holder: Option<BiosUuid>,
    /// Build identifier of the image that this VM runs.
    pub build: String,
    /// Never falls while the disk is in use.
    pub counter: u64,
    /// The snapshot from which its etcd member was last restored, if any.
    pub restored: Option<Epoch>,
    /// Whether a swap is prepared or not committed: the node may have another image soon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The swap that is being prepared, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Uuid>,
}

/// A restored cluster of etcd members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    pub token: String,
    /// The time when it began, in RFC 3339 and UTC.
    pub at: String,
}

impl From<RestoreRecord> for Epoch {
    fn from(restored: RestoreRecord) -> Self {
        Self { token: restored.token, at: restored.at }
    }
}

impl NodeRecord {
    /// The facts that the disk itself has.
    pub fn of_disk(identity: &Identity, build: &str, records: &Records) -> anyhow::Result<Self> {
        Ok(Self {
            disk: identity.disk,
            generation: identity.generation,
            holder: identity.holder.or_else(|| last_holder(identity)),
            build: build.to_owned(),
            counter: records.disk_counter()?.counter,
            restored: records.entry::<RestoreRecord>()?.map(Epoch::from),
            open: identity.swap.is_some(),
            swap: None,
        })
    }
}

fn last_holder(identity: &Identity) -> Option<BiosUuid> {
    let swap = identity.swap.as_ref()?;
    swap.released.as_ref().unwrap_or(&swap.from).vm
}

/// The records that one peer has, by the nodes' names.
pub type NodeRecords = Vec<(String, NodeRecord)>;

/// The nodes with a record at the member behind `etcd`. They have joined the cluster, with any image. In a `restored` cluster,
/// only nodes that have announced themselves since. A record in the snapshot may be of a former node, which has the name of one
/// that is awaited.
pub fn joined(etcd: &EtcdClient, restored: Option<&Epoch>) -> anyhow::Result<BTreeSet<String>> {
    let since = |record: &serde_json::Result<NodeRecord>| match (restored, record) {
        (None, _) => true,
        (Some(epoch), Ok(record)) => record.restored.as_ref().is_some_and(|theirs| theirs.token == epoch.token),
        (Some(_), Err(_)) => false,
    };
    Ok(records(etcd)?.into_iter().filter(|(_, record)| since(record)).map(|(name, _)| name).collect())
}

/// The records at the member behind `etcd`. A record that cannot be parsed is left out: a newer image may have written it.
pub fn list(etcd: &EtcdClient) -> anyhow::Result<NodeRecords> {
    Ok(records(etcd)?.into_iter().filter_map(|(name, record)| Some((name, record.ok()?))).collect())
}

/// The nodes other than `own` that are being swapped, or upgraded to another Kubernetes, by the member behind `etcd`. A
/// record that cannot be parsed is an error: the state of that node is then unknown.
pub fn others_under_way(etcd: &EtcdClient, own: &str) -> anyhow::Result<Vec<String>> {
    under_way(records(etcd)?, own)
}

fn under_way(records: Vec<(String, serde_json::Result<NodeRecord>)>, own: &str) -> anyhow::Result<Vec<String>> {
    let mut others = Vec::new();
    for (name, record) in records.into_iter().filter(|(name, _)| name != own) {
        let record = record.with_context(|| format!("reading the record of {name}"))?;
        others.extend(record.swap.map(|_| name));
    }
    Ok(others)
}

fn records(etcd: &EtcdClient) -> anyhow::Result<Vec<(String, serde_json::Result<NodeRecord>)>> {
    let named =
        |(key, value): (String, Vec<u8>)| Some((key.strip_prefix(PREFIX)?.to_owned(), serde_json::from_slice(&value)));
    Ok(etcd.list(PREFIX)?.into_iter().filter_map(named).collect())
}

/// Whether every control-plane node runs the image with this build and has committed it. Pure.
pub fn settled(config: &ControlPlane, known: &NodeRecords, build: &str) -> bool {
    config.cluster.control_nodes.iter().all(|node| {
        let mut records_of_node = known.iter().filter(|(name, _)| *name == node.name);
        records_of_node.any(|(_, record)| record.build == build && !record.open && record.swap.is_none())
    })
}

/// The restored cluster that a node joins, from the records of a member: the latest one. `None` if it was never restored.
pub fn epoch(known: &NodeRecords) -> Option<&Epoch> {
    known.iter().filter_map(|(_, record)| record.restored.as_ref()).max_by(|one, other| one.at.cmp(&other.at))
}

/// Whether a disk may join the cluster. `answers` has the name of each peer that answered, and its records. Pure.
pub fn judge(node: &str, disk: &NodeRecord, answers: &[(String, NodeRecords)]) -> Result<(), Finding> {
    for (peer, known) in answers {
        let of = |name: &str| known.iter().find(|(known, _)| known == name).map(|(_, record)| record);
        let epoch = of(peer).and_then(|record| record.restored.as_ref());
        if let Some(epoch) = epoch
            && disk.restored.as_ref().is_none_or(|own| own.token != epoch.token && own.at < epoch.at)
        {
            return Err(codes::DISK_SUPERSEDED.finding(
                "data disk",
                format!(
                    "the cluster's store was restored from a snapshot at {} ({peer} says), and this disk holds what was \
                     before",
                    epoch.at
                ),
                format!(
                    "Restore the same snapshot here (`kaas-agent restore FILE --confirm CLUSTER --as CODE`), or replace \
                     this node: `kaas-agent replace-member {node}` on {peer}"
                ),
            ));
        }
        let Some(cluster) = of(node) else { continue };
        // A record in the snapshot is of the disk that the node had then, not of the disk with the restored store.
        let token = |record: &NodeRecord| record.restored.as_ref().map(|epoch| epoch.token.clone());
        if disk.restored.is_some() && token(cluster) != token(disk) {
            continue;
        }
        if let Some(finding) = against(node, disk, cluster, peer) {
            return Err(finding);
        }
    }
    Ok(())
}

fn against(node: &str, disk: &NodeRecord, cluster: &NodeRecord, peer: &str) -> Option<Finding> {
    let found = "Power this VM off and detach the disk; attach the disk that the node used last. If that one is lost:";
    let action = format!("{found} `kaas-agent replace-member {node}` on {peer}, with a blank disk here");
    if cluster.disk != disk.disk {
        let seen = format!("{peer} knows {node} with another data disk ({})", cluster.disk);
        return Some(codes::DISK_SUPERSEDED.finding("data disk", seen, action));
    }
    if cluster.generation > disk.generation || cluster.counter > disk.counter {
        let seen = format!(
            "{peer} has seen it at generation {}, count {}; it is at generation {}, count {}: an old copy",
            cluster.generation, cluster.counter, disk.generation, disk.counter
        );
        return Some(codes::DISK_STALE.finding("data disk", seen, action));
    }
    if cluster.generation == disk.generation
        && let (Some(theirs), Some(ours)) = (cluster.holder, disk.holder)
        && theirs != ours
    {
        let seen =
            format!("{peer} has seen it at the same generation in the VM with BIOS UUID {theirs}: this is a copy");
        return Some(codes::DISK_CLONED.finding("data disk", seen, action));
    }
    None
}

#[derive(Clone)]
pub struct Announcer {
    pub node: ControlNode,
    pub pki: PathBuf,
    pub root: PathBuf,
    pub disk: PathBuf,
    pub build: String,
    /// How long this node's member may take.
    pub timeout: Duration,
}

impl Announcer {
    pub fn new(config: &ControlPlane, pki: &Path, root: &Path, disk: &Path, build: &str) -> anyhow::Result<Self> {
        Ok(Self {
            node: config.control_node()?.clone(),
            pki: pki.to_owned(),
            root: root.to_owned(),
            disk: disk.to_owned(),
            build: build.to_owned(),
            timeout: config.timeout(TELLING),
        })
    }

    /// Raises the counter on the disk, then writes the record to the cluster, with the swap that is being prepared. If
    /// etcd refuses the write, the counter is raised nevertheless.
    pub fn announce(&self, swap: Option<Uuid>) -> anyhow::Result<()> {
        let records = Records::new(&self.root);
        let counter = records.disk_counter()?.counter + 1;
        records.save_disk_counter(DiskCounter { counter })?;
        let slots = crate::host::disk::Slots::read(&self.disk).context("reading the identity")?;
        let identity = slots.newest().context("the data disk has lost its identity")?;
        let record = NodeRecord { swap, ..NodeRecord::of_disk(identity, &self.build, &records)? };
        let etcd = EtcdClient::new(&self.node, &self.pki, self.timeout)?;
        etcd.put(&format!("{PREFIX}{}", self.node.name), &serde_json::to_vec(&record)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::disk::{DiskState, Swap, fixture};
    use contract::swap::VmImage;

    fn identity() -> Identity {
        Identity { holder: None, state: DiskState::Formed, ..fixture::identity() }
    }

    fn disk() -> NodeRecord {
        NodeRecord {
            disk: Uuid::from_u128(1),
            generation: 3,
            holder: Some(BiosUuid::from_u128(0xa)),
            build: "b".into(),
            counter: 100,
            restored: None,
            open: false,
            swap: None,
        }
    }

    fn epoch(token: &str, at: &str) -> Option<Epoch> {
        Some(Epoch { token: token.into(), at: at.into() })
    }

    /// The code that a disk is refused with, if cp2 has this record of `cp1`, and `restored` in its own.
    fn verdict(own: &NodeRecord, cluster: Option<NodeRecord>, restored: Option<Epoch>) -> Option<String> {
        let mut known = vec![("cp2".to_owned(), NodeRecord { restored, disk: Uuid::from_u128(2), ..disk() })];
        known.extend(cluster.map(|cluster| ("cp1".to_owned(), cluster)));
        judge("cp1", own, &[("cp2".to_owned(), known)]).err().map(|finding| finding.code)
    }

    #[test]
    fn the_cluster_knows_a_disk_from_its_copies() {
        let own = disk();
        let at = |generation, counter| Some(NodeRecord { generation, counter, ..disk() });
        let table = [
            ("as it was told last", at(3, 100), None),
            ("cut off before it was told", at(3, 99), None),
            ("taken over since", at(2, 100), None),
            ("never told", None, None),
            ("used after the copy was made", at(3, 101), Some("disk.stale")),
            ("taken over after the copy was made", at(4, 100), Some("disk.stale")),
            ("an old copy that was taken over here", at(2, 101), Some("disk.stale")),
        ];
        for (what, cluster, expected) in table {
            assert_eq!(verdict(&own, cluster, None).as_deref(), expected, "{what}");
        }
        let vm = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_000a);
        let read = |holder: BiosUuid| NodeRecord { holder: Some(holder), ..disk() };
        let known = vec![("cp2".to_owned(), read(vm.swapped()))];
        assert_eq!(judge("cp2", &read(vm), &[("cp1".to_owned(), known)]), Ok(()), "the same VM in the other order");
        let elsewhere = NodeRecord { holder: Some(BiosUuid::from_u128(0xb)), ..disk() };
        assert_eq!(verdict(&own, Some(elsewhere.clone()), None).as_deref(), Some("disk.cloned"));
        assert_eq!(verdict(&own, Some(NodeRecord { generation: 2, ..elsewhere.clone() }), None), None);
        assert_eq!(verdict(&NodeRecord { holder: None, ..disk() }, Some(elsewhere), None), None);
        let other = NodeRecord { disk: Uuid::from_u128(9), counter: 1, generation: 1, ..disk() };
        assert_eq!(verdict(&own, Some(other), None).as_deref(), Some("disk.superseded"));
    }

    /// A disk is judged as it was found, before this VM takes it.
    #[test]
    fn released_disk_is_judged_by_its_last_holder() {
        let (a, b) = (BiosUuid::from_u128(0xa), BiosUuid::from_u128(0xb));
        let user = |vm| VmImage { vm: Some(vm), version: "1.0.0".into(), build: "b".into() };
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        records.save_disk_counter(DiskCounter { counter: 100 }).unwrap();
        let found = |released: Option<BiosUuid>| {
            let swap = Swap {
                id: Uuid::from_u128(0xa),
                from: user(a),
                to: None,
                released: released.map(user),
                forced: false,
                publisher: None,
            };
            let identity = Identity { generation: 3, holder: None, swap: Some(swap), ..identity() };
            NodeRecord::of_disk(&identity, "b", &records).unwrap()
        };
        let in_cluster = |generation, holder| Some(NodeRecord { generation, holder: Some(holder), ..disk() });
        let table = [
            ("as the former VM left it", None, in_cluster(3, a), None),
            ("as the new VM left it", Some(b), in_cluster(3, b), None),
            ("another VM has the same generation", None, in_cluster(3, b), Some("disk.cloned")),
            ("another VM has taken it since", None, in_cluster(4, b), Some("disk.stale")),
            ("taken over and cut before the cluster knew", Some(b), in_cluster(2, a), None),
        ];
        for (what, released, cluster, expected) in table {
            assert_eq!(verdict(&found(released), cluster, None).as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn a_disk_from_before_a_restore_is_refused() {
        let (early, late) = ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z");
        let with = |restored| NodeRecord { restored, ..disk() };
        let table = [
            (None, epoch("t", early), Some("disk.superseded")),
            (epoch("t", early), epoch("t", early), None),
            // The other nodes restore one after the other, each at its own time.
            (epoch("t", early), epoch("t", late), None),
            (epoch("s", early), epoch("t", late), Some("disk.superseded")),
            // This disk was restored, the peer's not yet.
            (epoch("t", late), epoch("s", early), None),
            (epoch("t", late), None, None),
        ];
        for (own, theirs, expected) in table {
            let said = verdict(&with(own.clone()), None, theirs.clone());
            assert_eq!(said.as_deref(), expected, "{own:?} {theirs:?}");
        }
    }

    /// All nodes were lost. New ones restore a snapshot that has records of their former disks.
    #[test]
    fn snapshots_records_do_not_refuse_new_disks() {
        let (early, late) = ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z");
        let own = NodeRecord { restored: epoch("t", late), ..disk() };
        let lost = |restored| NodeRecord { disk: Uuid::from_u128(9), counter: 900, restored, ..disk() };
        for former in [None, epoch("s", early)] {
            assert_eq!(verdict(&own, Some(lost(former.clone())), former.clone()), None, "{former:?}");
            // The peer has announced since that it was restored.
            assert_eq!(verdict(&own, Some(lost(former)), epoch("t", late)), None);
        }
        // Another disk that the restored cluster knows is the node's true one.
        let said = verdict(&own, Some(lost(epoch("t", late))), epoch("t", late));
        assert_eq!(said.as_deref(), Some("disk.superseded"));
        // A copy from after the restore is found as usual.
        let copied = NodeRecord { counter: 101, ..own.clone() };
        assert_eq!(verdict(&own, Some(copied), epoch("t", late)).as_deref(), Some("disk.stale"));
    }

    #[test]
    fn unreadable_record_does_not_count_as_idle() {
        let told = |swap: Option<u128>| Ok(NodeRecord { swap: swap.map(Uuid::from_u128), ..disk() });
        let named = |name: &str, record| (name.to_owned(), record);
        let all = |third| vec![named("cp1", told(Some(1))), named("cp2", told(None)), named("cp3", third)];
        assert_eq!(under_way(all(told(None)), "cp1").unwrap(), Vec::<String>::new());
        assert_eq!(under_way(all(told(Some(2))), "cp1").unwrap(), ["cp3"]);
        let error = under_way(all(serde_json::from_str("{}")), "cp1").unwrap_err();
        assert_eq!(error.to_string(), "reading the record of cp3");
    }

    #[test]
    fn replacement_belongs_to_the_restored_cluster() {
        let at = |restored| ("cp".to_owned(), NodeRecord { restored, ..disk() });
        let (early, late) = (epoch("s", "2026-11-21T10:00:00Z"), epoch("t", "2026-11-21T11:00:00Z"));
        let known = vec![at(None), at(late.clone()), at(early)];
        let joined = super::epoch(&known).cloned();
        assert_eq!((&joined, super::epoch(&known[..1].to_vec())), (&late, None));
        // With the epoch the node is admitted when it restarts. Without it, the disk would count as one from before.
        assert_eq!(verdict(&NodeRecord { restored: joined, ..disk() }, None, late.clone()), None);
        assert_eq!(verdict(&disk(), None, late).as_deref(), Some("disk.superseded"));
    }

    type Change = fn(&mut NodeRecord);

    #[test]
    fn addons_wait_for_the_last_node() {
        let config = crate::intake::config::fixture::three_nodes();
        let all = |change: Change| -> NodeRecords {
            let mut known: NodeRecords = ["node1", "node2", "node3"].map(|name| (name.to_owned(), disk())).into();
            change(&mut known[2].1);
            known
        };
        let table: [(&str, Change, bool); 4] = [
            ("all the same", |_| {}, true),
            ("one has the former image", |one| one.build = "a".into(), false),
            ("one may still go back", |one| one.open = true, false),
            ("one is to be swapped", |one| one.swap = Some(Uuid::from_u128(1)), false),
        ];
        for (what, change, expected) in table {
            assert_eq!(settled(&config, &all(change), "b"), expected, "{what}");
        }
        assert!(!settled(&config, &all(|_| {})[..2].to_vec(), "b"), "one has never told");
        assert!(settled(&crate::intake::config::fixture::one_node(), &all(|_| {}), "b"));
    }

    #[test]
    fn disk_without_answers_is_not_refused() {
        assert!(judge("cp1", &disk(), &[]).is_ok());
        assert!(judge("cp1", &disk(), &[("cp2".into(), vec![])]).is_ok());
    }

    #[test]
    fn the_record_is_as_documented() {
        let record = NodeRecord { restored: epoch("t", "2026-11-21T10:00:00Z"), ..disk() };
        let text = serde_json::to_value(&record).unwrap();
        for field in ["disk", "generation", "holder", "build", "counter", "restored"] {
            assert!(text.get(field).is_some(), "{field}");
        }
        assert!(text.get("swap").is_none());
        assert_eq!(serde_json::from_value::<NodeRecord>(text).unwrap(), record);
    }

    #[test]
    fn counter_is_saved_before_the_announcement() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut config = crate::intake::config::fixture::one_node();
        crate::cluster::etcd::fake::off(&mut config, root.path());
        let disk = root.path().join("disk");
        std::fs::File::create(&disk).unwrap().set_len(8 << 20).unwrap();
        crate::host::disk::slots::write(&disk, &identity()).unwrap();
        let announcer = Announcer::new(&config, root.path(), root.path(), &disk, "b").unwrap();
        let error = announcer.announce(None).unwrap_err();
        crate::cluster::etcd::fake::is_off(&config, &format!("{error:#}"));
        assert_eq!(records.disk_counter().unwrap(), DiskCounter { counter: 1 });
    }
}
