//! A hostile network and a hostile pod try to reach a running cluster: a part of the scenario of three nodes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;

use contract::ports::{self, Caller, Protocol};
use scenarios::endpoint::{self, address};
use scenarios::network_outsider::{NetworkOutsider, beside, pod_address};
use scenarios::scenario::{ALL, MOMENT, Scenario};
use scenarios::workload::Workload;

/// Intervals between claims of the virtual IP, in hundredths of a second: nearly the longest that VRRP allows, and the
/// shortest that nodes use.
const LASTING: u16 = 4000;
const BRIEF: u16 = 100;

/// A host outside of the cluster reaches the ports of the table on each node. Neither that host nor a pod reaches others.
pub fn strangers_and_pods_get_what_the_table_says(scenario: &Scenario, workload: &Workload<'_>) {
    let stranger = NetworkOutsider::beside_the_nodes(scenario);
    let pod = NetworkOutsider::among_the_pods_of(scenario, "cp1");
    what_the_table_names_is_open_and_nothing_else(scenario, &stranger);
    a_host_port_is_open_while_its_pod_is_there_and_a_firewall_that_is_taken_away_comes_back(scenario, &stranger);
    a_service_with_a_node_port_is_reached_on_each_node(scenario, &stranger, workload);
    administrators_are_those_who_are_named(scenario, &stranger);
    nobody_but_a_node_puts_packets_into_the_tunnel(scenario, &stranger, &pod, workload);
    nobody_but_a_node_moves_the_virtual_address(scenario, &stranger, &pod);
    pods_send_no_raw_packets_and_settings_hold(scenario, workload);
    pods_have_so_many_processes_and_no_more(scenario);
    a_namespace_editor_takes_no_address_and_no_priority_of_the_systems(scenario);
    stranger.leave();
    pod.leave();
}

/// The TCP ports that everybody's packets reach while `admin-cidrs` is empty.
fn open_to_everybody() -> BTreeSet<u16> {
    let everybody = |caller| match caller {
        Caller::Everybody | Caller::Administrators | Caller::AdministratorsAndNodes => true,
        Caller::Nodes | Caller::NodesAndPods | Caller::ControlNodes | Caller::Loopback => false,
    };
    let named = ports::TABLE.iter().filter(|port| port.protocol == Protocol::Tcp && everybody(port.caller));
    named.filter_map(|port| port.number).chain(ports::NODE_PORTS).collect()
}

fn what_the_table_names_is_open_and_nothing_else(scenario: &Scenario, stranger: &NetworkOutsider) {
    let expected = open_to_everybody();
    assert!(stranger.is_answered(beside(address(scenario, "cp1"), 1), 40_000), "nobody says that a port is closed");
    // A closed port of UDP would say so, as that of the lab's bridge does.
    let silent = [ports::VXLAN, ports::KUBELET, 53, 111, 5353, 40_000];
    let found = thread::scope(|scope| {
        let looks = ALL.map(|node| {
            let address = address(scenario, node);
            scope.spawn(move || {
                let answers = silent.into_iter().filter(|port| stranger.is_answered(address, *port));
                (stranger.finds_open(address, 1..=u16::MAX), answers.collect::<Vec<_>>())
            })
        });
        looks.map(|look| look.join().expect("a look at a node's ports"))
    });
    for (node, (open, answers)) in ALL.into_iter().zip(found) {
        let others: Vec<_> = open.symmetric_difference(&expected).collect();
        assert!(others.is_empty(), "{node}: these ports are open, or closed, against the table: {others:?}");
        assert!(answers.is_empty(), "{node} answers at these ports of UDP: {answers:?}");
        scenario.reached(&format!("{node} is open where the table says so"));
    }
}

/// The port of a pod in the host's network, in addition to the table.
const HOST_PORT: u16 = 18_080;

/// A pod in the host's network opens its port to all hosts, and closes it at its end. Meanwhile the test removes the
/// firewall: the node loads the rules again, with that port.
fn a_host_port_is_open_while_its_pod_is_there_and_a_firewall_that_is_taken_away_comes_back(
    scenario: &Scenario,
    stranger: &NetworkOutsider,
) {
    let node = address(scenario, "cp3");
    // The system's namespace alone may have such pods.
    let metadata = serde_json::json!({"name": "host-port", "namespace": "kube-system"});
    scenario.apply(&serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "data": {"Corefile": format!(".:10053 {{\n    health :{HOST_PORT}\n}}\n")},
    }));
    scenario.apply(&serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "nodeName": "cp3",
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "server", "image": scenario.carried("cp3", "coredns"), "imagePullPolicy": "Never",
                "args": ["-conf", "/etc/web/Corefile"],
                "ports": [{"containerPort": HOST_PORT, "hostPort": HOST_PORT}],
                "volumeMounts": [{"name": "web", "mountPath": "/etc/web"}],
            }],
            "volumes": [{"name": "web", "configMap": {"name": "host-port"}}],
        },
    }));
    scenario.wait("a stranger to reach the host port of a pod", MOMENT, || {
        Ok(stranger.reads(node, HOST_PORT, "/health").ends_with("OK"))
    });
    scenario.inside("cp3", &["nft", "delete", "table", "inet", "kaas_firewall"]);
    // A node that answers at all of its ports would have to keep in mind that many connections.
    scenario.wait("a firewall that was taken away to be there again", MOMENT, || {
        Ok(stranger.finds_open(node, [ports::ETCD_CLIENT, 111, 40_000]).is_empty())
    });
    let mut expected = open_to_everybody();
    assert!(expected.insert(HOST_PORT), "the table has the port of the pod");
    let found = stranger.finds_open(node, 1..=u16::MAX);
    let others: Vec<_> = found.symmetric_difference(&expected).collect();
    assert!(others.is_empty(), "these ports are open, or closed, against the table and the pod: {others:?}");
    scenario.kubectl(&["delete", "pod", "host-port", "--namespace=kube-system"]);
    scenario.wait("the host port of a pod that is gone to close", MOMENT, || {
        Ok(stranger.finds_open(node, [HOST_PORT]).is_empty())
    });
    scenario.kubectl(&["delete", "configmap", "host-port", "--namespace=kube-system"]);
}

/// The pod is on one node, and each sends its packets there.
fn a_service_with_a_node_port_is_reached_on_each_node(
    scenario: &Scenario,
    stranger: &NetworkOutsider,
    workload: &Workload<'_>,
) {
    let port = workload.node_port();
    for node in ALL {
        scenario.wait(&format!("a stranger to reach the service at {node}:{port}"), MOMENT, || {
            Ok(stranger.reads(address(scenario, node), port, "/health").ends_with("OK"))
        });
    }
    let pod: Ipv4Addr = workload.pod_address().parse().expect("an address");
    assert!(
        stranger.finds_open_by_way_of(address(scenario, "cp1"), pod, 8080).is_empty(),
        "a pod is open to strangers"
    );
}

/// Hosts of another network than the administrators' reach neither SSH nor the endpoint. Nodes and clients of the API are
/// admitted as before.
fn administrators_are_those_who_are_named(scenario: &Scenario, stranger: &NetworkOutsider) {
    let node = address(scenario, "cp3");
    let all = [ports::SSH, ports::API, ports::NODE];
    let sees = |what: &str, open: &[u16]| {
        scenario.wait(what, MOMENT, || Ok(stranger.finds_open(node, all) == open.iter().copied().collect()));
    };
    scenario.inside("cp3", &["kaas-agent", "configure", "admin-cidrs=192.0.2.0/24"]);
    sees("SSH and the endpoint of cp3 to close", &[ports::API]);
    // Another node is no stranger. The endpoint is away for a moment, while the agent takes up what was changed.
    let answers = || {
        scenario.wait("cp3's endpoint to answer cp1", MOMENT, || {
            Ok(endpoint::ask(scenario, "cp1", "cp3", "/livez", false).contains(" 200 "))
        });
    };
    answers();
    scenario.inside("cp3", &["kaas-agent", "configure", "admin-cidrs="]);
    sees("SSH and the endpoint of cp3 to open", &all);
    answers();
}

fn nobody_but_a_node_puts_packets_into_the_tunnel(
    scenario: &Scenario,
    stranger: &NetworkOutsider,
    pod: &NetworkOutsider,
    workload: &Workload<'_>,
) {
    let [cp1, cp2] = ["cp1", "cp2"].map(|node| address(scenario, node));
    let target: Ipv4Addr = workload.pod_address().parse().expect("an address");
    let pods = (pod_address(scenario, "cp2", 200), target);
    let device = format!("set -- $(ip route get {target}); exec tcpdump -l -n -i $3");
    let listen = format!("{device} 'udp and dst portrange 9990-9999' > /run/scenario-heard");
    scenario.inside("cp1", &["touch", "/run/scenario-heard"]);
    scenario.inside("cp1", &["systemd-run", "--unit=scenario-ear", "sh", "-c", &listen]);
    let heard = |port: u16| {
        let text = scenario.inside("cp1", &["cat", "/run/scenario-heard"]);
        text.contains(&format!(".{port}: "))
    };
    // On one wire nothing tells a node from who takes its address: with it, the packet comes through, and shows that it
    // would be heard.
    let comes_through = |port: u16| {
        scenario.wait("a packet in a node's name to come through the tunnel", MOMENT, || {
            stranger.tunnels(cp2, cp1, pods, port);
            Ok(heard(port))
        });
    };
    comes_through(9990);
    for _ in 0..5 {
        stranger.tunnels(stranger.address, cp1, pods, 9991);
        pod.tunnels(pod.address, cp1, pods, 9992);
        pod.tunnels(cp2, cp1, pods, 9993);
    }
    comes_through(9999);
    for (port, who) in [(9991, "a stranger's"), (9992, "a pod's"), (9993, "a pod's, in a node's name,")] {
        assert!(!heard(port), "{who} packet comes through the tunnel");
    }
    scenario.inside("cp1", &["systemctl", "stop", "scenario-ear.service"]);
}

fn nobody_but_a_node_moves_the_virtual_address(scenario: &Scenario, stranger: &NetworkOutsider, pod: &NetworkOutsider) {
    let nodes = ALL.map(|node| address(scenario, node));
    let virtual_address = scenario.lab().plan().api;
    let moves = || {
        let count = "journalctl --unit=kaas-virtual-address.service --output=cat | grep --count Entering || true";
        ALL.map(|node| scenario.inside(node, &["sh", "-c", count]))
    };
    let (holder, before) = (scenario.address_holder(), moves());
    for _ in 0..10 {
        stranger.claims(virtual_address, stranger.address, &nodes, LASTING);
        // The gateway's, which is the lab's bridge.
        stranger.claims(virtual_address, beside(nodes[0], 1), &nodes, LASTING);
        pod.claims(virtual_address, pod.address, &nodes, LASTING);
        pod.claims(virtual_address, nodes[1], &nodes, LASTING);
        assert_eq!(scenario.address_holder(), holder);
    }
    assert_eq!(moves(), before, "the virtual IP has moved, if only for a moment");
    // On one wire nothing tells a node from who takes its address: in a node's name a claim is believed, which shows that
    // those above were well formed. It stands for a few seconds.
    let other = ALL.into_iter().find(|node| *node != holder).expect("another node");
    scenario.wait("a claim in a node's name to be believed", MOMENT, || {
        stranger.claims(virtual_address, address(scenario, other), &[address(scenario, holder)], BRIEF);
        Ok(moves() != before)
    });
    scenario.wait("the API to answer at the virtual IP again", MOMENT, || {
        Ok(!scenario.lab().kubectl(&["get", "--raw=/livez"])?.is_empty())
    });
    scenario.reached("nobody but a node moves the virtual IP");
}

fn pods_send_no_raw_packets_and_settings_hold(scenario: &Scenario, workload: &Workload<'_>) {
    let node = workload.node();
    // Its pod asks for no rights and gives none up: it has what containerd gives. (Cluster DNS drops all by itself.)
    let process = "crictl inspect --output go-template --template '{{.info.pid}}' $(crictl ps --quiet --name '^web$')";
    let process = scenario.inside(&node, &["sh", "-ec", process]).trim().to_owned();
    let of_the_pod = |file: &str| scenario.inside(&node, &["cat", &format!("/proc/{process}/{file}")]);
    assert!(of_the_pod("cmdline").contains("/etc/web/Corefile"), "the process {process} is not the workload's");
    let value = |text: &str, name: &str| -> String {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let bounding = value(&of_the_pod("status"), "CapBnd:");
    let bounding = u64::from_str_radix(&bounding, 16).expect("a hexadecimal number");
    // capabilities(7) and linux/capability.h: NET_BIND_SERVICE is 10, NET_RAW 13.
    assert_eq!((bounding >> 10 & 1, bounding >> 13 & 1), (1, 0), "capabilities {bounding:#x}");
    // The node's programs, and a container that runs the node, may be under a filter already: the pod's is one more
    // (`Seccomp_filters` of proc_pid_status(5)). 2 is SECCOMP_MODE_FILTER.
    let filters = |text: &str| -> u32 { value(text, "Seccomp_filters:").parse().expect("a number") };
    let runtime = "cat /proc/$(systemctl show --property=MainPID --value containerd.service)/status";
    let runtime = filters(&scenario.inside(&node, &["sh", "-ec", runtime]));
    let status = of_the_pod("status");
    assert_eq!(value(&status, "Seccomp:"), "2", "a pod makes any system call");
    assert!(filters(&status) > runtime, "a pod makes each system call that its runtime makes: {status}");
    let files: u64 = value(&of_the_pod("limits"), "Max open files").parse().expect("a number");
    assert!(files > 1024, "a pod opens {files} files");
    // Those that a system container has for itself.
    for (setting, expected) in [
        ("all/rp_filter", "2"),
        ("all/accept_redirects", "0"),
        ("eth0/send_redirects", "0"),
        ("eth0/accept_source_route", "0"),
    ] {
        let found = scenario.inside("cp1", &["cat", &format!("/proc/sys/net/ipv4/conf/{setting}")]);
        assert_eq!(found.trim(), expected, "{setting}");
    }
}

fn pods_have_so_many_processes_and_no_more(scenario: &Scenario) {
    let find = "cat $(dirname $(grep --line-regexp --files-with-matches coredns /proc/[0-9]*/comm | head -1))/cgroup";
    let groups = scenario.inside("cp1", &["sh", "-c", find]);
    // cgroups(7): the controller's own hierarchy, or the one of version 2.
    let of =
        |controller: &str| groups.lines().find_map(|line| line.split_once(&format!(":{controller}:"))).map(|at| at.1);
    let (top, group) = match (of("pids"), of("")) {
        (Some(group), _) => ("/sys/fs/cgroup/pids", group),
        (None, Some(group)) => ("/sys/fs/cgroup", group),
        (None, None) => panic!("no group of cluster DNS has a limit: {groups}"),
    };
    let limit = |group: &str| -> u64 {
        let text = scenario.inside("cp1", &["cat", &format!("{top}{group}/pids.max")]);
        text.trim().parse().unwrap_or_else(|_| panic!("{group} may have {text} processes"))
    };
    let (pod, _) = group.rsplit_once('/').expect("the container's group is in the pod's");
    let at = group.find("/kubepods").expect("a group of pods");
    let all = group[at + 1..].find('/').map_or(group, |end| &group[..at + 1 + end]);
    assert_eq!(limit(pod), 4096);
    let threads: u64 =
        scenario.inside("cp1", &["cat", "/proc/sys/kernel/threads-max"]).trim().parse().expect("a number");
    assert!(limit(all) < threads, "pods may have all processes of the node");
}

/// External IPs would take what goes to a node, to etcd or to a DNS server; the system's priorities, other pods' places.
fn a_namespace_editor_takes_no_address_and_no_priority_of_the_systems(scenario: &Scenario) {
    scenario.kubectl(&["create", "rolebinding", "eve", "--clusterrole=edit", "--user=eve"]);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let create = |object: &serde_json::Value| {
        std::fs::write(file.path(), object.to_string()).expect("the object");
        let path = file.path().to_str().expect("a path");
        scenario.lab().kubectl(&["create", "--as=eve", "--dry-run=server", "--filename", path])
    };
    let service = |addresses: &[Ipv4Addr]| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "takes-the-store"},
            "spec": {"selector": {"app": "eve"}, "ports": [{"port": ports::ETCD_CLIENT}], "externalIPs": addresses},
        })
    };
    let refused = format!("{:#}", create(&service(&[address(scenario, "cp2")])).expect_err("a node's address"));
    assert!(refused.contains("external IPs is denied"), "{refused}");
    create(&service(&[])).expect("a service without external IPs");
    let pod = |class: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "comes-first"},
            "spec": {"priorityClassName": class, "containers": [{"name": "main", "image": "none"}]},
        })
    };
    create(&pod("")).expect("a pod like others");
    for class in ["system-node-critical", "system-cluster-critical"] {
        // It is laid when all nodes are seen to run one image.
        scenario.wait(&format!("a pod that calls itself {class} to be refused"), MOMENT, || {
            Ok(create(&pod(class)).is_err_and(|error| format!("{error:#}").contains("are the system's own")))
        });
    }
    let target = serde_json::json!({"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-11.test:eve", "lun": 0});
    let mut names_a_target = pod("");
    names_a_target["spec"]["volumes"] = serde_json::json!([{"name": "store", "iscsi": target}]);
    scenario.wait("a pod that names an iSCSI target to be refused", MOMENT, || {
        Ok(create(&names_a_target)
            .is_err_and(|error| format!("{error:#}").contains("inline iscsi volumes are refused")))
    });
    scenario.kubectl(&["delete", "rolebinding", "eve"]);
}
