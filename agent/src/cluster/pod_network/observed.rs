//! The state of the kernel, read from iproute2's JSON.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::Deserialize;

use super::desired::{DEVICE, Underlay, Vxlan};
use crate::host::command::{self, Command, Runner};

/// The relevant devices, and the entries on ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The device that holds this node's address.
    pub underlay: Option<Underlay>,
    pub device: Option<Device>,
    /// Forwarding entries of our device: MAC address and tunnel end.
    pub forwarding: BTreeSet<(String, Ipv4Addr)>,
    /// Neighbours on our device: address and MAC address.
    pub neighbours: BTreeSet<(Ipv4Addr, String)>,
    /// Routes over our device, and their gateways.
    pub routes: BTreeSet<(Ipv4Net, Option<Ipv4Addr>)>,
    /// The ranges that this process made unreachable except for their pods.
    pub unreachable: BTreeSet<Ipv4Net>,
}

/// The protocol of this process's routes that are on no device of ours (`rtm_protocol`, rtnetlink(7)): a number that
/// `/etc/iproute2/rt_protos` leaves free.
pub(super) const PROTOCOL: &str = "107";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `None` if the device of our name is no VXLAN device.
    pub vxlan: Option<Vxlan>,
    pub mac: String,
    /// Its MTU, in bytes.
    pub mtu: u32,
    pub up: bool,
    pub addresses: BTreeSet<Ipv4Net>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Command(#[from] command::Error),
    #[error("reading the answer of {command}: {source}")]
    Answer { command: String, source: serde_json::Error },
}

#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    mtu: u32,
    #[serde(default)]
    address: String,
    #[serde(default)]
    linkinfo: LinkInfo,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Default, Deserialize)]
struct LinkInfo {
    #[serde(default)]
    info_kind: String,
    #[serde(default)]
    info_data: serde_json::Value,
}

#[derive(Deserialize)]
struct VxlanData {
    id: u32,
    local: Ipv4Addr,
    link: String,
    port: u16,
    #[serde(default = "yes")]
    learning: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Address {
    family: String,
    local: String,
    prefixlen: u8,
}

#[derive(Deserialize)]
struct Forwarding {
    mac: String,
    dst: Option<Ipv4Addr>,
}

#[derive(Deserialize)]
struct Neighbour {
    dst: String,
    lladdr: Option<String>,
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    gateway: Option<Ipv4Addr>,
}

impl Observed {
    /// `address` is this node's.
    pub fn look(runner: &dyn Runner, address: Ipv4Addr) -> Result<Self, Error> {
        let links: Vec<Link> = ask(runner, Command::new("ip").args(["-j", "-d", "address", "show"]))?;
        let mut observed = Self {
            underlay: links
                .iter()
                .find(|link| link.holds(address))
                .map(|link| Underlay { device: link.ifname.clone(), mtu: link.mtu }),
            device: links.iter().find(|link| link.ifname == DEVICE).map(Link::device),
            ..Self::default()
        };
        let unreachable = ["-j", "-4", "route", "show", "type", "unreachable", "proto", PROTOCOL];
        let unreachable: Vec<Route> = ask(runner, Command::new("ip").args(unreachable))?;
        observed.unreachable = unreachable.into_iter().filter_map(|route| destination(&route.dst)).collect();
        if observed.device.is_none() {
            return Ok(observed);
        }
        let forwarding: Vec<Forwarding> =
            ask(runner, Command::new("bridge").args(["-j", "fdb", "show", "dev", DEVICE]))?;
        observed.forwarding = forwarding.into_iter().filter_map(|entry| Some((entry.mac, entry.dst?))).collect();
        let neighbours: Vec<Neighbour> =
            ask(runner, Command::new("ip").args(["-j", "-4", "neighbour", "show", "nud", "permanent", "dev", DEVICE]))?;
        observed.neighbours =
            neighbours.into_iter().filter_map(|entry| Some((entry.dst.parse().ok()?, entry.lladdr?))).collect();
        let routes: Vec<Route> = ask(runner, Command::new("ip").args(["-j", "-4", "route", "show", "dev", DEVICE]))?;
        observed.routes =
            routes.into_iter().filter_map(|route| Some((destination(&route.dst)?, route.gateway))).collect();
        Ok(observed)
    }
}

impl Link {
    fn holds(&self, address: Ipv4Addr) -> bool {
        self.ipv4().any(|held| held.addr() == address)
    }

    fn ipv4(&self) -> impl Iterator<Item = Ipv4Net> {
        self.addr_info
            .iter()
            .filter(|address| address.family == "inet")
            .filter_map(|address| Ipv4Net::new(address.local.parse().ok()?, address.prefixlen).ok())
    }

    fn device(&self) -> Device {
        let vxlan = (self.linkinfo.info_kind == "vxlan")
            .then(|| serde_json::from_value::<VxlanData>(self.linkinfo.info_data.clone()).ok())
            .flatten();
        Device {
            vxlan: vxlan.map(|data| Vxlan {
                vni: data.id,
                port: data.port,
                local: data.local,
                underlay: data.link,
                learning: data.learning,
            }),
            mac: self.address.clone(),
            mtu: self.mtu,
            up: self.flags.iter().any(|flag| flag == "UP"),
            addresses: self.ipv4().collect(),
        }
    }
}

/// iproute2 leaves the length of a host route out.
fn destination(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv4Addr>().ok().map(Ipv4Net::from))
}

fn ask<T: serde::de::DeserializeOwned>(runner: &dyn Runner, command: Command) -> Result<Vec<T>, Error> {
    let output = runner.run(&command)?;
    // Without any entry some versions of iproute2 write nothing at all.
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output).map_err(|source| Error::Answer { command: command.to_string(), source })
}
