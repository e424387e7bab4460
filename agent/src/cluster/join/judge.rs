//! Whether a cluster may admit a worker: checks of the cluster's answers, without side effects.

use std::net::Ipv4Addr;

use contract::bios_uuid::BiosUuid;
use contract::codes;
use contract::finding::Finding;
use contract::image::ImageFacts;
use contract::minor::Minor;
use contract::properties;
use contract::properties::parse::addresses::overlap;
use serde::Deserialize;

use super::published::PublishedCluster;
use crate::cluster::kubernetes::addresses::{self, Address};
use crate::intake::config::{ClusterNetwork, Worker};

/// The label of control-plane nodes, from kubeadm.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// `GET /version`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    /// For example `v1.36.3`.
    pub git_version: String,
}

/// A node, as `GET /api/v1/nodes` lists it.
#[derive(Debug, Deserialize)]
pub(super) struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    addresses: Vec<Address>,
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeInfo {
    #[serde(default)]
    kubelet_version: String,
}

impl Node {
    pub fn is_called(&self, name: &str) -> bool {
        self.metadata.name == name
    }

    fn has(&self, address: Ipv4Addr) -> bool {
        addresses::counting(&self.status.addresses).is_some_and(|own| own == address)
    }
}

/// Checks that the cluster has the name that the worker was configured with.
pub(super) fn check_cluster_name(given: &str, named: &str) -> Result<(), Finding> {
    if given == named {
        return Ok(());
    }
    Err(codes::JOIN_OTHER_CLUSTER.finding(
        properties::CLUSTER_NAME,
        format!("the cluster at the address is {named}, not {given}"),
        "Correct the cluster's name, or address, hash and token",
    ))
}

/// The newest minor version of the image that may join. It is not newer than the oldest API server, and not too old for
/// the newest.
pub(super) fn minor(image: &ImageFacts, api: &Version, nodes: &[Node]) -> Result<String, Finding> {
    let all = servers(api, nodes);
    let may = |minor: Minor| all.iter().all(|server| minor.may_speak_to(*server));
    let carried = available_minors(image);
    let chosen = carried.iter().rev().copied().find(|minor| !all.is_empty() && may(*minor));
    chosen.map(|minor| minor.to_string()).ok_or_else(|| {
        let carried: Vec<String> = carried.iter().map(ToString::to_string).collect();
        codes::JOIN_VERSION_SKEW.finding(
            "the cluster's Kubernetes version",
            format!("its API server is of {}, and this image carries {}", api.git_version, carried.join(" and ")),
            "Use an image of the control-plane nodes' version, or upgrade those first",
        )
    })
}

/// Whether the control-plane nodes have two minor versions, and the image carries one that may join once all have the
/// newest.
pub(super) fn may_join_soon(image: &ImageFacts, api: &Version, nodes: &[Node]) -> bool {
    let all = servers(api, nodes);
    let (oldest, newest) = (all.iter().min(), all.iter().max());
    oldest != newest
        && newest.is_some_and(|newest| available_minors(image).iter().any(|minor| minor.may_speak_to(*newest)))
}

/// The minor versions of all API servers. Each has the version of its node's kubelet, or a newer one while that node is
/// being upgraded.
fn servers(api: &Version, nodes: &[Node]) -> Vec<Minor> {
    let of = |version: &str| Minor::of(version.trim_start_matches('v'));
    let control = nodes.iter().filter(|node| node.metadata.labels.contains_key(CONTROL_PLANE));
    control.filter_map(|node| of(&node.status.node_info.kubelet_version)).chain(of(&api.git_version)).collect()
}

/// The minor versions of an image, the oldest first.
fn available_minors(image: &ImageFacts) -> Vec<Minor> {
    let mut carried: Vec<Minor> = image.kubernetes.iter().filter_map(|one| one.minor.parse().ok()).collect();
    carried.sort_unstable();
    carried
}

/// Checks that the worker's subnets do not overlap the cluster's ranges for pods and services. The subnets come from
/// its form or a DHCP server. A node cannot reach hosts in those ranges.
pub(super) fn check_subnets(worker: &Worker, network: ClusterNetwork) -> Result<(), Finding> {
    let subnets = worker.node.interfaces.iter().filter_map(|interface| interface.address.known());
    let ranges = [("pod CIDR", network.pod_cidr), ("service CIDR", network.service_cidr)];
    for (index, subnet) in subnets.enumerate() {
        if let Some((what, range)) = ranges.iter().find(|(_, range)| overlap(range, &subnet)) {
            return Err(codes::RANGE_OVERLAP.finding(
                if index == 0 { properties::ADDRESS } else { properties::DATA_ADDRESS },
                format!("this VM's subnet {} overlaps the cluster's {what} {range}", subnet.trunc()),
                "Connect this VM to another network, or correct the prefix length of its subnet",
            ));
        }
    }
    Ok(())
}

/// Checks that no other node has the worker's name or address. A former node of this VM is not another one.
pub(super) fn check_unique(
    worker: &Worker,
    machine: Option<BiosUuid>,
    published: &PublishedCluster,
    nodes: &[Node],
) -> Result<(), Finding> {
    let (name, address) = (&worker.node.name, worker.node.address());
    // The API server never changes the ID of a node (ValidateNodeUpdate). The ID of this VM may come from an image that
    // read the UUID in the other byte order.
    let is_own = |node: &Node| {
        let runs_on = node.spec.provider_id.as_deref().and_then(BiosUuid::of_provider_id);
        machine.is_some() && runs_on == machine
    };
    let others = || nodes.iter().filter(|node| !is_own(node));
    if let Some(other) = others().find(|node| node.is_called(name)) {
        let machine = other.spec.provider_id.as_deref().map(|id| format!(", on {id}")).unwrap_or_default();
        return Err(codes::JOIN_NAME_IN_USE.finding(
            properties::NODE_NAME,
            format!("the cluster has another node {name}{machine}"),
            format!("Give this VM another name; or, if that node is gone for good: kubectl delete node {name}"),
        ));
    }
    let Some(address) = address else { return Ok(()) };
    let control = published.control_nodes.iter().find(|node| node.address == address).map(|node| node.name.as_str());
    let other = control.or_else(|| others().find(|node| node.has(address)).map(|node| node.metadata.name.as_str()));
    if let Some(other) = other {
        let give = match worker.node.is_leased() {
            true => "Have the DHCP server lease another address to this VM",
            false => "Give this VM another address",
        };
        return Err(codes::JOIN_ADDRESS_IN_USE.finding(
            properties::ADDRESS,
            format!("{address} is the address of the cluster's node {other}"),
            format!("{give}; or, if that node is gone for good: kubectl delete node {other}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{image, joined, worker};
    use crate::intake::config::{Address, Lease};
    use serde_json::json;

    const OWN: BiosUuid = BiosUuid::from_u128(0x420f_1a2b_0003_4000_8000_0000_0000_0007);

    fn nodes(items: serde_json::Value) -> Vec<Node> {
        serde_json::from_value(items).unwrap()
    }

    fn control(kubelet: &str) -> serde_json::Value {
        json!({"metadata": {"name": "node1", "labels": {CONTROL_PLANE: ""}},
            "status": {"nodeInfo": {"kubeletVersion": kubelet},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.11"}]}})
    }

    #[test]
    fn newest_minor_version_for_all_api_servers_joins() {
        // The image carries 1.35 and 1.36.
        for (api, oldest, expected) in [
            ("v1.36.3", "v1.36.3", Some("1.36")),
            ("v1.36.3", "v1.35.4", Some("1.35")),
            ("v1.35.9", "v1.35.4", Some("1.35")),
            ("v1.39.0", "v1.39.0", Some("1.36")),
            ("v1.40.0", "v1.39.0", None),
            ("v1.38.0", "v1.38.0", Some("1.36")),
            ("v1.34.1", "v1.34.1", None),
            ("nonsense", "", None),
        ] {
            let version = Version { git_version: api.to_owned() };
            let judged = minor(&image(), &version, &nodes(json!([control(oldest)])));
            assert_eq!(judged.as_deref().ok(), expected, "{api} {oldest}");
            if let Err(finding) = judged {
                assert_eq!(finding.code, "join.version-skew");
                assert!(finding.seen.contains(api) && finding.seen.contains("1.35 and 1.36"), "{finding}");
            }
        }
    }

    #[test]
    fn image_may_join_soon_during_an_upgrade() {
        for (api, oldest, soon) in [
            ("v1.35.4", "v1.34.1", true),
            ("v1.34.1", "v1.34.1", false),
            ("v1.40.0", "v1.39.0", false),
            ("nonsense", "", false),
        ] {
            let (version, nodes) = (Version { git_version: api.to_owned() }, nodes(json!([control(oldest)])));
            assert!(minor(&image(), &version, &nodes).is_err(), "{api} {oldest}");
            assert_eq!(may_join_soon(&image(), &version, &nodes), soon, "{api} {oldest}");
        }
    }

    #[test]
    fn overlapping_subnet_is_refused() {
        let network = joined().cluster.learned.unwrap().network;
        let mut worker = worker();
        assert_eq!(check_subnets(&worker, network), Ok(()));
        for (address, whose) in [("10.244.3.7/24", "pod CIDR"), ("10.96.0.9/12", "service CIDR")] {
            let address: ipnet::Ipv4Net = address.parse().unwrap();
            for given in [address.into(), Address::Dhcp { lease: Some(Lease { address, ntp_servers: Vec::new() }) }] {
                worker.node.interfaces[0].address = given;
                let finding = check_subnets(&worker, network).unwrap_err();
                assert_eq!((finding.code.as_str(), finding.subject.as_str()), ("range.overlap", "address"));
                assert!(finding.seen.contains(whose), "{finding}");
            }
        }
        worker.node.interfaces[0].address = Address::Dhcp { lease: None };
        assert_eq!(check_subnets(&worker, network), Ok(()));
    }

    #[test]
    fn name_or_address_of_another_node_is_refused() {
        let said = joined().cluster.learned.unwrap();
        let published =
            PublishedCluster { cluster: "lab".into(), network: said.network, control_nodes: said.control_nodes };
        let judge = |worker: &Worker, items| check_unique(worker, Some(OWN), &published, &nodes(items));
        let node = |name: &str, address: &str, machine: BiosUuid| {
            json!({"metadata": {"name": name}, "spec": {"providerID": machine.provider_id()},
                "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]}})
        };
        let other = BiosUuid::from_u128(8);
        assert_eq!(judge(&worker(), json!([control("v1.36.3"), node("worker2", "10.0.0.22", other)])), Ok(()));
        for own in [OWN, OWN.swapped()] {
            assert_eq!(judge(&worker(), json!([node("worker1", "10.0.0.21", own)])), Ok(()), "it was here before");
        }
        for (items, code) in [
            (json!([node("worker1", "10.0.0.99", other)]), "join.name-in-use"),
            (json!([{"metadata": {"name": "worker1"}}]), "join.name-in-use"),
            (json!([node("worker2", "10.0.0.21", other)]), "join.address-in-use"),
        ] {
            assert_eq!(judge(&worker(), items.clone()).unwrap_err().code, code, "{items}");
        }
        let claims = json!([{"metadata": {"name": "liar"}, "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.66"}, {"type": "InternalIP", "address": "10.0.0.21"}]}}]);
        assert_eq!(judge(&worker(), claims), Ok(()), "nobody claims all addresses");
        let mut bold = worker();
        bold.node.interfaces[0].address = "10.0.0.12/24".parse::<ipnet::Ipv4Net>().unwrap().into();
        assert_eq!(judge(&bold, json!([])).unwrap_err().code, "join.address-in-use", "a control node's, which is off");
        let lease = Lease { address: "10.0.0.22/24".parse().unwrap(), ntp_servers: Vec::new() };
        bold.node.interfaces[0].address = Address::Dhcp { lease: Some(lease) };
        let refused = judge(&bold, json!([node("worker2", "10.0.0.22", other)])).unwrap_err();
        assert!(refused.code == "join.address-in-use" && refused.action.contains("DHCP server"), "{refused}");
        assert_eq!(
            check_unique(&worker(), None, &published, &nodes(json!([{"metadata": {"name": "worker1"}}])))
                .unwrap_err()
                .code,
            "join.name-in-use"
        );
    }
}
