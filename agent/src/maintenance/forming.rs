//! Runs on a first node whose cluster works. Gives nodes that have not joined yet their keys for an hour, and for another hour
//! each time the operator asks. Reports the nodes that it waits for. Once all have joined, it closes the rendezvous for good
//! and erases the deployment secret.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use contract::codes;
use contract::finding::Findings;

use super::job::{Job, SharedFindings};
use crate::cluster::REQUEST;
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::replace;
use crate::cluster::etcd::restore::RestoreRecord;
use crate::cluster::join_window::{self, JoinWindows};
use crate::cluster::records::Records;
use crate::cluster::rendezvous::{Rendezvous, RendezvousRecord, Report};
use crate::intake::config::ControlPlane;
use crate::node::context::NodeContext;
use crate::upgrade::swap::node_record::{self, Epoch};

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let (record, secret) = (node.records.rendezvous()?, node.records.secret()?);
    if !matches!(record, RendezvousRecord::First { .. }) {
        // The power may have been cut between the two writes.
        if matches!(record, RendezvousRecord::Closed { .. }) && secret.is_some() {
            node.records.erase_secret()?;
        }
        return Ok(None);
    }
    let open = match (node.take_rendezvous(), secret) {
        (Some(open), _) => Some(open),
        (None, Some(secret)) => Some(node.open_rendezvous(&secret, record)?),
        (None, None) => None,
    };
    let waiting = FormingJob { config: node.control_plane()?.clone(), pki: node.pki(), root: node.root().to_owned() };
    Ok(Some(Box::new(move |out| match open {
        Some(open) => waiting.for_joins(&open, out),
        None => waiting.without_the_secret(),
    })))
}

struct FormingJob {
    config: ControlPlane,
    pki: PathBuf,
    root: PathBuf,
}

impl FormingJob {
    fn for_joins(&self, open: &Rendezvous, out: &SharedFindings) -> anyhow::Result<Findings> {
        let records = Records::new(&self.root);
        let mut watch = |report: &Report| {
            // If the count fails, the rendezvous hands out nothing.
            let awaited =
                join_window::uptime().and_then(|uptime| JoinWindows::count(&records, uptime)).unwrap_or_default();
            out.set(findings(report, &awaited));
            ControlFlow::Continue(())
        };
        open.wait_for_joins(&mut || self.joined(), &mut watch)?;
        records.erase_secret()?;
        records.forget::<JoinWindows>()?;
        log::info!(
            "all control-plane nodes have joined: the rendezvous is closed for good, the deployment secret is erased"
        );
        Ok(Findings::default())
    }

    /// Without the secret no node can join through this one. Missing nodes must be replaced.
    fn without_the_secret(&self) -> anyhow::Result<Findings> {
        let (records, joined) = (Records::new(&self.root), self.joined()?);
        let record = records.rendezvous()?;
        let awaited: Vec<&str> = record.awaited().into_iter().filter(|name| !joined.contains(*name)).collect();
        if let (Some(cluster), true) = (record.state().cluster(), awaited.is_empty()) {
            records.save_rendezvous(&RendezvousRecord::Closed { cluster })?;
            return Ok(Findings::default());
        }
        let mut findings = Findings::default();
        for name in awaited {
            let seen =
                "it has not joined, and the deployment secret that it would prove is gone from this node's data disk";
            let action = format!("Replace it: `kaas-agent replace-member {name}` on another control-plane node");
            findings.push(codes::SECRET_LOST.finding(name, seen, action).softened());
        }
        Ok(findings)
    }

    /// Nodes that need nothing from this node: those whose join the cluster has recorded, and those that were removed from it.
    /// A removed node comes back with its own code. Without a quorum only the records that this member has count.
    fn joined(&self) -> anyhow::Result<BTreeSet<String>> {
        let etcd = EtcdClient::new(self.config.control_node()?, &self.pki, self.config.timeout(REQUEST))?;
        let restored = Records::new(&self.root).entry::<RestoreRecord>()?.map(Epoch::from);
        let mut joined = node_record::joined(&etcd, restored.as_ref())?;
        match etcd.members() {
            Ok(members) => {
                let removed = self
                    .config
                    .peers()
                    .filter(|peer| !members.iter().any(|member| replace::is_member_of(member, peer)));
                joined.extend(removed.map(|peer| peer.name.clone()));
            }
            Err(error) => log::debug!("looking who is a member: {error:#}"),
        }
        Ok(joined)
    }
}

/// Nodes that have not joined yet, and their problems. The cluster works without them, so none of these findings is an error.
fn findings(report: &Report, awaited: &JoinWindows) -> Findings {
    let mut all = Findings::default();
    for finding in report.findings.iter() {
        all.push(finding.clone().softened());
    }
    for waiting in &report.waiting {
        let subject = format!("{} ({})", waiting.node, waiting.address);
        if !all.iter().any(|finding| finding.subject == subject) {
            let (node, why) = (&waiting.node, &waiting.why);
            let lost =
                format!("if it is lost for good, run `kaas-agent replace-member {node}` on another control-plane node");
            let (seen, action) = match awaited.left(node) {
                Some(left) => (
                    format!(
                        "it has not joined the cluster yet: {why}. For {} min, the deployment secret and its address give the \
                         keys of the cluster's CAs",
                        left.div_ceil(60)
                    ),
                    format!("Power it on; {lost}"),
                ),
                None => (
                    format!("it has not joined the cluster, and the hour for joining is over: {why}"),
                    format!("Run `kaas-agent await {node}` on this node and power it on within an hour; {lost}"),
                ),
            };
            all.push(codes::MEMBER_AWAITED.finding(subject, seen, action));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::kubernetes::PKI;
    use crate::cluster::rendezvous::{self, Proof, Settings};
    use crate::host::files;
    use crate::intake::config::Config;
    use crate::intake::config::fixture::three_nodes;
    use contract::secret::Secret;
    use std::thread;
    use std::time::{Duration, Instant, SystemTime};
    use tempfile::TempDir;

    /// A first node that has handed out keys, and etcd of all three nodes.
    struct First {
        root: TempDir,
        config: ControlPlane,
        etcd: FakeEtcd,
    }

    impl First {
        fn new() -> Self {
            let (root, mut config) = (tempfile::tempdir().unwrap(), three_nodes());
            let etcd = FakeEtcd::start(&mut config, &files::below(root.path(), PKI));
            let first = Self { root, config, etcd };
            first
                .records()
                .save_config(&Config::ControlPlane(first.config.clone()), &Secret::new("secret".into()))
                .unwrap();
            let decided = RendezvousRecord::decide(&first.config.cluster, "node1", SystemTime::now()).unwrap();
            first.records().save_rendezvous(&decided).unwrap();
            first
        }

        fn records(&self) -> Records {
            Records::new(self.root.path())
        }

        fn waiting(&self) -> FormingJob {
            let root = self.root.path();
            FormingJob { config: self.config.clone(), pki: files::below(root, PKI), root: root.to_owned() }
        }

        fn open(&self) -> Rendezvous {
            let proof = Proof::of(&self.records().secret().unwrap().unwrap());
            let settings =
                Settings { pace: Duration::from_millis(10), ..Settings::new(self.config.clone(), proof, "image") };
            let records = self.records();
            let keep = Box::new(move |record: &RendezvousRecord| records.save_rendezvous(record));
            JoinWindows::begin(&self.records(), &["node2", "node3"], join_window::uptime().unwrap()).unwrap();
            Rendezvous::open(settings, self.records().rendezvous().unwrap(), keep).unwrap()
        }

        /// A node announces its disk to the cluster. The content does not matter.
        fn joins(&self, node: &str) {
            self.tells(node, b"{}");
        }

        fn tells(&self, node: &str, record: &[u8]) {
            let first = &self.config.cluster.control_nodes[0];
            let etcd = EtcdClient::new(first, &files::below(self.root.path(), PKI), REQUEST).unwrap();
            etcd.put(&format!("/kaas/nodes/{node}"), record).unwrap();
        }

        /// Waits until the job reports that it waits for these nodes.
        fn awaits(&self, out: &SharedFindings, names: &[&str]) {
            let until = Instant::now() + Duration::from_secs(600);
            loop {
                let findings = out.findings();
                let awaited: Vec<&str> = findings.iter().filter_map(|one| one.subject.split(' ').next()).collect();
                if awaited == names {
                    assert!(!findings.has_errors(), "{findings}");
                    return;
                }
                assert!(Instant::now() < until, "still {findings}");
                thread::yield_now();
            }
        }

        fn is_over(&self) -> bool {
            let closed = matches!(self.records().rendezvous().unwrap(), RendezvousRecord::Closed { .. });
            assert_eq!(closed, self.records().secret().unwrap().is_none());
            closed
        }
    }

    #[test]
    fn secret_is_kept_until_the_last_join() {
        let first = First::new();
        let out = SharedFindings::default();
        thread::scope(|scope| {
            let (waiting, open) = (first.waiting(), first.open());
            let out = out.clone();
            let job = scope.spawn({
                let out = out.clone();
                move || waiting.for_joins(&open, &out)
            });
            first.awaits(&out, &["node2", "node3"]);
            first.joins("node1");
            first.joins("node2");
            first.awaits(&out, &["node3"]);
            let said = out.findings().to_string();
            assert!(said.contains("member.awaited") && said.contains("replace-member node3"), "{said}");
            assert!(
                said.contains(" min, the deployment secret and its address give the keys of the cluster's CAs"),
                "{said}"
            );
            assert!(!first.is_over());
            first.joins("node3");
            assert!(job.join().unwrap().unwrap().is_empty());
        });
        assert!(first.is_over());
        assert_eq!(first.records().entry::<JoinWindows>().unwrap(), None);
    }

    #[test]
    fn finding_tells_how_to_await_another_hour() {
        let (three, mut report) = (three_nodes(), Report::default());
        let node = &three.cluster.control_nodes[2];
        let why = crate::cluster::rendezvous::WaitReason::NoAnswer;
        report.waiting.push(rendezvous::AwaitedNode { node: node.name.clone(), address: node.address, why });
        let said = findings(&report, &JoinWindows::default()).to_string();
        assert!(said.contains("the hour for joining is over: no answer"), "{said}");
        assert!(said.contains("Run `kaas-agent await node3` on this node") && !said.contains("CAs"), "{said}");
    }

    #[test]
    fn removed_node_is_awaited_without_a_quorum_only() {
        let first = First::new();
        first.joins("node2");
        first.etcd.lose_list();
        assert_eq!(first.waiting().joined().unwrap(), ["node2".to_owned()].into());
        drop(first);
        let first = First::new();
        first.joins("node2");
        first.etcd.expel(3);
        let waiting = first.waiting();
        assert_eq!(waiting.joined().unwrap(), ["node2".to_owned(), "node3".to_owned()].into());
        waiting.for_joins(&first.open(), &SharedFindings::default()).unwrap();
        assert!(first.is_over());
    }

    /// The snapshot of a former cluster has nodes with the same names.
    #[test]
    fn restored_cluster_awaits_members_of_the_former_one() {
        let first = First::new();
        let record = |token: Option<&str>| {
            serde_json::json!({"disk": uuid::Uuid::nil(), "generation": 1, "holder": null, "build": "b", "counter": 7,
                "restored": token.map(|token| serde_json::json!({"token": token, "at": "2026-11-21T10:00:00Z"}))})
            .to_string()
        };
        first.tells("node2", record(None).as_bytes());
        first.tells("node3", record(Some("of before")).as_bytes());
        assert_eq!(first.waiting().joined().unwrap(), ["node2".to_owned(), "node3".to_owned()].into());
        let restored =
            RestoreRecord { token: "of now".into(), members: vec!["node1".into()], at: "2026-11-22T10:00:00Z".into() };
        first.records().begin_entry(&restored).unwrap();
        assert!(first.waiting().joined().unwrap().is_empty());
        first.tells("node2", record(Some("of now")).as_bytes());
        assert_eq!(first.waiting().joined().unwrap(), ["node2".to_owned()].into());
    }

    #[test]
    fn missing_nodes_are_replaced_without_the_secret() {
        let first = First::new();
        first.records().erase_secret().unwrap();
        first.joins("node2");
        let findings = first.waiting().without_the_secret().unwrap();
        assert_eq!(findings.iter().map(|one| one.code.as_str()).collect::<Vec<_>>(), ["deployment-secret.lost"]);
        assert!(findings.to_string().contains("replace-member node3") && !findings.has_errors(), "{findings}");
        first.joins("node3");
        assert!(first.waiting().without_the_secret().unwrap().is_empty());
        assert!(first.is_over());
    }
}
