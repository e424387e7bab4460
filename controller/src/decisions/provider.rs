//! An observation of a Provider's vCenter, and the conditions that follow from it. Holds no connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use contract::properties::parse::addresses::host_address;

use crate::objects::{Provider, ProviderReason, ProviderStatus, VSphere, ZoneRoom};

/// A vCenter that answers, and the objects that a Provider names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VCenterInventory {
    /// The version that the vCenter reports, such as `VMware vCenter Server 8.0.3 build-24022515`.
    pub version: String,
    /// The vCenter's own identifier.
    pub instance: String,
    /// The account that is logged in, as the vCenter names it.
    pub user: String,
    /// Missing objects, each with its path.
    pub absent: Vec<String>,
    /// Privileges that the account lacks, each with its object and its purpose.
    pub missing: Vec<String>,
    /// Objects that exist and take no VMs now, each with the reason.
    pub closed: Vec<String>,
    pub zones: BTreeMap<String, ZoneInventory>,
}

impl VCenterInventory {
    /// Whether all objects exist, take VMs, and have the needed privileges.
    pub fn is_whole(&self) -> bool {
        self.absent.is_empty() && self.missing.is_empty() && self.closed.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneInventory {
    /// The vCenter's identifier of the datastore. Two zones may share one.
    pub datastore: String,
    /// Free space on the datastore, in bytes. Fields are `None` where the vCenter does not report them.
    pub free_storage: Option<u64>,
    /// Memory for further VMs, in bytes: unreserved in the resource pool and free on hosts.
    pub free_memory: Option<u64>,
    /// The most processors that a VM may have on one of the hosts.
    pub host_processors: Option<u32>,
}

/// The reason of a condition, with its message.
pub type ProviderCondition = (ProviderReason, String);

pub fn privileged(seen: &VCenterInventory) -> ProviderCondition {
    let VCenterInventory { absent, missing, user, .. } = seen;
    if !absent.is_empty() {
        let words = format!("missing, or the account {user} cannot see it: {}", absent.join("; "));
        return (ProviderReason::ObjectsMissing, words);
    }
    if !missing.is_empty() {
        return (ProviderReason::PrivilegesMissing, format!("{user} lacks {}", missing.join("; ")));
    }
    (ProviderReason::Complete, format!("{user} has all that is needed"))
}

/// The host of the address of a vCenter, which may have a port.
pub fn host_of(server: &str) -> &str {
    server.split(':').next().unwrap_or_default()
}

/// The IPv4 addresses that hosts can have, each once.
pub fn host_addresses(resolved: impl Iterator<Item = IpAddr>) -> Vec<Ipv4Addr> {
    let of_hosts = resolved.filter_map(|address| host_address(&address.to_string()).ok());
    of_hosts.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Adds an answer for the name of the vCenter to the status. Earlier answers stay while the spec names the same server: an answer
/// may have only some of its addresses, or a forged one. Those that were known first stay, and no more than a status has.
pub fn add_addresses(status: &mut ProviderStatus, server: &str, answer: &[Ipv4Addr]) {
    const MOST: usize = 16;
    if status.resolved_server.as_deref().is_some_and(|before| before != server) {
        status.server_addresses.clear();
    }
    status.resolved_server = Some(server.to_owned());
    for address in answer.iter().map(ToString::to_string) {
        if status.server_addresses.len() < MOST && !status.server_addresses.contains(&address) {
            status.server_addresses.push(address);
        }
    }
}

/// The addresses of a Provider's vCenter: that of its spec, and those that its name had.
pub fn server_addresses(provider: &Provider) -> Vec<Ipv4Addr> {
    let named = provider.spec.vsphere.iter().map(|vsphere| host_of(&vsphere.server));
    let looked = provider.status.iter().flat_map(|status| &status.server_addresses).map(String::as_str);
    named.chain(looked).filter_map(|text| text.parse().ok()).collect()
}

/// The free capacity of zones, with their numbers of Machines. A zone with Machines keeps the place that it had when the first
/// was created.
pub fn zones(
    vsphere: &VSphere,
    before: &[ZoneRoom],
    seen: Option<&VCenterInventory>,
    machines: &BTreeMap<String, i64>,
) -> Vec<ZoneRoom> {
    let named = vsphere.zones.iter().map(|zone| zone.name.as_str());
    let gone = machines.keys().map(String::as_str).filter(|zone| vsphere.zones.iter().all(|named| named.name != *zone));
    let room = |name: &str| {
        let noted = before.iter().find(|zone| zone.name == name);
        let now = vsphere.zones.iter().find(|zone| zone.name == name);
        let count = machines.get(name).copied().unwrap_or_default();
        let kept = noted.filter(|noted| count > 0 && noted.machines > 0 && noted.cluster.is_some());
        let place = kept.map(|noted| (noted.cluster.clone(), noted.datastore.clone()));
        let place = place.or_else(|| now.map(|zone| (Some(zone.cluster.clone()), zone.datastore.clone())));
        let (cluster, datastore) =
            place.or_else(|| noted.map(|noted| (noted.cluster.clone(), noted.datastore.clone()))).unwrap_or_default();
        // The last known values stay until the vCenter answers again.
        let free = seen.map(|seen| seen.zones.get(name).cloned().unwrap_or_default());
        let gib = |bytes: u64| i64::try_from(bytes >> 30).unwrap_or(i64::MAX);
        let mib = |bytes: u64| i64::try_from(bytes >> 20).unwrap_or(i64::MAX);
        let [free_storage_gib, free_memory_mib, host_processors] = match &free {
            Some(now) => [now.free_storage.map(gib), now.free_memory.map(mib), now.host_processors.map(i64::from)],
            None => noted.map_or([None; 3], |it| [it.free_storage_gib, it.free_memory_mib, it.host_processors]),
        };
        ZoneRoom {
            name: name.to_owned(),
            free_storage_gib,
            free_memory_mib,
            host_processors,
            machines: count,
            cluster,
            datastore,
        }
    };
    named.chain(gone).map(room).collect()
}

/// Free space on the datastores of all zones together, each counted once, in GiB.
pub fn free_storage(seen: &VCenterInventory) -> i64 {
    let free = seen.zones.values().filter_map(|zone| Some((&zone.datastore, zone.free_storage?)));
    let by_datastore: BTreeMap<_, u64> = free.collect();
    i64::try_from(by_datastore.values().sum::<u64>() >> 30).unwrap_or(i64::MAX)
}

/// Zones with Machines whose place in the spec has changed, as messages.
pub fn moved(vsphere: &VSphere, zones: &[ZoneRoom]) -> Vec<String> {
    let place = |cluster: Option<&str>, datastore: Option<&str>| {
        format!("{} and the datastore {}", cluster.unwrap_or("no cluster"), datastore.unwrap_or("that is not named"))
    };
    let said = zones.iter().filter(|zone| zone.machines > 0).filter_map(|zone| {
        let was = place(zone.cluster.as_deref(), zone.datastore.as_deref());
        let count = zone.machines;
        let name = &zone.name;
        match vsphere.zones.iter().find(|now| now.name == *name) {
            None => Some(format!("the zone {name} with {count} Machines is no longer named: it is {was}")),
            Some(now)
                if (Some(&now.cluster), now.datastore.as_ref()) != (zone.cluster.as_ref(), zone.datastore.as_ref()) =>
            {
                let is = place(Some(&now.cluster), now.datastore.as_deref());
                Some(format!("the zone {name} with {count} Machines is {was}, and is now to be {is}"))
            }
            Some(_) => None,
        }
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    // A vCenter that a Provider names by its DNS name was not reserved.
    #[test]
    fn vcenter_addresses_follow_its_name() {
        let resolved =
            ["10.0.0.9", "10.0.0.9", "127.0.0.1", "169.254.0.1", "224.0.0.1", "0.0.0.0", "fd00::1", "10.0.0.5"];
        let found = host_addresses(resolved.iter().map(|text| text.parse().unwrap()));
        assert_eq!(found, [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 9)]);
        let many = (0..=255).map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        assert_eq!(host_addresses(many).len(), 256);
        assert_eq!((host_of("vcenter.example.com:443"), host_of("10.0.0.7")), ("vcenter.example.com", "10.0.0.7"));
        let mut provider = fixture::provider();
        assert!(server_addresses(&provider).is_empty());
        provider.status.get_or_insert_default().server_addresses = vec!["10.0.0.5".to_owned()];
        assert_eq!(server_addresses(&provider), [Ipv4Addr::new(10, 0, 0, 5)]);
        provider.spec.vsphere.as_mut().unwrap().server = "10.0.0.7:443".to_owned();
        assert_eq!(server_addresses(&provider), [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(10, 0, 0, 5)]);
    }

    // Each answer replaced the previous one: a round-robin or forged answer freed the address of the vCenter.
    #[test]
    fn answers_for_a_vcenter_are_united() {
        let one = |last: u8| [Ipv4Addr::new(10, 0, 0, last)];
        // A status of an earlier version.
        let mut status = ProviderStatus { server_addresses: vec!["10.0.0.5".to_owned()], ..ProviderStatus::default() };
        for answer in [&one(6)[..], &one(5), &[], &one(6)] {
            add_addresses(&mut status, "vcenter.example.com", answer);
        }
        assert_eq!(status.server_addresses, ["10.0.0.5", "10.0.0.6"]);
        for last in 100..200 {
            add_addresses(&mut status, "vcenter.example.com", &one(last));
        }
        assert_eq!(status.server_addresses.len(), 16);
        assert_eq!(status.server_addresses[..3], ["10.0.0.5", "10.0.0.6", "10.0.0.100"]);
        add_addresses(&mut status, "other.example.com", &[]);
        assert!(status.server_addresses.is_empty(), "the spec names another server");
        add_addresses(&mut status, "other.example.com", &one(7));
        assert_eq!(status.server_addresses, ["10.0.0.7"]);
    }
}
