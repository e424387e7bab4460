//! networkd's files of this node's interfaces (systemd.network(5)), one for each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use super::devices::Device;
use crate::host::files::ensure_content;
use crate::intake::config::{Address, Interface, Node};

/// The setting that requests a certain address.
const REQUEST: &str = "RequestAddress=";

/// Writes the files of a node's interfaces, each with its device, and removes those of former ones. True if networkd
/// must read them.
pub(super) fn lay(directory: &Path, node: &Node, devices: &[Device]) -> io::Result<bool> {
    write(directory, &files(node, devices), |present, text| lasting(present).eq(lasting(text)))
}

/// As [`lay`], but also true if only the requested address differs.
pub(super) fn lay_to_ask_anew(directory: &Path, node: &Node, devices: &[Device]) -> io::Result<bool> {
    write(directory, &files(node, devices), |present, text| present == text)
}

fn files(node: &Node, devices: &[Device]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for (index, (interface, device)) in node.interfaces.iter().zip(devices).enumerate() {
        files.insert(format!("10-kaas-{index}.network"), file(node, interface, device, index == 0));
    }
    files
}

fn file(node: &Node, interface: &Interface, device: &Device, primary: bool) -> String {
    // A node keeps its address if the network fails for a while, if networkd restarts, and if a neighbour claims it
    // too. networkd's own detection of duplicates would drop it then (RFC 5227, 2.4 b). Two forged packets would be
    // enough, and could cost the cluster its quorum. Therefore the check is made once, before the address is claimed or
    // a worker joins with it. A leased address is dropped only when the lease ends.
    let keep = match interface.address {
        Address::Static(_) => "KeepConfiguration=static",
        Address::Dhcp { .. } => "DHCP=ipv4\nKeepConfiguration=dhcp-on-stop",
    };
    let mut text = format!(
        "[Match]\nMACAddress={}\nName={}\n\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n{keep}\n\
         IgnoreCarrierLoss=yes\n",
        device.mac, device.name
    );
    // Otherwise networkd fails if it adds a route while one lease replaces another, and asks for no further lease.
    let behind_lease = if interface.address.is_leased() { "GatewayOnLink=yes\n" } else { "" };
    if let Some(gateway) = interface.gateway.filter(|_| !interface.address.is_leased()) {
        let _ = writeln!(text, "Gateway={gateway}");
    }
    if primary {
        for server in &node.dns_servers {
            let _ = writeln!(text, "DNS={server}");
        }
        if !node.search_domains.is_empty() {
            let _ = writeln!(text, "Domains={}", node.search_domains.join(" "));
        }
    }
    match interface.address {
        Address::Static(address) => {
            let _ = write!(text, "\n[Address]\nAddress={address}\nDuplicateAddressDetection=none\n");
        }
        Address::Dhcp { .. } => {
            text += &by_dhcp(node, interface);
            if let Some(gateway) = interface.gateway {
                let _ = write!(text, "\n[Route]\nGateway={gateway}\n{behind_lease}");
            }
        }
    }
    for route in node.routes.iter().filter(|route| leads_through(node, interface, route.gateway)) {
        let _ = write!(text, "\n[Route]\nDestination={}\nGateway={}\n{behind_lease}", route.network, route.gateway);
    }
    text
}

/// How a DHCP server is asked, and which of its settings are used: those that the form leaves empty.
fn by_dhcp(node: &Node, interface: &Interface) -> String {
    let unless = |given: bool| if given { "no" } else { "yes" };
    // The MAC address identifies the client, and reservations are made by it. The hypervisor keeps it for the life of a
    // VM and gives it to no other. networkd's default comes from the machine ID: clones may share that, and a worker
    // with a lost scratch partition has another one.
    //
    // The lease is not released at shutdown, because the node always keeps its address. It is not declined if another host
    // claims the address (RFC 2131, 4.4.1): networkd would check that all the time, and the server would then give
    // another address.
    let mut text = format!(
        "\n[DHCPv4]\nClientIdentifier=mac\nHostname={}\nSendHostname=yes\nSendRelease=no\nSendDecline=no\n\
         UseHostname=no\n",
        node.name
    );
    // After a reboot the node requests the same address (RFC 2131, 3.2). A server that has forgotten the lease mostly
    // gives it again.
    if let Some(known) = interface.address.known() {
        let _ = writeln!(text, "{REQUEST}{}", known.addr());
    }
    // Only the default route is taken, unless the form has one. Others (RFC 3442) would be more specific than the
    // routes to pods, services and the API, and any host may answer as a server. For the same reason a server's
    // resolvers get no routes.
    let _ = write!(
        text,
        "UseGateway={gateway}\nUseRoutes=no\nRoutesToDNS=no\nRoutesToNTP=no\n\
         UseDNS={}\nUseDomains={}\nUseNTP={}\n",
        unless(!node.dns_servers.is_empty()),
        unless(!node.search_domains.is_empty()),
        unless(!node.ntp_servers.is_empty()),
        gateway = unless(interface.gateway.is_some()),
    );
    text
}

/// Whether a route through the gateway uses this interface. Gateways outside of all static subnets are in that of the
/// lease.
fn leads_through(node: &Node, interface: &Interface, gateway: Ipv4Addr) -> bool {
    let near = |interface: &Interface| match interface.address {
        Address::Static(address) => address.contains(&gateway),
        Address::Dhcp { .. } => false,
    };
    near(interface) || (interface.address.is_leased() && !node.interfaces.iter().any(near))
}

fn write(directory: &Path, files: &BTreeMap<String, String>, is_same: fn(&str, &str) -> bool) -> io::Result<bool> {
    fs::create_dir_all(directory)?;
    let mut changed = false;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("10-kaas-") && !files.contains_key(&name) {
            fs::remove_file(entry.path())?;
            changed = true;
        }
    }
    for (name, text) in files {
        let path = directory.join(name);
        if !fs::read_to_string(&path).is_ok_and(|present| is_same(&present, text)) {
            changed |= ensure_content(&path, text.as_bytes(), 0o644)?;
        }
    }
    Ok(changed)
}

/// The lines of a file without the requested address. That matters only when a lease is requested, and networkd
/// configures a device again if its file has changed.
fn lasting(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with(REQUEST))
}

#[cfg(test)]
mod tests {
    use super::super::arp::Mac;
    use super::*;
    use crate::intake::config::{Lease, fixture};

    #[test]
    fn primary_interface_has_resolvers_and_each_its_routes() {
        let mut node = fixture::three_nodes().node;
        node.dns_servers = vec![Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
        node.search_domains = vec!["example".into(), "lab.example".into()];
        let route = |network: &str, gateway: &str| contract::properties::Route {
            network: network.parse().unwrap(),
            gateway: gateway.parse().unwrap(),
        };
        node.routes = vec![
            route("10.30.0.0/16", "192.168.7.1"),
            route("172.16.0.0/12", "10.0.0.254"),
            route("10.31.0.7/32", "192.168.0.1"),
        ];
        node.interfaces.push(Interface {
            mac: None,
            network: None,
            address: "192.168.7.5/16".parse::<ipnet::Ipv4Net>().unwrap().into(),
            gateway: None,
        });
        let devices = [("ens192", 1), ("ens224", 2)]
            .map(|(name, last)| Device { name: name.into(), mac: Mac([0, 0x50, 0x56, 0, 0, last]) });
        insta::assert_snapshot!(
            files(&node, &devices).into_iter().map(|(name, text)| format!("# {name}\n{text}")).collect::<String>()
        );
    }

    #[test]
    fn dhcp_server_fills_empty_fields_of_the_form() {
        let mut node = fixture::worker().node;
        node.interfaces[0] =
            Interface { address: Address::Dhcp { lease: None }, gateway: None, ..node.interfaces[0].clone() };
        node.interfaces.push(Interface {
            mac: None,
            network: None,
            address: "10.20.0.21/24".parse::<ipnet::Ipv4Net>().unwrap().into(),
            gateway: None,
        });
        let route = |gateway: &str| contract::properties::Route {
            network: "10.30.0.0/16".parse().unwrap(),
            gateway: gateway.parse().unwrap(),
        };
        node.routes = vec![route("10.20.0.1"), route("10.0.0.254")];
        let devices = [("ens192", 1), ("ens224", 2)]
            .map(|(name, last)| Device { name: name.into(), mac: Mac([0, 0x50, 0x56, 0, 0, last]) });
        let empty = files(&node, &devices);
        let lease = Lease { address: "10.0.0.150/24".parse().unwrap(), ntp_servers: Vec::new() };
        node.interfaces[0].address = Address::Dhcp { lease: Some(lease) };
        node.interfaces[0].gateway = Some(Ipv4Addr::new(10, 0, 0, 1));
        node.dns_servers = vec![Ipv4Addr::new(10, 0, 0, 2)];
        node.search_domains = vec!["example".into()];
        node.ntp_servers = vec!["10.0.0.3".into()];
        let given = &files(&node, &devices)["10-kaas-0.network"];
        let all: String = empty.into_iter().map(|(name, text)| format!("# {name}\n{text}")).collect();
        insta::assert_snapshot!(format!("{all}# with all that a form gives, after the first lease\n{given}"));
    }

    #[test]
    fn new_lease_does_not_reconfigure_the_device() {
        let directory = tempfile::tempdir().unwrap();
        let mut node = fixture::worker().node;
        let device = Device { name: "ens192".into(), mac: Mac([0, 0x50, 0x56, 0, 0, 1]) };
        let mut lay_with = |lease: Option<&str>, domain: &str| {
            let lease = lease.map(|text| Lease { address: text.parse().unwrap(), ntp_servers: Vec::new() });
            node.interfaces[0].address = Address::Dhcp { lease };
            node.search_domains = vec![domain.to_owned()];
            let changed = lay(directory.path(), &node, std::slice::from_ref(&device)).unwrap();
            let laid = fs::read_to_string(directory.path().join("10-kaas-0.network")).unwrap();
            (changed, laid.lines().find_map(|line| line.strip_prefix(REQUEST)).map(str::to_owned))
        };
        assert_eq!(lay_with(None, "example"), (true, None));
        assert_eq!(lay_with(Some("10.0.0.150/24"), "example"), (false, None));
        assert_eq!(lay_with(Some("10.0.0.150/24"), "other.example"), (true, Some("10.0.0.150".to_owned())));
        assert_eq!(lay_with(None, "other.example"), (false, Some("10.0.0.150".to_owned())));
    }

    #[test]
    fn files_of_former_interfaces_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("10-kaas-1.network"), "old").unwrap();
        fs::write(directory.path().join("50-other.network"), "other").unwrap();
        let files = BTreeMap::from([("10-kaas-0.network".to_owned(), "new".to_owned())]);
        let write = || write(directory.path(), &files, |present, text| present == text).unwrap();
        assert!(write());
        assert!(!write());
        assert!(
            !directory.path().join("10-kaas-1.network").exists() && directory.path().join("50-other.network").exists()
        );
    }
}
