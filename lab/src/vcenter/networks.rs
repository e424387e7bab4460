//! The networks of a test vCenter: the bridge of each port group. Pure.

use ova::Sha256;

/// The initial port groups of the vCenter (vcsim's inventory of one datacenter), and the operator's address on each.
/// The first one's is that of any lab's network.
pub const NETWORKS: [(&str, &str); 2] = [("VM Network", "192.168.77.1/24"), ("DC0_DVPG0", "192.168.78.1/24")];

/// The operator's address on a port group, without its prefix length. Machines there use it as gateway.
pub fn gateway(address: &str) -> &str {
    address.split_once('/').map_or(address, |(gateway, _)| gateway)
}

/// The bridge of a port group: the beginning of its name, for readers, and a digest, so that each is unique. An
/// interface's name has at most 15 characters (`IFNAMSIZ` of linux/if.h).
pub fn bridge(network: &str) -> String {
    let letters = network.chars().filter(char::is_ascii_alphanumeric).take(7);
    let begin: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    let digest = Sha256::of(network.as_bytes()).to_string();
    format!("{}-{}", if begin.is_empty() { "net" } else { &begin }, &digest[..7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_group_has_its_own_bridge() {
        let names = ["VM Network", "VM  Network", "vm network", "DC0_DVPG0", "", "-", "Netz für Knoten; reboot", "10"];
        let bridges: Vec<String> = names.iter().map(|name| bridge(name)).collect();
        for (name, bridge) in names.iter().zip(&bridges) {
            assert!(bridge.len() <= 15 && !bridge.starts_with('-'), "{name}: {bridge}");
            assert!(bridge.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}: {bridge}");
            assert_eq!(bridges.iter().filter(|other| *other == bridge).count(), 1, "{name}: {bridge}");
        }
        assert!(bridges[0].starts_with("vmnetwo-"), "{}", bridges[0]);
    }
}
