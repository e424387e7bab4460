//! Converts an image, a size and a minor version for `fleet`, and its refusals for the cluster's status.

use contract::minor::Minor;
use contract::swap::Image;
use fleet::upgrade::{KubernetesOptions, Mode, OnFailure, Options, Refusals, Target};

use super::upgrade_context::KUBERNETES;
use crate::decisions::Obstacle;
use crate::objects::{self, ControlPlaneSize, NodeImage, TenantCluster, TenantClusterReason, UpgradeMode};
use crate::records::digits_of;

/// An image as the target of a swap. `None` if a part of it is unknown.
pub(super) fn target(image: &NodeImage) -> Option<Target> {
    let status = image.status.as_ref()?;
    Some(Target {
        ova: Default::default(),
        digest: digits_of(&image.spec.digest)?,
        name: status.appliance.clone()?,
        image: Image { version: status.version.clone()?, build: status.build.clone()? },
        upgrades_from: status.upgrades_from.as_deref().map(str::parse).transpose().ok()?,
        etcd: status.etcd.as_deref().map(str::parse).transpose().ok()?,
        kubernetes: status.kubernetes.clone(),
        signer: image.spec.publisher.clone(),
    })
}

/// The options of a swap. A new VM is created on the datastore of the former one, so its data disk does not move. Without a size
/// it has the former one.
pub(super) fn options(cluster: &TenantCluster, size: Option<ControlPlaneSize>) -> Options {
    let upgrade = &cluster.spec.upgrade;
    Options {
        mode: match upgrade.mode {
            UpgradeMode::Rolling => Mode::Rolling,
            UpgradeMode::AllAtOnce => Mode::AllAtOnce,
        },
        gate_seconds: upgrade.gate_seconds.into(),
        drain_seconds: upgrade.drain_seconds.into(),
        on_failure: match upgrade.on_failure {
            objects::OnFailure::Node => OnFailure::Node,
            objects::OnFailure::All => OnFailure::All,
        },
        downgrade: false,
        publisher: None,
        described_publisher: None,
        placement: Default::default(),
        size: size.map(Into::into),
        copy_disks: false,
    }
}

/// The options of an upgrade to a minor version.
pub(super) fn kubernetes(cluster: &TenantCluster, to: Minor) -> KubernetesOptions {
    let drain_seconds = cluster.spec.upgrade.drain_seconds.into();
    KubernetesOptions { to: Some(to.to_string()), drain_seconds, limit: KUBERNETES }
}

/// Whether nothing is left to do.
pub(super) fn is_done(error: &anyhow::Error) -> bool {
    let refusals = error.downcast_ref::<Refusals>();
    refusals.is_some_and(|refusals| refusals.0.iter().all(|refusal| refusal.code == "upgrade.nothing-to-do"))
}

/// Why a change does not begin, from `fleet`'s checks or their error.
pub(super) fn unfit(error: &anyhow::Error) -> Obstacle {
    use TenantClusterReason::{ControlPlaneUnfit, ImageUnsuitable, PreflightNotKnown};
    const OF_THE_IMAGE: [&str; 8] = [
        "upgrade.product",
        "upgrade.downgrade",
        "upgrade.from-version",
        "upgrade.version",
        "upgrade.etcd",
        "upgrade.kubernetes",
        "upgrade.unsigned",
        "upgrade.publisher",
    ];
    let Some(Refusals(refusals)) = error.downcast_ref::<Refusals>() else {
        return Obstacle::new(PreflightNotKnown, format!("{error:#}"));
    };
    let is_of_image = refusals.iter().any(|refusal| OF_THE_IMAGE.contains(&refusal.code));
    let words = refusals.iter().map(|refusal| format!("{}: {} [{}]", refusal.subject, refusal.reason, refusal.code));
    let reason = if is_of_image { ImageUnsuitable } else { ControlPlaneUnfit };
    Obstacle::new(reason, words.collect::<Vec<_>>().join("; "))
}
