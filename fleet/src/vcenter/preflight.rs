//! Whether all that follows is permitted, and VMs can be put where they are to be.

use std::collections::BTreeSet;

use vsphere::{AdapterNetwork, DatastorePath, Host, MoRef, Need, On};

use super::VcenterHypervisor;
use super::datastore_directory::datastore_of;
use super::disks::kind;
use super::place::At;
use super::trouble::{looking, not_now};
use crate::hypervisor::{DiskKind, Error, Kind, Placement, Result};

impl VcenterHypervisor {
    pub(super) async fn check(&self, placement: &Placement) -> Result<()> {
        let place = self.place(None, placement).await?;
        let own = self.all_own().await?;
        let need = |on, object: &MoRef, name: String| Need { on, object: object.clone(), name };
        let mut needs = Vec::new();
        for (folder, path) in &self.places.folders {
            needs.push(need(On::Folder, folder, format!("the folder {path}")));
        }
        if !self.places.folders.iter().any(|(folder, _)| *folder == self.places.templates) {
            needs.push(need(On::Folder, &self.places.templates, format!("the folder {}", self.places.templates_path)));
        }
        let pool = placement.resource_pool.as_ref().unwrap_or(&self.places.pool_path);
        needs.push(need(On::Pool, &place.pool, format!("the resource pool {pool}")));
        for At { datastore, name } in self.datastores_with(&place.at, &own).await? {
            needs.push(need(On::Datastore, &datastore, format!("the datastore {name}")));
        }
        for (network, path) in &self.places.networks {
            needs.push(need(On::Network, network, format!("the network {path}")));
        }
        let owner = self.owner_of(&place.pool).await?;
        if self.places.changes_cluster() && owner.kind == "ClusterComputeResource" {
            needs.push(need(On::Cluster, &owner, format!("the cluster of the resource pool {pool}")));
        }
        if self.places.policy.is_some() {
            let root = self.client.service().root_folder()?;
            needs.push(need(On::Root, &root, "the root of the vCenter".to_owned()));
        }
        let missing = self.client.missing_privileges(&needs).await?;
        let mut missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        for (network, name) in self.networks_with(&own) {
            readable(self.client.network_backing(&network).await, &format!("the network {name}"), &mut missing)?;
        }
        let hosts = readable(self.hosts_of(&owner).await, &format!("the hosts of {pool}"), &mut missing)?;
        if !missing.is_empty() {
            let (user, words) = (self.client.user_name().await, missing.join("; "));
            return Err(Error::new(Kind::Denied, anyhow::anyhow!("{user} lacks privileges: {words}")));
        }
        self.policy().await?;
        self.takes_vms(&place.at).await?;
        has_host(&hosts.unwrap_or_default())
    }

    /// The datastore of new VMs, those that have settings and data disks of the deployment's own, and that of its journal: what is done
    /// with a VM is done where it is, wherever the next one is put.
    async fn datastores_with(&self, at: &At, own: &[vsphere::Vm]) -> Result<Vec<At>> {
        let mut all = vec![at.clone()];
        if let Some((datastore, name)) = self.laid.datastore_of(self.deployment)
            && name != at.name
        {
            all.push(At { datastore: datastore.clone(), name: name.to_owned() });
        }
        let mut names = BTreeSet::new();
        for vm in own {
            let disks = vm.devices.disks.iter().filter(|disk| kind(vm, disk) == DiskKind::Data);
            let paths = disks.filter_map(|disk| disk.path.as_deref()).chain([vm.vmx_path.as_str()]);
            names.extend(paths.filter_map(|path| path.parse::<DatastorePath>().ok()).map(|path| path.datastore));
        }
        names.retain(|name| all.iter().all(|known| known.name != *name));
        for name in names {
            let datastore = datastore_of(&self.client, &self.places.datacenter_path, &name).await.map_err(looking)?;
            all.push(At { datastore, name });
        }
        Ok(all)
    }

    /// The site's networks, and the port groups of distributed switches that the deployment's own VMs are on, with what people call them.
    fn networks_with(&self, own: &[vsphere::Vm]) -> Vec<(MoRef, String)> {
        let mut all = self.places.networks.clone();
        for adapter in own.iter().flat_map(|vm| &vm.devices.adapters) {
            if let AdapterNetwork::Distributed(group) = &adapter.network
                && all.iter().all(|(network, _)| network != group)
            {
                all.push((group.clone(), format!("of {}", adapter.label)));
            }
        }
        all
    }

    /// The cluster or host whose a resource pool is.
    async fn owner_of(&self, pool: &MoRef) -> Result<MoRef> {
        let unclear = || not_now(format!("{pool} does not say whose it is"));
        self.client.look(pool, &["owner"]).await?.reference_at("owner").ok_or_else(unclear)
    }

    /// The hosts of a cluster, or the one host.
    async fn hosts_of(&self, owner: &MoRef) -> vsphere::Result<Vec<Host>> {
        let hosts = self.client.look(owner, &["host"]).await?.references_at("host");
        self.client.hosts(&hosts).await
    }
}

/// What was read; none where the account lacks a privilege for that, which is said among what is missing.
fn readable<T>(read: vsphere::Result<T>, what: &str, missing: &mut Vec<String>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.lacks_privilege() => {
            missing.push(format!("System.Read for {what} ({error})"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses hosts none of which runs VMs now. Without one no VM is made, and those that are there are powered on all the same: that is no word
/// of what is permitted.
fn has_host(hosts: &[Host]) -> Result<()> {
    if hosts.iter().any(Host::takes_vms) {
        return Ok(());
    }
    if hosts.is_empty() {
        let words = "vCenter shows no host of the cluster: it has none, or the account lacks System.Read on them";
        return Err(Error::refused(words));
    }
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    Err(not_now(format!("no host runs VMs now, each is in maintenance or not connected: {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is denied is refused also where no VM is to be made.
    #[test]
    fn that_no_host_is_shown_is_not_told_as_denied() {
        let error = has_host(&[]).unwrap_err();
        assert_eq!(error.kind, Kind::Refused, "{error}");
        assert!(error.to_string().contains("the account lacks System.Read on them"), "{error}");
    }
}
