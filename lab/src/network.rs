//! The lab's own network: a namespace with bridges, and a port for each adapter of a VM. It is not connected to the
//! host's network.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use serde::Deserialize;

use super::host::{ip, program, run};

/// The bridge in the lab's namespace.
pub(super) const BRIDGE: &str = "lab";
/// The first network interface inside a system container.
#[cfg(test)]
const CONTAINER_NIC: &str = "eth0";
/// Network adapters of a VM (vSphere's configuration maximums).
const MOST_ADAPTERS: usize = 10;

#[derive(Clone, Debug)]
pub struct Network {
    lab: String,
}

/// A network interface of a system container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    pub mac: String,
    pub bridge: String,
    pub connected: bool,
}

/// Name of a VM's adapter on the lab's side, counted from 0. The first one has the name of the VM's port.
pub fn port_of(port: &str, adapter: usize) -> String {
    if adapter == 0 { port.to_owned() } else { format!("{port}n{adapter}") }
}

impl Network {
    /// The network of the lab with this name. Creates nothing.
    pub fn of(lab: &str) -> Self {
        Self { lab: lab.to_owned() }
    }

    /// The namespace with the bridge. Names of labs and ports have no dot, so that no two namespaces have the same
    /// name.
    fn namespace(&self) -> String {
        format!("kaas.{}", self.lab)
    }

    /// The file of the lab's namespace, for setns(2).
    pub fn path(&self) -> PathBuf {
        path(&self.namespace())
    }

    /// The namespace of the system container with this port.
    pub fn container_namespace(&self, port: &str) -> PathBuf {
        path(&self.container_namespace_name(port))
    }

    fn container_namespace_name(&self, port: &str) -> String {
        format!("kaas.{}.{port}", self.lab)
    }

    /// Creates missing parts of the namespace and the bridge. The bridge gets `address`, such as `192.168.77.1/24`: VMs
    /// see the lab's operator there. After an error, a repeated call continues, and [`Network::remove`] removes the
    /// parts.
    pub fn create(&self, address: &str) -> anyhow::Result<()> {
        self.create_without_bridge()?;
        self.ensure_bridge(BRIDGE, Some(address))
    }

    /// Creates the namespace if it is missing.
    pub fn create_without_bridge(&self) -> anyhow::Result<()> {
        let namespace = self.namespace();
        if !self.exists() {
            // An interrupted `ip netns add` leaves the file alone.
            match fs::remove_file(self.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", self.path().display()));
                }
                Ok(()) | Err(_) => ip(&format!("netns add {namespace}"))?,
            };
        }
        ip(&format!("-n {namespace} link set lo up")).map(drop)
    }

    /// Creates an additional bridge if it is missing. `address` is the operator's on the bridge, if it has one.
    pub fn ensure_bridge(&self, bridge: &str, address: Option<&str>) -> anyhow::Result<()> {
        let namespace = self.namespace();
        if !self.has_port(bridge) {
            ip(&format!("-n {namespace} link add {bridge} type bridge"))?;
        }
        if let Some(address) = address {
            ip(&format!("-n {namespace} address replace {address} dev {bridge}"))?;
        }
        ip(&format!("-n {namespace} link set {bridge} up")).map(drop)
    }

    pub fn exists(&self) -> bool {
        statfs(&self.path()).is_ok_and(|file| file.filesystem_type() == NSFS_MAGIC)
    }

    /// Whether the network is complete, as [`Network::create`] leaves it.
    pub(super) fn is_whole(&self, address: &str) -> bool {
        let shown = || ip(&format!("-n {} -json address show dev {BRIDGE}", self.namespace()));
        let has = |link: &Link| {
            let own = |one: &LinkAddress| format!("{}/{}", one.local, one.prefixlen) == address;
            link.flags.iter().any(|flag| flag == "UP") && link.addr_info.iter().any(own)
        };
        self.exists() && shown().is_ok_and(|json| links(&json).is_ok_and(|links| links.iter().any(has)))
    }

    /// Removes a VM's port of either kind, and the namespace of a container.
    pub fn remove_port(&self, port: &str) -> anyhow::Result<()> {
        self.remove_ports(port, 1)
    }

    /// As [`Network::remove_port`], for a VM with this number of adapters.
    pub fn remove_ports(&self, port: &str, adapters: usize) -> anyhow::Result<()> {
        let container = self.container_namespace_name(port);
        if path(&container).exists() {
            ip(&format!("netns delete {container}"))?;
        }
        // The kernel removes the pair's other end a while after its namespace. A new port of the same name must not
        // meet it.
        for port in (0..adapters).map(|adapter| port_of(port, adapter)) {
            if self.has_port(&port)
                && let Err(error) = ip(&format!("-n {} link delete {port}", self.namespace()))
                && self.has_port(&port)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn has_port(&self, port: &str) -> bool {
        self.exists() && ip(&format!("-n {} link show {port}", self.namespace())).is_ok()
    }

    /// Creates a namespace for a system container, with its network interfaces: eth0 and so on. After an error,
    /// [`Network::remove_ports`] removes the parts.
    pub fn add_container_port(&self, port: &str, adapters: &[Adapter]) -> anyhow::Result<()> {
        if adapters.len() > MOST_ADAPTERS {
            bail!("a VM has at most {MOST_ADAPTERS} network adapters, not {}", adapters.len());
        }
        let (lab, container) = (self.namespace(), self.container_namespace_name(port));
        ip(&format!("netns add {container}"))?;
        ip(&format!("-n {container} link set lo up"))?;
        for (number, Adapter { mac, bridge, connected }) in adapters.iter().enumerate() {
            let port = port_of(port, number);
            ip(&format!("-n {lab} link add {port} type veth peer name eth{number} netns {container} address {mac}"))?;
            self.plug(&port, bridge, *connected)?;
        }
        Ok(())
    }

    /// The IPv4 addresses of a system container's adapters, each adapter's first address first.
    pub fn container_addresses(&self, port: &str) -> anyhow::Result<Vec<String>> {
        let container = self.container_namespace_name(port);
        addresses(&ip(&format!("-n {container} -json -4 address show scope global"))?)
    }

    /// Creates a TAP interface for a virtual machine.
    pub fn add_tap_port(&self, port: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} tuntap add {port} mode tap", self.namespace()))?;
        self.plug(port, BRIDGE, connected)
    }

    fn plug(&self, port: &str, bridge: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} link set {port} master {bridge}", self.namespace()))?;
        self.connect(port, connected)
    }

    /// Connects or fences a VM's port. Does nothing while the VM is off.
    pub fn connect(&self, port: &str, connected: bool) -> anyhow::Result<()> {
        if self.has_port(port) {
            let state = if connected { "up" } else { "down" };
            ip(&format!("-n {} link set {port} {state}", self.namespace()))?;
        }
        Ok(())
    }

    /// Makes the bridge drop all packets from and to a VM's port, or forward them again. The VM does not notice: its
    /// carrier stays up. The next power-on ends this.
    pub fn partition(&self, port: &str, cut_off: bool) -> anyhow::Result<()> {
        // The states of a port without a spanning tree (`BR_STATE_DISABLED`, `BR_STATE_FORWARDING` of
        // linux/if_bridge.h).
        let state = if cut_off { "0" } else { "3" };
        run(&mut program("bridge", ["-n", &self.namespace(), "link", "set", "dev", port, "state", state])).map(drop)
    }

    /// A program on the lab's network.
    pub fn command<A: AsRef<std::ffi::OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = program("nsenter", [&format!("--net={}", path(&self.namespace()).display()), "--", name]);
        command.args(arguments);
        command
    }

    /// Removes all namespaces of the lab.
    pub fn remove(&self) -> anyhow::Result<()> {
        let own = self.namespace();
        let containers = format!("{own}.");
        let Ok(all) = fs::read_dir("/run/netns") else { return Ok(()) };
        for entry in all {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name == own || name.starts_with(&containers) {
                ip(&format!("netns delete {name}"))?;
            }
        }
        Ok(())
    }
}

/// A network interface as `ip -json address` shows it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Link {
    ifname: String,
    flags: Vec<String>,
    addr_info: Vec<LinkAddress>,
}

#[derive(Deserialize)]
struct LinkAddress {
    local: String,
    #[serde(default)]
    prefixlen: u8,
}

/// The addresses of adapters only: a guest creates other interfaces for its pods.
fn addresses(json: &str) -> anyhow::Result<Vec<String>> {
    let own = links(json)?.into_iter().filter(|link| link.ifname.starts_with("eth"));
    Ok(own.flat_map(|link| link.addr_info).map(|address| address.local).collect())
}

fn links(json: &str) -> anyhow::Result<Vec<Link>> {
    serde_json::from_str(json).context("reading the addresses of network interfaces")
}

fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use nix::sched::{CloneFlags, setns};

    use super::*;

    /// Removes the network when dropped.
    struct Lab(Network);

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = self.0.remove();
        }
    }

    /// Runs in a network namespace, on a separate thread.
    fn inside<T: Send + 'static>(namespace: PathBuf, work: impl FnOnce() -> T + Send + 'static) -> T {
        let within = move || {
            setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::spawn(within).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn adapter(mac: String, bridge: &str) -> Adapter {
        Adapter { mac, bridge: bridge.to_owned(), connected: true }
    }

    #[test]
    fn addresses_are_those_of_adapters_in_order() {
        let json = r#"[{},{"ifindex":2,"ifname":"eth0","addr_info":[{"family":"inet","local":"192.168.77.11","prefixlen":24},
            {"family":"inet","local":"192.168.77.10","prefixlen":32}]},{"ifname":"flannel.1","addr_info":[{"local":"10.42.0.0"}]},
            {"ifname":"eth1","addr_info":[{"local":"192.168.78.11"}]}]"#;
        assert_eq!(addresses(json).unwrap(), ["192.168.77.11", "192.168.77.10", "192.168.78.11"]);
        addresses("").unwrap_err();
    }

    #[test]
    fn a_partial_network_is_completed() {
        let lab = Lab(Network::of(&format!("half-{}", std::process::id())));
        let (network, address) = (&lab.0, "10.251.6.1/24");
        let namespace = network.namespace();
        let file = || fs::create_dir_all("/run/netns").and_then(|()| File::create(network.path())).map(drop).unwrap();
        let made = |what: &str| ip(&format!("-n {namespace} {what}")).map(drop).unwrap();
        // The state after each interruption.
        let parts: [&dyn Fn(); 4] =
            [&file, &|| network.create_without_bridge().unwrap(), &|| made("link add lab type bridge"), &|| {
                made("address add 10.251.6.1/24 dev lab")
            }];
        for count in 0..=parts.len() {
            for part in &parts[..count] {
                part();
            }
            assert!(!network.is_whole(address), "{count}");
            for _ in 0..2 {
                network.create(address).unwrap();
                assert!(network.is_whole(address), "{count}");
            }
            network.remove().unwrap();
            assert!(!network.exists());
        }
    }

    #[test]
    fn adapters_are_on_their_bridges_and_removed_together() {
        let lab = Lab(Network::of(&format!("two-{}", std::process::id())));
        let network = &lab.0;
        network.create("10.251.8.1/24").unwrap();
        for _ in 0..2 {
            network.ensure_bridge("other", Some("10.251.9.1/24")).unwrap();
        }
        let macs = [("52:54:00:00:08:01", BRIDGE), ("52:54:00:00:08:02", "other")];
        let adapters = macs.map(|(mac, bridge)| adapter(mac.to_owned(), bridge));
        network.add_container_port("vm", &adapters).unwrap();
        let own = network.container_namespace_name("vm");
        for (number, (mac, bridge)) in macs.into_iter().enumerate() {
            let inside = ip(&format!("-n {own} link show eth{number}")).unwrap();
            assert!(inside.contains(mac), "{inside}");
            let outside = ip(&format!("-n {} link show {}", network.namespace(), port_of("vm", number))).unwrap();
            assert!(outside.contains(&format!("master {bridge}")), "{outside}");
        }
        network.connect(&port_of("vm", 1), false).unwrap();
        let second = ip(&format!("-n {} link show {}", network.namespace(), port_of("vm", 1))).unwrap();
        assert!(!second.contains("LOWER_UP"), "{second}");
        network.remove_ports("vm", 2).unwrap();
        assert!(!network.has_port("vm") && !network.has_port(&port_of("vm", 1)));
        assert!(!network.container_namespace("vm").exists());
        network.add_container_port("vm", &vec![adapters[0].clone(); 11]).unwrap_err();
    }

    #[test]
    fn a_partitioned_vm_keeps_its_carrier() {
        let lab = Lab(Network::of(&format!("test-{}", std::process::id())));
        let network = &lab.0;
        network.create("10.251.7.1/24").unwrap();
        for (vm, last) in [("one", 2), ("two", 3)] {
            network.add_container_port(vm, &[adapter(format!("52:54:00:00:07:0{last}"), BRIDGE)]).unwrap();
            let own = network.container_namespace_name(vm);
            ip(&format!("-n {own} address add 10.251.7.{last}/24 dev {CONTAINER_NIC}")).unwrap();
            ip(&format!("-n {own} link set {CONTAINER_NIC} up")).unwrap();
        }
        let server = SocketAddr::from(([10, 251, 7, 2], 7000));
        // The kernel answers for it.
        let _listener = inside(network.container_namespace("one"), move || TcpListener::bind(server).unwrap());
        let ask = |from: PathBuf, limit| {
            let asked = inside(from, move || TcpStream::connect_timeout(&server, Duration::from_secs(limit)));
            asked.map(drop).map_err(|error| error.kind())
        };
        let reached = |limit| [network.path(), network.container_namespace("two")].map(|from| ask(from, limit));
        assert_eq!(reached(60), [Ok(()); 2]);
        network.partition("one", true).unwrap();
        assert_eq!(reached(2), [Err(io::ErrorKind::TimedOut); 2]);
        let seen = ip(&format!("-n {} link show {CONTAINER_NIC}", network.container_namespace_name("one"))).unwrap();
        assert!(seen.contains("LOWER_UP"), "{seen}");
        network.partition("one", false).unwrap();
        assert_eq!(reached(60), [Ok(()); 2]);
        assert!(network.partition("three", true).is_err());
    }
}
