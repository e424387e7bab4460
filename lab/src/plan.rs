//! The layout of a new lab, decided once from its spec before anything is created. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::bail;
use contract::properties as keys;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::records::{LONGEST_LAB, check_name};

/// Each lab has its own network namespace, so all labs can use the same addresses.
const NETWORK: [u8; 3] = [192, 168, 77];
const PREFIX: u8 = 24;
/// Last byte of a control cluster's virtual IP. The addresses of its nodes follow.
const CONTROL: u8 = 10;
/// Last byte of the first tenant's virtual IP, and the number of addresses of each tenant: virtual IP, three
/// control-plane nodes, workers, services.
const FIRST_TENANT: u8 = 30;
const PER_TENANT: u8 = 20;
/// Number of tenants on one network.
pub const TENANTS: u8 = 11;
/// Offsets of the first worker and the first service among a tenant's addresses.
const WORKERS: u8 = 4;
const SERVICES: u8 = 15;

/// The operator's choices for a lab.
#[derive(Clone, Debug, Default)]
pub struct LabSpec {
    /// Name of the lab.
    pub name: String,
    /// Number of control-plane nodes: one or three.
    pub nodes: usize,
    /// Properties that replace the lab's own values, for all nodes.
    pub properties: BTreeMap<String, String>,
    /// Public SSH key of the lab's operator.
    pub ssh_key: String,
    /// Public key of the lab's deployer. `None` until it is drawn.
    pub deployer_key: Option<String>,
    /// Factor for all timeouts of the nodes.
    pub timeout_factor: u32,
    /// Index of the tenant on the network, from 0. `None` for a control cluster.
    pub tenant: Option<u8>,
    /// Whether a DHCP server of the lab leases addresses to the workers.
    pub workers_by_dhcp: bool,
}

/// A lab to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPlan {
    /// Name of the lab.
    pub name: String,
    /// Address of the bridge, with prefix length.
    pub bridge: String,
    /// Address of the Kubernetes API.
    pub api: Ipv4Addr,
    pub nodes: Vec<PlannedNode>,
    /// Addresses of a tenant in addition to those of its control-plane nodes. `None` in a control cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantNetwork>,
}

/// A tenant's part of its lab's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantNetwork {
    /// Index of the tenant on the network, from 0.
    pub place: u8,
    /// The first address for workers.
    pub first_worker: Ipv4Addr,
    /// The last address for workers.
    pub last_worker: Ipv4Addr,
    /// The prefix length of the network.
    pub prefix: u8,
    /// Whether a DHCP server of the lab leases the workers' addresses. Otherwise they are static.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp: bool,
    /// Addresses for services, as a range.
    pub services: String,
}

/// A control-plane node of a planned lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedNode {
    /// Name of the VM and of the node.
    pub name: String,
    /// Address on the lab's network.
    pub address: Ipv4Addr,
    /// OVF properties as in vCenter's form.
    pub properties: BTreeMap<String, String>,
}

/// Plans a lab. `secret` is random: 32 hexadecimal digits or more.
///
/// # Errors
/// When the spec is invalid.
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
        // Another key, from an options file, would lock the lab itself out.
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

/// Whether a VM on a lab's network can have an address.
pub fn is_on_network(address: Ipv4Addr, prefix: u8) -> bool {
    let [first, second, third, last] = address.octets();
    prefix == PREFIX && [first, second, third] == NETWORK && last > 1
}

/// The MAC address of a VM, from its UUID. Within VMware's range for manual assignment (00:50:56:00:00:00 to
/// 00:50:56:3f:ff:ff).
pub fn mac(vm: Uuid) -> String {
    let bytes = vm.as_bytes();
    format!("00:50:56:{:02x}:{:02x}:{:02x}", bytes[0] & 0x3f, bytes[1], bytes[2])
}

/// The name of a VM's port on the lab's network, from its UUID. The VM's own name can be longer than 15 characters,
/// the limit of network interfaces (`IFNAMSIZ` of linux/if.h).
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
    fn three_nodes_share_a_virtual_ip_and_list() {
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
    fn a_property_of_the_spec_has_priority() {
        let properties = BTreeMap::from([("timeout-factor".to_owned(), "9".to_owned())]);
        let plan = plan(&LabSpec { properties, ..wishes(1) }, "s").unwrap();
        assert_eq!(plan.nodes[0].properties["timeout-factor"], "9");
    }

    #[test]
    fn the_labs_deployer_key_is_always_used() {
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
    fn tenants_have_their_own_names_and_addresses() {
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
    fn the_longest_tenants_vms_leave_room_for_upgrades() {
        let name = "fifteen-letters".to_owned();
        let plan = plan(&LabSpec { name, tenant: Some(0), ..wishes(3) }, "s").unwrap();
        for node in &plan.nodes {
            check_name("it", &node.name, LONGEST_VM).unwrap();
        }
    }

    #[test]
    fn ports_have_valid_names_of_network_interfaces() {
        let name = port(Uuid::from_u128(u128::MAX));
        assert_eq!((name.len(), name.as_str()), (13, "vffffffffffff"));
        assert_ne!(name, port(Uuid::from_u128(u128::MAX >> 1)));
    }

    #[test]
    fn macs_are_in_the_range_for_assignment() {
        assert_eq!(mac(Uuid::from_u128(u128::MAX)), "00:50:56:3f:ff:ff");
    }
}
