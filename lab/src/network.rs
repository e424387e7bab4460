//! The lab's own network: a namespace with one bridge, and a port for each VM.
//! Nothing of it is connected to the host's network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::{ip, program};

/// The bridge, inside the lab's namespace.
const BRIDGE: &str = "lab";
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

    /// The namespace that holds the bridge. Names of labs and VMs hold no dot,
    /// so no two of them meet.
    fn namespace(&self) -> String {
        format!("kaas.{}", self.lab)
    }

    /// The lab's namespace, as a file to enter it by.
    pub fn path(&self) -> PathBuf {
        path(&self.namespace())
    }

    /// The namespace that a system container lives in.
    pub fn container_namespace(&self, vm: &str) -> PathBuf {
        path(&self.container_namespace_name(vm))
    }

    fn container_namespace_name(&self, vm: &str) -> String {
        format!("kaas.{}.{vm}", self.lab)
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
    pub fn remove_port(&self, vm: &str) -> anyhow::Result<()> {
        let container = self.container_namespace_name(vm);
        if path(&container).exists() {
            ip(&format!("netns delete {container}"))?;
        }
        // The pair's other end goes with its namespace, but only once the
        // kernel gets to it: a new port of the same name must not meet it.
        if self.has_port(vm)
            && let Err(error) = ip(&format!("-n {} link delete {vm}", self.namespace()))
            && self.has_port(vm)
        {
            return Err(error);
        }
        Ok(())
    }

    fn has_port(&self, vm: &str) -> bool {
        self.exists() && ip(&format!("-n {} link show {vm}", self.namespace())).is_ok()
    }

    /// Makes a namespace for a system container, with a network interface if
    /// there is a MAC address for one.
    ///
    /// # Errors
    /// When the kernel refuses; parts may be there then, for [`Network::remove_port`].
    pub fn add_container_port(&self, vm: &str, mac: Option<&String>, connected: bool) -> anyhow::Result<()> {
        let (lab, container) = (self.namespace(), self.container_namespace_name(vm));
        ip(&format!("netns add {container}"))?;
        ip(&format!("-n {container} link set lo up"))?;
        let Some(mac) = mac else { return Ok(()) };
        ip(&format!("-n {lab} link add {vm} type veth peer name {CONTAINER_NIC} netns {container} address {mac}"))?;
        self.plug(vm, connected)
    }

    /// Makes a TAP interface for a virtual machine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_tap_port(&self, vm: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} tuntap add {vm} mode tap", self.namespace()))?;
        self.plug(vm, connected)
    }

    fn plug(&self, vm: &str, connected: bool) -> anyhow::Result<()> {
        ip(&format!("-n {} link set {vm} master {BRIDGE}", self.namespace()))?;
        self.connect(vm, connected)
    }

    /// Connects or fences a VM's port, if the VM has one at this time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn connect(&self, vm: &str, connected: bool) -> anyhow::Result<()> {
        if self.has_port(vm) {
            let state = if connected { "up" } else { "down" };
            ip(&format!("-n {} link set {vm} {state}", self.namespace()))?;
        }
        Ok(())
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
