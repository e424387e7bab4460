//! Upgrades of Kubernetes after the image.

use super::super::{Change, ObservedCluster};
use super::{images, names, observed};
use crate::decisions::health::OperationPhase;
use crate::decisions::obstacle::Obstacle;
use crate::objects::{TenantCluster, TenantClusterReason};

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
    assert!(matches!(obstacle.doing(), OperationPhase::Blocked(_)) && !obstacle.is_to_do());
}
