//! The address that a DHCP server has leased to this node. The cluster knows a node by its address: another address is
//! reported, not used.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use contract::codes;
use contract::finding::{Finding, Findings};
use contract::properties;
use contract::properties::parse::addresses::{SUBNET, overlap};
use ipnet::Ipv4Net;

use super::arp::{self, Mac};
use super::devices::{self, Device};
use super::network::{DIRECTORY, failed, has, taken};
use super::{network_files, networkd};
use crate::host::bus::Bus;
use crate::host::files;
use crate::host::platform::Platform;
use crate::intake::config::{Lease, Node, Worker};

/// Exists since networkd was last asked for a new lease.
const ASKED: &str = "/run/kaas/lease-asked";

/// How long a DHCP server has to answer before networkd asks again.
const PAUSE: Duration = Duration::from_secs(60);

const PREFIX: &str = "Correct the subnet in the DHCP server, or find another DHCP server that answers; the node asks again each minute. If the network \
                      is such a one now, replace the worker";

/// The action for a subnet that contains addresses which were behind a router when the node joined. Only the operator
/// knows which of the two subnets is right.
const SWALLOWED: &str = "Look who answers as a DHCP server: by this subnet the node would look among its neighbours for what it reached by a \
                         router. If it was wrong when the node joined and is right now, replace the worker, which keeps nothing that \
                         has to outlive it; the node asks again each minute";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedLease {
    Leased(Lease),
    /// There is no lease, or it has ended.
    Nothing {
        device: String,
    },
}

/// A comparison with the address that the cluster knows the node by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    Kept,
    Lost(Finding),
    Changed(Finding),
    /// The address is the same, but with the other settings the node would not reach its cluster.
    Unfit(Findings),
}

/// The lease that networkd has received on the primary network.
pub fn look(platform: &Platform, bus: &Bus, node: &Node) -> Result<ObservedLease, Findings> {
    let device = primary(platform, node)?;
    let given = networkd::given(platform, bus, &device)
        .map_err(|error| failed(&format!("asking networkd for the lease of {}", device.name), format!("{error:#}")))?;
    for address in given.addresses {
        if has(&device, address.addr()).map_err(|error| failed("listing the addresses", error))? {
            return Ok(ObservedLease::Leased(Lease { address, ntp_servers: given.ntp_servers }));
        }
    }
    Ok(ObservedLease::Nothing { device: device.name })
}

/// Makes networkd start again on the primary network if it has failed there, because it then asks for no lease. True if
/// it had failed.
pub fn retry_failed(platform: &Platform, bus: &Bus, node: &Node) -> Result<bool, Findings> {
    let device = primary(platform, node)?;
    let begun = || -> anyhow::Result<bool> {
        let gave_up = networkd::state(platform, bus, &device)? == "failed";
        if gave_up {
            networkd::reconfigure(platform, bus, &device)?;
        }
        Ok(gave_up)
    };
    begun()
        .map_err(|error| failed(&format!("having networkd ask for a lease on {}", device.name), format!("{error:#}")))
}

/// Makes networkd ask again for the known address on the primary network, at most once per [`PAUSE`]. The first answer
/// may not be from the network's own DHCP server, and such a lease may never end. True if it asks.
pub fn request_again(platform: &Platform, bus: &Bus, node: &Node) -> Result<bool, Findings> {
    let mark = platform.path(ASKED);
    let age = fs::metadata(&mark).and_then(|mark| mark.modified()).map(|asked| asked.elapsed().unwrap_or_default());
    if age.is_ok_and(|age| age < PAUSE) {
        return Ok(false);
    }
    let devices = devices::list(platform).map_err(|error| failed("listing the network adapters", error))?;
    let chosen = devices::assign(&node.interfaces, &devices)?;
    let ask = || -> anyhow::Result<()> {
        if let Some(directory) = mark.parent() {
            fs::create_dir_all(directory)?;
        }
        files::write_atomically(&mark, b"", 0o644)?;
        if network_files::lay_to_ask_anew(&platform.path(DIRECTORY), node, &chosen)? {
            networkd::reload(bus)?;
        }
        networkd::reconfigure(platform, bus, &chosen[0])
    };
    ask().map_err(|error| failed("having networkd ask for another lease", format!("{error:#}")))?;
    Ok(true)
}

/// Rejects an address that another host on the network has. Called before the node uses it: networkd does not check.
/// The finding has the MAC address of that host.
pub fn is_free(platform: &Platform, node: &Node, lease: &Lease) -> Result<(), Findings> {
    let devices = devices::list(platform).map_err(|error| failed("listing the network adapters", error))?;
    let own: Vec<Mac> = devices.iter().map(|device| device.mac).collect();
    let (device, address) = (primary(platform, node)?, lease.address.addr());
    match arp::holder(&device.name, address, &own) {
        Ok(None) => Ok(()),
        Ok(Some(other)) => Err(taken(address, &device, other).into()),
        Err(error) => Err(failed(&format!("asking for the address {address}"), error)),
    }
}

fn primary(platform: &Platform, node: &Node) -> Result<Device, Findings> {
    let devices = devices::list(platform).map_err(|error| failed("listing the network adapters", error))?;
    Ok(devices::assign(&node.interfaces, &devices)?.swap_remove(0))
}

pub fn compare_lease(worker: &Worker, joined_with: &Lease, seen: &ObservedLease) -> LeaseState {
    let own = joined_with.address.addr();
    let reserve = format!("Reserve {own} for this VM's MAC address in the DHCP server, or replace the worker");
    match seen {
        ObservedLease::Leased(lease) if lease.address.addr() == own => {
            let mut findings = check_lease(worker, lease).err().unwrap_or_default();
            findings.extend(swallowed(worker, joined_with, lease));
            if findings.is_empty() { LeaseState::Kept } else { LeaseState::Unfit(findings) }
        }
        ObservedLease::Leased(lease) => LeaseState::Changed(codes::ADDRESS_CHANGED.finding(
            properties::ADDRESS,
            format!(
                "the DHCP server leases {} to this node, and the cluster knows it by {own}: the kubelet stays stopped",
                lease.address.addr()
            ),
            reserve,
        )),
        ObservedLease::Nothing { device } => LeaseState::Lost(codes::ADDRESS_LOST.finding(
            properties::ADDRESS,
            format!("the lease of {own} on {device} has ended, and no DHCP server gives another"),
            format!("Make a DHCP server reachable. {reserve}"),
        )),
    }
}

/// Rejects a lease with a subnet that contains cluster addresses which were behind a router. The node would look for
/// them on its own segment, where any host could answer in their place.
fn swallowed(worker: &Worker, joined_with: &Lease, lease: &Lease) -> Findings {
    let (former, subnet) = (joined_with.address.trunc(), lease.address.trunc());
    let control = worker.cluster.learned.iter().flat_map(|said| &said.control_nodes).map(|node| node.address);
    let mut needed: Vec<Ipv4Addr> = [worker.cluster.api_address].into_iter().chain(control).collect();
    needed.extend(&worker.node.dns_servers);
    needed.retain(|address| subnet.contains(address) && !former.contains(address));
    let Some(first) = needed.first() else { return Findings::default() };
    let seen = format!(
        "the DHCP server says that this node is in {subnet}, which {first} would be in as well: the node has joined in {former}"
    );
    codes::ADDRESS_PREFIX.finding(properties::ADDRESS, seen, SWALLOWED).into()
}

/// Rejects a lease that contradicts the form, by the checks that a static address must pass. The device has the address
/// already, unless another host on the network has it too.
pub fn check_lease(worker: &Worker, lease: &Lease) -> Result<(), Findings> {
    let Worker { node, cluster, .. } = worker;
    let (own, subnet, primary) = (lease.address.addr(), lease.address.trunc(), &node.interfaces[0]);
    let routers = || primary.gateway.into_iter().chain(node.routes.iter().map(|route| route.gateway));
    let mut findings = Findings::default();
    // The kernel looks for all hosts of the subnet among its neighbours.
    if !SUBNET.contains(&subnet.prefix_len()) {
        findings.push(codes::ADDRESS_PREFIX.finding(
            properties::ADDRESS,
            format!(
                "the DHCP server leases {}, and its prefix length is not within {} to {}",
                lease.address,
                SUBNET.start(),
                SUBNET.end()
            ),
            PREFIX,
        ));
    }
    let network = cluster.learned.as_ref().map(|said| said.network);
    let ranges = network.map(|network| [("pod CIDR", network.pod_cidr), ("service CIDR", network.service_cidr)]);
    for (what, range) in ranges.iter().flatten().filter(|(_, range)| overlap(range, &subnet)) {
        findings.push(codes::RANGE_OVERLAP.finding(
            properties::ADDRESS,
            format!("{subnet}, the subnet of the DHCP lease, overlaps the cluster's {what} {range}"),
            PREFIX,
        ));
    }
    let others =
        [(own == cluster.api_address, "the virtual IP of the API"), (routers().any(|one| one == own), "a gateway's")];
    for (_, what) in others.iter().filter(|(is_it, _)| *is_it) {
        findings.push(codes::ADDRESS_DUPLICATE.finding(
            properties::ADDRESS,
            format!("the DHCP server leases {own} to this node, which by the form is {what}"),
            "Have the DHCP server lease another address to this VM, or correct the form",
        ));
    }
    if let Some(gateway) = primary.gateway.filter(|gateway| !subnet.contains(gateway)) {
        findings.push(codes::GATEWAY_OFF_SUBNET.finding(
            properties::GATEWAY,
            format!("the gateway {gateway} is not in {subnet}, the subnet of the DHCP lease"),
            "Correct it, or leave it empty: then the DHCP server's is used",
        ));
    }
    let beside: Vec<Ipv4Net> = node.interfaces[1..].iter().filter_map(|other| other.address.known()).collect();
    let near = |gateway: &Ipv4Addr| subnet.contains(gateway) || beside.iter().any(|other| other.contains(gateway));
    for route in node.routes.iter().filter(|route| !near(&route.gateway)) {
        findings.push(codes::ROUTES_GATEWAY.finding(
            properties::ROUTES,
            format!("the gateway of \"{route}\" is in no subnet of this VM; that of the DHCP lease is {subnet}"),
            "Give a router in the subnet of the VM's address or of its data address",
        ));
    }
    for other in beside.iter().filter(|other| overlap(other, &subnet)) {
        findings.push(codes::RANGE_OVERLAP.finding(
            properties::DATA_ADDRESS,
            format!("the data subnet {} overlaps {subnet}, the subnet of the DHCP lease", other.trunc()),
            "Connect the second adapter to another network",
        ));
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::{Interface, fixture};
    use contract::properties::Route;

    fn lease(address: &str) -> Lease {
        Lease { address: address.parse().unwrap(), ntp_servers: Vec::new() }
    }

    #[test]
    fn changed_and_lost_addresses_are_reported() {
        let (worker, own) = (fixture::joined(), lease("10.0.0.21/24"));
        let seen = ObservedLease::Leased(Lease { ntp_servers: vec![[10, 0, 0, 1].into()], ..lease("10.0.0.21/25") });
        assert_eq!(compare_lease(&worker, &own, &seen), LeaseState::Kept);
        let LeaseState::Changed(finding) = compare_lease(&worker, &own, &ObservedLease::Leased(lease("10.0.0.77/24")))
        else {
            panic!()
        };
        assert_eq!(finding.code, "address.changed");
        assert!(finding.seen.contains("10.0.0.77") && finding.seen.contains("10.0.0.21"), "{finding}");
        assert!(finding.action.contains("Reserve 10.0.0.21"), "{finding}");
        let LeaseState::Lost(finding) =
            compare_lease(&worker, &own, &ObservedLease::Nothing { device: "ens192".to_owned() })
        else {
            panic!()
        };
        assert_eq!(finding.code, "address.lost");
        assert!(finding.seen.contains("10.0.0.21 on ens192"), "{finding}");
    }

    #[test]
    fn subnet_that_contains_the_clusters_addresses_is_refused() {
        let mut worker = fixture::joined();
        worker.node.interfaces[0].gateway = None;
        let unfit = |worker: &Worker, own: &str, now: &str| match compare_lease(
            worker,
            &lease(own),
            &ObservedLease::Leased(lease(now)),
        ) {
            LeaseState::Kept => Vec::new(),
            LeaseState::Unfit(findings) => findings.iter().map(|finding| finding.code.clone()).collect(),
            other => panic!("{other:?}"),
        };
        assert!(unfit(&worker, "10.0.0.21/24", "10.0.0.21/25").is_empty());
        assert!(unfit(&worker, "10.0.0.21/24", "10.0.0.21/23").is_empty(), "the network has grown");
        // Half of all addresses, including pods and services; then a single host.
        assert_eq!(unfit(&worker, "10.0.0.21/24", "10.0.0.21/1"), ["address.prefix", "range.overlap", "range.overlap"]);
        assert_eq!(unfit(&worker, "10.0.0.21/24", "10.0.0.21/32"), ["address.prefix"]);
        // The control-plane nodes are behind a router.
        assert_eq!(unfit(&worker, "10.0.0.131/25", "10.0.0.131/24"), ["address.prefix"]);
        // The operator who has corrected the server knows which of the two was wrong.
        let LeaseState::Unfit(findings) =
            compare_lease(&worker, &lease("10.0.0.131/28"), &ObservedLease::Leased(lease("10.0.0.131/24")))
        else {
            panic!("it is taken")
        };
        let finding = findings.iter().next().unwrap();
        assert!(
            finding.seen.contains("10.0.0.128/28") && finding.action.contains("was wrong when the node joined"),
            "{finding}"
        );
        assert!(unfit(&worker, "10.0.0.131/25", "10.0.0.131/26").is_empty());
        // Before the node has joined, only the form has the cluster's addresses.
        worker.cluster.learned = None;
        let refused = check_lease(&worker, &lease("10.0.0.21/1")).unwrap_err();
        assert_eq!(refused.iter().map(|finding| finding.code.as_str()).collect::<Vec<_>>(), ["address.prefix"]);
    }

    #[test]
    fn lease_that_contradicts_the_form_is_refused() {
        let mut worker = fixture::worker();
        let refused = |worker: &Worker, address: &str| -> Vec<(String, String)> {
            let findings = check_lease(worker, &lease(address)).err().unwrap_or_default();
            findings.iter().map(|finding| (finding.code.clone(), finding.seen.clone())).collect()
        };
        assert!(refused(&worker, "10.0.0.21/24").is_empty());
        let codes = |told: &[(String, String)]| told.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
        // The virtual IP, while no node holds it, and the gateway.
        for (address, whose) in [("10.0.0.10/24", "the virtual IP of the API"), ("10.0.0.1/24", "a gateway's")] {
            let told = refused(&worker, address);
            assert_eq!(codes(&told), ["address.duplicate"]);
            assert!(told[0].1.contains(whose), "{told:?}");
        }
        worker.node.interfaces.push(Interface {
            mac: None,
            network: None,
            address: "10.1.0.21/24".parse::<Ipv4Net>().unwrap().into(),
            gateway: None,
        });
        let route =
            |gateway: &str| Route { network: "10.30.0.0/16".parse().unwrap(), gateway: gateway.parse().unwrap() };
        worker.node.routes = vec![route("10.0.0.254"), route("10.1.0.254")];
        assert!(refused(&worker, "10.0.0.21/24").is_empty());
        let told = refused(&worker, "10.7.0.21/24");
        assert_eq!(codes(&told), ["gateway.off-subnet", "routes.gateway"]);
        assert!(told.iter().all(|(_, seen)| seen.contains("10.7.0.0/24")), "{told:?}");
        assert_eq!(codes(&refused(&worker, "10.0.0.21/15")), ["range.overlap"]);
    }
}
