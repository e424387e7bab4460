//! IPv4 addresses and ranges.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv4Net;

use super::super::value::{AddressRange, AddressSource, Problem};
use super::quoted;
use crate::codes;

/// Widest and narrowest subnets of nodes: a /31 or /32 has no room for a gateway.
pub const SUBNET: std::ops::RangeInclusive<u8> = 8..=30;

/// The widest network that a list of networks takes: the largest private one. A wider one is rather a typing mistake.
const WIDEST: u8 = 8;

/// The word for an address that a DHCP server leases.
pub const DHCP: &str = "dhcp";

/// The problem of an IPv6 address, range or bracketed address, if the text is one.
pub fn refuse_ipv6(text: &str) -> Result<(), Problem> {
    let bare = text.trim_start_matches('[');
    let bare = bare.split(['/', ']', '%']).next().unwrap_or(bare);
    if bare.parse::<Ipv6Addr>().is_err() {
        return Ok(());
    }
    Err(Problem::new(
        &codes::PROPERTY_IPV6,
        format!("{} is an IPv6 address; the appliance works with IPv4 only", quoted(text)),
        "Give an IPv4 address",
    ))
}

/// An address that a host can have.
pub fn host_address(text: &str) -> Result<Ipv4Addr, Problem> {
    refuse_ipv6(text)?;
    let address: Ipv4Addr = text.parse().map_err(|_| {
        Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not an IPv4 address", quoted(text)),
            "Give four numbers from 0 to 255 with dots between them, without a prefix length",
        )
    })?;
    refuse_unusable(address)?;
    Ok(address)
}

/// An address that a host can have, with the prefix length of its subnet.
pub fn address_with_prefix(text: &str) -> Result<Ipv4Net, Problem> {
    refuse_ipv6(text)?;
    let network: Ipv4Net = text.parse().map_err(|_| {
        Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not an IPv4 address with a prefix length", quoted(text)),
            "Give an address, a slash and the prefix length of its subnet, such as 192.168.10.11/24",
        )
    })?;
    refuse_unusable(network.addr())?;
    if !SUBNET.contains(&network.prefix_len()) {
        return Err(Problem::new(
            &codes::ADDRESS_PREFIX,
            format!("the prefix length of {network} is not within {} to {}", SUBNET.start(), SUBNET.end()),
            "Give the prefix length of the subnet that the VM is in; 255.255.255.0 is 24",
        ));
    }
    if network.addr() == network.network() || network.addr() == network.broadcast() {
        let which = if network.addr() == network.network() { "first (network)" } else { "last (broadcast)" };
        return Err(Problem::new(
            &codes::ADDRESS_RESERVED,
            format!("{} is the {which} address of {}", network.addr(), network.trunc()),
            "Give an address between the first and the last one of the subnet, and the right prefix length",
        ));
    }
    Ok(network)
}

/// An address that a host can have, with the prefix length of its subnet, or the word for DHCP in any case.
pub fn address_or_dhcp(text: &str) -> Result<AddressSource, Problem> {
    if text.eq_ignore_ascii_case(DHCP) {
        return Ok(AddressSource::Dhcp);
    }
    address_with_prefix(text).map(AddressSource::Static)
}

/// A range by its first address, with a prefix length from `shortest` to `longest`.
pub fn range(text: &str, shortest: u8, longest: u8) -> Result<Ipv4Net, Problem> {
    refuse_ipv6(text)?;
    let range: Ipv4Net = text.parse().map_err(|_| {
        Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not an IPv4 range", quoted(text)),
            "Give its first address, a slash and a prefix length, such as 10.244.0.0/16",
        )
    })?;
    if !(shortest..=longest).contains(&range.prefix_len()) {
        return Err(Problem::new(
            &codes::RANGE_SIZE,
            format!("the prefix length of {range} is not within {shortest} to {longest}"),
            format!("Give a range from /{shortest} (large) to /{longest} (small)"),
        ));
    }
    if range.trunc() != range {
        return Err(Problem::new(
            &codes::RANGE_HOST_BITS,
            format!("{range} does not begin with its first address"),
            format!("Give {}, or another prefix length", range.trunc()),
        ));
    }
    if let Some(reserved) = RESERVED.iter().find(|reserved| overlap(&range, &reserved.network())) {
        return Err(Problem::new(
            &codes::RANGE_UNUSABLE,
            format!("{range} holds {} addresses", reserved.name),
            "Give a private range, such as one inside 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
        ));
    }
    Ok(range)
}

/// A network that hosts are in, by its first address, or a single address.
pub fn network(text: &str) -> Result<Ipv4Net, Problem> {
    if text.contains('/') { range(text, WIDEST, 32) } else { host_address(text).map(Ipv4Net::from) }
}

/// Ranges of more addresses than a /16 are rather typing mistakes.
const WIDEST_RANGE: u8 = 16;

/// Addresses that hosts can have: `first-last`, a network or a single one.
pub fn address_range(text: &str) -> Result<AddressRange, Problem> {
    refuse_ipv6(text.split('-').next().unwrap_or(text))?;
    let Some((first, last)) = text.split_once('-') else {
        let network =
            if text.contains('/') { range(text, WIDEST_RANGE, 32)? } else { host_address(text).map(Ipv4Net::from)? };
        return Ok(network.into());
    };
    let range = AddressRange { first: host_address(first)?, last: host_address(last)? };
    if range.last < range.first {
        return Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} ends before it begins", quoted(text)),
            "Give the lower address first",
        ));
    }
    if u32::from(range.last) - u32::from(range.first) >= 1 << (32 - WIDEST_RANGE) {
        return Err(Problem::new(
            &codes::RANGE_SIZE,
            format!("{range} holds more than {} addresses", 1 << (32 - WIDEST_RANGE)),
            "Give a smaller range",
        ));
    }
    Ok(range)
}

/// Whether two ranges have an address in common.
pub fn overlap(one: &Ipv4Net, other: &Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

struct Reserved {
    first: [u8; 4],
    length: u8,
    name: &'static str,
}

impl Reserved {
    fn network(&self) -> Ipv4Net {
        Ipv4Net::new_assert(Ipv4Addr::from(self.first), self.length)
    }
}

/// Addresses that no host can be given (RFC 6890, RFC 5771, RFC 3927).
const RESERVED: &[Reserved] = &[
    Reserved { first: [0, 0, 0, 0], length: 8, name: "\"this network\" (0.0.0.0/8)" },
    Reserved { first: [127, 0, 0, 0], length: 8, name: "loopback (127.0.0.0/8)" },
    Reserved { first: [169, 254, 0, 0], length: 16, name: "link-local (169.254.0.0/16)" },
    Reserved { first: [224, 0, 0, 0], length: 4, name: "multicast (224.0.0.0/4)" },
    Reserved { first: [240, 0, 0, 0], length: 4, name: "reserved (240.0.0.0/4)" },
];

fn refuse_unusable(address: Ipv4Addr) -> Result<(), Problem> {
    match RESERVED.iter().find(|reserved| reserved.network().contains(&address)) {
        None => Ok(()),
        Some(reserved) => Err(Problem::new(
            &codes::ADDRESS_UNUSABLE,
            format!("{address} is one of the {} addresses", reserved.name),
            "Give an address that a host of this network can have",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts_are_accepted() {
        assert_eq!(host_address("10.0.0.1"), Ok(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(address_with_prefix("10.0.0.5/30").unwrap().to_string(), "10.0.0.5/30");
    }

    #[test]
    fn an_address_may_be_the_word_for_dhcp() {
        let fixed = AddressSource::Static("10.0.0.5/24".parse().unwrap());
        for (text, source) in [("dhcp", AddressSource::Dhcp), ("DHCP", AddressSource::Dhcp), ("10.0.0.5/24", fixed)] {
            assert_eq!(address_or_dhcp(text), Ok(source));
        }
        assert_eq!(address_or_dhcp("dhcp4").unwrap_err().code.code, "property.malformed");
    }

    #[test]
    fn each_bad_address_has_its_code() {
        for (text, code) in [
            ("10.0.0", "property.malformed"),
            ("10.0.0.256", "property.malformed"),
            ("010.0.0.1", "property.malformed"),
            ("10.0.0.1/24", "property.malformed"),
            ("fe80::1%eth0", "property.ipv6"),
            ("[2001:db8::1]", "property.ipv6"),
            ("0.0.0.0", "address.unusable"),
            ("127.0.0.1", "address.unusable"),
            ("169.254.1.1", "address.unusable"),
            ("224.0.0.18", "address.unusable"),
            ("255.255.255.255", "address.unusable"),
        ] {
            assert_eq!(host_address(text).unwrap_err().code.code, code, "{text}");
        }
        for (text, code) in [
            ("10.0.0.5", "property.malformed"),
            ("10.0.0.5/33", "property.malformed"),
            ("10.0.0.5/255.255.255.0", "property.malformed"),
            ("2001:db8::5/64", "property.ipv6"),
            ("10.0.0.5/31", "address.prefix"),
            ("10.0.0.5/7", "address.prefix"),
            ("10.0.0.0/24", "address.subnet-reserved"),
            ("10.0.0.255/24", "address.subnet-reserved"),
            ("127.0.0.5/24", "address.unusable"),
        ] {
            assert_eq!(address_with_prefix(text).unwrap_err().code.code, code, "{text}");
        }
    }

    #[test]
    fn networks_are_first_or_single_addresses() {
        assert_eq!(network("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(network("192.168.10.7").unwrap().to_string(), "192.168.10.7/32");
        for (text, code) in [
            ("admins", "property.malformed"),
            ("10.0.0.0/", "property.malformed"),
            ("fd00::/48", "property.ipv6"),
            ("0.0.0.0/0", "range.size"),
            ("10.1.2.3/16", "range.host-bits"),
            ("127.0.0.0/8", "range.unusable"),
            ("127.0.0.1", "address.unusable"),
        ] {
            assert_eq!(network(text).unwrap_err().code.code, code, "{text}");
        }
    }

    #[test]
    fn ranges_are_spans_or_networks() {
        for (text, shown) in [
            ("10.0.0.5-10.0.0.9", "10.0.0.5-10.0.0.9"),
            ("10.0.0.5-10.0.0.5", "10.0.0.5-10.0.0.5"),
            ("10.0.0.16/28", "10.0.0.16-10.0.0.31"),
            ("10.0.0.7", "10.0.0.7-10.0.0.7"),
        ] {
            let range = address_range(text).unwrap();
            assert_eq!(range.to_string(), shown);
            assert_eq!(address_range(shown), Ok(range));
        }
        for (text, code) in [
            ("10.0.0.9-10.0.0.5", "property.malformed"),
            ("10.0.0.5-9", "property.malformed"),
            ("10.0.0.5-10.0.0.7-10.0.0.9", "property.malformed"),
            ("10.0.0.5-", "property.malformed"),
            ("fd00::1-fd00::9", "property.ipv6"),
            ("10.0.0.5/28", "range.host-bits"),
            ("10.0.0.0/8", "range.size"),
            ("10.0.0.0-10.1.0.0", "range.size"),
            ("224.0.0.1-224.0.0.9", "address.unusable"),
        ] {
            assert_eq!(address_range(text).unwrap_err().code.code, code, "{text}");
        }
        let range = |text| address_range(text).unwrap();
        assert!(range("10.0.0.5-10.0.0.9").overlaps(&range("10.0.0.8/29")));
        assert!(!range("10.0.0.5-10.0.0.7").overlaps(&range("10.0.0.8/29")));
        assert!(range("10.0.0.5-10.0.0.7").contains(Ipv4Addr::new(10, 0, 0, 7)));
    }

    #[test]
    fn each_bad_range_has_its_code() {
        for (text, code) in [
            ("10.0.0.0", "property.malformed"),
            ("fd00::/48", "property.ipv6"),
            ("10.0.0.0/25", "range.size"),
            ("0.0.0.0/0", "range.size"),
            ("10.1.2.3/16", "range.host-bits"),
            ("127.0.0.0/16", "range.unusable"),
            ("224.0.0.0/8", "range.unusable"),
            ("168.0.0.0/7", "range.size"),
            ("169.0.0.0/8", "range.unusable"),
        ] {
            assert_eq!(range(text, 8, 24).unwrap_err().code.code, code, "{text}");
        }
    }
}
