//! Whether the free capacity that a vCenter reports holds further nodes. A value that it does not report refuses
//! nothing. A Provider's status has the numbers of its last look.

use super::obstacle::Obstacle;
use crate::objects::{MachineSpec, Provider, TenantClusterReason, VMClassSpec, ZoneRoom};

/// Why a Provider's zones have no room for these nodes, if they have none.
pub fn capacity(provider: &Provider, wanted: &[&MachineSpec]) -> Option<Obstacle> {
    let zones = rooms(provider);
    let over = zones.iter().flat_map(|zone| {
        let here: Vec<&MachineSpec> = wanted.iter().copied().filter(|machine| machine.zone == zone.name).collect();
        // Two zones may share a datastore.
        let shares = |machine: &&&MachineSpec| {
            let datastore = zones.iter().find(|of| of.name == machine.zone).and_then(|of| of.datastore.as_ref());
            datastore == zone.datastore.as_ref()
        };
        let memory = here.iter().map(|machine| i64::from(machine.memory_mib)).sum();
        let storage = wanted.iter().filter(shares).filter_map(|machine| machine.data_disk_gib).map(i64::from).sum();
        let processors = here.iter().map(|machine| i64::from(machine.processors)).max().unwrap_or_default();
        if here.is_empty() { Vec::new() } else { lacking(zone, memory, storage, processors) }
    });
    let over = over.map(|words| Obstacle::new(TenantClusterReason::CapacityMissing, words));
    Obstacle::of_all(over.collect())
}

/// How many further workers of a class these zones take, if workers are spread evenly, and the message about more. `None` if
/// the vCenter reports no number.
pub fn workers_that_fit(provider: &Provider, zones: &[String], class: &VMClassSpec) -> Option<(usize, String)> {
    let (memory, storage) = (i64::from(class.memory_mib), class.data_disk_gib.map(i64::from).unwrap_or_default());
    let processors = i64::from(class.processors);
    let fit = |zone: &&ZoneRoom| {
        let most = zone.host_processors.map(|most| if most < processors { 0 } else { i64::MAX });
        let memory = zone.free_memory_mib.and_then(|free| free.checked_div(memory));
        let storage = zone.free_storage_gib.and_then(|free| free.checked_div(storage));
        [most, memory, storage].into_iter().flatten().min()
    };
    let known = rooms(provider).iter().filter(|zone| zones.contains(&zone.name));
    let (fits, least) = known.filter_map(|zone| Some((fit(&zone)?, zone))).min_by_key(|(fits, _)| *fits)?;
    let room = usize::try_from(fits).unwrap_or(usize::MAX).saturating_mul(zones.len());
    // One more than fits.
    let more = fits.saturating_add(1);
    let words = lacking(least, memory.saturating_mul(more), storage.saturating_mul(more), processors);
    Some((room, words.join("; ")))
}

fn rooms(provider: &Provider) -> &[ZoneRoom] {
    provider.status.as_ref().map(|status| status.zones.as_slice()).unwrap_or_default()
}

/// The resources that a zone lacks for nodes with so much memory and storage together, and so many processors each.
fn lacking(zone: &ZoneRoom, memory: i64, storage: i64, processors: i64) -> Vec<String> {
    let all = [
        ("MiB of free memory", zone.free_memory_mib, memory),
        ("GiB of free space on its datastore", zone.free_storage_gib, storage),
        ("processors on its largest host, and no VM may have more", zone.host_processors, processors),
    ];
    let lacks =
        all.into_iter().filter_map(|(what, free, wanted)| Some((what, free.filter(|free| wanted > *free)?, wanted)));
    lacks.map(|(what, free, wanted)| format!("the zone {} has {free} {what}: {wanted} are wanted", zone.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{class, provider};
    use crate::objects::{ProviderStatus, fixture};

    fn zone(name: &str, datastore: &str, numbers: [Option<i64>; 3]) -> ZoneRoom {
        let [free_memory_mib, free_storage_gib, host_processors] = numbers;
        ZoneRoom {
            name: name.to_owned(),
            free_storage_gib,
            free_memory_mib,
            host_processors,
            machines: 0,
            cluster: None,
            datastore: Some(datastore.to_owned()),
        }
    }

    fn with(zones: Vec<ZoneRoom>) -> Provider {
        let mut provider = provider();
        provider.status = Some(ProviderStatus { zones, ..ProviderStatus::default() });
        provider
    }

    /// A node in each of these zones, with 4 processors, 16384 MiB and 40 GiB.
    fn nodes(zones: &[&str]) -> Vec<MachineSpec> {
        zones.iter().map(|zone| MachineSpec { zone: (*zone).to_owned(), ..fixture::worker() }).collect()
    }

    fn said(provider: &Provider, nodes: &[MachineSpec]) -> String {
        let why = capacity(provider, &nodes.iter().collect::<Vec<_>>());
        why.map(|why| why.message).unwrap_or_default()
    }

    #[test]
    fn missing_capacity_is_reported_with_numbers() {
        let of = |numbers| said(&with(vec![zone("a", "x", numbers)]), &nodes(&["a", "a", "a"]));
        assert_eq!(of([Some(3 * 16384), Some(120), Some(4)]), "");
        assert_eq!(of([Some(49151), Some(120), Some(4)]), "the zone a has 49151 MiB of free memory: 49152 are wanted");
        assert!(of([None, Some(119), None]).contains("119 GiB of free space on its datastore: 120 are wanted"));
        assert!(of([None, None, Some(3)]).contains("no VM may have more: 4 are wanted"));
        assert_eq!(of([None, None, None]), "", "the vCenter does not report it");
        assert_eq!(said(&provider(), &nodes(&["a"])), "", "it was not asked yet");
    }

    #[test]
    fn zones_share_a_datastore_and_not_their_memory() {
        let room = [Some(16384), Some(60), None];
        let both = |other| said(&with(vec![zone("a", "x", room), zone("b", other, room)]), &nodes(&["a", "b"]));
        assert_eq!(both("y"), "");
        assert!(both("x").contains("the zone b has 60 GiB of free space on its datastore: 80 are wanted"));
    }

    #[test]
    fn pool_gets_the_workers_that_fit_evenly() {
        let zones = ["a", "b"].map(str::to_owned);
        let of = |a, b| workers_that_fit(&with(vec![zone("a", "x", a), zone("b", "y", b)]), &zones, &class());
        let (room, words) = of([Some(5 * 16384), Some(100), Some(64)], [None, Some(1000), None]).unwrap();
        assert_eq!(
            (room, words.as_str()),
            (4, "the zone a has 100 GiB of free space on its datastore: 120 are wanted")
        );
        assert_eq!(of([None, None, Some(3)], [None; 3]).unwrap().0, 0);
        assert_eq!(of([None; 3], [None; 3]), None);
        assert_eq!(workers_that_fit(&provider(), &zones, &class()), None);
    }
}
