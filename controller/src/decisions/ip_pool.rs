//! What is to be said of an IPPool, by the addresses that are in use and by the other pools.

use super::addresses::{AddressState, Malformed, ranges, standing, total};
use crate::objects::{IPPool, IPPoolReason, PoolAddress};

/// At most so many names are in a message.
const NAMED: usize = 10;

/// What was counted of a pool, and why its conditions are as they are, each with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// How many addresses may be given out.
    pub total: u64,
    /// How many of these are in use.
    pub used: u64,
    /// Whether addresses can be had.
    pub ready: (IPPoolReason, String),
    /// Whether all that are in use are of its ranges.
    pub consistent: (IPPoolReason, String),
}

/// Judges a pool by all addresses that are in use of it, and by all pools.
///
/// # Errors
/// When the pool, another one, or an address in use cannot be read.
pub fn pool_usage(pool: &IPPool, addresses: &[PoolAddress], all: &[IPPool]) -> Result<PoolUsage, Malformed> {
    let (total, name) = (total(pool)?, pool.metadata.name.as_deref());
    let (mut used, mut outside) = (0, Vec::new());
    for address in addresses {
        match standing(&pool.spec, &address.spec.address)? {
            AddressState::GivenOut => used += 1,
            AddressState::LeftOut => {}
            // It stands there so that nobody else names it.
            AddressState::Outside if address.spec.named => {}
            AddressState::Outside => outside.push(address.spec.address.as_str()),
        }
    }
    let mut overlapping = Vec::new();
    for other in all.iter().filter(|other| other.metadata.name.as_deref() != name) {
        if overlap(pool, other)? {
            overlapping.push(other.metadata.name.as_deref().unwrap_or_default());
        }
    }
    let ready = if !overlapping.is_empty() {
        (IPPoolReason::Overlaps, format!("ranges of it are in other pools as well: {}", listed(&overlapping)))
    } else if used >= total {
        (IPPoolReason::Exhausted, format!("all {total} addresses are in use"))
    } else {
        (IPPoolReason::AddressesFree, format!("{} of {total} addresses are free", total - used))
    };
    let consistent = if outside.is_empty() {
        (IPPoolReason::AllInRanges, String::new())
    } else {
        (IPPoolReason::OutsideRanges, format!("in use, and in no range any more: {}", listed(&outside)))
    };
    Ok(PoolUsage { total, used, ready, consistent })
}

/// Whether two pools may give out the same address.
fn overlap(one: &IPPool, other: &IPPool) -> Result<bool, Malformed> {
    let others = ranges(&other.spec)?;
    Ok(ranges(&one.spec)?.iter().any(|(first, last)| others.iter().any(|(from, to)| first <= to && from <= last)))
}

/// Names with commas between them, as far as they fit.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
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
    fn addresses_are_counted_and_what_is_odd_is_named() {
        let pool_of = |last: &str| pool("p", "10.0.0.10", last);
        let own = pool_of("10.0.0.13");
        let judged = |pool: &IPPool, used: &[PoolAddress], all: &[IPPool]| pool_usage(pool, used, all).unwrap();
        let free = judged(&own, &[used(10)], std::slice::from_ref(&own));
        assert_eq!((free.total, free.used), (3, 1));
        assert_eq!(free.ready, (IPPoolReason::AddressesFree, "2 of 3 addresses are free".to_owned()));
        assert_eq!(free.consistent.0, IPPoolReason::AllInRanges);
        let full = judged(&own, &[used(10), used(12), used(13)], std::slice::from_ref(&own));
        assert_eq!(full.ready, (IPPoolReason::Exhausted, "all 3 addresses are in use".to_owned()));
        // The range became smaller; what was reserved since is had by who had it before.
        let smaller = judged(&pool_of("10.0.0.11"), &[used(10), used(11), used(13)], std::slice::from_ref(&own));
        assert_eq!((smaller.total, smaller.used, smaller.ready.0), (1, 1, IPPoolReason::Exhausted));
        let words = "in use, and in no range any more: 10.0.0.13";
        assert_eq!(smaller.consistent, (IPPoolReason::OutsideRanges, words.to_owned()));
        let mut beside = used(99);
        beside.spec.named = true;
        let named = judged(&own, &[used(10), beside], std::slice::from_ref(&own));
        assert_eq!((named.used, named.consistent.0), (1, IPPoolReason::AllInRanges), "a cluster has named it");
    }

    #[test]
    fn pools_that_share_an_address_are_both_named() {
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
