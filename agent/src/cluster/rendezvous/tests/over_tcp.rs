//! Whole nodes, on addresses of the loopback network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use contract::properties::ControlNode;
use contract::secret::Secret;

use crate::cluster::pki::MemberBundle;
use crate::cluster::rendezvous::channel::Endpoint;
use crate::cluster::rendezvous::message::{Hello, PeerRequest, Reply};
use crate::cluster::rendezvous::{
    Error, JoinWindow, Membership, Progress, Proof, Rendezvous, RendezvousRecord, Report, SaveRecord, Settings,
    WaitReason,
};
use crate::intake::config::ControlPlane;
use crate::intake::config::fixture::three_nodes;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

pub(super) fn config(index: usize) -> ControlPlane {
    let mut config = three_nodes();
    config.cluster.name = "blue".to_owned();
    for (node, number) in config.cluster.control_nodes.iter_mut().zip(1..) {
        *node = ControlNode { name: format!("node-{number}"), address: Ipv4Addr::new(127, 0, 1, number) };
    }
    let ControlNode { name, address } = config.cluster.control_nodes[index].clone();
    config.node.interfaces[0].address = ipnet::Ipv4Net::new(address, 24).unwrap().into();
    config.node.name = name;
    config
}

/// Three machines: their data disks outlive the processes on them.
struct Machines {
    settings: [Settings; 3],
    disks: [Arc<Mutex<RendezvousRecord>>; 3],
}

impl Machines {
    fn new() -> Self {
        // A port that is free now. Other tests draw their own.
        let port = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let (port, api_port) = (port(), port());
        let settings = |index| Settings {
            port,
            api_port,
            pace: Duration::from_millis(20),
            ..Settings::new(config(index), Proof::of(&Secret::new(SECRET.to_owned())), "image 1")
        };
        Self { settings: [settings(0), settings(1), settings(2)], disks: Default::default() }
    }

    fn disk(&self, index: usize) -> RendezvousRecord {
        self.disks[index].lock().unwrap().clone()
    }

    fn lose_disk(&self, index: usize) {
        *self.disks[index].lock().unwrap() = RendezvousRecord::Unformed;
    }

    fn keep(&self, index: usize) -> SaveRecord {
        let disk = Arc::clone(&self.disks[index]);
        Box::new(move |record| {
            // As on a real disk: text, and nothing else, comes back.
            let text = serde_json::to_string(record)?;
            *disk.lock().unwrap() = serde_json::from_str(&text)?;
            Ok(())
        })
    }

    fn all(&self) -> [Rendezvous; 3] {
        [0, 1, 2].map(|index| self.start(index))
    }

    /// Starts all nodes, and waits until they have met.
    fn met(&self) -> ([Rendezvous; 3], Vec<MemberBundle>) {
        let nodes = self.all();
        let bundles = all_meet(&nodes);
        (nodes, bundles)
    }

    fn start(&self, index: usize) -> Rendezvous {
        self.start_within(index, || Box::new(|_| Ok(true)))
    }

    fn start_within(&self, index: usize, window: impl Fn() -> JoinWindow) -> Rendezvous {
        let until = Instant::now() + Duration::from_secs(600);
        loop {
            match Rendezvous::open_within(self.settings[index].clone(), self.disk(index), self.keep(index), window()) {
                // A program that another test starts has the former socket between fork and exec.
                Err(Error::Listen { source, .. })
                    if source.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until =>
                {
                    thread::yield_now();
                }
                opened => return opened.unwrap(),
            }
        }
    }
}

/// Fails a test that hangs, instead of waiting forever.
fn patient() -> impl FnMut(&Report) -> ControlFlow<()> {
    let until = Instant::now() + Duration::from_secs(600);
    move |report| if Instant::now() < until { ControlFlow::Continue(()) } else { panic!("still {report}") }
}

fn meet(node: &Rendezvous) -> MemberBundle {
    node.meet(&mut patient()).unwrap()
}

/// Runs `call` until `wanted` is true for a report, and returns that report.
fn until(
    mut wanted: impl FnMut(&Report) -> bool,
    call: impl FnOnce(&mut dyn FnMut(&Report) -> ControlFlow<()>) -> Result<(), Error>,
) -> Report {
    let (mut wait, mut found) = (patient(), None);
    let ended = call(&mut |report| {
        if wanted(report) {
            found = Some(report.clone());
            return ControlFlow::Break(());
        }
        wait(report)
    });
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    found.unwrap()
}

/// Meets until `wanted` is true for a report, and returns that report.
fn meet_until(node: &Rendezvous, wanted: impl FnMut(&Report) -> bool) -> Report {
    until(wanted, |observe| node.meet(observe).map(drop))
}

/// The cluster's store with the joins of these nodes.
fn recorded(names: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Waits on the first node, with such a store, until `wanted` is true for a report.
fn await_until(first: &Rendezvous, names: &[&str], wanted: impl FnMut(&Report) -> bool) -> Report {
    until(wanted, |observe| first.wait_for_joins(&mut || recorded(names), observe))
}

fn why(report: &Report, node: &str) -> Option<WaitReason> {
    report.waiting.iter().find(|waiting| waiting.node == node).map(|waiting| waiting.why.clone())
}

fn codes(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.code.as_str()).collect()
}

fn all_meet<'a>(nodes: impl IntoIterator<Item = &'a Rendezvous>) -> Vec<MemberBundle> {
    thread::scope(|scope| {
        let threads: Vec<_> = nodes.into_iter().map(|node| scope.spawn(move || meet(node))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The first two nodes meet.
fn two_meet(nodes: &[Rendezvous]) -> MemberBundle {
    let [first, second] = all_meet(&nodes[..2]).try_into().unwrap();
    assert_eq!(second.cluster, first.cluster);
    first
}

#[test]
fn three_nodes_meet_join_and_close() {
    let machines = Machines::new();
    let (nodes, bundles) = machines.met();
    for (bundle, name) in bundles.iter().zip(["node-1", "node-2", "node-3"]) {
        assert_eq!(bundle.cluster, bundles[0].cluster);
        assert_eq!(bundle.cas, bundles[0].cas);
        assert_eq!(bundle.node, name);
    }
    assert_eq!(meet(&nodes[1]), bundles[1], "asked again");

    let store = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        let first = scope.spawn(|| nodes[0].wait_for_joins(&mut || Ok(store.lock().unwrap().clone()), &mut patient()));
        for (node, name) in [(&nodes[1], "node-2"), (&nodes[2], "node-3")] {
            store.lock().unwrap().insert(name.to_owned());
            node.close().unwrap();
        }
        first.join().unwrap().unwrap();
    });
    for index in 0..3 {
        assert_eq!(machines.disk(index), RendezvousRecord::Closed { cluster: bundles[0].cluster });
        let again = Rendezvous::open(machines.settings[index].clone(), machines.disk(index), machines.keep(index));
        assert!(matches!(again, Err(Error::Closed(_))));
    }
    drop(nodes);
    let address = (Ipv4Addr::new(127, 0, 1, 1), machines.settings[0].port);
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}

#[test]
fn two_nodes_alone_report_the_missing_node() {
    let machines = Machines::new();
    let nodes = [machines.start(0), machines.start(1)];
    let report = thread::scope(|scope| {
        scope.spawn(|| meet_until(&nodes[1], |report| matches!(why(report, "node-1"), Some(WaitReason::Busy(_)))));
        meet_until(&nodes[0], |report| why(report, "node-2").is_none())
    });
    assert_eq!(report.to_string(), "waiting for node-3 (127.0.1.3): it is up, but its agent does not listen yet");
    assert!(report.findings.is_empty(), "nothing is wrong yet: {}", report.findings);
    assert_eq!(machines.disk(0), RendezvousRecord::Unformed);
}

#[test]
fn wrong_secret_is_reported_on_both_sides() {
    let mut machines = Machines::new();
    machines.settings[1].proof = Proof::of(&Secret::new("fedcba9876543210fedcba9876543210".to_owned()));
    let nodes = [machines.start(0), machines.start(1)];
    for (node, other) in [(&nodes[0], "node-2 (127.0.1.2)"), (&nodes[1], "node-1 (127.0.1.1)")] {
        let report = meet_until(node, |report| codes(report).contains(&"peer.secret-mismatch"));
        assert!(report.findings.iter().any(|finding| finding.subject == other), "{}", report.findings);
        assert!(!report.findings.to_string().contains("0123"));
    }
    // The node that only answers also reports it.
    let (mut heard, mut wait) = (None, patient());
    let quiet = Machines::new();
    let asked = Rendezvous::open(quiet.settings[2].clone(), RendezvousRecord::Unformed, quiet.keep(2)).unwrap();
    let asking = Rendezvous::open(
        Settings { proof: Proof::of(&Secret::new("wrong".repeat(8))), ..quiet.settings[1].clone() },
        RendezvousRecord::Unformed,
        quiet.keep(1),
    )
    .unwrap();
    meet_until(&asking, |report| why(report, "node-3") == Some(WaitReason::SecretMismatch));
    drop(asking);
    let _ = asked.meet(&mut |report| {
        heard = report.findings.iter().find(|finding| finding.subject == "node-2 (127.0.1.2)").cloned();
        // Its server may record the failed connection a moment after the other side was refused.
        if heard.is_some() { ControlFlow::Break(()) } else { wait(report) }
    });
    assert_eq!(heard.unwrap().code, "peer.secret-mismatch");
}

#[test]
fn different_properties_are_reported() {
    let mut machines = Machines::new();
    machines.settings[1].config.cluster.service_cidr = "10.97.0.0/16".parse().unwrap();
    let nodes = machines.all();
    let report = meet_until(&nodes[0], |report| codes(report).contains(&"peers.disagree"));
    assert_eq!(
        report.findings.iter().map(|finding| finding.seen.as_str()).collect::<Vec<_>>(),
        ["its service CIDR is 10.97.0.0/16, here it is 10.96.0.0/16"]
    );
    let report = meet_until(&nodes[1], |report| codes(report).contains(&"peers.disagree"));
    assert!(report.findings.to_string().contains("its service CIDR is 10.96.0.0/16, here it is 10.97.0.0/16"));
    assert_eq!(machines.disk(0), RendezvousRecord::Unformed);
}

#[test]
fn blank_first_node_does_not_form_among_members() {
    let machines = Machines::new();
    drop(machines.met());
    machines.lose_disk(0);
    let nodes = machines.all();
    let report = meet_until(&nodes[0], |report| report.waiting.len() == 2);
    assert_eq!(why(&report, "node-2"), Some(WaitReason::InCluster));
    assert_eq!(why(&report, "node-3"), Some(WaitReason::InCluster));
    assert_eq!(codes(&report), ["cluster.exists", "cluster.exists"]);
    assert_eq!(machines.disk(0), RendezvousRecord::Unformed);

    // A member that has joined closes without it.
    nodes[1].close().unwrap();
    let report = meet_until(&nodes[0], |report| why(report, "node-2") == Some(WaitReason::Refused));
    assert_eq!(codes(&report), ["cluster.exists"]);
    assert_eq!(machines.disk(0), RendezvousRecord::Unformed);
}

#[test]
fn answer_on_a_port_is_no_join() {
    let machines = Machines::new();
    let ([first, ..], _) = machines.met();
    // Their rendezvous is not open, and something listens on their API's port: they restart.
    let _apis: Vec<_> = [2, 3]
        .map(|number| TcpListener::bind((Ipv4Addr::new(127, 0, 1, number), machines.settings[0].api_port)).unwrap())
        .into();
    let report = await_until(&first, &["node-2"], |report| why(report, "node-3").is_some());
    assert_eq!(why(&report, "node-3"), Some(WaitReason::Refused));
    assert_eq!(why(&report, "node-2"), None, "its join is on record");
    assert_eq!(machines.disk(0).awaited(), ["node-3"]);
    drop(first);

    // A join on record stays.
    let first = machines.start(0);
    first.wait_for_joins(&mut || recorded(&["node-3"]), &mut patient()).unwrap();
    assert!(matches!(machines.disk(0), RendezvousRecord::Closed { .. }));
}

#[test]
fn members_with_bundles_need_no_first_node() {
    let machines = Machines::new();
    let cluster = machines.met().1[0].cluster;
    machines.lose_disk(0);
    for index in [1, 2] {
        // The power is cut as well, before the node has used its bundle.
        let node = machines.start(index);
        assert_eq!(meet(&node).cluster, cluster);
        node.close().unwrap();
        assert_eq!(machines.disk(index), RendezvousRecord::Closed { cluster });
    }
}

#[test]
fn unreadable_store_keeps_no_node_away() {
    let machines = Machines::new();
    let (first, bundle) = {
        let nodes = machines.all();
        let bundle = two_meet(&nodes);
        let [first, ..] = nodes;
        (first, bundle)
    };
    // Without a quorum: the third node may restore it.
    let third = machines.start(2);
    let asked = Mutex::new(0);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut joined = || {
                *asked.lock().unwrap() += 1;
                match machines.disk(2) {
                    RendezvousRecord::Closed { .. } => recorded(&["node-2", "node-3"]),
                    _ => anyhow::bail!("no quorum"),
                }
            };
            first.wait_for_joins(&mut joined, &mut patient())
        });
        assert_eq!(meet(&third).cluster, bundle.cluster);
        let until = Instant::now() + Duration::from_secs(600);
        while *asked.lock().unwrap() < 3 && Instant::now() < until {
            thread::yield_now();
        }
        assert_eq!(machines.disk(0).awaited(), ["node-2", "node-3"]);
        third.close().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn blank_nodes_recognize_a_formed_cluster() {
    let machines = Machines::new();
    // Two living nodes: their rendezvous has closed, their API servers answer.
    let _living: Vec<_> = [1, 2]
        .map(|number| TcpListener::bind((Ipv4Addr::new(127, 0, 1, number), machines.settings[0].api_port)).unwrap())
        .into();
    let third = machines.start(2);
    let report = meet_until(&third, |report| why(report, "node-1") == Some(WaitReason::Closed));
    assert_eq!(codes(&report), ["cluster.exists"]);
    drop(third);

    // The same from a blank first node, with a living second one.
    let first = machines.start(0);
    let report = meet_until(&first, |report| why(report, "node-2") == Some(WaitReason::Closed));
    assert_eq!(codes(&report), ["cluster.exists"]);
}

#[test]
fn returning_node_gets_its_bundle() {
    let machines = Machines::new();
    let cluster = {
        let nodes = machines.all();
        // The third answers, then is cut off before the decision reaches it.
        let cluster = two_meet(&nodes).cluster;
        assert_eq!(nodes[0].shared.progress()["node-3"], Progress::Awaited);
        assert_eq!(nodes[0].shared.progress()["node-2"], Progress::HandedOver);
        cluster
    };
    assert_eq!(machines.disk(2), RendezvousRecord::Unformed);

    // Days and a reboot of the first node later.
    let (first, third) = (machines.start(0), machines.start(2));
    assert_eq!(meet(&first).cluster, cluster);
    assert_eq!(meet(&third).cluster, cluster);
    assert_eq!(first.shared.progress()["node-3"], Progress::HandedOver);

    // Again with another blank disk, before it has joined: the result is the same.
    drop(third);
    machines.lose_disk(2);
    let third = machines.start(2);
    assert_eq!(meet(&third).cluster, cluster);

    // After it has joined, it gets a report. A request all the same, which our nodes never send, gets nothing.
    third.close().unwrap();
    assert!(first.shared.bundle_for("node-3").unwrap().is_some());
    await_until(&first, &["node-3"], |report| why(report, "node-2").is_some());
    assert!(first.shared.bundle_for("node-3").unwrap().is_none());
    assert!(first.shared.bundle_for("node-2").unwrap().is_some());
    drop(third);
    machines.lose_disk(2);
    let third = machines.start(2);
    let report = meet_until(&third, |report| why(report, "node-1").is_some());
    assert_eq!(codes(&report), ["member.lost"]);
}

#[test]
fn late_node_gets_keys_only_if_awaited_again() {
    let machines = Machines::new();
    let cluster = two_meet(&machines.all()).cluster;
    // The holder of the deployment secret at the address of the node that never came.
    let open = Arc::new(Mutex::new(Ok::<bool, String>(false)));
    let window = || {
        let open = Arc::clone(&open);
        Box::new(move |_: &str| open.lock().unwrap().clone().map_err(|error| anyhow::anyhow!(error))) as JoinWindow
    };
    let (first, third) = (machines.start_within(0, window), machines.start(2));
    assert_eq!(meet(&first).cluster, cluster);
    let is_refused = |report: &Report| {
        let command = "the hour for joining is over: run `kaas-agent await node-3` on node-1";
        why(report, "node-1") == Some(WaitReason::Busy(command.to_owned()))
    };
    let report = meet_until(&third, is_refused);
    assert!(
        report.to_string().contains("run `kaas-agent await node-3` on node-1"),
        "its console says what to run: {report}"
    );
    *open.lock().unwrap() = Err("the data disk cannot be read".to_owned());
    meet_until(&third, is_refused);
    assert_eq!(machines.disk(2), RendezvousRecord::Unformed);
    *open.lock().unwrap() = Ok(true);
    assert_eq!(meet(&third).cluster, cluster);
}

#[test]
fn unsaved_bundles_are_not_given_out() {
    let machines = Machines::new();
    let others = [machines.start(1), machines.start(2)];
    let full: SaveRecord = Box::new(|_| anyhow::bail!("no space left on device"));
    let first = Rendezvous::open(machines.settings[0].clone(), RendezvousRecord::Unformed, full).unwrap();
    let met = first.meet(&mut patient());
    assert!(matches!(met, Err(Error::Keep(_))), "{met:?}");
    let report = meet_until(&others[0], |report| why(report, "node-1").is_some());
    assert!(matches!(why(&report, "node-1"), Some(WaitReason::Busy(_))), "{report}");
    drop(first);

    // The same on the receiving side: the bundle comes again.
    let first = machines.start(0);
    let full: SaveRecord = Box::new(|_| anyhow::bail!("no space left on device"));
    drop(others);
    let third = machines.start(2);
    let second = Rendezvous::open(machines.settings[1].clone(), RendezvousRecord::Unformed, full).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| all_meet([&first, &third]));
        assert!(matches!(second.meet(&mut patient()), Err(Error::Keep(_))));
    });
    drop(second);
    assert_eq!(machines.disk(1), RendezvousRecord::Unformed);
    assert_eq!(meet(&machines.start(1)).cluster, meet(&first).cluster);
}

#[test]
fn next_introduction_replaces_a_lost_confirmation() {
    let machines = Machines::new();
    drop(machines.met());
    // As if the power had failed after the others saved and before they confirmed it.
    if let RendezvousRecord::First { progress, .. } = &mut *machines.disks[0].lock().unwrap() {
        *progress =
            BTreeMap::from([("node-2".to_owned(), Progress::Awaited), ("node-3".to_owned(), Progress::Awaited)]);
    }
    let (first, _second) = (machines.start(0), machines.start(1));
    meet(&first);
    assert_eq!(first.shared.progress()["node-2"], Progress::HandedOver);
}

#[test]
fn keys_are_given_to_the_listed_address_only() {
    let machines = Machines::new();
    let nodes = machines.all();
    two_meet(&nodes);
    // The third node's name and the secret, from an address that is not its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = Endpoint::new(&machines.settings[2].proof).unwrap();
    let remote = (Ipv4Addr::new(127, 0, 1, 1), machines.settings[0].port).into();
    let ask = |local| {
        let (hello, endpoint) = (nodes[2].shared.hello(None), &endpoint);
        runtime.block_on(async move {
            let mut channel = endpoint.connect(local, remote).await.unwrap();
            channel.send(&hello).await.unwrap();
            let _: Hello = channel.receive().await.unwrap();
            channel.send(&PeerRequest::Bundle).await.unwrap();
            channel.receive::<Reply>().await.unwrap()
        })
    };
    let reply = ask(Ipv4Addr::new(127, 0, 1, 77));
    assert!(matches!(&reply, Reply::Wait { reason } if reason.contains("not the address of node-3")), "{reply:?}");
    assert!(matches!(ask(Ipv4Addr::new(127, 0, 1, 3)), Reply::Bundle { .. }));
}

#[test]
fn silent_connections_keep_no_node_away() {
    let machines = Machines::new();
    let nodes = machines.all();
    let address = (Ipv4Addr::new(127, 0, 1, 1), machines.settings[0].port);
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let bundles = all_meet(&nodes);
    assert_eq!(bundles[2].cluster, bundles[0].cluster);
    drop(silent);
}

#[test]
fn single_node_forms_by_itself() {
    let mut machines = Machines::new();
    machines.settings[0].config.cluster.control_nodes.truncate(1);
    let node = machines.start(0);
    let bundle = meet(&node);
    assert_eq!(machines.disk(0).state(), Membership::Forming(bundle.cluster));
    assert!(machines.disk(0).awaited().is_empty());
    node.close().unwrap();
    assert_eq!(machines.disk(0), RendezvousRecord::Closed { cluster: bundle.cluster });
}

const CODE: &str = "6b1f0c9d2e8a47358c61d0f7b2943ea5";

/// A member that admits `index`, with a one-time code in place of the secret.
fn admitting(machines: &Machines, by: usize, index: usize) -> (Rendezvous, Arc<Mutex<RendezvousRecord>>) {
    let cluster = machines.disk(by).state().cluster().unwrap();
    let now = std::time::SystemTime::now();
    let own = config(by);
    let node = &own.cluster.control_nodes[index];
    let bundle =
        MemberBundle::make(cluster, node, &crate::cluster::pki::CertificateAuthorities::make(now).unwrap(), now)
            .unwrap();
    let record = RendezvousRecord::Admitting { cluster, bundle: Box::new(bundle), saved: false };
    let disk = Arc::new(Mutex::new(record.clone()));
    let kept = Arc::clone(&disk);
    let keep: SaveRecord = Box::new(move |record| {
        *kept.lock().unwrap() = record.clone();
        Ok(())
    });
    let settings = Settings { proof: Proof::of(&Secret::new(CODE.to_owned())), ..machines.settings[by].clone() };
    (Rendezvous::open(settings, record, keep).unwrap(), disk)
}

#[test]
fn any_blank_node_is_admitted_with_the_code() {
    for (by, lost) in [(1, 0), (0, 2), (2, 1)] {
        let mut machines = Machines::new();
        let cluster = uuid::Uuid::from_u128(9);
        *machines.disks[by].lock().unwrap() = RendezvousRecord::Closed { cluster };
        let (member, admission) = admitting(&machines, by, lost);

        // The deployment secret no longer opens anything.
        let stranger = machines.start(lost);
        let report = meet_until(&stranger, |report| codes(report).contains(&"peer.secret-mismatch"));
        assert!(why(&report, &config(by).node.name) == Some(WaitReason::SecretMismatch));
        drop(stranger);
        assert_eq!(machines.disk(lost), RendezvousRecord::Unformed);

        machines.settings[lost].proof = Proof::of(&Secret::new(CODE.to_owned()));
        let blank = machines.start(lost);
        thread::scope(|scope| {
            scope.spawn(|| member.admit(&mut patient()).unwrap());
            assert_eq!(meet(&blank).cluster, cluster);
        });
        assert!(machines.disk(lost).admitted());
        assert!(matches!(&*admission.lock().unwrap(), RendezvousRecord::Admitting { saved: true, .. }));
        drop(member);

        // No node waits for its report, even if it is the first.
        assert!(machines.disk(lost).awaited().is_empty());
        blank.close().unwrap();
        assert_eq!(machines.disk(lost), RendezvousRecord::Closed { cluster });

        // The same code opens nothing once the member has closed.
        drop(blank);
        machines.lose_disk(lost);
        let again = machines.start(lost);
        let report = meet_until(&again, |report| !report.waiting.is_empty());
        assert_eq!(why(&report, &config(by).node.name), Some(WaitReason::Refused));
    }
}

#[test]
fn code_admits_no_other_node() {
    let mut machines = Machines::new();
    *machines.disks[0].lock().unwrap() = RendezvousRecord::Closed { cluster: uuid::Uuid::from_u128(9) };
    let (_member, admission) = admitting(&machines, 0, 2);
    machines.settings[1].proof = Proof::of(&Secret::new(CODE.to_owned()));
    let other = machines.start(1);
    let refused = |report: &Report| matches!(why(report, "node-1"), Some(WaitReason::Busy(_)));
    meet_until(&other, refused);
    assert_eq!(machines.disk(1), RendezvousRecord::Unformed);
    assert!(matches!(&*admission.lock().unwrap(), RendezvousRecord::Admitting { saved: false, .. }));
}

#[test]
fn bundle_fetched_months_later_has_new_certificates() {
    let machines = Machines::new();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(300 * 24 * 60 * 60);
    let decided = RendezvousRecord::decide(&config(0).cluster, "node-1", long_ago).unwrap();
    *machines.disks[0].lock().unwrap() = decided.clone();
    let nodes = [machines.start(0), machines.start(1)];
    let met = all_meet(&nodes);
    let RendezvousRecord::First { bundles, .. } = &decided else { panic!("the first node has not decided") };
    let before = &bundles["node-2"];
    assert_eq!(met[1].cas, before.cas);
    assert_ne!(met[1].etcd_server, before.etcd_server);
    met[1].check(&config(1).cluster.control_nodes[1], std::time::SystemTime::now()).unwrap();
}
