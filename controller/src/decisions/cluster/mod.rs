//! What comes next for a cluster: one thing at a time, decided by what was looked at, and looked at again once it is done. Whoever takes
//! over decides the same. What is done for control nodes is `fleet`'s; here is only when: before the first VM (`begin.rs`), and for one that
//! is being deleted (`leave.rs`). What comes next for nodes that serve is [`super::change`]'s.

mod begin;
mod leave;

pub use self::begin::{CreationInputs, CreationStep, KeysSeen, creation_step};
pub use self::leave::{DeletionInputs, DeletionStep, deletion_step};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::owned::{CLUSTER_FINALIZER, MACHINE_FINALIZER};
use crate::objects::{Machine, Resolved, TenantCluster, TenantClusterSpec};

/// Whether VMs of a cluster's control nodes were begun: what is pinned, Machines and addresses stay from then on.
pub fn is_begun(cluster: &TenantCluster) -> bool {
    cluster.status.as_ref().and_then(|status| status.deployment.as_ref()).is_some()
}

/// Whether a cluster is being deleted.
pub fn is_leaving(cluster: &TenantCluster) -> bool {
    cluster.metadata.deletion_timestamp.is_some()
}

/// Whether a cluster is kept until nothing of it is left.
pub fn is_kept(cluster: &TenantCluster) -> bool {
    cluster.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == CLUSTER_FINALIZER)
}

/// Whether a Machine is to be let go still: one that was is somebody else's to keep.
fn is_ours(machine: &Machine) -> bool {
    let is_kept = machine.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == MACHINE_FINALIZER);
    machine.metadata.deletion_timestamp.is_none() || is_kept
}

/// What a spec says otherwise than the cluster was made, and this version does not change: in words, none if there is nothing.
/// `data_disk` is what the class of its control nodes says of that, in GiB.
pub fn unchanged(spec: &TenantClusterSpec, pinned: &Resolved, data_disk: Option<u32>) -> Option<String> {
    let (wanted, has) = data_disk.zip(pinned.data_disk_gib)?;
    let class = &spec.control_plane.vm_class;
    (wanted != has).then(|| {
        format!(
            "the data disks of control nodes have {has} GiB and stay as they are: the class {class} has {wanted}; name one that says \
             the same of it, or nothing"
        )
    })
}

/// Whether a kubeconfig that ends at `ends` is to be renewed: less than half of its day is left, or more than any is given, also by a
/// node whose clock is ahead; or nobody knows when it ends.
pub fn is_due(ends: Option<&Time>, now: &Time) -> bool {
    const DAY: i64 = 3600 * contract::deployer::HOURS as i64;
    ends.is_none_or(|ends| !(DAY / 2..=DAY * 2).contains(&(ends.0.as_second() - now.0.as_second())))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture::{cluster, now};

    #[test]
    fn what_is_wanted_otherwise_and_not_changed_is_told() {
        let spec = cluster().spec;
        let pinned = Resolved { data_disk_gib: Some(32), ..Resolved::default() };
        assert_eq!(unchanged(&spec, &pinned, None), None, "nobody says anything of it");
        assert_eq!(unchanged(&spec, &pinned, Some(32)), None);
        assert_eq!(unchanged(&spec, &Resolved::default(), Some(40)), None, "nobody knows what they have");
        let words = unchanged(&spec, &pinned, Some(40)).unwrap();
        assert!(words.contains("have 32 GiB") && words.contains("has 40"), "{words}");
    }

    #[test]
    fn a_kubeconfig_is_renewed_when_half_of_its_day_is_over() {
        let at = |hours: i64| Time(Timestamp::from_second(now().0.as_second() + hours * 3600).unwrap());
        assert!(!is_due(Some(&at(13)), &now()) && is_due(Some(&at(11)), &now()));
        assert!(!is_due(Some(&at(25)), &now()) && is_due(Some(&at(24 * 365)), &now()), "somebody else has made it");
        assert!(is_due(Some(&at(-1)), &now()) && is_due(None, &now()));
    }
}
