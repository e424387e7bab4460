//! Clients remove parts of a running node, or change its settings: the node restores all of it without a restart.

use std::time::Duration;

use scenarios::scenario::{ALL, MOMENT, Scenario};
use scenarios::workload::Workload;
use serde_json::{Value, json};

use crate::maintenance::has;

/// In this time a deleted Node object is back with all that belongs to it.
const BACK: Duration = Duration::from_secs(120);

/// A DNS server that no lab has: the address is what matters.
const DNS: &str = "192.0.2.53";

const PROXY: &str = "http://192.0.2.8:3128";

pub mod long {
    use super::*;

    /// Node objects are deleted, one range is taken meanwhile, one role is removed; proxy and DNS servers are set and removed.
    pub fn deleted_nodes_return_and_programs_use_current_settings() {
        let scenario = Scenario::formed("returns");
        a_deleted_node_object_returns_with_its_pods(&scenario, "cp2");
        a_node_object_returns_while_the_agent_restarts(&scenario, "cp2");
        a_node_whose_range_was_taken_starts_pods(&scenario, "cp3");
        a_removed_role_returns(&scenario, "cp1");
        a_proxy_reaches_the_running_runtime(&scenario, "cp1");
        dns_servers_reach_cluster_dns(&scenario);
    }
}

fn of_node(scenario: &Scenario, node: &str, path: &str) -> anyhow::Result<String> {
    scenario.lab().kubectl(&["get", "node", node, "--ignore-not-found", &format!("--output=jsonpath={{{path}}}")])
}

const ROLE: &str = r".metadata.labels.node-role\.kubernetes\.io/control-plane";

/// Whether the node is ready, with the label of its role.
fn is_whole(scenario: &Scenario, node: &str) -> anyhow::Result<bool> {
    let labels = of_node(scenario, node, ".metadata.labels")?;
    let ready = of_node(scenario, node, ".status.conditions[?(@.type==\"Ready\")].status")?;
    Ok(labels.contains("node-role.kubernetes.io/control-plane") && ready == "True")
}

fn range(scenario: &Scenario, node: &str) -> anyhow::Result<String> {
    of_node(scenario, node, ".spec.podCIDR")
}

fn a_deleted_node_object_returns_with_its_pods(scenario: &Scenario, node: &str) {
    let workload = Workload::start(scenario, node, MOMENT);
    let (address, had) = (workload.pod_address(), range(scenario, node).expect("a range"));
    let kubelet =
        || scenario.lab().run_inside(node, &["systemctl", "show", "--value", "-P", "MainPID", "kubelet"], MOMENT);
    let former = kubelet().expect("the kubelet's process");
    scenario.kubectl(&["delete", "node", node]);
    scenario.wait("the node to be back", BACK, || is_whole(scenario, node));
    assert_eq!(range(scenario, node).expect("a range"), had, "it has another range");
    assert_eq!(workload.pod_address(), address, "its pod was deleted");
    scenario.wait("the kubelet to start again", BACK, || {
        let process = kubelet()?;
        Ok(process != former && process.trim() != "0")
    });
    scenario.wait("no finding to be left", MOMENT, || Ok(!has(scenario, node, "node.not-registered")?));
    for other in ALL {
        scenario.wait(&format!("{other} to have a route to the pods of {node}"), BACK, || {
            let asked = scenario.inside(other, &["ip", "route", "get", &address]);
            Ok(asked.contains("kaas.vxlan") || other == node)
        });
    }
    scenario.wait("add-ons to be whole", BACK, || {
        let ready =
            ["get", "deployment", "coredns", "--namespace=kube-system", "--output=jsonpath={.status.readyReplicas}"];
        Ok(scenario.lab().kubectl(&ready)? == "2")
    });
    // By the kubelet itself: the object has the state that the former process wrote.
    scenario.wait("the kubelet to run its static pods", BACK, || {
        let path = format!("/api/v1/nodes/{node}/proxy/pods");
        let pods: Value = serde_json::from_str(&scenario.lab().kubectl(&["get", "--raw", &path])?)?;
        let name = json!(format!("kube-apiserver-{node}"));
        let server = pods["items"].as_array().into_iter().flatten().find(|pod| pod["metadata"]["name"] == name);
        Ok(server.is_some_and(|server| server["status"]["phase"] == "Running"))
    });
    scenario.kubectl(&["delete", "deployment,service,configmap", "web"]);
    scenario.reached("a deleted Node object is back");
}

/// The boot of the agent waits for the node before the task that creates deleted objects begins.
fn a_node_object_returns_while_the_agent_restarts(scenario: &Scenario, node: &str) {
    scenario.kubectl(&["delete", "node", node]);
    scenario.inside(node, &["systemctl", "restart", "kaas-agent"]);
    scenario.wait("the node to be back", BACK, || is_whole(scenario, node));
    scenario.reached("a Node object is back that was deleted before a restart of the agent");
}

fn a_node_whose_range_was_taken_starts_pods(scenario: &Scenario, node: &str) {
    let had = range(scenario, node).expect("a range");
    let thief = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"},
        "spec": {"podCIDR": had, "podCIDRs": [had], "taints": [{"key": "nobody", "effect": "NoSchedule"}]},
    });
    scenario.kubectl(&["delete", "node", node]);
    scenario.apply(&thief);
    scenario.wait("the node to be back", BACK, || is_whole(scenario, node));
    let has_now = scenario.obtain("another range", MOMENT, || {
        let range = range(scenario, node)?;
        Ok((!range.is_empty() && range != had).then_some(range))
    });
    let prefix = has_now.rsplit_once('.').expect("a range").0.to_owned();
    let workload = Workload::start(scenario, node, BACK);
    assert!(workload.pod_address().starts_with(&format!("{prefix}.")), "{} in {has_now}", workload.pod_address());
    scenario.wait("no sandbox to have a former address", BACK, || {
        let script = "for pod in $(crictl pods --quiet --state ready); do \
                      crictl inspectp --output go-template --template '{{.status.network.ip}}' $pod; echo; done";
        let former = had.rsplit_once('.').expect("a range").0;
        Ok(!scenario.lab().run_inside(node, &["sh", "-c", script], MOMENT)?.contains(&format!("{former}.")))
    });
    scenario.kubectl(&["delete", "node", "elsewhere"]);
    scenario.kubectl(&["delete", "deployment,service,configmap", "web"]);
    scenario.reached("a node with another range starts pods");
}

fn a_removed_role_returns(scenario: &Scenario, node: &str) {
    scenario.kubectl(&["label", "node", node, "node-role.kubernetes.io/control-plane-"]);
    scenario.wait("the role to be back", MOMENT, || {
        Ok(of_node(scenario, node, ".metadata.labels")?.contains("node-role.kubernetes.io/control-plane"))
    });
    assert_eq!(of_node(scenario, node, ROLE).expect("the node"), "", "the label has a value");
    scenario.wait("the pod of the node's controller to be back", BACK, || {
        let ready = [
            "get",
            "daemonset",
            "kaas-controller",
            "--namespace=kaas-system",
            "--output=jsonpath={.status.numberReady}",
        ];
        Ok(scenario.lab().kubectl(&ready)? == "3")
    });
    scenario.reached("a removed role is back");
}

fn configure(scenario: &Scenario, node: &str, change: &str) {
    scenario.inside(node, &["kaas-agent", "configure", change]);
}

fn a_proxy_reaches_the_running_runtime(scenario: &Scenario, node: &str) {
    let sees = || -> anyhow::Result<bool> {
        let script = "tr '\\0' '\\n' </proc/$(systemctl show --property=MainPID --value containerd)/environ";
        Ok(scenario.lab().run_inside(node, &["sh", "-c", script], MOMENT)?.contains(PROXY))
    };
    let pods = || scenario.lab().run_inside(node, &["crictl", "pods", "--quiet", "--state", "ready"], MOMENT);
    let before = pods().expect("the node's pods");
    assert!(!sees().expect("containerd's environment"));
    configure(scenario, node, &format!("https-proxy={PROXY}"));
    scenario.wait("containerd to use the proxy", BACK, sees);
    scenario.wait("its pods to have run on", MOMENT, || Ok(pods()? == before));
    configure(scenario, node, "https-proxy=");
    scenario.wait("containerd to use no proxy", BACK, || Ok(!sees()?));
    scenario.reached("containerd uses the current proxy");
}

/// The pods of cluster DNS read their file again and are not restarted. One that asked itself would end.
fn dns_servers_reach_cluster_dns(scenario: &Scenario) {
    let of_dns = |arguments: &[&str]| {
        let selected = ["--namespace=kube-system", "--selector=k8s-app=kube-dns"];
        scenario.lab().kubectl(&[arguments, &selected].concat())
    };
    let pods = || {
        let each = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount} \
                    {.status.containerStatuses[0].ready} {end}";
        of_dns(&["get", "pods", &format!("--output=jsonpath={each}")])
    };
    let reloads = || Ok::<_, anyhow::Error>(of_dns(&["logs", "--tail=-1"])?.matches("Reloading complete").count());
    let asks = |servers: &str| {
        let map = ["get", "configmap", "coredns", "--namespace=kube-system", "--output=jsonpath={.data.Corefile}"];
        let file = scenario.lab().kubectl(&map)?;
        let forward = format!("forward . {servers} {{");
        Ok::<_, anyhow::Error>(if servers.is_empty() { !file.contains("forward") } else { file.contains(&forward) })
    };
    scenario.wait("cluster DNS to be ready", BACK, || Ok(pods()?.matches(" true").count() == 2));
    let before = pods().expect("the pods of cluster DNS");
    for servers in [DNS, ""] {
        let had = reloads().expect("the logs of cluster DNS");
        for node in ALL {
            configure(scenario, node, &format!("dns-servers={servers}"));
            scenario.wait(&format!("cluster DNS to ask {servers:?}"), BACK, || asks(servers));
        }
        scenario.wait("cluster DNS to read that", 2 * BACK, || Ok(reloads()? >= had + 2));
        assert_eq!(pods().expect("the pods of cluster DNS"), before, "pods of cluster DNS were restarted");
    }
    scenario.reached("cluster DNS asks the current DNS servers");
}
