//! A control node that is lost for good, VM and data disk, and what an administrator does then.

use std::collections::BTreeMap;

use contract::replacement::ReplacementGrant;
use lab::{NewVm, Source};
use uuid::Uuid;

use crate::scenario::{FORMING, Scenario};

/// Gives a command to the agent in a VM and returns what it prints.
///
/// # Panics
/// It fails.
pub fn agent(scenario: &Scenario, vm: &str, arguments: &[&str]) -> String {
    scenario.inside(vm, &[&["kaas-agent"], arguments].concat())
}

/// Takes the data disk out of a VM that is off.
///
/// # Panics
/// It has none.
pub fn take_out(scenario: &Scenario, node: &str) -> Uuid {
    let disk = scenario.lab().disks(node).unwrap()[0];
    scenario.lab().detach_disk(node, disk).unwrap();
    disk
}

/// Takes a VM and its data disk away. Gives the disk.
///
/// # Panics
/// The lab cannot.
pub fn lose(scenario: &Scenario, node: &str) -> Uuid {
    scenario.cut(node);
    let disk = take_out(scenario, node);
    scenario.lab().destroy(node).unwrap();
    disk
}

/// Replaces a lost node with a blank VM, as an administrator would: with a code from the node in the VM `from`, what the
/// cluster agrees on by its word, and another image than the lab's own if one is given. Gives the code.
///
/// # Panics
/// The node refuses.
pub fn replace(scenario: &Scenario, node: &str, from: &str, source: Option<Source>) -> String {
    let answer = agent(scenario, from, &["replace-member", node, "--output", "json"]);
    let admitted: ReplacementGrant = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let mut properties = scenario.properties(node);
    properties.extend(admitted.properties);
    import_blank(scenario, node, properties, &admitted.code, source);
    admitted.code
}

/// Powers a blank VM of a node on that was given a code, and for the rest what the lost one had.
///
/// # Panics
/// The lab cannot.
pub fn power_on_blank(scenario: &Scenario, node: &str, code: &str) {
    import_blank(scenario, node, scenario.properties(node), code, None);
}

fn import_blank(
    scenario: &Scenario,
    node: &str,
    mut properties: BTreeMap<String, String>,
    code: &str,
    source: Option<Source>,
) {
    properties.insert("deployment-secret".to_owned(), code.to_owned());
    let vm = NewVm { source, ..scenario.vm(node, properties) };
    scenario.lab().import(&vm).unwrap_or_else(|error| panic!("{error:#}"));
    scenario.power_on(&[node]);
}

/// Waits until etcd has three members with a vote.
///
/// # Panics
/// It has not.
pub fn three_members(scenario: &Scenario, node: &str) {
    scenario.wait("three members with a vote", FORMING, || {
        let members = scenario.etcd_members(node);
        // `member list` ends each line with whether it is a learner.
        Ok(members.len() == 3 && members.iter().all(|line| line.contains("started") && line.ends_with("false")))
    });
}
