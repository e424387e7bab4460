//! A control node that is lost for good, VM and data disk, and what an administrator does then.

use lab::{NewVm, Source};
use serde_json::Value;
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

/// What a blank VM is made of that takes a lost node's place.
#[derive(Default)]
pub struct Replacement {
    /// Its image; the lab's own if none is given.
    pub source: Option<Source>,
    /// Properties that the lab's nodes have otherwise.
    pub properties: &'static [(&'static str, &'static str)],
}

/// Replaces a lost node with a blank VM, as an administrator would: with a code from the node in the VM `from`. Gives
/// the code.
///
/// # Panics
/// The node refuses.
pub fn replace(scenario: &Scenario, node: &str, from: &str, by: Replacement) -> String {
    let answer = agent(scenario, from, &["replace-member", node, "--output", "json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
    let code = answer["code"].as_str().expect("a code").to_owned();
    power_on_blank(scenario, node, &code, by);
    code
}

/// Powers a blank VM of a node on that was given a code.
///
/// # Panics
/// The lab cannot.
pub fn power_on_blank(scenario: &Scenario, node: &str, code: &str, by: Replacement) {
    let mut properties = scenario.properties(node);
    properties.insert("deployment-secret".to_owned(), code.to_owned());
    properties.extend(by.properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let vm = NewVm { source: by.source, ..scenario.vm(node, properties) };
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
