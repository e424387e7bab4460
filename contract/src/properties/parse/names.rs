//! DNS names, lists, and lists of what has a name.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::super::value::Problem;
use super::{addresses, quoted};
use crate::codes;
use crate::encoding::unescape_lines;
use crate::pod_security::{PodSecurity, UnknownLevel};
use crate::properties::ControlNode;
use crate::role::{Role, UnknownRole};

/// A DNS label (RFC 1123, section 2.1), lower-case as Kubernetes wants it.
pub fn label(text: &str) -> Result<String, Problem> {
    let problem = |why: &str| {
        Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} {why}", quoted(text)),
            "Give 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends",
        ))
    };
    if text.contains('.') {
        return problem("has a dot; only the name without a domain belongs here");
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return problem("has upper-case letters");
    }
    if !is_label(text) {
        return problem("is not a DNS label");
    }
    // This name has a special meaning for systemd and resolvers.
    if text == "localhost" {
        return problem("is every machine's name for itself");
    }
    Ok(text.to_owned())
}

/// The role of a VM in its cluster.
pub fn role(text: &str) -> Result<Role, Problem> {
    let known = || Role::ALL.map(Role::name).join(", ");
    text.parse().map_err(|UnknownRole| {
        let seen = format!("{} is no role", quoted(text));
        Problem::new(&codes::PROPERTY_MALFORMED, seen, format!("Give one of {}", known()))
    })
}

/// A level of the Pod Security Standards.
pub fn pod_security(text: &str) -> Result<PodSecurity, Problem> {
    text.parse().map_err(|UnknownLevel| {
        let seen = format!("{} is no level of the Pod Security Standards", quoted(text));
        let known = PodSecurity::ALL.map(PodSecurity::name).join(", ");
        Problem::new(&codes::PROPERTY_MALFORMED, seen, format!("Give one of {known}"))
    })
}

/// A DNS domain; a final dot is dropped.
pub fn domain(text: &str) -> Result<String, Problem> {
    addresses::refuse_ipv6(text)?;
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if is_domain(&name) && name.parse::<Ipv4Addr>().is_err() {
        return Ok(name);
    }
    Err(Problem::new(
        &codes::PROPERTY_MALFORMED,
        format!("{} is not a DNS domain", quoted(text)),
        "Give names such as example.com",
    ))
}

/// A DNS name or an address of a host.
pub fn host(text: &str) -> Result<String, Problem> {
    addresses::refuse_ipv6(text)?;
    if looks_like_address(text) {
        return addresses::host_address(text).map(|address| address.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if is_domain(&name) {
        return Ok(name);
    }
    Err(Problem::new(
        &codes::PROPERTY_MALFORMED,
        format!("{} is neither a DNS name nor an IPv4 address", quoted(text)),
        "Give names such as ntp.example.com, or addresses; no port and no http://",
    ))
}

/// `name=address`.
pub fn control_node(text: &str) -> Result<ControlNode, Problem> {
    let Some((name, address)) = text.split_once('=') else {
        return Err(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} is not of the form name=address", quoted(text)),
            "Give entries such as cp1=192.168.10.11, without spaces around the equals sign",
        ));
    };
    Ok(ControlNode { name: label(name)?, address: addresses::host_address(address)? })
}

/// A destination that is reached without the proxy: a host, a domain and all
/// below it (`.example.com`, `*.example.com`), an address, or a range.
pub fn exclusion(text: &str) -> Result<String, Problem> {
    addresses::refuse_ipv6(text)?;
    let lower = text.to_ascii_lowercase();
    let name = lower.strip_prefix("*.").or(lower.strip_prefix('.')).unwrap_or(&lower);
    let whole = name.len() == lower.len();
    let numeric = looks_like_address(name);
    let address = whole && (name.parse::<Ipv4Addr>().is_ok() || name.parse::<Ipv4Net>().is_ok());
    if address || (!numeric && is_domain(name)) {
        return Ok(lower);
    }
    Err(Problem::new(
        &codes::PROPERTY_MALFORMED,
        format!("{} is neither a name, a domain, an IPv4 address nor an IPv4 range", quoted(text)),
        "Give entries such as host.example.com, .example.com, 10.1.2.3 or 10.0.0.0/8, without ports",
    ))
}

/// The entries of a list, separated by commas, semicolons or white space, each
/// read with `one`.
///
/// # Errors
/// The problems of all entries that are wrong.
pub fn list<T>(text: &str, one: impl Fn(&str) -> Result<T, Problem>) -> Result<Vec<T>, Vec<Problem>> {
    let lines = unescape_lines(text);
    let entries = lines.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|entry| !entry.is_empty());
    let (mut values, mut problems) = (Vec::new(), Vec::new());
    for entry in entries {
        match one(entry) {
            Ok(value) => values.push(value),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() && values.is_empty() {
        problems.push(Problem::new(
            &codes::PROPERTY_MALFORMED,
            format!("{} has no entry", quoted(text)),
            "Give at least one entry, or leave the property empty",
        ));
    }
    if problems.is_empty() { Ok(values) } else { Err(problems) }
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    inner && (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-')
}

/// Labels with dots between them, at most 253 characters (RFC 1035, section
/// 2.3.4, without the final dot), the last one not a number.
pub(super) fn is_domain(text: &str) -> bool {
    let last_is_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= 253 && !last_is_number && text.split('.').all(is_label)
}

/// Whether the text was meant as an address: it has digits and dots only.
pub(super) fn looks_like_address(text: &str) -> bool {
    text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for text in ["cp1", "a", "1a", &"a".repeat(63)] {
            assert!(label(text).is_ok(), "{text}");
        }
        for text in ["", "CP1", "cp_1", "-cp", "cp-", "cp1.example.com", "localhost", "cäp", "cp 1", &"a".repeat(64)] {
            assert_eq!(label(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for text in ["ntp.example.com", "ntp", "10.0.0.1", "ntp.example.com.", "NTP.Example.com"] {
            assert!(host(text).is_ok(), "{text}");
        }
        assert_eq!(host("fd00::1").unwrap_err().code.code, "property.ipv6");
        assert_eq!(host("127.0.0.1").unwrap_err().code.code, "address.unusable");
        for text in ["10.0.0", "10.0.0.300", "http://ntp", "ntp:123", "a..b", "ntp_1", "5"] {
            assert_eq!(host(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
    }

    #[test]
    fn exclusions() {
        for text in ["localhost", ".example.com", "*.example.com", "10.0.0.0/8", "10.1.2.3", "EXAMPLE.com"] {
            assert!(exclusion(text).is_ok(), "{text}");
        }
        for text in ["*", "http://x", "10.0.0.0/40", ".10.0.0.1", "a:80", "."] {
            assert_eq!(exclusion(text).unwrap_err().code.code, "property.malformed", "{text}");
        }
        assert_eq!(exclusion("fd00::/8").unwrap_err().code.code, "property.ipv6");
    }

    #[test]
    fn entries_of_the_node_list() {
        let node = control_node("cp1=10.0.0.1").unwrap();
        assert_eq!((node.name.as_str(), node.address), ("cp1", Ipv4Addr::new(10, 0, 0, 1)));
        for (text, code) in [
            ("cp1", "property.malformed"),
            ("cp1:10.0.0.1", "property.malformed"),
            ("=10.0.0.1", "property.malformed"),
            ("cp1=", "property.malformed"),
            ("CP1=10.0.0.1", "property.malformed"),
            ("cp1=10.0.0.1/24", "property.malformed"),
            ("cp1=fd00::1", "property.ipv6"),
            ("cp1=224.0.0.1", "address.unusable"),
        ] {
            assert_eq!(control_node(text).unwrap_err().code.code, code, "{text}");
        }
    }

    #[test]
    fn lists_report_each_bad_entry() {
        assert_eq!(list("a, b;c\\nd\n e", label).unwrap(), ["a", "b", "c", "d", "e"]);
        assert_eq!(list("a,B,c_d", label).unwrap_err().len(), 2);
        assert_eq!(list(" , ", label).unwrap_err().len(), 1);
    }
}
