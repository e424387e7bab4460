//! The zones of a pool's workers, and the zone of a new worker.

use crate::objects::{Machine, MachineSpec, NodePoolSpec, Phase, Provider};
use crate::records::template;

/// The zones of a pool: those that it names, or all of the Provider's.
///
/// # Errors
/// The Provider lacks one of them or has none; the text says which.
pub fn zones_of_pool(spec: &NodePoolSpec, provider: &Provider) -> Result<Vec<String>, String> {
    let all = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.zones);
    let all: Vec<String> = all.map(|zone| zone.name.clone()).collect();
    if all.is_empty() {
        return Err("the Provider has no zone".to_owned());
    }
    if let Some(missing) = spec.zones.iter().find(|zone| !all.contains(zone)) {
        return Err(format!("the Provider has no zone {missing}"));
    }
    Ok(if spec.zones.is_empty() { all } else { spec.zones.clone() })
}

/// The zone of a new worker of this template. It is the zone with the fewest workers of the template, then with the fewest
/// workers, then the first. Leaving workers do not count. So new workers are spread independently of outdated ones.
pub fn zone_of_next<'z>(zones: &'z [String], like: &MachineSpec, machines: &[Machine]) -> Option<&'z String> {
    let stays = |machine: &&Machine| {
        let phase = machine.status.as_ref().map(|status| status.phase).unwrap_or_default();
        machine.metadata.deletion_timestamp.is_none() && phase != Phase::Deleting
    };
    let staying: Vec<&Machine> = machines.iter().filter(stays).collect();
    let wanted = template(like, None);
    // The same comparison as in `fleet`. A Machine that cannot be read counts as different.
    let is_alike = |machine: &&&Machine| {
        let newer = machine.status.as_ref().and_then(|status| status.kubernetes.as_deref());
        let made = template(&machine.spec, newer);
        wanted.as_ref().is_ok_and(|wanted| made.is_ok_and(|made| !wanted.outdates(&made)))
    };
    zones.iter().min_by_key(|zone| {
        let there: Vec<&Machine> = staying.iter().copied().filter(|machine| machine.spec.zone == **zone).collect();
        (there.iter().filter(is_alike).count(), there.len())
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::provider;
    use super::*;
    use crate::objects::{MachineStatus, fixture};

    fn machine(zone: &str, processors: u32, phase: Phase) -> Machine {
        let spec = MachineSpec { zone: zone.to_owned(), processors, ..fixture::worker() };
        let mut machine = Machine::new("shop-general-w1", spec);
        machine.status = Some(MachineStatus { phase, ..MachineStatus::default() });
        machine
    }

    #[test]
    fn new_worker_gets_the_emptiest_zone() {
        let zones = ["a", "b", "c"].map(str::to_owned);
        let like = MachineSpec { processors: 4, ..fixture::worker() };
        let next = |machines: &[Machine]| zone_of_next(&zones, &like, machines).unwrap().clone();
        let of = |zone| machine(zone, 4, Phase::Running);
        assert_eq!(next(&[]), "a");
        assert_eq!(next(&[of("a")]), "b");
        assert_eq!(next(&[of("b"), of("a"), of("c"), of("a")]), "b");
        // Workers in a zone that the pool no longer has do not count.
        assert_eq!(next(&[of("d"), of("a")]), "b");
        assert_eq!(next(&[machine("a", 4, Phase::Deleting), of("b"), of("c")]), "a");
        // Outdated workers leave, so they count less.
        let outdated = |zone| machine(zone, 2, Phase::Running);
        assert_eq!(next(&[outdated("a"), outdated("a"), outdated("b"), of("c")]), "b");
        assert_eq!(next(&[outdated("a"), of("a"), of("b"), outdated("c"), outdated("c")]), "c");
        assert_eq!(zone_of_next(&[], &like, &[]), None);
    }

    #[test]
    fn pool_uses_named_zones_or_all() {
        let spec = |zones: &[&str]| -> NodePoolSpec {
            let spec = serde_json::json!({"clusterRef": {"name": "shop"}, "vmClass": "medium", "zones": zones});
            serde_json::from_value(spec).unwrap()
        };
        let of = |zones: &[&str]| zones_of_pool(&spec(zones), &provider());
        assert_eq!(of(&[]).unwrap(), ["a", "b"]);
        assert_eq!(of(&["b"]).unwrap(), ["b"]);
        assert_eq!(of(&["a", "x"]).unwrap_err(), "the Provider has no zone x");
        let mut none = provider();
        none.spec.vsphere = None;
        assert!(zones_of_pool(&spec(&[]), &none).is_err());
    }
}
