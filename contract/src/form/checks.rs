//! Checks between properties. Each check reports all problems that it finds. It ignores values that are missing or wrong by
//! themselves.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use ipnet::Ipv4Net;

use super::draft::Draft;
use crate::codes;
use crate::finding::{Finding, Findings};
use crate::properties;
use crate::properties::parse::addresses::overlap;
use crate::properties::parse::certificates;
use crate::properties::{
    ADDRESS, API_VIP, AddressSource, CONSOLE_PASSWORD_HASH, CONTROL_NODES, DATA_ADDRESS, DEPLOYMENT_SECRET,
    DNS_SERVERS, EXTRA_CA_CERTIFICATES, GATEWAY, HTTP_PROXY, HTTPS_PROXY, KUBERNETES_VERSION, NODE_NAME, NTP_SERVERS,
    POD_CIDR, REGISTRY_MIRROR, ROUTES, SERVICE_CIDR, SERVICE_VIPS, SNAPSHOT_TARGET, SSH_AUTHORIZED_KEYS,
};
use crate::role::Role;
use crate::secret::Secret;

/// The number of resolvers that the C library uses (MAXNS in resolv.h).
const RESOLVERS: usize = 3;

/// The pod CIDR is split into at most 2^16 parts (Kubernetes, `pkg/controller/nodeipam/ipam/cidrset`).
const POD_BITS: u32 = 16;

/// All checks, for a VM of an image with these minor versions of Kubernetes. `now` judges certificates, only with warnings,
/// because the clock may be wrong.
pub fn all(draft: &Draft, minors: &[String], now: SystemTime) -> Findings {
    let mut findings = Findings::default();
    only_a_workers_address_is_leased(draft, &mut findings);
    this_node_is_listed(draft, &mut findings);
    control_nodes_are_distinct(draft, &mut findings);
    virtual_address_is_there(draft, &mut findings);
    addresses_are_in_the_subnet(draft, &mut findings);
    addresses_are_used_once(draft, &mut findings);
    ranges_are_apart(draft, &mut findings);
    service_addresses_are_free(draft, &mut findings);
    routes_lead_somewhere(draft, &mut findings);
    pods_have_room(draft, &mut findings);
    servers_can_be_reached(draft, &mut findings);
    kubernetes_is_in_the_image(draft, minors, &mut findings);
    secret_has_no_white_space_around(draft, &mut findings);
    findings.extend(draft.snapshot_target.as_ref().and_then(clear_text).map(Findings::from).unwrap_or_default());
    somebody_can_log_in(draft, &mut findings);
    for problem in certificates::validity(&draft.extra_ca_certificates, now) {
        findings.push(problem.code.finding(EXTRA_CA_CERTIFICATES, problem.seen, problem.action));
    }
    findings
}

/// A finding if a snapshot target is reached without TLS.
pub fn clear_text(target: &Secret) -> Option<Finding> {
    let scheme = url::Url::parse(target.expose()).ok()?.scheme().to_owned();
    (scheme != "https").then(|| {
        codes::SNAPSHOT_TARGET_CLEAR.finding(
            SNAPSHOT_TARGET,
            format!("it is reached by {scheme}://: anyone on the way can read each snapshot, and the password"),
            "Give an https:// address; the server's CA may be one of extra-ca-certificates",
        )
    })
}

/// The other nodes, etcd and the holders of kubeconfigs reach control-plane nodes at fixed addresses.
fn only_a_workers_address_is_leased(draft: &Draft, findings: &mut Findings) {
    let is_leased = draft.address_source == Some(AddressSource::Dhcp);
    let Some(role) = draft.role.filter(|role| is_leased && *role != Role::Worker) else { return };
    findings.push(codes::ADDRESS_DHCP.finding(
        ADDRESS,
        format!("it is to come by DHCP, and this VM is to be {}", role.title()),
        "Give a static address and the prefix length of its subnet",
    ));
}

fn this_node_is_listed(draft: &Draft, findings: &mut Findings) {
    let (Some(name), Some(nodes)) = (&draft.name, &draft.control_nodes) else { return };
    let entries: Vec<_> = nodes.iter().filter(|node| node.name == *name).collect();
    if entries.is_empty() {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        findings.push(codes::CONTROL_NODES_NOT_LISTED.finding(
            NODE_NAME,
            format!("\"{name}\" is not among the control-plane nodes {}", names.join(", ")),
            "Give this VM one of these names, or add it to the list on every node",
        ));
    }
    let Some(address) = draft.address().map(|network| network.addr()) else { return };
    for entry in entries.into_iter().filter(|entry| entry.address != address) {
        findings.push(codes::CONTROL_NODES_ADDRESS.finding(
            CONTROL_NODES,
            format!("the list says {name}={}, but this VM's address is {address}", entry.address),
            "Make both the same",
        ));
    }
}

fn control_nodes_are_distinct(draft: &Draft, findings: &mut Findings) {
    let Some(nodes) = &draft.control_nodes else { return };
    if !matches!(nodes.len(), 1 | 3) {
        findings.push(codes::CONTROL_NODES_COUNT.finding(
            CONTROL_NODES,
            format!("there are {} control-plane nodes", nodes.len()),
            "Give one, or three for high availability",
        ));
    }
    for (index, node) in nodes.iter().enumerate() {
        if nodes[..index].iter().any(|other| other.name == node.name) {
            findings.push(codes::NAME_DUPLICATE.finding(
                CONTROL_NODES,
                format!("two control-plane nodes are named {}", node.name),
                "Give each another name",
            ));
        }
        if let Some(other) = nodes[..index].iter().find(|other| other.address == node.address) {
            findings.push(codes::ADDRESS_DUPLICATE.finding(
                CONTROL_NODES,
                format!("{} and {} both have the address {}", other.name, node.name, node.address),
                "Give each another address",
            ));
        }
    }
}

/// If the table itself requires a virtual IP, a missing one is reported already.
fn virtual_address_is_there(draft: &Draft, findings: &mut Findings) {
    let said = |role| properties::find(API_VIP).is_some_and(|property| property.required(role));
    if draft.role.is_some_and(said) {
        return;
    }
    let several = draft.control_nodes.as_ref().is_some_and(|nodes| nodes.len() > 1);
    if several && draft.virtual_address.is_none() && !draft.wrong.contains(API_VIP) {
        findings.push(codes::API_VIP_MISSING.finding(
            API_VIP,
            "it is missing, and there are several control-plane nodes",
            "Give an unused address in the nodes' subnet",
        ));
    }
}

fn addresses_are_in_the_subnet(draft: &Draft, findings: &mut Findings) {
    let Some(own) = draft.address() else { return };
    let subnet = own.trunc();
    let mut check = |key: &str, what: &str, address: Ipv4Addr, off_subnet: &codes::Code| {
        if !subnet.contains(&address) {
            findings.push(off_subnet.finding(
                key,
                format!("{what} {address} is not in the node's subnet {subnet}"),
                "Correct it, or the prefix length of this VM's address",
            ));
        } else if address == subnet.network() || address == subnet.broadcast() {
            findings.push(codes::ADDRESS_RESERVED.finding(
                key,
                format!("{what} {address} is the first or last address of the subnet {subnet}"),
                "Give an address between them, and the right prefix length",
            ));
        }
    };
    if let Some(gateway) = draft.gateway {
        check(GATEWAY, "the gateway", gateway, &codes::GATEWAY_OFF_SUBNET);
    }
    // A worker may reach it through a gateway.
    if let Some(address) = draft.virtual_address.filter(|_| draft.role != Some(Role::Worker)) {
        check(API_VIP, "the virtual IP", address, &codes::API_VIP_OFF_SUBNET);
    }
    for node in draft.control_nodes.iter().flatten().filter(|node| Some(&node.name) != draft.name.as_ref()) {
        check(CONTROL_NODES, &format!("the address of {},", node.name), node.address, &codes::CONTROL_NODES_OFF_SUBNET);
    }
}

/// The gateway and the virtual IP are no other host's addresses.
fn addresses_are_used_once(draft: &Draft, findings: &mut Findings) {
    let mut taken: Vec<(String, Ipv4Addr)> =
        draft.control_nodes.iter().flatten().map(|node| (node.name.clone(), node.address)).collect();
    let own = draft.address().map(|network| network.addr());
    if let Some(address) = own.filter(|own| taken.iter().all(|(_, other)| other != own)) {
        taken.push(("this VM".to_owned(), address));
    }
    for (key, what, address) in
        [(GATEWAY, "the gateway", draft.gateway), (API_VIP, "the virtual IP", draft.virtual_address)]
    {
        let Some(address) = address else { continue };
        if let Some((owner, _)) = taken.iter().find(|(_, other)| *other == address) {
            findings.push(codes::ADDRESS_DUPLICATE.finding(
                key,
                format!("{what} {address} is the address of {owner}"),
                "Give an address that nothing else has",
            ));
        }
        taken.push((what.to_owned(), address));
    }
}

fn ranges_are_apart(draft: &Draft, findings: &mut Findings) {
    let ranges: Vec<(&str, &str, Ipv4Net)> = [
        (ADDRESS, "the node subnet", draft.address().map(|own| own.trunc())),
        (DATA_ADDRESS, "the data subnet", draft.data_address.map(|own| own.trunc())),
        (POD_CIDR, "the pod CIDR", draft.pod_cidr),
        (SERVICE_CIDR, "the service CIDR", draft.service_cidr),
    ]
    .into_iter()
    .filter_map(|(key, what, range)| range.map(|range| (key, what, range)))
    .collect();
    for (index, (key, what, range)) in ranges.iter().enumerate() {
        for (_, other, earlier) in ranges[..index].iter().filter(|(_, _, earlier)| overlap(earlier, range)) {
            findings.push(codes::RANGE_OVERLAP.finding(
                *key,
                format!("{what} {range} overlaps {other} {earlier}"),
                "Choose another range, the same on every node",
            ));
        }
    }
}

/// The virtual IPs of services are no other host's addresses. A host that answers for another one's address takes it over.
fn service_addresses_are_free(draft: &Draft, findings: &mut Findings) {
    let own = draft.address().map(|own| ("this VM".to_owned(), own.addr()));
    let subnet = draft.address().map(|own| own.trunc());
    let mut taken: Vec<(String, Ipv4Addr)> =
        draft.control_nodes.iter().flatten().map(|node| (node.name.clone(), node.address)).collect();
    taken.extend(own.filter(|(_, own)| taken.iter().all(|(_, other)| other != own)));
    taken.extend(draft.virtual_address.map(|address| ("the virtual IP of the API".to_owned(), address)));
    taken.extend(draft.gateway.map(|address| ("the gateway".to_owned(), address)));
    taken.extend(draft.dns_servers.iter().map(|address| ("a DNS server".to_owned(), *address)));
    let reserved = subnet.iter().flat_map(|subnet| [subnet.network(), subnet.broadcast()]);
    let reserved: Vec<Ipv4Addr> = reserved.collect();
    let elsewhere: Vec<(&str, Ipv4Net)> = [
        ("the data subnet", draft.data_address.map(|own| own.trunc())),
        ("the pod CIDR", draft.pod_cidr),
        ("the service CIDR", draft.service_cidr),
    ]
    .into_iter()
    .filter_map(|(what, range)| Some((what, range?)))
    .collect();
    for (index, range) in draft.service_addresses.iter().enumerate() {
        for (owner, address) in taken.iter().filter(|(_, address)| range.contains(*address)) {
            findings.push(codes::ADDRESS_DUPLICATE.finding(
                SERVICE_VIPS,
                format!("{range} holds {address}, the address of {owner}"),
                "Give addresses that nothing else has",
            ));
        }
        for address in reserved.iter().filter(|address| range.contains(**address)) {
            findings.push(codes::ADDRESS_RESERVED.finding(
                SERVICE_VIPS,
                format!("{range} holds {address}, the first or last address of the node's subnet"),
                "Give addresses between them",
            ));
        }
        let overlapped = elsewhere.iter().filter(|(_, other)| range.overlaps(&(*other).into()));
        let overlapped = overlapped.map(|(what, other)| format!("{what} {other}"));
        let earlier = draft.service_addresses[..index].iter().filter(|earlier| range.overlaps(earlier));
        for other in overlapped.chain(earlier.map(ToString::to_string)) {
            findings.push(codes::RANGE_OVERLAP.finding(
                SERVICE_VIPS,
                format!("{range} overlaps {other}"),
                "Give other addresses, the same on every node",
            ));
        }
        if let Some(subnet) = subnet.filter(|subnet| !subnet.contains(&range.first) || !subnet.contains(&range.last)) {
            findings.push(codes::SERVICE_VIPS_OFF_SUBNET.finding(
                SERVICE_VIPS,
                format!("{range} is not in the node's subnet {subnet}"),
                "Give addresses of the workers' subnet, unless the network leads these there",
            ));
        }
    }
}

/// Gateways of routes are in a subnet of the VM. Each network has one route. Pods and services are not covered.
fn routes_lead_somewhere(draft: &Draft, findings: &mut Findings) {
    let own: Vec<Ipv4Net> = draft.address().into_iter().chain(draft.data_address).collect();
    let missing = draft.address().is_none() || draft.wrong.contains(DATA_ADDRESS);
    for (index, route) in draft.routes.iter().enumerate() {
        let near = own.iter().find(|own| own.contains(&route.gateway));
        let problem = match near {
            None if missing => None,
            None => Some("is in no subnet of this VM"),
            Some(own) if own.addr() == route.gateway => Some("is this VM's own address"),
            Some(own) if [own.network(), own.broadcast()].contains(&route.gateway) => {
                Some("is the first or last address of its subnet")
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            findings.push(codes::ROUTES_GATEWAY.finding(
                ROUTES,
                format!("the gateway of \"{route}\" {problem}"),
                "Give a router in the subnet of the VM's address or of its data address",
            ));
        }
        if draft.routes[..index].iter().any(|other| other.network == route.network && other != route) {
            findings.push(codes::ROUTES_DUPLICATE.finding(
                ROUTES,
                format!("there are two ways to {}", route.network),
                "Leave one of them",
            ));
        }
        for (what, range) in [("pod CIDR", draft.pod_cidr), ("service CIDR", draft.service_cidr)] {
            if let Some(range) = range.filter(|range| overlap(range, &route.network)) {
                findings.push(codes::RANGE_OVERLAP.finding(
                    ROUTES,
                    format!("the network of \"{route}\" overlaps the {what} {range}"),
                    format!("Give narrower networks, or choose another {what}, the same on every node"),
                ));
            }
        }
    }
}

fn pods_have_room(draft: &Draft, findings: &mut Findings) {
    let (Some(range), Some(nodes), Some(each)) = (draft.pod_cidr, &draft.control_nodes, draft.node_prefix) else {
        return;
    };
    let bits = each.saturating_sub(u32::from(range.prefix_len()));
    if bits > POD_BITS {
        findings.push(codes::RANGE_SIZE.finding(
            POD_CIDR,
            format!("{range} is too large for parts of /{each}: Kubernetes splits a range by {POD_BITS} bits at most"),
            format!("Give a range from /{} on", each - POD_BITS),
        ));
        return;
    }
    let room = 1usize << bits;
    if room < nodes.len() {
        findings.push(codes::RANGE_SIZE.finding(
            POD_CIDR,
            format!("{range} has room for {room} nodes with a /{each} each, and there are {}", nodes.len()),
            "Give a larger range, such as a /16",
        ));
    }
}

/// Servers given by address must be reachable: not covered by pods or services. The virtual IP and the gateway are in the
/// subnet, which other checks keep apart.
fn servers_can_be_reached(draft: &Draft, findings: &mut Findings) {
    if draft.dns_servers.len() > RESOLVERS {
        findings.push(codes::DNS_MANY.finding(
            DNS_SERVERS,
            format!("there are {}", draft.dns_servers.len()),
            format!("Put the {RESOLVERS} most useful ones first"),
        ));
    }
    let url = |url: &Option<String>| -> Option<Ipv4Addr> {
        match url::Url::parse(url.as_ref()?).ok()?.host()? {
            url::Host::Ipv4(address) => Some(address),
            _ => None,
        }
    };
    let mut servers: Vec<(&str, Ipv4Addr)> = Vec::new();
    servers.extend(draft.dns_servers.iter().map(|address| (DNS_SERVERS, *address)));
    servers.extend(draft.ntp_servers.iter().filter_map(|host| Some((NTP_SERVERS, host.parse().ok()?))));
    servers
        .extend(draft.virtual_address.filter(|_| draft.role == Some(Role::Worker)).map(|address| (API_VIP, address)));
    servers.extend(url(&draft.http_proxy).map(|address| (HTTP_PROXY, address)));
    servers.extend(url(&draft.https_proxy).map(|address| (HTTPS_PROXY, address)));
    servers.extend(url(&draft.registry_mirror).map(|address| (REGISTRY_MIRROR, address)));
    let target = draft.snapshot_target.as_ref().map(|target| target.expose().to_owned());
    servers.extend(url(&target).map(|address| (SNAPSHOT_TARGET, address)));
    let hiding = [("pod CIDR", draft.pod_cidr), ("service CIDR", draft.service_cidr)];
    for (key, address) in &servers {
        for (what, range) in hiding.iter().filter_map(|(what, range)| Some((what, (*range)?))) {
            if range.contains(address) {
                findings.push(codes::RANGE_COVERS_SERVER.finding(
                    *key,
                    format!("{address} is inside the {what} {range}, so the node could not reach it"),
                    format!("Choose another {what}, the same on every node"),
                ));
            }
        }
    }
    let Some(subnet) = draft.address() else { return };
    let far: Vec<String> = servers
        .iter()
        .filter(|(_, address)| !subnet.contains(address))
        .filter(|(_, address)| !draft.data_address.is_some_and(|data| data.contains(address)))
        .filter(|(_, address)| !draft.routes.iter().any(|route| route.network.contains(address)))
        .map(|(_, address)| address.to_string())
        .collect();
    if draft.gateway.is_none() && !draft.wrong.contains(GATEWAY) && !far.is_empty() {
        findings.push(codes::GATEWAY_MISSING.finding(
            GATEWAY,
            format!("it is missing, and {} are outside the subnet {}", far.join(", "), subnet.trunc()),
            "Give the subnet's gateway, or leave these servers out",
        ));
    }
}

fn secret_has_no_white_space_around(draft: &Draft, findings: &mut Findings) {
    let Some(secret) = draft.secret.as_ref().map(|secret| secret.expose()) else { return };
    if secret.trim() != secret {
        findings.push(codes::SECRET_WHITESPACE.finding(
            DEPLOYMENT_SECRET,
            "it begins or ends with white space, which is part of it",
            "Make sure that it is the same on every node",
        ));
    }
}

/// On a node of a cluster the console shows only the status without a password, and SSH is off without a key.
fn somebody_can_log_in(draft: &Draft, findings: &mut Findings) {
    let keys = [SSH_AUTHORIZED_KEYS, CONSOLE_PASSWORD_HASH];
    let given = !draft.ssh_authorized_keys.is_empty() || draft.console_password_hash.is_some();
    if !given && !keys.iter().any(|key| draft.wrong.contains(key)) {
        findings.push(codes::ACCESS_NONE.finding(
            SSH_AUTHORIZED_KEYS,
            "neither an SSH key nor a console password is given: no user could ever log in",
            "Give SSH public keys, the hash of a console password, or both",
        ));
    }
}

fn kubernetes_is_in_the_image(draft: &Draft, minors: &[String], findings: &mut Findings) {
    let seen = match (&draft.kubernetes_minor, minors) {
        (_, []) => "this image carries no Kubernetes at all".to_owned(),
        (Some(wanted), minors) if !minors.contains(wanted) => {
            format!("this image does not carry Kubernetes {wanted}, but {}", minors.join(" and "))
        }
        _ => return,
    };
    findings.push(codes::KUBERNETES_MINOR.finding(
        KUBERNETES_VERSION,
        seen,
        "Choose a version that the image carries, or deploy another version of the OVA",
    ));
}
