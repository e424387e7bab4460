//! Checks the privileges for all that follows, and that VMs can be created at their place.

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
            // Only the creation of a VM needs to see them, and a denial would count for all commands.
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
                // As for a missing host, this is no statement about privileges: existing VMs are powered on where they
                // are.
                if under.lacks_drs {
                    return Err(Error::refused(format!(
                        "the cluster of {pool} has DRS turned off, and without it vCenter chooses no host for a new VM: turn DRS on"
                    )));
                }
                Ok(())
            }
        }
    }

    /// Checks the privileges for changes of the deployment's own VMs, on the datastores where they are, wherever the
    /// next one is created.
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

    /// Refuses if privileges are missing.
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

    /// The cluster or host of a resource pool.
    async fn owner_of(&self, pool: &MoRef) -> Result<MoRef> {
        let unclear = || not_now(format!("{pool} does not say whose it is"));
        self.client.look(pool, &["owner"]).await?.reference_at("owner").ok_or_else(unclear)
    }

    /// Refuses a resource pool in which vCenter chooses no host for an import. An account that cannot see the cluster's
    /// setting tries the import.
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

    /// Whether the resource pool's cluster has DRS turned off.
    async fn has_no_drs(&self, pool: &MoRef) -> vsphere::Result<bool> {
        match self.cluster_over(pool).await? {
            Some(cluster) => self.client.lacks_drs(&cluster).await,
            None => Ok(false),
        }
    }

    /// Warns, before an upload, about hosts that it may go to. The lease decides: it may name a host by another
    /// address.
    pub(super) async fn warn_before_upload(&self, place: &Place) -> Result<()> {
        let owner = self.owner_of(&place.pool).await?;
        let hosts = self.client.look(&owner, &["host"]).await?.references_at("host");
        match self.client.hosts(&hosts).await {
            Err(error) if error.lacks_privilege() => {}
            hosts => self.warn_of_unreached(&hosts?, &place.at).await,
        }
        Ok(())
    }

    /// Warns about hosts that cannot be reached, of those that an upload to this datastore may go to.
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

    /// The hosts for a new VM of a cluster, or the single host.
    async fn under(&self, owner: &MoRef) -> vsphere::Result<Under> {
        let hosts = self.client.look(owner, &["host"]).await?.references_at("host");
        let hosts = self.client.hosts(&hosts).await?;
        // The check for imports is made when a template is imported.
        let may_lack = owner.kind == "ClusterComputeResource" && !self.client.clones_to_any_host();
        let lacks_drs = may_lack && self.client.lacks_drs(owner).await?;
        Ok(Under { hosts, lacks_drs })
    }
}

struct Under {
    hosts: Vec<Host>,
    /// Whether vCenter chooses none of the cluster's hosts.
    lacks_drs: bool,
}

/// The datastores with settings and data disks of VMs.
fn datastores_of(vms: &[vsphere::Vm]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for vm in vms {
        let disks = vm.devices.disks.iter().filter(|disk| kind(vm, disk) == DiskKind::Data);
        let paths = disks.filter_map(|disk| disk.path.as_deref()).chain([vm.vmx_path.as_str()]);
        names.extend(paths.filter_map(|path| path.parse::<DatastorePath>().ok()).map(|path| path.datastore));
    }
    names
}

/// The result of a read. `None` if the account lacks a privilege for it, which is added to `missing`.
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

/// Refuses hosts of which none runs VMs now. That blocks only new VMs. Existing VMs are powered on all the same, so
/// this is no statement about privileges.
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

    /// A denial is reported even if no VM is to be created.
    #[test]
    fn hidden_hosts_are_not_reported_as_denied() {
        let error = has_host(&[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("the account lacks System.Read on them"), "{error}");
    }
}
