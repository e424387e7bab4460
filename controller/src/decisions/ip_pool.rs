//! The status of an IPPool, from the addresses in use and the other pools.

use super::addresses::{AddressState, Malformed, ranges, standing, total};
use super::text::listed;
use crate::objects::{IPPool, IPPoolReason, PoolAddress};

/// Maximum number of names in a message.
const NAMED: usize = 10;

/// The numbers of a pool, and the reasons of its conditions with their messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Number of addresses that can be assigned.
    pub total: u64,
    /// Number of these that are in use.
    pub used: u64,
    pub ready: (IPPoolReason, String),
    /// Whether all addresses in use are in its ranges.
    pub consistent: (IPPoolReason, String),
}

/// Evaluates a pool by all its addresses in use, and by all pools.
pub fn pool_usage(pool: &IPPool, addresses: &[PoolAddress], all: &[IPPool]) -> Result<PoolUsage, Malformed> {
    let total = total(pool)?;
    let (mut used, mut outside) = (0, Vec::new());
    for address in addresses {
        match standing(&pool.spec, &address.spec.address)? {
            AddressState::GivenOut => used += 1,
            AddressState::LeftOut => {}
            // A cluster names it itself: the claim only prevents a second one.
            AddressState::Outside if address.spec.named => {}
            AddressState::Outside => outside.push(address.spec.address.as_str()),
        }
    }
    let ready = if let Some(words) = overlaps(pool, all)? {
        (IPPoolReason::Overlaps, words)
    } else if used >= total {
        (IPPoolReason::Exhausted, format!("all {total} addresses are in use"))
    } else {
        (IPPoolReason::AddressesFree, format!("{} of {total} addresses are free", total - used))
    };
    let consistent = if outside.is_empty() {
        (IPPoolReason::AllInRanges, String::new())
    } else {
        (IPPoolReason::OutsideRanges, format!("in use, and no longer in a range: {}", listed(&outside, NAMED)))
    };
    Ok(PoolUsage { total, used, ready, consistent })
}

/// Why a pool gives out no address: its ranges are in other pools too. `None` if they are in no other pool.
pub fn overlaps(pool: &IPPool, all: &[IPPool]) -> Result<Option<String>, Malformed> {
    let name = pool.metadata.name.as_deref();
    let mut others = Vec::new();
    for other in all.iter().filter(|other| other.metadata.name.as_deref() != name) {
        if overlap(pool, other)? {
            others.push(other.metadata.name.as_deref().unwrap_or_default());
        }
    }
    let words = || format!("ranges of it are in other pools as well: {}", listed(&others, NAMED));
    Ok((!others.is_empty()).then(words))
}

/// Whether two pools can assign the same address.
fn overlap(one: &IPPool, other: &IPPool) -> Result<bool, Malformed> {
    let others = ranges(&other.spec)?;
    Ok(ranges(&one.spec)?.iter().any(|(first, last)| others.iter().any(|(from, to)| first <= to && from <= last)))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::addresses::claimed;
    use super::*;
    use crate::objects::{AddressRange, Claimant, IPPoolSpec, Purpose};

    fn pool(name: &str, first: &str, last: &str) -> IPPool {
        let range = AddressRange { first: first.to_owned(), last: last.to_owned() };
        let spec = IPPoolSpec {
            subnet: "10.0.0.0/24".to_owned(),
            ranges: vec![range],
            reserved: vec!["10.0.0.11".to_owned()],
            vips_per_namespace: None,
            gateway: Some("10.0.0.1".to_owned()),
            dns_servers: Vec::new(),
            search_domains: Vec::new(),
        };
        IPPool::new(name, spec)
    }

    fn used(last: u8) -> PoolAddress {
        let text = str::to_owned;
        let claimant = Claimant {
            kind: text("Machine"),
            namespace: text("ns"),
            name: format!("m{last}"),
            uid: text("u"),
            purpose: Purpose::Node,
            index: 0,
        };
        claimed("p", Ipv4Addr::new(10, 0, 0, last), claimant)
    }

    #[test]
    fn usage_counts_addresses_and_names_outsiders() {
        let pool_of = |last: &str| pool("p", "10.0.0.10", last);
        let own = pool_of("10.0.0.13");
        let judged = |pool: &IPPool, used: &[PoolAddress], all: &[IPPool]| pool_usage(pool, used, all).unwrap();
        let free = judged(&own, &[used(10)], std::slice::from_ref(&own));
        assert_eq!((free.total, free.used), (3, 1));
        assert_eq!(free.ready, (IPPoolReason::AddressesFree, "2 of 3 addresses are free".to_owned()));
        assert_eq!(free.consistent.0, IPPoolReason::AllInRanges);
        let full = judged(&own, &[used(10), used(12), used(13)], std::slice::from_ref(&own));
        assert_eq!(full.ready, (IPPoolReason::Exhausted, "all 3 addresses are in use".to_owned()));
        // The range became smaller. An address that was reserved later stays with its claimant.
        let smaller = judged(&pool_of("10.0.0.11"), &[used(10), used(11), used(13)], std::slice::from_ref(&own));
        assert_eq!((smaller.total, smaller.used, smaller.ready.0), (1, 1, IPPoolReason::Exhausted));
        let words = "in use, and no longer in a range: 10.0.0.13";
        assert_eq!(smaller.consistent, (IPPoolReason::OutsideRanges, words.to_owned()));
        let mut beside = used(99);
        beside.spec.named = true;
        let named = judged(&own, &[used(10), beside], std::slice::from_ref(&own));
        assert_eq!((named.used, named.consistent.0), (1, IPPoolReason::AllInRanges), "a cluster has named it");
    }

    #[test]
    fn overlapping_pools_name_each_other() {
        let (one, other) = (pool("p", "10.0.0.10", "10.0.0.20"), pool("q", "10.0.0.20", "10.0.0.30"));
        let apart = pool("r", "10.0.0.31", "10.0.0.40");
        let all = [one.clone(), other.clone(), apart.clone()];
        for (own, named) in [(&one, "q"), (&other, "p")] {
            let words = format!("ranges of it are in other pools as well: {named}");
            assert_eq!(pool_usage(own, &[], &all).unwrap().ready, (IPPoolReason::Overlaps, words));
        }
        assert_eq!(pool_usage(&apart, &[], &all).unwrap().ready.0, IPPoolReason::AddressesFree);
        let mut broken = apart;
        broken.spec.ranges[0].last = "x".to_owned();
        assert!(pool_usage(&one, &[], &[broken]).is_err(), "what cannot be read is not taken for apart");
    }
}
