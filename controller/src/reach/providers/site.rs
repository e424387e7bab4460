//! Converts the places of a Provider to types of `fleet`. Pure.

use ::fleet::hypervisor::Placement;
use ::fleet::vcenter::{Clones, Site};
use uuid::Uuid;
use vsphere::RestartPriority;

use crate::objects::{self, VSphere, Zone};

#[derive(Clone, Debug)]
pub struct ClusterPlacement<'a> {
    /// The deployment ID in the stamps of VMs: the cluster's UID.
    pub deployment: Uuid,
    pub cluster: &'a str,
    /// The networks of its nodes, by the Provider's names. Control-plane nodes are on the first one.
    pub networks: Vec<&'a str>,
}

impl ClusterPlacement<'_> {
    /// The name of the folder of its VMs. Names in the inventory have at most 80 characters, so it has no namespace.
    pub fn folder(&self) -> String {
        format!("{}.{}", self.cluster, &self.deployment.simple().to_string()[..8])
    }
}

/// The path of a zone's resource pool. The topmost one of a cluster is `Resources`; without a pool, the path is that of the
/// cluster.
pub fn pool_path(zone: &Zone) -> String {
    let Zone { cluster, resource_pool, .. } = zone;
    resource_pool.as_ref().map_or_else(|| cluster.clone(), |pool| format!("{cluster}/Resources/{pool}"))
}

/// The place of VMs in a zone. `None` if the zone does not exist, or has no datastore.
pub fn placement(vsphere: &VSphere, zone: &str) -> Option<Placement> {
    let zone = vsphere.zones.iter().find(|there| there.name == zone)?;
    Some(Placement { datastore: Some(zone.datastore.clone()?), resource_pool: Some(pool_path(zone)), folder: None })
}

pub fn templates(vsphere: &VSphere) -> &str {
    vsphere.templates_folder.as_ref().unwrap_or(&vsphere.folder)
}

/// The first zone, which is the default of all other places, and its datastore.
pub fn first_zone(vsphere: &VSphere) -> Option<(&Zone, &str)> {
    let zone = vsphere.zones.first()?;
    Some((zone, zone.datastore.as_deref()?))
}

/// The places of a cluster whose VMs are in this folder. The error names what the Provider lacks.
pub fn site(vsphere: &VSphere, place: &ClusterPlacement<'_>, folder: String) -> Result<Site, String> {
    let (zone, datastore) = first_zone(vsphere).ok_or("a zone with a datastore")?;
    let group = |name: &&str| {
        let network = vsphere.networks.iter().find(|network| network.name == **name);
        network.map(|network| network.port_group.clone()).ok_or_else(|| format!("a network {name}"))
    };
    Ok(Site {
        datacenter: vsphere.datacenter.clone(),
        folder,
        other_folders: Vec::new(),
        templates: Some(templates(vsphere).to_owned()),
        resource_pool: pool_path(zone),
        datastore: datastore.to_owned(),
        networks: place.networks.iter().map(group).collect::<Result<_, _>>()?,
        clones: match vsphere.clones {
            objects::Clones::Linked => Clones::Linked,
            objects::Clones::Full => Clones::Full,
        },
        different_hosts: vsphere.anti_affinity,
        restart: vsphere.restart_priority.map(|priority| match priority {
            objects::RestartPriority::Low => RestartPriority::Low,
            objects::RestartPriority::Medium => RestartPriority::Medium,
            objects::RestartPriority::High => RestartPriority::High,
            objects::RestartPriority::Highest => RestartPriority::Highest,
        }),
        // A Provider has no storage policy: VMs of tenant clusters have the default of their datastore.
        storage_policy: None,
        managed_by: vsphere.managed_by.clone(),
    })
}
