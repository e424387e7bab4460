//! The life of a cluster of three on the container engine, as one story: every part begins with what the one before
//! it has left.

use std::time::Duration;

use contract::properties as keys;
use fleet::hypervisor::SHUTTING_DOWN;
use scenarios::by_hand::insert_cdrom;
use scenarios::lost_node::{agent, lose, replace, three_members};
use scenarios::scenario::{ALL, FORMING, MOMENT, Scenario, Setting, with};
use scenarios::workload::Workload;
use scenarios::{certificates, endpoint};

use crate::hostile::strangers_and_pods_get_what_the_table_says;
use crate::leading_controller::each_node_runs_a_controller_and_one_leads;
use crate::maintenance::{
    CHECK, FILLING, a_data_disk_is_made_larger, a_formed_nodes_bundle_holds_no_key,
    a_waiting_nodes_bundle_holds_no_planted_secret, fill, has,
};
use crate::storage::{damage_what_the_kubelet_keeps, the_kubelet_keeps_nothing_damaged};

const FAILOVER: Duration = Duration::from_secs(300);
/// Twice the pace of the check that renews certificates.
const RENEWAL: Duration = Duration::from_secs(20 * 60);

pub mod short {
    use super::*;

    /// A wrong secret admits no node, and is corrected in the form. Two nodes wait for the third, which is late and loses its power.
    /// The cluster works, and opens only the ports of the table to other hosts and pods. It survives the loss of the node with the
    /// virtual IP. A blank node never starts another cluster.
    pub fn a_cluster_forms_against_all_odds_and_survives() {
        let scenario = Scenario::prepare(&Setting::three("three"));
        a_wrong_secret_is_named_on_both_sides_and_mended_in_the_form(&scenario);
        two_nodes_wait_for_the_third(&scenario);
        a_waiting_nodes_bundle_holds_no_planted_secret(&scenario, "cp1");
        a_node_cut_off_while_forming_joins_when_it_returns(&scenario);
        let workload = pods_and_services_are_reached(&scenario);
        let policy = Policy::made(&scenario);
        strangers_and_pods_get_what_the_table_says(&scenario, &workload);
        every_node_answers_at_its_endpoint(&scenario);
        each_node_runs_a_controller_and_one_leads(&scenario);
        a_namespace_editor_cannot_open_a_node(&scenario);
        root_gives_the_administrators_their_rights_back(&scenario);
        a_formed_nodes_bundle_holds_no_key(&scenario, "cp1");
        let policy = policy.nobody_enforces_it();
        one_line_vouches_for_ssh_on_every_address(&scenario);
        let cluster = Cluster::of(&scenario);
        the_node_with_the_virtual_address_is_lost_and_returns(&scenario, &cluster);
        policy.nobody_speaks_of_it_any_more();
        a_blank_first_node_stays_out(&scenario, &cluster);
    }
}

pub mod long {
    use super::*;

    /// The first node is lost for good when the others have just got their keys. They form the cluster without it, and replace it.
    pub fn first_node_lost_after_its_handout_is_replaced() {
        let scenario = Scenario::prepare(&Setting::three("orphans"));
        scenario.power_on(&ALL);
        for node in ["cp2", "cp3"] {
            has_record(&scenario, node, "member");
        }
        lose(&scenario, "cp1");
        scenario.reached("cp1 is lost: the others have their keys");
        scenario.ready(&["cp2", "cp3"], FORMING);
        for node in ["cp2", "cp3"] {
            scenario.soon_says(node, "kaas: ready");
        }
        nobody_needs_the_rendezvous(&scenario, &["cp2", "cp3"]);
        let identity = scenario.cluster_identity();
        scenario.kubectl(&["create", "configmap", "before", "--from-literal=written=yes"]);

        replace(&scenario, "cp1", "cp2", None);
        three_members(&scenario, "cp2");
        scenario.all_ready(FORMING);
        scenario.soon_says("cp1", "kaas: ready");
        nobody_needs_the_rendezvous(&scenario, &ALL);
        assert_eq!(scenario.cluster_identity(), identity);
        assert_eq!(scenario.kubectl(&["get", "configmap", "before", "--output=jsonpath={.data.written}"]), "yes");
    }

    /// Two of three nodes work for a while with all maintenance: snapshots, certificates, space on disks, enlarged disks. The first
    /// node restarts meanwhile. Then the third node joins.
    ///
    /// Chance decides whether the third node has its keys before it is cut off. The fast tests of the boot's steps show a first
    /// node that keeps the keys for a node without them.
    pub fn two_nodes_are_maintained_without_the_third() {
        let scenario = Scenario::prepare(&Setting::three("waiting"));
        let lab = scenario.lab();
        scenario.power_on(&ALL);
        has_record(&scenario, "cp1", "first");
        scenario.cut("cp3");
        scenario.reached("cp3 is cut off");
        scenario.ready(&["cp1", "cp2"], FORMING);
        for node in ["cp1", "cp2"] {
            scenario.soon_says(node, "kaas: ready");
        }
        nobody_needs_the_rendezvous(&scenario, &["cp2"]);
        scenario.wait("cp1 to say for whom it waits", CHECK, || has(&scenario, "cp1", "member.awaited"));
        let identity = scenario.cluster_identity();

        scenario.wait("the leader's node to have taken a snapshot by itself", MOMENT, || {
            let lists = |node: &str| agent(&scenario, node, &["snapshot", "list", "--output", "json"]);
            Ok(["cp1", "cp2"].map(lists).iter().any(|list| list.contains(".db")))
        });
        fill(&scenario, "cp1", 85);
        scenario.wait("the finding of a disk that is nearly full", CHECK, || has(&scenario, "cp1", "disk.nearly-full"));
        scenario.inside("cp1", &["rm", FILLING]);
        scenario.wait("the finding to go", CHECK, || Ok(!has(&scenario, "cp1", "disk.nearly-full")?));
        a_data_disk_is_made_larger(&scenario, "cp1", CHECK);

        scenario.cut("cp1");
        scenario.power_on(&["cp1"]);
        scenario.soon_says("cp1", "kaas: ready");
        scenario.ready(&["cp1", "cp2"], FORMING);
        assert!(lab.run_inside("cp1", &["test", "-e", "/data/kaas/secret"], MOMENT).is_ok(), "the secret is gone");
        for node in ["cp1", "cp2"] {
            certificates::end_in_a_month(&scenario, node);
        }
        scenario.wait("the certificates of both to be renewed", RENEWAL, || {
            let list = |node: &str| lab.run_inside(node, &["kaas-agent", "certificate", "list"], MOMENT);
            // The kubelet sees to its rotating one itself.
            let old = |line: &str| line.ends_with("ends in 29 days") && !line.starts_with("kubelet-client");
            Ok(!list("cp1")?.lines().any(old) && !list("cp2")?.lines().any(old))
        });
        scenario.wait("cp1 to wait for the third still", CHECK, || has(&scenario, "cp1", "member.awaited"));

        scenario.power_on(&["cp3"]);
        scenario.all_ready(FORMING);
        three_members(&scenario, "cp3");
        scenario.soon_says("cp3", "kaas: ready");
        nobody_needs_the_rendezvous(&scenario, &ALL);
        scenario.wait("nobody to be awaited", CHECK, || Ok(!has(&scenario, "cp1", "member.awaited")?));
        assert_eq!(scenario.cluster_identity(), identity);
    }

    /// Waits until a node's record of the forming has come to `state`.
    fn has_record(scenario: &Scenario, node: &str, state: &str) {
        let pattern = format!("\"state\": \"{state}\"");
        scenario.wait(&format!("{node} to keep its keys"), FORMING, || {
            let look = ["grep", "--quiet", &pattern, "/data/kaas/rendezvous.json"];
            Ok(scenario.lab().run_inside(node, &look, MOMENT).is_ok())
        });
    }
}

/// The identity of a cluster.
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

/// The third node is cut off again while the cluster forms, and joins when it returns. The time away does not matter, so nothing
/// expires here. The node joins without a token, and signs its certificates with the CAs of its bundle.
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
    nobody_needs_the_rendezvous(scenario, &ALL);
}

/// On these nodes the rendezvous has closed for good, and the deployment secret is gone.
fn nobody_needs_the_rendezvous(scenario: &Scenario, nodes: &[&str]) {
    for node in nodes {
        scenario.wait(&format!("{node} to close the rendezvous and erase the deployment secret"), MOMENT, || {
            let listening = ["ss", "--listening", "--tcp", "--numeric", "--no-header"];
            let listening = scenario.lab().run_inside(node, &listening, MOMENT)?;
            let erased = scenario.lab().run_inside(node, &["test", "!", "-e", "/data/kaas/secret"], MOMENT);
            Ok(!listening.contains(":9443 ") && erased.is_ok())
        });
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

/// A NetworkPolicy, which Kubernetes takes and nothing enforces. The nodes look for such each minute: other parts of the
/// story lie between.
struct Policy<'a>(&'a Scenario);

impl<'a> Policy<'a> {
    fn made(scenario: &'a Scenario) -> Self {
        scenario.apply(&serde_json::json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "nobody-comes-in"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        }));
        Self(scenario)
    }

    /// Each node says so. Then it is deleted.
    fn nobody_enforces_it(self) -> Self {
        for node in ALL {
            self.0.wait(&format!("{node} to say that nothing enforces the policy"), CHECK, || {
                has(self.0, node, "network-policy.not-enforced")
            });
        }
        self.0.kubectl(&["delete", "networkpolicy", "nobody-comes-in"]);
        self
    }

    fn nobody_speaks_of_it_any_more(self) {
        for node in ALL {
            self.0.wait(&format!("{node} to say nothing of policies any more"), CHECK, || {
                Ok(!has(self.0, node, "network-policy.not-enforced")?)
            });
        }
    }
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

/// A user who may write to a namespace gets no pod that reads the node's files, and the audit log has the attempt. The rules apply
/// to all users once the cluster has its rights.
fn a_namespace_editor_cannot_open_a_node(scenario: &Scenario) {
    scenario.kubectl(&["create", "serviceaccount", "editor"]);
    let editor = "system:serviceaccount:default:editor";
    scenario.kubectl(&["create", "rolebinding", "editor", "--clusterrole=edit", "--serviceaccount=default:editor"]);
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "opens-the-node"},
        "spec": {
            "containers": [{"name": "main", "image": "none", "volumeMounts": [{"name": "host", "mountPath": "/host"}]}],
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
        },
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let create = |pod: &serde_json::Value| {
        std::fs::write(file.path(), pod.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        scenario.lab().kubectl(&["create", "--as", editor, "--filename", path])
    };
    let refused = format!("{:#}", create(&pod).expect_err("a pod with a host path"));
    assert!(refused.contains("violates PodSecurity \"baseline:latest\""), "{refused}");
    let mut harmless = pod.clone();
    harmless["metadata"]["name"] = "harmless".into();
    harmless["spec"]["volumes"] = serde_json::json!([{"name": "host", "emptyDir": {}}]);
    create(&harmless).expect("a pod without one");
    scenario.kubectl(&["delete", "pod", "harmless", "--wait=false"]);
    scenario.wait("the attempt to be in the audit log of the node that was asked", MOMENT, || {
        let search =
            format!("grep --no-messages opens-the-node /var/log/kubernetes/audit.log | grep '{editor}' || true");
        Ok(ALL.iter().any(|node| scenario.inside(node, &["sh", "-c", &search]).contains("\"code\":403")))
    });
    for node in ALL {
        let left =
            "find /etc/kubernetes/ -name super-admin.conf; grep --count 'seccompDefault.*true' /run/kaas/kubelet.yaml";
        assert_eq!(scenario.inside(node, &["sh", "-c", left]).trim(), "1", "{node}");
    }
}

/// The test deletes the rights of administrators, which deployers do not share. Root on a node makes a kubeconfig that access rules
/// do not limit, and restores the rights.
fn root_gives_the_administrators_their_rights_back(scenario: &Scenario) {
    let lab = scenario.lab();
    let binding = "kubeadm:cluster-admins";
    scenario.kubectl(&["delete", "clusterrolebinding", binding]);
    let ask = || lab.run_inside("cp1", &["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "nodes"], MOMENT);
    scenario.wait("the administrators to have no rights", MOMENT, || {
        Ok(ask().is_err_and(|refused| format!("{refused:#}").contains("Forbidden")))
    });
    lab.kubectl(&["get", "nodes"]).unwrap();
    let back = format!(
        "kubeadm init phase kubeconfig super-admin --config /run/kaas/kubeadm.yaml
         kubectl --kubeconfig=/etc/kubernetes/super-admin.conf create clusterrolebinding {binding} \
             --clusterrole=cluster-admin --group={binding}
         rm /etc/kubernetes/super-admin.conf"
    );
    scenario.inside("cp1", &["sh", "-ec", &back]);
    scenario.wait("the administrators to have their rights again", MOMENT, || Ok(ask().is_ok()));
}

/// An SSH client that trusts the cluster's CA, and asks no user, verifies every node and the virtual IP.
fn one_line_vouches_for_ssh_on_every_address(scenario: &Scenario) {
    let plan = scenario.lab().plan();
    let line = scenario.inside("cp1", &["kaas-agent", "ssh-authority"]);
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known_hosts");
    std::fs::write(&known, &line).unwrap();
    let met = |address: String| {
        let known = format!("-oUserKnownHostsFile={}", known.display());
        // A client without an admitted key is refused after the server has proved itself.
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
    damage_what_the_kubelet_keeps(scenario, lost);
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
    the_kubelet_keeps_nothing_damaged(scenario, lost);
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
