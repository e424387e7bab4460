//! The place of a cluster's control-plane nodes: its session on the Provider, and checks before a creation.

use std::collections::BTreeMap;

use anyhow::ensure;
use fleet::hypervisor::{Error, ErrorKind, Hypervisor, Placement};
use kube::ResourceExt;
use uuid::Uuid;

use super::Reconciler;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{Obstacle, network};
use crate::objects::{Provider, Resolved, TenantCluster, TenantClusterReason};
use crate::reach::kinds;
use crate::reach::providers::{ClusterPlacement, Unavailable, UnavailableReason, placement};
use crate::records::digits_of;

pub(in crate::reconcilers) struct ProviderSession {
    pub(in crate::reconcilers) hypervisor: Box<dyn Hypervisor>,
    /// The place of VMs in each zone of the Provider.
    pub(super) placements: BTreeMap<String, Placement>,
    /// The port groups of control-plane nodes, in the order of the image's networks.
    pub(super) networks: Vec<String>,
}

impl Reconciler<'_> {
    /// The Provider of a cluster. `None` if it does not exist.
    pub(in crate::reconcilers) async fn provider(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Option<Provider>, ReconcileError> {
        let found = kinds::find::<Provider>(self.objects, None, &cluster.spec.provider_ref.name).await;
        found.attempting("reading the cluster's Provider")
    }

    /// Opens a cluster's place. With `make`, its folder is created if it is missing.
    pub(in crate::reconcilers) async fn open(
        &self,
        cluster: &TenantCluster,
        provider: &Provider,
        make: bool,
    ) -> Result<ProviderSession, Unavailable> {
        let name = cluster.name_any();
        let place = ClusterPlacement {
            deployment: deployment(cluster),
            cluster: &name,
            networks: network(cluster, provider).into_iter().map(|network| network.name.as_str()).collect(),
        };
        let hypervisor = self.places.hypervisor(provider, &place, make).await?;
        let vsphere = provider.spec.vsphere.iter();
        let zones = vsphere.flat_map(|vsphere| vsphere.zones.iter().map(move |zone| (vsphere, &zone.name)));
        let placements = zones.filter_map(|(vsphere, zone)| Some((zone.clone(), placement(vsphere, zone)?)));
        let networks = network(cluster, provider).into_iter().map(|network| network.port_group.clone());
        Ok(ProviderSession { hypervisor, placements: placements.collect(), networks: networks.collect() })
    }

    /// The obstacle to control-plane nodes in these zones, by the place itself. `None` without an obstacle.
    pub(super) async fn obstacle_there(
        &self,
        cluster: &TenantCluster,
        provider: &Provider,
        resolved: &Resolved,
        zones: &[String],
    ) -> Option<Obstacle> {
        match self.open(cluster, provider, false).await {
            Ok(opened) => self.obstacle_at(&opened, &provider.name_any(), resolved, zones).await,
            Err(why) => Some(unavailable(&why)),
        }
    }

    /// As `obstacle_there`, with an open session.
    pub(super) async fn obstacle_at(
        &self,
        opened: &ProviderSession,
        name: &str,
        resolved: &Resolved,
        zones: &[String],
    ) -> Option<Obstacle> {
        for zone in zones {
            let Some(placement) = opened.placements.get(zone) else {
                let words = format!("the Provider {name} no longer has the zone {zone}");
                return Some(Obstacle::new(TenantClusterReason::ReferenceMissing, words));
            };
            if let Err(error) = opened.hypervisor.preflight(placement).await {
                return Some(refused(name, zone, &error));
            }
            let digest = resolved.digest.as_deref().and_then(digits_of).unwrap_or_default();
            match opened.hypervisor.find_template(&digest, None, placement).await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let image = resolved.image.as_deref().unwrap_or_default();
                    let words = format!(
                        "no template of the NodeImage {image} is ready for the zone {zone} of the Provider {name}: push the OVA \
                         there"
                    );
                    return Some(Obstacle::new(TenantClusterReason::ImageUnsuitable, words));
                }
                Err(error) => return Some(refused(name, zone, &error)),
            }
        }
        None
    }
}

/// The deployment ID in the stamps of a cluster's VMs: its UID, which is unique.
pub(in crate::reconcilers) fn deployment(cluster: &TenantCluster) -> Uuid {
    cluster.metadata.uid.as_deref().and_then(|uid| uid.parse().ok()).unwrap_or_default()
}

/// Fails if the stored record is of another cluster, as in a status that was copied, also from a cluster of the same name.
pub(in crate::reconcilers) fn ensure_own_record(cluster: &TenantCluster) -> anyhow::Result<()> {
    let Some(stored) = cluster.deployment() else { return Ok(()) };
    let name = cluster.name_any();
    stored.ensure_of(&name)?;
    if let Some(noted) = stored.record.deployment {
        let own = deployment(cluster);
        ensure!(
            noted == own,
            "status.deployment of the TenantCluster {name} is the record of the deployment {noted}, and the cluster is {own}: restore \
             its own record"
        );
    }
    Ok(())
}

/// The obstacle of a Provider that cannot be used.
pub(super) fn unavailable(why: &Unavailable) -> Obstacle {
    let reason = match &why.why {
        UnavailableReason::Secret(_)
        | UnavailableReason::Untrusted(_)
        | UnavailableReason::OtherServer(_)
        | UnavailableReason::LoginRefused(_)
        | UnavailableReason::Unknown => TenantClusterReason::ProviderNotReady,
        UnavailableReason::Hypervisor(error) => reason(error),
        UnavailableReason::NotKnown(_) | UnavailableReason::BackingOff { .. } | UnavailableReason::NoAnswer(_) => {
            TenantClusterReason::PreflightNotKnown
        }
    };
    Obstacle::new(reason, why.to_string())
}

fn refused(provider: &str, zone: &str, error: &Error) -> Obstacle {
    Obstacle::new(reason(error), format!("the zone {zone} of the Provider {provider}: {error}"))
}

fn reason(error: &Error) -> TenantClusterReason {
    match error.kind {
        ErrorKind::Denied => TenantClusterReason::ProviderNotReady,
        ErrorKind::Refused | ErrorKind::NotFound => TenantClusterReason::ReferenceMissing,
        ErrorKind::Transient | ErrorKind::Changed | ErrorKind::InDoubt | ErrorKind::Fenced => {
            TenantClusterReason::PreflightNotKnown
        }
    }
}
