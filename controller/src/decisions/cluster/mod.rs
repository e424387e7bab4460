//! The next step of a cluster. Each step is decided from an observation, and observed again once it is done, so that another
//! controller decides the same. `fleet` acts on control-plane nodes. This room decides when: before the first VM (`begin.rs`),
//! and during the deletion (`leave.rs`). [`super::change`] decides for nodes that serve.

mod begin;
mod leave;

pub use self::begin::{CreationInputs, CreationStep, KeysSeen, creation_step};
pub use self::leave::{DeletionInputs, DeletionStep, deletion_step};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::owned::{CLUSTER_FINALIZER, MACHINE_FINALIZER};
use crate::objects::{Machine, Resolved, TenantCluster, TenantClusterSpec};

/// Whether VMs of a cluster's control-plane nodes were begun. From then on resolved values, Machines and addresses stay.
pub fn is_begun(cluster: &TenantCluster) -> bool {
    cluster.deployment().is_some()
}

pub fn is_leaving(cluster: &TenantCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
}

/// Whether the finalizer keeps a cluster.
pub fn is_kept(cluster: &TenantCluster) -> bool {
    cluster.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == CLUSTER_FINALIZER)
}

/// Whether a Machine still has to be deleted. If it is being deleted without this finalizer, another finalizer keeps it.
fn is_ours(machine: &Machine) -> bool {
    let is_kept = machine.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == MACHINE_FINALIZER);
    machine.metadata.deletion_timestamp.is_none() || is_kept
}

/// The difference between the spec and the cluster that this version does not change, as a message, if there is one. `data_disk`
/// is the size of the class in GiB.
pub fn unchanged(spec: &TenantClusterSpec, pinned: &Resolved, data_disk: Option<u32>) -> Option<String> {
    let (wanted, has) = data_disk.zip(pinned.data_disk_gib)?;
    let class = &spec.control_plane.vm_class;
    (wanted != has).then(|| {
        format!(
            "the data disks of control-plane nodes have {has} GiB and stay as they are: the class {class} has {wanted}; name one with \
             the same size, or without one"
        )
    })
}

/// Whether a kubeconfig that ends at `ends` has to be renewed. Either less than half of its day is left, or more than two days,
/// which no node issues, even with a clock that is ahead. Or its end is unknown.
pub fn is_due(ends: Option<&Time>, now: &Time) -> bool {
    is_due_after(contract::deployer::HOURS, ends, now)
}

/// As [`is_due`], for credentials that are valid for so many hours.
pub fn is_due_after(hours: u32, ends: Option<&Time>, now: &Time) -> bool {
    let life = 3600 * i64::from(hours);
    ends.is_none_or(|ends| !(life / 2..=life * 2).contains(&(ends.0.as_second() - now.0.as_second())))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture::{cluster, now};

    #[test]
    fn unchangeable_difference_is_reported() {
        let spec = cluster().spec;
        let pinned = Resolved { data_disk_gib: Some(32), ..Resolved::default() };
        assert_eq!(unchanged(&spec, &pinned, None), None, "nobody says anything of it");
        assert_eq!(unchanged(&spec, &pinned, Some(32)), None);
        assert_eq!(unchanged(&spec, &Resolved::default(), Some(40)), None, "nobody knows what they have");
        let words = unchanged(&spec, &pinned, Some(40)).unwrap();
        assert!(words.contains("have 32 GiB") && words.contains("has 40"), "{words}");
    }

    #[test]
    fn kubeconfig_is_renewed_after_half_of_its_day() {
        let at = |hours: i64| Time(Timestamp::from_second(now().0.as_second() + hours * 3600).unwrap());
        assert!(!is_due(Some(&at(13)), &now()) && is_due(Some(&at(11)), &now()));
        assert!(!is_due(Some(&at(25)), &now()) && is_due(Some(&at(24 * 365)), &now()), "somebody else has made it");
        assert!(is_due(Some(&at(-1)), &now()) && is_due(None, &now()));
        let week = |hours| is_due_after(contract::kubeconfig::HANDED_OVER_HOURS, Some(&at(hours)), &now());
        assert!(!week(7 * 24) && !week(85) && week(83) && week(15 * 24));
    }
}
