//! `kaas-agent replace-member`: the only method to bring a node that lost its data disk into its cluster again.
//!
//! It runs on a healthy member, removes the dead member and its Node object, and draws a one-time code. A blank VM with
//! the same name and address uses the code as its deployment secret. Only the key for proofs of the code is kept. The
//! agent there opens the rendezvous for that node; see [`crate::maintenance`] for the next steps.

use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use aws_lc_rs::rand;
use clap::Args;
use contract::ports;
use contract::properties::ControlNode;
use contract::properties::parse::secret;
use contract::replacement::ReplacementGrant;
use contract::secret::Secret;
use serde::{Deserialize, Serialize};

use super::client::{Alarm, EtcdClient, Member};
use super::peer_url;
use super::upkeep::CORRUPT;
use crate::cluster::kubernetes::{PKI, api};
use crate::cluster::records::{Entry, Records};
use crate::cluster::rendezvous::Proof;
use crate::host::command::{Host, Runner};
use crate::host::files;
use crate::intake::config::{ControlPlane, Output};

/// The limit for an answer of etcd, times the timeout factor.
const REQUEST: Duration = Duration::from_secs(10);
/// The limit for an answer of a node that should be off, times the timeout factor.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a code is valid.
const GOOD_FOR: Duration = Duration::from_secs(60 * 60);

/// The arguments of the command.
#[derive(Args)]
pub struct Options {
    /// The lost node's name in the list of control-plane nodes
    node: String,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The record of the member that admits a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub node: String,
    pub stage: Stage,
}

impl Entry for Admission {
    const FILE: &'static str = "admission.json";
    const WHAT: &'static str = "the admission";
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The code opens the rendezvous.
    Open {
        /// Checks proofs of the code. The code itself is not kept.
        proof: Proof,
        /// The end of the code's validity, in seconds since 1970.
        until: u64,
    },
    /// The node has its bundle, and the code no longer opens anything. The node next becomes a learner and then a
    /// member.
    HandedOver,
}

#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NotListed(String),
    Itself(String),
    Answers(String, &'static str),
    Other(String),
    Awaited(String),
    Quorum { node: String, left: usize, alive: usize },
    Corrupt,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed(node) => write!(f, "{node} is not in the list of control-plane nodes"),
            Self::Itself(node) => write!(f, "{node} is this node: replace it from another control-plane node"),
            Self::Answers(node, what) => {
                write!(f, "{what} still answers on {node}: it is not dead. Power it off first if it is to be replaced")
            }
            Self::Other(node) => write!(f, "{node} is being replaced: wait until it is a member, or finish that first"),
            Self::Awaited(node) => {
                write!(
                    f,
                    "{node} has not joined yet, and this node keeps its keys for it: replace from another control-plane node"
                )
            }
            Self::Quorum { node, left, alive } => write!(
                f,
                "without {node}, {left} members are left and only {alive} answer: etcd would lose its quorum. Bring \
                 the others back, or restore the cluster from a snapshot"
            ),
            Self::Corrupt => f.write_str(
                "the data of the members that would be left differ: restore the cluster from a snapshot of an earlier time",
            ),
        }
    }
}

pub fn command(root: &Path, options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let (admitted, lost) = admit(root, &options.node)?;
    match options.output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(&admitted)?)?,
        Output::Text => write!(out, "{}", text(&admitted, &lost))?,
    }
    Ok(())
}

/// Removes the lost member, and admits a blank VM in its place. Returns the grant and the lost node. After an error
/// another call continues where it stopped. Each call draws a new code, and the former one is void.
pub fn admit(root: &Path, node: &str) -> anyhow::Result<(ReplacementGrant, ControlNode)> {
    let records = Records::new(root);
    let config = records.config()?.context("this node has no configuration yet")?;
    let config = config.control_plane()?;
    let (progress, record) = (records.progress()?, records.rendezvous()?);
    if !progress.etcd && !record.admitted() {
        bail!(
            "etcd has not had a quorum with this node, so there is no cluster to replace a node of. If a control-plane node is \
             lost for good before enough of them had their keys, nothing is lost with it: reset the others (`kaas-agent \
             reset`) and deploy all of them"
        );
    }
    if !progress.formed {
        bail!("this node has not joined its cluster completely yet: see `kaas-agent status`");
    }
    let refuse = |refusal: Refusal| -> anyhow::Result<(ReplacementGrant, ControlNode)> { bail!("{refusal}") };
    let lost = match listed(config, node) {
        Ok(lost) => lost.clone(),
        Err(refusal) => return refuse(refusal),
    };
    if let Some(other) = records.entry::<Admission>()?.filter(|admission| admission.node != lost.name) {
        return refuse(Refusal::Other(other.node));
    }
    if let Some(other) = record.awaited().into_iter().find(|name| *name != lost.name) {
        return refuse(Refusal::Awaited(other.to_owned()));
    }
    if let Some(what) = answering(config, &lost) {
        return refuse(Refusal::Answers(lost.name, what));
    }
    let own = config.control_node()?;
    let pki = files::below(root, PKI);
    let ask = |node: &ControlNode| EtcdClient::new(node, &pki, config.timeout(REQUEST));
    let etcd = ask(own)?;
    let members = etcd.members().context(
        "etcd here has no quorum; if members are lost for good, restore the cluster from a snapshot: asking etcd",
    )?;
    let answers = |member: &Member| {
        let node = config.cluster.control_nodes.iter().find(|node| is_member_of(member, node));
        node.is_some_and(|node| ask(node).and_then(|it| it.status()).is_ok_and(|status| status.has_leader()))
    };
    if let Some(refusal) = judge(&lost, &members, &etcd.alarms()?, answers) {
        return refuse(refusal);
    }
    for member in members.iter().filter(|member| is_member_of(member, &lost)) {
        etcd.remove(member.id).with_context(|| format!("removing the member {}", lost.name))?;
    }
    lift_alarms(&etcd)?;
    let (code, until) = (draw()?, SystemTime::now() + GOOD_FOR);
    let since = until.duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    let stage = Stage::Open { proof: Proof::of(&code), until: since.as_secs() };
    records.begin_entry(&Admission { node: lost.name.clone(), stage })?;
    delete_node(config, &lost.name, &Host)?;
    let admitted = ReplacementGrant {
        node: lost.name.clone(),
        code: code.expose().to_owned(),
        expires: humantime::format_rfc3339_seconds(until).to_string(),
        properties: config.agreed(),
    };
    Ok((admitted, lost))
}

/// The instructions for the operator who deploys the new VM.
fn text(admitted: &ReplacementGrant, lost: &ControlNode) -> String {
    let ReplacementGrant { node, code, expires, properties } = admitted;
    let agreed: String = properties.iter().map(|(key, value)| format!("  {key}={value}\n")).collect();
    format!(
        "{node} is no longer a member. Deploy a VM from the OVA of the image that this node runs, with a blank data disk and \
         the properties that {node} had. These must be as the members have them now:\n{agreed}Its deployment secret \
         is\n  {code}\nIt works once, for {node} at {} alone, until {expires}. `kaas-agent status` on this node says how far \
         it is.\n",
        lost.address,
    )
}

fn listed<'a>(config: &'a ControlPlane, name: &str) -> Result<&'a ControlNode, Refusal> {
    if name == config.node.name {
        return Err(Refusal::Itself(name.to_owned()));
    }
    let found = config.cluster.control_nodes.iter().find(|node| node.name == name);
    found.ok_or_else(|| Refusal::NotListed(name.to_owned()))
}

/// The service of a running node that answers at the lost one's address, if any. A blank VM that waits has none of
/// these services.
fn answering(config: &ControlPlane, lost: &ControlNode) -> Option<&'static str> {
    let ports = [
        ("etcd", ports::ETCD_PEER),
        ("etcd", ports::ETCD_CLIENT),
        ("the Kubernetes API", ports::API),
        ("the kubelet", ports::KUBELET),
    ];
    let timeout = config.timeout(SILENCE);
    let open = |port: u16| TcpStream::connect_timeout(&SocketAddr::from((lost.address, port)), timeout).is_ok();
    // All at once: a client of the endpoint waits for the answer.
    thread::scope(|scope| {
        let asked = ports.map(|(what, port)| (what, scope.spawn(move || open(port))));
        // A thread that has ended early proves nothing: the node counts as alive.
        asked.into_iter().find_map(|(what, asked)| asked.join().unwrap_or(true).then_some(what))
    })
}

/// Whether a member is this node's. A member that has not started has no name.
pub fn is_member_of(member: &Member, node: &ControlNode) -> bool {
    member.name == node.name || member.peer_urls.contains(&peer_url(node))
}

fn judge(
    lost: &ControlNode,
    members: &[Member],
    alarms: &[Alarm],
    answers: impl Fn(&Member) -> bool,
) -> Option<Refusal> {
    let others: Vec<&Member> = members.iter().filter(|member| !is_member_of(member, lost)).collect();
    // The alarm of member 0 is the alarm of all: etcd does not know whose data are right.
    let stays = |id: u64| id == 0 || others.iter().any(|member| member.id == id);
    if alarms.iter().any(|alarm| alarm.kind == CORRUPT && stays(alarm.member)) {
        return Some(Refusal::Corrupt);
    }
    if let Some(learner) = others.iter().find(|member| member.is_learner) {
        let name = if learner.name.is_empty() { learner.peer_urls.join(",") } else { learner.name.clone() };
        return Some(Refusal::Other(name));
    }
    let alive = others.iter().filter(|member| answers(member)).count();
    (alive <= others.len() / 2).then(|| Refusal::Quorum { node: lost.name.clone(), left: others.len(), alive })
}

/// Disarms the alarms of members that were removed. While a member's data differ, etcd refuses all writes, including
/// those of Kubernetes.
fn lift_alarms(etcd: &EtcdClient) -> anyhow::Result<()> {
    let members = etcd.members()?;
    let is_gone = |alarm: &&Alarm| alarm.member != 0 && !members.iter().any(|member| member.id == alarm.member);
    for alarm in etcd.alarms()?.iter().filter(is_gone) {
        etcd.disarm(alarm).with_context(|| format!("lifting the alarm {} of a member that is gone", alarm.kind))?;
    }
    Ok(())
}

fn delete_node(config: &ControlPlane, name: &str, runner: &dyn Runner) -> anyhow::Result<()> {
    let command = api::kubectl(config.address())
        .args(["delete", "node", name, "--ignore-not-found", "--wait=false"])
        .arg(format!("--request-timeout={}s", config.timeout(REQUEST).as_secs()));
    runner.run(&command).with_context(|| {
        format!("deleting the node {name} from Kubernetes (run the command again: it gives a new code)")
    })?;
    Ok(())
}

/// A code of 128 random bits that is also a valid deployment secret.
fn draw() -> anyhow::Result<Secret> {
    loop {
        let mut code = [0; 16];
        rand::fill(&mut code).ok().context("the system gives no random numbers")?;
        let text = format!("{:032x}", u128::from_be_bytes(code));
        if secret::judge(&text).is_ok() {
            return Ok(Secret::new(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd::fake::FakeEtcd;
    use crate::cluster::records::Progress;
    use crate::cluster::rendezvous::{self, RendezvousRecord};
    use crate::intake::config::Config;
    use crate::intake::config::fixture::three_nodes;

    fn member(number: u64, is_learner: bool) -> Member {
        let peer_urls = vec![format!("https://10.0.0.1{number}:2380")];
        Member { id: number, name: format!("node{number}"), peer_urls, is_learner }
    }

    fn judged(members: &[Member], alive: &[u64]) -> Option<String> {
        let three = three_nodes();
        let lost = &three.cluster.control_nodes[2];
        judge(lost, members, &[], |member| alive.contains(&member.id)).map(|refusal| refusal.to_string())
    }

    #[test]
    fn member_is_removed_only_if_others_have_quorum() {
        let three = [member(1, false), member(2, false), member(3, false)];
        assert_eq!(judged(&three, &[1, 2]), None);
        let refused = judged(&three, &[1]).unwrap();
        assert!(refused.contains("without node3, 2 members are left and only 1 answer"), "{refused}");
        // After a restore with one node alone, and if the member was removed before.
        assert_eq!(judged(&three[..1], &[1]), None);
        assert_eq!(judged(&three[..2], &[1, 2]), None);
        assert!(judged(&three[..2], &[1]).is_some());
    }

    #[test]
    fn member_is_removed_only_if_others_agree() {
        let config = three_nodes();
        let members = [member(1, false), member(2, false), member(3, false)];
        let judged = |differs: u64| {
            let alarms = [Alarm { member: differs, kind: CORRUPT.into() }];
            judge(&config.cluster.control_nodes[2], &members, &alarms, |_| true)
        };
        assert_eq!(
            [0, 1, 2, 3].map(judged),
            [Some(Refusal::Corrupt), Some(Refusal::Corrupt), Some(Refusal::Corrupt), None]
        );
    }

    /// etcd refuses all writes while a member's data differ, including those of Kubernetes.
    #[test]
    fn member_whose_data_differ_is_replaced() {
        let (root, mut config) = (tempfile::tempdir().unwrap(), three_nodes());
        let etcd = FakeEtcd::start(&mut config, &files::below(root.path(), PKI));
        // Nothing answers there: the node is off.
        config.cluster.control_nodes[2].address = [127, 0, 3, 3].into();
        let records = Records::new(root.path());
        records.save_config(&Config::ControlPlane(config), &Secret::new("s".into())).unwrap();
        records.save_progress(Progress { etcd: true, formed: true, ..Progress::default() }).unwrap();
        etcd.raise(3, CORRUPT);
        let options = Options { node: "node3".into(), output: Output::Text };
        let failed = command(root.path(), &options, &mut Vec::new()).unwrap_err().to_string();
        // The test has no kubectl.
        assert!(failed.starts_with("deleting the node node3 from Kubernetes (run the command again"), "{failed}");
        assert_eq!((etcd.names(), etcd.alarmed()), (vec!["node1".to_owned(), "node2".to_owned()], Vec::new()));
        assert_eq!(records.entry::<Admission>().unwrap().unwrap().node, "node3");
    }

    #[test]
    fn one_node_at_a_time_is_replaced() {
        let refused = judged(&[member(1, false), member(2, true)], &[1]).unwrap();
        assert!(refused.starts_with("node2 is being replaced"), "{refused}");
        // The lost node itself may be a learner that never came.
        assert_eq!(judged(&[member(1, false), Member { name: String::new(), ..member(3, true) }], &[1]), None);
    }

    #[test]
    fn this_node_and_unlisted_nodes_are_refused() {
        let config = three_nodes();
        assert_eq!(listed(&config, "node1"), Err(Refusal::Itself("node1".into())));
        assert_eq!(listed(&config, "other"), Err(Refusal::NotListed("other".into())));
        assert_eq!(listed(&config, "node2").map(|node| node.name.as_str()), Ok("node2"));
    }

    #[test]
    fn codes_differ_are_valid_secrets_and_not_kept() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let code = draw().unwrap();
        assert_ne!(code, draw().unwrap());
        assert_eq!((code.expose().len(), secret::judge(code.expose())), (32, Ok(())));
        let stage = Stage::Open { proof: Proof::of(&code), until: 9 };
        let admission = Admission { node: "node3".into(), stage };
        records.begin_entry(&admission).unwrap();
        assert_eq!(records.entry::<Admission>().unwrap(), Some(admission));
        let kept = std::fs::read_to_string(root.path().join("data/kaas/admission.json")).unwrap();
        assert!(!kept.contains(code.expose()), "{kept}");
        records.forget::<Admission>().unwrap();
        records.forget::<Admission>().unwrap();
        assert_eq!(records.entry::<Admission>().unwrap(), None);
    }

    #[test]
    fn text_has_the_present_cluster_properties() {
        let mut config = three_nodes();
        config.cluster.kubernetes_minor = "1.34".to_owned();
        let admitted = ReplacementGrant {
            node: "node3".to_owned(),
            code: "c0de".to_owned(),
            expires: "2026-01-01T00:00:00Z".to_owned(),
            properties: config.agreed(),
        };
        let text = text(&admitted, &config.cluster.control_nodes[2]);
        assert!(text.contains("\n  kubernetes-version=1.34\n") && text.contains("\n  c0de\n"), "{text}");
        assert!(text.contains("node3 at 10.0.0.13 alone"), "{text}");
    }

    #[test]
    fn unformed_clusters_and_waiting_nodes_replace_no_node() {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        let mut config = three_nodes();
        for (node, number) in config.cluster.control_nodes.iter_mut().zip(1..) {
            node.address = [127, 0, 3, number].into();
        }
        records.save_config(&Config::ControlPlane(config.clone()), &Secret::new("s".into())).unwrap();
        let refused = |node: &str| {
            let options = Options { node: node.into(), output: Output::Text };
            command(root.path(), &options, &mut Vec::new()).unwrap_err().to_string()
        };
        assert!(refused("node3").contains("nothing is lost with it: reset the others"), "{}", refused("node3"));
        let progress = Progress { etcd: true, ..Progress::default() };
        records.save_progress(progress).unwrap();
        assert!(refused("node3").contains("not joined its cluster completely"), "{}", refused("node3"));
        records.save_progress(Progress { formed: true, ..progress }).unwrap();
        records
            .save_rendezvous(&RendezvousRecord::decide(&config.cluster, "node1", SystemTime::now()).unwrap())
            .unwrap();
        let why = refused("node3");
        assert!(
            why.starts_with("node2 has not joined yet") && why.ends_with("from another control-plane node"),
            "{why}"
        );
        // A node for which only this node waits may be replaced here. The command gets as far as etcd's keys.
        let RendezvousRecord::First { cluster, bundles, mut progress } = records.rendezvous().unwrap() else {
            panic!()
        };
        progress.insert("node2".into(), rendezvous::Progress::Joined);
        records.save_rendezvous(&RendezvousRecord::First { cluster, bundles, progress }).unwrap();
        assert!(refused("node3").contains("healthcheck-client"), "{}", refused("node3"));
    }
}
