//! The network cuts a node off, and the node does not notice. The engine is that of containers. The other nodes continue as if the
//! node was off. One virtual IP answers writes, whichever nodes hold it.

use std::time::Duration;

use contract::ports;
use scenarios::endpoint;
use scenarios::scenario::{ALL, MOMENT, Scenario};
use scenarios::store::{etcdctl, lead, leader};
use scenarios::writer::{Figures, Writer};

/// No client may wait longer than this for its write.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// So many writes show that nothing trails behind: at most five a second are made.
const SETTLED: usize = 100;

/// Repeats a write to the API at a node's own address, and records its times in nanoseconds. A line begins with `+` if the write was
/// acknowledged and the node held the virtual IP before and after it. It begins with `-` if the node held it and the write failed.
const PROBE: &str = r#"
holds() { ip -4 address show | grep --quiet "inet $1/"; }
body='{"metadata":{"generateName":"probe-"}}'
while true; do
    sleep 0.2
    from=$(date +%s%N)
    holds "$1" || continue
    answer=$(printf 'POST /api/v1/namespaces/default/configmaps HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
            "${#body}" "$body" | timeout 2 openssl s_client -quiet -verify_return_error -verify_ip "$2" \
            -CAfile /etc/kubernetes/pki/ca.crt -cert "$4" -key "$4" -connect "$2:$3" 2>/dev/null \
        | head --lines=1)
    holds "$1" || continue
    case $answer in
        *' 201 '*) echo "+ $from $(date +%s%N)" ;;
        *) echo "- $from $(date +%s%N)" ;;
    esac >>/run/probed
done
"#;

pub mod long {
    use super::*;

    /// Three nodes lose one of them, silently, and for longer than the others need to notice. The lost node has the virtual IP, leads
    /// etcd, does both, or does neither. At last the node with the virtual IP loses only its etcd.
    pub fn silently_cut_node_does_not_slow_the_others() {
        let scenario = Scenario::formed("parted");
        let other = |not: &[&str]| ALL.into_iter().find(|node| !not.contains(node)).unwrap();

        let holder = scenario.address_holder();
        lead(&scenario, other(&[holder]));
        let heirs = survives(&scenario, Fault::Partition, holder, "the holder of the virtual IP");
        assert!(heirs.gone_to_another(holder) && heirs.refused_by(holder), "{heirs:?}");

        let holder = scenario.address_holder();
        let led = other(&[holder]);
        lead(&scenario, led);
        survives(&scenario, Fault::Partition, led, "the leader of etcd");

        let holder = scenario.address_holder();
        lead(&scenario, holder);
        let heirs = survives(&scenario, Fault::Partition, holder, "the holder of the virtual IP, which leads etcd,");
        assert!(heirs.gone_to_another(holder) && heirs.refused_by(holder), "{heirs:?}");

        let (holder, led) = (scenario.address_holder(), leader(&scenario));
        let spared = survives(&scenario, Fault::Partition, other(&[holder, led]), "a node with neither");
        assert_eq!(spared.figures.outages, 0, "nobody needed the node that was cut off");

        // It lets go before it has refused anybody, or after.
        let heirs = survives(&scenario, Fault::NoEtcd, holder, "the holder of the virtual IP");
        assert!(heirs.gone_to_another(holder), "{heirs:?}");
    }
}

/// Faults of a node that keeps its power.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The network cuts it off without its noticing.
    Partition,
    /// Its etcd is stopped.
    NoEtcd,
}

impl Fault {
    fn begin(self, scenario: &Scenario, node: &str) {
        match self {
            Self::Partition => scenario.lab().partition(node, true).unwrap(),
            Self::NoEtcd => drop(scenario.inside(node, &["systemctl", "stop", "etcd.service"])),
        }
    }

    fn end(self, scenario: &Scenario, node: &str) {
        match self {
            Self::Partition => scenario.lab().partition(node, false).unwrap(),
            Self::NoEtcd => drop(scenario.inside(node, &["systemctl", "start", "etcd.service"])),
        }
    }
}

/// The results of writes to the API at one node's own address while the node held the virtual IP.
#[derive(Debug)]
struct Holder {
    node: &'static str,
    /// From when to when it held the address and acknowledged a write, in nanoseconds.
    answered: Vec<(u64, u64)>,
    /// Writes that it did not acknowledge.
    refused: usize,
}

/// The result of one fault.
#[derive(Debug)]
struct FaultResult {
    figures: Figures,
    holders: Vec<Holder>,
}

impl FaultResult {
    /// Whether another node than the faulty one, which had the virtual IP before, has answered writes there.
    fn gone_to_another(&self, suffered: &str) -> bool {
        let answered = |suffers: bool| {
            self.holders.iter().any(|holder| (holder.node == suffered) == suffers && !holder.answered.is_empty())
        };
        answered(true) && answered(false)
    }

    /// Whether a node held the virtual IP and could not answer writes.
    fn refused_by(&self, node: &str) -> bool {
        self.holders.iter().any(|holder| holder.node == node && holder.refused > 0)
    }

    /// Two nodes that held the virtual IP at one time, and both answered writes.
    fn two_at_once(&self) -> Option<(&str, &str)> {
        let meet = |one: &Holder, other: &Holder| {
            one.answered.iter().any(|(from, to)| other.answered.iter().any(|(begin, end)| from < end && begin < to))
        };
        let pairs = self.holders.iter().enumerate();
        let mut pairs = pairs.flat_map(|(at, one)| self.holders[at + 1..].iter().map(move |other| (one, other)));
        pairs.find(|(one, other)| meet(one, other)).map(|(one, other)| (one.node, other.node))
    }
}

/// Causes a fault of a node while a client writes and every holder is probed. Then it ends the fault. Checks that the client was
/// answered all the time except once.
fn survives(scenario: &Scenario, fault: Fault, node: &'static str, what: &str) -> FaultResult {
    let lab = scenario.lab();
    let address = lab.plan().api.to_string();
    let holds = |node: &str| {
        let seen = lab.run_inside(node, &["ip", "-4", "address", "show"], MOMENT)?;
        Ok::<_, anyhow::Error>(seen.contains(&format!("inet {address}/")))
    };
    probe(scenario, &address);
    let writer = Writer::start(scenario);
    let written = |what: &str, more: usize| {
        let before = writer.acknowledged();
        scenario.wait(what, MOMENT, || Ok(writer.acknowledged() >= before + more));
    };
    written("the client to write", SETTLED / 10);
    if holds(node).unwrap() {
        scenario.wait(&format!("{node} to answer a probe"), MOMENT, || {
            Ok(lab.run_inside(node, &["sh", "-c", "cat /run/probed || true"], MOMENT)?.contains('+'))
        });
    }

    scenario.reached(&format!("{what} suffers: {fault:?} on {node}"));
    fault.begin(scenario, node);
    scenario.wait(&format!("{node} to hold no virtual IP"), MOMENT, || Ok(!holds(node)?));
    written("the client to go on without it", SETTLED);

    fault.end(scenario, node);
    scenario.wait(&format!("{node} to take part again"), MOMENT, || {
        let ready = ["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "--raw=/readyz"];
        let own = format!("--server=https://{}:{}", endpoint::address(scenario, node), ports::API);
        Ok(lab.run_inside(node, &[&ready[..], &[own.as_str()]].concat(), MOMENT)?.trim() == "ok")
    });
    written("the client to go on with it", SETTLED);
    scenario.all_ready(MOMENT);
    etcdctl(scenario, node, &["endpoint", "health"]);
    let holders: Vec<&str> = ALL.into_iter().filter(|node| holds(node).unwrap()).collect();

    let figures = writer.end();
    scenario.reached(&format!("{what} is healed of {fault:?}: {figures}"));
    let seen = FaultResult { figures, holders: ALL.map(|node| probed(scenario, node)).into() };
    assert!(seen.figures.longest_gap < LONGEST_GAP, "{}", seen.figures);
    assert!(seen.figures.outages <= 1, "tries failed again after others had come through: {}", seen.figures);
    assert_eq!(holders.len(), 1, "{holders:?} hold the virtual IP");
    assert!(seen.holders.iter().any(|holder| !holder.answered.is_empty()), "no holder was probed");
    assert_eq!(seen.two_at_once(), None, "two holders answered writes");
    seen
}

/// Begins to probe the API of each node that holds the address.
fn probe(scenario: &Scenario, address: &str) {
    for node in ALL {
        let credential = endpoint::CREDENTIAL;
        let script = format!("cat >/run/probe.sh <<'END'\n{PROBE}\nEND\nrm --force /run/probed {credential}\n");
        scenario.inside(node, &["sh", "-ec", &script]);
        endpoint::issue(scenario, node, "administrator");
        let (own, port) = (endpoint::address(scenario, node).to_string(), ports::API.to_string());
        let run = [
            "systemd-run",
            "--quiet",
            "--collect",
            "--unit=probe",
            "sh",
            "/run/probe.sh",
            address,
            &own,
            &port,
            credential,
        ];
        scenario.inside(node, &run);
    }
}

/// Ends that on one node, and says what was seen.
fn probed(scenario: &Scenario, node: &'static str) -> Holder {
    let script = "systemctl stop probe.service; touch /run/probed; cat /run/probed";
    let mut holder = Holder { node, answered: Vec::new(), refused: 0 };
    for line in scenario.inside(node, &["sh", "-ec", script]).lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["+", from, to] => holder.answered.push((from.parse().unwrap(), to.parse().unwrap())),
            ["-", _, _] => holder.refused += 1,
            _ => panic!("the probe of {node} says {line:?}"),
        }
    }
    holder
}
