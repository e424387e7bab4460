//! The objects that a pool names, and the template of a further worker.

use contract::kubeconfig::Kubeconfig;
use fleet::workers::{Cluster, Pool, Site, ca_hash};
use kube::ResourceExt;

use super::PoolReconciler;
use super::deleted_cluster::DeletedCluster;
use crate::context::{Attempt, Halt, ReconcileError};
use crate::decisions::{
    Access, NodePlace, PoolAllowance, WantedPool, WorkerImage, emptied_pool, is_bounded, is_leaving, keeps_room,
    machine_template, may_make, pool_allowance, site, wanted_pool, worker_image, workers_in_range, workers_that_fit,
    zones_of_pool,
};
use crate::objects::{
    IPPool, Machine, NodeImage, NodePool, NodePoolReason, NodePoolSpec, Provider, Tenant, TenantCluster, VMClass,
    VMClassSpec,
};
use crate::reach::kinds;
use crate::reconcilers::tenant_cluster::{ensure_own_record, node_settings, nodes};

/// The desired state of a pool, and its cluster's API.
pub(super) struct PoolContext {
    pub(super) cluster: TenantCluster,
    pub(super) provider: Provider,
    pub(super) tenants: Vec<Tenant>,
    pub(super) wanted: Pool,
    pub(super) like: Machine,
    /// The zones over which further workers are spread.
    pub(super) zones: Vec<String>,
    pub(super) addresses: Option<IPPool>,
    /// Why that pool gives out no address, if so.
    pub(super) overlap: Option<String>,
    pub(super) site: Site,
    pub(super) api: Box<dyn Cluster>,
    pub(super) held: PoolAllowance,
    /// Whether the cluster is being deleted: pods are not evicted from workers then.
    pub(super) goes: bool,
}

/// Why a pool cannot be reconciled now.
pub(super) type Unready = (NodePoolReason, String);

fn unready(reason: NodePoolReason, words: impl Into<String>) -> Halt<Unready> {
    Halt::Refused((reason, words.into()))
}

impl PoolReconciler<'_> {
    pub(super) async fn known(&self, pool: &NodePool, machines: &[Machine]) -> Result<PoolContext, Halt<Unready>> {
        use NodePoolReason::{ClusterNotReady, Unfit};
        let (work, name) = (&self.0, &pool.spec.cluster_ref.name);
        let cluster = kinds::find::<TenantCluster>(work.objects, pool.namespace().as_deref(), name).await;
        let Some(cluster) = cluster.attempting("reading the pool's cluster")? else {
            return Err(unready(ClusterNotReady, format!("there is no TenantCluster {name}")));
        };
        if let Err(error) = ensure_own_record(&cluster) {
            return Err(unready(Unfit, error.to_string()));
        }
        let Some(provider) = work.provider(&cluster).await? else {
            return Err(unready(Unfit, format!("there is no Provider {}", cluster.spec.provider_ref.name)));
        };
        let goes = is_leaving(&cluster);
        let api: Box<dyn Cluster> = if goes {
            Box::new(DeletedCluster)
        } else {
            let text = work.kubeconfig(&cluster).await?;
            let missing = || unready(ClusterNotReady, format!("the cluster {name} has no kubeconfig yet"));
            let api = work.places.cluster(&text.ok_or_else(missing)?);
            api.map_err(|why| unready(ClusterNotReady, format!("the kubeconfig of {name}: {why:#}")))?
        };
        if goes || pool.metadata.deletion_timestamp.is_some() {
            // Objects for further workers are not needed.
            let first = machines.first().ok_or_else(|| unready(ClusterNotReady, "it goes"))?;
            return Ok(PoolContext {
                cluster,
                provider,
                tenants: Vec::new(),
                wanted: emptied_pool(pool, first).map_err(anyhow::Error::from)?,
                like: first.clone(),
                zones: vec![first.spec.zone.clone()],
                addresses: None,
                overlap: None,
                site: Site::default(),
                api,
                held: PoolAllowance::default(),
                goes,
            });
        }
        self.made_of(pool, machines, cluster, provider, api).await
    }

    async fn made_of(
        &self,
        pool: &NodePool,
        machines: &[Machine],
        cluster: TenantCluster,
        provider: Provider,
        api: Box<dyn Cluster>,
    ) -> Result<PoolContext, Halt<Unready>> {
        use NodePoolReason::{ClusterNotReady, NotSupported, Unfit};
        let work = &self.0;
        let name = cluster.name_any();
        if pool.spec.network.as_ref().is_some_and(|network| *network != cluster.spec.network.name) {
            let words = "workers are on the network of the control-plane nodes: leave network out";
            return Err(unready(NotSupported, words));
        }
        let class =
            kinds::find::<VMClass>(work.objects, None, &pool.spec.vm_class).await.attempting("reading the VMClass")?;
        let class = class.ok_or_else(|| unready(Unfit, format!("there is no VMClass {}", pool.spec.vm_class)))?;
        let status = cluster.status.clone().unwrap_or_default();
        let image = worker_image(&cluster).map_err(|words| unready(ClusterNotReady, words))?;
        let (Some(resolved), Some(deployment)) = (&status.resolved, &status.deployment) else {
            return Err(unready(ClusterNotReady, format!("the control-plane nodes of {name} have not formed yet")));
        };
        let WorkerImage { name: image, digest, kubernetes } = image;
        let found = kinds::find::<NodeImage>(work.objects, None, &image).await.attempting("reading the NodeImage")?;
        let Some(found) = found.filter(|found| found.spec.digest == digest) else {
            return Err(unready(Unfit, format!("there is no NodeImage {image} as the cluster is on")));
        };
        let around = work.load_references(&cluster).await?;
        let namespace = pool.namespace().unwrap_or_default();
        let access = Access::of(&around.tenants, &namespace);
        // A refused zone prevents only further workers.
        let zones = zones_of_pool(&pool.spec, &access.narrowed(&provider));
        let zones = zones.or_else(|_| zones_of_pool(&pool.spec, &provider)).map_err(|words| unready(Unfit, words))?;
        let control = work.control_machines(&cluster).await?;
        let nodes = nodes(deployment, &control);
        let (Some(told), Some(first)) = (node_settings(&cluster, &around, resolved, &nodes), nodes.first()) else {
            return Err(unready(Unfit, "the network of the cluster has no IPPool"));
        };
        let form = told.form(first)?;
        let kubeconfig = work.kubeconfig(&cluster).await?.unwrap_or_default();
        let authority = Kubeconfig::parse(&kubeconfig).map_err(anyhow::Error::from)?.authority;
        let site = site(&form, ca_hash(&authority)?);
        let addresses = around.pool_of_nodes(&cluster).cloned();
        let overlap = addresses.as_ref().and_then(|pool| around.overlap(pool));
        let carries = found.status.map(|status| status.kubernetes).unwrap_or_default();
        let wanted = wanted_pool(&WantedPool {
            name: &pool.name_any(),
            spec: &pool.spec,
            class: &class.spec,
            image: &image,
            digest: &digest,
            carries: &carries,
            cluster: kubernetes,
            addresses: addresses.as_ref().map(|pool| &pool.spec),
        });
        let mut wanted = wanted.map_err(|why| unready(Unfit, why.to_string()))?;
        let of_pool = pool.status.clone().unwrap_or_default();
        wanted.last_index = u64::try_from(of_pool.last_index).unwrap_or_default();
        wanted.failed_joins = Some(of_pool.failed_joins);
        wanted.rollout.paused |= cluster.spec.paused;
        let mut held = self.held((&cluster, pool), machines, (&provider, access), &class.spec, &wanted).await?;
        let kept = machines.iter().filter(|machine| keeps_room(machine)).count();
        if let Some((room, words)) = workers_that_fit(&provider, &zones, &class.spec) {
            held = held.within(kept, room, (NodePoolReason::CapacityMissing, words));
        }
        if let Some((most, words)) = workers_in_range(&cluster, pool, around.node_pools()) {
            held = held.within(kept, most.saturating_sub(kept), (NodePoolReason::PodRangeExhausted, words));
        }
        if let Some(words) = &overlap {
            let name = addresses.as_ref().map(ResourceExt::name_any).unwrap_or_default();
            let words = format!("the IPPool {name} gives out no address: {words}");
            held.stands.get_or_insert_with(|| words.clone());
            held = held.within(kept, 0, (Unfit, words));
        }
        held.holds(&mut wanted);
        let like = machine_template(&cluster, pool, &wanted, &class.spec, zones.first().map_or("", String::as_str));
        Ok(PoolContext {
            cluster,
            provider,
            tenants: around.tenants,
            wanted,
            like,
            zones,
            addresses,
            overlap,
            site,
            api,
            held,
            goes: false,
        })
    }

    async fn held(
        &self,
        (cluster, pool): (&TenantCluster, &NodePool),
        machines: &[Machine],
        (provider, access): (&Provider, Access<'_>),
        class: &VMClassSpec,
        wanted: &Pool,
    ) -> Result<PoolAllowance, ReconcileError> {
        let budgets = if is_bounded(provider, access.tenant()) && may_make(wanted, machines) {
            let inventory = self.0.objects.inventory().await.attempting("looking at what clusters have")?;
            inventory.budgets(provider, &pool.namespace().unwrap_or_default(), |_| true)
        } else {
            Vec::new()
        };
        let NodePoolSpec { zones, vm_class, .. } = &pool.spec;
        let place = NodePlace { zones, network: &cluster.spec.network.name, class: vm_class };
        let forbidden = access.nodes(provider, &place);
        Ok(pool_allowance(&budgets, forbidden, machines, class, (wanted.count, wanted.rollout.max_surge)))
    }
}
