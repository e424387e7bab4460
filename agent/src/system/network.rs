//! Claims this node's addresses through networkd. It assigns a device to each interface, checks that no other host has
//! an address, writes networkd's files, and waits until networkd has applied them.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use contract::codes;
use contract::finding::{Finding, Findings};

use super::address;
use super::arp::{self, Mac};
use super::devices::{self, Device};
use super::{network_files, networkd};
use crate::host::bus::Bus;
use crate::host::command::{Command, Runner};
use crate::host::platform::Platform;
use crate::intake::config::{Address, Config, Interface};

pub(super) const DIRECTORY: &str = "/etc/systemd/network";

/// How long an adapter may take to find its network, and networkd to configure it.
const CARRIER: Duration = Duration::from_secs(10);
const CONFIGURED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Claims the static addresses of this node, and makes networkd ask for those that a DHCP server leases. It does not
/// wait for leases. Addresses that the node has already stay. The virtual IP must be free or held by a control-plane
/// node, unless this node is `formed`. After an error nothing is claimed, unless networkd itself has failed half-way.
pub fn ensure(
    platform: &Platform,
    runner: &dyn Runner,
    bus: &Bus,
    config: &Config,
    formed: bool,
) -> Result<bool, Findings> {
    let devices = devices::list(platform).map_err(|error| failed("listing the network adapters", error))?;
    let chosen = devices::assign(&config.node().interfaces, &devices)?;
    let own: Vec<Mac> = devices.iter().map(|device| device.mac).collect();
    let mut findings = Findings::default();
    let mut claimed = Vec::new();
    for (index, (interface, device)) in config.node().interfaces.iter().zip(&chosen).enumerate() {
        match ask(platform, runner, config, interface, device, &own) {
            Ok(Answer::Held) => {}
            Ok(Answer::Free) => claimed.push(device),
            Ok(Answer::Refused(finding)) => {
                findings.push(finding);
                continue;
            }
            Err(error) => {
                findings.extend(failed(&format!("asking for the address {}", interface.address), error));
                continue;
            }
        }
        if let Some(address) = config.virtual_address().filter(|_| index == 0 && !formed) {
            match virtual_address_taken(config, address, device, &own) {
                Ok(taken) => taken.into_iter().for_each(|finding| findings.push(finding)),
                Err(error) => findings.extend(failed(&format!("asking for {address}"), error)),
            }
        }
    }
    if findings.has_errors() {
        return Err(findings);
    }
    let changed = network_files::lay(&platform.path(DIRECTORY), config.node(), &chosen)
        .map_err(|error| failed("writing networkd's files", error))?;
    if changed {
        networkd::reload(bus).map_err(|error| failed("having networkd read its files", format!("{error:#}")))?;
    }
    for (interface, device) in config.node().interfaces.iter().zip(&chosen) {
        // networkd announces leased addresses.
        let Address::Static(address) = interface.address else { continue };
        let address = address.addr();
        wait(platform, bus, config, address, device)?;
        // Neighbours may have cached the VM that this one replaces.
        if claimed.contains(&device) {
            arp::announce(&device.name, address).map_err(|error| failed(&format!("announcing {address}"), error))?;
        }
    }
    Ok(changed)
}

pub(super) fn failed(attempt: &str, error: impl std::fmt::Display) -> Findings {
    Findings::from(codes::NETWORK_FAILED.finding(
        "network",
        format!("{attempt}: {error}"),
        "Check the VM's network adapters, then power the VM off and on",
    ))
}

/// Whether an address may be claimed.
enum Answer {
    Held,
    Free,
    Refused(Finding),
}

/// Brings the device up without an address and checks whether another host has it. An address that this node has
/// already is not checked. networkd checks a leased one.
fn ask(
    platform: &Platform,
    runner: &dyn Runner,
    config: &Config,
    interface: &Interface,
    device: &Device,
    own: &[Mac],
) -> anyhow::Result<Answer> {
    if let Some(known) = interface.address.known()
        && has(device, known.addr())?
    {
        return Ok(Answer::Held);
    }
    runner.run(&Command::new("ip").args(["link", "set", "dev", &device.name, "up"]))?;
    let deadline = Instant::now() + config.timeout(CARRIER);
    while !has_carrier(platform, device) {
        if Instant::now() > deadline {
            return Ok(Answer::Refused(codes::NETWORK_NO_CARRIER.finding(
                format!("{} ({})", device.name, device.mac),
                "the adapter is not connected to a network",
                "Connect the VM's network adapter in the hypervisor",
            )));
        }
        std::thread::sleep(POLL);
    }
    let Address::Static(address) = interface.address else { return Ok(Answer::Free) };
    Ok(match arp::probe(&device.name, address.addr(), own)? {
        Some(other) => Answer::Refused(taken(address.addr(), device, other)),
        None => Answer::Free,
    })
}

pub(super) fn taken(address: Ipv4Addr, device: &Device, other: Mac) -> Finding {
    codes::ADDRESS_IN_USE.finding(
        address.to_string(),
        format!("the device with MAC address {other} uses this address on the network of {}", device.name),
        "Free the address, or deploy this node with another one",
    )
}

/// Whether a host other than a control-plane node has the virtual IP on the network of the primary interface. A
/// control-plane node may hold it, because the others may have formed the cluster already.
fn virtual_address_taken(
    config: &Config,
    address: Ipv4Addr,
    device: &Device,
    own: &[Mac],
) -> io::Result<Option<Finding>> {
    let Some(holder) = arp::holder(&device.name, address, own)? else { return Ok(None) };
    for peer in config.peers() {
        if arp::holder(&device.name, peer.address, own)? == Some(holder) {
            return Ok(None);
        }
    }
    Ok(Some(codes::API_VIP_IN_USE.finding(
        address.to_string(),
        format!(
            "the device with MAC address {holder}, which is no control-plane node, uses the virtual IP on the network \
             of {}",
            device.name
        ),
        "Free the address, or give another virtual IP on every node",
    )))
}

/// Whether the gateway, or another neighbour, answers on the network of the device that has this node's address `own`.
/// The error is for messages.
pub fn neighbour_answers(own: Ipv4Addr, neighbour: Ipv4Addr) -> Result<(), String> {
    let device = address::device(own).map_err(|error| error.to_string())?;
    match arp::find(&device, own, neighbour) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("no host on the network has this address".to_owned()),
        Err(error) => Err(format!("asking {device}: {error}")),
    }
}

fn has_carrier(platform: &Platform, device: &Device) -> bool {
    let file = platform.path("/sys/class/net").join(&device.name).join("carrier");
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

pub(super) fn has(device: &Device, address: Ipv4Addr) -> io::Result<bool> {
    Ok(nix::ifaddrs::getifaddrs()?.any(|interface| {
        interface.interface_name == device.name
            && interface.address.is_some_and(|found| found.as_sockaddr_in().is_some_and(|found| found.ip() == address))
    }))
}

fn wait(platform: &Platform, bus: &Bus, config: &Config, address: Ipv4Addr, device: &Device) -> Result<(), Findings> {
    let deadline = Instant::now() + config.timeout(CONFIGURED);
    loop {
        let state = networkd::state(platform, bus, device)
            .map_err(|error| failed(&format!("asking networkd about {}", device.name), format!("{error:#}")))?;
        let present = has(device, address).map_err(|error| failed("listing the addresses", error))?;
        if state == "configured" && present {
            return Ok(());
        }
        if state == "failed" || Instant::now() > deadline {
            return Err(failed(
                &format!("giving {} the address {address}", device.name),
                format!("networkd says {state:?}"),
            ));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::intake::config::{Cluster, ControlPlane, Node};
    use contract::pod_security::PodSecurity;
    use contract::properties::{ControlNode, Period};
    use contract::role::Role;

    /// The first node of three.
    pub(crate) fn config() -> ControlPlane {
        let node = |name: &str, last| ControlNode { name: name.into(), address: Ipv4Addr::new(10, 0, 0, last) };
        ControlPlane {
            role: Role::ControlPlane,
            cluster: Cluster {
                name: "alpha".into(),
                control_nodes: vec![node("cp-1", 11), node("cp-2", 12), node("cp-3", 13)],
                virtual_address: Some(Ipv4Addr::new(10, 0, 0, 10)),
                pod_cidr: "10.244.0.0/16".parse().unwrap(),
                node_prefix: 24,
                service_cidr: "10.96.0.0/16".parse().unwrap(),
                vxlan_port: 8472,
                kubernetes_minor: "1.36".into(),
                pod_security: PodSecurity::Baseline,
                add_ons: Default::default(),
            },
            node: Node {
                name: "cp-1".into(),
                interfaces: vec![Interface {
                    mac: None,
                    network: None,
                    address: "10.0.0.11/24".parse::<ipnet::Ipv4Net>().unwrap().into(),
                    gateway: Some(Ipv4Addr::new(10, 0, 0, 1)),
                }],
                routes: vec![],
                dns_servers: vec![Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)],
                search_domains: vec!["example".into(), "lab.example".into()],
                ntp_servers: vec![],
                ssh_authorized_keys: vec![],
                console_password_hash: None,
                admin_networks: Vec::new(),
                proxy: None,
                extra_ca_certificates: vec![],
                registry_mirror: None,
            },
            snapshot_target: None,
            snapshot_every: Period::hours(6),
            recovery_public_key: None,
            deployer_public_key: None,
            timeout_factor: 1,
        }
    }

    /// A network of the test's thread: `here` is the node's device, the others are neighbours behind a bridge.
    fn network(addresses: &[(&str, &[&str])]) -> Device {
        let ip = |arguments: &str| {
            let output = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
            assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
        };
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("this test needs root");
        ip("link add lan type bridge");
        ip("link set lan up");
        for (index, name) in std::iter::once("here").chain(addresses.iter().map(|(name, _)| *name)).enumerate() {
            ip(&format!("link add {name} address 02:00:00:00:00:0{index} type veth peer name port{index}"));
            ip(&format!("link set port{index} master lan up"));
            ip(&format!("link set {name} up"));
        }
        for (name, addresses) in addresses {
            for address in *addresses {
                ip(&format!("addr add {address}/24 dev {name}"));
            }
        }
        // Each device answers only for its own addresses, although all belong to one host.
        std::fs::write("/proc/sys/net/ipv4/conf/all/arp_ignore", "1").unwrap();
        let forwards = |port: usize| {
            let arguments = ["-d", "link", "show", &format!("port{port}")];
            let output = std::process::Command::new("ip").args(arguments).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("state forwarding")
        };
        let deadline = Instant::now() + Duration::from_secs(600);
        while !(0..=addresses.len()).all(forwards) {
            assert!(Instant::now() < deadline, "the bridge does not forward");
            std::thread::sleep(POLL);
        }
        Device { name: "here".into(), mac: Mac([2, 0, 0, 0, 0, 0]) }
    }

    #[test]
    fn virtual_ip_of_another_host_is_refused() {
        let config = Config::ControlPlane(config());
        let address = config.virtual_address().unwrap();
        let device = network(&[("peer", &["10.0.0.12"]), ("stranger", &["10.0.0.99"])]);
        let taken = || virtual_address_taken(&config, address, &device, &[device.mac]).unwrap();
        assert_eq!(taken(), None);
        let device = network(&[("peer", &["10.0.0.12", "10.0.0.10"]), ("stranger", &["10.0.0.99"])]);
        assert_eq!(virtual_address_taken(&config, address, &device, &[device.mac]).unwrap(), None);
        let device = network(&[("peer", &["10.0.0.12"]), ("stranger", &["10.0.0.99", "10.0.0.10"])]);
        let finding = virtual_address_taken(&config, address, &device, &[device.mac]).unwrap().unwrap();
        assert_eq!(finding.code, "api-vip.in-use");
        assert!(finding.seen.contains("02:00:00:00:00:02"), "{finding}");
    }

    /// Programs that succeed without output.
    struct Content;

    impl Runner for Content {
        fn run(&self, _: &Command) -> Result<Vec<u8>, crate::host::command::Error> {
            Ok(Vec::new())
        }
    }

    /// The findings about the first node's address on an adapter in sysfs, with its cable in or out.
    fn stands_against(carrier: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let adapter = crate::host::files::below(root.path(), "/sys/class/net/nowhere");
        fs::create_dir_all(adapter.join("device")).unwrap();
        for (file, text) in [("address", "02:00:00:00:00:01"), ("type", "1"), ("carrier", carrier)] {
            fs::write(adapter.join(file), text).unwrap();
        }
        let mut config = config();
        // The test does not wait for a cable.
        config.timeout_factor = 0;
        let platform = Platform::detect(root.path()).unwrap();
        let bus = crate::host::fake_systemd::FakeSystemd::new(root.path()).bus();
        let findings = ensure(&platform, &Content, &bus, &Config::ControlPlane(config), true).unwrap_err();
        assert!(!crate::host::files::below(root.path(), DIRECTORY).exists(), "an address was claimed");
        findings.iter().map(|finding| finding.code.clone()).collect()
    }

    #[test]
    fn disconnected_and_failing_adapters_are_reported() {
        assert_eq!(stands_against("0"), ["network.no-carrier"]);
        // The kernel knows no adapter with this name.
        assert_eq!(stands_against("1"), ["network.failed"]);
    }
}
