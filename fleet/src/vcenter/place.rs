//! The objects of a site and a placement. They are found by their paths: nothing is listed.

use std::cmp::Reverse;

use vsphere::{Client, DatastorePath, Host, MoRef, RestartPriority};

use super::VcenterHypervisor;
use super::site::{Clones, Site};
use super::trouble::not_now;
use crate::hypervisor::{Error, ErrorKind, Networks, Placement, Result};

/// The objects of a site.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The data center, and its inventory path.
    pub(super) datacenter: MoRef,
    pub(super) datacenter_path: String,
    /// The folders that are searched for VMs, with their paths. The first is that of new VMs.
    pub(super) folders: Vec<(MoRef, String)>,
    pub(super) templates: MoRef,
    pub(super) templates_path: String,
    pub(super) pool: MoRef,
    pub(super) pool_path: String,
    pub(super) datastore: At,
    pub(super) networks: Vec<(MoRef, String)>,
    pub(super) clones: Clones,
    pub(super) different_hosts: bool,
    pub(super) restart: Option<RestartPriority>,
    /// The name of a storage policy.
    pub(super) policy: Option<String>,
    pub(super) managed_by: Option<String>,
}

/// A datastore and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) datastore: MoRef,
    pub(super) name: String,
}

/// The place of one VM.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) folder: MoRef,
    pub(super) pool: MoRef,
    pub(super) at: At,
    /// The host of the VM that the new one replaces.
    pub(super) host: Option<MoRef>,
}

impl Places {
    /// Whether settings of the cluster are changed: rules, and restarts by HA.
    pub(super) fn changes_cluster(&self) -> bool {
        self.different_hosts || self.restart.is_some()
    }

    pub(super) async fn find(client: &Client, site: &Site) -> Result<Self> {
        let datacenter = there(client, &site.datacenter, "data center").await?;
        if datacenter.kind != "Datacenter" {
            return Err(Error::refused(format!("{} is no data center", site.datacenter)));
        }
        let below = Below { client, datacenter: &site.datacenter };
        let mut folders = Vec::new();
        for path in std::iter::once(&site.folder).chain(&site.other_folders) {
            folders.push((below.folder(path).await?, path.clone()));
        }
        let templates_path = site.templates.clone().unwrap_or_else(|| site.folder.clone());
        let mut networks = Vec::new();
        for path in &site.networks {
            networks.push((below.network(path).await?, path.clone()));
        }
        Ok(Self {
            templates: below.folder(&templates_path).await?,
            templates_path,
            pool: below.pool(&site.resource_pool).await?,
            pool_path: site.resource_pool.clone(),
            datastore: below.datastore(&site.datastore).await?,
            datacenter_path: site.datacenter.clone(),
            clones: site.clones,
            different_hosts: site.different_hosts,
            restart: site.restart,
            policy: site.storage_policy.clone(),
            managed_by: site.managed_by.clone(),
            datacenter,
            folders,
            networks,
        })
    }
}

/// Finds objects below a data center.
struct Below<'a> {
    client: &'a Client,
    datacenter: &'a str,
}

impl Below<'_> {
    async fn find(&self, among: &str, path: &str, what: &str) -> Result<MoRef> {
        let path = path.trim_matches('/');
        let separator = if path.is_empty() { "" } else { "/" };
        there(self.client, &format!("{}/{among}{separator}{path}", self.datacenter), what).await
    }

    async fn folder(&self, path: &str) -> Result<MoRef> {
        let found = self.find("vm", path, "folder of VMs").await?;
        if found.kind == "Folder" { Ok(found) } else { Err(Error::refused(format!("{path} is no folder of VMs"))) }
    }

    async fn datastore(&self, path: &str) -> Result<At> {
        let datastore = self.find("datastore", path, "datastore").await?;
        match datastore.kind.as_str() {
            "Datastore" => Ok(At { name: self.client.datastore(&datastore).await?.name, datastore }),
            "StoragePod" => Err(Error::refused(format!(
                "{path} is a datastore cluster: name one of its datastores, which VMs are put onto"
            ))),
            _ => Err(Error::refused(format!("{path} is no datastore"))),
        }
    }

    async fn network(&self, path: &str) -> Result<MoRef> {
        self.find("network", path, "network").await
    }

    /// A resource pool, or the top one of a cluster or host.
    async fn pool(&self, path: &str) -> Result<MoRef> {
        let found = self.find("host", path, "resource pool or cluster").await?;
        match found.kind.as_str() {
            "ResourcePool" | "VirtualApp" => Ok(found),
            "ClusterComputeResource" | "ComputeResource" => {
                let seen = self.client.look(&found, &["resourcePool"]).await?;
                let unnamed = || not_now(format!("{path} names no resource pool"));
                seen.reference_at("resourcePool").ok_or_else(unnamed)
            }
            _ => Err(Error::refused(format!("{path} is no resource pool and no cluster"))),
        }
    }
}

/// The object of a path. A missing object is refused.
async fn there(client: &Client, path: &str, what: &str) -> Result<MoRef> {
    match client.find(path).await {
        Ok(found) => Ok(found),
        Err(error) if error.outcome() == vsphere::Outcome::NotFound => {
            Err(Error::refused(format!("there is no {what} {path}, or the account cannot see it")))
        }
        Err(error) => Err(error.into()),
    }
}

impl VcenterHypervisor {
    fn below(&self) -> Below<'_> {
        Below { client: &self.client, datacenter: &self.places.datacenter_path }
    }

    pub(super) async fn network(&self, path: &str) -> Result<MoRef> {
        self.below().network(path).await
    }

    pub(super) async fn references_of(&self, networks: Networks<'_>) -> Result<Vec<MoRef>> {
        match networks {
            Networks::Of(vm) => {
                Ok(self.client.look(&MoRef::vm(&vm.reference.id), &["network"]).await?.references_at("network"))
            }
            Networks::Named(paths) => {
                let mut found = Vec::new();
                for path in paths {
                    found.push(self.network(path).await?);
                }
                Ok(found)
            }
        }
    }

    /// The place of a VM: by the placement, else that of `like`, else that of the site.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if no such place exists, or VMs would not be found again there.
    pub(super) async fn place(&self, like: Option<&vsphere::Vm>, placement: &Placement) -> Result<Place> {
        let folder = match (&placement.folder, like.and_then(|vm| vm.folder.as_ref())) {
            (Some(path), _) => {
                let found = self.below().folder(path).await?;
                if !self.is_searched(&found) {
                    return Err(Error::refused(format!(
                        "VMs in the folder {path} would not be found again: it is not among those of the deployment"
                    )));
                }
                found
            }
            (None, Some(folder)) if self.is_searched(folder) => folder.clone(),
            _ => self.places.folders[0].0.clone(),
        };
        let pool = match (&placement.resource_pool, like.and_then(|vm| vm.pool.as_ref())) {
            (Some(path), _) => self.below().pool(path).await?,
            (None, Some(pool)) => pool.clone(),
            (None, None) => self.places.pool.clone(),
        };
        Ok(Place { folder, pool, at: self.datastore(like, placement).await?, host: None })
    }

    pub(super) fn is_searched(&self, folder: &MoRef) -> bool {
        self.places.folders.iter().any(|(searched, _)| searched == folder)
    }

    /// The datastore of the placement, else that of the settings of `like`, else that of the site.
    pub(super) async fn datastore(&self, like: Option<&vsphere::Vm>, placement: &Placement) -> Result<At> {
        match (&placement.datastore, like) {
            (Some(path), _) => self.below().datastore(path).await,
            (None, Some(vm)) => self.datastore_of(vm).await,
            (None, None) => Ok(self.places.datastore.clone()),
        }
    }

    /// The datastore with a VM's settings.
    pub(super) async fn datastore_of(&self, vm: &vsphere::Vm) -> Result<At> {
        let unclear = || not_now(format!("the VM {} does not say which datastore it is on ({})", vm.name, vm.vmx_path));
        let name = vm.vmx_path.parse::<DatastorePath>().map_err(|_| unclear())?.datastore;
        if name == self.places.datastore.name {
            return Ok(self.places.datastore.clone());
        }
        let seen = self.client.look_at(&vm.datastores, &["summary.name"]).await?;
        let found = seen.into_iter().find(|datastore| datastore.text("summary.name") == name);
        found.map(|found| At { datastore: found.reference, name }).ok_or_else(unclear)
    }

    /// The host for a new VM if DRS only recommends one. `None` leaves the choice to vCenter, also if the account
    /// cannot see the cluster's setting. It is the host of the replaced VM. Otherwise it is the one with the fewest VMs
    /// of the deployment, and of these the one with the most free memory. `networks` is read only if a host is needed.
    pub(super) async fn host_for(
        &self,
        place: &Place,
        networks: impl Future<Output = Result<Vec<MoRef>>>,
    ) -> Result<Option<MoRef>> {
        let Some(cluster) = self.cluster_over(&place.pool).await? else { return Ok(None) };
        match self.client.only_recommends(&cluster).await {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) if error.lacks_privilege() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let hosts = self.client.look(&cluster, &["host"]).await?.references_at("host");
        let mut hosts = self.client.hosts(&hosts).await?;
        let networks = networks.await?;
        hosts.retain(|host| {
            let has_networks = networks.iter().all(|network| host.networks.contains(network));
            host.takes_vms() && has_networks && host.datastores.contains(&place.at.datastore)
        });
        let own: Vec<MoRef> = self.all_own().await?.into_iter().filter_map(|vm| vm.host).collect();
        hosts.sort_by_key(|host| order(host, place.host.as_ref(), &own));
        let none =
            || not_now(format!("no host that takes VMs now has the networks and the datastore {}", place.at.name));
        hosts.into_iter().next().map(|host| Some(host.reference)).ok_or_else(none)
    }

    /// Refuses a datastore that takes no VMs now.
    pub(super) async fn takes_vms(&self, at: &At) -> Result<()> {
        let seen = self.client.datastore(&at.datastore).await?;
        if seen.takes_vms() {
            return Ok(());
        }
        let why = if seen.accessible {
            format!("it is in maintenance ({})", seen.maintenance)
        } else {
            "no host reaches it".to_owned()
        };
        Err(Error::new(ErrorKind::Transient, anyhow::anyhow!("the datastore {} takes no VMs now: {why}", at.name)))
    }
}

/// The order of hosts for a new VM, the best first. `replaced` is the host of the VM that it replaces, and `own` has
/// the host of each VM of the deployment.
fn order(host: &Host, replaced: Option<&MoRef>, own: &[MoRef]) -> (bool, bool, usize, Reverse<u64>) {
    let count = own.iter().filter(|at| **at == host.reference).count();
    (host.in_quarantine, replaced != Some(&host.reference), count, Reverse(host.free_memory()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_vm_prefers_old_host_then_most_room() {
        let at = |id: u64| MoRef::new("HostSystem", format!("host-{id}"));
        // A higher number means more free memory.
        let host = |id: u64| Host {
            reference: at(id),
            name: String::new(),
            connected: true,
            in_maintenance: false,
            in_quarantine: false,
            processors: None,
            memory: Some(8 << 30),
            memory_used: Some((8 - id) << 30),
            datastores: Vec::new(),
            networks: Vec::new(),
        };
        let best = |hosts: Vec<Host>, replaced: Option<u64>, own: &[u64]| {
            let (replaced, own) = (replaced.map(at), own.iter().copied().map(at).collect::<Vec<_>>());
            hosts.into_iter().min_by_key(|host| order(host, replaced.as_ref(), &own)).unwrap().reference
        };
        let all = || vec![host(1), host(2), host(3)];
        assert_eq!(best(all(), None, &[]), at(3));
        assert_eq!(best(all(), None, &[3, 3, 1]), at(2));
        assert_eq!(best(all(), None, &[3, 2, 1]), at(3));
        assert_eq!(best(all(), Some(1), &[1, 1, 3]), at(1));
        assert_eq!(best(all(), Some(9), &[3]), at(2));
        assert_eq!(best(vec![Host { in_quarantine: true, ..host(3) }, host(1)], Some(3), &[1]), at(1));
    }
}
