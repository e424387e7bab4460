//! Whether all that follows is permitted, and VMs can be put where they are to be.

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use vsphere::{DatastorePath, Host, MoRef, Need, On};

use super::VcenterHypervisor;
use super::datastore_directory::find_datastore;
use super::disks::kind;
use super::place::{At, Place};
use super::trouble::not_now;
use crate::hypervisor::{DiskKind, Error, ErrorKind, Placement, Result};

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
        for At { datastore, name } in self.datastores_with(&place.at) {
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
        for (network, path) in &self.places.networks {
            readable(self.client.network_backing(network).await, &format!("the network {path}"), &mut missing)?;
        }
        let under = self.under(&owner).await;
        self.lacks(&missing).await?;
        // The look begins a task that needs the privileges on the datastore.
        match self.sees_tasks_on_files().await {
            Ok(true) => {}
            Ok(false) => log::warn!("{}", self.unlisted_words().await),
            Err(error) => log::warn!("cannot see whether vCenter lists tasks on files: {error}"),
        }
        self.policy().await?;
        self.takes_vms(&place.at).await?;
        match under {
            // Only who makes a VM needs to see them, and what is denied counts for everybody.
            Err(error) if error.lacks_privilege() => {
                let user = self.client.user_name().await;
                Err(Error::refused(format!(
                    "{user} lacks System.Read for the cluster or the hosts of {pool} ({error})"
                )))
            }
            under => {
                let under = under?;
                has_host(&under.hosts)?;
                if self.laid.datastore_of(self.deployment).is_some() {
                    self.warn_of_unreached(&under.hosts, &place.at).await;
                }
                // As that there is no host, it is no word of what is permitted: VMs that are there are powered on where they are.
                if under.lacks_drs {
                    return Err(Error::refused(format!(
                        "the cluster of {pool} has DRS turned off, and without it vCenter chooses no host for a new VM: turn DRS on"
                    )));
                }
                Ok(())
            }
        }
    }

    /// Whether what is done with the deployment's own VMs is permitted: it is done on the datastores where they are, wherever the next one is
    /// put.
    pub(super) async fn check_own(&self) -> Result<()> {
        let (mut needs, mut missing) = (Vec::new(), Vec::new());
        for name in datastores_of(&self.all_own().await?) {
            match find_datastore(&self.client, &self.places.datacenter_path, &name).await? {
                Some(object) => needs.push(Need { on: On::Datastore, object, name: format!("the datastore {name}") }),
                None => missing.push(format!("the datastore {name}, which the account cannot see")),
            }
        }
        missing.extend(self.client.missing_privileges(&needs).await?.iter().map(ToString::to_string));
        self.lacks(&missing).await
    }

    /// Refuses what privileges are missing for.
    async fn lacks(&self, missing: &[String]) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let (user, words) = (self.client.user_name().await, missing.join("; "));
        Err(Error::new(ErrorKind::Denied, anyhow::anyhow!("{user} lacks privileges: {words}")))
    }

    /// The datastore of new VMs, and that of the deployment's journal.
    fn datastores_with(&self, at: &At) -> Vec<At> {
        let mut all = vec![at.clone()];
        if let Some((datastore, name)) = self.laid.datastore_of(self.deployment)
            && name != at.name
        {
            all.push(At { datastore: datastore.clone(), name: name.to_owned() });
        }
        all
    }

    /// The cluster or host whose a resource pool is.
    async fn owner_of(&self, pool: &MoRef) -> Result<MoRef> {
        let unclear = || not_now(format!("{pool} does not say whose it is"));
        self.client.look(pool, &["owner"]).await?.reference_at("owner").ok_or_else(unclear)
    }

    /// Refuses a resource pool in which vCenter chooses no host for an import. Who may not see how the cluster is set tries it.
    pub(super) async fn takes_imports(&self, pool: &MoRef) -> Result<()> {
        match self.has_no_drs(pool).await {
            Ok(true) => Err(Error::refused(
                "the cluster that the image is to be laid in has DRS turned off, and without it vCenter chooses no host for an import: turn \
                 DRS on",
            )),
            Ok(false) => Ok(()),
            Err(error) if error.lacks_privilege() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a resource pool is that of a cluster with DRS turned off.
    async fn has_no_drs(&self, pool: &MoRef) -> vsphere::Result<bool> {
        match self.cluster_over(pool).await? {
            Some(cluster) => self.client.lacks_drs(&cluster).await,
            None => Ok(false),
        }
    }

    /// Warns before an upload of hosts that it may go to. The lease decides: it may name a host by another address.
    pub(super) async fn warn_before_upload(&self, place: &Place) -> Result<()> {
        let owner = self.owner_of(&place.pool).await?;
        let hosts = self.client.look(&owner, &["host"]).await?.references_at("host");
        match self.client.hosts(&hosts).await {
            Err(error) if error.lacks_privilege() => {}
            hosts => self.warn_of_unreached(&hosts?, &place.at).await,
        }
        Ok(())
    }

    /// Warns of hosts that cannot be connected to, of those that an upload to this datastore may go to.
    async fn warn_of_unreached(&self, hosts: &[Host], at: &At) {
        let mut tries = JoinSet::new();
        for host in hosts.iter().filter(|host| host.takes_vms() && host.datastores.contains(&at.datastore)) {
            let (client, name) = (self.client.clone(), host.name.clone());
            tries.spawn(async move { Some((client.unreached(&name).await?, name)) });
        }
        for (reason, name) in tries.join_all().await.into_iter().flatten() {
            log::warn!(
                "the host {name} cannot be reached from here ({reason}): an upload of an image that goes there fails. Resolve its name \
                 here, and permit connections to its port 443"
            );
        }
    }

    /// What a new VM of a cluster, or of the one host, runs on.
    async fn under(&self, owner: &MoRef) -> vsphere::Result<Under> {
        let hosts = self.client.look(owner, &["host"]).await?.references_at("host");
        let hosts = self.client.hosts(&hosts).await?;
        // Whether a template can be imported is asked when it is.
        let may_lack = owner.kind == "ClusterComputeResource" && !self.client.clones_to_any_host();
        let lacks_drs = may_lack && self.client.lacks_drs(owner).await?;
        Ok(Under { hosts, lacks_drs })
    }
}

struct Under {
    hosts: Vec<Host>,
    /// Whether they are a cluster's in which vCenter chooses none of them.
    lacks_drs: bool,
}

/// The datastores that have settings and data disks of VMs.
fn datastores_of(vms: &[vsphere::Vm]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for vm in vms {
        let disks = vm.devices.disks.iter().filter(|disk| kind(vm, disk) == DiskKind::Data);
        let paths = disks.filter_map(|disk| disk.path.as_deref()).chain([vm.vmx_path.as_str()]);
        names.extend(paths.filter_map(|path| path.parse::<DatastorePath>().ok()).map(|path| path.datastore));
    }
    names
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
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("the account lacks System.Read on them"), "{error}");
    }
}
