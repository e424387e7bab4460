//! Reads the objects of a description on a vCenter. Changes nothing. A failed look is an error, and never counts as a missing
//! object.

use std::net::IpAddr;

use ::vsphere::{Client, MoRef, Need, On, Outcome, Result};
use fleet::hypervisor::Vm;

use super::VcenterProvider;
use super::inventory::{AtCompute, AtDatastore, DatacenterInventory, HostState, Object, VcenterInventory};
use super::requirements::Requirements;

/// Reads all but the objects of the deployment.
pub async fn look(client: &Client, described: &VcenterProvider) -> Result<VcenterInventory> {
    let about = &client.service().about;
    let mut seen = VcenterInventory {
        server: about.full_name.clone(),
        api: about.api_version.clone(),
        user: client.user_name().await,
        datacenter: None,
    };
    if is(find(client, &described.datacenter.value).await?.as_ref(), &["Datacenter"]) == Object::There {
        let looking = Looking { client, described };
        seen.datacenter = Some(looking.datacenter().await?);
    }
    Ok(seen)
}

/// Reads the objects of the deployment, and those that conflict with it. All named objects must exist.
pub async fn look_around(
    client: &Client,
    described: &VcenterProvider,
    asked: &Requirements,
    own: &[Vm],
    seen: &mut DatacenterInventory,
) -> Result<()> {
    let is_own = |found: &MoRef| own.iter().any(|vm| vm.reference.id == found.id);
    let stamps = own.iter().filter_map(|vm| vm.stamp.as_ref());
    seen.own = stamps.map(|stamp| stamp.node.clone()).collect();
    let missing = asked.nodes.iter().filter(|(name, _)| !seen.own.contains(name));
    let mut addresses = Vec::new();
    for (name, address) in missing {
        let path = format!("{}/vm/{}/{name}", described.datacenter.value, described.folder.value);
        if find(client, &path).await?.is_some_and(|found| !is_own(&found)) {
            seen.taken.push(name.clone());
        }
        addresses.push(*address);
    }
    // An existing node may hold the virtual IP.
    addresses.extend(asked.vip.filter(|_| seen.own.is_empty()));
    for address in addresses {
        for vm in client.vms_of_address(IpAddr::V4(address)).await?.iter().filter(|vm| !is_own(vm)) {
            let name = client.look(vm, &["name"]).await?.text("name").to_owned();
            seen.holders.push((address, name));
        }
    }
    Ok(())
}

/// Reads the existing storage policies, if one is named, may be viewed, and is needed. Existing VMs do not need vCenter's
/// storage policy service.
pub async fn look_at_policies(
    client: &Client,
    described: &VcenterProvider,
    asked: &Requirements,
    seen: &mut DatacenterInventory,
) -> Result<()> {
    let may_view = !seen.missing.iter().any(|missing| missing.privilege.on == On::Root);
    let is_needed = asked.nodes.iter().any(|(name, _)| !seen.own.contains(name));
    if described.storage_policy.is_some() && may_view && is_needed {
        let policies = client.storage_policies().await?;
        seen.policies = Some(policies.into_iter().map(|policy| policy.name).collect());
    }
    Ok(())
}

struct Looking<'a> {
    client: &'a Client,
    described: &'a VcenterProvider,
}

impl Looking<'_> {
    async fn below(&self, among: &str, path: &str) -> Result<Option<MoRef>> {
        find(self.client, &format!("{}/{among}/{path}", self.described.datacenter.value)).await
    }

    async fn datacenter(&self) -> Result<DatacenterInventory> {
        let described = self.described;
        let mut seen = DatacenterInventory::default();
        let mut needs = Needs::default();
        let folder = self.below("vm", &described.folder.value).await?;
        seen.folder = is(folder.as_ref(), &["Folder"]);
        needs.add(On::Folder, folder, &seen.folder, format!("the folder {}", described.folder.value));
        for path in &described.other_folders {
            let folder = self.below("vm", &path.value).await?;
            let object = is(folder.as_ref(), &["Folder"]);
            needs.add(On::Folder, folder, &object, format!("the folder {}", path.value));
            seen.other_folders.push(object);
        }
        if let Some(path) = &described.templates {
            let folder = self.below("vm", &path.value).await?;
            seen.templates = is(folder.as_ref(), &["Folder"]);
            needs.add(On::Folder, folder, &seen.templates, format!("the folder {}", path.value));
        }
        let pool = self.below("host", &described.pool_path()).await?;
        seen.pool = is(pool.as_ref(), &["ResourcePool", "VirtualApp"]);
        let mut networks = Vec::new();
        for path in &described.networks {
            let network = self.below("network", &path.value).await?;
            let object = is(network.as_ref(), &["Network", "DistributedVirtualPortgroup", "OpaqueNetwork"]);
            networks.push((path.value.clone(), network.clone().filter(|_| object == Object::There)));
            needs.add(On::Network, network.clone(), &object, format!("the network {}", path.value));
            seen.networks.push(self.named_to_adapters(network.as_ref(), object).await?);
        }
        let datastore = self.below("datastore", &described.datastore.value).await?;
        seen.datastore = self.datastore(datastore.as_ref()).await?;
        let is_there = if matches!(seen.datastore, AtDatastore::There(_)) { Object::There } else { Object::Absent };
        needs.add(On::Datastore, datastore.clone(), &is_there, format!("the datastore {}", described.datastore.value));
        seen.journal = Object::There;
        if let Some(journal) = &described.journal {
            let name = &journal.value.datastore;
            let found = self.named_datastore(name).await?;
            seen.journal = is(found.as_ref(), &["Datastore"]);
            if found != datastore {
                if let (Some(found), Object::There) = (&found, &seen.journal) {
                    seen.journal_at = Some(self.client.datastore(found).await?);
                }
                needs.add(On::Datastore, found, &seen.journal, format!("the datastore {name}"));
            }
        }
        let compute = self.below("host", &described.cluster.value).await?;
        seen.compute = self.compute(compute.as_ref(), datastore.as_ref(), &networks).await?;
        let are_shown = matches!(seen.compute, AtCompute::Cluster(_));
        if let Some(cluster) = compute.as_ref().filter(|_| are_shown) {
            match self.client.lacks_drs(cluster).await {
                Ok(lacks_drs) => seen.lacks_drs = lacks_drs,
                // vCenter reports at the import whether it needs a host.
                Err(error) if error.lacks_privilege() && self.client.clones_to_any_host() => {}
                Err(error) if error.lacks_privilege() => seen.compute = AtCompute::Unreadable(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        let is_cluster = compute.as_ref().is_some_and(|found| found.kind == "ClusterComputeResource");
        if is_cluster && described.changes_cluster() {
            let name = format!("the cluster {}", described.cluster.value);
            needs.add(On::Cluster, compute.clone(), &Object::There, name);
        }
        match (&described.pool, compute) {
            (Some(named), _) => {
                needs.add(On::Pool, pool, &seen.pool, format!("the resource pool {}", named.value));
            }
            (None, Some(compute)) if !matches!(seen.compute, AtCompute::Absent | AtCompute::Other(_)) => {
                let topmost = self.client.look(&compute, &["resourcePool"]).await?.reference_at("resourcePool");
                seen.pool = Object::There;
                let name = format!("the topmost resource pool of {}", described.cluster.value);
                needs.add(On::Pool, topmost, &Object::There, name);
            }
            (None, _) => {}
        }
        if described.storage_policy.is_some() {
            let root = self.client.service().root_folder()?;
            needs.add(On::Root, Some(root), &Object::There, "the root of the vCenter".to_owned());
        }
        seen.missing = self.client.missing_privileges(&needs.0).await?;
        Ok(seen)
    }

    /// Returns `object`, or `Unreadable` if no adapter can be connected to the network. That needs properties of a distributed
    /// switch, which a role on the port group may not show.
    async fn named_to_adapters(&self, found: Option<&MoRef>, object: Object) -> Result<Object> {
        let Some(network) = found.filter(|_| object == Object::There) else { return Ok(object) };
        match self.client.network_backing(network).await {
            Ok(_) => Ok(object),
            Err(error) if error.lacks_privilege() => Ok(Object::Unreadable(error.to_string())),
            Err(error) => Err(error),
        }
    }

    async fn datastore(&self, found: Option<&MoRef>) -> Result<AtDatastore> {
        let Some(found) = found else { return Ok(AtDatastore::Absent) };
        Ok(match found.kind.as_str() {
            "Datastore" => AtDatastore::There(self.client.datastore(found).await?),
            "StoragePod" => {
                let members = self.client.look(found, &["childEntity"]).await?.references_at("childEntity");
                let mut names = Vec::new();
                for member in self.client.look_at(&members, &["name"]).await? {
                    names.push(member.text("name").to_owned());
                }
                names.sort();
                AtDatastore::Cluster(names)
            }
            kind => AtDatastore::Other(kind.to_owned()),
        })
    }

    /// A datastore by its name alone, as in datastore paths. The name is unique in a data center, but the datastore may be in a
    /// folder or a datastore cluster.
    async fn named_datastore(&self, name: &str) -> Result<Option<MoRef>> {
        if let Some(found) = self.below("datastore", name).await?.filter(|found| found.kind == "Datastore") {
            return Ok(Some(found));
        }
        let Some(all) = find(self.client, &format!("{}/datastore", self.described.datacenter.value)).await? else {
            return Ok(None);
        };
        let all = self.client.datastores_in(&all).await?;
        Ok(all.into_iter().find(|datastore| datastore.name == name).map(|datastore| datastore.reference))
    }

    async fn compute(
        &self,
        found: Option<&MoRef>,
        datastore: Option<&MoRef>,
        networks: &[(String, Option<MoRef>)],
    ) -> Result<AtCompute> {
        let Some(found) = found else { return Ok(AtCompute::Absent) };
        let is_cluster = match found.kind.as_str() {
            "ClusterComputeResource" => true,
            "ComputeResource" => false,
            kind => return Ok(AtCompute::Other(kind.to_owned())),
        };
        let hosts = self.client.look(found, &["host"]).await?.references_at("host");
        if hosts.is_empty() {
            let words = "vCenter shows none: there are no hosts, or the account lacks System.Read on them";
            return Ok(AtCompute::Unreadable(words.to_owned()));
        }
        let hosts = match self.client.hosts(&hosts).await {
            Ok(hosts) => hosts,
            Err(error) if error.lacks_privilege() => return Ok(AtCompute::Unreadable(error.to_string())),
            Err(error) => return Err(error),
        };
        let mut seen = Vec::new();
        for host in hosts {
            let lacks = networks
                .iter()
                .filter(|(_, network)| network.as_ref().is_some_and(|network| !host.networks.contains(network)));
            seen.push(HostState {
                connected: host.connected,
                in_maintenance: host.in_maintenance,
                processors: host.processors,
                memory: host.memory,
                reaches_datastore: datastore.is_none_or(|datastore| host.datastores.contains(datastore)),
                lacks: lacks.map(|(name, _)| name.clone()).collect(),
                name: host.name,
            });
        }
        seen.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(if is_cluster { AtCompute::Cluster(seen) } else { AtCompute::Host(seen) })
    }
}

#[derive(Default)]
struct Needs(Vec<Need>);

impl Needs {
    fn add(&mut self, on: On, object: Option<MoRef>, is: &Object, name: String) {
        if let (Some(object), Object::There) = (object, is) {
            self.0.push(Need { on, object, name });
        }
    }
}

/// The object of a path. `None` if it does not exist, or the account cannot see it.
async fn find(client: &Client, path: &str) -> Result<Option<MoRef>> {
    match client.find(path).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.outcome() == Outcome::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is(found: Option<&MoRef>, kinds: &[&str]) -> Object {
    match found {
        None => Object::Absent,
        Some(found) if kinds.contains(&found.kind.as_str()) => Object::There,
        Some(found) => Object::Other(found.kind.clone()),
    }
}
