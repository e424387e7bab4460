//! The address that a DHCP server has leased to this node. A node of a cluster is known by its address: another one is
//! told, not taken.

use std::net::Ipv4Addr;

use contract::codes;
use contract::finding::{Finding, Findings};
use contract::properties;
use contract::properties::parse::addresses::overlap;
use ipnet::Ipv4Net;

use super::devices::{self, Device};
use super::network::{failed, has};
use super::networkd;
use crate::host::bus::Bus;
use crate::host::platform::Platform;
use crate::intake::config::{Lease, Node, Worker};

/// What the node has of a DHCP server now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// An address, which the network device has.
    Leased(Lease),
    /// None yet, or none any more.
    Nothing {
        /// The device that it is asked for on.
        device: String,
    },
}

/// How that goes with the address that the cluster knows the node by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the same.
    Kept,
    /// There is none.
    Lost(Finding),
    /// It is another one.
    Changed(Finding),
}

/// Looks at what networkd has been given on the primary network.
///
/// # Errors
/// A finding, when the device cannot be told, or networkd does not answer.
pub fn look(platform: &Platform, bus: &Bus, node: &Node) -> Result<Seen, Findings> {
    let device = primary(platform, node)?;
    let given = networkd::given(platform, bus, &device)
        .map_err(|error| failed(&format!("asking networkd for the lease of {}", device.name), format!("{error:#}")))?;
    for address in given.addresses {
        if has(&device, address.addr()).map_err(|error| failed("listing the addresses", error))? {
            return Ok(Seen::Leased(Lease { address, ntp_servers: given.ntp_servers }));
        }
    }
    Ok(Seen::Nothing { device: device.name })
}

/// Has networkd begin anew on the primary network if it has given up there: it asks for no lease then. Says whether it had.
///
/// # Errors
/// As [`look`].
pub fn ask_again(platform: &Platform, bus: &Bus, node: &Node) -> Result<bool, Findings> {
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

fn primary(platform: &Platform, node: &Node) -> Result<Device, Findings> {
    let devices = devices::list(platform).map_err(|error| failed("listing the network adapters", error))?;
    Ok(devices::assign(&node.interfaces, &devices)?.swap_remove(0))
}

/// Compares what is seen with the lease that the node has joined its cluster with.
pub fn standing(joined_with: &Lease, seen: &Seen) -> Standing {
    let own = joined_with.address.addr();
    let reserve = format!("Reserve {own} for this VM's MAC address in the DHCP server, or replace the worker");
    match seen {
        Seen::Leased(lease) if lease.address.addr() == own => Standing::Kept,
        Seen::Leased(lease) => Standing::Changed(codes::ADDRESS_CHANGED.finding(
            properties::ADDRESS,
            format!(
                "the DHCP server leases {} to this node, and the cluster knows it by {own}: the kubelet stays stopped",
                lease.address.addr()
            ),
            reserve,
        )),
        Seen::Nothing { device } => Standing::Lost(codes::ADDRESS_LOST.finding(
            properties::ADDRESS,
            format!("the lease of {own} on {device} has ended, and no DHCP server gives another"),
            format!("Make a DHCP server reachable. {reserve}"),
        )),
    }
}

/// Refuses a lease that contradicts the form: what a static address is checked against before anything is done. networkd has
/// the address by then, unless somebody else on the network has it too.
///
/// # Errors
/// All that is wrong with it.
pub fn suits(worker: &Worker, lease: &Lease) -> Result<(), Findings> {
    let Worker { node, cluster, .. } = worker;
    let (own, subnet, primary) = (lease.address.addr(), lease.address.trunc(), &node.interfaces[0]);
    let routers = || primary.gateway.into_iter().chain(node.routes.iter().map(|route| route.gateway));
    let mut findings = Findings::default();
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
    fn another_address_is_told_with_both_and_none_as_lost() {
        let own = lease("10.0.0.21/24");
        let seen = Seen::Leased(Lease { ntp_servers: vec![[10, 0, 0, 1].into()], ..lease("10.0.0.21/25") });
        assert_eq!(standing(&own, &seen), Standing::Kept);
        let Standing::Changed(finding) = standing(&own, &Seen::Leased(lease("10.0.0.77/24"))) else { panic!() };
        assert_eq!(finding.code, "address.changed");
        assert!(finding.seen.contains("10.0.0.77") && finding.seen.contains("10.0.0.21"), "{finding}");
        assert!(finding.action.contains("Reserve 10.0.0.21"), "{finding}");
        let Standing::Lost(finding) = standing(&own, &Seen::Nothing { device: "ens192".to_owned() }) else { panic!() };
        assert_eq!(finding.code, "address.lost");
        assert!(finding.seen.contains("10.0.0.21 on ens192"), "{finding}");
    }

    #[test]
    fn a_lease_that_contradicts_the_form_is_refused_with_all_that_is_wrong() {
        let mut worker = fixture::worker();
        let refused = |worker: &Worker, address: &str| -> Vec<(String, String)> {
            let findings = suits(worker, &lease(address)).err().unwrap_or_default();
            findings.iter().map(|finding| (finding.code.clone(), finding.seen.clone())).collect()
        };
        assert!(refused(&worker, "10.0.0.21/24").is_empty());
        let codes = |told: &[(String, String)]| told.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
        // The virtual IP, while nobody has it; and the gateway.
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
