//! Admits the replacement of a node. Opens the rendezvous for it, and adds its etcd as a learner once it has its
//! keys. Promotes the learner as soon as it is in sync.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use contract::codes;
use contract::finding::Findings;
use contract::properties::ControlNode;
use uuid::Uuid;

use super::job::{Job, SharedFindings};
use crate::cluster::etcd::client::EtcdClient;
use crate::cluster::etcd::peer_url;
use crate::cluster::etcd::replace::{Admission, Stage, is_member_of};
use crate::cluster::pki::{CertificateAuthorities, MemberBundle};
use crate::cluster::records::Records;
use crate::cluster::rendezvous::{self, Proof, Rendezvous, RendezvousRecord, Report, Settings};
use crate::intake::config::ControlPlane;
use crate::node::context::NodeContext;

/// How long etcd may take to answer, times the timeout factor.
const REQUEST: Duration = Duration::from_secs(10);

const PACE: Duration = Duration::from_secs(2);

pub(super) fn prepare(node: &NodeContext) -> anyhow::Result<Option<Job>> {
    let Some(admission) = node.records.entry::<Admission>()? else { return Ok(None) };
    let record = node.records.rendezvous()?;
    // The first node closes its rendezvous of the forming when all nodes have joined.
    if !matches!(record, RendezvousRecord::Closed { .. }) {
        return Ok(None);
    }
    let cluster = record.state().cluster().context("this node belongs to no cluster")?;
    let config = node.control_plane()?;
    let listed = config.cluster.control_nodes.iter().find(|node| node.name == admission.node);
    let admitting = AdmissionJob {
        node: listed.context("the node is not in the list of control-plane nodes")?.clone(),
        cluster,
        image: node.forming_image(),
        pki: node.pki(),
        root: node.platform.root().to_owned(),
        config: config.clone(),
    };
    Ok(Some(Box::new(move |out| admitting.admit(admission, out).map(|()| Findings::default()))))
}

struct AdmissionJob {
    node: ControlNode,
    cluster: Uuid,
    image: String,
    pki: PathBuf,
    root: PathBuf,
    config: ControlPlane,
}

impl AdmissionJob {
    fn admit(&self, admission: Admission, out: &SharedFindings) -> anyhow::Result<()> {
        if let Stage::Open { proof, until } = &admission.stage
            && !self.hand_over(&admission, proof.clone(), *until, out)?
        {
            return Ok(());
        }
        self.make_member(out)
    }

    fn records(&self) -> Records {
        Records::new(&self.root)
    }

    fn say(&self, out: &SharedFindings, state: &str, more: Findings) {
        let (subject, action) = (self.node.name.clone(), "Nothing is to be done here until it is a member");
        let mut findings: Findings = codes::MEMBER_REPLACING.finding(subject, state, action).into();
        findings.extend(more);
        out.set(findings);
    }

    /// Opens the rendezvous until the node has its keys. False if the code has expired or was replaced by another one.
    fn hand_over(&self, admission: &Admission, proof: Proof, until: u64, out: &SharedFindings) -> anyhow::Result<bool> {
        let expired = || SystemTime::now() >= SystemTime::UNIX_EPOCH + Duration::from_secs(until);
        if expired() {
            self.expire()?;
            return Ok(false);
        }
        let bundle =
            MemberBundle::make(self.cluster, &self.node, &CertificateAuthorities::read(&self.pki)?, SystemTime::now())?;
        let record = RendezvousRecord::Admitting { cluster: self.cluster, bundle: Box::new(bundle), saved: false };
        let keep = keep(&self.root, admission.clone());
        let settings = Settings::new(self.config.clone(), proof, &self.image);
        let rendezvous = Rendezvous::open(settings, record, keep)?;
        let state = format!("the blank node is awaited; its code expires {}", shown(until));
        let mut watch = |report: &Report| {
            self.say(out, &state, report.findings.clone());
            let replaced = self.records().entry::<Admission>().is_ok_and(|now| now.as_ref() != Some(admission));
            if expired() || replaced { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match rendezvous.admit(&mut watch) {
            Ok(()) => Ok(true),
            Err(rendezvous::Error::Stopped) => {
                // The saved record counts: the node may have joined just now.
                drop(rendezvous);
                let now = self.records().entry::<Admission>()?;
                if expired() && now.as_ref() == Some(admission) {
                    self.expire()?;
                }
                Ok(now.is_some_and(|now| now.node == admission.node && now.stage == Stage::HandedOver))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn expire(&self) -> anyhow::Result<()> {
        log::warn!("the code for {} has expired unused", self.node.name);
        self.records().forget::<Admission>()
    }

    /// Adds the node's etcd as a learner and promotes it.
    fn make_member(&self, out: &SharedFindings) -> anyhow::Result<()> {
        let own = self.config.control_node()?;
        let etcd = EtcdClient::new(own, &self.pki, self.config.timeout(REQUEST))?;
        loop {
            match self.further(&etcd) {
                Ok(Some(state)) => self.say(out, &state, Findings::default()),
                Ok(None) => break,
                Err(error) => self.say(out, &format!("it is not a member yet: {error:#}"), Findings::default()),
            }
            if self.records().entry::<Admission>()?.is_none_or(|now| now.stage != Stage::HandedOver) {
                return Ok(());
            }
            thread::sleep(PACE);
        }
        log::info!("{} is a member", self.node.name);
        self.records().forget::<Admission>()
    }

    /// Takes one step and describes it. `None` once the node is a voting member.
    fn further(&self, etcd: &EtcdClient) -> anyhow::Result<Option<String>> {
        let members = etcd.members()?;
        let Some(member) = members.iter().find(|member| is_member_of(member, &self.node)) else {
            etcd.add_learner(&peer_url(&self.node))?;
            log::info!("{} was added as a learner", self.node.name);
            return Ok(Some("it has its keys and was added as a learner".to_owned()));
        };
        if !member.is_learner {
            return Ok(None);
        }
        if member.name.is_empty() {
            return Ok(Some("it was added as a learner; its etcd has not started yet".to_owned()));
        }
        // etcd refuses until the learner is in sync.
        etcd.promote(member.id)?;
        Ok(None)
    }
}

/// Records that the node has its keys. From then on the code is worthless.
fn keep(root: &Path, admission: Admission) -> rendezvous::SaveRecord {
    let records = Records::new(root);
    Box::new(move |record| {
        if let RendezvousRecord::Admitting { saved: true, .. } = record {
            anyhow::ensure!(records.entry::<Admission>()?.as_ref() == Some(&admission), "the code is no longer good");
            records.update_entry(&Admission { stage: Stage::HandedOver, ..admission.clone() })?;
        }
        Ok(())
    })
}

fn shown(until: u64) -> String {
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(until)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::fake;
    use crate::intake::config::fixture::three_nodes;

    #[test]
    fn replacement_reports_its_progress() {
        let (root, mut config) = (tempfile::tempdir().unwrap(), three_nodes());
        fake::off(&mut config, root.path());
        let admitting = AdmissionJob {
            node: config.cluster.control_nodes[1].clone(),
            cluster: Uuid::nil(),
            image: "image".into(),
            pki: root.path().to_owned(),
            root: root.path().to_owned(),
            config,
        };
        // The node is no longer replaced, so it is tried once.
        let out = SharedFindings::default();
        admitting.make_member(&out).unwrap();
        let findings = out.findings();
        let found: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), &*finding.subject)).collect();
        assert_eq!(found, [("member.replacing", "node2")]);
        assert!(findings.to_string().contains("it is not a member yet: "), "{findings}");
    }
}
