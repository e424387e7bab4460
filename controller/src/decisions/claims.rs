//! The addresses of a cluster: which ones it claims, and the state of the claims. One PoolAddress is created at a time. If the
//! API server already has one of its name, it is read, and the next claim is decided again.

use std::net::Ipv4Addr;

use super::addresses::{Allocation, Malformed, NamedAllocation, allocation, claimed, named, passing};
use super::ip_pool::overlaps;
use super::obstacle::Obstacle;
use crate::objects::{
    Claimant, IPPool, IPPoolSpec, Machine, PoolAddress, PoolAddressSpec, Purpose, ServiceVips, TenantCluster,
    TenantClusterReason,
};

/// Maximum number of addresses for Services: `index` of a claimant is at most 255.
const MOST: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub claimant: Claimant,
    pub from: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Pool(String),
    /// An address that the spec names.
    Named(Ipv4Addr),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedAddresses {
    pub endpoint: Option<Ipv4Addr>,
    /// The addresses of control-plane nodes, by the UIDs of their Machines.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// The addresses for Services, by number.
    pub service_vips: Vec<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    Has(AllocatedAddresses),
    /// Create this object. With all claims, the cluster would have these addresses.
    Make(Box<PoolAddress>, Box<AllocatedAddresses>),
}

impl ClaimStep {
    /// The addresses that the cluster has, or would have with all claims.
    pub fn allotted(&self) -> &AllocatedAddresses {
        match self {
            Self::Has(allotted) => allotted,
            Self::Make(_, allotted) => allotted,
        }
    }
}

/// A Machine as the claimant of its node's address.
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

/// The claims of a cluster for its control plane. Named addresses come first, so that no node gets one of them. `machines` are
/// those of its control-plane nodes, `pool` is the pool of their addresses.
///
/// # Errors
/// A named address is malformed, or there are too many.
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

/// The claims for addresses for Services that the spec names and a running cluster lacks. `own` are its addresses. Each keeps its
/// number, and none is released: Services may use it.
///
/// # Errors
/// As [`claims`], or the cluster would have too many.
pub fn further_vips(cluster: &TenantCluster, own: &[PoolAddress]) -> Result<Vec<Claim>, Obstacle> {
    let vips = service_vips(own);
    let has = |from: &Source, place: usize| match from {
        Source::Named(address) => vips.iter().any(|vip| vip.address == address.to_string()),
        Source::Pool(pool) => place < vips.iter().filter(|vip| vip.pool_ref.name == *pool && !vip.named).count(),
    };
    let missing = vip_claims(cluster)?.into_iter().enumerate().filter(|(place, claim)| !has(&claim.from, *place));
    let mut free = (0..).take(MOST).filter(|index| vips.iter().all(|vip| vip.claimant.index != *index));
    let numbered = |(_, claim): (usize, Claim)| match free.next() {
        Some(index) => Ok(Claim { claimant: Claimant { index, ..claim.claimant }, from: claim.from }),
        None => {
            let words = format!("with network.serviceVIPs the cluster would have more than {MOST} addresses");
            Err(Obstacle::new(TenantClusterReason::NotSupported, words))
        }
    };
    missing.map(numbered).collect()
}

/// The addresses for Services among those of a cluster, in the order of their numbers.
pub fn service_vips(own: &[PoolAddress]) -> Vec<&PoolAddressSpec> {
    let own = own.iter().map(|address| &address.spec);
    let mut vips: Vec<_> = own.filter(|own| own.claimant.purpose == Purpose::ServiceVip).collect();
    vips.sort_by_key(|vip| vip.claimant.index);
    vips
}

/// The message about addresses for Services that a cluster has and the spec no longer names. `None` without such addresses.
pub fn kept_vips(cluster: &TenantCluster, has: &[String]) -> Option<String> {
    let wanted = vip_claims(cluster).ok()?;
    let is_wanted = |place: usize, address: &str| match wanted.first().map(|claim| &claim.from) {
        None => false,
        Some(Source::Pool(_)) => place < wanted.len(),
        Some(Source::Named(_)) => {
            wanted.iter().any(|claim| matches!(&claim.from, Source::Named(named) if named.to_string() == address))
        }
    };
    let has = has.iter().map(String::as_str).enumerate();
    let kept: Vec<&str> = has.filter(|(place, it)| !is_wanted(*place, it)).map(|(_, it)| it).collect();
    let words =
        || format!("network.serviceVIPs: these addresses stay, because Services may use them: {}", kept.join(", "));
    (!kept.is_empty()).then(words)
}

fn vip_claims(cluster: &TenantCluster) -> Result<Vec<Claim>, Obstacle> {
    let all = claims(cluster, &[], "")?;
    Ok(all.into_iter().filter(|claim| claim.claimant.purpose == Purpose::ServiceVip).collect())
}

fn address(text: &str) -> Result<Ipv4Addr, Obstacle> {
    let why = || Obstacle::new(TenantClusterReason::PreflightNotKnown, format!("{text:?} is no IPv4 address"));
    text.parse().map_err(|_| why())
}

/// The next claim, from the pools and the seen addresses of all of them, after this number of lost races. A cluster that cannot
/// get all addresses claims none.
///
/// # Errors
/// A pool is missing, exhausted or cannot be read. Or its namespace would exceed its share for endpoints and Services. Or a named
/// address is reserved, in no pool, or has another owner.
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
    // The addresses that the cluster would claim, in addition to the seen ones.
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
                    return Err(missing(format!("{wanted} is in the subnet of no IPPool: no cluster can have it")));
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
            let whole = pools.iter().find(|whole| whole.metadata.name.as_ref() == Some(&pool));
            let overlap = whole.map(|whole| overlaps(whole, pools)).transpose().map_err(malformed)?.flatten();
            if let Some(words) = overlap {
                return Err(missing(format!("the IPPool {pool} gives out no address: {words}")));
            }
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

/// Why a cluster may not claim `further` addresses: with them its namespace would have more of a pool for endpoints and Services
/// than allowed. Nodes do not count and are not limited by it. Without further addresses nothing is checked.
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

/// The owner of an address, for users of this namespace. Objects of other namespaces are not named.
fn whose(other: &Claimant, namespace: &str) -> String {
    if other.namespace == namespace {
        format!("the {} {namespace}/{}", other.kind, other.name)
    } else {
        "an object in another namespace: name another one, or ask who runs the pool".to_owned()
    }
}

/// The addresses that a cluster itself has and does not claim, or no longer. They are released before its first VM.
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

    /// Finding 4 of controller.md.
    #[test]
    fn overlapping_pools_give_out_nothing() {
        let cluster = cluster();
        let all = claims(&cluster, &own(&cluster), "blue-nodes").unwrap();
        let mut other = pool();
        other.metadata.name = Some("other".to_owned());
        let pools = [pool(), other];
        let refused = next_claim(&all, &pools, &[], 0).unwrap_err();
        assert_eq!(refused.reason, TenantClusterReason::AddressesMissing);
        let words = "the IPPool blue-nodes gives out no address: ranges of it are in other pools as well: other";
        assert_eq!(refused.message, words);
        let held = claimed("blue-nodes", [192, 168, 10, 10].into(), all[0].claimant.clone()).spec;
        let kept = next_claim(&all[..1], &pools, &[held], 0).unwrap();
        assert!(matches!(kept, ClaimStep::Has(_)), "{kept:?}");
    }

    fn own(cluster: &TenantCluster) -> Vec<Machine> {
        let mut machines = machines(cluster, &Resolved::default(), &provider());
        for (number, machine) in (1..).zip(&mut machines) {
            machine.metadata.uid = Some(format!("uid-{number}"));
        }
        machines
    }

    /// Claims until all claims are met.
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
    fn cluster_claims_each_address_once() {
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

    // Finding 14 of controller.md: addresses for Services are added to a running cluster.
    #[test]
    fn further_addresses_are_claimed_and_none_released() {
        let (mut cluster, mut seen) = (cluster(), Vec::new());
        until_all(&cluster, &[pool()], &mut seen).unwrap();
        let object = |spec: &PoolAddressSpec| PoolAddress::new("x", spec.clone());
        let missing = |cluster: &TenantCluster, seen: &[PoolAddressSpec]| {
            let own: Vec<PoolAddress> = seen.iter().map(object).collect();
            further_vips(cluster, &own).unwrap()
        };
        assert!(missing(&cluster, &seen).is_empty());
        cluster.spec.network.service_vips.as_mut().unwrap().count = Some(4);
        let further = missing(&cluster, &seen);
        assert_eq!(further.iter().map(|claim| claim.claimant.index).collect::<Vec<_>>(), [2, 3]);
        while let ClaimStep::Make(made, _) = next_claim(&further, &[pool()], &*seen, 0).unwrap() {
            seen.push(made.spec);
        }
        assert_eq!((missing(&cluster, &seen), seen.len()), (Vec::new(), 8));

        // The spec names other addresses: one that the cluster has, and one that it lacks.
        let range = AddressRange { first: "192.168.10.26".to_owned(), last: "192.168.10.27".to_owned() };
        cluster.spec.network.service_vips =
            Some(ServiceVips { ranges: Some(vec![range]), pool_ref: None, count: None });
        let further = missing(&cluster, &seen);
        assert_eq!(further.len(), 1);
        assert_eq!((further[0].claimant.index, &further[0].from), (4, &Source::Named([192, 168, 10, 27].into())));
        let has = ["192.168.10.25", "192.168.10.26"].map(str::to_owned);
        let words = kept_vips(&cluster, &has).unwrap();
        assert!(words.ends_with("use them: 192.168.10.25"), "{words}");
        assert_eq!(kept_vips(&cluster, &has[1..]), None);
        cluster.spec.network.service_vips = None;
        assert!(kept_vips(&cluster, &has[1..]).is_some() && missing(&cluster, &seen).is_empty());
    }

    #[test]
    fn named_addresses_are_claimed_before_those_of_nodes() {
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
    fn unavailable_address_is_reported_with_pool_or_owner() {
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
        let words = "192.168.10.20 is in use by an object in another namespace";
        assert!(why.message.starts_with(words) && !why.message.contains("team-red"), "{why:?}");
        assert!(!why.message.contains("shop-cp1"), "{why:?}");
        for (address, words) in [
            ("192.168.10.1", "192.168.10.1 is reserved in the IPPool blue-nodes: no cluster can have it"),
            ("10.9.0.9", "10.9.0.9 is in the subnet of no IPPool: no cluster can have it"),
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
    fn namespace_stays_within_its_share_of_virtual_ips() {
        let (cluster, mut pool) = (cluster(), pool());
        // A named endpoint outside the ranges, and two addresses for Services. Its three nodes do not count.
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
        // The cluster keeps its addresses, and a node can get another one.
        pool.spec.vips_per_namespace = Some(2);
        assert_eq!(until_all(&cluster, &[pool.clone()], &mut seen).unwrap(), had);
        seen.retain(|address| address.claimant.uid != "uid-3");
        assert_eq!(until_all(&cluster, &[pool.clone()], &mut seen).unwrap(), had);
        // Other clusters count only in the same namespace and pool.
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
        // A cluster with only an endpoint has no address to give up.
        let mut alone = cluster.clone();
        alone.spec.network.service_vips = None;
        let why = until_all(&alone, &[pool.clone()], &mut others).unwrap_err();
        assert!(says(&why, 3) && why.message.contains("delete another cluster of the namespace"), "{why:?}");
        pool.spec.vips_per_namespace = Some(5);
        until_all(&cluster, &[pool], &mut others).unwrap();
    }

    #[test]
    fn unclaimed_addresses_are_left_over() {
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
