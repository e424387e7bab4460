//! Whether all that follows is permitted, and VMs can be put where they are to be.

use vsphere::{MoRef, Need, On};

use super::VcenterHypervisor;
use super::trouble::not_now;
use crate::hypervisor::{Error, Kind, Placement, Result};

impl VcenterHypervisor {
    pub(super) async fn check(&self, placement: &Placement) -> Result<()> {
        let place = self.place(None, placement).await?;
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
        needs.push(need(On::Datastore, &place.at.datastore, format!("the datastore {}", place.at.name)));
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
        if !missing.is_empty() {
            let words = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            let user = self.client.user_name().await;
            return Err(Error::new(Kind::Denied, anyhow::anyhow!("{user} lacks privileges: {words}")));
        }
        self.policy().await?;
        self.takes_vms(&place.at).await?;
        self.has_host(&owner).await
    }

    /// The cluster or host whose a resource pool is.
    async fn owner_of(&self, pool: &MoRef) -> Result<MoRef> {
        let unclear = || not_now(format!("{pool} does not say whose it is"));
        self.client.look(pool, &["owner"]).await?.reference_at("owner").ok_or_else(unclear)
    }

    /// Refuses a cluster none of whose hosts runs VMs now.
    async fn has_host(&self, owner: &MoRef) -> Result<()> {
        let hosts = self.client.look(owner, &["host"]).await?.references_at("host");
        let hosts = self.client.hosts(&hosts).await?;
        if hosts.iter().any(vsphere::Host::takes_vms) {
            return Ok(());
        }
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        Err(not_now(format!("no host runs VMs now, each is in maintenance or not connected: {}", names.join(", "))))
    }
}
