//! The first lines of the status page: the state of the node and of its cluster, and the ways to reach them.

use contract::codes;
use contract::role::Role;

use super::facts::{Access, Facts};
use crate::status::{Health, Phase, Status, Work};

/// How urgent a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    Good,
    Pending,
    Bad,
    Plain,
}

/// One line. The page shows it as `name: value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) urgency: Urgency,
}

/// The lines for a node with this status. Lines whose facts are unknown are left out.
pub(super) fn headlines(facts: &Facts, status: &Status) -> Vec<Headline> {
    let line = |name, (value, urgency)| Headline { name, value, urgency };
    let plain = |value| (value, Urgency::Plain);
    let lines = [
        Some(line("this node", this_node(facts, status))),
        cluster(facts, status).map(|words| line("cluster", words)),
        facts.api.as_ref().map(|url| line("API", plain(format!("{url} (for kubectl)")))),
        Some(line("menu", plain(menu(facts).to_owned()))),
        ssh(facts, status).map(|words| line("SSH", plain(words))),
        kubeconfig(facts).map(|words| line("kubeconfig", plain(words.to_owned()))),
    ];
    lines.into_iter().flatten().collect()
}

fn this_node(facts: &Facts, status: &Status) -> (String, Urgency) {
    let maintenance = status.swap.as_ref().filter(|swap| swap.stage.is_under_way()).map(ToString::to_string);
    let maintenance = maintenance.or_else(|| {
        let evacuation = status.evacuation.as_ref().filter(|evacuation| evacuation.stage.is_under_way());
        evacuation.map(ToString::to_string)
    });
    match (status.phase, &status.work) {
        (Phase::Refused, _) => (status.summary(), Urgency::Bad),
        (Phase::Done, _) => match maintenance {
            Some(words) => (format!("in maintenance: {words}"), Urgency::Pending),
            None if status.is_ready() => (status.summary(), Urgency::Good),
            None => (status.summary(), Urgency::Pending),
        },
        (Phase::Working | Phase::Waiting, Some(work)) => {
            let activity = match facts.role {
                _ if status.phase == Phase::Waiting => "waiting",
                _ if facts.settled => "starting",
                Some(Role::Worker) => "joining",
                _ => "forming",
            };
            (format!("{activity}, {}", progress(work)), Urgency::Pending)
        }
        (Phase::Looking | Phase::Working | Phase::Waiting, _) => {
            (format!("starting, {}", status.summary()), Urgency::Pending)
        }
    }
}

fn progress(work: &Work) -> String {
    let Work { number, total, step, waiting } = work;
    let waiting = waiting.as_ref().map(|words| format!(": {}", codes::plain(words.clone()))).unwrap_or_default();
    format!("step {number} of {total}, {step}{waiting}")
}

fn cluster(facts: &Facts, status: &Status) -> Option<(String, Urgency)> {
    if let Some(health) = &status.health {
        return Some(match facts.role {
            Some(Role::Worker) if health.api => ("the API answers".to_owned(), Urgency::Good),
            Some(Role::Worker) => ("the API does not answer".to_owned(), Urgency::Bad),
            _ => ready_nodes(facts, health),
        });
    }
    match (status.phase, facts.role) {
        (Phase::Looking | Phase::Refused, _) => None,
        _ if facts.settled => Some(("unknown until this node has started".to_owned(), Urgency::Pending)),
        (_, Some(Role::Worker)) => Some(("this node has not joined yet".to_owned(), Urgency::Pending)),
        (Phase::Waiting, _) if facts.control_nodes > 1 => {
            Some((format!("forming from {} control-plane nodes", facts.control_nodes), Urgency::Pending))
        }
        _ => Some(("forming".to_owned(), Urgency::Pending)),
    }
}

fn ready_nodes(facts: &Facts, health: &Health) -> (String, Urgency) {
    let Some(nodes) = &health.nodes else { return ("unknown: the API does not answer".to_owned(), Urgency::Bad) };
    // A control-plane node that has not registered yet counts too.
    let total = nodes.len().max(facts.control_nodes);
    let ready = nodes.iter().filter(|node| node.ready).count();
    let noun = if total == 1 { "node" } else { "nodes" };
    let urgency = if ready == total { Urgency::Good } else { Urgency::Bad };
    (format!("{ready} of {total} {noun} ready"), urgency)
}

fn menu(facts: &Facts) -> &'static str {
    match facts.access {
        Access::Open => "press Enter",
        Access::Locked => "press Enter, needs the password",
        Access::ResetOnly => "press Enter, only to reset the node",
        Access::StatusOnly if facts.is_searching() => "available in a moment",
        Access::StatusOnly => "off, no console password is set",
    }
}

fn ssh(facts: &Facts, status: &Status) -> Option<String> {
    let address = status.address?;
    Some(match facts.ssh_keys? {
        0 => "off, no key is set".to_owned(),
        1 => format!("admin@{address} (1 key set)"),
        keys => format!("admin@{address} ({keys} keys set)"),
    })
}

fn kubeconfig(facts: &Facts) -> Option<&'static str> {
    match facts.role? {
        _ if !facts.settled => None,
        Role::ControlPlane => Some("`kaas control kubeconfig`, or here: `sudo kaas-agent kubeconfig`"),
        Role::TenantControlPlane => Some("`kaas cluster kubeconfig NAME`"),
        Role::Worker => None,
    }
}

#[cfg(test)]
mod tests {
    use contract::swap::{EvacuationState, Losses, Stage};

    use super::*;
    use crate::cluster::kubernetes::api::Node;

    fn node(name: &str, ready: bool) -> Node {
        Node { name: name.into(), ready }
    }

    fn done(nodes: Option<Vec<Node>>) -> Status {
        let health = Some(Health { api: true, nodes, ..Health::default() });
        Status { node: Some("cp1".into()), phase: Phase::Done, health, ..Status::default() }
    }

    fn of(role: Role) -> Facts {
        Facts { role: Some(role), control_nodes: 3, settled: true, access: Access::Locked, ..Facts::default() }
    }

    fn value(facts: &Facts, status: &Status, name: &str) -> Option<String> {
        headlines(facts, status).into_iter().find(|line| line.name == name).map(|line| line.value)
    }

    fn working(phase: Phase) -> Status {
        let work = Work { number: 3, total: 9, step: "starting etcd".into(), waiting: Some("no quorum".into()) };
        Status { phase, work: Some(work), ..Status::default() }
    }

    #[test]
    fn ready_nodes_are_counted_with_missing_ones() {
        let facts = of(Role::ControlPlane);
        let words = |nodes| value(&facts, &done(nodes), "cluster").unwrap();
        assert_eq!(words(Some(vec![node("cp1", true), node("cp2", true), node("cp3", false)])), "2 of 3 nodes ready");
        assert_eq!(words(Some(vec![node("cp1", true)])), "1 of 3 nodes ready");
        assert_eq!(words(None), "unknown: the API does not answer");
        let alone = Facts { control_nodes: 1, ..facts.clone() };
        let status = done(Some(vec![node("cp1", true)]));
        assert_eq!(value(&alone, &status, "cluster").unwrap(), "1 of 1 node ready");
        assert_eq!(value(&alone, &status, "this node").unwrap(), "ready");
    }

    #[test]
    fn each_phase_has_its_words() {
        let unformed = Facts { settled: false, ..of(Role::ControlPlane) };
        let joining = Facts { settled: false, ..of(Role::Worker) };
        let words = |facts: &Facts, status: &Status| {
            (value(facts, status, "this node").unwrap(), value(facts, status, "cluster"))
        };
        let step = "step 3 of 9, starting etcd: no quorum";
        let expected = |activity: &str, cluster: &str| (format!("{activity}, {step}"), Some(cluster.to_owned()));
        assert_eq!(words(&unformed, &working(Phase::Working)), expected("forming", "forming"));
        let waiting = words(&unformed, &working(Phase::Waiting));
        assert_eq!(waiting, expected("waiting", "forming from 3 control-plane nodes"));
        assert_eq!(words(&joining, &working(Phase::Working)), expected("joining", "this node has not joined yet"));
        let again = words(&of(Role::ControlPlane), &working(Phase::Working));
        assert_eq!(again, expected("starting", "unknown until this node has started"));
        let (node, cluster) = words(&unformed, &Status::default());
        assert_eq!((node.as_str(), cluster), ("starting, looking at disks and configuration", None));
        let (node, cluster) = words(&unformed, &Status { phase: Phase::Refused, ..Status::default() });
        assert_eq!((node.as_str(), cluster), ("stopped: 0 problems must be corrected", None));
    }

    #[test]
    fn maintenance_precedes_readiness() {
        let facts = of(Role::ControlPlane);
        let mut status = done(Some(vec![node("cp1", true)]));
        let evacuation = |stage| EvacuationState {
            id: uuid::Uuid::nil(),
            stage,
            error: None,
            code: None,
            losses: Losses::default(),
        };
        status.evacuation = Some(evacuation(Stage::Draining));
        let words = value(&facts, &status, "this node").unwrap();
        assert!(words.starts_with("in maintenance: evacuation"), "{words}");
        status.evacuation = Some(evacuation(Stage::Failed));
        assert_eq!(value(&facts, &status, "this node").unwrap(), "ready");
    }

    #[test]
    fn access_lines_depend_on_role_and_keys() {
        let status = Status { address: Some([192, 168, 10, 11].into()), ..done(None) };
        let facts = |role, keys| Facts { ssh_keys: Some(keys), ..of(role) };
        let ssh = |keys| value(&facts(Role::ControlPlane, keys), &status, "SSH").unwrap();
        assert_eq!(ssh(0), "off, no key is set");
        assert_eq!(ssh(1), "admin@192.168.10.11 (1 key set)");
        assert_eq!(ssh(2), "admin@192.168.10.11 (2 keys set)");
        let kubeconfig = |role| value(&of(role), &status, "kubeconfig");
        assert!(kubeconfig(Role::ControlPlane).unwrap().contains("kaas control kubeconfig"));
        assert_eq!(kubeconfig(Role::TenantControlPlane).unwrap(), "`kaas cluster kubeconfig NAME`");
        assert_eq!(kubeconfig(Role::Worker), None);
        let unformed = Facts { settled: false, ..of(Role::ControlPlane) };
        assert_eq!(value(&unformed, &status, "kubeconfig"), None);
        let menu = |access| value(&Facts { access, ..of(Role::ControlPlane) }, &status, "menu").unwrap();
        assert_eq!(menu(Access::StatusOnly), "off, no console password is set");
        assert_eq!(menu(Access::Open), "press Enter");
    }
}
