//! systemd-networkd over D-Bus (org.freedesktop.network1(5)): the state of the devices that it configures.

use std::fs;
use std::net::Ipv4Addr;

use anyhow::Context;
use ipnet::Ipv4Net;
use serde::Deserialize;

use super::devices::Device;
use crate::host::bus::Bus;
use crate::host::platform::Platform;

const SERVICE: &str = "org.freedesktop.network1";
const PATH: &str = "/org/freedesktop/network1";
const MANAGER: &str = "org.freedesktop.network1.Manager";
const LINK: &str = "org.freedesktop.network1.Link";

/// networkd's source of DHCP settings (`network_config_source_to_string`).
const FROM_DHCP: &str = "DHCPv4";
/// Linux's AF_INET.
const IPV4: i32 = 2;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DhcpConfig {
    /// Addresses with the prefix lengths of their subnets. The kernel may not have them yet.
    pub(super) addresses: Vec<Ipv4Net>,
    /// Time servers, unless the device's file excludes them.
    pub(super) ntp_servers: Vec<Ipv4Addr>,
}

pub(super) fn reload(bus: &Bus) -> anyhow::Result<()> {
    bus.call(SERVICE, PATH, MANAGER, "Reload", &())
}

/// networkd's `AdministrativeState` of a device: pending, configuring, configured, unmanaged, failed, linger.
pub(super) fn state(platform: &Platform, bus: &Bus, device: &Device) -> anyhow::Result<String> {
    bus.property(SERVICE, link(platform, bus, device)?.as_str(), LINK, "AdministrativeState")
}

pub(super) fn reconfigure(platform: &Platform, bus: &Bus, device: &Device) -> anyhow::Result<()> {
    bus.call(SERVICE, PATH, MANAGER, "ReconfigureLink", &(index(platform, device)?,))
}

pub(super) fn given(platform: &Platform, bus: &Bus, device: &Device) -> anyhow::Result<DhcpConfig> {
    let link = link(platform, bus, device)?;
    let text: String = bus.call(SERVICE, link.as_str(), LINK, "Describe", &())?;
    understood(&text).with_context(|| format!("understanding what networkd says of {}", device.name))
}

fn link(platform: &Platform, bus: &Bus, device: &Device) -> anyhow::Result<zbus::OwnedObjectPath> {
    let (_, path): (String, _) = bus.call(SERVICE, PATH, MANAGER, "GetLinkByIndex", &(index(platform, device)?,))?;
    Ok(path)
}

fn index(platform: &Platform, device: &Device) -> anyhow::Result<i32> {
    let index = fs::read_to_string(platform.path("/sys/class/net").join(&device.name).join("ifindex"))?;
    Ok(index.trim().parse()?)
}

/// An address or a server in networkd's description.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(default)]
    family: i32,
    #[serde(default)]
    address: Vec<u8>,
    #[serde(default)]
    prefix_length: u8,
    #[serde(default)]
    config_source: String,
}

#[derive(Deserialize)]
struct Described {
    #[serde(rename = "Addresses", default)]
    addresses: Vec<Entry>,
    #[serde(rename = "NTP", default)]
    ntp: Vec<Entry>,
}

impl Entry {
    fn address(&self) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.address.as_slice().try_into().ok()?;
        (self.family == IPV4 && self.config_source == FROM_DHCP).then(|| bytes.into())
    }
}

fn understood(text: &str) -> anyhow::Result<DhcpConfig> {
    let Described { addresses, ntp } = serde_json::from_str(text)?;
    let network = |entry: &Entry| Ipv4Net::new(entry.address()?, entry.prefix_length).ok();
    Ok(DhcpConfig {
        addresses: addresses.iter().filter_map(network).collect(),
        ntp_servers: ntp.iter().filter_map(Entry::address).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhcp_settings_differ_from_settings_of_files() {
        let text = r#"{"Index":2,"Name":"ens192","AdministrativeState":"configured",
            "Addresses":[
                {"Family":10,"Address":[254,128,0,0,0,0,0,0,0,0,0,0,0,0,0,1],"PrefixLength":64,"ConfigSource":"foreign"},
                {"Family":2,"Address":[10,0,0,9],"PrefixLength":24,"ConfigSource":"static","ConfigState":"configured"},
                {"Family":2,"Address":[10,0,0,150],"Broadcast":[10,0,0,255],"PrefixLength":24,"ConfigSource":"DHCPv4",
                 "ConfigState":"configured","ConfigProvider":[10,0,0,1]}],
            "NTP":[{"Server":"time.example.com","ConfigSource":"static"},
                {"Family":2,"Address":[10,0,0,1],"ConfigSource":"DHCPv4","ConfigProvider":[10,0,0,1]}]}"#;
        let given = understood(text).unwrap();
        assert_eq!(given.addresses, ["10.0.0.150/24".parse().unwrap()]);
        assert_eq!(given.ntp_servers, [Ipv4Addr::new(10, 0, 0, 1)]);
        assert_eq!(understood(r#"{"Index":2}"#).unwrap(), DhcpConfig::default());
        assert!(understood("nothing").is_err());
    }
}
