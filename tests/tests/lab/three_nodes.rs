//! The life of a cluster of three on the container engine, as one story: every part begins with what the one before
//! it has left.

use std::time::Duration;

use contract::properties as keys;
use scenarios::by_hand::insert_cdrom;
use scenarios::endpoint;
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting, with};
use scenarios::workload::Workload;

use crate::hostile::strangers_and_pods_get_what_the_table_says;
use crate::maintenance::{a_formed_nodes_bundle_holds_no_key, a_waiting_nodes_bundle_holds_no_planted_secret};

const FAILOVER: Duration = Duration::from_secs(300);
/// More than systemd gives a unit to stop.
const SHUTTING_DOWN: Duration = Duration::from_secs(180);

pub mod short {
    use super::*;

    /// A wrong secret keeps everybody out and is mended in the form; two nodes wait for the third, which is late and
    /// loses its power; the cluster works, gives strangers and pods what the table of ports says and no more, survives the loss of the node with the virtual IP, and a blank node never
    /// starts another one.
    pub fn a_cluster_forms_against_all_odds_and_survives() {
        let scenario = Scenario::prepare(&Setting::three("three"));
        a_wrong_secret_is_named_on_both_sides_and_mended_in_the_form(&scenario);
        two_nodes_wait_for_the_third(&scenario);
        a_waiting_nodes_bundle_holds_no_planted_secret(&scenario, "cp1");
        a_node_cut_off_while_forming_joins_when_it_returns(&scenario);
        let workload = pods_and_services_are_reached(&scenario);
        strangers_and_pods_get_what_the_table_says(&scenario, &workload);
        every_node_answers_at_its_endpoint(&scenario);
        a_formed_nodes_bundle_holds_no_key(&scenario, "cp1");
        one_line_vouches_for_ssh_on_every_address(&scenario);
        let cluster = Cluster::of(&scenario);
        the_node_with_the_virtual_address_is_lost_and_returns(&scenario, &cluster);
        a_blank_first_node_stays_out(&scenario, &cluster);
    }
}

/// What tells this cluster from any other.
#[derive(Debug, PartialEq, Eq)]
struct Cluster {
    identity: String,
    members: Vec<String>,
}

impl Cluster {
    fn of(scenario: &Scenario) -> Self {
        Self::seen_by(scenario, "cp1")
    }

    fn seen_by(scenario: &Scenario, node: &str) -> Self {
        Self { identity: scenario.cluster_identity(), members: scenario.etcd_members(node) }
    }
}

/// A node with another secret than the others: both sides name it, nothing is formed and the secret shows nowhere,
/// until its property is right.
fn a_wrong_secret_is_named_on_both_sides_and_mended_in_the_form(scenario: &Scenario) {
    let lab = scenario.lab();
    let good = lab.environment("cp2").unwrap();
    let wrong = with(&good, keys::DEPLOYMENT_SECRET, "J7r&quot;uQ$x%2Kd&lt;W9z&amp;m!Tp'vB ü4");
    insert_cdrom(scenario, "cp2", &wrong);
    scenario.power_on(&ALL);
    for (node, other) in [("cp1", "cp2"), ("cp2", "cp1"), ("cp2", "cp3"), ("cp3", "cp2")] {
        scenario.soon_says(node, &format!("kaas: error peer.secret-mismatch: {other} ("));
    }
    for node in ALL {
        scenario.has_no_etcd(node);
        assert_eq!(scenario.inside(node, &["stat", "--format=%a %U", "/data/kaas/secret"]).trim(), "600 root");
        // The pattern comes from the file, so that the search does not find itself.
        let search = "cd /; {
            grep --fixed-strings --files-with-matches --no-messages --recursive --devices=skip -f data/kaas/secret run/!(host);
            grep --fixed-strings --files-with-matches --no-messages -f data/kaas/secret \
                proc/[0-9]*/cmdline proc/[0-9]*/environ;
            journalctl --output=cat | grep --fixed-strings -f data/kaas/secret; } || true";
        let found = scenario.inside(node, &["bash", "-O", "extglob", "-c", search]);
        assert_eq!(found, "", "the secret of {node} shows");
    }
    // The third is to be late. The second goes on running, and takes the corrected properties up by itself.
    scenario.cut("cp3");
    insert_cdrom(scenario, "cp2", &good);
}

/// Two of three, whose secrets agree now, have met and wait for the third, and say so.
fn two_nodes_wait_for_the_third(scenario: &Scenario) {
    let met = |waiting: &str, node: &str, other: &str| match node {
        "cp1" => !waiting.contains(other),
        // The second has met the first, and hears from it that it still waits itself.
        _ => waiting.contains(&format!("{other} (192.168.77.11): it has not met all the others yet")),
    };
    for (node, other) in [("cp1", "cp2"), ("cp2", "cp1")] {
        scenario.wait(&format!("{node} to wait for cp3"), MOMENT, || {
            let status = scenario.lab().status(node)?;
            let waiting = status["work"]["waiting"].as_str().unwrap_or_default();
            Ok(waiting.contains("cp3 (") && met(waiting, node, other))
        });
        scenario.has_no_etcd(node);
    }
}

/// The third is cut off again while the cluster forms, and joins when it comes back. How long it was away is of no
/// matter, so nothing is made to expire here: it joins without a token, and with the authorities of its bundle it signs
/// its certificates itself.
fn a_node_cut_off_while_forming_joins_when_it_returns(scenario: &Scenario) {
    let lab = scenario.lab();
    scenario.power_on(&["cp3"]);
    scenario.wait("etcd to start on cp3", MOMENT, || {
        Ok(lab.run_inside("cp3", &["systemctl", "is-active", "etcd.service"], MOMENT).is_ok())
    });
    scenario.cut("cp3");
    scenario.reached("cp3 is cut off");
    scenario.ready(&["cp1", "cp2"], FORMING);
    let identity = scenario.cluster_identity();

    scenario.power_on(&["cp3"]);
    scenario.all_ready(FORMING);
    assert_eq!(scenario.cluster_identity(), identity);
    let members = scenario.etcd_members("cp3");
    assert_eq!(members.len(), 3, "{members:?}");
    for node in ALL {
        scenario.soon_says(node, "kaas: ready");
    }
    scenario.wait("the rendezvous to have closed for good", MOMENT, || {
        let listening = lab.run_inside("cp1", &["ss", "--listening", "--tcp", "--numeric", "--no-header"], MOMENT)?;
        Ok(!listening.contains(":9443 "))
    });
    for node in ALL {
        let erased = lab.run_inside(node, &["test", "!", "-e", "/data/kaas/secret"], MOMENT);
        assert!(erased.is_ok(), "{node} keeps the deployment secret though the cluster is complete");
    }
}

fn pods_and_services_are_reached(scenario: &Scenario) -> Workload<'_> {
    let workload = Workload::start(scenario, "cp1", MOMENT);
    workload.is_reached_by_address_from("cp2");
    workload.is_reached_by_name_from("cp3");
    // A kube-proxy that starts again finds its rules and keeps them.
    scenario.inside("cp3", &["systemctl", "restart", "kube-proxy.service"]);
    workload.is_reached_by_name_from("cp3");
    workload
}

/// Load balancers and monitoring ask each node at its own address.
fn every_node_answers_at_its_endpoint(scenario: &Scenario) {
    endpoint::issue(scenario, "cp1", "administrator");
    for node in ALL {
        let answer = endpoint::ask(scenario, "cp1", node, "/livez", false);
        assert!(answer.contains(" 200 ") && answer.trim_end().ends_with("ok"), "{answer}");
    }
    scenario.wait("cp2's metrics to tell of cp3's etcd", MOMENT, || {
        let metrics = endpoint::ask(scenario, "cp1", "cp2", "/metrics", true);
        Ok(metrics.contains("\nkaas_etcd_member_healthy{member=\"cp3\"} 1"))
    });
    let refused = endpoint::ask(scenario, "cp1", "cp2", "/metrics", false);
    assert!(refused.contains(" 401 "), "{refused}");
}

/// An SSH client that trusts the cluster's authority and asks nobody meets it on every node and on the virtual IP.
fn one_line_vouches_for_ssh_on_every_address(scenario: &Scenario) {
    let plan = scenario.lab().plan();
    let line = scenario.inside("cp1", &["kaas-agent", "ssh-authority"]);
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known_hosts");
    std::fs::write(&known, &line).unwrap();
    let met = |address: String| {
        let known = format!("-oUserKnownHostsFile={}", known.display());
        // Who has no key that is let in is refused after the server has proved itself.
        let options = ["-v", &known, "-oStrictHostKeyChecking=yes", "-oBatchMode=yes", "-oIdentityFile=none"];
        let ssh = scenario.lab().outside("ssh", options).arg(format!("admin@{address}")).arg("true").output().unwrap();
        let said = String::from_utf8_lossy(&ssh.stderr).into_owned();
        assert!(said.contains("Permission denied (publickey)"), "{address}: {said}");
        assert!(said.contains("is known and matches the ED25519-CERT host certificate"), "{address}: {said}");
    };
    plan.nodes.iter().for_each(|node| met(node.address.to_string()));
    met(plan.api.to_string());
    scenario.reached("every SSH server is vouched for");
}

fn the_node_with_the_virtual_address_is_lost_and_returns(scenario: &Scenario, cluster: &Cluster) {
    scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);
    let lost = scenario.address_holder();
    scenario.cut(lost);
    scenario.reached(&format!("{lost}, which held the virtual IP, is cut off"));
    scenario.wait("the API to answer through the virtual IP again", FAILOVER, || {
        let written = ["get", "configmap", "before", "--output=jsonpath={.data.written}"];
        Ok(scenario.lab().kubectl(&written)? == "yes")
    });
    assert_eq!(scenario.cluster_identity(), cluster.identity);
    scenario.kubectl(&["create", "configmap", "meanwhile", "--from-literal=written=yes"]);

    scenario.power_on(&[lost]);
    scenario.soon_says(lost, "kaas: ready");
    scenario.all_ready(FAILOVER);
    assert_eq!(Cluster::seen_by(scenario, lost), *cluster);
}

/// The first node comes back blank, its OVF environment as on the first day. Then its own disk brings it back.
fn a_blank_first_node_stays_out(scenario: &Scenario, cluster: &Cluster) {
    let lab = scenario.lab();
    lab.shut_down("cp1", SHUTTING_DOWN).unwrap();
    let disk = lab.disks("cp1").unwrap()[0];
    let blank = lab.create_disk(4 << 30).unwrap();
    lab.detach_disk("cp1", disk).unwrap();
    lab.attach_disk("cp1", blank).unwrap();
    scenario.power_on(&["cp1"]);
    scenario.soon_says("cp1", "kaas: error cluster.exists: ");
    scenario.ready(&["cp2", "cp3"], FAILOVER);
    assert_eq!(Cluster::seen_by(scenario, "cp2"), *cluster);
    scenario.has_no_etcd("cp1");

    scenario.cut("cp1");
    lab.detach_disk("cp1", blank).unwrap();
    lab.attach_disk("cp1", disk).unwrap();
    scenario.power_on(&["cp1"]);
    scenario.all_ready(FAILOVER);
    assert_eq!(Cluster::of(scenario), *cluster);
}
