//! The limits of a Provider's clusters and the quota of a Tenant's, and what is left of them. All existing Machines count, before a
//! cluster or a worker is created. Knows nothing of places: the vCenter's own capacity is checked with the vCenter.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use fleet::workers::{OUTDATED, Pool, UNHEALTHY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::access::{namespaces_of, tenant_of};
use super::cluster::is_begun;
use super::obstacle::Obstacle;
use crate::objects::{
    AddressRange, Limits, Machine, MachineSpec, NodePoolReason, Phase, PoolAddressSpec, Provider, Quota, Reference,
    Tenant, TenantCluster, TenantClusterReason, VMClassSpec,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub clusters: u64,
    pub nodes: u64,
    pub processors: u64,
    pub memory_mib: u64,
    /// Addresses for endpoints and Services. Each node has one more.
    pub vips: u64,
}

impl ResourceUsage {
    pub fn of<'m>(machines: impl IntoIterator<Item = &'m MachineSpec>) -> Self {
        let one = |machine: &MachineSpec| Self::sized(1, machine.processors, machine.memory_mib);
        machines.into_iter().map(one).fold(Self::default(), Self::and)
    }

    fn sized(count: u64, processors: u32, memory_mib: u32) -> Self {
        let (processors, memory_mib) = (count * u64::from(processors), count * u64::from(memory_mib));
        Self { nodes: count, processors, memory_mib, ..Self::default() }
    }

    /// A cluster without its nodes.
    pub fn of_cluster(cluster: &TenantCluster) -> Self {
        Self { clusters: 1, vips: vips(cluster), ..Self::default() }
    }

    /// The addresses of nodes, endpoints and Services.
    pub fn addresses(self) -> u64 {
        self.nodes + self.vips
    }

    /// In the order of a budget.
    fn amounts(self) -> [u64; 5] {
        [self.clusters, self.nodes, self.processors, self.memory_mib, self.addresses()]
    }

    fn without(self, other: Self) -> Self {
        Self {
            clusters: self.clusters.saturating_sub(other.clusters),
            vips: self.vips.saturating_sub(other.vips),
            nodes: self.nodes.saturating_sub(other.nodes),
            processors: self.processors.saturating_sub(other.processors),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            clusters: self.clusters + other.clusters,
            vips: self.vips + other.vips,
            nodes: self.nodes + other.nodes,
            processors: self.processors + other.processors,
            memory_mib: self.memory_mib + other.memory_mib,
        }
    }
}

/// The addresses of a cluster for its endpoint and its Services. Those that it has stay, even if its spec names fewer.
fn vips(cluster: &TenantCluster) -> u64 {
    let has = cluster.resolved().map_or(0, |resolved| resolved.service_vips.len() as u64);
    let Some(vips) = &cluster.spec.network.service_vips else { return 1 + has };
    let number = |address: &str| address.parse::<Ipv4Addr>().map_or(0, u32::from);
    let size = |range: &AddressRange| u64::from(number(&range.last).saturating_sub(number(&range.first))) + 1;
    let named = u64::from(vips.count.unwrap_or_default()) + vips.ranges.iter().flatten().map(size).sum::<u64>();
    1 + named.max(has)
}

/// A Provider's limits or a Tenant's quota, and what of it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    whose: String,
    reason: TenantClusterReason,
    most: [Option<u64>; 5],
    used: ResourceUsage,
}

impl Budget {
    /// `None` if the Provider has no limits.
    pub fn of_provider(provider: &Provider, used: ResourceUsage) -> Option<Self> {
        let Limits { nodes, processors, memory_mib } = provider.spec.limits.clone()?;
        let most = [None, nodes.map(u64::from), processors.map(u64::from), memory_mib, None];
        let whose = format!("the Provider {}", provider.name_any());
        Some(Self { whose, reason: TenantClusterReason::CapacityMissing, most, used })
    }

    /// `None` if the Tenant has no quota.
    pub fn of_tenant(tenant: &Tenant, used: ResourceUsage) -> Option<Self> {
        let Quota { clusters, nodes, processors, memory_mib, addresses } = tenant.spec.quota.clone()?;
        let [clusters, nodes, processors, addresses] =
            [clusters, nodes, processors, addresses].map(|most| most.map(u64::from));
        let most = [clusters, nodes, processors, memory_mib, addresses];
        let whose = format!("the Tenant {}", tenant.name_any());
        Some(Self { whose, reason: TenantClusterReason::QuotaExceeded, most, used })
    }

    fn limited(&self, wanted: ResourceUsage) -> impl Iterator<Item = Limited> {
        const NAMES: [&str; 5] = ["clusters", "nodes", "processors", "MiB of memory", "addresses"];
        let amounts = self.used.amounts().into_iter().zip(wanted.amounts());
        let all = NAMES.into_iter().zip(self.most).zip(amounts);
        all.filter_map(|((what, most), (used, wanted))| Some(Limited { what, most: most?, used, wanted }))
    }

    fn over(&self, limited: &Limited) -> Option<Obstacle> {
        let Limited { what, most, used, wanted } = limited;
        let whose = &self.whose;
        let words = format!("clusters of {whose} may have {most} {what}: {used} are taken, and {wanted} wanted");
        (used + wanted > *most).then(|| Obstacle::new(self.reason, words))
    }
}

/// A limited resource.
struct Limited {
    what: &'static str,
    most: u64,
    used: u64,
    wanted: u64,
}

/// Why the budgets have no room for further Machines, if they have none.
pub fn limits(budgets: &[Budget], wanted: ResourceUsage) -> Option<Obstacle> {
    let over = |budget: &Budget| budget.limited(wanted).filter_map(|limited| budget.over(&limited)).collect::<Vec<_>>();
    Obstacle::of_all(budgets.iter().flat_map(over).collect())
}

/// As [`limits`], for existing Machines that grow. They keep what they have, even if limits were lowered. Only resources that
/// grow are checked.
pub fn growth(budgets: &[Budget], had: ResourceUsage, wanted: ResourceUsage) -> Option<Obstacle> {
    let over = |budget: &Budget| {
        let both = budget.limited(wanted).zip(budget.limited(had));
        let growing = both.filter(|(wanted, had)| wanted.wanted > had.wanted);
        growing.filter_map(|(limited, _)| budget.over(&limited)).collect::<Vec<_>>()
    };
    Obstacle::of_all(budgets.iter().flat_map(over).collect())
}

/// The budgets with another usage.
fn with_usage(budgets: &[Budget], change: impl Fn(ResourceUsage) -> ResourceUsage) -> Vec<Budget> {
    budgets.iter().map(|budget| Budget { used: change(budget.used), ..budget.clone() }).collect()
}

/// Whether a Provider's limits or a Tenant's quota bound clusters.
pub fn is_bounded(provider: &Provider, tenant: Option<&Tenant>) -> bool {
    provider.spec.limits.is_some() || tenant.is_some_and(|tenant| tenant.spec.quota.is_some())
}

#[derive(Clone, Debug, Default)]
pub struct ClusterInventory {
    pub clusters: Vec<TenantCluster>,
    /// Clusters whose status cannot be read, without it. They may be begun, and count so.
    pub unread: Vec<TenantCluster>,
    pub machines: Vec<Machine>,
    pub tenants: Vec<Tenant>,
}

/// The clusters that a bound counts.
#[derive(Clone, Copy)]
pub enum Scope<'s> {
    Provider(&'s str),
    /// Those of these namespaces, on all Providers.
    Namespaces(&'s [String]),
}

impl Scope<'_> {
    fn has(self, cluster: &TenantCluster) -> bool {
        match self {
            Self::Provider(name) => cluster.spec.provider_ref.name == name,
            Self::Namespaces(names) => cluster.namespace().is_some_and(|namespace| names.contains(&namespace)),
        }
    }

    /// Whether a Machine counts whose cluster was deleted. It still has its VM, and its Provider is unknown: it counts on each.
    fn has_lost(self, machine: &Machine) -> bool {
        match self {
            Self::Provider(_) => true,
            Self::Namespaces(names) => machine.namespace().is_some_and(|namespace| names.contains(&namespace)),
        }
    }
}

/// Namespace and name of a cluster.
pub(super) type Key = (Option<String>, String);

pub(super) fn key_of(cluster: &TenantCluster) -> Key {
    (cluster.namespace(), cluster.name_any())
}

impl ClusterInventory {
    /// The bounds on further Machines in a namespace. Only Machines that `counts` accepts are taken.
    pub fn budgets(&self, provider: &Provider, namespace: &str, counts: impl Fn(&Machine) -> bool) -> Vec<Budget> {
        self.bounds(provider, namespace, |scope| self.used(scope, &counts))
    }

    /// The bounds on a cluster without a VM.
    pub fn budgets_before(&self, provider: &Provider, cluster: &TenantCluster) -> Vec<Budget> {
        let namespace = cluster.namespace().unwrap_or_default();
        self.bounds(provider, &namespace, |scope| self.taken_before(cluster, scope))
    }

    /// Why the bounds have no room for `further` addresses for Services of a cluster that has `held` ones.
    pub fn denied_vips(
        &self,
        provider: &Provider,
        cluster: &TenantCluster,
        (held, further): (usize, usize),
    ) -> Option<Obstacle> {
        let budgets = self.budgets(provider, &cluster.namespace().unwrap_or_default(), |_| true);
        let of = |vips| ResourceUsage { vips, ..ResourceUsage::default() };
        // Its spec names the further ones, so they count already.
        let counted = self.clusters.iter().find(|it| key_of(it) == key_of(cluster)).map_or(0, vips);
        let others = with_usage(&budgets, |used| used.without(of(counted)));
        growth(&others, of(1 + held as u64), of(1 + held as u64 + further as u64))
    }

    fn bounds(&self, provider: &Provider, namespace: &str, taken: impl Fn(Scope<'_>) -> ResourceUsage) -> Vec<Budget> {
        let tenant = tenant_of(&self.tenants, namespace).filter(|tenant| tenant.spec.quota.is_some());
        let of_tenant = tenant.and_then(|tenant| {
            let (namespaces, _) = namespaces_of(&self.tenants, tenant);
            Budget::of_tenant(tenant, taken(Scope::Namespaces(&namespaces)))
        });
        let limited = provider.spec.limits.is_some();
        let of_provider = limited.then(|| Budget::of_provider(provider, taken(Scope::Provider(&provider.name_any()))));
        of_tenant.into_iter().chain(of_provider.flatten()).collect()
    }

    /// The usage of the Machines that `counts` accepts, and of their clusters.
    pub fn used(&self, scope: Scope<'_>, counts: impl Fn(&Machine) -> bool) -> ResourceUsage {
        let (of_clusters, there) = (self.within(scope), self.there());
        let is_within = |machine: &&Machine| {
            let of = cluster_of(machine);
            of_clusters.contains_key(&of) || (!there.contains(&of) && scope.has_lost(machine))
        };
        let machines: Vec<&Machine> = self.machines.iter().filter(is_within).collect();
        let with_machines: BTreeSet<Key> = machines.iter().map(|machine| cluster_of(machine)).collect();
        let is_used = |cluster: &&TenantCluster| {
            is_begun(cluster) || self.is_unread(cluster) || with_machines.contains(&key_of(cluster))
        };
        let clusters = of_clusters.values().copied().filter(is_used).map(ResourceUsage::of_cluster);
        let counted = machines.into_iter().filter(|machine| counts(machine)).map(|machine| &machine.spec);
        clusters.fold(ResourceUsage::of(counted), ResourceUsage::and)
    }

    /// The usage that has precedence over a cluster without a VM: all workers, and all Machines whose cluster was deleted.
    /// Control-plane nodes count if their cluster has begun, or has had Machines for longer. Two waiting clusters never both
    /// wait: a cluster that has not seen the other's Machine is seen by it. A cluster that has begun to create its Machines
    /// counts with all of them.
    pub fn taken_before(&self, cluster: &TenantCluster, scope: Scope<'_>) -> ResourceUsage {
        let (of_clusters, there) = (self.within(scope), self.there());
        let mut control: BTreeMap<Key, Vec<&Machine>> = BTreeMap::new();
        let mut taken = ResourceUsage::default();
        for machine in &self.machines {
            let of = cluster_of(machine);
            let is_lost = !there.contains(&of) && scope.has_lost(machine);
            if !is_lost && !of_clusters.contains_key(&of) {
                continue;
            }
            if is_lost || machine.spec.pool_ref.is_some() {
                taken = taken.and(ResourceUsage::of([&machine.spec]));
            } else {
                control.entry(of).or_default().push(machine);
            }
        }
        let own = control.remove(&key_of(cluster)).map(|machines| since(cluster, &machines));
        for (of, machines) in control {
            let Some(other) = of_clusters.get(&of) else { continue };
            let came_before = || own.as_ref().is_none_or(|own| since(other, &machines) < *own);
            if is_begun(other) || self.is_unread(other) || came_before() {
                let spec = &machines[0].spec;
                let left = u64::from(other.spec.control_plane.replicas).saturating_sub(machines.len() as u64);
                let there = ResourceUsage::of(machines.iter().map(|machine| &machine.spec));
                taken = taken.and(there).and(ResourceUsage::sized(left, spec.processors, spec.memory_mib));
                taken = taken.and(ResourceUsage::of_cluster(other));
            }
        }
        taken
    }

    /// Whether a cluster without a VM precedes all others like it that hold addresses of these pools, and such others exist. If
    /// several clusters each hold a part of what they need, all but the first release theirs, and the first only waits.
    pub fn comes_first<'s>(
        &self,
        cluster: &TenantCluster,
        pools: &[&str],
        seen: impl IntoIterator<Item = &'s PoolAddressSpec>,
    ) -> bool {
        let of_pools = seen.into_iter().filter(|address| pools.contains(&address.pool_ref.name.as_str()));
        let holders: BTreeSet<&str> = of_pools.map(|address| address.claimant.uid.as_str()).collect();
        let control = |of: &TenantCluster| -> Vec<&Machine> {
            let of = key_of(of);
            self.machines.iter().filter(|it| it.spec.pool_ref.is_none() && cluster_of(it) == of).collect()
        };
        let holds = |other: &TenantCluster, machines: &[&Machine]| {
            let uids = machines.iter().map(|machine| &machine.metadata.uid).chain([&other.metadata.uid]);
            uids.filter_map(|uid| uid.as_deref()).any(|uid| holders.contains(uid))
        };
        let is_like_it = |other: &&TenantCluster| !is_begun(other) && other.metadata.uid != cluster.metadata.uid;
        let others = self.clusters.iter().filter(is_like_it).filter_map(|other| {
            let machines = control(other);
            holds(other, &machines).then(|| since(other, &machines))
        });
        let (own, others) = (control(cluster), others.collect::<Vec<_>>());
        let came = since(cluster, &own);
        !own.is_empty() && !others.is_empty() && others.iter().all(|other| came < *other)
    }

    fn there(&self) -> BTreeSet<Key> {
        self.clusters.iter().chain(&self.unread).map(key_of).collect()
    }

    fn within(&self, scope: Scope<'_>) -> BTreeMap<Key, &TenantCluster> {
        let all = self.clusters.iter().chain(&self.unread).filter(|cluster| scope.has(cluster));
        all.map(|cluster| (key_of(cluster), cluster)).collect()
    }

    fn is_unread(&self, cluster: &TenantCluster) -> bool {
        self.unread.iter().any(|unread| key_of(unread) == key_of(cluster))
    }
}

pub(super) fn cluster_of(machine: &Machine) -> Key {
    let Reference { name, .. } = &machine.spec.cluster_ref;
    (machine.namespace(), name.clone())
}

/// Since when a cluster has Machines. In the same second, the lower UID is first.
pub(super) fn since(cluster: &TenantCluster, machines: &[&Machine]) -> (Option<Time>, Option<String>) {
    let first = machines.iter().filter_map(|machine| machine.metadata.creation_timestamp.clone()).min();
    (first, cluster.metadata.uid.clone())
}

/// The share of its wish that a NodePool may have now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolAllowance {
    pub count: usize,
    /// Additional workers during a replacement.
    pub surge: usize,
    /// Why there are fewer workers than wanted, if there are.
    pub why: Option<(NodePoolReason, String)>,
    /// Why fewer workers are replaced at a time than allowed, if so.
    pub slow: Option<String>,
    /// Why no existing worker may be replaced: it would have no successor. `None` if there is room for one.
    pub stands: Option<String>,
}

impl PoolAllowance {
    /// Limits further workers to `room`, for this reason. `kept` workers have their room already.
    pub fn within(mut self, kept: usize, room: usize, why: (NodePoolReason, String)) -> Self {
        let most = kept.saturating_add(room);
        if self.surge > most.saturating_sub(self.count) {
            self.surge = most.saturating_sub(self.count);
            self.slow.get_or_insert_with(|| why.1.clone());
        }
        if self.count > most {
            (self.count, self.why) = (most, Some(why));
        }
        self
    }

    /// Limits the pool to this allowance. Workers that do not fit count as unavailable. So a pool that has lost one for lack of
    /// room does not lose another by a replacement.
    pub fn holds(&self, pool: &mut Pool) {
        let missing = pool.count.saturating_sub(self.count);
        pool.count = self.count;
        pool.rollout.max_surge = self.surge;
        pool.rollout.max_unavailable = pool.rollout.max_unavailable.saturating_sub(missing);
        pool.rollout.paused |= self.stands.is_some();
    }
}

/// Whether a worker counts for its pool: it stays, or it leaves for a replacement, which has its room.
pub fn keeps_room(machine: &Machine) -> bool {
    let code = machine.status.as_ref().and_then(|status| Some(status.journal.reason.as_ref()?.code.as_str()));
    !is_leaving_machine(machine) || code.is_some_and(|code| code == OUTDATED || code == UNHEALTHY)
}

/// Whether a worker is being removed, so that another one may replace it.
pub(super) fn is_leaving_machine(machine: &Machine) -> bool {
    let phase = machine.status.as_ref().map(|status| status.phase);
    machine.metadata.deletion_timestamp.is_some() || phase == Some(Phase::Deleting)
}

/// The allowance of a NodePool that wants `count` workers of a class, and `surge` more during a replacement. It follows from the
/// budgets, and from the refusal of what the pool names, if it is `forbidden`. Existing workers stay, and are replaced within the
/// limits. Fewer workers are always allowed. A worker that leaves for a replacement keeps its room for it.
pub fn pool_allowance(
    budgets: &[Budget],
    forbidden: Option<Obstacle>,
    machines: &[Machine],
    class: &VMClassSpec,
    (count, surge): (usize, usize),
) -> PoolAllowance {
    let one = ResourceUsage::sized(1, class.processors, class.memory_mib);
    let staying = machines.iter().filter(|machine| !is_leaving_machine(machine));
    let kept = machines.iter().filter(|machine| keeps_room(machine)).count();
    let limited = budgets.iter().flat_map(|budget| budget.limited(one));
    let fit = limited.filter_map(|Limited { most, used, wanted, .. }| most.saturating_sub(used).checked_div(wanted));
    let room = fit.min().map_or(usize::MAX, |fit| usize::try_from(fit).unwrap_or(usize::MAX));
    let missing = count.saturating_sub(kept);
    let many = |count: usize| ResourceUsage::sized(count as u64, class.processors, class.memory_mib);
    let (further, why) = match forbidden.filter(|_| missing > 0) {
        Some(obstacle) => (0, Some((NodePoolReason::NamespaceNotAllowed, obstacle.message))),
        None if missing > room => {
            let over = limits(budgets, many(missing));
            let is_quota = over.as_ref().is_some_and(|over| over.reason == TenantClusterReason::QuotaExceeded);
            let reason = if is_quota { NodePoolReason::QuotaExceeded } else { NodePoolReason::CapacityMissing };
            (room, Some((reason, over.map(|over| over.message).unwrap_or_default())))
        }
        None => (missing, None),
    };
    let left = room - further.min(room);
    let over = |left: usize| limits(&with_usage(budgets, |used| used.and(many(room - left))), many(surge));
    let slow = (surge > left).then(|| over(left).map(|obstacle| obstacle.message)).flatten();
    // Workers of several sizes: only some may have a successor. The limits at that time decide.
    let without = |machine: &Machine| with_usage(budgets, |used| used.without(ResourceUsage::of([&machine.spec])));
    let refused = staying.map(|machine| limits(&without(machine), one));
    let stands = refused.reduce(|all, next| all.and(next)).flatten();
    let stands = stands.map(|why| format!("a worker that leaves would have no successor: {}", why.message));
    PoolAllowance { count: count.min(kept.saturating_add(further)), surge: surge.min(left), why, slow, stands }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture::{class, cluster, now, provider};
    use crate::objects::{MachineStatus, TenantClusterStatus, TenantStatus};

    fn limits_of(provider: &Provider, used: ResourceUsage, wanted: ResourceUsage) -> Option<Obstacle> {
        limits(&budget(provider, used), wanted)
    }

    fn budget(provider: &Provider, used: ResourceUsage) -> Vec<Budget> {
        Budget::of_provider(provider, used).into_iter().collect()
    }

    #[test]
    fn limit_covers_existing_and_wanted_machines() {
        let mut provider = provider();
        let wanted = ResourceUsage::of(&vec![crate::objects::fixture::worker(); 3]);
        assert_eq!(
            wanted,
            ResourceUsage { nodes: 3, processors: 12, memory_mib: 3 * 16384, ..ResourceUsage::default() }
        );
        let used = ResourceUsage { nodes: 7, processors: 8, memory_mib: 16384, ..ResourceUsage::default() };
        assert_eq!(limits_of(&provider, used, wanted), None, "there are none");
        provider.spec.limits = Some(Limits { nodes: Some(10), processors: Some(20), memory_mib: Some(4 * 16384) });
        assert_eq!(limits_of(&provider, used, wanted), None, "all of it may be taken");
        for (more, words) in [
            (ResourceUsage { nodes: 8, ..used }, "10 nodes: 8 are taken, and 3 wanted"),
            (ResourceUsage { processors: 9, ..used }, "20 processors: 9 are taken, and 12 wanted"),
            (ResourceUsage { memory_mib: 16385, ..used }, "65536 MiB of memory"),
        ] {
            let why = limits_of(&provider, more, wanted).unwrap();
            assert!(why.reason == TenantClusterReason::CapacityMissing && why.message.contains(words), "{why:?}");
        }
    }

    #[test]
    fn growing_node_keeps_its_size_under_lowered_limits() {
        let mut provider = provider();
        let used = ResourceUsage::default();
        let had = ResourceUsage { nodes: 3, processors: 12, memory_mib: 4096, ..used };
        provider.spec.limits = Some(Limits { nodes: Some(1), processors: Some(8), memory_mib: Some(8192) });
        assert_eq!(
            growth(&budget(&provider, used), had, ResourceUsage { memory_mib: 8192, ..had }),
            None,
            "there is memory"
        );
        let more = growth(&budget(&provider, used), had, ResourceUsage { memory_mib: 8193, ..had }).unwrap().message;
        assert!(more.contains("8192 MiB of memory") && !more.contains("nodes"), "{more}");
        let more = growth(&budget(&provider, used), had, ResourceUsage { processors: 13, ..had }).unwrap().message;
        assert!(more.contains("8 processors: 0 are taken, and 13 wanted"), "{more}");
        assert_eq!(
            growth(&budget(&provider, ResourceUsage { memory_mib: 8192, ..used }), had, had),
            None,
            "it wants nothing"
        );
    }

    const DC1: Scope<'_> = Scope::Provider("dc1");
    const DC2: Scope<'_> = Scope::Provider("dc2");

    /// A cluster of three with so many Machines. The first is so many seconds old.
    fn tenant(name: &str, count: usize, age: i64) -> (TenantCluster, Vec<Machine>) {
        let mut cluster = cluster();
        (cluster.metadata.name, cluster.metadata.uid) = (Some(name.to_owned()), Some(name.to_owned()));
        let machine = |number: usize| {
            let mut machine = Machine::new(&format!("{name}-cp{number}"), crate::objects::fixture::worker());
            (machine.spec.cluster_ref, machine.spec.pool_ref) = (Reference::to(name), None);
            machine.metadata.namespace = Some("team-blue".to_owned());
            let second = now().0.as_second() - age + number as i64;
            machine.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
            machine
        };
        let machines = (0..count).map(machine).collect();
        (cluster, machines)
    }

    fn tenants(all: &[(TenantCluster, Vec<Machine>)]) -> ClusterInventory {
        let (clusters, machines): (Vec<_>, Vec<_>) = all.iter().cloned().unzip();
        let machines = machines.into_iter().flatten().collect();
        ClusterInventory { clusters, machines, ..ClusterInventory::default() }
    }

    #[test]
    fn first_waiting_cluster_waits_for_no_other() {
        let nodes = |all: &[(TenantCluster, Vec<Machine>)], of: usize| tenants(all).taken_before(&all[of].0, DC1).nodes;
        let pair = [tenant("blue", 3, 60), tenant("red", 3, 50)];
        assert_eq!((nodes(&pair, 0), nodes(&pair, 1)), (0, 3));
        let half = [tenant("blue", 1, 60), tenant("red", 3, 50)];
        assert_eq!((nodes(&half, 0), nodes(&half, 1)), (0, 3), "its first Machine stands for all of them");
        let none = [tenant("blue", 0, 0), tenant("red", 3, 50)];
        assert_eq!((nodes(&none, 0), nodes(&none, 1)), (3, 0), "who has made nothing holds nothing");
        let same = [tenant("blue", 3, 50), tenant("red", 3, 50)];
        assert_eq!((nodes(&same, 0), nodes(&same, 1)), (0, 3), "in the same second");
        // A begun cluster counts, even if it came later. Workers count too, but not those on another Provider.
        let mut begun = pair.clone();
        let deployment = serde_json::from_value(
            serde_json::json!({"cluster": "red", "lifecycle": "Active", "image": {"name": "a"}}),
        )
        .unwrap();
        begun[1].0.status =
            Some(TenantClusterStatus { deployment: Some(deployment), ..TenantClusterStatus::default() });
        let mut worker = begun[1].1[0].clone();
        worker.spec.pool_ref = Some(Reference::to("red-general"));
        begun[1].1.push(worker);
        assert_eq!(nodes(&begun, 0), 4);
        assert_eq!(tenants(&begun).used(DC1, |_| true).nodes, 7);
        begun[1].0.spec.provider_ref = Reference::to("dc2");
        assert_eq!((nodes(&begun, 0), tenants(&begun).used(DC1, |_| true).nodes), (0, 3));
    }

    #[test]
    fn machine_without_cluster_counts_on_every_provider() {
        let all = [tenant("blue", 3, 60), tenant("red", 1, 50)];
        let mut seen = tenants(&all);
        seen.clusters.retain(|cluster| cluster.name_any() != "red");
        assert_eq!([seen.used(DC1, |_| true).nodes, seen.used(DC2, |_| true).nodes], [4, 1]);
        assert_eq!(seen.taken_before(&all[0].0, DC1).nodes, 1, "without its own");
    }

    #[test]
    fn cluster_with_an_unreadable_status_counts_as_begun() {
        let all = [tenant("blue", 3, 60), tenant("red", 3, 50)];
        let mut seen = tenants(&all);
        assert_eq!(seen.taken_before(&all[0].0, DC1).nodes, 0);
        seen.unread.extend(seen.clusters.pop());
        assert_eq!(seen.taken_before(&all[0].0, DC1).nodes, 3);
        assert_eq!([seen.used(DC1, |_| true).nodes, seen.used(DC2, |_| true).nodes], [6, 0]);
    }

    #[test]
    fn pool_stays_within_limits_and_keeps_existing_workers() {
        let (mut provider, machines) = (provider(), tenant("shop", 4, 60).1);
        let mut machines = machines;
        machines[3].metadata.deletion_timestamp = Some(now());
        let used = ResourceUsage { nodes: 7, processors: 28, memory_mib: 7 * 16384, ..ResourceUsage::default() };
        let of =
            |provider: &Provider, count| pool_allowance(&budget(provider, used), None, &machines, &class(), (count, 2));
        let free = PoolAllowance { count: 9, surge: 2, why: None, slow: None, stands: None };
        assert_eq!(of(&provider, 9), free, "without limits");
        provider.spec.limits = Some(Limits { nodes: Some(10), processors: None, memory_mib: None });
        let whole = of(&provider, 6);
        assert_eq!((whole.count, whole.surge, &whole.why), (6, 0, &None), "three fit beside those that are there");
        assert!(whole.slow.unwrap().contains("may have 10 nodes"));
        let cut = of(&provider, 9);
        assert_eq!((cut.count, cut.surge), (6, 0));
        let (reason, words) = cut.why.unwrap();
        assert!(reason == NodePoolReason::CapacityMissing && words.contains("7 are taken, and 6 wanted"), "{words}");
        assert_eq!(of(&provider, 1).count, 1, "fewer are nobody's to refuse");
        // The usage exceeds the limits: existing workers stay.
        provider.spec.limits = Some(Limits { nodes: None, processors: Some(20), memory_mib: None });
        assert_eq!((of(&provider, 9).count, of(&provider, 3).count, of(&provider, 3).surge), (3, 3, 0));
        provider.spec.limits = Some(Limits { nodes: None, processors: None, memory_mib: Some(9 * 16384 + 1) });
        let cut = of(&provider, 9);
        assert_eq!((cut.count, cut.surge), (5, 0));
        // A worker that leaves without a replacement does not count either.
        machines[2].status = Some(MachineStatus { phase: Phase::Deleting, ..MachineStatus::default() });
        let forbidden = Some(Obstacle::new(TenantClusterReason::NamespaceNotAllowed, "team-blue"));
        let cut = pool_allowance(&[], forbidden.clone(), &machines, &class(), (3, 1));
        assert_eq!((cut.count, cut.surge), (2, 1), "nothing further, and what is there is replaced");
        assert_eq!(cut.why.unwrap().0, NodePoolReason::NamespaceNotAllowed);
        let enough = pool_allowance(&[], forbidden, &machines, &class(), (2, 1));
        assert_eq!((enough.count, enough.why), (2, None));
    }

    #[test]
    fn allowance_shrinks_to_other_room() {
        let free = PoolAllowance { count: 9, surge: 2, ..PoolAllowance::default() };
        let why = || (NodePoolReason::PodRangeExhausted, "x".to_owned());
        assert_eq!(free.clone().within(4, 7, why()), free);
        let slow = PoolAllowance { surge: 1, slow: Some("x".to_owned()), ..free.clone() };
        assert_eq!(free.clone().within(4, 6, why()), slow);
        let cut = free.within(4, 1, why());
        assert_eq!((cut.count, cut.surge, cut.why), (5, 0, Some(why())));
    }

    /// Otherwise each leaving worker would lose its room, and the pool would shrink by one each time.
    #[test]
    fn replaced_worker_keeps_its_room_for_its_successor() {
        let (mut provider, mut machines) = (provider(), tenant("shop", 2, 60).1);
        let limited = |nodes| Some(Limits { nodes: Some(nodes), processors: None, memory_mib: None });
        let used = ResourceUsage { nodes: 5, ..ResourceUsage::default() };
        let of = |provider: &Provider, machines: &[Machine], used| {
            pool_allowance(&budget(provider, used), None, machines, &class(), (2, 1))
        };
        provider.spec.limits = limited(5);
        let full = of(&provider, &machines, used);
        assert_eq!((full.count, full.surge, full.stands), (2, 0, None), "one may go for another one");
        provider.spec.limits = limited(4);
        let over = of(&provider, &machines, used);
        assert_eq!((over.count, over.surge), (2, 0));
        assert!(over.stands.unwrap().contains("may have 4 nodes: 4 are taken, and 1 wanted"));
        for (code, count) in [(OUTDATED, 2), (UNHEALTHY, 2), ("workers.surplus", 1), ("workers.asked", 1)] {
            let mut status = MachineStatus { phase: Phase::Deleting, ..MachineStatus::default() };
            status.journal.reason = Some(fleet::upgrade::Reason::new(code, ""));
            machines[0].status = Some(status);
            assert_eq!(of(&provider, &machines, used).count, count, "{code}");
        }
        // Its room is lost all the same: no other worker is replaced.
        let left = of(&provider, &machines[1..], ResourceUsage { nodes: 4, ..ResourceUsage::default() });
        assert_eq!((left.count, &left.stands), (1, &None));
        let template = fleet::workers::Template {
            image: fleet::workers::Image { digest: String::new(), name: String::new() },
            kubernetes: "1.36".to_owned(),
            size: fleet::hypervisor::Size { processors: 1, memory: 1, data_disk: None },
            labels: BTreeMap::new(),
            taints: Default::default(),
        };
        let mut pool = Pool {
            name: "general".to_owned(),
            prefix: "shop-general".to_owned(),
            count: 2,
            template,
            ova: "a.ova".into(),
            carries: Vec::new(),
            addresses: None,
            rollout: fleet::workers::Rollout { max_unavailable: 1, ..Default::default() },
            last_index: 2,
            powers_on: false,
            keeps_lost: true,
            failed_joins: Some(0),
            remove_first: Default::default(),
        };
        assert_eq!(pool.floor(), 1);
        left.holds(&mut pool);
        assert_eq!((pool.count, pool.rollout.max_surge, pool.floor()), (1, 0, 1), "one of two is missing already");
    }

    /// A Tenant of the namespace, with this quota.
    fn team(quota: Quota) -> Tenant {
        let mut team = crate::decisions::fixture::tenant("blue", &["team-blue", "team-taken"], &[]);
        team.spec.quota = Some(quota);
        team
    }

    // Finding 16 of controller.md: only the Provider had limits, so one team could take all.
    #[test]
    fn quota_counts_the_clusters_of_a_tenants_namespaces() {
        let quota = Quota { nodes: Some(7), addresses: Some(13), clusters: Some(2), ..Quota::default() };
        let mut all = [tenant("amber", 3, 60), tenant("coral", 3, 50)];
        let mut seen = tenants(&all);
        seen.tenants = vec![team(quota)];
        let why = |seen: &ClusterInventory, of: usize, wanted: ResourceUsage| {
            let budgets = seen.budgets_before(&provider(), &all[of].0);
            limits(&budgets, wanted).map(|why| (why.reason, why.message))
        };
        let cluster = |nodes| ResourceUsage { nodes, ..ResourceUsage::of_cluster(&all[1].0) };
        assert_eq!(cluster(3).addresses(), 6, "two Services and the endpoint");
        assert_eq!((why(&seen, 0, cluster(7)), why(&seen, 1, cluster(4))), (None, None));
        let (reason, words) = why(&seen, 1, cluster(5)).unwrap();
        assert_eq!(reason, TenantClusterReason::QuotaExceeded);
        assert_eq!(
            words,
            "clusters of the Tenant blue may have 7 nodes: 3 are taken, and 5 wanted; clusters of the Tenant blue may \
             have 13 addresses: 6 are taken, and 8 wanted"
        );
        // The other namespace belongs to another Tenant, so its clusters do not count.
        let mut holder = crate::decisions::fixture::tenant("red", &["team-taken"], &[]);
        let namespaces = vec!["team-taken".to_owned()];
        holder.status = Some(TenantStatus { namespaces, ..TenantStatus::default() });
        seen.tenants.push(holder);
        for cluster in &mut seen.clusters {
            cluster.metadata.namespace = Some("team-taken".to_owned());
        }
        for machine in &mut seen.machines {
            machine.metadata.namespace = Some("team-taken".to_owned());
        }
        assert_eq!(why(&seen, 0, cluster(7)), None);
        all[0].0.metadata.namespace = Some("team-taken".to_owned());
        assert_eq!(seen.budgets_before(&provider(), &all[0].0), [], "red has no quota");
    }

    // Findings 14 and 16 of controller.md: a running cluster claims further addresses within its quota.
    #[test]
    fn quota_counts_further_addresses_of_a_running_cluster() {
        let (mut cluster, machines) = tenant("shop", 3, 60);
        cluster.spec.network.service_vips.as_mut().unwrap().count = Some(5);
        let mut seen = tenants(&[(cluster.clone(), machines)]);
        let mut why = |most| {
            seen.tenants = vec![team(Quota { addresses: Some(most), ..Quota::default() })];
            seen.denied_vips(&provider(), &cluster, (2, 3)).map(|why| (why.reason, why.message))
        };
        assert_eq!(why(9), None, "three nodes, the endpoint and five Services");
        let (reason, words) = why(8).unwrap();
        assert_eq!(reason, TenantClusterReason::QuotaExceeded);
        assert_eq!(words, "clusters of the Tenant blue may have 8 addresses: 3 are taken, and 6 wanted");
        let service_vips = (5..9).map(|last| format!("192.168.10.{last}")).collect();
        let resolved = Some(crate::objects::Resolved { service_vips, ..Default::default() });
        cluster.status = Some(TenantClusterStatus { resolved, ..TenantClusterStatus::default() });
        cluster.spec.network.service_vips = None;
        assert_eq!(vips(&cluster), 5, "what it has stays");
    }

    #[test]
    fn last_cluster_of_a_quota_waits() {
        let all = [tenant("amber", 3, 60), tenant("coral", 3, 60), tenant("dune", 0, 0)];
        let mut seen = tenants(&all);
        seen.tenants = vec![team(Quota { clusters: Some(1), ..Quota::default() })];
        let is_free = |of: usize| {
            let cluster = &all[of].0;
            limits(&seen.budgets_before(&provider(), cluster), ResourceUsage::of_cluster(cluster)).is_none()
        };
        assert_eq!([is_free(0), is_free(1), is_free(2)], [true, false, false], "both came in the same second");
    }

    #[test]
    fn quota_holds_back_further_workers() {
        let (cluster, machines) = tenant("shop", 4, 60);
        let mut seen = tenants(&[(cluster, machines.clone())]);
        seen.tenants = vec![team(Quota { processors: Some(20), ..Quota::default() })];
        let budgets = seen.budgets(&provider(), "team-blue", |_| true);
        let cut = pool_allowance(&budgets, None, &machines, &class(), (9, 2));
        assert_eq!((cut.count, cut.surge), (5, 0));
        let (reason, words) = cut.why.unwrap();
        assert!(reason == NodePoolReason::QuotaExceeded && words.contains("20 processors: 16 are taken"), "{words}");
        assert_eq!(seen.budgets(&provider(), "team-red", |_| true), [], "neither limits nor a quota");
    }
}
