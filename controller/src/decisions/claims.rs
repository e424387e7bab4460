//! The addresses that a cluster has: which ones it claims, and what has become of the claims. One IPAddress is made at a time; where
//! the API server has one of its name already, it is read, and decided again.

use std::net::Ipv4Addr;

use super::addresses::{Allocation, Malformed, NamedAllocation, allocation, claimed, named, passing};
use super::obstacle::Obstacle;
use crate::objects::{
    Claimant, IPPool, IPPoolSpec, Machine, PoolAddress, PoolAddressSpec, Purpose, ServiceVips, TenantCluster,
    TenantClusterReason,
};

/// So many addresses for Services a cluster can claim: `index` of a claimant goes to 255.
const MOST: usize = 256;

/// An address that is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub claimant: Claimant,
    pub from: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Pool(String),
    /// The one that a person has named.
    Named(Ipv4Addr),
}

/// The addresses that a cluster has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedAddresses {
    /// Of the Kubernetes API.
    pub endpoint: Option<Ipv4Addr>,
    /// Of control nodes, by the UIDs of their Machines.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// Of Services, by their number.
    pub service_vips: Vec<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    Has(AllocatedAddresses),
    /// This object is to be made, and it would have these in the end.
    Make(Box<PoolAddress>, Box<AllocatedAddresses>),
}

impl ClaimStep {
    /// The addresses that the cluster has, or would have in the end.
    pub fn allotted(&self) -> &AllocatedAddresses {
        match self {
            Self::Has(allotted) => allotted,
            Self::Make(_, allotted) => allotted,
        }
    }
}

/// A Machine as the one that has its node's address.
pub fn claimant(machine: &Machine) -> Claimant {
    Claimant {
        kind: "Machine".to_owned(),
        namespace: machine.metadata.namespace.clone().unwrap_or_default(),
        name: machine.metadata.name.clone().unwrap_or_default(),
        uid: machine.metadata.uid.clone().unwrap_or_default(),
        purpose: Purpose::Node,
        index: 0,
    }
}

/// All that a cluster claims for its control plane: first what a person has named, so that none of it is given to a node. `machines`
/// are those of its control nodes, `pool` that of their addresses.
///
/// # Errors
/// When a named address is none, or there are too many.
pub fn claims(cluster: &TenantCluster, machines: &[Machine], pool: &str) -> Result<Vec<Claim>, Obstacle> {
    let (mut from_pools, mut all) = (Vec::new(), Vec::new());
    let own = |purpose, index| Claimant {
        kind: "TenantCluster".to_owned(),
        namespace: cluster.metadata.namespace.clone().unwrap_or_default(),
        name: cluster.metadata.name.clone().unwrap_or_default(),
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        purpose,
        index,
    };
    let endpoint = &cluster.spec.network.endpoint;
    match (&endpoint.address, &endpoint.pool_ref) {
        (Some(text), _) => {
            all.push(Claim { claimant: own(Purpose::Endpoint, 0), from: Source::Named(address(text)?) });
        }
        (None, Some(pool)) => {
            from_pools.push(Claim { claimant: own(Purpose::Endpoint, 0), from: Source::Pool(pool.name.clone()) });
        }
        (None, None) => {}
    }
    for machine in machines {
        from_pools.push(Claim { claimant: claimant(machine), from: Source::Pool(pool.to_owned()) });
    }
    match &cluster.spec.network.service_vips {
        Some(ServiceVips { ranges: Some(ranges), .. }) => {
            let mut addresses = Vec::new();
            for range in ranges {
                let (first, last) = (u32::from(address(&range.first)?), u32::from(address(&range.last)?));
                addresses.extend((first..=last).take(MOST + 1));
            }
            if addresses.len() > MOST {
                let words = format!("network.serviceVIPs has more than {MOST} addresses");
                return Err(Obstacle::new(TenantClusterReason::NotSupported, words));
            }
            let claim = |(index, address)| Claim {
                claimant: own(Purpose::ServiceVip, index),
                from: Source::Named(Ipv4Addr::from(address)),
            };
            all.extend((0..).zip(addresses).map(claim));
        }
        Some(ServiceVips { pool_ref: Some(pool), count, .. }) => {
            let claim =
                |index| Claim { claimant: own(Purpose::ServiceVip, index), from: Source::Pool(pool.name.clone()) };
            from_pools.extend((0..count.unwrap_or_default()).map(claim));
        }
        _ => {}
    }
    all.extend(from_pools);
    Ok(all)
}

fn address(text: &str) -> Result<Ipv4Addr, Obstacle> {
    let why = || Obstacle::new(TenantClusterReason::PreflightNotKnown, format!("{text:?} is no IPv4 address"));
    text.parse().map_err(|_| why())
}

/// What comes next for claims, by the pools and by the addresses that were seen of all of them, for who was late so many times. Who
/// cannot have all of them is given none.
///
/// # Errors
/// When a pool is missing, exhausted or cannot be read, its namespace would have more of it for endpoints and Services than it may, or
/// a named address is somebody else's or nobody's to have.
pub fn next_claim<'s>(
    claims: &[Claim],
    pools: &[IPPool],
    seen: impl IntoIterator<Item = &'s PoolAddressSpec>,
    races: u32,
) -> Result<ClaimStep, Obstacle> {
    let malformed = |error: Malformed| Obstacle::new(TenantClusterReason::PreflightNotKnown, error.to_string());
    let names: Vec<(&str, &IPPoolSpec)> =
        pools.iter().map(|pool| (pool.metadata.name.as_deref().unwrap_or_default(), &pool.spec)).collect();
    let missing = |words: String| Obstacle::new(TenantClusterReason::AddressesMissing, words);
    let seen: Vec<&PoolAddressSpec> = seen.into_iter().collect();
    // Those that it would have by then, beside those that there are.
    let (mut allotted, mut own, mut next) = (AllocatedAddresses::default(), Vec::<PoolAddressSpec>::new(), None);
    for Claim { claimant, from } in claims {
        let seen = seen.iter().copied().chain(&own);
        let (address, to_make) = match from {
            Source::Named(wanted) => match named(&names, seen, *wanted, claimant).map_err(malformed)? {
                NamedAllocation::Has(_) => (*wanted, None),
                NamedAllocation::Make(pool) => (*wanted, Some(pool)),
                NamedAllocation::Taken(other) => {
                    let whose = whose(&other, &claimant.namespace);
                    return Err(missing(format!("{wanted} is in use by {whose}")));
                }
                NamedAllocation::Reserved(pool) => {
                    return Err(missing(format!("{wanted} is reserved in the IPPool {pool}: no cluster can have it")));
                }
                NamedAllocation::InNoPool => {
                    return Err(missing(format!("{wanted} is in the subnet of no IPPool: nobody can have it")));
                }
            },
            Source::Pool(pool) => {
                let not_there =
                    || Obstacle::new(TenantClusterReason::ReferenceMissing, format!("there is no IPPool {pool}"));
                let (_, spec) = names.iter().find(|(name, _)| name == pool).ok_or_else(not_there)?;
                match allocation(pool, spec, seen, claimant, passing(&claimant.uid, races)).map_err(malformed)? {
                    Allocation::Has(address) => (address, None),
                    Allocation::Make(address) => (address, Some(pool.clone())),
                    Allocation::Exhausted => {
                        return Err(missing(format!("the IPPool {pool} has no free address for {}", claimant.name)));
                    }
                }
            }
        };
        if let Some(pool) = to_make {
            let mut object = claimed(&pool, address, claimant.clone());
            object.spec.named = matches!(from, Source::Named(_));
            own.push(object.spec.clone());
            next.get_or_insert(object);
        }
        match claimant.purpose {
            Purpose::Endpoint => allotted.endpoint = Some(address),
            Purpose::Node => allotted.nodes.push((claimant.uid.clone(), address)),
            Purpose::ServiceVip => allotted.service_vips.push(address),
        }
    }
    if let Some(words) = too_many(&names, &seen, &own) {
        return Err(missing(words));
    }
    Ok(match next {
        Some(object) => ClaimStep::Make(Box::new(object), Box::new(allotted)),
        None => ClaimStep::Has(allotted),
    })
}

/// Why a cluster may not have those that it would have beside those that there are: with them its namespace would have more of a pool for
/// endpoints and Services than it may. Nodes neither count nor wait for that, and who asks for nothing more is not judged.
fn too_many(pools: &[(&str, &IPPoolSpec)], seen: &[&PoolAddressSpec], further: &[PoolAddressSpec]) -> Option<String> {
    pools.iter().find_map(|(name, pool)| {
        let most = pool.vips_per_namespace?;
        let namespace = &further.iter().find(|it| is_vip(it, name))?.claimant.namespace;
        let all = seen.iter().copied().chain(further);
        let would = all.filter(|it| is_vip(it, name) && it.claimant.namespace == *namespace).count();
        (would as u64 > u64::from(most)).then(|| {
            format!(
                "with this cluster the namespace {namespace} would have {would} addresses of the IPPool {name} for \
                 endpoints and Services, and it may have {most} (spec.vipsPerNamespace of the pool): name fewer under \
                 network.serviceVIPs if it has some there, delete another cluster of the namespace if it has one, or ask who \
                 runs the pool for more"
            )
        })
    })
}

/// Whether an address of this pool is for a cluster's endpoint or its Services.
fn is_vip(address: &PoolAddressSpec, pool: &str) -> bool {
    address.pool_ref.name == pool && matches!(address.claimant.purpose, Purpose::Endpoint | Purpose::ServiceVip)
}

/// Whose an address is, for who is in this namespace: what is in others is told to nobody.
fn whose(other: &Claimant, namespace: &str) -> String {
    if other.namespace == namespace {
        format!("the {} {namespace}/{}", other.kind, other.name)
    } else {
        "somebody in another namespace: name another one, or ask who runs the pool".to_owned()
    }
}

/// The addresses that a cluster itself has and does not claim, or no longer: they are given back before its first VM.
pub fn left_over(cluster: &TenantCluster, claims: &[Claim], seen: &[PoolAddress]) -> Vec<PoolAddress> {
    let is_claimed = |address: &PoolAddressSpec| {
        claims.iter().any(|Claim { claimant, from }| {
            *claimant == address.claimant
                && match from {
                    Source::Pool(pool) => address.pool_ref.name == *pool && !address.named,
                    Source::Named(named) => address.address == named.to_string(),
                }
        })
    };
    let is_left = |address: &&PoolAddress| {
        address.metadata.deletion_timestamp.is_none()
            && Some(&address.spec.claimant.uid) == cluster.metadata.uid.as_ref()
            && !is_claimed(&address.spec)
    };
    seen.iter().filter(is_left).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{cluster, pool, provider};
    use crate::decisions::machines;
    use crate::objects::{AddressRange, Endpoint, Reference, Resolved};

    fn own(cluster: &TenantCluster) -> Vec<Machine> {
        let mut machines = machines(cluster, &Resolved::default(), &provider());
        for (number, machine) in (1..).zip(&mut machines) {
            machine.metadata.uid = Some(format!("uid-{number}"));
        }
        machines
    }

    /// Claims until nothing is left to claim.
    fn until_all(
        cluster: &TenantCluster,
        pools: &[IPPool],
        seen: &mut Vec<PoolAddressSpec>,
    ) -> Result<AllocatedAddresses, Obstacle> {
        let claims = claims(cluster, &own(cluster), "blue-nodes")?;
        loop {
            match next_claim(&claims, pools, &*seen, 0)? {
                ClaimStep::Has(allotted) => return Ok(allotted),
                ClaimStep::Make(object, _) => seen.push(object.spec),
            }
        }
    }

    #[test]
    fn a_cluster_has_one_address_for_each_purpose_and_asks_for_no_second_one() {
        let (cluster, mut seen) = (cluster(), Vec::new());
        let allotted = until_all(&cluster, &[pool()], &mut seen).unwrap();
        let of = |last: u8| Ipv4Addr::new(192, 168, 10, last);
        assert_eq!(allotted.endpoint, Some(of(10)));
        let nodes = [("uid-1", 20), ("uid-2", 21), ("uid-3", 22)];
        assert_eq!(allotted.nodes, nodes.map(|(uid, last)| (uid.to_owned(), of(last))));
        assert_eq!((&allotted.service_vips, seen.len()), (&vec![of(23), of(24)], 6));
        let named: Vec<_> = seen.iter().filter(|seen| seen.named).map(|seen| seen.address.as_str()).collect();
        assert_eq!(named, ["192.168.10.10"], "beside the ranges, and nobody else's");
        assert_eq!(until_all(&cluster, &[pool()], &mut seen).unwrap(), allotted);
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn what_a_person_has_named_is_claimed_before_nodes_can_be_given_it() {
        let (mut cluster, mut seen) = (cluster(), Vec::new());
        cluster.spec.network.endpoint.address = Some("192.168.10.20".to_owned());
        let range = AddressRange { first: "192.168.10.21".to_owned(), last: "192.168.10.22".to_owned() };
        cluster.spec.network.service_vips =
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
        let allotted = until_all(&cluster, &[pool()], &mut seen).unwrap();
        let nodes: Vec<u8> = allotted.nodes.iter().map(|(_, address)| address.octets()[3]).collect();
        assert_eq!((nodes, allotted.service_vips.len(), seen.len()), (vec![23, 24, 25], 2, 6));
    }

    #[test]
    fn what_cannot_be_had_is_told_with_its_pool_or_its_owner() {
        let (mut cluster, mut full) = (cluster(), pool());
        full.spec.ranges[0].last = "192.168.10.23".to_owned();
        let mut seen = Vec::new();
        let why = until_all(&cluster, &[full.clone()], &mut seen).unwrap_err();
        assert_eq!(why.reason, TenantClusterReason::AddressesMissing);
        assert!(why.message.contains("blue-nodes") && seen.is_empty(), "four of five are no use: {why:?}");
        until_all(&cluster, &[pool()], &mut seen).unwrap();
        cluster.spec.network.endpoint.address = Some("192.168.10.20".to_owned());
        let why = until_all(&cluster, &[pool()], &mut seen).unwrap_err();
        assert_eq!(why.message, "192.168.10.20 is in use by the Machine team-blue/shop-cp1");
        let mut of_another = seen.clone();
        of_another.iter_mut().for_each(|address| address.claimant.namespace = "team-red".to_owned());
        let why = until_all(&cluster, &[pool()], &mut of_another).unwrap_err();
        let words = "192.168.10.20 is in use by somebody in another namespace";
        assert!(why.message.starts_with(words) && !why.message.contains("team-red"), "{why:?}");
        assert!(!why.message.contains("shop-cp1"), "{why:?}");
        for (address, words) in [
            ("192.168.10.1", "192.168.10.1 is reserved in the IPPool blue-nodes: no cluster can have it"),
            ("10.9.0.9", "10.9.0.9 is in the subnet of no IPPool: nobody can have it"),
        ] {
            cluster.spec.network.endpoint.address = Some(address.to_owned());
            let why = until_all(&cluster, &[pool()], &mut Vec::new()).unwrap_err();
            assert_eq!((why.reason, why.message.as_str()), (TenantClusterReason::AddressesMissing, words));
        }
        cluster.spec.network.endpoint = Endpoint { address: None, pool_ref: Some(Reference::to("api")) };
        let why = until_all(&cluster, &[pool()], &mut Vec::new()).unwrap_err();
        assert_eq!(why.reason, TenantClusterReason::ReferenceMissing);
        let range = AddressRange { first: "10.0.0.0".to_owned(), last: "10.0.1.0".to_owned() };
        cluster.spec.network.service_vips =
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
        assert_eq!(claims(&cluster, &[], "blue-nodes").unwrap_err().reason, TenantClusterReason::NotSupported);
    }

    #[test]
    fn a_namespace_has_no_more_addresses_for_endpoints_and_services_than_a_pool_lets_it_have() {
        let (cluster, mut pool) = (cluster(), pool());
        // An endpoint that is named beside the ranges and two addresses for Services; its three nodes count nowhere.
        pool.spec.vips_per_namespace = Some(2);
        let mut seen = Vec::new();
        let why = until_all(&cluster, &[pool.clone()], &mut seen).unwrap_err();
        assert_eq!(why.reason, TenantClusterReason::AddressesMissing);
        let says = |why: &Obstacle, would: u32| {
            let words = format!("the namespace team-blue would have {would} addresses of the IPPool blue-nodes");
            why.message.contains(&words) && why.message.contains("may have 2 (spec.vipsPerNamespace of the pool)")
        };
        assert!(says(&why, 3) && seen.is_empty(), "{why:?}");
        pool.spec.vips_per_namespace = Some(3);
        let had = until_all(&cluster, &[pool.clone()], &mut seen).unwrap();
        assert_eq!(seen.len(), 6);
        // What it has it keeps, and a node of it is given another address.
        pool.spec.vips_per_namespace = Some(2);
        assert_eq!(until_all(&cluster, &[pool.clone()], &mut seen).unwrap(), had);
        seen.retain(|address| address.claimant.uid != "uid-3");
        assert_eq!(until_all(&cluster, &[pool.clone()], &mut seen).unwrap(), had);
        // Others' count with it in its own namespace alone, and of this pool alone.
        let vip = |namespace: &str, pool: &str, last: u8| {
            let claimant = Claimant {
                kind: "TenantCluster".to_owned(),
                namespace: namespace.to_owned(),
                name: "bank".to_owned(),
                uid: "uid-bank".to_owned(),
                purpose: Purpose::ServiceVip,
                index: last.into(),
            };
            claimed(pool, Ipv4Addr::new(192, 168, 10, last), claimant).spec
        };
        let mut others = vec![vip("team-red", "blue-nodes", 90), vip("team-blue", "green-nodes", 91)];
        pool.spec.vips_per_namespace = Some(3);
        until_all(&cluster, &[pool.clone()], &mut others.clone()).unwrap();
        others.extend([vip("team-blue", "blue-nodes", 92), vip("team-blue", "blue-nodes", 93)]);
        pool.spec.vips_per_namespace = Some(2);
        let why = until_all(&cluster, &[pool.clone()], &mut others).unwrap_err();
        assert!(says(&why, 5) && others.len() == 4, "{why:?}");
        // One with an endpoint alone has nothing there that it could give up.
        let mut alone = cluster.clone();
        alone.spec.network.service_vips = None;
        let why = until_all(&alone, &[pool.clone()], &mut others).unwrap_err();
        assert!(says(&why, 3) && why.message.contains("delete another cluster of the namespace"), "{why:?}");
        pool.spec.vips_per_namespace = Some(5);
        until_all(&cluster, &[pool], &mut others).unwrap();
    }

    #[test]
    fn what_is_named_no_longer_is_left_over() {
        let (mut cluster, pools) = (cluster(), [pool()]);
        let named = |last: u8| {
            let range = AddressRange { first: "192.168.10.90".to_owned(), last: format!("192.168.10.{last}") };
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None })
        };
        let held = |cluster: &TenantCluster| {
            let (mut seen, mut all) = (Vec::new(), Vec::new());
            until_all(cluster, &pools, &mut seen).unwrap();
            for address in seen {
                let mut object = PoolAddress::new(&address.address.clone(), address);
                object.metadata.uid = Some("uid".to_owned());
                all.push(object);
            }
            all
        };
        let left = |cluster: &TenantCluster, seen: &[PoolAddress]| {
            let claims = claims(cluster, &own(cluster), "blue-nodes").unwrap();
            let left = left_over(cluster, &claims, seen).into_iter();
            left.map(|address| address.spec.address).collect::<Vec<_>>()
        };
        let from_pool = held(&cluster);
        assert_eq!(left(&cluster, &from_pool), [""; 0]);
        cluster.spec.network.service_vips = named(92);
        assert_eq!(left(&cluster, &from_pool), ["192.168.10.23", "192.168.10.24"]);
        let three = held(&cluster);
        cluster.spec.network.service_vips = named(91);
        assert_eq!(left(&cluster, &three), ["192.168.10.92"]);
        assert_eq!(left_over(&cluster, &[], &three).len(), 4, "its nodes' are their Machines'");
    }
}
