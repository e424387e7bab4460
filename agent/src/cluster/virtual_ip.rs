//! The virtual IP of the API: keepalived's configuration, and the file in which the agent reports to keepalived whether
//! this node's API is healthy.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use contract::ports;

use crate::host::command::{Command, Host, Runner};
use crate::host::files;
use crate::intake::config::ControlPlane;
use crate::system::address;

/// The file of the configuration. It is written at each boot.
pub const CONFIGURATION: &str = "/run/kaas/keepalived.conf";
/// The file that keepalived follows. The agent writes it.
pub const HEALTH: &str = "/run/kaas/api-health";
pub const UNIT: &str = "kaas-virtual-address.service";

/// keepalived.conf(5): this value of a tracked file puts the instance in fault state. Then it releases the address at
/// once.
const FAULT: &str = "-254\n";
const HEALTHY: &str = "0\n";

/// keepalived's configuration for the primary interface's device, if the cluster has a virtual IP.
///
/// All nodes start as backups and keep an address that they hold (`nopreempt`): moving it to its former node would
/// break connections for nothing.
pub fn configuration(config: &ControlPlane, device: &str) -> Option<String> {
    let address = config.cluster.virtual_address?;
    let position = config.cluster.control_nodes.iter().position(|node| node.name == config.node.name)?;
    let mut text = String::new();
    let advert = config.timeout_factor.min(10);
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "global_defs {{\n\
         \x20   router_id {name}\n\
         \x20   vrrp_version 3\n\
         \x20   vrrp_check_unicast_src\n\
         \x20   vrrp_garp_master_repeat 3\n\
         \x20   vrrp_garp_master_refresh 60\n\
         }}\n\
         track_file api {{\n\
         \x20   file {HEALTH}\n\
         \x20   weight 1\n\
         }}\n\
         vrrp_instance api {{\n\
         \x20   state BACKUP\n\
         \x20   interface {device}\n\
         \x20   virtual_router_id {router}\n\
         \x20   priority {priority}\n\
         \x20   advert_int {advert}\n\
         \x20   nopreempt\n\
         \x20   garp_master_delay 1\n\
         \x20   track_file {{\n\
         \x20       api weight 1\n\
         \x20   }}\n\
         \x20   unicast_src_ip {own}\n",
        name = config.node.name,
        router = router_id(address),
        priority = 200 - 10 * position,
        own = config.address(),
    );
    if config.peers().next().is_some() {
        text.push_str("    unicast_peer {\n");
        for peer in config.peers() {
            let _ = writeln!(text, "        {} min_ttl 255 max_ttl 255", peer.address);
        }
        text.push_str("    }\n");
    }
    let _ = write!(text, "    virtual_ipaddress {{\n        {address}/32 dev {device}\n    }}\n}}\n");
    Some(text)
}

/// A virtual router identifier, 1 to 255 (RFC 5798, 5.2.3). It comes from the address, so that clusters on one network
/// seldom share one.
fn router_id(address: Ipv4Addr) -> u8 {
    match address.octets()[3] {
        0 => 255,
        last => last,
    }
}

/// While this file exists, this node does not hold the address, even if it is healthy.
const HELD_BACK: &str = "/run/kaas/virtual-address-held-back";

/// Releases the address until [`enable`] or a restart of the VM.
pub fn disable(root: &Path, address: Ipv4Addr) -> io::Result<()> {
    files::ensure_content(&files::below(root, HELD_BACK), b"", 0o644)?;
    set_health(root, address, false).map(drop)
}

/// Reverts [`disable`]. The watch over the API then lets this node hold the address again.
pub fn enable(root: &Path) -> io::Result<()> {
    files::remove(&files::below(root, HELD_BACK)).map(drop)
}

/// Reports to keepalived whether this node may hold the address. Returns whether that changed.
pub fn set_health(root: &Path, address: Ipv4Addr, healthy: bool) -> io::Result<bool> {
    let path = files::below(root, HEALTH);
    let healthy = healthy && !files::below(root, HELD_BACK).exists();
    let content = if healthy { HEALTHY } else { FAULT };
    if fs::read(&path).is_ok_and(|present| present == content.as_bytes()) {
        return Ok(false);
    }
    if !healthy && held(address) {
        reset_connections(address, &Host);
    }
    if path.exists() {
        // keepalived follows the file, not its name: written in place.
        fs::write(&path, content)?;
    } else {
        files::write_atomically(&path, content.as_bytes(), 0o644)?;
    }
    Ok(true)
}

/// Ends all connections to the API at the address. A client that waits for an answer would not notice before its own
/// limit that the address has moved. After a reset it tries again at once. The reset reaches the client only while the
/// address is here.
fn reset_connections(address: Ipv4Addr, runner: &dyn Runner) {
    let connections =
        format!("--kill --tcp --numeric --no-header state connected src {address} sport = :{}", ports::API);
    if let Err(error) = runner.run(&Command::new("ss").args(connections.split(' '))) {
        log::warn!("ending the connections to the virtual IP: {error}");
    }
}

/// Releases the address for another node, before the API here stops. The other node keeps it (`nopreempt`), so this
/// node need not be disabled afterwards. Returns whether this node has released it within `timeout`.
pub fn release(root: &Path, address: Ipv4Addr, timeout: Duration) -> io::Result<bool> {
    let until = Instant::now() + timeout;
    while !is_released(address) {
        if Instant::now() >= until {
            return Ok(false);
        }
        // Repeated each time: the watch of the API reports meanwhile that it is healthy.
        set_health(root, address, false)?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(true)
}

pub fn held(address: Ipv4Addr) -> bool {
    address::device(address).is_ok()
}

/// Whether it is certain that this node does not hold the address now.
pub fn is_released(address: Ipv4Addr) -> bool {
    address::device(address).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::host::fixture::Namespace;
    use crate::intake::config::fixture::{one_node, three_nodes};

    #[test]
    fn the_configuration_of_the_second_of_three_nodes() {
        let mut config = three_nodes();
        config.node.name = "node2".into();
        config.node.interfaces[0].address = "10.0.0.12/24".parse::<ipnet::Ipv4Net>().unwrap().into();
        insta::assert_snapshot!(configuration(&config, "eth0").unwrap());
    }

    #[test]
    fn keepalived_needs_no_configuration_without_an_address() {
        assert_eq!(configuration(&one_node(), "eth0"), None);
    }

    #[test]
    fn router_identifiers_are_never_zero() {
        assert_eq!(router_id(Ipv4Addr::new(10, 0, 1, 0)), 255);
        assert_eq!(router_id(Ipv4Addr::new(10, 0, 0, 10)), 10);
    }

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    #[test]
    fn disabled_address_stays_away_until_it_is_enabled() {
        let root = tempfile::tempdir().unwrap();
        let told = || fs::read_to_string(root.path().join("run/kaas/api-health")).unwrap();
        set_health(root.path(), ADDRESS, true).unwrap();
        disable(root.path(), ADDRESS).unwrap();
        assert_eq!(told(), FAULT);
        assert!(!set_health(root.path(), ADDRESS, true).unwrap());
        enable(root.path()).unwrap();
        enable(root.path()).unwrap();
        assert!(set_health(root.path(), ADDRESS, true).unwrap());
        assert_eq!(told(), HEALTHY);
    }

    #[test]
    fn waiting_client_is_reset_when_address_is_released() {
        let namespace = Namespace::new("address");
        namespace.ip("link set lo up");
        namespace.ip(&format!("address add {ADDRESS}/32 dev lo"));
        let error = namespace.run(|| {
            let root = tempfile::tempdir().unwrap();
            set_health(root.path(), ADDRESS, true).unwrap();
            let server = TcpListener::bind((Ipv4Addr::UNSPECIFIED, ports::API)).unwrap();
            let mut client = TcpStream::connect((ADDRESS, ports::API)).unwrap();
            let (mut other, _) = server.accept().unwrap();
            client.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
            assert!(!set_health(root.path(), ADDRESS, true).unwrap());
            other.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            assert!(set_health(root.path(), ADDRESS, false).unwrap());
            client.read_exact(&mut [0]).unwrap_err().kind()
        });
        assert_eq!(error, io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn health_file_keeps_its_inode_for_keepalived() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        let inode = || fs::metadata(root.path().join("run/kaas/api-health")).unwrap().ino();
        assert!(set_health(root.path(), ADDRESS, false).unwrap());
        let before = inode();
        assert!(!set_health(root.path(), ADDRESS, false).unwrap());
        assert!(set_health(root.path(), ADDRESS, true).unwrap());
        assert_eq!(before, inode());
    }
}
