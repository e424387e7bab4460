//! What a new lab is to look like: decided once, from a few wishes, before
//! anything is made. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::bail;
use contract::properties as keys;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::records::{LONGEST_LAB, check_name};

/// The lab's own network lives in its own namespace: every lab can have the same one.
const NETWORK: [u8; 3] = [192, 168, 77];
const PREFIX: u8 = 24;
/// The last byte of the virtual IP of a control cluster; its nodes follow.
const CONTROL: u8 = 10;
/// The same of the first tenant, and how many addresses each has: a virtual IP, three control nodes, workers, and
/// addresses of services.
const FIRST_TENANT: u8 = 30;
const PER_TENANT: u8 = 20;
/// So many tenants have room on one network.
pub const TENANTS: u8 = 11;
/// Where workers and addresses of services begin among a tenant's addresses.
const WORKERS: u8 = 4;
const SERVICES: u8 = 15;

/// What a person wishes.
#[derive(Clone, Debug, Default)]
pub struct LabSpec {
    /// Name of the lab.
    pub name: String,
    /// Number of control nodes: one or three.
    pub nodes: usize,
    /// Properties that are to have other values than the lab's, for all nodes.
    pub properties: BTreeMap<String, String>,
    /// Public SSH key of the lab's operator.
    pub ssh_key: String,
    /// Public key of the lab's deployer, if its images ask for one.
    pub deployer_key: Option<String>,
    /// How many times longer than usual the nodes should wait.
    pub timeout_factor: u32,
    /// Which tenant of the network it is, from 0; none for a control cluster.
    pub tenant: Option<u8>,
    /// Whether a DHCP server of the lab leases addresses to the workers.
    pub workers_by_dhcp: bool,
}

/// A lab to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPlan {
    /// Name of the lab.
    pub name: String,
    /// Address of the bridge, with prefix length.
    pub bridge: String,
    /// Where the Kubernetes API will be.
    pub api: Ipv4Addr,
    /// The control nodes.
    pub nodes: Vec<PlannedNode>,
    /// What a tenant has of the network beside them; none in a control cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantNetwork>,
}

/// What a tenant has of its lab's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantNetwork {
    /// Which tenant of the network it is, from 0.
    pub place: u8,
    /// The first address for workers.
    pub first_worker: Ipv4Addr,
    /// The last one.
    pub last_worker: Ipv4Addr,
    /// The prefix length of the network.
    pub prefix: u8,
    /// Whether a DHCP server of the lab leases those addresses; the workers' own otherwise, as in tenants of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp: bool,
    /// Addresses for services, as a range.
    pub services: String,
}

/// A control node of a planned lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Name of the VM and of the node.
    pub name: String,
    /// Address on the lab's network.
    pub address: Ipv4Addr,
    /// Properties as a person would fill them in.
    pub properties: BTreeMap<String, String>,
}

/// Decides a lab. `secret` is random: 32 hexadecimal digits or more.
///
/// # Errors
/// When the wishes cannot be met.
pub fn plan(wishes: &LabSpec, secret: &str) -> anyhow::Result<LabPlan> {
    check_name("the lab's name", &wishes.name, LONGEST_LAB)?;
    if !matches!(wishes.nodes, 1 | 3) {
        bail!("a control cluster has one node or three, not {}", wishes.nodes);
    }
    let prefix = match wishes.tenant {
        None => String::new(),
        Some(_) => format!("{}-", wishes.name),
    };
    let first = match wishes.tenant {
        None => CONTROL,
        Some(place) if place < TENANTS => FIRST_TENANT + place * PER_TENANT,
        Some(_) => bail!("a lab has room for {TENANTS} tenants"),
    };
    let names: Vec<String> = (1..=wishes.nodes).map(|number| format!("{prefix}cp{number}")).collect();
    let node_address = |number: u8| host(first + number);
    let list = names.iter().zip(1..).map(|(name, number)| format!("{name}={}", node_address(number)));
    let list = list.collect::<Vec<_>>().join(",");
    let shared = wishes.nodes > 1 || wishes.tenant.is_some();
    let nodes = names.iter().zip(1..).map(|(name, number)| {
        let mut properties = BTreeMap::from([
            (keys::NODE_NAME, name.clone()),
            (keys::ADDRESS, format!("{}/{PREFIX}", node_address(number))),
            (keys::GATEWAY, host(1).to_string()),
            (keys::CLUSTER_NAME, wishes.name.clone()),
            (keys::CONTROL_NODES, list.clone()),
            (keys::DEPLOYMENT_SECRET, secret.to_owned()),
            (keys::SSH_AUTHORIZED_KEYS, wishes.ssh_key.clone()),
            (keys::TIMEOUT_FACTOR, wishes.timeout_factor.to_string()),
        ]);
        if shared {
            properties.insert(keys::API_VIP, host(first).to_string());
        }
        let mut properties: BTreeMap<_, _> =
            properties.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        properties.extend(wishes.properties.clone());
        // Another one, from an options file, would keep the lab itself out.
        properties.extend(wishes.deployer_key.clone().map(|key| (keys::DEPLOYER_PUBLIC_KEY.to_owned(), key)));
        PlannedNode { name: name.clone(), address: node_address(number), properties }
    });
    Ok(LabPlan {
        name: wishes.name.clone(),
        bridge: bridge(),
        api: if shared { host(first) } else { node_address(1) },
        nodes: nodes.collect(),
        tenant: wishes.tenant.map(|place| TenantNetwork {
            place,
            first_worker: host(first + WORKERS),
            last_worker: host(first + SERVICES - 1),
            prefix: PREFIX,
            dhcp: wishes.workers_by_dhcp,
            services: format!("{}-{}", host(first + SERVICES), host(first + PER_TENANT - 1)),
        }),
    })
}

/// The host's address on a lab's network, with prefix length.
pub fn bridge() -> String {
    format!("{}/{PREFIX}", host(1))
}

/// Whether an address is one that a VM on a lab's network can have.
pub fn is_on_network(address: Ipv4Addr, prefix: u8) -> bool {
    let [first, second, third, last] = address.octets();
    prefix == PREFIX && [first, second, third] == NETWORK && last > 1
}

/// The MAC address of a VM: from its UUID, below VMware's prefix for addresses
/// that a person assigns (00:50:56:00:00:00 to 00:50:56:3f:ff:ff).
pub fn mac(vm: Uuid) -> String {
    let bytes = vm.as_bytes();
    format!("00:50:56:{:02x}:{:02x}:{:02x}", bytes[0] & 0x3f, bytes[1], bytes[2])
}

/// The name of a VM's port on the lab's network: from its UUID, for names of network interfaces have 15 characters at most
/// (`IFNAMSIZ` of linux/if.h), and VMs longer ones.
pub fn port(vm: Uuid) -> String {
    format!("v{}", &vm.simple().to_string()[..12])
}

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(NETWORK[0], NETWORK[1], NETWORK[2], number)
}

#[cfg(test)]
mod tests {
    use super::super::records::LONGEST_VM;
    use super::*;

    fn wishes(nodes: usize) -> LabSpec {
        LabSpec { name: "x".to_owned(), nodes, timeout_factor: 1, ..LabSpec::default() }
    }

    #[test]
    fn three_nodes_share_a_virtual_address_and_one_list() {
        let plan = plan(&wishes(3), "s").unwrap();
        assert_eq!(plan.api, Ipv4Addr::new(192, 168, 77, 10));
        assert_eq!(plan.nodes[2].properties["address"], "192.168.77.13/24");
        let lists: Vec<_> = plan.nodes.iter().map(|node| &node.properties["control-nodes"]).collect();
        assert_eq!(lists[0], "cp1=192.168.77.11,cp2=192.168.77.12,cp3=192.168.77.13");
        assert!(lists.iter().all(|list| *list == lists[0]));
    }

    #[test]
    fn one_node_is_its_own_api_address() {
        let plan = plan(&wishes(1), "s").unwrap();
        assert_eq!(plan.api, plan.nodes[0].address);
        assert!(!plan.nodes[0].properties.contains_key("api-vip"));
    }

    #[test]
    fn a_wish_wins_over_the_labs_own_value() {
        let properties = BTreeMap::from([("timeout-factor".to_owned(), "9".to_owned())]);
        let plan = plan(&LabSpec { properties, ..wishes(1) }, "s").unwrap();
        assert_eq!(plan.nodes[0].properties["timeout-factor"], "9");
    }

    #[test]
    fn nobody_elses_key_takes_the_place_of_the_labs() {
        let properties = BTreeMap::from([("deployer-public-key".to_owned(), "another".to_owned())]);
        let theirs = LabSpec { properties, ..wishes(1) };
        let ours = LabSpec { deployer_key: Some("ours".to_owned()), ..theirs };
        assert_eq!(plan(&ours, "s").unwrap().nodes[0].properties["deployer-public-key"], "ours");
        assert!(!plan(&wishes(1), "s").unwrap().nodes[0].properties.contains_key("deployer-public-key"));
    }

    #[test]
    fn two_nodes_are_refused() {
        assert!(plan(&wishes(2), "s").unwrap_err().to_string().contains("one node or three"));
    }

    #[test]
    fn a_tenant_has_names_and_addresses_that_no_other_cluster_of_its_network_has() {
        let tenant = |place, nodes| plan(&LabSpec { tenant: Some(place), ..wishes(nodes) }, "s").unwrap();
        let first = tenant(0, 1);
        assert_eq!(first.nodes[0].name, "x-cp1");
        assert_eq!(first.nodes[0].properties["api-vip"], "192.168.77.30");
        assert_eq!((first.api, first.nodes[0].address), (host(30), host(31)));
        let mut used = std::collections::BTreeSet::new();
        let mut own = |plan: &LabPlan| {
            let mut all: Vec<Ipv4Addr> = plan.nodes.iter().map(|node| node.address).chain([plan.api]).collect();
            if let Some(tenant) = &plan.tenant {
                all.extend((u32::from(tenant.first_worker)..=u32::from(tenant.last_worker)).map(Ipv4Addr::from));
                let (first, last) = tenant.services.split_once('-').unwrap();
                let [first, last] = [first, last].map(|one| u32::from(one.parse::<Ipv4Addr>().unwrap()));
                all.extend((first..=last).map(Ipv4Addr::from));
            }
            for address in all {
                assert!(used.insert(address), "{address} is given twice");
                assert!(address.octets()[3] < 255);
            }
        };
        own(&plan(&wishes(3), "s").unwrap());
        for place in 0..TENANTS {
            own(&tenant(place, 3));
        }
        let refused = |wishes: &LabSpec| plan(wishes, "s").unwrap_err().to_string();
        assert!(refused(&LabSpec { tenant: Some(TENANTS), ..wishes(1) }).contains("room for 11 tenants"));
        let long = LabSpec { name: "sixteen-letters-".to_owned(), tenant: Some(0), ..wishes(1) };
        assert!(refused(&long).contains("use 1 to 15"));
    }

    #[test]
    fn vms_of_the_longest_tenant_have_names_that_leave_room_for_an_upgrades() {
        let name = "fifteen-letters".to_owned();
        let plan = plan(&LabSpec { name, tenant: Some(0), ..wishes(3) }, "s").unwrap();
        for node in &plan.nodes {
            check_name("it", &node.name, LONGEST_VM).unwrap();
        }
    }

    #[test]
    fn ports_are_named_as_network_interfaces_can_be() {
        let name = port(Uuid::from_u128(u128::MAX));
        assert_eq!((name.len(), name.as_str()), (13, "vffffffffffff"));
        assert_ne!(name, port(Uuid::from_u128(u128::MAX >> 1)));
    }

    #[test]
    fn macs_are_in_the_range_for_assigned_addresses() {
        assert_eq!(mac(Uuid::from_u128(u128::MAX)), "00:50:56:3f:ff:ff");
    }
}
