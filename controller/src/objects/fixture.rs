//! Fixture: a worker as a pool creates it.

use std::collections::BTreeMap;

use super::{Discards, Effect, MachineRole, MachineSpec, PinnedImage, Reference, Removal, Taint};

/// The spec of a worker. All fields but `drain` differ from their defaults.
pub(crate) fn worker() -> MachineSpec {
    let taint = |key: &str| Taint { key: key.to_owned(), value: "true".to_owned(), effect: Effect::NoSchedule };
    MachineSpec {
        cluster_ref: Reference::to("shop"),
        role: MachineRole::Worker,
        pool_ref: Some(Reference::to("shop-general")),
        zone: "a".to_owned(),
        network: "blue".to_owned(),
        image: PinnedImage { name: "kaas-tenant-0.2.0".to_owned(), digest: format!("sha256:{}", "0a".repeat(32)) },
        kubernetes: "1.36".to_owned(),
        processors: 4,
        memory_mib: 16384,
        data_disk_gib: Some(40),
        labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
        taints: vec![taint("edge"), taint("batch")],
        removal: Removal::Destroy,
        drain: Discards::default(),
    }
}
