//! The host name, and the names of the other control-plane nodes.

use std::fmt::Write as _;
use std::fs;

use anyhow::Context;

use crate::host::bus::Bus;
use crate::host::files::ensure_content;
use crate::host::platform::Platform;
use crate::intake::config::Config;

const SERVICE: &str = "org.freedesktop.hostname1";
const PATH: &str = "/org/freedesktop/hostname1";

/// Sets the host name through hostnamed, and writes `/etc/hosts`.
pub fn ensure(platform: &Platform, bus: &Bus, config: &Config) -> anyhow::Result<bool> {
    let name = &config.node().name;
    let changed = lay_hosts(platform, config)?;
    let stored = fs::read_to_string(platform.path("/etc/hostname")).unwrap_or_default();
    let running = nix::unistd::gethostname().context("reading the host name")?;
    if stored.trim() == name && running.to_str() == Some(name) {
        return Ok(changed);
    }
    let () = bus
        .call(SERVICE, PATH, SERVICE, "SetStaticHostname", &(name, false))
        .with_context(|| format!("setting the host name {name}"))?;
    Ok(true)
}

fn lay_hosts(platform: &Platform, config: &Config) -> anyhow::Result<bool> {
    let path = platform.path("/etc/hosts");
    ensure_content(&path, hosts(config).as_bytes(), 0o644).with_context(|| format!("writing {}", path.display()))
}

/// Control-plane nodes resolve each other's names without DNS.
fn hosts(config: &Config) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    for node in config.control_nodes() {
        let _ = writeln!(text, "{} {}", node.address, node.name);
    }
    let own = config.node();
    if let Some(address) = own.address()
        && !config.control_nodes().iter().any(|node| node.name == own.name)
    {
        let _ = writeln!(text, "{address} {}", own.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::network::tests::config;

    #[test]
    fn hosts_file_names_all_control_plane_nodes() {
        let config = Config::ControlPlane(config());
        let text = hosts(&config);
        assert!(text.contains("\n10.0.0.11 cp-1\n10.0.0.12 cp-2\n"), "{text}");
        let directory = tempfile::tempdir().unwrap();
        let platform = Platform::detect(directory.path()).unwrap();
        assert!(lay_hosts(&platform, &config).unwrap());
        assert!(!lay_hosts(&platform, &config).unwrap());
    }
}
