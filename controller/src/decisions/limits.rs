//! The limits of a Provider's clusters, and what is left of them. All existing Machines count, before a cluster or a worker is
//! created. Knows nothing of places: the vCenter's own capacity is checked with the vCenter.

use std::collections::{BTreeMap, BTreeSet};

use fleet::workers::{OUTDATED, Pool, UNHEALTHY};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::cluster::is_begun;
use super::obstacle::Obstacle;
use crate::objects::{
    FromNamespaces, Machine, MachineSpec, NodePoolReason, Phase, PoolAddressSpec, Provider, Reference, TenantCluster,
    TenantClusterReason, VMClassSpec,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub nodes: u64,
    pub processors: u64,
    pub memory_mib: u64,
}

impl ResourceUsage {
    pub fn of<'m>(machines: impl IntoIterator<Item = &'m MachineSpec>) -> Self {
        let one = |machine: &MachineSpec| Self::sized(1, machine.processors, machine.memory_mib);
        machines.into_iter().map(one).fold(Self::default(), Self::and)
    }

    fn sized(count: u64, processors: u32, memory_mib: u32) -> Self {
        Self { nodes: count, processors: count * u64::from(processors), memory_mib: count * u64::from(memory_mib) }
    }

    fn without(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_sub(other.nodes),
            processors: self.processors.saturating_sub(other.processors),
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            nodes: self.nodes + other.nodes,
            processors: self.processors + other.processors,
            memory_mib: self.memory_mib + other.memory_mib,
        }
    }
}

/// Why a Provider's limits have no room for further Machines, if they have none.
pub fn limits(provider: &Provider, used: ResourceUsage, wanted: ResourceUsage) -> Option<Obstacle> {
    over(provider, limited(provider, used, wanted))
}

/// As [`limits`], for existing Machines that grow. They keep what they have, even if limits were lowered. Only resources that
/// grow are checked.
pub fn growth(provider: &Provider, used: ResourceUsage, had: ResourceUsage, wanted: ResourceUsage) -> Option<Obstacle> {
    let both = limited(provider, used, wanted).into_iter().zip(limited(provider, used, had));
    over(provider, both.filter(|((.., wanted), (.., had))| wanted > had).map(|(limited, _)| limited))
}

/// Name of a resource, its limit, its usage, and how much is wanted.
type Limited = (&'static str, Option<u64>, u64, u64);

fn over(provider: &Provider, limited: impl IntoIterator<Item = Limited>) -> Option<Obstacle> {
    let name = provider.name_any();
    let over = limited.into_iter().filter_map(|(what, most, used, wanted)| {
        let most = most.filter(|most| used + wanted > *most)?;
        let words =
            format!("clusters of the Provider {name} may have {most} {what}: {used} are taken, and {wanted} wanted");
        Some(Obstacle::new(TenantClusterReason::CapacityMissing, words))
    });
    Obstacle::of_all(over.collect())
}

fn limited(provider: &Provider, used: ResourceUsage, wanted: ResourceUsage) -> [Limited; 3] {
    let limits = provider.spec.limits.clone().unwrap_or_default();
    [
        ("nodes", limits.nodes.map(u64::from), used.nodes, wanted.nodes),
        ("processors", limits.processors.map(u64::from), used.processors, wanted.processors),
        ("MiB of memory", limits.memory_mib, used.memory_mib, wanted.memory_mib),
    ]
}

/// Why a Provider does not allow a namespace, if it does not.
pub fn permission(provider: &Provider, namespace: &str) -> Option<Obstacle> {
    let allowed = &provider.spec.allowed_namespaces;
    if allowed.from == FromNamespaces::All || allowed.names.iter().any(|name| name == namespace) {
        return None;
    }
    let name = provider.name_any();
    let words = format!("the Provider {name} does not list the namespace {namespace} in allowedNamespaces");
    Some(Obstacle::new(TenantClusterReason::NamespaceNotAllowed, words))
}

#[derive(Clone, Debug, Default)]
pub struct ClusterInventory {
    pub clusters: Vec<TenantCluster>,
    /// Clusters whose status cannot be read, without it. They may be begun, and count so.
    pub unread: Vec<TenantCluster>,
    pub machines: Vec<Machine>,
}

/// Namespace and name of a cluster.
pub(super) type Key = (Option<String>, String);

pub(super) fn key_of(cluster: &TenantCluster) -> Key {
    (cluster.namespace(), cluster.name_any())
}

impl ClusterInventory {
    /// The usage of a Provider's Machines that `counts` accepts. A Machine whose cluster was deleted still has its VM, and its
    /// Provider is unknown: it counts on each Provider.
    pub fn used(&self, provider: &str, counts: impl Fn(&Machine) -> bool) -> ResourceUsage {
        let (of_clusters, there) = (self.on(provider), self.there());
        let is_on = |machine: &&Machine| {
            let of = cluster_of(machine);
            of_clusters.contains_key(&of) || !there.contains(&of)
        };
        ResourceUsage::of(
            self.machines.iter().filter(is_on).filter(|machine| counts(machine)).map(|machine| &machine.spec),
        )
    }

    /// The usage that has precedence over a cluster without a VM: all workers, and all Machines whose cluster was deleted.
    /// Control-plane nodes count if their cluster has begun, or has had Machines for longer. Two waiting clusters never both
    /// wait: a cluster that has not seen the other's Machine is seen by it. A cluster that has begun to create its Machines
    /// counts with all of them.
    pub fn taken_before(&self, cluster: &TenantCluster) -> ResourceUsage {
        let (of_clusters, there) = (self.on(&cluster.spec.provider_ref.name), self.there());
        let mut control: BTreeMap<Key, Vec<&Machine>> = BTreeMap::new();
        let mut taken = ResourceUsage::default();
        for machine in &self.machines {
            let of = cluster_of(machine);
            let is_lost = !there.contains(&of);
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

    fn on(&self, provider: &str) -> BTreeMap<Key, &TenantCluster> {
        let all = self.clusters.iter().chain(&self.unread);
        let on = all.filter(|cluster| cluster.spec.provider_ref.name == provider);
        on.map(|cluster| (key_of(cluster), cluster)).collect()
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

/// Whether a worker is being removed, so that another one may replace it.
pub(super) fn is_leaving_machine(machine: &Machine) -> bool {
    let phase = machine.status.as_ref().map(|status| status.phase);
    machine.metadata.deletion_timestamp.is_some() || phase == Some(Phase::Deleting)
}

/// The allowance of a NodePool that wants `count` workers of a class, and `surge` more during a replacement. It follows from the
/// Provider's permission for the namespace, and from limits of which `used` is taken. Existing workers stay, and are replaced
/// within the limits. Fewer workers are always allowed. A worker that leaves for a replacement keeps its room for it.
pub fn pool_allowance(
    provider: &Provider,
    pool: (&str, &[Machine]),
    used: ResourceUsage,
    class: &VMClassSpec,
    (count, surge): (usize, usize),
) -> PoolAllowance {
    let (namespace, machines) = pool;
    let one = ResourceUsage::sized(1, class.processors, class.memory_mib);
    let is_replaced = |machine: &&&Machine| {
        let code = machine.status.as_ref().and_then(|status| Some(status.journal.reason.as_ref()?.code.as_str()));
        code.is_some_and(|code| code == OUTDATED || code == UNHEALTHY)
    };
    let (leaving, staying): (Vec<&Machine>, Vec<&Machine>) =
        machines.iter().partition(|machine| is_leaving_machine(machine));
    let kept = staying.len() + leaving.iter().filter(is_replaced).count();
    let fit = limited(provider, used, one).into_iter().filter_map(|(_, most, used, one)| {
        let left = most?.saturating_sub(used);
        left.checked_div(one)
    });
    let room = fit.min().map_or(usize::MAX, |fit| usize::try_from(fit).unwrap_or(usize::MAX));
    let missing = count.saturating_sub(kept);
    let forbidden = permission(provider, namespace).filter(|_| missing > 0);
    let (further, why) = match forbidden {
        Some(obstacle) => (0, Some((NodePoolReason::NamespaceNotAllowed, obstacle.message))),
        None if missing > room => {
            let wanted = ResourceUsage::sized(missing as u64, class.processors, class.memory_mib);
            let words = limits(provider, used, wanted).map(|obstacle| obstacle.message).unwrap_or_default();
            (room, Some((NodePoolReason::CapacityMissing, words)))
        }
        None => (missing, None),
    };
    let left = room - further.min(room);
    let many = |count: usize| ResourceUsage::sized(count as u64, class.processors, class.memory_mib);
    let over = |left: usize| limits(provider, used.and(many(room - left)), many(surge));
    let slow = (surge > left).then(|| over(left).map(|obstacle| obstacle.message)).flatten();
    // Workers of several sizes: only some may have a successor. The limits at that time decide.
    let refused = staying.iter().map(|machine| limits(provider, used.without(ResourceUsage::of([&machine.spec])), one));
    let stands = refused.reduce(|all, next| all.and(next)).flatten();
    let stands = stands.map(|why| format!("who went would have no successor: {}", why.message));
    PoolAllowance { count: count.min(kept.saturating_add(further)), surge: surge.min(left), why, slow, stands }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::decisions::fixture::{class, cluster, now, provider};
    use crate::objects::{Limits, MachineStatus, TenantClusterStatus};

    #[test]
    fn limit_covers_existing_and_wanted_machines() {
        let mut provider = provider();
        let wanted = ResourceUsage::of(&vec![crate::objects::fixture::worker(); 3]);
        assert_eq!(wanted, ResourceUsage { nodes: 3, processors: 12, memory_mib: 3 * 16384 });
        let used = ResourceUsage { nodes: 7, processors: 8, memory_mib: 16384 };
        assert_eq!(limits(&provider, used, wanted), None, "there are none");
        provider.spec.limits = Some(Limits { nodes: Some(10), processors: Some(20), memory_mib: Some(4 * 16384) });
        assert_eq!(limits(&provider, used, wanted), None, "all of it may be taken");
        for (more, words) in [
            (ResourceUsage { nodes: 8, ..used }, "10 nodes: 8 are taken, and 3 wanted"),
            (ResourceUsage { processors: 9, ..used }, "20 processors: 9 are taken, and 12 wanted"),
            (ResourceUsage { memory_mib: 16385, ..used }, "65536 MiB of memory"),
        ] {
            let why = limits(&provider, more, wanted).unwrap();
            assert!(why.reason == TenantClusterReason::CapacityMissing && why.message.contains(words), "{why:?}");
        }
    }

    #[test]
    fn growing_node_keeps_its_size_under_lowered_limits() {
        let mut provider = provider();
        let (had, used) = (ResourceUsage { nodes: 3, processors: 12, memory_mib: 4096 }, ResourceUsage::default());
        provider.spec.limits = Some(Limits { nodes: Some(1), processors: Some(8), memory_mib: Some(8192) });
        assert_eq!(growth(&provider, used, had, ResourceUsage { memory_mib: 8192, ..had }), None, "there is memory");
        let more = growth(&provider, used, had, ResourceUsage { memory_mib: 8193, ..had }).unwrap().message;
        assert!(more.contains("8192 MiB of memory") && !more.contains("nodes"), "{more}");
        let more = growth(&provider, used, had, ResourceUsage { processors: 13, ..had }).unwrap().message;
        assert!(more.contains("8 processors: 0 are taken, and 13 wanted"), "{more}");
        assert_eq!(growth(&provider, ResourceUsage { memory_mib: 8192, ..used }, had, had), None, "it wants nothing");
    }

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
        let nodes = |all: &[(TenantCluster, Vec<Machine>)], of: usize| tenants(all).taken_before(&all[of].0).nodes;
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
        assert_eq!(tenants(&begun).used("dc1", |_| true).nodes, 7);
        begun[1].0.spec.provider_ref = Reference::to("dc2");
        assert_eq!((nodes(&begun, 0), tenants(&begun).used("dc1", |_| true).nodes), (0, 3));
    }

    #[test]
    fn machine_without_cluster_counts_on_every_provider() {
        let all = [tenant("blue", 3, 60), tenant("red", 1, 50)];
        let mut seen = tenants(&all);
        seen.clusters.retain(|cluster| cluster.name_any() != "red");
        assert_eq!([seen.used("dc1", |_| true).nodes, seen.used("dc2", |_| true).nodes], [4, 1]);
        assert_eq!(seen.taken_before(&all[0].0).nodes, 1, "beside its own");
    }

    #[test]
    fn cluster_with_an_unreadable_status_counts_as_begun() {
        let all = [tenant("blue", 3, 60), tenant("red", 3, 50)];
        let mut seen = tenants(&all);
        assert_eq!(seen.taken_before(&all[0].0).nodes, 0);
        seen.unread.extend(seen.clusters.pop());
        assert_eq!(seen.taken_before(&all[0].0).nodes, 3);
        assert_eq!([seen.used("dc1", |_| true).nodes, seen.used("dc2", |_| true).nodes], [6, 0]);
    }

    #[test]
    fn pool_stays_within_limits_and_keeps_existing_workers() {
        let (mut provider, machines) = (provider(), tenant("shop", 4, 60).1);
        let mut machines = machines;
        machines[3].metadata.deletion_timestamp = Some(now());
        let used = ResourceUsage { nodes: 7, processors: 28, memory_mib: 7 * 16384 };
        let of =
            |provider: &Provider, count| pool_allowance(provider, ("team-blue", &machines), used, &class(), (count, 2));
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
        provider.spec.limits = None;
        provider.spec.allowed_namespaces.names.clear();
        let cut = pool_allowance(&provider, ("team-blue", &machines), used, &class(), (3, 1));
        assert_eq!((cut.count, cut.surge), (2, 1), "nothing further, and what is there is replaced");
        assert_eq!(cut.why.unwrap().0, NodePoolReason::NamespaceNotAllowed);
        let enough = pool_allowance(&provider, ("team-blue", &machines), used, &class(), (2, 1));
        assert_eq!((enough.count, enough.why), (2, None));
    }

    /// Otherwise each leaving worker would lose its room, and the pool would shrink by one each time.
    #[test]
    fn replaced_worker_keeps_its_room_for_its_successor() {
        let (mut provider, mut machines) = (provider(), tenant("shop", 2, 60).1);
        let limited = |nodes| Some(Limits { nodes: Some(nodes), processors: None, memory_mib: None });
        let used = ResourceUsage { nodes: 5, ..ResourceUsage::default() };
        let of = |provider: &Provider, machines: &[Machine], used| {
            pool_allowance(provider, ("team-blue", machines), used, &class(), (2, 1))
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
}
