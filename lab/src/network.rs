//! The lab's own network: a namespace with one bridge, and a port for each VM.
//! Nothing of it is connected to the host's network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::{ip, program, run};

/// The bridge, inside the lab's namespace.
pub(super) const BRIDGE: &str = "lab";
/// The network interface inside a system container.
const CONTAINER_NIC: &str = "eth0";

/// The network of one lab.
#[derive(Clone, Debug)]
pub struct Network {
    lab: String,
}

impl Network {
    /// The network of the lab with this name; makes nothing.
    pub fn of(lab: &str) -> Self {
        Self { lab: lab.to_owned() }
    }

    /// The namespace that holds the bridge. Names of labs and ports hold no dot,
    /// so no two of them meet.
    fn namespace(&self) -> String {
        format!("kaas.{}", self.lab)
    }

    /// The lab's namespace, as a file to enter it by.
    pub fn path(&self) -> PathBuf {
        path(&self.namespace())
    }

    /// The namespace that the system container with this port lives in.
    pub fn container_namespace(&self, port: &str) -> PathBuf {
        path(&self.container_namespace_name(port))
    }

    fn container_namespace_name(&self, port: &str) -> String {
        format!("kaas.{}.{port}", self.lab)
    }

    /// Makes the namespace and the bridge; the bridge has `address`, such as
    /// `192.168.77.1/24`: the lab's operator, seen from the VMs.
    ///
    /// # Errors
    /// When the kernel refuses; parts may be there then, for [`Network::remove`].
    pub fn create(&self, address: &str) -> anyhow::Result<()> {
        let namespace = self.namespace();
        if path(&namespace).exists() {
            return Ok(());
        }
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} link add {BRIDGE} type bridge"))?;
        ip(&format!("-n {namespace} address add {address} dev {BRIDGE}"))?;
        ip(&format!("-n {namespace} link set {BRIDGE} up"))?;
        Ok(())
    }

    /// Whether the network is there.
    pub fn exists(&self) -> bool {
        path(&self.namespace()).exists()
    }

    /// Takes a VM's port away, whichever kind it is; a container's namespace with it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_port(&self, port: &str) -> anyhow::Result<()> {
        let container = self.container_namespace_name(port);
        if path(&container).exists() {
            ip(&format!("netns delete {container}"))?;
        }
        // The pair's other end goes with its namespace, but only once the
        // kernel gets to it: a new port of the same name must not meet it.
        if self.has_port(port)
            && let Err(error) = ip(&format!("-n {} link delete {port}", self.namespace()))
            && self.has_port(port)
        {
            return Err(error);
        }
        Ok(())
    }

    fn has_port(&self, port: &str) -> bool {
        self.exists() && ip(&format!("-n {} link show {port}", self.namespace())).is_ok()
    }

    /// Makes a namespace for a system container, with a network interface if
    /// there is a MAC address for one.
    ///
    /// # Errors
    /// When the kernel refuses; parts may be there then, for [`Network::remove_port`].
    pub fn add_container_port(&self, port: &str, mac: Option<&String>, connected: bool) -> anyhow::Result<()> {
        let (lab, container) = (self.namespace(), self.container_namespace_name(port));
        ip(&format!("netns add {container}"))?;
        ip(&format!("-n {container} link set lo up"))?;
        let Some(mac) = mac else { return Ok(()) };
        ip(&format!("-n {lab} link add {port} type veth peer name {CONTAINER_NIC} netns {container} address {mac}"))?;
        self.plug(port, connected)
    }

    /// Makes a TAP interface for a virtual machine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_tap_port(&self, port: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} tuntap add {port} mode tap", self.namespace()))?;
        self.plug(port, connected)
    }

    fn plug(&self, port: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} link set {port} master {BRIDGE}", self.namespace()))?;
        self.connect(port, connected)
    }

    /// Connects or fences a VM's port, if the VM has one at this time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn connect(&self, port: &str, connected: bool) -> anyhow::Result<()> {
        if self.has_port(port) {
            let state = if connected { "up" } else { "down" };
            ip(&format!("-n {} link set {port} {state}", self.namespace()))?;
        }
        Ok(())
    }

    /// Lets the bridge drop all that comes from a VM's port and all that goes there, or no longer. The VM sees
    /// nothing of it: its carrier stays. The next power-on ends it.
    ///
    /// # Errors
    /// When the VM has no port, or the kernel refuses.
    pub fn partition(&self, port: &str, cut_off: bool) -> anyhow::Result<()> {
        // The states of a port that no spanning tree looks after (`BR_STATE_DISABLED`, `BR_STATE_FORWARDING` of
        // linux/if_bridge.h).
        let state = if cut_off { "0" } else { "3" };
        run(&mut program("bridge", ["-n", &self.namespace(), "link", "set", "dev", port, "state", state])).map(drop)
    }

    /// A program that is to run on the lab's network.
    pub fn command<A: AsRef<std::ffi::OsStr>>(&self, name: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = program("nsenter", [&format!("--net={}", path(&self.namespace()).display()), "--", name]);
        command.args(arguments);
        command
    }

    /// Removes all namespaces of the lab.
    ///
    /// # Errors
    /// When the kernel refuses.
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

fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    use nix::sched::{CloneFlags, setns};

    use super::*;

    /// Gone when this is dropped.
    struct Lab(Network);

    impl Drop for Lab {
        fn drop(&mut self) {
            let _ = self.0.remove();
        }
    }

    /// Runs in a network namespace, on a thread of its own.
    fn inside<T: Send + 'static>(namespace: PathBuf, work: impl FnOnce() -> T + Send + 'static) -> T {
        let within = move || {
            setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::spawn(within).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    #[test]
    fn a_vm_that_is_cut_off_keeps_its_carrier_and_reaches_nobody_until_it_is_healed() {
        let lab = Lab(Network::of(&format!("test-{}", std::process::id())));
        let network = &lab.0;
        network.create("10.251.7.1/24").unwrap();
        for (vm, last) in [("one", 2), ("two", 3)] {
            network.add_container_port(vm, Some(&format!("52:54:00:00:07:0{last}")), true).unwrap();
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
