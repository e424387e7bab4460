//! The address that a DHCP server has leased to this node. A node of a cluster is known by its address: another one is
//! told, not taken.

use contract::codes;
use contract::finding::{Finding, Findings};
use contract::properties;

use super::devices::{self, Device};
use super::network::{failed, has};
use super::networkd;
use crate::host::bus::Bus;
use crate::host::platform::Platform;
use crate::intake::config::{Lease, Node};

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

/// Refuses a lease whose subnet does not have the gateway that the form gives.
///
/// # Errors
/// The finding that says so.
pub fn has_gateway(node: &Node, lease: &Lease) -> Result<(), Finding> {
    match node.interfaces[0].gateway {
        Some(gateway) if !lease.address.contains(&gateway) => Err(codes::GATEWAY_OFF_SUBNET.finding(
            properties::GATEWAY,
            format!("the gateway {gateway} is not in {}, the subnet of the DHCP lease", lease.address.trunc()),
            "Correct it, or leave it empty: then the DHCP server's is used",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture;

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
    fn a_gateway_of_the_form_has_to_be_in_the_subnet_of_the_lease() {
        let node = fixture::worker().node;
        assert!(has_gateway(&node, &lease("10.0.0.21/24")).is_ok());
        let finding = has_gateway(&node, &lease("10.7.0.21/24")).unwrap_err();
        assert_eq!(finding.code, "gateway.off-subnet");
        assert!(finding.seen.contains("10.7.0.0/24"), "{finding}");
    }
}
