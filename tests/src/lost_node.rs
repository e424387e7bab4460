//! The loss of a control-plane node, its VM and its data disk, and the administrator's reaction.

use std::collections::BTreeMap;

use contract::replacement::ReplacementGrant;
use lab::{NewVm, Source};
use uuid::Uuid;

use crate::scenario::{FORMING, Scenario};

/// Runs a command of the agent in a VM and returns its output.
pub fn agent(scenario: &Scenario, vm: &str, arguments: &[&str]) -> String {
    scenario.inside(vm, &[&["kaas-agent"], arguments].concat())
}

/// Detaches the data disk of a VM that is off.
pub fn take_out(scenario: &Scenario, node: &str) -> Uuid {
    let disk = scenario.lab().disks(node).unwrap()[0];
    scenario.lab().detach_disk(node, disk).unwrap();
    disk
}

/// Destroys a VM and its data disk. Returns the disk.
pub fn lose(scenario: &Scenario, node: &str) -> Uuid {
    scenario.cut(node);
    let disk = take_out(scenario, node);
    scenario.lab().destroy(node).unwrap();
    disk
}

/// Replaces a lost node with a blank VM as an administrator does. The code and the common properties are from the node
/// in the VM `from`. `source` replaces the lab's image. Returns the code.
pub fn replace(scenario: &Scenario, node: &str, from: &str, source: Option<Source>) -> String {
    let answer = agent(scenario, from, &["replace-member", node, "--output", "json"]);
    let admitted: ReplacementGrant = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let mut properties = scenario.properties(node);
    properties.extend(admitted.properties);
    import_blank(scenario, node, properties, &admitted.code, source);
    admitted.code
}

/// Powers on a blank VM of a node with this code. All other properties are those of the lost VM.
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
pub fn three_members(scenario: &Scenario, node: &str) {
    scenario.wait("three members with a vote", FORMING, || {
        let members = scenario.etcd_members(node);
        // `member list` ends each line with whether it is a learner.
        Ok(members.len() == 3 && members.iter().all(|line| line.contains("started") && line.ends_with("false")))
    });
}
