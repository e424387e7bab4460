mod fake_api;
mod namespaces;

use std::net::Ipv4Addr;

use serde_json::json;

use super::changes::changes;
use super::desired::{Desired, Settings, Underlay, Vxlan, desired, mac};
use super::node::{Event, List, Node, Nodes, apply};
use super::observed::{Device, Observed};
use super::{cni, offload, packets};
use crate::host::command::{self, Command, Runner};

fn settings() -> Settings {
    Settings {
        node: "node-1".to_owned(),
        address: Ipv4Addr::new(10, 0, 0, 11),
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        port: 4789,
    }
}

fn underlay() -> Underlay {
    Underlay { device: "ens192".to_owned(), mtu: 1500 }
}

fn nodes(list: &[(&str, &str, &str)]) -> Nodes {
    list.iter()
        .map(|(name, address, range)| {
            let (address, pod_cidr) = (address.parse().unwrap(), range.parse().unwrap());
            let node = Node { address, pod_cidr, created: String::new() };
            ((*name).to_owned(), node)
        })
        .collect()
}

fn three() -> Nodes {
    nodes(&[
        ("node-1", "10.0.0.11", "10.244.0.0/24"),
        ("node-2", "10.0.0.12", "10.244.1.0/24"),
        ("node-3", "10.0.0.13", "10.244.2.0/24"),
    ])
}

fn wanted(nodes: &Nodes) -> Desired {
    let (desired, warnings) = desired(&settings(), &underlay(), nodes);
    assert_eq!(warnings, [""; 0]);
    desired.unwrap()
}

/// The state of the kernel once it is as desired.
fn reached(desired: &Desired) -> Observed {
    Observed {
        underlay: Some(underlay()),
        device: Some(Device {
            vxlan: Some(desired.vxlan.clone()),
            mac: desired.mac.clone(),
            mtu: desired.mtu,
            up: true,
            addresses: [desired.pod_cidr.network().into()].into(),
        }),
        forwarding: desired.remotes.values().map(|remote| (remote.mac.clone(), remote.address)).collect(),
        neighbours: desired.remotes.iter().map(|(range, remote)| (range.network(), remote.mac.clone())).collect(),
        routes: desired.remotes.keys().map(|range| (*range, Some(range.network()))).collect(),
        unreachable: [desired.pod_cidr].into(),
    }
}

fn commands(desired: &Desired, observed: &Observed) -> Vec<String> {
    changes(desired, observed).iter().map(ToString::to_string).collect()
}

#[test]
fn nodes_are_read_from_the_api_servers_objects() {
    let node = |name: &str, address: &str, range: serde_json::Value| {
        json!({
            "metadata": {"name": name, "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"podCIDR": range, "taints": []},
            "status": {"addresses": [
                {"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": address}, {"type": "InternalIP", "address": "10.9.9.9"},
            ], "images": []},
        })
    };
    let list: List = serde_json::from_value(json!({
        "kind": "NodeList",
        "metadata": {"resourceVersion": "41"},
        "items": [
            node("node-1", "10.0.0.11", json!("10.244.0.0/24")),
            node("node-2", "10.0.0.12", json!(null)),
            node("node-3", "10.0.0.13", json!("10.244.2.7/24")),
            node("node-4", "nowhere", json!("10.244.3.0/24")),
            {"metadata": {"name": "node-5"}},
        ],
    }))
    .unwrap();
    let mut known = list.nodes();
    assert_eq!(known["node-4"].address, Ipv4Addr::new(10, 9, 9, 9));
    known.remove("node-4");
    assert_eq!(known, nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24")]));

    let mut change =
        |kind: &str, object: serde_json::Value| match serde_json::from_value(json!({"type": kind, "object": object}))
            .unwrap()
        {
            Event::Added(object) | Event::Modified(object) => apply(&mut known, &object, false),
            Event::Deleted(object) => apply(&mut known, &object, true),
            other => panic!("{other:?}"),
        };
    assert!(!change("MODIFIED", node("node-1", "10.0.0.11", json!("10.244.0.0/24"))), "a heartbeat");
    assert!(change("ADDED", node("node-2", "10.0.0.12", json!("10.244.1.0/24"))));
    assert!(change("MODIFIED", node("node-2", "10.0.0.22", json!("10.244.1.0/24"))));
    assert!(change("MODIFIED", node("node-2", "10.0.0.22", json!(null))));
    assert!(!change("DELETED", node("node-2", "10.0.0.22", json!(null))));
    assert!(change("DELETED", node("node-1", "10.0.0.11", json!("10.244.0.0/24"))));
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}});
    assert!(matches!(serde_json::from_value(gone).unwrap(), Event::Error(status) if status.code == 410));
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "50"}}});
    assert!(
        matches!(serde_json::from_value(bookmark).unwrap(), Event::Bookmark(mark) if mark.metadata.resource_version == "50")
    );
}

#[test]
fn each_other_node_becomes_a_tunnel() {
    let desired = wanted(&three());
    assert_eq!(desired.mtu, 1450);
    assert_eq!(desired.mac, "02:6b:0a:00:00:0b");
    assert_eq!(desired.pod_cidr, "10.244.0.0/24".parse().unwrap());
    let ranges: Vec<_> = desired.remotes.keys().map(ToString::to_string).collect();
    assert_eq!(ranges, ["10.244.1.0/24", "10.244.2.0/24"]);
    assert_eq!(mac(Ipv4Addr::new(255, 0, 16, 1)), "02:6b:ff:00:10:01");
}

#[test]
fn contradicting_nodes_are_left_out_and_reported() {
    let mut all = three();
    all.extend(nodes(&[
        ("node-4", "10.0.0.14", "10.244.1.0/25"),
        ("node-5", "10.0.0.15", "10.245.0.0/24"),
        ("node-6", "10.0.0.11", "10.244.6.0/24"),
        ("node-7", "10.0.0.17", "10.244.0.0/24"),
    ]));
    let (desired, warnings) = desired(&settings(), &underlay(), &all);
    assert_eq!(desired.unwrap().remotes, wanted(&three()).remotes);
    assert_eq!(
        warnings,
        [
            "node-4's pod CIDR 10.244.1.0/25 overlaps another node's",
            "node-5's pod CIDR 10.245.0.0/24 is outside of the cluster's 10.244.0.0/16",
            "node-6 has this node's address 10.0.0.11",
            "node-7's pod CIDR 10.244.0.0/24 overlaps another node's",
        ]
    );
}

#[test]
fn later_node_takes_no_pods_from_another_one() {
    let mut all = three();
    all.values_mut().for_each(|node| node.created = "2026-01-31T12:00:00Z".to_owned());
    let known = wanted(&all);
    let mut thief = nodes(&[("a", "10.0.0.21", "10.244.2.0/24")]);
    thief.values_mut().for_each(|node| node.created = "2026-01-31T12:00:01Z".to_owned());
    all.extend(thief);
    let (desired, warnings) = desired(&settings(), &underlay(), &all);
    assert_eq!(desired.unwrap().remotes, known.remotes);
    assert_eq!(warnings, ["a's pod CIDR 10.244.2.0/24 overlaps another node's"]);
}

#[test]
fn nothing_is_desired_without_this_nodes_range() {
    let mut others = three();
    others.remove("node-1");
    assert_eq!(desired(&settings(), &underlay(), &others), (None, Vec::new()));
}

#[test]
fn everything_is_created_from_an_empty_state() {
    let desired = wanted(&nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24"), ("node-2", "10.0.0.12", "10.244.1.0/24")]));
    assert_eq!(
        commands(&desired, &Observed::default()),
        [
            "ip link add kaas.vxlan address 02:6b:0a:00:00:0b mtu 1450 type vxlan id 1 local 10.0.0.11 dev ens192 \
             dstport 4789 nolearning",
            "ip link set kaas.vxlan addrgenmode none",
            "ip address add 10.244.0.0/32 dev kaas.vxlan",
            "ip link set kaas.vxlan up",
            "bridge fdb replace 02:6b:0a:00:00:0c dev kaas.vxlan dst 10.0.0.12 self permanent",
            "ip neighbour replace 10.244.1.0 lladdr 02:6b:0a:00:00:0c nud permanent dev kaas.vxlan",
            "ip route replace 10.244.1.0/24 via 10.244.1.0 dev kaas.vxlan onlink",
            "ip route replace unreachable 10.244.0.0/24 proto 107",
        ]
    );
}

#[test]
fn desired_state_needs_no_commands() {
    for nodes in [three(), nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24")])] {
        let desired = wanted(&nodes);
        assert_eq!(commands(&desired, &reached(&desired)), [""; 0]);
    }
}

#[test]
fn former_node_is_removed_moved_one_replaced() {
    let observed = reached(&wanted(&three()));
    let fewer = wanted(&nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24"), ("node-2", "10.0.0.22", "10.244.1.0/24")]));
    assert_eq!(
        commands(&fewer, &observed),
        [
            "ip route delete 10.244.2.0/24 dev kaas.vxlan",
            "ip neighbour delete 10.244.2.0 dev kaas.vxlan",
            "bridge fdb delete 02:6b:0a:00:00:0c dev kaas.vxlan dst 10.0.0.12",
            "bridge fdb delete 02:6b:0a:00:00:0d dev kaas.vxlan dst 10.0.0.13",
            "bridge fdb replace 02:6b:0a:00:00:16 dev kaas.vxlan dst 10.0.0.22 self permanent",
            "ip neighbour replace 10.244.1.0 lladdr 02:6b:0a:00:00:16 nud permanent dev kaas.vxlan",
        ]
    );
}

#[test]
fn device_is_repaired_or_created_again() {
    let desired = wanted(&three());
    let with = |change: &dyn Fn(&mut Device)| {
        let mut observed = reached(&desired);
        change(observed.device.as_mut().unwrap());
        commands(&desired, &observed)
    };
    assert_eq!(with(&|device| device.mtu = 1500), ["ip link set kaas.vxlan mtu 1450"]);
    assert_eq!(with(&|device| device.up = false), ["ip link set kaas.vxlan up"]);
    assert_eq!(with(&|device| device.mac.clear()), ["ip link set kaas.vxlan address 02:6b:0a:00:00:0b"]);
    assert_eq!(
        with(&|device| device.addresses = ["10.244.9.0/32".parse().unwrap()].into()),
        ["ip address delete 10.244.9.0/32 dev kaas.vxlan", "ip address add 10.244.0.0/32 dev kaas.vxlan"]
    );
    let other = |change: &dyn Fn(&mut Vxlan)| with(&|device| change(device.vxlan.as_mut().unwrap()));
    for anew in [
        with(&|device| device.vxlan = None),
        other(&|vxlan| vxlan.port = 8472),
        other(&|vxlan| vxlan.learning = true),
        other(&|vxlan| vxlan.local = Ipv4Addr::new(10, 0, 0, 99)),
        other(&|vxlan| vxlan.underlay = "ens224".to_owned()),
    ] {
        assert_eq!(anew[0], "ip link delete kaas.vxlan");
        let unreachable = [desired.pod_cidr].into();
        let nothing = Observed { unreachable, ..Observed::default() };
        assert_eq!(anew[1..], commands(&desired, &nothing), "all that was on it is gone");
    }
}

/// As of two nodes whose objects were made again, each with the range of the other. The kernel has one route to a
/// range.
#[test]
fn other_range_replaces_the_former_one() {
    let before = wanted(&nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24"), ("node-2", "10.0.0.12", "10.244.1.0/24")]));
    let after = wanted(&nodes(&[("node-1", "10.0.0.11", "10.244.1.0/24"), ("node-2", "10.0.0.12", "10.244.0.0/24")]));
    assert_eq!(
        commands(&after, &reached(&before)),
        [
            "ip route delete unreachable 10.244.0.0/24 proto 107",
            "ip address delete 10.244.0.0/32 dev kaas.vxlan",
            "ip address add 10.244.1.0/32 dev kaas.vxlan",
            "ip route delete 10.244.1.0/24 dev kaas.vxlan",
            "ip neighbour delete 10.244.1.0 dev kaas.vxlan",
            "ip neighbour replace 10.244.0.0 lladdr 02:6b:0a:00:00:0c nud permanent dev kaas.vxlan",
            "ip route replace 10.244.0.0/24 via 10.244.0.0 dev kaas.vxlan onlink",
            "ip route replace unreachable 10.244.1.0/24 proto 107",
        ]
    );
}

#[test]
fn device_name_fits_into_the_kernels_limit() {
    assert!(super::desired::DEVICE.len() <= 15, "IFNAMSIZ is 16 with the end mark");
}

#[test]
fn cni_configuration_has_range_and_mtu() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(cni::range(root.path()), None);
    let (range, path) = ("10.244.3.0/24".parse().unwrap(), root.path().join(cni::PATH));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, cni::conflist(range, 1450)).unwrap();
    assert_eq!(cni::range(root.path()), Some(range));
    let list: serde_json::Value = serde_json::from_str(&cni::conflist(range, 1450)).unwrap();
    assert_eq!((&list["plugins"][0]["type"], &list["plugins"][0]["mtu"]), (&json!("ptp"), &json!(1450)));
    assert_eq!(list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.244.3.0/24");
    assert_eq!(list["plugins"][0]["ipam"]["routes"], json!([{"dst": "0.0.0.0/0"}]));
    // A power cut does not remove the records of pods' addresses. In memory they go with the pods.
    assert!(list["plugins"][0]["ipam"]["dataDir"].as_str().unwrap().starts_with("/run/"));
    assert_eq!(list["plugins"][1]["type"], "portmap");
}

/// Any other plugin would be missing on the node, and no pod would start.
#[test]
fn image_has_the_plugins_of_the_cni_configuration() {
    let list: serde_json::Value = serde_json::from_str(&cni::conflist("10.244.3.0/24".parse().unwrap(), 1450)).unwrap();
    let components = include_str!("../../../../../image/components/components.toml");
    let plugins = list["plugins"].as_array().unwrap();
    for name in plugins.iter().map(|plugin| &plugin["type"]).chain([&plugins[0]["ipam"]["type"]]) {
        assert!(components.contains(&format!("output = {name} }}")), "{name} is not in the image");
    }
}

#[test]
fn only_packets_of_known_nodes_are_marked() {
    let content = |nodes: &Nodes| packets::content(settings().pod_cidr, &wanted(nodes));
    let three = content(&three());
    assert!(three.contains("ip daddr { 10.0.0.12, 10.0.0.13 } meta mark set"), "{three}");
    assert!(three.contains("ip saddr { 10.0.0.12, 10.0.0.13 } fib saddr . iif oif exists meta mark set"), "{three}");
    assert!(three.contains("ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16"), "{three}");
    let alone = content(&nodes(&[("node-1", "10.0.0.11", "10.244.0.0/24")]));
    assert!(!alone.contains("mark"), "{alone}");
}

/// A host with one NIC, and ethtool's answer for it.
struct Nic(&'static str, std::sync::Mutex<Vec<String>>);

impl Runner for Nic {
    fn run(&self, command: &Command) -> Result<Vec<u8>, command::Error> {
        self.1.lock().unwrap().push(command.to_string());
        Ok(self.0.as_bytes().to_vec())
    }
}

#[test]
fn tunnel_offloads_of_vmxnet3_are_turned_off() {
    const ON: &str = "Features for ens192:\ntx-checksumming: on\n\ttx-udp_tnl-segmentation: on\n\
                      \ttx-udp_tnl-csum-segmentation: on\n";
    const FIXED: &str = "tx-udp_tnl-segmentation: off [fixed]\ntx-udp_tnl-csum-segmentation: on [fixed]\n";
    let root = tempfile::tempdir().unwrap();
    let device = root.path().join("sys/class/net/ens192/device");
    std::fs::create_dir_all(&device).unwrap();
    let run = |answer| {
        let nic = Nic(answer, std::sync::Mutex::default());
        let changed = offload::ensure(&nic, root.path(), "ens192").unwrap();
        (changed, nic.1.into_inner().unwrap())
    };
    std::os::unix::fs::symlink("../../bus/pci/drivers/virtio_net", device.join("driver")).unwrap();
    assert_eq!(run(ON), (false, vec![]));
    std::fs::remove_file(device.join("driver")).unwrap();
    std::os::unix::fs::symlink("../../bus/pci/drivers/vmxnet3", device.join("driver")).unwrap();
    assert_eq!(run(FIXED), (false, vec!["ethtool -k ens192".to_owned()]));
    let (changed, commands) = run(ON);
    assert!(changed);
    assert_eq!(commands[1], "ethtool -K ens192 tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off");
}
