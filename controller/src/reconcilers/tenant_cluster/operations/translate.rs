//! An image, a size and a minor as `fleet` takes them, and what `fleet` refuses as a cluster says it.

use contract::minor::Minor;
use contract::swap::Image;
use fleet::upgrade::{KubernetesOptions, Mode, OnFailure, Options, Refusals, Target};

use super::upgrade_context::KUBERNETES;
use crate::decisions::Obstacle;
use crate::objects::{self, ControlPlaneSize, NodeImage, TenantCluster, TenantClusterReason, UpgradeMode};
use crate::records::digits_of;

/// An image as `fleet` swaps to it; none of one of which not all is known.
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

/// How control nodes are swapped. A new VM is put beside the one whose place it takes: its disk does not move. Without a size it has
/// that one's.
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

/// How control nodes are taken to a minor.
pub(super) fn kubernetes(cluster: &TenantCluster, to: Minor) -> KubernetesOptions {
    let drain_seconds = cluster.spec.upgrade.drain_seconds.into();
    KubernetesOptions { to: Some(to.to_string()), drain_seconds, limit: KUBERNETES }
}

/// Whether there is nothing left to do.
pub(super) fn is_done(error: &anyhow::Error) -> bool {
    let refusals = error.downcast_ref::<Refusals>();
    refusals.is_some_and(|refusals| refusals.0.iter().all(|refusal| refusal.code == "upgrade.nothing-to-do"))
}

/// Why a change does not begin, by `fleet`'s judgement; or what could not be asked.
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
