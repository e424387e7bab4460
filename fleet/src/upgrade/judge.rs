//! Whether an upgrade may be: every condition with its evidence, or with the reason
//! why it does not hold. Pure.

use std::collections::BTreeMap;

use contract::node::Node;
use contract::version::allows;
use semver::Version;

use super::entry::{Direction, Outcome};
use super::hypervisor::PowerState;
use super::inventory::{Inventory, SeenNode};
use super::plan::{Evidence, Mode, Options, new_name};
use super::refusal::{self as codes, Refusal};
use super::target::Target;

/// All that was judged.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) grounds: Vec<Evidence>,
    pub(super) refusals: Vec<Refusal>,
}

impl Judged {
    pub(super) fn holds(&mut self, subject: &str, evidence: impl Into<String>) {
        self.grounds.push(Evidence { subject: subject.to_owned(), evidence: evidence.into() });
    }

    pub(super) fn refuse(&mut self, code: &'static str, subject: &str, reason: impl Into<String>) {
        self.refusals.push(Refusal { code, subject: subject.to_owned(), reason: reason.into() });
    }
}

const OVA: &str = "the OVA";
const CLUSTER: &str = "the cluster";

pub(super) fn judge(inventory: &Inventory, target: &Target, options: &Options) -> Judged {
    let mut judged = Judged::default();
    trust(&mut judged, inventory, target, options);
    cluster(&mut judged, inventory);
    for node in &inventory.nodes {
        let Some(facts) = answering(&mut judged, node) else { continue };
        health(&mut judged, node, facts);
        machine(&mut judged, inventory, node, facts, target);
        image(&mut judged, facts, target, options);
    }
    judged
}

/// What a node says, if it does.
pub(super) fn answering<'n>(judged: &mut Judged, node: &'n SeenNode) -> Option<&'n Node> {
    match &node.facts {
        Ok(facts) => Some(facts),
        Err(why) => {
            let reason = format!("its endpoint at {} does not answer ({why}); bring the node back first", node.address);
            judged.refuse(codes::NODE_SILENT, &node.name, reason);
            None
        }
    }
}

/// Who must have signed, and who has. The node's part of it is to refuse an image whose publisher is not the pinned
/// one.
fn trust(judged: &mut Judged, inventory: &Inventory, target: &Target, options: &Options) {
    let signed = |signer: &str| format!("whole, signed with {signer}");
    let signer = target.signer.as_ref();
    if let Some(given) = &options.publisher {
        match signer {
            None => judged.refuse(codes::UNSIGNED, OVA, "it is not signed, and --publisher was given"),
            Some(signer) if signer != given => {
                let reason = format!("it is signed with {signer}; the key that was given with --publisher is {given}");
                judged.refuse(codes::PUBLISHER, OVA, reason);
            }
            Some(signer) => {
                judged.holds(OVA, format!("{}, which was given with --publisher", signed(signer)));
                change_of_publisher(judged, inventory, target, given, options.mode);
            }
        }
        return;
    }
    match (pinned(inventory).as_slice(), signer) {
        ([] | [(None, _)], Some(signer)) => {
            judged.holds(OVA, format!("{}; no key is pinned, any would do", signed(signer)))
        }
        ([] | [(None, _)], None) => judged.holds(OVA, "whole; not signed: a development image. No key is pinned"),
        ([(Some(pinned), _)], Some(signer)) if pinned == signer => {
            judged.holds(OVA, format!("{}, the key that is pinned on all nodes", signed(signer)));
        }
        ([(Some(pinned), _)], Some(signer)) => judged.refuse(
            codes::PUBLISHER,
            OVA,
            format!(
                "it is signed with {signer}, and {pinned} is pinned. If the publisher has changed, give the new one's \
                 key with --publisher"
            ),
        ),
        ([(Some(pinned), _)], None) => {
            judged.refuse(
                codes::UNSIGNED,
                OVA,
                format!("it is not signed, and the key {pinned} is pinned; use a signed OVA"),
            );
        }
        (several, _) => {
            let pins = several
                .iter()
                .map(|(key, nodes)| format!("{}: {}", nodes.join(" and "), key.as_deref().unwrap_or("none")));
            let reason = format!(
                "the pinned keys differ: {}; say with --publisher whose key is the one",
                pins.collect::<Vec<_>>().join(", ")
            );
            judged.refuse(codes::PINS_DIFFER, CLUSTER, reason);
        }
    }
}

/// The keys that are pinned, each with the nodes on which it is.
fn pinned(inventory: &Inventory) -> Vec<(Option<String>, Vec<String>)> {
    let mut pinned: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for node in &inventory.nodes {
        if let Ok(facts) = &node.facts {
            pinned.entry(facts.pinned.clone()).or_default().push(node.name.clone());
        }
    }
    pinned.into_iter().collect()
}

/// What `--publisher` changes. Only a node that is prepared for its swap learns of it beforehand.
fn change_of_publisher(judged: &mut Judged, inventory: &Inventory, target: &Target, given: &str, mode: Mode) {
    let facts = inventory.nodes.iter().filter_map(|node| node.facts.as_ref().ok());
    let swapped = facts.filter(|facts| facts.image.build != target.image.build);
    for facts in swapped.filter(|facts| facts.pinned.as_deref() != Some(given)) {
        let instead = match &facts.pinned {
            Some(key) => format!("in place of {key}"),
            None => "where none is".to_owned(),
        };
        match mode {
            Mode::Rolling => judged.holds(&facts.node, format!("the commit pins {given} {instead}: --publisher")),
            Mode::AllAtOnce => judged.refuse(
                codes::PUBLISHER,
                &facts.node,
                format!("{given} would be pinned {instead}; nodes change their publisher one by one only"),
            ),
        }
    }
}

pub(super) fn cluster(judged: &mut Judged, inventory: &Inventory) {
    match &inventory.locked_by {
        Some(holder) => {
            judged.refuse(
                codes::LOCKED,
                CLUSTER,
                format!("{holder} holds its lock for upgrades; wait until it has ended"),
            );
        }
        None => judged.holds(CLUSTER, "nobody holds its lock for upgrades"),
    }
    let Some(earlier) = &inventory.earlier else { return };
    match (earlier.direction, earlier.outcome) {
        (_, Some(Outcome::RolledBack | Outcome::Committed)) => {}
        (_, Some(Outcome::Upgraded)) => judged.refuse(
            codes::UNCOMMITTED,
            CLUSTER,
            format!("the upgrade {} is not committed; `kaas upgrade commit` or `rollback` first", earlier.id),
        ),
        (Direction::Commit, None) => judged.refuse(
            codes::UNFINISHED,
            CLUSTER,
            format!("committing the upgrade {} has not ended; `kaas upgrade resume` first", earlier.id),
        ),
        (_, None) => judged.refuse(
            codes::UNFINISHED,
            CLUSTER,
            format!("the upgrade {} has not ended; `kaas upgrade resume` or `rollback` first", earlier.id),
        ),
    }
}

pub(super) fn health(judged: &mut Judged, node: &SeenNode, facts: &Node) {
    match (&facts.good, facts.ready) {
        (Some(_), true) => judged.holds(&node.name, format!("ready and found good, on {}", facts.image.build())),
        (None, true) => judged.refuse(
            codes::NODE_NOT_READY,
            &node.name,
            "its boot was not found good yet; see `kaas-agent status` there, and try again when it is",
        ),
        (_, false) => judged.refuse(
            codes::NODE_NOT_READY,
            &node.name,
            "it does not do its part of the cluster; `kaas-agent status` there says why",
        ),
    }
    if let Some(swap) = &facts.swap {
        judged.refuse(
            codes::SWAP_OPEN,
            &node.name,
            format!(
                "its swap {} is under way or not committed; `kaas upgrade commit`, or on the node `kaas-agent commit-swap`",
                swap.id
            ),
        );
    }
    let Some(etcd) = &facts.etcd else {
        judged.refuse(codes::MEMBER_UNHEALTHY, &node.name, "its etcd does not answer; mend it first");
        return;
    };
    let ill: Vec<&str> = etcd.members.iter().filter(|member| !member.healthy).map(|member| &*member.name).collect();
    let learners: Vec<&str> = etcd.members.iter().filter(|member| member.learner).map(|member| &*member.name).collect();
    if !ill.is_empty() {
        let reason = format!("etcd's member {} is not healthy, seen from here; mend it first", ill.join(", "));
        judged.refuse(codes::MEMBER_UNHEALTHY, &node.name, reason);
    }
    if !learners.is_empty() {
        let reason = format!("etcd's member {} has no vote yet; wait until it has", learners.join(", "));
        judged.refuse(codes::MEMBER_UNHEALTHY, &node.name, reason);
    }
    if ill.is_empty() && learners.is_empty() {
        let leads = if etcd.leader { ", which leads" } else { "" };
        let count = etcd.members.len();
        judged.holds(&node.name, format!("etcd {}, member {}{leads}; all {count} healthy", etcd.version, etcd.member));
    }
}

fn machine(judged: &mut Judged, inventory: &Inventory, node: &SeenNode, facts: &Node, target: &Target) {
    let members = facts.etcd.as_ref().map(|etcd| etcd.members.len());
    if members.is_some_and(|count| count != inventory.nodes.len()) {
        judged.refuse(
            codes::MEMBERS_DIFFER,
            &node.name,
            format!(
                "etcd has {} members, Kubernetes {} control nodes",
                members.unwrap_or_default(),
                inventory.nodes.len()
            ),
        );
    }
    let Some(vm) = inventory.vms.iter().find(|vm| Some(vm.uuid) == facts.holder) else {
        let holder = facts.holder.map_or_else(|| "none".to_owned(), |holder| holder.to_string());
        let reason = format!("the hypervisor has no VM with the BIOS UUID {holder}; is it the right hypervisor?");
        judged.refuse(codes::VM_UNKNOWN, &node.name, reason);
        return;
    };
    match (vm.power, vm.disks.as_slice()) {
        (PowerState::Off, _) => {
            judged.refuse(
                codes::VM_POWER,
                &node.name,
                format!("the node answers, yet its VM {} is off: a copy of it runs somewhere", vm.name),
            );
        }
        (PowerState::On, [disk]) => judged.holds(&node.name, format!("VM {} ({}), data disk {disk}", vm.name, vm.uuid)),
        (PowerState::On, disks) => judged.refuse(
            codes::VM_DISKS,
            &node.name,
            format!("its VM {} holds {} data disks; it must be exactly one", vm.name, disks.len()),
        ),
    }
    let new = new_name(&node.name, target);
    if facts.image.build != target.image.build && inventory.vms.iter().any(|vm| vm.name == new) {
        let reason = format!("there is a VM {new} already; remove it if nobody needs it");
        judged.refuse(codes::VM_NAME, &node.name, reason);
    }
}

fn image(judged: &mut Judged, facts: &Node, target: &Target, options: &Options) {
    let (node, runs) = (&facts.node, facts.image.build());
    if facts.image.name != target.name {
        let reason = format!("it is of {}, {node} is a {}; use that appliance's OVA", target.name, facts.image.name);
        judged.refuse(codes::PRODUCT, OVA, reason);
    }
    let minor = minor(&facts.kubernetes.version);
    if target.kubernetes.contains(&minor) {
        judged.holds(node, format!("Kubernetes {}, a minor that the image carries", facts.kubernetes.version));
    } else {
        let carried = target.kubernetes.join(" and ");
        let reason = format!("{node} runs Kubernetes {}; the image carries {carried}", facts.kubernetes.version);
        judged.refuse(codes::KUBERNETES, OVA, reason);
    }
    match (Version::parse(&facts.image.version), Version::parse(&target.image.version)) {
        (Ok(from), Ok(to)) if to.cmp_precedence(&from).is_ge() => follows(judged, facts, target),
        (Ok(_), Ok(_)) if options.downgrade && options.mode == Mode::Rolling => {
            judged.holds(node, format!("an older image than {runs} was asked for: --downgrade"));
        }
        (Ok(_), Ok(_)) if options.downgrade => {
            judged.refuse(
                codes::DOWNGRADE,
                OVA,
                format!("{node} runs {runs}; nodes go to an older image one by one only"),
            );
        }
        (Ok(_), Ok(_)) => judged.refuse(
            codes::DOWNGRADE,
            OVA,
            format!("it is {}, older than what {node} runs, {runs}; if that is meant, say --downgrade", target.image),
        ),
        _ => judged.refuse(
            codes::VERSION,
            OVA,
            format!("{} or {} is no version of the form 1.2.3", facts.image.version, target.image.version),
        ),
    }
}

/// Whether the image may take the place of the one that a node runs, which is not newer.
fn follows(judged: &mut Judged, facts: &Node, target: &Target) {
    let (node, runs) = (&facts.node, facts.image.build());
    let Some(from) = &target.upgrades_from else { return };
    if allows(from, &runs.version) {
        judged.holds(node, format!("image {}, of which the new one may take the place ({from})", runs.version));
    } else if runs.version != target.image.version {
        let reason = format!(
            "{} may take the place of {from} only, and {node} runs {runs}; go by an image between the two",
            target.image
        );
        judged.refuse(codes::FROM_VERSION, OVA, reason);
    }
}

fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}
