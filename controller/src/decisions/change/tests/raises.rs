//! Upgrades of Kubernetes after the image.

use super::super::{Change, ObservedCluster};
use super::{images, names, observed};
use crate::decisions::obstacle::Obstacle;
use crate::objects::{Machine, MachineStatus, TenantCluster, TenantClusterReason, fixture};

/// Finding 11 of controller.md.
#[test]
fn minor_version_waits_for_the_oldest_worker() {
    let mut cluster = names(None);
    cluster.spec.version = "1.36".to_owned();
    let images = images();
    let worker = |name: &str, minor: &str| {
        let mut machine = Machine::new(name, fixture::worker());
        machine.spec.kubernetes = minor.to_owned();
        machine
    };
    let of = |workers: &[Machine]| {
        ObservedCluster { minor: "1.35".parse().ok(), workers, ..observed(&cluster, &[], &images) }.next()
    };
    let raised = Change::Raise("1.36".parse().unwrap(), None);
    assert_eq!(of(&[worker("shop-general-w1", "1.33")]), raised, "three behind");
    let mut workers = [worker("shop-general-w1", "1.35"), worker("shop-general-w2", "1.32")];
    let Change::Waits(TenantClusterReason::ChangeBlocked, words) = of(&workers) else { panic!("it is raised") };
    let named = "the Machine shop-general-w2 of the NodePool shop-general runs Kubernetes 1.32";
    assert!(words.starts_with(named), "{words}");
    let newer = Some("1.33".to_owned());
    workers[1].status = Some(MachineStatus { kubernetes: newer, ..MachineStatus::default() });
    assert_eq!(of(&workers), raised);
}

#[test]
fn minor_version_follows_the_image_and_never_falls() {
    let mut cluster = names(None);
    let images = images();
    let of = |cluster: &TenantCluster, minor: &str| {
        ObservedCluster { minor: minor.parse().ok(), ..observed(cluster, &[], &images) }.next()
    };
    assert_eq!(of(&cluster, "1.36"), Change::Nothing);
    assert_eq!(of(&cluster, "1.35"), Change::Raise("1.36".parse().unwrap(), None));
    assert!(matches!(of(&cluster, "1.37"), Change::Blocked(_)));
    cluster.spec.version = "1.37".to_owned();
    assert!(matches!(of(&cluster, "1.36"), Change::Blocked(_)), "its image does not carry it");
    cluster.spec.version = "1.36".to_owned();
    cluster.spec.paused = true;
    assert!(matches!(of(&cluster, "1.35"), Change::Waits(TenantClusterReason::Changing, _)));
    let obstacle = Change::Blocked(Obstacle::new(TenantClusterReason::ImageUnsuitable, "x"));
    assert!(matches!(obstacle.doing(), (TenantClusterReason::Blocked, _)) && !obstacle.is_to_do());
}
