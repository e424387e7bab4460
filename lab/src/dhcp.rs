//! The DHCP server of a lab's network, for workers without a static address: dnsmasq, with its other functions off.
//! It leases addresses only to VMs of the network's tenants that use DHCP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Lab;
use super::host::{program, run};
use super::network::{BRIDGE, Network};
use super::plan::TenantNetwork;
use super::process::{ProcessId, start};
use super::records::{self, VmRecord};
use super::wait::until;

const PROGRAM: &str = "dnsmasq";

/// Duration of a lease. Clients renew it after half of that. dnsmasq's minimum is two minutes.
const LEASE: &str = "2m";

/// How long the server may take to start.
const STARTING: Duration = Duration::from_secs(20);

/// Its files, in the directory of the lab that owns the network.
struct Server {
    directory: PathBuf,
    network: Network,
}

/// A tenant whose workers use DHCP, and their VMs.
struct Clients {
    tenant: String,
    network: TenantNetwork,
    vms: Vec<VmRecord>,
}

/// Checks that this machine has the DHCP server's program.
pub fn check() -> anyhow::Result<()> {
    let asked = run(&mut program(PROGRAM, ["--version"]));
    asked.map(drop).context("workers by DHCP take dnsmasq: install the Debian package dnsmasq-base")
}

impl Lab {
    /// Starts the DHCP server of the network for its current VMs. Restarts it if the VMs have changed.
    pub(super) fn serve_leases(&self) -> anyhow::Result<()> {
        let server = self.server()?;
        fs::create_dir_all(&server.directory).with_context(|| format!("making {}", server.directory.display()))?;
        // The labs of one network share the server.
        let lock = File::create(server.directory.join("lock"))?;
        until("another command to end", STARTING, || Ok(lock.try_lock().is_ok()))?;
        server.serve(&self.clients()?)
    }

    /// Ends the DHCP server of this lab's network.
    pub(super) fn end_leases(&self) -> anyhow::Result<()> {
        self.server()?.end()
    }

    /// Reserves this address for a VM. If the VM has another lease, the server denies its renewal, within two minutes.
    /// Fails if the VM's address is static.
    pub fn lease_to(&self, vm: &str, address: Ipv4Addr) -> anyhow::Result<()> {
        {
            let _lock = self.directory.lock()?;
            let mut record = self.directory.load_vm(vm)?;
            ensure!(record.by_dhcp, "the address of {vm} is static");
            record.reserved = Some(address);
            self.directory.save_vm(&record)?;
        }
        self.serve_leases()
    }

    /// The address of a VM: its own, or its lease.
    pub fn address_of(&self, vm: &str) -> anyhow::Result<Option<String>> {
        self.reached_at(&self.directory.load_vm(vm)?)
    }

    pub(super) fn reached_at(&self, record: &VmRecord) -> anyhow::Result<Option<String>> {
        if !record.by_dhcp {
            return Ok(record.address.clone());
        }
        let leases = self.server()?.leases();
        match fs::read_to_string(&leases) {
            Ok(text) => Ok(leased(&text, &record.mac)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", leases.display())),
        }
    }

    fn server(&self) -> anyhow::Result<Server> {
        let own = self.directory.path();
        let owner = match &self.record.beside {
            None => own.to_owned(),
            Some(host) => own.parent().context("a lab without a directory above it")?.join(&host.lab),
        };
        Ok(Server { directory: owner.join("dhcp"), network: self.network.clone() })
    }

    /// The tenants of this network with workers by DHCP.
    fn clients(&self) -> anyhow::Result<Vec<Clients>> {
        let state = self.directory.path().parent().context("a lab without a directory above it")?;
        let tenants = match &self.record.beside {
            None => self.tenants()?,
            Some(host) => Self::open(state, &host.lab)?.tenants()?,
        };
        let mut clients = Vec::new();
        for tenant in &tenants {
            let Some(network) = tenant.plan().tenant.clone().filter(|network| network.dhcp) else { continue };
            let mut vms = Vec::new();
            for name in tenant.directory.vms()? {
                vms.extend(tenant.directory.recall_vm(&name)?.filter(|vm| vm.by_dhcp));
            }
            clients.push(Clients { tenant: tenant.name.clone(), network, vms });
        }
        clients.sort_by(|one, other| one.tenant.cmp(&other.tenant));
        Ok(clients)
    }
}

impl Server {
    fn configuration(&self) -> PathBuf {
        self.directory.join("dnsmasq.conf")
    }

    fn leases(&self) -> PathBuf {
        self.directory.join("leases")
    }

    /// The argument that identifies its process.
    fn argument(&self) -> String {
        format!("--conf-file={}", self.configuration().display())
    }

    fn running(&self) -> Vec<ProcessId> {
        ProcessId::with_argument(&self.argument())
    }

    fn end(&self) -> anyhow::Result<()> {
        self.running().iter().try_for_each(ProcessId::kill).context("ending the DHCP server")
    }

    fn serve(&self, clients: &[Clients]) -> anyhow::Result<()> {
        let (path, wanted) = (self.configuration(), configuration(&self.leases().display().to_string(), clients));
        let present = fs::read_to_string(&path).unwrap_or_default();
        if present == wanted && self.running().len() == 1 {
            return Ok(());
        }
        self.end()?;
        records::save_text(&path, &wanted)?;
        if clients.is_empty() {
            return Ok(());
        }
        let log = self.directory.join("dnsmasq.log");
        let mut command = self.network.command(PROGRAM, [self.argument().as_str(), "--keep-in-foreground"]);
        let process = start(&mut command, File::create(&log)?).context("starting the DHCP server")?;
        until("the DHCP server to start", STARTING, || {
            let said = fs::read_to_string(&log)?;
            ensure!(process.is_running(), "it ended: {}", said.trim());
            Ok(said.contains("sockets bound"))
        })
    }
}

/// dnsmasq's configuration (dnsmasq(8)). It identifies a VM by its MAC address, and gives it an address of its
/// tenant's range.
fn configuration(leases: &str, clients: &[Clients]) -> String {
    let mut text = format!(
        "# Written by kaas.\nport=0\ninterface={BRIDGE}\nbind-interfaces\nno-ping\nuser=root\npid-file=\nlog-facility=-\n\
         log-dhcp\ndhcp-authoritative\ndhcp-leasefile={leases}\ndhcp-ignore=tag:!known\n"
    );
    for Clients { tenant, network, vms } in clients {
        let _ = writeln!(text, "dhcp-range=tag:{tenant},{},{},{LEASE}", network.first_worker, network.last_worker);
        for vm in vms {
            let reserved = vm.reserved.map(|address| format!(",{address}")).unwrap_or_default();
            let _ = writeln!(text, "dhcp-host={},set:{tenant}{reserved}", vm.mac);
        }
    }
    text
}

/// The address of a MAC address in the file of leases. The fields of a line are: end, MAC address, address, more.
fn leased(text: &str, mac: &str) -> Option<String> {
    let rows = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        Some((fields.next()?.to_ascii_lowercase(), fields.next()?.to_owned()))
    });
    rows.collect::<BTreeMap<_, _>>().remove(&mac.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use nix::sched::{CloneFlags, setns};

    use super::super::host::ip;
    use super::super::network::Adapter;
    use super::super::plan::{LabSpec, plan};
    use super::super::records::tests::vm;
    use super::*;

    fn clients(tenant: &str, place: u8, vms: Vec<VmRecord>) -> Clients {
        let wishes = LabSpec {
            name: tenant.to_owned(),
            nodes: 1,
            tenant: Some(place),
            workers_by_dhcp: true,
            ..LabSpec::default()
        };
        Clients { tenant: tenant.to_owned(), network: plan(&wishes, "s").unwrap().tenant.unwrap(), vms }
    }

    #[test]
    fn each_tenants_vms_get_addresses_of_its_range() {
        let reserved = VmRecord { reserved: Some([192, 168, 77, 44].into()), ..vm("blue-w1") };
        let other = VmRecord { mac: "00:50:56:00:00:02".to_owned(), ..vm("red-w1") };
        let text = configuration("/l", &[clients("blue", 0, vec![reserved]), clients("red", 2, vec![other])]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("dhcp-")).collect();
        assert_eq!(
            rows,
            [
                "dhcp-authoritative",
                "dhcp-leasefile=/l",
                "dhcp-ignore=tag:!known",
                "dhcp-range=tag:blue,192.168.77.34,192.168.77.44,2m",
                "dhcp-host=00:50:56:00:00:01,set:blue,192.168.77.44",
                "dhcp-range=tag:red,192.168.77.74,192.168.77.84,2m",
                "dhcp-host=00:50:56:00:00:02,set:red",
            ]
        );
        assert!(text.contains("port=0\ninterface=lab\nbind-interfaces\n"), "{text}");
    }

    /// Sends one request of a client on a network device by broadcast (RFC 2131). Returns the type and the address of
    /// the answer.
    fn asks(namespace: PathBuf, mac: [u8; 6], kind: u8, wanted: Option<Ipv4Addr>) -> Option<(u8, Ipv4Addr)> {
        let mut message = vec![0; 240];
        message[..4].copy_from_slice(&[1, 1, 6, 0]);
        message[4..8].copy_from_slice(&mac[2..]);
        message[10] = 0x80;
        message[28..34].copy_from_slice(&mac);
        message[236..].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([53, 1, kind, 61, 7, 1]);
        message.extend(mac);
        message.extend(wanted.iter().flat_map(|wanted| [[50, 4].to_vec(), wanted.octets().to_vec()].concat()));
        message.push(255);
        let within = move || {
            setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68)).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket.send_to(&message, (Ipv4Addr::BROADCAST, 67)).unwrap();
            let mut answer = [0; 1500];
            let length = socket.recv(&mut answer).ok()?;
            // The type is the first option of an answer.
            assert!(length > 242 && answer[240] == 53, "{:?}", &answer[..length]);
            Some((answer[242], <[u8; 4]>::try_from(&answer[16..20]).unwrap().into()))
        };
        thread::spawn(within).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Ends the server when dropped.
    struct Running(Server);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.end();
            let _ = self.0.network.remove();
        }
    }

    #[test]
    fn a_known_vm_gets_its_reserved_address() {
        const DISCOVER: u8 = 1;
        const OFFER: u8 = 2;
        const REQUEST: u8 = 3;
        const ACKNOWLEDGED: u8 = 5;
        const REFUSED: u8 = 6;
        let directory = tempfile::tempdir().unwrap();
        let network = Network::of(&format!("test-dhcp-{}", std::process::id()));
        let running = Running(Server { directory: directory.path().to_owned(), network });
        let server = &running.0;
        server.network.create("192.168.77.1/24").unwrap();
        let macs = [[0, 0x50, 0x56, 0, 0, 1], [0, 0x50, 0x56, 0, 0, 2]];
        for (vm, mac) in [("blue-w1", "00:50:56:00:00:01"), ("other", "00:50:56:00:00:02")] {
            let adapter = Adapter { mac: mac.to_owned(), bridge: BRIDGE.to_owned(), connected: true };
            server.network.add_container_port(vm, &[adapter]).unwrap();
            let own = server.network.container_namespace(vm).file_name().unwrap().to_string_lossy().into_owned();
            // A broadcast before it has an address needs this.
            ip(&format!("-n {own} link set eth0 up")).unwrap();
            ip(&format!("-n {own} address add 169.254.7.{}/16 dev eth0", vm.len())).unwrap();
            ip(&format!("-n {own} route add default dev eth0")).unwrap();
        }
        let [known, other] = ["blue-w1", "other"].map(|vm| server.network.container_namespace(vm));
        server.serve(&[clients("blue", 0, vec![vm("blue-w1")])]).unwrap();
        // The bridge forwards for a new port a while after it is up.
        let offer = super::super::wait::obtain("an offer", Duration::from_secs(600), || {
            Ok(asks(known.clone(), macs[0], DISCOVER, None))
        });
        let (kind, offered) = offer.unwrap();
        assert!(kind == OFFER && (34..=44).contains(&offered.octets()[3]), "{kind} {offered}");
        assert_eq!(asks(known.clone(), macs[0], REQUEST, Some(offered)), Some((ACKNOWLEDGED, offered)));
        let leases = fs::read_to_string(server.leases()).unwrap();
        assert_eq!(leased(&leases, "00:50:56:00:00:01"), Some(offered.to_string()));
        assert_eq!(asks(other, macs[1], DISCOVER, None), None, "somebody else is answered");

        // Nothing has changed, so it continues.
        let before = server.running();
        server.serve(&[clients("blue", 0, vec![vm("blue-w1")])]).unwrap();
        assert_eq!(server.running(), before);
        let reserved = Ipv4Addr::new(192, 168, 77, if offered.octets()[3] == 44 { 43 } else { 44 });
        let moved = VmRecord { reserved: Some(reserved), ..vm("blue-w1") };
        server.serve(&[clients("blue", 0, vec![moved])]).unwrap();
        let refused = asks(known.clone(), macs[0], REQUEST, Some(offered));
        assert_eq!(refused.map(|(kind, _)| kind), Some(REFUSED));
        assert_eq!(asks(known, macs[0], DISCOVER, None), Some((OFFER, reserved)));
        server.end().unwrap();
        assert!(server.running().is_empty());
    }

    #[test]
    fn a_lease_is_found_by_its_mac_address() {
        let text = "1795000000 00:50:56:0a:00:01 192.168.77.34 blue-w1 01:00:50:56:0a:00:01\n\
            1795000000 00:50:56:0a:00:02 192.168.77.35 * *\n";
        assert_eq!(leased(text, "00:50:56:0A:00:02").as_deref(), Some("192.168.77.35"));
        assert_eq!(leased(text, "00:50:56:0a:00:03"), None);
        assert_eq!(leased("duid 00:01\n", "00:50:56:0a:00:03"), None);
    }
}
