//! The steps before the first VM of a cluster: checks, and one change at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use fleet::control_plane::Goal;
use fleet::hypervisor::Vm;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use uuid::Uuid;

use super::own_nodes::ClusterAccess;
use super::place::unavailable;
use super::{Reconciler, Round, StepOutcome};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::provider::server_addresses;
use crate::decisions::{
    Access, AllocatedAddresses, CLAIMANT, CLUSTER_FINALIZER, CLUSTER_REF, Claim, ClaimStep, ControlNode,
    CreationInputs, CreationStep, KeysSeen, MACHINE_FINALIZER, NamedBySpec, NodeSettings, Obstacle, PreflightInputs,
    ResourceUsage, Secrets, Source, before, capacity, claims, creation_step, drifted, is_bounded, leaving_out,
    left_over, limits, machines, next_claim, node_settings_hashes, obstacles, overlaps, pool_of_nodes, resolved,
    tenant_of, workers_of,
};
use crate::objects::{
    AUTO, IPPool, Machine, MachineSpec, NodeImage, NodePool, PoolAddress, Provider, Resolved, Tenant, TenantCluster,
    TenantClusterReason, TenantClusterSpec, TenantClusterStatus, VMClass,
};
use crate::reach::{Failure, add_used_namespace, claim, kinds};
use crate::reconcilers::{all, tenants, tolerant};

/// The pause while another object or the operator blocks the cluster.
const AWAITING: Duration = Duration::from_secs(30);
/// The interval of looks at a paused cluster. A change of it is seen at once.
const RESTING: Duration = Duration::from_secs(600);

/// The objects that a cluster names, as they were read.
pub(in crate::reconcilers) struct References {
    pub(super) provider: Option<Provider>,
    pub(super) pools: Vec<IPPool>,
    images: Vec<NodeImage>,
    class: Option<VMClass>,
    secrets: Secrets,
    pub(super) obstacles: Vec<Obstacle>,
    node_pools: Vec<NodePool>,
    /// All Tenants.
    pub(in crate::reconcilers) tenants: Vec<Tenant>,
    workers: u32,
    controllers: Vec<String>,
}

struct Addresses {
    claiming: Result<ClaimStep, Obstacle>,
    left_over: Vec<PoolAddress>,
    held: Vec<PoolAddress>,
    comes_first: bool,
}

impl References {
    /// The pool of the addresses of a cluster's control-plane nodes.
    pub(in crate::reconcilers) fn pool_of_nodes(&self, cluster: &TenantCluster) -> Option<&IPPool> {
        pool_of_nodes(cluster, self.provider.as_ref()?, &self.pools)
    }

    /// The cluster's NodePools.
    pub(in crate::reconcilers) fn node_pools(&self) -> &[NodePool] {
        &self.node_pools
    }

    /// Why a pool gives out no address, if so.
    pub(in crate::reconcilers) fn overlap(&self, pool: &IPPool) -> Option<String> {
        overlaps(pool, &self.pools).unwrap_or_else(|malformed| Some(malformed.to_string()))
    }
}

impl Reconciler<'_> {
    /// Runs the next step. `races` is how often another claimant got an address first.
    ///
    /// 1. Resolve: reads the objects that the cluster names, and its Machines, addresses and keys.
    /// 2. Plan: decides the next step ([`creation_step`]).
    /// 3. Checks the place before the first address is claimed, and again before the keys are drawn.
    /// 4. Looks for VMs with the cluster's stamp before each change that they forbid.
    /// 5. Report: if something blocks the cluster, the status says so.
    /// 6. Run: makes one change. The last one is the first run of `fleet`.
    pub(super) async fn begin(&self, cluster: &TenantCluster, races: u32) -> Result<StepOutcome, ReconcileError> {
        use CreationStep::{Await, Claim, Deploy, Draw, GiveBack, Keep, Make, Pin, Release, Rest, Unmake};
        let around = self.load_references(cluster).await?;
        let mut wished = self.creation_inputs(cluster, &around, races).await?;
        // The place is checked before the first address is claimed, and again before the keys are drawn.
        let needs_place = match creation_step(&wished) {
            Draw | Deploy(_) => true,
            Claim(_) => wished.held.is_empty(),
            _ => false,
        };
        if needs_place {
            wished.place = self.judged(cluster, &around, &wished).await?;
        }
        if matches!(creation_step(&wished), Unmake(_) | Release(_) | GiveBack(..) | Claim(_) | Draw | Deploy(_)) {
            let there = match self.there(cluster, &around).await {
                Ok(there) => there,
                // VMs with these addresses may exist although they cannot be listed.
                Err(obstacle) => {
                    self.note(cluster, &before(Some(&held_for(obstacle, &wished)), false), |_| ()).await?;
                    return Ok(StepOutcome::RequeueAfter(AWAITING));
                }
            };
            // Existing VMs use addresses, names and keys that must not be given to others.
            if let Some(words) = drifted(&there) {
                let words = format!(
                    "{words}: remove these in the vCenter to have the cluster created again, or delete the TenantCluster, which leaves \
                     them as they are"
                );
                let said =
                    [(TenantClusterReason::AdoptionRequired, words.clone()), (TenantClusterReason::NotReady, words)];
                self.note(cluster, &said, |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(AWAITING));
            }
        }
        match creation_step(&wished) {
            Keep => {
                kinds::add_finalizer(self.objects, cluster, CLUSTER_FINALIZER)
                    .await
                    .attempting("noting that the cluster is kept")?;
            }
            Await(obstacle) => {
                self.note(cluster, &before(Some(&obstacle), false), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(AWAITING));
            }
            Rest => {
                self.note(cluster, &before(None, true), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(RESTING));
            }
            Pin(resolved) => {
                self.note(cluster, &[], |status| status.resolved = Some((*resolved).clone())).await?;
            }
            Unmake(machine) => self.unmake(&machine).await?,
            Release(address) => {
                kinds::delete(self.objects, &*address).await.attempting("giving an address back")?;
            }
            GiveBack(addresses, obstacle) => {
                for address in &addresses {
                    kinds::delete(self.objects, address).await.attempting("giving an address back")?;
                }
                self.note(cluster, &before(Some(&obstacle), false), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(AWAITING));
            }
            Make(machine) => return self.make(cluster, &machine).await,
            Claim(address) => {
                claim(self.objects, &address).await.attempting("claiming an address")?;
            }
            Draw => {
                // While it is listed, neither `kaas-system` with the keys nor the cluster's namespace can be deleted.
                match add_used_namespace(self.objects, cluster).await {
                    // The rights of an earlier version: its keys would be elsewhere.
                    Err(Failure::Refused(_)) if !self.is_marked => {
                        let words = "the image of the control cluster is not committed, and no cluster is created before: commit it, or \
                                     roll back";
                        let obstacle = Obstacle::new(TenantClusterReason::PreflightNotKnown, words);
                        self.note(cluster, &before(Some(&obstacle), false), |_| ()).await?;
                        return Ok(StepOutcome::RequeueAfter(AWAITING));
                    }
                    listed => listed.attempting("listing the namespace as in use")?,
                }
                self.draw(cluster).await?;
            }
            Deploy(allotted) => return self.first(cluster, &around, &wished, &allotted).await,
        }
        Ok(StepOutcome::RequeueNow)
    }

    /// The VMs with the stamp of a cluster for which nothing was begun.
    async fn there(&self, cluster: &TenantCluster, around: &References) -> Result<Vec<Vm>, Obstacle> {
        let Some(provider) = &around.provider else {
            let words = format!(
                "there is no Provider {}, so VMs of the cluster cannot be listed",
                cluster.spec.provider_ref.name
            );
            return Err(Obstacle::new(TenantClusterReason::ReferenceMissing, words));
        };
        let opened = self.open(cluster, provider, false).await.map_err(|why| unavailable(&why))?;
        opened.hypervisor.vms().await.map_err(|error| {
            let words = format!("looking for VMs on the Provider {}: {error}", provider.name_any());
            Obstacle::new(TenantClusterReason::PreflightNotKnown, words)
        })
    }

    pub(in crate::reconcilers) async fn load_references(
        &self,
        cluster: &TenantCluster,
    ) -> Result<References, ReconcileError> {
        let provider = self.provider(cluster).await?;
        let pools = tolerant::<IPPool>(self.objects).await?.all();
        let own = self.own_addresses().await?;
        let providers = tolerant::<Provider>(self.objects).await?.all();
        // These addresses belong to the control cluster or a vCenter, even if the pool does not reserve them.
        let own_or_vcenters = own.iter().copied().chain(providers.iter().flat_map(server_addresses));
        let in_use: Vec<Ipv4Addr> = own_or_vcenters.chain(self.objects.control_cluster().virtual_address).collect();
        let pools = leaving_out(pools, &in_use);
        let tenants = tenants(self.objects).await?;
        let namespace = cluster.namespace().unwrap_or_default();
        let mut images = self.images(cluster).await?;
        // The newest allowed image is chosen, unless the cluster has or names one.
        let has = [cluster.spec.image.as_ref(), cluster.resolved().and_then(|resolved| resolved.image.as_ref())];
        images.retain(|image| {
            let name = image.name_any();
            has.contains(&Some(&name)) || Access::of(&tenants, &namespace).image(&name).is_none()
        });
        let class = self.class(cluster).await?;
        let (keys, secrets) = self.named_secrets(cluster).await?;
        let node_pools = self.pools(cluster).await?;
        let workers = u32::try_from(workers_of(&node_pools).desired).unwrap_or_default();
        let obstacles = obstacles(&PreflightInputs {
            cluster,
            provider: provider.as_ref(),
            class: class.as_ref(),
            pools: &pools,
            tenants: &tenants,
            secrets: &keys,
            workers,
        });
        let is_bounded = !cluster.spec.site.admin_cidrs.is_empty();
        let controllers = own.iter().filter(|_| is_bounded).map(|address| format!("{address}/32")).collect();
        Ok(References { provider, pools, images, class, secrets, obstacles, node_pools, tenants, workers, controllers })
    }

    /// The addresses of the control cluster's nodes, on which controllers run. Tenant nodes see calls from these.
    async fn own_addresses(&self) -> Result<Vec<Ipv4Addr>, ReconcileError> {
        let nodes = all::<Node>(self.objects).await?;
        let addresses = nodes.into_iter().filter_map(|node| node.status?.addresses).flatten();
        let own = addresses.filter(|address| address.type_ == "InternalIP");
        let mut own: Vec<Ipv4Addr> = own.filter_map(|address| address.address.parse().ok()).collect();
        own.sort();
        own.dedup();
        Ok(own)
    }

    /// The class of a cluster's control-plane nodes. `None` if it does not exist, or is `auto`.
    pub(super) async fn class(&self, cluster: &TenantCluster) -> Result<Option<VMClass>, ReconcileError> {
        match cluster.spec.control_plane.vm_class.as_str() {
            AUTO => Ok(None),
            name => kinds::find::<VMClass>(self.objects, None, name).await.attempting("reading the VMClass"),
        }
    }

    pub(super) async fn pools(&self, cluster: &TenantCluster) -> Result<Vec<NodePool>, ReconcileError> {
        let name = cluster.name_any();
        let of_cluster = Some((CLUSTER_REF, name.as_str()));
        let own = kinds::list::<NodePool>(self.objects, cluster.namespace().as_deref(), of_cluster).await;
        own.attempting("looking for the cluster's NodePools")
    }

    async fn creation_inputs<'c>(
        &self,
        cluster: &'c TenantCluster,
        around: &References,
        races: u32,
    ) -> Result<CreationInputs<'c>, ReconcileError> {
        let named = NamedBySpec {
            images: &around.images,
            class: around.class.as_ref().map(|class| &class.spec),
            workers: around.workers,
        };
        let resolved = match Obstacle::of_all(around.obstacles.clone()) {
            Some(obstacle) => Err(obstacle),
            None => resolved(&cluster.spec, cluster.resolved(), &named),
        };
        let wanted = match (&resolved, &around.provider) {
            (Ok(resolved), Some(provider)) => {
                let namespace = cluster.namespace().unwrap_or_default();
                machines(cluster, resolved, &Access::of(&around.tenants, &namespace).narrowed(provider))
            }
            _ => Vec::new(),
        };
        let machines = self.control_machines(cluster).await?;
        let limits = self.limits(cluster, around, &wanted).await?;
        let addresses = self.claiming(cluster, around, (&machines[..], &wanted[..]), races).await?;
        let Addresses { claiming, left_over, held, comes_first } = addresses;
        let keys = self.keys(cluster).await?.map_or_else(|seen| seen, |_| KeysSeen::There);
        let place = None;
        Ok(CreationInputs {
            cluster,
            resolved,
            wanted,
            machines,
            limits,
            left_over,
            held,
            claiming,
            comes_first,
            keys,
            place,
        })
    }

    /// Why the Provider's limits, the Tenant's quota or the free capacity have no room for the control-plane nodes. Checked again
    /// after each step: of several clusters that saw the same room, only the first one continues.
    async fn limits(
        &self,
        cluster: &TenantCluster,
        around: &References,
        wanted: &[Machine],
    ) -> Result<Option<Obstacle>, ReconcileError> {
        let Some(provider) = around.provider.as_ref().filter(|_| !wanted.is_empty()) else { return Ok(None) };
        let wanted: Vec<&MachineSpec> = wanted.iter().map(|machine| &machine.spec).collect();
        let tenant = tenant_of(&around.tenants, &cluster.namespace().unwrap_or_default());
        let mut over = None;
        if is_bounded(provider, tenant) {
            let inventory = self.objects.inventory().await.attempting("looking at what clusters have")?;
            let usage = ResourceUsage::of(wanted.iter().copied()).and(ResourceUsage::of_cluster(cluster));
            over = limits(&inventory.budgets_before(provider, cluster), usage);
        }
        Ok(over.or_else(|| capacity(provider, &wanted)))
    }

    /// The next step for a cluster's addresses, the addresses to release, and those that it has. `there` are its Machines,
    /// `wanted` those to create: if addresses are not available for all of them, it claims none.
    async fn claiming(
        &self,
        cluster: &TenantCluster,
        around: &References,
        (there, wanted): (&[Machine], &[Machine]),
        races: u32,
    ) -> Result<Addresses, ReconcileError> {
        let seen = self.objects.in_use(None).await.attempting("looking for PoolAddresses")?;
        let own = seen.of(cluster.metadata.uid.as_deref());
        let held = left_over(cluster, &[], &own);
        let none = |obstacle| Addresses {
            claiming: Err(obstacle),
            left_over: Vec::new(),
            held: held.clone(),
            comes_first: false,
        };
        let Some(pool) = around.pool_of_nodes(cluster) else {
            let words = "the network of the control-plane nodes has no IPPool";
            return Ok(none(Obstacle::new(TenantClusterReason::ReferenceMissing, words)));
        };
        let claims = match claims(cluster, &complete(there, wanted), &pool.name_any()) {
            Ok(claims) => claims,
            Err(obstacle) => return Ok(none(obstacle)),
        };
        let left_over = left_over(cluster, &claims, &own);
        let claiming = next_claim(&claims, &around.pools, seen.specs(), races);
        // A cluster without Machines has no addresses to release.
        let comes_first = claiming.is_err() && !there.is_empty() && {
            let inventory = self.objects.inventory().await.attempting("looking at who waits for addresses, too")?;
            inventory.comes_first(cluster, &pools_of(&claims), seen.specs())
        };
        Ok(Addresses { claiming, left_over, held, comes_first })
    }

    /// The obstacles to a creation: by the properties of the nodes, with their present or next addresses, and by the place.
    async fn judged(
        &self,
        cluster: &TenantCluster,
        around: &References,
        wished: &CreationInputs<'_>,
    ) -> Result<Option<Obstacle>, ReconcileError> {
        let (Some(provider), Ok(resolved), Ok(claiming)) = (&around.provider, &wished.resolved, &wished.claiming)
        else {
            return Ok(None);
        };
        let allotted = claiming.allotted();
        let nodes = nodes(&wished.machines, allotted);
        let pinned = Resolved {
            endpoint: allotted.endpoint.map(|address| address.to_string()),
            service_vips: allotted.service_vips.iter().map(ToString::to_string).collect(),
            ..pinned(cluster, resolved)
        };
        let carried = around.images.iter().find(|image| Some(image.name_any()) == resolved.image);
        let carried = carried.and_then(|image| image.status.as_ref()).map(|status| status.kubernetes.clone());
        let refused = node_settings(cluster, around, &pinned, &nodes)
            .map(|told| told.obstacles(&carried.unwrap_or_default(), SystemTime::now()))
            .unwrap_or_default();
        if let Some(obstacle) = Obstacle::of_all(refused) {
            return Ok(Some(obstacle));
        }
        let mut zones: Vec<String> = nodes.into_iter().map(|node| node.zone).collect();
        zones.dedup();
        Ok(self.obstacle_there(cluster, provider, resolved, &zones).await)
    }

    /// Removes a Machine for which no VM was begun.
    async fn unmake(&self, machine: &Machine) -> Result<(), ReconcileError> {
        for address in &self.addresses_of(machine.metadata.uid.as_deref()).await? {
            kinds::delete(self.objects, address).await.attempting("giving an address back")?;
        }
        self.forget(machine).await
    }

    pub(super) async fn addresses_of(&self, uid: Option<&str>) -> Result<Vec<PoolAddress>, ReconcileError> {
        let Some(uid) = uid else { return Ok(Vec::new()) };
        let own = kinds::list::<PoolAddress>(self.objects, None, Some((CLAIMANT, uid))).await;
        own.attempting("looking for PoolAddresses")
    }

    /// Deletes a Machine whose VM is gone, or was never begun.
    pub(super) async fn forget(&self, machine: &Machine) -> Result<(), ReconcileError> {
        const ATTEMPT: &str = "removing a Machine";
        let mut found = Some(machine.clone());
        if machine.metadata.deletion_timestamp.is_none() {
            kinds::delete(self.objects, machine).await.attempting(ATTEMPT)?;
            let (namespace, name) = (machine.namespace(), machine.name_any());
            found = kinds::find(self.objects, namespace.as_deref(), &name).await.attempting(ATTEMPT)?;
        }
        let Some(left) = found.filter(|found| found.metadata.uid == machine.metadata.uid) else { return Ok(()) };
        kinds::remove_finalizer(self.objects, &left, MACHINE_FINALIZER).await.map(drop).attempting(ATTEMPT)
    }

    async fn make(&self, cluster: &TenantCluster, machine: &Machine) -> Result<StepOutcome, ReconcileError> {
        match kinds::create(self.objects, machine).await {
            Ok(made) => {
                // The VM is created with the Machine's UID. The age of a Machine that was only found is unknown.
                if let Some(uid) = made.metadata.uid.and_then(|uid| uid.parse::<Uuid>().ok()) {
                    self.term.unfinished().begins(uid);
                }
                Ok(StepOutcome::RequeueNow)
            }
            Err(Failure::Exists) => {
                // An earlier call whose answer was lost, or another object with this name.
                let name = machine.name_any();
                let own = self.control_machines(cluster).await?;
                if own.iter().any(|own| own.name_any() == name) {
                    return Ok(StepOutcome::RequeueNow);
                }
                let words = format!("there is a Machine {name} that was not made for this cluster: remove it");
                let obstacle = Obstacle::new(TenantClusterReason::NameTaken, words);
                self.note(cluster, &before(Some(&obstacle), false), |_| ()).await?;
                Ok(StepOutcome::RequeueAfter(AWAITING))
            }
            Err(failure) => Err(failure).attempting("making a Machine"),
        }
    }

    /// Runs the first deploy. From then on the record is in the cluster's status.
    async fn first(
        &self,
        cluster: &TenantCluster,
        around: &References,
        wished: &CreationInputs<'_>,
        allotted: &AllocatedAddresses,
    ) -> Result<StepOutcome, ReconcileError> {
        let (Some(provider), Ok(resolved), Ok(keys)) = (&around.provider, &wished.resolved, self.keys(cluster).await?)
        else {
            return Ok(StepOutcome::RequeueNow);
        };
        self.note(cluster, &before(None, false), |status| pin_told(status, &cluster.spec, around)).await?;
        let opened = match self.open(cluster, provider, true).await {
            Ok(opened) => opened,
            Err(why) => {
                self.note(cluster, &before(Some(&unavailable(&why)), false), |_| ()).await?;
                return Ok(StepOutcome::RequeueAfter(AWAITING));
            }
        };
        let (nodes, pinned) = (nodes(&wished.machines, allotted), pinned(cluster, resolved));
        let Some(told) = node_settings(cluster, around, &pinned, &nodes) else { return Ok(StepOutcome::RequeueNow) };
        let wanted = told.wanted(&keys, opened.networks.clone(), &opened.placements)?;
        let guests = self.guests(cluster, Some(keys.deployer));
        let round = Round {
            reconciler: *self,
            cluster,
            machines: &wished.machines,
            opened: &opened,
            guests: &guests,
            access: &ClusterAccess::default(),
        };
        let ran = round.run_deploy(Goal::Deploy(&wanted)).await?;
        round.after(ran, None, None).await
    }
}

fn pools_of(claims: &[Claim]) -> Vec<&str> {
    let of_pools = claims.iter().filter_map(|claim| match &claim.from {
        Source::Pool(pool) => Some(pool.as_str()),
        Source::Named(_) => None,
    });
    of_pools.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The existing Machines, and the missing ones with a placeholder instead of their UID.
fn complete(there: &[Machine], wanted: &[Machine]) -> Vec<Machine> {
    let is_there = |wanted: &&Machine| there.iter().any(|machine| machine.metadata.name == wanted.metadata.name);
    let missing = wanted.iter().filter(|wanted| !is_there(wanted)).map(|wanted| {
        let mut machine = wanted.clone();
        machine.metadata.uid = Some(format!("of {}", machine.name_any()));
        machine
    });
    there.iter().cloned().chain(missing).collect()
}

/// Stores hashes of the settings that control-plane nodes get from the spec, before any is created from it.
pub(super) fn pin_told(status: &mut TenantClusterStatus, spec: &TenantClusterSpec, around: &References) {
    if let Some(resolved) = &mut status.resolved {
        resolved.node_settings = node_settings_hashes(spec, &around.secrets.versions);
    }
}

/// The resolved references in the status, or these ones.
fn pinned(cluster: &TenantCluster, resolved: &Resolved) -> Resolved {
    cluster.resolved().unwrap_or(resolved).clone()
}

/// The sources of the nodes' OVF properties. `None` if the pool of their addresses does not exist.
pub(in crate::reconcilers) fn node_settings<'a>(
    cluster: &'a TenantCluster,
    around: &'a References,
    resolved: &'a Resolved,
    nodes: &'a [ControlNode],
) -> Option<NodeSettings<'a>> {
    Some(NodeSettings {
        cluster,
        resolved,
        nodes,
        pool: &around.pool_of_nodes(cluster)?.spec,
        secrets: &around.secrets,
        controllers: &around.controllers,
    })
}

/// The control-plane nodes, from their Machines and addresses.
fn nodes(machines: &[Machine], allotted: &AllocatedAddresses) -> Vec<ControlNode> {
    let addresses: BTreeMap<&str, Ipv4Addr> =
        allotted.nodes.iter().map(|(uid, address)| (uid.as_str(), *address)).collect();
    let node = |machine: &Machine| {
        let uid = machine.metadata.uid.as_deref()?;
        Some(ControlNode {
            name: machine.name_any(),
            address: *addresses.get(uid)?,
            machine: uid.parse::<Uuid>().ok()?,
            zone: machine.spec.zone.clone(),
        })
    };
    let mut nodes: Vec<ControlNode> = machines.iter().filter_map(node).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

/// The message while VMs of a cluster cannot be listed: the reason, the addresses that it keeps meanwhile, and a remedy.
fn held_for(unseen: Obstacle, wished: &CreationInputs<'_>) -> Obstacle {
    if wished.held.is_empty() && wished.machines.is_empty() {
        return unseen;
    }
    let other = wished.resolved.as_ref().err().or(wished.limits.as_ref());
    let other = other.filter(|other| !unseen.message.contains(&other.message));
    let other = match other {
        _ if wished.cluster.spec.paused => "it is paused; ".to_owned(),
        Some(other) => format!("{}; ", other.message),
        None => String::new(),
    };
    let way_out = match unseen.reason {
        TenantClusterReason::ReferenceMissing => {
            ": make the Provider again; or, only if no VM of it runs in the vCenter, delete the TenantCluster, which gives them back: such a VM \
             is not looked for then, and others get the address that it has"
        }
        _ => "",
    };
    let words =
        format!("{other}{}. Its Machines and addresses stay until its VMs can be listed{way_out}", unseen.message);
    Obstacle::new(unseen.reason, words)
}
