//! Decides the next address of an IPPool, and the owner of a named address. The PoolAddress with the address's name claims it. If
//! the API server already has one of that name, the caller reads it, adds it to `seen`, and decides again. So a request with a
//! lost response is repeated with the same result: the object belongs to the claimant.
//!
//! If many claimants see the same first free address, one gets it. The others skip more addresses after each lost race
//! ([`passing`]). Otherwise each would retry once for each faster claimant.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;

use crate::objects::{Claimant, IPPool, IPPoolSpec, PoolAddress, PoolAddressSpec, Reference};

/// The label with the name of a pool. Its addresses are found by it.
pub const POOL: &str = "kaas.local/pool";
/// The label with the UID of a claimant. Its addresses are found by it.
pub const CLAIMANT: &str = "kaas.local/claimant";

/// Exponent of the maximum number of free addresses to draw from: 4 to the power of this.
const WIDEST: u32 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    Has(Ipv4Addr),
    /// Create this object. If one of its name exists, read it.
    Make(Ipv4Addr),
    Exhausted,
}

/// A pool whose addresses cannot be read. Its rules prevent this, but an object may be older than they are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool has {0:?}, which is no IPv4 address")]
pub struct Malformed(String);

/// How many free addresses a claimant skips after a number of lost races: 0 at first, then less than 4, 16, 64. The UID decides,
/// so that repeated calls return the same.
pub fn passing(uid: &str, races: u32) -> usize {
    let mut hasher = DefaultHasher::new();
    (uid, races).hash(&mut hasher);
    usize::try_from(hasher.finish() % 4_u64.pow(races.min(WIDEST))).unwrap_or_default()
}

/// Decides the address for a claimant of the pool `name`. `seen` has the addresses of all pools. Some may be deleted since,
/// others created. Named addresses of other pools count too: the ranges of this pool may contain them now. Skips `passing` free
/// addresses, modulo their number.
pub fn allocation<'s>(
    name: &str,
    pool: &IPPoolSpec,
    seen: impl IntoIterator<Item = &'s PoolAddressSpec, IntoIter: Clone>,
    claimant: &Claimant,
    passing: usize,
) -> Result<Allocation, Malformed> {
    let seen = seen.into_iter();
    let of_pool = |seen: &&PoolAddressSpec| seen.pool_ref.name == name;
    if let Some(own) = seen.clone().filter(of_pool).find(|seen| is_same(&seen.claimant, claimant)) {
        return address(&own.address).map(Allocation::Has);
    }
    let mut taken = left_out(pool)?.into_iter().collect::<HashSet<_>>();
    for seen in seen {
        taken.insert(address(&seen.address)?);
    }
    let all = ranges(pool)?.into_iter().flat_map(|(first, last)| (first..=last).map(Ipv4Addr::from));
    let free: Vec<Ipv4Addr> = all.filter(|candidate| !taken.contains(candidate)).take(passing + 1).collect();
    let next = free.get(passing % free.len().max(1));
    Ok(next.map_or(Allocation::Exhausted, |next| Allocation::Make(*next)))
}

/// The next action for a named address: an endpoint, or one of a cluster's own ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedAllocation {
    /// The claimant has it in this pool.
    Has(String),
    /// Create the object in this pool. If one of its name exists, read it. No other claimant gets the address then.
    Make(String),
    Taken(Claimant),
    /// This pool reserves it, so no cluster gets it.
    Reserved(String),
    /// It is in no pool's subnet, so claims of it could not be seen.
    InNoPool,
}

/// Decides a named address by all pools and all seen addresses. It is claimed in the pool whose ranges contain it, otherwise in
/// the first one whose subnet does. So two clusters that name the same address create the same object, on any network.
pub fn named<'s>(
    pools: &[(&str, &IPPoolSpec)],
    seen: impl IntoIterator<Item = &'s PoolAddressSpec>,
    wanted: Ipv4Addr,
    claimant: &Claimant,
) -> Result<NamedAllocation, Malformed> {
    let text = wanted.to_string();
    let there = seen.into_iter().filter(|seen| seen.address == text).collect::<Vec<_>>();
    if let Some(other) = there.iter().find(|seen| !is_same(&seen.claimant, claimant)) {
        return Ok(NamedAllocation::Taken(other.claimant.clone()));
    }
    if let Some(own) = there.first() {
        return Ok(NamedAllocation::Has(own.pool_ref.name.clone()));
    }
    let (mut in_ranges, mut in_subnet) = (None, None);
    for (name, pool) in pools {
        let (first, last, _) = subnet(pool)?;
        if !(first..=last).contains(&u32::from(wanted)) {
            continue;
        }
        if left_out(pool)?.contains(&wanted) || pool.dns_servers.contains(&text) {
            return Ok(NamedAllocation::Reserved((*name).to_owned()));
        }
        in_subnet.get_or_insert(*name);
        if ranges(pool)?.iter().any(|(first, last)| (first..=last).contains(&&u32::from(wanted))) {
            in_ranges.get_or_insert(*name);
        }
    }
    Ok(in_ranges.or(in_subnet).map_or(NamedAllocation::InNoPool, |name| NamedAllocation::Make(name.to_owned())))
}

/// Whether two claimants are the same. Another object of the same name has another UID, and no right to the address. An address
/// of an endpoint is not for a Service, even of the same cluster.
fn is_same(one: &Claimant, other: &Claimant) -> bool {
    let of = |claimant: &Claimant| (claimant.kind.clone(), claimant.uid.clone(), claimant.purpose, claimant.index);
    of(one) == of(other)
}

/// The object that claims an address. Its name is the address alone, so that two pools never give out the same address.
pub fn claimed(pool: &str, address: Ipv4Addr, claimant: Claimant) -> PoolAddress {
    let [a, b, c, d] = address.octets();
    let spec = PoolAddressSpec { pool_ref: Reference::to(pool), address: address.to_string(), claimant, named: false };
    let mut object = PoolAddress::new(&format!("{a}-{b}-{c}-{d}"), spec);
    let of = object.spec.claimant.uid.clone();
    object.metadata.labels = Some(BTreeMap::from([(POOL.to_owned(), pool.to_owned()), (CLAIMANT.to_owned(), of)]));
    object
}

/// Reserves further addresses in the pools whose subnets contain them. These are addresses with a known owner that the spec
/// does not reserve, and the gateways of all pools.
pub fn leaving_out(mut pools: Vec<IPPool>, others: &[Ipv4Addr]) -> Vec<IPPool> {
    let gateways = pools.iter().filter_map(|pool| pool.spec.gateway.as_ref()?.parse::<Ipv4Addr>().ok());
    let others: BTreeSet<Ipv4Addr> = gateways.chain(others.iter().copied()).collect();
    for pool in &mut pools {
        // An unreadable pool is reported where it is used.
        let Ok((first, last, _)) = subnet(&pool.spec) else { continue };
        let is_known = |other: Ipv4Addr| pool.spec.gateway.as_deref() == Some(other.to_string().as_str());
        let within = others.iter().filter(|other| (first..=last).contains(&u32::from(**other)) && !is_known(**other));
        pool.spec.reserved.extend(within.map(ToString::to_string));
    }
    pools
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressState {
    GivenOut,
    /// The pool no longer assigns it. Its current claimant keeps it.
    LeftOut,
    Outside,
}

pub(super) fn standing(pool: &IPPoolSpec, used: &str) -> Result<AddressState, Malformed> {
    let used = address(used)?;
    let is_in = ranges(pool)?.iter().any(|(first, last)| (first..=last).contains(&&u32::from(used)));
    Ok(match (is_in, left_out(pool)?.contains(&used)) {
        (false, _) => AddressState::Outside,
        (true, true) => AddressState::LeftOut,
        (true, false) => AddressState::GivenOut,
    })
}

/// Whether a pool assigns an address, in use or not: it is in its ranges, and not reserved.
pub fn gives_out(pool: &IPPoolSpec, candidate: Ipv4Addr) -> Result<bool, Malformed> {
    let text = candidate.to_string();
    Ok(standing(pool, &text)? == AddressState::GivenOut && !pool.dns_servers.contains(&text))
}

pub fn total(pool: &IPPool) -> Result<u64, Malformed> {
    let (ranges, left_out) = (ranges(&pool.spec)?, left_out(&pool.spec)?);
    let all: u64 =
        ranges.iter().map(|(first, last)| u64::from(last.saturating_sub(*first)) + u64::from(first <= last)).sum();
    let within = left_out.iter().map(|address| u32::from(*address));
    let out = within.filter(|address| ranges.iter().any(|(first, last)| (first..=last).contains(&address))).count();
    Ok(all.saturating_sub(out as u64))
}

/// Addresses that no cluster gets, in a range or not. These are the gateway, the reserved ones, and the first and last address of
/// the subnet, which no host can have.
fn left_out(pool: &IPPoolSpec) -> Result<BTreeSet<Ipv4Addr>, Malformed> {
    let named = pool.reserved.iter().chain(&pool.gateway).map(|text| address(text));
    let mut out = named.collect::<Result<BTreeSet<_>, _>>()?;
    let (first, last, _) = subnet(pool)?;
    out.extend([first, last].map(Ipv4Addr::from));
    Ok(out)
}

/// The first and the last address of a pool's subnet, and its prefix length.
pub(super) fn subnet(pool: &IPPoolSpec) -> Result<(u32, u32, u8), Malformed> {
    let malformed = || Malformed(pool.subnet.clone());
    let (network, prefix) = pool.subnet.split_once('/').ok_or_else(malformed)?;
    // Longer prefixes have no host addresses between these two. The kind rejects them.
    let prefix: u8 = prefix.parse().ok().filter(|prefix| (1..=30).contains(prefix)).ok_or_else(malformed)?;
    let network = u32::from(address(network)?);
    Ok((network, network | (u32::MAX >> prefix), prefix))
}

pub(super) fn ranges(pool: &IPPoolSpec) -> Result<Vec<(u32, u32)>, Malformed> {
    pool.ranges.iter().map(|range| Ok((address(&range.first)?.into(), address(&range.last)?.into()))).collect()
}

fn address(text: &str) -> Result<Ipv4Addr, Malformed> {
    text.parse().map_err(|_| Malformed(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{AddressRange, Purpose};

    fn range(first: &str, last: &str) -> AddressRange {
        AddressRange { first: first.to_owned(), last: last.to_owned() }
    }

    fn pool() -> IPPoolSpec {
        IPPoolSpec {
            subnet: "10.0.0.0/24".to_owned(),
            ranges: vec![range("10.0.0.0", "10.0.0.3"), range("10.0.0.254", "10.0.0.255")],
            reserved: vec!["10.0.0.2".to_owned()],
            vips_per_namespace: None,
            gateway: Some("10.0.0.1".to_owned()),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        }
    }

    fn claimant(uid: &str) -> Claimant {
        let text = str::to_owned;
        Claimant {
            kind: text("Machine"),
            namespace: text("ns"),
            name: text("same"),
            uid: text(uid),
            purpose: Purpose::Node,
            index: 0,
        }
    }

    /// A claimant of a cluster for a purpose.
    fn of_cluster(uid: &str, purpose: Purpose, index: u32) -> Claimant {
        Claimant { kind: "TenantCluster".to_owned(), purpose, index, ..claimant(uid) }
    }

    fn held(address: &str, uid: &str) -> PoolAddressSpec {
        claimed("p", address.parse().unwrap(), claimant(uid)).spec
    }

    #[test]
    fn pool_assigns_unreserved_addresses_of_its_ranges() {
        let pool = IPPoolSpec { dns_servers: vec!["10.0.0.3".to_owned()], ..pool() };
        let gives = |last: u8| gives_out(&pool, [10, 0, 0, last].into()).unwrap();
        assert_eq!([0, 1, 2, 3, 9, 254, 255].map(gives), [false, false, false, false, false, true, false]);
    }

    #[test]
    fn first_free_host_address_is_next() {
        let next = |seen: &[PoolAddressSpec]| allocation("p", &pool(), seen, &claimant("new"), 0).unwrap();
        assert_eq!(next(&[]), Allocation::Make("10.0.0.3".parse().unwrap()));
        assert_eq!(next(&[held("10.0.0.3", "a")]), Allocation::Make("10.0.0.254".parse().unwrap()));
        let all = [held("10.0.0.3", "a"), held("10.0.0.254", "b")];
        assert_eq!(next(&all), Allocation::Exhausted);
        assert_eq!(
            allocation("p", &pool(), &all, &claimant("b"), 0).unwrap(),
            Allocation::Has("10.0.0.254".parse().unwrap())
        );
        let other_kind = Claimant { kind: "TenantCluster".to_owned(), ..claimant("b") };
        assert_eq!(allocation("p", &pool(), &all, &other_kind, 0).unwrap(), Allocation::Exhausted);
        assert_eq!(total(&IPPool::new("p", pool())).unwrap(), 2);
        let broken = IPPoolSpec { gateway: Some("x".to_owned()), ..pool() };
        assert_eq!(allocation("p", &broken, &[], &claimant("a"), 0), Err(Malformed("x".to_owned())));
    }

    #[test]
    fn object_name_matches_the_rule_of_the_kind() {
        let object = claimed("blue-nodes", "192.168.10.21".parse().unwrap(), claimant("a"));
        assert_eq!(object.metadata.name.as_deref(), Some("192-168-10-21"));
    }

    /// Finding 4 of controller.md: the first free address of both pools is the same. Only one claimant gets it.
    #[test]
    fn two_pools_never_give_out_one_address() {
        let mut names = Names::default();
        let made = ["blue", "green"].map(|name| match allocation(name, &pool(), &[], &claimant(name), 0).unwrap() {
            Allocation::Make(address) => names.make(&claimed(name, address, claimant(name))).is_ok(),
            other => panic!("{other:?}"),
        });
        assert_eq!(made, [true, false]);
    }

    /// Finding 3 of controller.md.
    #[test]
    fn gateway_of_another_pool_is_reserved() {
        let (mut blue, green) = (pool(), pool());
        (blue.gateway, blue.reserved) = (None, Vec::new());
        let pools = leaving_out(vec![IPPool::new("blue", blue), IPPool::new("green", green.clone())], &[]);
        assert_eq!(pools[0].spec.reserved, ["10.0.0.1"]);
        assert_eq!(pools[1].spec.reserved, green.reserved, "its own gateway is reserved already");
        let own = of_cluster("u", Purpose::ServiceVip, 0);
        let decided = named(&[("blue", &pools[0].spec)], &[], [10, 0, 0, 1].into(), &own).unwrap();
        assert_eq!(decided, NamedAllocation::Reserved("blue".to_owned()));
    }

    /// All look at the same time, then all create. One claimant gets each address, and the others look again.
    #[test]
    fn many_concurrent_claimants_need_few_rounds() {
        let mut pool = pool();
        pool.ranges = vec![range("10.0.0.10", "10.0.0.249")];
        let mut names = Names::default();
        let (mut waiting, mut looks): (Vec<String>, u32) = ((0..200).map(|number| format!("u{number}")).collect(), 0);
        while !waiting.is_empty() {
            let seen: Vec<_> = names.0.values().cloned().collect();
            waiting.retain(|uid| {
                let own = claimant(uid);
                match allocation("p", &pool, &seen, &own, passing(uid, looks)).unwrap() {
                    Allocation::Make(address) => names.make(&claimed("p", address, own)).is_err(),
                    other => panic!("{other:?}"),
                }
            });
            looks += 1;
        }
        assert!(looks <= 20, "{looks} looks");
        assert_eq!(names.0.len(), 200);
        assert_eq!((passing("u", 0), passing("u", 5)), (0, passing("u", 5)));
        assert!((0..200).all(|number| passing(&format!("u{number}"), 2) < 16 && passing("u", number) < 4096));
    }

    #[test]
    fn skipping_wraps_around_the_free_addresses() {
        let next = |passing| allocation("p", &pool(), &[], &claimant("new"), passing).unwrap();
        let all = ["10.0.0.3", "10.0.0.254"].map(|address| Allocation::Make(address.parse().unwrap()));
        assert_eq!([0, 1, 2, 5].map(next), [&all[0], &all[1], &all[0], &all[1]].map(Clone::clone));
    }

    #[test]
    fn address_has_labels_of_pool_and_claimant() {
        let labels = claimed("p", "10.0.0.3".parse().unwrap(), claimant("u")).metadata.labels.unwrap();
        assert_eq!((labels[POOL].as_str(), labels[CLAIMANT].as_str()), ("p", "u"));
    }

    /// All responses are lost once, and all decisions forgotten, as after the death of a leader.
    #[test]
    fn each_purpose_of_a_cluster_has_its_object() {
        let mut pool = pool();
        pool.ranges = vec![range("10.0.0.10", "10.0.0.29")];
        let mut names = Names::default();
        let vip = |index| of_cluster("u", Purpose::ServiceVip, index);
        let wanted = [of_cluster("u", Purpose::Endpoint, 0), vip(0), vip(1), vip(2)];
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.clear();
            for claimant in &wanted {
                let seen: Vec<_> = names.0.values().cloned().collect();
                taken.push(match allocation("p", &pool, &seen, claimant, 0).unwrap() {
                    Allocation::Make(address) => {
                        names.make(&claimed("p", address, claimant.clone())).unwrap();
                        address
                    }
                    Allocation::Has(address) => address,
                    Allocation::Exhausted => panic!("there is room"),
                });
            }
        }
        assert_eq!(taken, (10..14).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect::<Vec<_>>());
        assert_eq!(names.0.len(), 4);
    }

    #[test]
    fn named_address_is_claimed_in_its_pool() {
        let (blue, own) = (pool(), of_cluster("u", Purpose::Endpoint, 0));
        let green =
            IPPoolSpec { subnet: "10.1.0.0/24".to_owned(), ranges: vec![range("10.1.0.9", "10.1.0.9")], ..pool() };
        let pools = [("blue", &blue), ("green", &green)];
        let decided = |seen: &[PoolAddressSpec], address: &str, claimant: &Claimant| {
            named(&pools, seen, address.parse().unwrap(), claimant).unwrap()
        };
        assert_eq!(decided(&[], "10.1.0.9", &own), NamedAllocation::Make("green".to_owned()));
        assert_eq!(
            decided(&[], "10.0.0.9", &own),
            NamedAllocation::Make("blue".to_owned()),
            "beside the ranges, in the subnet"
        );
        assert_eq!(decided(&[], "10.2.0.9", &own), NamedAllocation::InNoPool);
        let taken = [claimed("green", "10.1.0.9".parse().unwrap(), own.clone()).spec];
        assert_eq!(decided(&taken, "10.1.0.9", &own), NamedAllocation::Has("green".to_owned()));
        for other in [of_cluster("v", Purpose::Endpoint, 0), of_cluster("u", Purpose::ServiceVip, 0), claimant("u")] {
            assert_eq!(decided(&taken, "10.1.0.9", &other), NamedAllocation::Taken(own.clone()));
        }
        assert_eq!(
            allocation("green", &green, &taken, &claimant("m"), 0).unwrap(),
            Allocation::Exhausted,
            "no node is given it"
        );
    }

    #[test]
    fn reserved_address_cannot_be_named() {
        let (own, mut blue) = (of_cluster("u", Purpose::Endpoint, 0), pool());
        (blue.dns_servers, blue.reserved) =
            (vec!["10.0.0.53".to_owned()], vec!["10.0.0.2".to_owned(), "10.0.0.77".to_owned()]);
        let other = IPPoolSpec { ranges: vec![range("10.0.0.70", "10.0.0.80")], reserved: Vec::new(), ..blue.clone() };
        let decided = |pools: &[(&str, &IPPoolSpec)], address: &str, seen: &[PoolAddressSpec]| {
            named(pools, seen, address.parse().unwrap(), &own).unwrap()
        };
        // In a range, outside all ranges, the gateway, a DNS server, and addresses that no host can have.
        for address in ["10.0.0.2", "10.0.0.77", "10.0.0.1", "10.0.0.53", "10.0.0.0", "10.0.0.255"] {
            assert_eq!(
                decided(&[("blue", &blue)], address, &[]),
                NamedAllocation::Reserved("blue".to_owned()),
                "{address}"
            );
        }
        // Another pool of the same subnet does not assign what this one reserves.
        assert_eq!(
            decided(&[("a", &other), ("blue", &blue)], "10.0.0.77", &[]),
            NamedAllocation::Reserved("blue".to_owned())
        );
        assert_eq!(decided(&[("a", &other), ("blue", &blue)], "10.0.0.78", &[]), NamedAllocation::Make("a".to_owned()));
        let had = [claimed("blue", "10.0.0.77".parse().unwrap(), own.clone()).spec];
        assert_eq!(
            decided(&[("blue", &blue)], "10.0.0.77", &had),
            NamedAllocation::Has("blue".to_owned()),
            "it was had before"
        );
    }

    #[test]
    fn known_foreign_address_is_reserved() {
        let [inside, outside] = [Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(192, 168, 7, 7)];
        let mut broken = IPPool::new("broken", pool());
        broken.spec.subnet = "x".to_owned();
        let before = [IPPool::new("p", pool()), broken.clone()];
        let pools = leaving_out(before.to_vec(), &[inside, outside]);
        assert_eq!(pools[0].spec.reserved, [before[0].spec.reserved.clone(), vec![inside.to_string()]].concat());
        assert_eq!(pools[1].spec.reserved, broken.spec.reserved);
        let decided = named(&[("p", &pools[0].spec)], &[], inside, &claimant("a")).unwrap();
        assert_eq!(decided, NamedAllocation::Reserved("p".to_owned()));
        // The current claimant keeps it.
        let had = named(&[("p", &pools[0].spec)], &[held(&inside.to_string(), "a")], inside, &claimant("a")).unwrap();
        assert_eq!(had, NamedAllocation::Has("p".to_owned()));
    }

    #[test]
    fn clusters_naming_one_address_create_one_object() {
        let (blue, own) = (pool(), of_cluster("u", Purpose::Endpoint, 0));
        let other = IPPoolSpec { ranges: vec![range("10.0.0.200", "10.0.0.210")], ..pool() };
        let pools = [("api", &other), ("blue", &blue)];
        for claimant in [own.clone(), of_cluster("v", Purpose::ServiceVip, 7)] {
            let decided = named(&pools, &[], "10.0.0.99".parse().unwrap(), &claimant).unwrap();
            assert_eq!(decided, NamedAllocation::Make("api".to_owned()));
        }
        // Ranges that contain it later do not assign it to others, in any pool.
        let taken = [claimed("api", "10.0.0.20".parse().unwrap(), own).spec];
        let grown = IPPoolSpec { ranges: vec![range("10.0.0.20", "10.0.0.21")], ..pool() };
        let next = allocation("blue", &grown, &taken, &claimant("m"), 0).unwrap();
        assert_eq!(next, Allocation::Make("10.0.0.21".parse().unwrap()));
    }

    #[derive(Default)]
    struct Names(BTreeMap<String, PoolAddressSpec>);

    impl Names {
        fn make(&mut self, object: &PoolAddress) -> Result<(), Box<PoolAddressSpec>> {
            match self.0.entry(object.metadata.name.clone().unwrap()) {
                std::collections::btree_map::Entry::Occupied(there) => Err(Box::new(there.get().clone())),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(object.spec.clone());
                    Ok(())
                }
            }
        }
    }

    /// Claimants without knowledge of each other, some with lost responses. Each ends with one address, and none with that of
    /// another.
    #[test]
    fn blind_claimants_never_share_an_address() {
        let mut pool = pool();
        pool.ranges = vec![range("10.0.0.10", "10.0.0.29")];
        let mut names = Names::default();
        for number in 0..20 {
            let own = claimant(&format!("u{number}"));
            let mut seen = Vec::new();
            let mut losses = number % 3;
            let got = loop {
                match allocation("p", &pool, &seen, &own, 0).unwrap() {
                    Allocation::Has(address) => break address,
                    Allocation::Make(address) => match names.make(&claimed("p", address, own.clone())) {
                        // It was created, and the response lost.
                        Ok(()) if losses > 0 => losses -= 1,
                        Ok(()) => break address,
                        Err(there) => seen.push(*there),
                    },
                    Allocation::Exhausted => panic!("there are as many addresses as claimants"),
                }
            };
            let of_own = names.0.values().filter(|held| held.claimant.uid == own.uid).collect::<Vec<_>>();
            assert_eq!(of_own.len(), 1);
            assert_eq!(of_own[0].address, got.to_string());
        }
        assert_eq!(names.0.len(), 20);
    }
}
