//! Looks up the vCenter objects that a Provider names. Read-only. A failed call is never taken for a missing object.

use vsphere::{Client, Host, MoRef, Need, On, Outcome, Result};

use super::site::{pool_path, templates};
use crate::decisions::{VCenterInventory, ZoneInventory};
use crate::objects::{VSphere, Zone};

/// The state of everything that the Provider names.
pub async fn look(client: &Client, described: &VSphere) -> Result<VCenterInventory> {
    let about = &client.service().about;
    let mut seen = VCenterInventory {
        version: about.full_name.clone(),
        instance: about.instance_uuid.to_lowercase(),
        user: client.user_name().await,
        ..VCenterInventory::default()
    };
    let mut looking = Looking { client, described, seen: &mut seen, needs: Vec::new() };
    if looking.named(&described.datacenter, &["Datacenter"], "the data center", &described.datacenter).await?.is_some()
    {
        looking.datacenter().await?;
    }
    let needs = std::mem::take(&mut looking.needs);
    seen.missing.extend(client.missing_privileges(&needs).await?.iter().map(ToString::to_string));
    Ok(seen)
}

struct Looking<'a> {
    client: &'a Client,
    described: &'a VSphere,
    seen: &'a mut VCenterInventory,
    needs: Vec<Need>,
}

impl Looking<'_> {
    /// The object at a path, if it is of one of these kinds. Otherwise it is recorded as absent.
    async fn named(&mut self, path: &str, kinds: &[&str], what: &str, name: &str) -> Result<Option<MoRef>> {
        match self.client.find(path).await {
            Ok(found) if kinds.contains(&found.kind.as_str()) => Ok(Some(found)),
            Ok(found) => {
                self.seen.absent.push(format!("{what} {name}: it is a {}", found.kind));
                Ok(None)
            }
            Err(error) if error.outcome() == Outcome::NotFound => {
                self.seen.absent.push(format!("{what} {name}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// As `named`, with a path below the data center.
    async fn below(&mut self, among: &str, name: &str, kinds: &[&str], what: &str) -> Result<Option<MoRef>> {
        let path = format!("{}/{among}/{}", self.described.datacenter, name.trim_matches('/'));
        self.named(&path, kinds, what, name).await
    }

    fn needs(&mut self, on: On, object: MoRef, name: String) {
        self.needs.push(Need { on, object, name });
    }

    /// The result of a read. `None` if the account lacks a privilege for it, which is recorded as missing.
    fn readable<T>(&mut self, read: Result<T>, what: &str) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.lacks_privilege() => {
                self.seen.missing.push(format!("System.Read for {what} ({error})"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn datacenter(&mut self) -> Result<()> {
        let described = self.described;
        let mut folders = vec![described.folder.as_str(), templates(described)];
        folders.dedup();
        for path in folders {
            if let Some(folder) = self.below("vm", path, &["Folder"], "the folder").await? {
                let name = format!("the folder {path}");
                if path == described.folder {
                    self.needs(On::ClustersFolder, folder.clone(), name.clone());
                }
                self.needs(On::Folder, folder, name);
            }
        }
        let mut networks = Vec::new();
        for network in &described.networks {
            let path = &network.port_group;
            let kinds = ["Network", "DistributedVirtualPortgroup", "OpaqueNetwork"];
            if let Some(found) = self.below("network", path, &kinds, "the port group").await? {
                networks.push((path.as_str(), found.clone()));
                // The switch of a distributed port group is read too, which a role on the port group alone does not permit.
                let named = self.client.network_backing(&found).await;
                self.readable(named, &format!("the network {path}"))?;
                self.needs(On::Network, found, format!("the network {path}"));
            }
        }
        for zone in &described.zones {
            self.zone(zone, &networks).await?;
        }
        Ok(())
    }

    async fn zone(&mut self, zone: &Zone, networks: &[(&str, MoRef)]) -> Result<()> {
        let mut room = ZoneInventory::default();
        let mut datastore = None;
        if let Some(name) = &zone.datastore
            && let Some(found) = self.below("datastore", name, &["Datastore"], "the datastore").await?
        {
            let there = self.client.datastore(&found).await?;
            if !there.takes_vms() {
                let why = if there.accessible { "it is in maintenance" } else { "no host reaches it" };
                self.seen.closed.push(format!("the datastore {name}: {why}"));
            }
            (room.datastore, room.free_storage) = (found.id.clone(), Some(there.free));
            self.needs(On::Datastore, found.clone(), format!("the datastore {name}"));
            datastore = Some(found);
        }
        let kinds = ["ClusterComputeResource", "ComputeResource"];
        if let Some(compute) = self.below("host", &zone.cluster, &kinds, "the cluster").await? {
            let changes = self.described.anti_affinity || self.described.restart_priority.is_some();
            if changes && compute.kind == "ClusterComputeResource" {
                self.needs(On::Cluster, compute.clone(), format!("the cluster {}", zone.cluster));
            }
            let seen = self.client.look(&compute, &["host", "resourcePool"]).await?;
            let hosts = seen.references_at("host");
            let hosts = self.client.hosts(&hosts).await;
            let hosts = self.readable(hosts, &format!("the hosts of {}", zone.cluster))?;
            let takes = |host: &Host| {
                host.takes_vms()
                    && datastore.as_ref().is_none_or(|datastore| host.datastores.contains(datastore))
                    && networks.iter().all(|(_, network)| host.networks.contains(network))
            };
            let taking = hosts.map(|hosts| hosts.into_iter().filter(takes).collect::<Vec<_>>());
            if let Some(taking) = taking.as_ref().filter(|taking| !taking.is_empty()) {
                let free = taking.iter().map(|host| host.memory.map(|_| host.free_memory()));
                room.free_memory = free.sum();
                room.host_processors = taking.iter().filter_map(|host| host.processors).max();
            }
            if taking.is_some_and(|taking| taking.is_empty()) {
                let words =
                    "no host runs VMs that has the zone's datastore and all networks, or the account cannot see it";
                self.seen.closed.push(format!("the cluster {}: {words}", zone.cluster));
            }
            if compute.kind == "ClusterComputeResource" && !self.client.clones_to_any_host() {
                match self.client.lacks_drs(&compute).await {
                    Ok(true) => self.seen.closed.push(format!("the cluster {}: DRS is turned off", zone.cluster)),
                    Ok(false) => {}
                    // A clone in this cluster fails with its own error.
                    Err(error) if error.lacks_privilege() => {}
                    Err(error) => return Err(error),
                }
            }
            let pool = match &zone.resource_pool {
                Some(_) => {
                    let kinds = ["ResourcePool", "VirtualApp"];
                    self.below("host", &pool_path(zone), &kinds, "the resource pool").await?
                }
                None => seen.reference_at("resourcePool"),
            };
            if let Some(pool) = pool {
                let unreserved = "runtime.memory.unreservedForVm";
                let in_pool = self.client.look(&pool, &[unreserved]).await?.parsed(unreserved);
                room.free_memory = [room.free_memory, in_pool].into_iter().flatten().min();
                self.needs(On::Pool, pool, format!("the resource pool {}", pool_path(zone)));
            }
        }
        self.seen.zones.insert(zone.name.clone(), room);
        Ok(())
    }
}
