//! Whether the image is permitted: its signer, and whether it may replace the nodes' images.

use std::collections::BTreeMap;

use contract::minor::Minor;
use contract::node::Node;
use contract::version::allows;
use semver::Version;

use super::{CLUSTER, Judged};
use crate::upgrade::inventory::Inventory;
use crate::upgrade::plan::{DescribedPublisher, Mode, Options};
use crate::upgrade::refusal as codes;
use crate::upgrade::target::Target;

const OVA: &str = "the OVA";

/// The required signer, and the actual one. The node itself refuses an image whose publisher is not the pinned one.
pub(super) fn trust(judged: &mut Judged, inventory: &Inventory, target: &Target, options: &Options) {
    let signed = |signer: &str| format!("whole, signed with {signer}");
    let signer = target.signer.as_ref();
    if let Some(given) = &options.publisher {
        match signer {
            None => judged.refuse(codes::UNSIGNED, OVA, "it is not signed, and a publisher's key was given"),
            Some(signer) if signer != given => {
                let reason = format!("it is signed with {signer}; the key that was given is {given}");
                judged.refuse(codes::PUBLISHER, OVA, reason);
            }
            Some(signer) => {
                judged.holds(OVA, format!("{}, the key that was given", signed(signer)));
                change_of_publisher(judged, inventory, target, given, options.mode);
            }
        }
        return;
    }
    described(judged, target, options);
    match (pinned(inventory).as_slice(), signer) {
        ([] | [(None, _)], Some(signer)) => {
            let any = if options.described_publisher.is_some() { "" } else { ", any would do" };
            judged.holds(OVA, format!("{}; no key is pinned{any}", signed(signer)));
        }
        ([] | [(None, _)], None) => judged.holds(OVA, "whole; not signed: a development image. No key is pinned"),
        ([(Some(pinned), _)], Some(signer)) if pinned == signer => {
            judged.holds(OVA, format!("{}, the key that is pinned on all nodes", signed(signer)));
        }
        ([(Some(pinned), _)], Some(signer)) => {
            judged.refuse(codes::PUBLISHER, OVA, format!("it is signed with {signer}, and {pinned} is pinned"))
        }
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
            let reason = format!("the pinned keys differ: {}", pins.collect::<Vec<_>>().join(", "));
            judged.refuse(codes::PINS_DIFFER, CLUSTER, reason);
        }
    }
}

/// Whether the publisher that the description of the cluster names has signed, if the operator gives none. The pinned
/// publisher is judged separately.
fn described(judged: &mut Judged, target: &Target, options: &Options) {
    let Some(DescribedPublisher { key, by }) = &options.described_publisher else { return };
    let named = format!("{by} names the publisher whose key is {key}: use an OVA that is signed with it");
    match &target.signer {
        Some(signer) if signer == key => judged.holds(OVA, format!("signed with {signer}, the key that {by} names")),
        Some(signer) => {
            let reason = format!("it is signed with {signer}, and {named}, or correct what is named there");
            judged.refuse(codes::PUBLISHER, OVA, reason);
        }
        None => {
            let reason = format!("it is not signed, and {named}, or take `publisher` out of the file");
            judged.refuse(codes::UNSIGNED, OVA, reason);
        }
    }
}

/// The pinned keys, each with its nodes.
fn pinned(inventory: &Inventory) -> Vec<(Option<String>, Vec<String>)> {
    let mut pinned: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for node in &inventory.cluster.nodes {
        if let Ok(facts) = &node.facts {
            pinned.entry(facts.pinned.clone()).or_default().push(node.name.clone());
        }
    }
    pinned.into_iter().collect()
}

/// The effect of a given key. Only a node that is prepared for its swap learns of it beforehand.
fn change_of_publisher(judged: &mut Judged, inventory: &Inventory, target: &Target, given: &str, mode: Mode) {
    let facts = inventory.cluster.nodes.iter().filter_map(|node| node.facts.as_ref().ok());
    let swapped = facts.filter(|facts| facts.image.build != target.image.build);
    for facts in swapped.filter(|facts| facts.pinned.as_deref() != Some(given)) {
        let instead = match &facts.pinned {
            Some(key) => format!("in place of {key}"),
            None => "where none is".to_owned(),
        };
        match mode {
            Mode::Rolling => judged.holds(&facts.node, format!("the commit pins {given} {instead}, as was asked for")),
            Mode::AllAtOnce => judged.refuse(
                codes::PUBLISHER,
                &facts.node,
                format!("{given} would be pinned {instead}; nodes change their publisher one by one only"),
            ),
        }
    }
}

pub(super) fn judge(judged: &mut Judged, facts: &Node, target: &Target, options: &Options) {
    let (node, runs) = (&facts.node, facts.image.build());
    if facts.image.name != target.name {
        let reason = format!("it is of {}, {node} is a {}; use that appliance's OVA", target.name, facts.image.name);
        judged.refuse(codes::PRODUCT, OVA, reason);
    }
    let minor = Minor::of(&facts.kubernetes.version).map(|minor| minor.to_string());
    if minor.is_some_and(|minor| target.kubernetes.contains(&minor)) {
        judged.holds(node, format!("Kubernetes {}, a minor version that the image carries", facts.kubernetes.version));
    } else {
        let carried = target.kubernetes.join(" and ");
        let reason = format!("{node} runs Kubernetes {}; the image carries {carried}", facts.kubernetes.version);
        judged.refuse(codes::KUBERNETES, OVA, reason);
    }
    etcd(judged, facts, target);
    match (Version::parse(&facts.image.version), Version::parse(&target.image.version)) {
        (Ok(from), Ok(to)) if to.cmp_precedence(&from).is_ge() => follows(judged, facts, target),
        (Ok(_), Ok(_)) if options.downgrade && options.mode == Mode::Rolling => {
            judged.holds(node, format!("an older image than {runs} was asked for"));
        }
        (Ok(_), Ok(_)) if options.downgrade => {
            judged.refuse(
                codes::DOWNGRADE,
                OVA,
                format!("{node} runs {runs}; nodes go to an older image one by one only"),
            );
        }
        (Ok(_), Ok(_)) => {
            judged.refuse(codes::DOWNGRADE, OVA, format!("it is {}, older than what {node} runs, {runs}", target.image))
        }
        _ => judged.refuse(
            codes::VERSION,
            OVA,
            format!("{} or {} is no version of the form 1.2.3", facts.image.version, target.image.version),
        ),
    }
}

/// etcd's data goes to another minor version in a separate step, never by a swap: an older etcd could not read it.
fn etcd(judged: &mut Judged, facts: &Node, target: &Target) {
    let Some(running) = &facts.etcd else { return };
    let Some(runs) = Minor::of(&running.version) else {
        let reason = format!("its etcd has the version {:?}, whose minor version is not known", running.version);
        judged.refuse(codes::ETCD, &facts.node, reason);
        return;
    };
    match &target.etcd {
        Some(carried) if *carried == runs => judged.holds(&facts.node, format!("etcd {runs}, as the image carries it")),
        Some(carried) => {
            let reason = format!(
                "{} runs etcd {runs}; the image carries {carried}, and a swap cannot go to another minor version of etcd",
                facts.node
            );
            judged.refuse(codes::ETCD, OVA, reason);
        }
        None => {
            judged.refuse(codes::ETCD, OVA, "it does not say which minor version of etcd it carries; build it again")
        }
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
            "{} may take the place of {from} only, and {node} runs {runs}; use an image between the two first",
            target.image
        );
        judged.refuse(codes::FROM_VERSION, OVA, reason);
    }
}
