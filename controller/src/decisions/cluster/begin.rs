//! The next step of a cluster before its first VM. Until then everything can be created again differently. A cluster that is
//! stuck releases what others could use.

use super::super::claims::{AllocatedAddresses, ClaimStep};
use super::super::obstacle::Obstacle;
use super::{is_kept, is_ours};
use crate::objects::{Machine, PoolAddress, Resolved, TenantCluster, TenantClusterReason};

#[derive(Debug)]
pub struct CreationInputs<'a> {
    pub cluster: &'a TenantCluster,
    /// The values for `status.resolved`, or the obstacle according to objects.
    pub resolved: Result<Resolved, Obstacle>,
    pub wanted: Vec<Machine>,
    pub machines: Vec<Machine>,
    /// Why the Provider's limits have no room for its control-plane nodes, if they have none.
    pub limits: Option<Obstacle>,
    /// The addresses to release: those that it no longer claims.
    pub left_over: Vec<PoolAddress>,
    /// The addresses of the cluster itself, apart from those of its Machines.
    pub held: Vec<PoolAddress>,
    /// The next claim; or why an address is unavailable.
    pub claiming: Result<ClaimStep, Obstacle>,
    /// Whether the missing addresses are held by clusters that are stuck too and came later: these release them.
    pub comes_first: bool,
    pub keys: KeysSeen,
    /// The obstacle at the vCenter: VMs cannot be placed, or the image has no template.
    pub place: Option<Obstacle>,
}

/// The Secret with the deployer's key and the deployment secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysSeen {
    Missing,
    /// The Secret has other content, for this reason.
    Damaged(String),
    There,
}

/// The next step of a cluster without a VM.
#[derive(Clone, Debug, PartialEq)]
pub enum CreationStep {
    Keep,
    Await(Obstacle),
    /// Wait: the cluster is paused.
    Rest,
    /// Write `status.resolved`.
    Pin(Box<Resolved>),
    /// Delete a Machine that differs from the wanted one, with its address. It has no VM yet.
    Unmake(Box<Machine>),
    Release(Box<PoolAddress>),
    /// Release all of the cluster's own addresses because of an obstacle: others can use them.
    GiveBack(Vec<PoolAddress>, Obstacle),
    Make(Box<Machine>),
    Claim(Box<PoolAddress>),
    /// Draw the deployer's key and the deployment secret.
    Draw,
    Deploy(AllocatedAddresses),
}

pub fn creation_step(wished: &CreationInputs<'_>) -> CreationStep {
    let cluster = wished.cluster;
    // The finalizer precedes everything that has to be removed later.
    if !is_kept(cluster) {
        return CreationStep::Keep;
    }
    // A cluster that is stuck holds nothing that others could use.
    if goes_no_further(wished) {
        if let Some(machine) = wished.machines.iter().find(|machine| is_ours(machine)) {
            return CreationStep::Unmake(Box::new(machine.clone()));
        }
        if let Some(address) = wished.held.first() {
            return CreationStep::Release(Box::new(address.clone()));
        }
    }
    if cluster.spec.paused {
        return CreationStep::Rest;
    }
    let resolved = match &wished.resolved {
        Ok(resolved) => resolved,
        Err(obstacle) => return CreationStep::Await(obstacle.clone()),
    };
    let status = cluster.status.as_ref();
    let pinned = status.and_then(|status| status.resolved.as_ref());
    // Addresses are written once all are claimed.
    let is_pinned = |pinned: &Resolved| {
        let with_addresses = Resolved {
            endpoint: pinned.endpoint.clone(),
            service_vips: pinned.service_vips.clone(),
            ..resolved.clone()
        };
        *pinned == with_addresses
    };
    if !pinned.is_some_and(is_pinned) {
        return CreationStep::Pin(Box::new(resolved.clone()));
    }
    let is_wanted = |machine: &&Machine| wished.wanted.iter().any(|wanted| is_same(wanted, machine));
    if let Some(other) = wished.machines.iter().find(|machine| !is_wanted(machine)) {
        return CreationStep::Unmake(Box::new(other.clone()));
    }
    if let Some(address) = wished.left_over.first() {
        return CreationStep::Release(Box::new(address.clone()));
    }
    if let Some(obstacle) = &wished.limits {
        return CreationStep::Await(obstacle.clone());
    }
    // Without all addresses, no Machine is created.
    if let Err(obstacle) = &wished.claiming {
        return CreationStep::Await(obstacle.clone());
    }
    let is_there = |wanted: &&Machine| wished.machines.iter().any(|machine| is_same(wanted, machine));
    if let Some(missing) = wished.wanted.iter().find(|wanted| !is_there(wanted)) {
        return CreationStep::Make(Box::new(missing.clone()));
    }
    if let Some(obstacle) = in_the_way(wished) {
        // An unknown state may pass in a moment.
        let is_known = obstacle.reason != TenantClusterReason::PreflightNotKnown;
        return match wished.held.is_empty() || !is_known {
            true => CreationStep::Await(obstacle),
            false => CreationStep::GiveBack(wished.held.clone(), obstacle),
        };
    }
    let allotted = match &wished.claiming {
        Err(obstacle) => return CreationStep::Await(obstacle.clone()),
        Ok(ClaimStep::Make(address, _)) => return CreationStep::Claim(address.clone()),
        Ok(ClaimStep::Has(allotted)) => allotted,
    };
    let with_addresses = Resolved {
        endpoint: allotted.endpoint.map(|address| address.to_string()),
        service_vips: allotted.service_vips.iter().map(ToString::to_string).collect(),
        ..resolved.clone()
    };
    if pinned != Some(&with_addresses) {
        return CreationStep::Pin(Box::new(with_addresses));
    }
    match &wished.keys {
        KeysSeen::Missing | KeysSeen::Damaged(_) => CreationStep::Draw,
        KeysSeen::There => CreationStep::Deploy(allotted.clone()),
    }
}

/// Whether a cluster is stuck before its first VM. It is paused, or objects, limits or addresses block it until a user acts. An
/// unknown state may pass in a moment.
fn goes_no_further(wished: &CreationInputs<'_>) -> bool {
    let is_known = |obstacle: &Obstacle| obstacle.reason != TenantClusterReason::PreflightNotKnown;
    wished.cluster.spec.paused
        || wished.limits.is_some()
        || wished.resolved.as_ref().is_err_and(is_known)
        || (!wished.comes_first && wished.claiming.as_ref().is_err_and(is_known))
}

/// The obstacle that remains once the cluster has all addresses.
fn in_the_way(wished: &CreationInputs<'_>) -> Option<Obstacle> {
    let damaged = match &wished.keys {
        // A damaged Secret is not overwritten.
        KeysSeen::Damaged(why) => Some(Obstacle::new(TenantClusterReason::SecretMissing, why)),
        KeysSeen::Missing | KeysSeen::There => None,
    };
    wished.place.clone().or(damaged)
}

/// Whether a Machine matches the wanted one and is not being deleted.
fn is_same(wanted: &Machine, there: &Machine) -> bool {
    wanted.metadata.name == there.metadata.name
        && wanted.spec == there.spec
        && there.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::decisions::fixture::{cluster, now, pool, provider};
    use crate::decisions::{CLUSTER_FINALIZER, claims, left_over, machines, next_claim};

    fn resolved() -> Resolved {
        Resolved { image: Some("kaas-tenant-0.2.0".to_owned()), processors: Some(2), ..Resolved::default() }
    }

    /// The objects of an API server that decisions see.
    struct World {
        cluster: TenantCluster,
        machines: Vec<Machine>,
        addresses: Vec<PoolAddress>,
        keys: KeysSeen,
    }

    impl World {
        fn new() -> Self {
            Self { cluster: cluster(), machines: Vec::new(), addresses: Vec::new(), keys: KeysSeen::Missing }
        }

        fn wished(&self) -> CreationInputs<'_> {
            let claims = claims(&self.cluster, &self.machines, "blue-nodes").unwrap();
            let seen: Vec<_> = self.addresses.iter().map(|address| address.spec.clone()).collect();
            CreationInputs {
                cluster: &self.cluster,
                resolved: Ok(resolved()),
                wanted: machines(&self.cluster, &resolved(), &provider()),
                machines: self.machines.clone(),
                limits: None,
                left_over: left_over(&self.cluster, &claims, &self.addresses),
                held: left_over(&self.cluster, &[], &self.addresses),
                claiming: next_claim(&claims, &[pool()], &seen, 0),
                comes_first: false,
                keys: self.keys.clone(),
                place: None,
            }
        }

        /// Runs the next step. Returns false once nothing is left to do.
        fn step(&mut self) -> bool {
            match creation_step(&self.wished()) {
                CreationStep::Keep => self.cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned()]),
                CreationStep::Pin(resolved) => self.cluster.status.get_or_insert_default().resolved = Some(*resolved),
                CreationStep::Unmake(machine) => {
                    self.machines.retain(|other| other.metadata.name != machine.metadata.name)
                }
                CreationStep::Make(machine) => {
                    let uid = format!("uid-{}", self.machines.len());
                    self.machines.push(*machine);
                    self.machines.last_mut().unwrap().metadata.uid = Some(uid);
                }
                CreationStep::Claim(address) => self.addresses.push(*address),
                CreationStep::Release(address) => self.addresses.retain(|other| other.spec != address.spec),
                CreationStep::Draw => self.keys = KeysSeen::There,
                CreationStep::Await(_) | CreationStep::GiveBack(..) | CreationStep::Rest | CreationStep::Deploy(_) => {
                    return false;
                }
            }
            true
        }
    }

    #[test]
    fn steps_to_the_first_vm_have_one_order() {
        let mut world = World::new();
        let mut order = Vec::new();
        loop {
            let next = creation_step(&world.wished());
            let word = format!("{next:?}").split(['(', ' ']).next().unwrap().to_owned();
            order.push(word);
            if !world.step() {
                break;
            }
        }
        let expected = "Keep Pin Make Make Make Claim Claim Claim Claim Claim Claim Pin Draw Deploy";
        assert_eq!(order.join(" "), expected);
        let pinned = world.cluster.status.as_ref().unwrap().resolved.as_ref().unwrap();
        assert_eq!(pinned.endpoint.as_deref(), Some("192.168.10.10"));
        assert_eq!(pinned.service_vips, ["192.168.10.23", "192.168.10.24"]);
        let CreationStep::Deploy(allotted) = creation_step(&world.wished()) else { panic!() };
        assert_eq!(allotted.nodes[2], ("uid-2".to_owned(), Ipv4Addr::new(192, 168, 10, 22)));
    }

    #[test]
    fn obstacle_or_pause_precedes_creation() {
        let why = |reason| Obstacle::new(reason, "x");
        let mut world = World::new();
        world.step();
        let blocked = CreationInputs { resolved: Err(why(TenantClusterReason::ProviderNotReady)), ..world.wished() };
        assert_eq!(creation_step(&blocked), CreationStep::Await(why(TenantClusterReason::ProviderNotReady)));
        while world.step() {}
        let place = Some(why(TenantClusterReason::CapacityMissing));
        let given_back = creation_step(&CreationInputs { place: place.clone(), ..world.wished() });
        let CreationStep::GiveBack(addresses, obstacle) = given_back else { panic!("{given_back:?}") };
        assert_eq!((addresses.len(), obstacle), (3, why(TenantClusterReason::CapacityMissing)), "nodes keep theirs");
        let unknown = Some(why(TenantClusterReason::PreflightNotKnown));
        assert!(
            matches!(creation_step(&CreationInputs { place: unknown, ..world.wished() }), CreationStep::Await(_)),
            "it may pass at once"
        );
        let without = CreationInputs { place, held: Vec::new(), ..world.wished() };
        assert_eq!(creation_step(&without), CreationStep::Await(why(TenantClusterReason::CapacityMissing)));
        let keys = KeysSeen::Damaged("the Secret holds no key".to_owned());
        let damaged = CreationInputs { keys, held: Vec::new(), ..world.wished() };
        assert!(matches!(creation_step(&damaged), CreationStep::Await(_)), "no key is drawn over another one");
        world.machines.clear();
        let claiming = Err(why(TenantClusterReason::AddressesMissing));
        let taken = CreationInputs { claiming, held: Vec::new(), ..world.wished() };
        assert_eq!(
            creation_step(&taken),
            CreationStep::Await(why(TenantClusterReason::AddressesMissing)),
            "no Machine is made"
        );
        world.addresses.clear();
        world.cluster.spec.paused = true;
        assert_eq!(creation_step(&world.wished()), CreationStep::Rest);
    }

    #[test]
    fn stuck_cluster_releases_what_it_holds() {
        let why = |reason| Obstacle::new(reason, "x");
        let mut world = World::new();
        while world.step() {}
        let mut paused = world.cluster.clone();
        paused.spec.paused = true;
        let missing = || Err(why(TenantClusterReason::AddressesMissing));
        for going in [
            CreationInputs { cluster: &paused, ..world.wished() },
            CreationInputs { resolved: Err(why(TenantClusterReason::ReferenceMissing)), ..world.wished() },
            CreationInputs { claiming: missing(), ..world.wished() },
        ] {
            assert!(matches!(creation_step(&going), CreationStep::Unmake(_)), "{going:?}");
            let nodeless = CreationInputs { machines: Vec::new(), ..going };
            assert!(matches!(creation_step(&nodeless), CreationStep::Release(_)), "{nodeless:?}");
        }
        let unknown = || why(TenantClusterReason::PreflightNotKnown);
        for waiting in [
            CreationInputs { resolved: Err(unknown()), ..world.wished() },
            CreationInputs { claiming: Err(unknown()), ..world.wished() },
            CreationInputs { claiming: missing(), comes_first: true, ..world.wished() },
        ] {
            assert!(matches!(creation_step(&waiting), CreationStep::Await(_)), "{waiting:?}");
        }
        let mut kept = world.machines[0].clone();
        kept.metadata.deletion_timestamp = Some(now());
        kept.metadata.finalizers = Some(vec!["x.example/y".to_owned()]);
        let kept = CreationInputs { cluster: &paused, machines: vec![kept], held: Vec::new(), ..world.wished() };
        assert_eq!(creation_step(&kept), CreationStep::Rest, "somebody else keeps it");
    }

    #[test]
    fn cluster_waiting_for_room_holds_nothing() {
        let why = Obstacle::new(TenantClusterReason::CapacityMissing, "x");
        let mut world = World::new();
        while world.step() {}
        assert_eq!((world.machines.len(), world.addresses.len()), (3, 6));
        fn without_room<'a>(world: &'a World, why: &Obstacle) -> CreationInputs<'a> {
            CreationInputs { limits: Some(why.clone()), ..world.wished() }
        }
        let mut order = Vec::new();
        loop {
            let next = creation_step(&without_room(&world, &why));
            match &next {
                // Its address is deleted with it.
                CreationStep::Unmake(machine) => {
                    world.machines.retain(|other| other.metadata.name != machine.metadata.name);
                    world.addresses.retain(|other| Some(&other.spec.claimant.uid) != machine.metadata.uid.as_ref());
                }
                CreationStep::Release(address) => world.addresses.retain(|other| other.spec != address.spec),
                CreationStep::Await(obstacle) => {
                    assert_eq!(*obstacle, why);
                    break;
                }
                other => panic!("{other:?}"),
            }
            order.push(format!("{next:?}").split('(').next().unwrap().to_owned());
        }
        assert_eq!(order.join(" "), "Unmake Unmake Unmake Release Release Release");
        assert!(world.machines.is_empty() && world.addresses.is_empty());
        while world.step() {}
        assert!(matches!(creation_step(&world.wished()), CreationStep::Deploy(_)), "there is room again");
    }

    #[test]
    fn differing_machine_is_recreated_before_the_first_vm() {
        let mut world = World::new();
        while world.step() {}
        world.cluster.spec.version = "1.35".to_owned();
        let CreationStep::Unmake(machine) = creation_step(&world.wished()) else {
            panic!("{:?}", creation_step(&world.wished()))
        };
        assert_eq!(machine.metadata.name.as_deref(), Some("shop-cp1"));
        while world.step() {}
        assert!(world.machines.len() == 3 && world.machines.iter().all(|machine| machine.spec.kubernetes == "1.35"));
        world.machines[1].metadata.deletion_timestamp = Some(now());
        assert!(matches!(creation_step(&world.wished()), CreationStep::Unmake(_)), "a person has deleted it");
    }
}
