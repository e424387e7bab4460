//! etcd's care on the container engine: snapshots, a restore after the quorum
//! is lost, and the replacement of a lost node.

use std::time::Duration;

use scenarios::scenario::{Scenario, Setting};
use serde_json::Value;

const FORMING: Duration = Duration::from_secs(300);
const MOMENT: Duration = Duration::from_secs(90);
const ALL: [&str; 3] = ["cp1", "cp2", "cp3"];

fn agent(scenario: &Scenario, node: &str, arguments: &[&str]) -> String {
    scenario.inside(node, &[&["kaas-agent"], arguments].concat())
}

/// What the agent on a node refuses, and why.
fn refused(scenario: &Scenario, node: &str, arguments: &[&str]) -> String {
    let command = [&["kaas-agent"], arguments].concat();
    match scenario.lab().run_inside(node, &command, MOMENT) {
        Ok(said) => panic!("{command:?} was not refused: {said}"),
        Err(error) => format!("{error:#}"),
    }
}

/// Takes a node's VM and its data disk away for good.
fn lose(scenario: &Scenario, node: &str) {
    let lab = scenario.lab();
    scenario.cut(node);
    for disk in lab.disks(node).unwrap() {
        lab.detach_disk(node, disk).unwrap();
    }
    lab.destroy(node).unwrap();
}

/// Replaces a lost node with a blank VM, as an administrator would. Gives the code.
fn replace(scenario: &Scenario, node: &str, from: &str) -> String {
    let answer = agent(scenario, from, &["replace-member", node, "--output", "json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
    let code = answer["code"].as_str().expect("a code").to_owned();
    power_on_blank(scenario, node, &code);
    code
}

fn power_on_blank(scenario: &Scenario, node: &str, code: &str) {
    let mut properties = scenario.properties(node);
    properties.insert("deployment-secret".to_owned(), code.to_owned());
    scenario.lab().import(&Scenario::vm(node, properties)).unwrap_or_else(|error| panic!("{error:#}"));
    scenario.power_on(&[node]);
}

/// Waits until etcd has three members with a vote.
fn three_members(scenario: &Scenario, node: &str) {
    scenario.wait("three members with a vote", FORMING, || {
        let members = scenario.etcd_members(node);
        // `member list` ends each line with whether it is a learner.
        Ok(members.len() == 3 && members.iter().all(|line| line.contains("started") && line.ends_with("false")))
    });
}

fn written(scenario: &Scenario, name: &str) -> String {
    scenario.kubectl(&["get", "configmap", name, "--ignore-not-found", "--output=jsonpath={.data.written}"])
}

mod long {
    use super::*;

    /// A node loses its data disk: the survivors admit a blank one, the first of
    /// the list here, with a code that opens nothing afterwards.
    #[test]
    fn a_lost_node_is_replaced_with_a_one_time_code() {
        let scenario = Scenario::prepare(&Setting { name: "replace", nodes: 3, hardware: None, properties: &[] });
        scenario.power_on(&ALL);
        scenario.all_ready(FORMING);
        for node in ALL {
            scenario.soon_says(node, "kaas: ready");
        }
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let identity = scenario.cluster_identity();

        let why = refused(&scenario, "cp2", &["replace-member", "cp1"]);
        assert!(why.contains("still answers on cp1"), "{why}");
        let why = refused(&scenario, "cp2", &["replace-member", "cp2"]);
        assert!(why.contains("cp2 is this node"), "{why}");

        lose(&scenario, "cp1");
        let code = replace(&scenario, "cp1", "cp2");
        scenario.reached("cp1 is a blank VM with a code");
        three_members(&scenario, "cp2");
        scenario.all_ready(FORMING);
        scenario.soon_says("cp1", "kaas: ready");
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(written(&scenario, "before"), "yes");
        scenario.wait("the code to be forgotten", MOMENT, || {
            let ports = scenario.inside("cp2", &["ss", "--listening", "--tcp", "--numeric", "--no-header"]);
            let kept = scenario.lab().run_inside("cp2", &["test", "-e", "/data/kaas/admission.json"], MOMENT);
            Ok(!ports.contains(":9443 ") && kept.is_err())
        });

        // The same code again opens nothing.
        lose(&scenario, "cp1");
        power_on_blank(&scenario, "cp1", &code);
        scenario.soon_says("cp1", "kaas: error cluster.exists: ");
        let etcd = scenario.lab().run_inside("cp1", &["systemctl", "is-active", "etcd.service"], MOMENT);
        assert!(etcd.is_err(), "a blank node with a used code has started etcd");
        // With two members left, one of them dead, there is no quorum without it.
        scenario.cut("cp3");
        let why = refused(&scenario, "cp2", &["replace-member", "cp1"]);
        assert!(why.contains("quorum"), "{why}");
    }

    /// Two data disks are gone: the third node restores a snapshot alone, and
    /// the others are replaced.
    #[test]
    fn a_cluster_that_lost_its_quorum_is_restored_from_a_snapshot() {
        let scenario = Scenario::prepare(&Setting { name: "restore", nodes: 3, hardware: None, properties: &[] });
        scenario.power_on(&ALL);
        scenario.all_ready(FORMING);
        for node in ALL {
            scenario.soon_says(node, "kaas: ready");
        }
        scenario.wait("the leader's node to have taken a snapshot by itself", MOMENT * 2, || {
            let lists = |node: &&str| agent(&scenario, node, &["snapshot", "list", "--output", "json"]);
            Ok(ALL.iter().map(lists).any(|list| list.contains(".db")))
        });
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
        let saved = agent(&scenario, "cp3", &["snapshot", "save", "--output", "json"]);
        let saved: Value = serde_json::from_str(&saved).unwrap_or_else(|error| panic!("{saved}: {error}"));
        let snapshot = saved["path"].as_str().expect("the snapshot's path").to_owned();
        scenario.kubectl(&["create", "configmap", "after", "--from-literal=written=yes"]);
        let identity = scenario.cluster_identity();

        lose(&scenario, "cp1");
        scenario.reached("cp1 is lost");
        let properties = scenario.properties("cp3");
        let name = properties.get("cluster-name").map_or("control", String::as_str);
        let why = refused(&scenario, "cp3", &["restore", &snapshot, "--confirm", name, "--alone"]);
        assert!(why.contains("etcd still runs on cp2"), "{why}");
        lose(&scenario, "cp2");
        scenario.reached("cp2 is lost, and with it the quorum");
        let why = refused(&scenario, "cp3", &["restore", &snapshot, "--confirm", "another", "--alone"]);
        assert!(why.contains("nothing was changed"), "{why}");

        let said = agent(&scenario, "cp3", &["restore", &snapshot, "--confirm", name, "--alone"]);
        assert!(said.contains("replace-member cp1") && said.contains("member.before-restore-"), "{said}");
        scenario.reached("the snapshot is restored");
        scenario.ready(&["cp3"], FORMING);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!((written(&scenario, "before"), written(&scenario, "after")), ("yes".to_owned(), String::new()));
        scenario.kubectl(&["create", "configmap", "since", "--from-literal=written=yes"]);

        for node in ["cp1", "cp2"] {
            replace(&scenario, node, "cp3");
            scenario.soon_says(node, "kaas: ready");
        }
        three_members(&scenario, "cp1");
        scenario.all_ready(FORMING);
        assert_eq!((written(&scenario, "before"), written(&scenario, "since")), ("yes".to_owned(), "yes".to_owned()));
        assert_eq!(scenario.cluster_identity(), identity);
    }
}
