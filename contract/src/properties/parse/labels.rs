//! Labels and taints of a Kubernetes node.

use super::super::value::{Effect, Label, Problem, Taint};
use super::{names, quoted};
use crate::codes;

/// Labels that a node gives itself.
///
/// # Errors
/// Each that is malformed, that a node may not set, or whose key is repeated.
pub fn labels(text: &str) -> Result<Vec<Label>, Vec<Problem>> {
    let labels = names::list(text, label)?;
    once(labels, "labels", |label| label.key.clone())
}

/// Taints that a node has when it joins.
///
/// # Errors
/// Each that is malformed or repeated.
pub fn taints(text: &str) -> Result<Vec<Taint>, Vec<Problem>> {
    let taints = names::list(text, taint)?;
    once(taints, "taints", |taint| format!("{}:{}", taint.key, taint.effect.name()))
}

fn once<T>(entries: Vec<T>, what: &str, key: impl Fn(&T) -> String) -> Result<Vec<T>, Vec<Problem>> {
    let keys: Vec<String> = entries.iter().map(key).collect();
    let twice = (0..keys.len()).find(|index| keys[..*index].contains(&keys[*index]));
    match twice {
        None => Ok(entries),
        Some(index) => Err(malformed(format!("two {what} are named {}", keys[index]), "Leave one of them").into()),
    }
}

fn label(text: &str) -> Result<Label, Problem> {
    let Some((key, value)) = text.split_once('=') else {
        let action = "Give entries such as example.com/tier=edge; the value may be empty";
        return Err(malformed(format!("{} is not of the form key=value", quoted(text)), action));
    };
    check_key(key)?;
    check_value(value)?;
    if !nodes_own(key) {
        return Err(Problem::new(
            &codes::NODE_LABELS_RESERVED,
            format!("{} is not a node's own to set", quoted(key)),
            "Leave it out, and label the node with kubectl once it has joined; or use a prefix of your own",
        ));
    }
    Ok(Label { key: key.to_owned(), value: value.to_owned() })
}

fn taint(text: &str) -> Result<Taint, Problem> {
    let action = "Give entries such as example.com/edge=true:NoSchedule";
    let wrong = |why: &str| malformed(format!("{} {why}", quoted(text)), action);
    let (pair, effect) = text.rsplit_once(':').ok_or_else(|| wrong("has no effect"))?;
    let effect = Effect::ALL.into_iter().find(|known| known.name() == effect);
    let effect = effect.ok_or_else(|| wrong("has none of the effects NoSchedule, PreferNoSchedule and NoExecute"))?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    check_key(key)?;
    check_value(value)?;
    Ok(Taint { key: key.to_owned(), value: value.to_owned(), effect })
}

/// Whether a kubelet may set this label on its node (Kubernetes, `NodeRestriction`, and the kubelet's `--node-labels`).
/// Labels that the kubelet derives from the machine are left to it.
fn nodes_own(key: &str) -> bool {
    const SHOWN: [&str; 3] =
        ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "node.kubernetes.io/instance-type"];
    let Some((prefix, _)) = key.split_once('/') else { return true };
    let below = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
    if !below("kubernetes.io") && !below("k8s.io") {
        // The appliance's own label for pools has a property.
        return prefix != "kaas.local";
    }
    SHOWN.contains(&key) || below("kubelet.kubernetes.io") || below("node.kubernetes.io")
}

/// Kubernetes, "Labels and Selectors": a name, and before it a domain and a slash.
fn check_key(key: &str) -> Result<(), Problem> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_none_or(names::is_domain) && !name.is_empty() && is_word(name) {
        return Ok(());
    }
    Err(malformed(
        format!("{} is no key", quoted(key)),
        "Give at most 63 letters, digits, dashes, underscores and dots, and before it a domain and a slash or nothing",
    ))
}

fn check_value(value: &str) -> Result<(), Problem> {
    if is_word(value) {
        return Ok(());
    }
    let action = "Give at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends";
    Err(malformed(format!("{} is no value", quoted(value)), action))
}

fn is_word(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && ends(text.bytes().next())
        && ends(text.bytes().last())
}

fn malformed(seen: String, action: &str) -> Problem {
    Problem::new(&codes::PROPERTY_MALFORMED, seen, action)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    fn codes_of<T: fmt::Debug>(read: Result<T, Vec<Problem>>) -> Vec<&'static str> {
        read.unwrap_err().iter().map(|problem| problem.code.code).collect()
    }

    #[test]
    fn labels_are_read_as_they_are_written() {
        for text in
            ["a=b", "example.com/Tier=Edge_1.x", "a=", "topology.kubernetes.io/zone=a", "node.kubernetes.io/x=1"]
        {
            let read = labels(text).unwrap();
            assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        }
        assert_eq!(labels("a=1, b=2").unwrap().len(), 2);
        for text in ["a", "=b", "a b=c", "-a=b", "a=b-", "a/b/c=d", "/a=b", "a=b=c", &format!("{}=x", "a".repeat(64))] {
            assert!(codes_of(labels(text)).contains(&"property.malformed"), "{text}");
        }
        assert_eq!(codes_of(labels("a=1,a=2")), ["property.malformed"]);
    }

    #[test]
    fn labels_that_nodes_may_not_set_are_named() {
        for key in [
            "kubernetes.io/hostname",
            "node-role.kubernetes.io/worker",
            "node-restriction.kubernetes.io/team",
            "beta.kubernetes.io/os",
            "x.k8s.io/y",
            "kaas.local/pool",
        ] {
            let problems = labels(&format!("{key}=x,a=b")).unwrap_err();
            assert_eq!(problems.len(), 1, "{key}");
            assert_eq!(problems[0].code.code, "node-labels.reserved");
            assert!(problems[0].seen.contains(key), "{}", problems[0].seen);
        }
    }

    /// The same table is held against what a control cluster's API server refuses.
    #[test]
    fn keys_are_judged_as_the_table_has_it() {
        for line in include_str!("../../../testdata/node-label-keys.txt").lines().filter(|line| !line.starts_with('#'))
        {
            let (judged, key) = line.split_once(' ').unwrap();
            let found = match labels(&format!("{key}=x")) {
                Ok(labels) if labels.iter().any(|label| label.key == key) => "own",
                Ok(_) => "another key",
                Err(problems) if problems.iter().all(|problem| problem.code.code == "node-labels.reserved") => {
                    "reserved"
                }
                Err(_) => "malformed",
            };
            assert_eq!(found, judged, "{key:?}");
        }
    }

    #[test]
    fn taints_have_an_effect() {
        for text in ["a=b:NoSchedule", "example.com/edge:NoExecute", "a:PreferNoSchedule"] {
            assert_eq!(taints(text).unwrap()[0].to_string(), text);
        }
        assert_eq!(taints("a=b:NoSchedule,a=c:NoExecute").unwrap().len(), 2);
        for text in ["a", "a=b", "a=b:noschedule", ":NoSchedule", "a=b:NoSchedule,a=c:NoSchedule"] {
            assert_eq!(codes_of(taints(text)), ["property.malformed"], "{text}");
        }
    }
}
