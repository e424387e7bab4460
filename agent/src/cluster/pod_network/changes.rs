//! The commands from the observed to the desired state. In their order each one works, and no packet is misrouted in
//! between.

use std::collections::BTreeSet;

use ipnet::Ipv4Net;

use super::desired::{DEVICE, Desired};
use super::observed::{Device, Observed, PROTOCOL};
use crate::host::command::Command;

/// The commands that make `observed` into `desired`. Empty if they are equal.
pub fn changes(desired: &Desired, observed: &Observed) -> Vec<Command> {
    let mut commands = Vec::new();
    let fits = |device: &Device| device.vxlan.as_ref() == Some(&desired.vxlan);
    let kept = observed.device.as_ref().filter(|device| fits(device));
    if kept.is_none() {
        if observed.device.is_some() {
            commands.push(ip(&["link", "delete", DEVICE]));
        }
        let vxlan = &desired.vxlan;
        commands.push(
            ip(&["link", "add", DEVICE, "address", &desired.mac, "mtu", &desired.mtu.to_string()])
                .args(["type", "vxlan", "id", &vxlan.vni.to_string(), "local", &vxlan.local.to_string()])
                .args(["dev", &vxlan.underlay, "dstport", &vxlan.port.to_string(), "nolearning"]),
        );
        // Router solicitations of a link-local address would go nowhere.
        commands.push(ip(&["link", "set", DEVICE, "addrgenmode", "none"]));
    }
    let unreachable = &observed.unreachable;
    // Before routes to other nodes: one of them may have the former range.
    for range in unreachable.iter().filter(|range| **range != desired.pod_cidr) {
        commands.push(ip(&["route", "delete", "unreachable", &range.to_string(), "proto", PROTOCOL]));
    }
    // A device that was made just now has no entries.
    let nothing = Observed::default();
    let observed = if kept.is_some() { observed } else { &nothing };
    link(&mut commands, desired, kept);
    remotes(&mut commands, desired, observed);
    // For addresses that no pod has: packets to them would leave by the default route. After the routes to other nodes:
    // one of them may have had the range.
    if !unreachable.contains(&desired.pod_cidr) {
        let range = desired.pod_cidr.to_string();
        commands.push(ip(&["route", "replace", "unreachable", &range, "proto", PROTOCOL]));
    }
    commands
}

fn link(commands: &mut Vec<Command>, desired: &Desired, kept: Option<&Device>) {
    if let Some(device) = kept {
        if device.mac != desired.mac {
            commands.push(ip(&["link", "set", DEVICE, "address", &desired.mac]));
        }
        if device.mtu != desired.mtu {
            commands.push(ip(&["link", "set", DEVICE, "mtu", &desired.mtu.to_string()]));
        }
    }
    let own = Ipv4Net::from(desired.pod_cidr.network());
    let present = kept.map(|device| device.addresses.clone()).unwrap_or_default();
    for address in present.iter().filter(|address| **address != own) {
        commands.push(ip(&["address", "delete", &address.to_string(), "dev", DEVICE]));
    }
    if !present.contains(&own) {
        commands.push(ip(&["address", "add", &own.to_string(), "dev", DEVICE]));
    }
    if kept.is_none_or(|device| !device.up) {
        commands.push(ip(&["link", "set", DEVICE, "up"]));
    }
}

fn remotes(commands: &mut Vec<Command>, desired: &Desired, observed: &Observed) {
    let remotes = || desired.remotes.iter();
    let forwarding: BTreeSet<_> = remotes().map(|(_, remote)| (remote.mac.clone(), remote.address)).collect();
    let neighbours: BTreeSet<_> = remotes().map(|(range, remote)| (range.network(), remote.mac.clone())).collect();
    let routes: BTreeSet<_> = remotes().map(|(range, _)| (*range, Some(range.network()))).collect();

    // Routes are deleted first and added last: a packet never meets a route without the entries behind it. Entries that
    // are only replaced are not deleted before.
    let wanted: BTreeSet<_> = routes.iter().map(|(range, _)| *range).collect();
    for (range, _) in observed.routes.iter().filter(|(range, _)| !wanted.contains(range)) {
        commands.push(ip(&["route", "delete", &range.to_string(), "dev", DEVICE]));
    }
    let wanted: BTreeSet<_> = neighbours.iter().map(|(address, _)| *address).collect();
    for (address, _) in observed.neighbours.iter().filter(|(address, _)| !wanted.contains(address)) {
        commands.push(ip(&["neighbour", "delete", &address.to_string(), "dev", DEVICE]));
    }
    for (mac, address) in observed.forwarding.difference(&forwarding) {
        commands.push(bridge(&["fdb", "delete", mac, "dev", DEVICE, "dst", &address.to_string()]));
    }
    for (mac, address) in forwarding.difference(&observed.forwarding) {
        let address = address.to_string();
        commands.push(bridge(&["fdb", "replace", mac, "dev", DEVICE, "dst", &address, "self", "permanent"]));
    }
    for (address, mac) in neighbours.difference(&observed.neighbours) {
        let address = address.to_string();
        commands.push(ip(&["neighbour", "replace", &address, "lladdr", mac, "nud", "permanent", "dev", DEVICE]));
    }
    for (range, _) in routes.difference(&observed.routes) {
        let (range, gateway) = (range.to_string(), range.network().to_string());
        commands.push(ip(&["route", "replace", &range, "via", &gateway, "dev", DEVICE, "onlink"]));
    }
}

fn ip(arguments: &[&str]) -> Command {
    Command::new("ip").args(arguments.iter().copied())
}

fn bridge(arguments: &[&str]) -> Command {
    Command::new("bridge").args(arguments.iter().copied())
}
