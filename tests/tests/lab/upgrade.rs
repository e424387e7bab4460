//! The operator's command swaps the image of a cluster of three on the container engine, while a client writes. The command is
//! killed and frozen, its lease is taken over, and it loses a node.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scenarios::earlier_ova;
use scenarios::guest_cuts;
use scenarios::lost_node::{lose, replace, three_members};
use scenarios::scenario::{self, ALL, FORMING, MOMENT, Scenario};
use scenarios::upgrade::Upgrade;
use scenarios::writer::Writer;
use serde_json::json;

pub mod short {
    use super::*;

    /// One node after the other: no acknowledged write is lost, and the nodes are who they were.
    pub fn three_nodes_are_swapped_one_by_one() {
        let scenario = Scenario::formed_from("rolling", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let (before, kubernetes) = (upgrade.kept(), upgrade.kubernetes());
        let planned = upgrade.run(&["plan"]);
        assert!(planned.contains("rollback: ") && planned.contains("one node after the other"), "{planned}");

        let writer = Writer::start(&scenario);
        upgrade.run(&["apply"]);
        scenario.reached(&format!("forward: {}", writer.end()));
        assert!(ALL.iter().all(|node| scenario.vm_of(node) != *node));
        assert_eq!(upgrade.kept(), before);
        assert_ne!(upgrade.kubernetes(), kubernetes);
        let why = upgrade.fails(&["plan"]);
        assert!(why.contains("upgrade.uncommitted"), "{why}");
    }
}

pub mod long {
    use super::*;

    /// A swap and its rollback, with a client that writes. During the rollback a budget keeps a node's pods from leaving. The
    /// command pauses, and continues once the budget is gone.
    pub fn three_nodes_are_swapped_and_rolled_back() {
        let scenario = Scenario::formed_from("back", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let (before, kubernetes) = (upgrade.kept(), upgrade.kubernetes());
        upgrade.run(&["apply", "--drain-timeout", "120s"]);

        let writer = Writer::start(&scenario);
        let budget = a_pod_on_each_node_that_may_not_leave(&scenario);
        let why = upgrade.pauses(&["rollback", "--timeout", "10s"]);
        assert!(why.contains("drain.blocked") && why.contains(&format!("default/{budget}-")), "{why}");
        scenario.reached(why.trim());
        let kept = |vm: &String| !ALL.contains(&vm.as_str());
        assert_eq!(scenario.lab().vms().unwrap().into_iter().filter(kept).count(), ALL.len(), "a new VM is gone");
        scenario.all_ready(MOMENT);
        scenario.kubectl(&["delete", "poddisruptionbudget", budget]);
        upgrade.run(&["resume"]);
        scenario.reached(&format!("back: {}", writer.end()));
        assert!(upgrade.is_all_back());
        assert_eq!((upgrade.kept(), upgrade.kubernetes()), (before, kubernetes));
        let why = upgrade.fails(&["commit"]);
        assert!(why.contains("nothing to commit"), "{why}");
    }

    /// A Deployment with one pod on each node, and a budget of the same name that none of them may leave. Gives the name.
    fn a_pod_on_each_node_that_may_not_leave(scenario: &Scenario) -> &'static str {
        const NAME: &str = "guarded";
        let selector = json!({"matchLabels": {"app": NAME}});
        scenario.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
            "spec": {
                "replicas": ALL.len(),
                "selector": selector,
                "template": {"metadata": {"labels": {"app": NAME}}, "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 1,
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"},
                    ]}},
                    "containers": [{
                        "name": "main", "image": scenario.carried("cp1", "pause"), "imagePullPolicy": "Never",
                    }],
                }},
            },
        }));
        scenario.apply(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": NAME},
            "spec": {"minAvailable": ALL.len(), "selector": selector},
        }));
        scenario.wait("a pod on each node that may not leave", MOMENT, || {
            let healthy = ["get", "poddisruptionbudget", NAME, "--output=jsonpath={.status.currentHealthy}"];
            Ok(scenario.lab().kubectl(&healthy)? == ALL.len().to_string())
        });
        NAME
    }

    /// All off, all on: the API does not answer meanwhile, and no acknowledged write is lost. The upgrade is committed.
    pub fn three_nodes_are_swapped_at_once_and_committed() {
        let scenario = Scenario::formed_from("at-once", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let before = upgrade.kept();
        let writer = Writer::start(&scenario);
        upgrade.run(&["apply", "--all-at-once"]);
        scenario.reached(&format!("all at once: {}", writer.end()));
        assert_eq!(upgrade.kept(), before);
        upgrade.run(&["commit"]);
        assert_eq!(upgrade.kept(), before);
        assert_eq!(scenario.lab().vms().unwrap().len(), ALL.len(), "old VMs are left");
        let why = upgrade.fails(&["rollback"]);
        assert!(why.contains("no rollback is possible"), "{why}");
    }

    /// The command is killed every few entries of its journal, and continued each time.
    pub fn command_that_is_killed_repeatedly_completes() {
        let scenario = Scenario::formed_from("killed", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let before = upgrade.kept();
        let writer = Writer::start(&scenario);
        assert!(upgrade.killed(&["apply"], 6));
        // Primes: the kills fall on begun and on done steps.
        for further in [3, 5, 7].into_iter().cycle() {
            if !upgrade.killed(&["resume"], further) {
                break;
            }
        }
        scenario.reached(&format!("killed and continued: {}", writer.end()));
        assert_eq!(upgrade.kept(), before);
        assert!(ALL.iter().all(|node| scenario.vm_of(node) != *node));

        assert!(upgrade.killed(&["rollback"], 8));
        upgrade.run(&["rollback"]);
        assert!(upgrade.is_all_back());
        assert_eq!(upgrade.kept(), before);
    }

    /// An operator's command is frozen in the middle; another one takes over, by an explicit word. When the first wakes
    /// up it does nothing more.
    pub fn frozen_command_does_nothing_after_a_takeover() {
        let scenario = Scenario::formed_from("frozen", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let before = upgrade.kept();
        let writer = Writer::start(&scenario);
        let first = upgrade.begin(&["apply"]);
        upgrade.has_written(12);
        let process = Pid::from_raw(i32::try_from(first.id()).unwrap());
        kill(process, Signal::SIGSTOP).unwrap();
        scenario.reached("the first operator is frozen");
        let why = upgrade.fails(&["resume"]);
        assert!(why.contains("holds the lease of this deployment") && why.contains("--take-over"), "{why}");

        let second = upgrade.begin(&["resume", "--take-over"]);
        scenario.wait("the second operator's journal", upgrade.patiently(MOMENT), || Ok(upgrade.journals().len() == 2));
        upgrade.has_written(16);
        let frozen = upgrade.journals().into_values().next().unwrap();
        kill(process, Signal::SIGCONT).unwrap();
        let first = first.wait_with_output().unwrap();
        let failed = String::from_utf8_lossy(&first.stderr);
        assert!(!first.status.success() && failed.contains("has taken over"), "{failed}");
        scenario.reached(failed.trim());
        let second = second.wait_with_output().unwrap();
        assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
        assert_eq!(upgrade.journals().into_values().next().unwrap(), frozen, "the first one has gone on");
        scenario.reached(&format!("overtaken: {}", writer.end()));
        assert_eq!(upgrade.kept(), before);
        assert!(ALL.iter().all(|node| scenario.vm_of(node) != *node));
    }

    /// A node that is not swapped yet loses VM and disk in mid-upgrade. The upgrade waits until it is replaced, with a
    /// VM of the new image, and ends.
    pub fn node_lost_during_an_upgrade_is_replaced() {
        let scenario = Scenario::formed_from("midlost", earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        // The plan, two steps of the whole, eight of the first node: two entries each.
        assert!(upgrade.killed(&["apply"], 1 + 2 * (2 + 8)));
        let order = upgrade.order();
        let (swapped, lost) = (scenario.vm_of(&order[0]), order[2].as_str());
        lose(&scenario, lost);
        let why = upgrade.fails(&["resume", "--timeout", "10s"]);
        assert!(why.contains("paused: ") && why.contains("`kaas-dev control upgrade resume --lab "), "{why}");
        scenario.reached(why.trim());

        // The cluster was formed by an image that knew of no Pod Security: the node that lets the new one in says so.
        replace(&scenario, lost, &swapped, Some(scenario::image_under_test().unwrap()));
        three_members(&scenario, &swapped);
        scenario.all_ready(FORMING);
        scenario.soon_says(lost, "kaas: ready");
        upgrade.wait_until_healthy();
        upgrade.adopt();
        upgrade.run(&["resume"]);
        assert!(scenario.vm_of(&order[1]) != order[1] && scenario.vm_of(lost) == lost);
        upgrade.run(&["commit"]);
        upgrade.wait_until_healthy();
        assert_eq!(scenario.lab().vms().unwrap().len(), ALL.len(), "old VMs are left");
    }

    /// Breaks the image of the first new VM: the node is rolled back without a request, and the cluster is as before.
    fn goes_back_by_itself(name: &'static str, breaks: impl FnOnce(&Scenario, &str)) {
        let scenario = Scenario::formed_from(name, earlier_ova::source());
        let upgrade = Upgrade::of(&scenario);
        let before = upgrade.kept();
        let writer = Writer::start(&scenario);
        let apply = upgrade.begin(&["apply", "--gate-timeout", "100s"]);
        let vm = upgrade.first_new_vm();
        breaks(&scenario, &vm);
        scenario.reached(&format!("{vm} is broken"));
        let ended = apply.wait_with_output().unwrap();
        let (said, failed) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        let back = "all nodes run what they ran before";
        assert!(!ended.status.success() && failed.contains(back), "{said}\n{failed}");
        scenario.reached(failed.trim());
        scenario.reached(&writer.end().to_string());
        assert!(upgrade.is_all_back());
        assert_eq!(upgrade.kept(), before);
        upgrade.wait_until_healthy();
    }

    fn never_runs(unit: &'static str) -> impl FnOnce(&Scenario, &str) {
        move |scenario, vm| {
            let never = format!("systemctl mask --runtime {unit}; systemctl kill --signal=KILL {unit} || true");
            scenario.inside(vm, &["sh", "-c", &never]);
        }
    }

    pub fn image_without_kubelet_is_rolled_back() {
        goes_back_by_itself("kubelet", never_runs("kubelet.service"));
    }

    pub fn image_with_crashing_agent_is_rolled_back() {
        goes_back_by_itself("agent", never_runs("kaas-agent.service"));
    }

    pub fn image_without_etcd_is_rolled_back() {
        goes_back_by_itself("etcd", never_runs("etcd.service"));
    }

    pub fn an_image_without_network_goes_back_by_itself() {
        goes_back_by_itself("nonet", |scenario, vm| scenario.lab().connect_nic(vm, false).unwrap());
    }

    /// The power of the VMs that are being swapped is cut at six drawn moments, during the swap and the rollback.
    pub fn guest_cut_in_its_swap_ends_healthy() {
        let scenario = Scenario::formed_from("gcuts", earlier_ova::source());
        guest_cuts::each_comes_to_an_end(&scenario);
    }
}
