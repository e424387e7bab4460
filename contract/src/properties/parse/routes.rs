//! Static routes.

use super::super::value::Problem;
use super::{addresses, quoted};
use crate::codes;
use crate::encoding::unescape_lines;
use crate::properties::Route;

/// The shortest prefix length of a route. The network of all addresses is the
/// default gateway's, which has a separate property.
const SHORTEST: u8 = 8;

/// `network via gateway` entries, separated by commas, semicolons or line ends.
///
/// # Errors
/// The problems of all entries that are wrong.
pub fn routes(text: &str) -> Result<Vec<Route>, Vec<Problem>> {
    let lines = unescape_lines(text);
    let entries = lines.split([',', ';', '\n', '\r']).map(str::trim).filter(|entry| !entry.is_empty());
    let (mut routes, mut problems) = (Vec::new(), Vec::new());
    for entry in entries {
        match route(entry) {
            Ok(route) => routes.push(route),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() && routes.is_empty() {
        problems.push(malformed(text));
    }
    if problems.is_empty() { Ok(routes) } else { Err(problems) }
}

fn route(entry: &str) -> Result<Route, Problem> {
    let words: Vec<&str> = entry.split_whitespace().collect();
    let [network, via, gateway] = words[..] else { return Err(malformed(entry)) };
    if !via.eq_ignore_ascii_case("via") {
        return Err(malformed(entry));
    }
    Ok(Route { network: addresses::range(network, SHORTEST, 32)?, gateway: addresses::host_address(gateway)? })
}

fn malformed(text: &str) -> Problem {
    Problem::new(
        &codes::PROPERTY_MALFORMED,
        format!("{} is not of the form \"network via gateway\"", quoted(text)),
        "Give entries such as 10.30.0.0/16 via 10.20.0.1, separated by commas",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_however_they_are_separated() {
        let text = "10.30.0.0/16 via 10.20.0.1,172.16.0.0/12 VIA  10.20.0.2;10.1.2.3/32 via 10.20.0.1\\n";
        let routes = routes(text).unwrap();
        let shown: Vec<String> = routes.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.30.0.0/16 via 10.20.0.1", "172.16.0.0/12 via 10.20.0.2", "10.1.2.3/32 via 10.20.0.1"]);
    }

    #[test]
    fn each_bad_route_has_its_code() {
        for (text, code) in [
            ("10.30.0.0/16", "property.malformed"),
            ("10.30.0.0/16 10.20.0.1", "property.malformed"),
            ("10.30.0.0/16 through 10.20.0.1", "property.malformed"),
            (",", "property.malformed"),
            ("ten via 10.20.0.1", "property.malformed"),
            ("10.30.0.0/16 via router", "property.malformed"),
            ("0.0.0.0/0 via 10.20.0.1", "range.size"),
            ("10.30.1.0/16 via 10.20.0.1", "range.host-bits"),
            ("fd00::/48 via 10.20.0.1", "property.ipv6"),
            ("10.30.0.0/16 via fe80::1", "property.ipv6"),
            ("10.30.0.0/16 via 127.0.0.1", "address.unusable"),
        ] {
            assert_eq!(routes(text).unwrap_err()[0].code.code, code, "{text}");
        }
    }
}
