//! The parent process of a vCenter, which holds its standard input open and forwards connections from the network of
//! its machines. The vCenter ends when this process ends, for whatever reason.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use super::super::forward;
use super::super::process::ProcessId;
use super::super::records;
use super::networks;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// URL of its API, on this machine's loopback interface and on that of the machines' network.
    pub url: String,
    /// URL of the control interface for tests, on this machine's loopback interface.
    pub control: String,
    /// SHA-256 of its certificate: pairs of hexadecimal digits, separated by colons.
    pub thumbprint: String,
    /// As `thumbprint`, with SHA-1, for clients that need it.
    pub thumbprint_sha1: String,
    keeper: ProcessId,
    process: ProcessId,
}

impl Running {
    /// URL of its API for its machines: at their gateway. Its certificate is for the loopback interface, so clients
    /// must trust it by its thumbprint.
    pub fn url_for_machines(&self) -> String {
        let [(_, address), _] = networks::NETWORKS;
        self.url.replacen(&Ipv4Addr::LOCALHOST.to_string(), networks::gateway(address), 1)
    }

    pub(super) fn file(directory: &Path) -> PathBuf {
        directory.join("running.json")
    }

    pub(super) fn is_kept_by(&self, keeper: &ProcessId) -> bool {
        self.keeper == *keeper
    }

    pub(super) fn is_running(&self) -> bool {
        self.keeper.is_running() && self.process.is_running()
    }
}

/// The vCenter's first line of output when it is ready (`tests/vcenter/main.go`).
#[derive(Debug, Deserialize)]
struct Ready {
    url: String,
    control: String,
    certificate: String,
    /// SHA-1.
    thumbprint: String,
    thumbprint_sha256: String,
}

/// Argument that identifies the vCenter's own process.
pub fn mark(datastores: &Path) -> String {
    format!("-directory={}", datastores.display())
}

/// The arguments of a vCenter's start.
pub struct Supervisor<'a> {
    pub program: &'a Path,
    /// Options of the program.
    pub options: &'a [String],
    /// Directory of the record of its run.
    pub directory: &'a Path,
    pub datastores: &'a Path,
    pub users: &'a Path,
    /// File to write its certificate to.
    pub certificate: &'a Path,
    /// Network namespace of its machines.
    pub network: &'a Path,
}

impl Supervisor<'_> {
    /// Starts the vCenter and waits until it ends.
    pub fn keep(&self, carrier: &[String]) -> anyhow::Result<()> {
        let mut vcenter = self.start(carrier)?;
        let kept = self.serve(&mut vcenter);
        // At the end of its input it ends normally. No other process holds the other end.
        drop(vcenter.stdin.take());
        let ended = vcenter.wait().context("waiting for the vCenter to end")?;
        kept?;
        bail!("the vCenter has ended: {ended}")
    }

    fn start(&self, carrier: &[String]) -> anyhow::Result<Child> {
        let mut command = self.command(carrier)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().with_context(|| format!("starting {}", self.program.display()))
    }

    /// The last one of a repeated option counts.
    fn command(&self, carrier: &[String]) -> anyhow::Result<Command> {
        let mut command = Command::new(self.program);
        command.args(self.options).arg(mark(self.datastores)).arg("-users").arg(self.users);
        command.arg("-bodies").arg(serde_json::to_string(carrier)?);
        Ok(command)
    }

    /// Writes the record of the vCenter when it is ready, and copies its output until it ends.
    fn serve(&self, vcenter: &mut Child) -> anyhow::Result<()> {
        let mut output = BufReader::new(vcenter.stdout.take().context("a vCenter without an output")?);
        let mut line = String::new();
        output.read_line(&mut line).context("listening to the vCenter")?;
        if line.is_empty() {
            bail!("it has ended before it was ready");
        }
        let ready: Ready = serde_json::from_str(&line).with_context(|| format!("it is not ready; it says {line:?}"))?;
        let Ready { url, control, certificate, thumbprint, thumbprint_sha256 } = ready;
        let address = address(&url)?;
        let door = open_door(self.network, address.port())?;
        records::save_text(self.certificate, &certificate)?;
        let process = |number: u32| ProcessId::of(number as i32).context("it has ended already");
        let running = Running {
            url,
            control,
            thumbprint: thumbprint_sha256,
            thumbprint_sha1: thumbprint,
            keeper: process(std::process::id())?,
            process: process(vcenter.id())?,
        };
        records::save(&Running::file(self.directory), &running)?;
        thread::spawn(move || pass_on(&door, address));
        std::io::copy(&mut output, &mut std::io::stderr()).map(drop).context("listening to the vCenter")
    }
}

/// Host and port of an API's address.
fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let host = url.strip_prefix("https://").and_then(|rest| rest.split('/').next());
    host.and_then(|host| host.parse().ok()).with_context(|| format!("{url} names no address of this machine"))
}

/// Listens at each address of a network namespace. Programs there use its loopback interface, and machines use the
/// address of their gateway. The socket stays there, whichever thread has it.
fn open_door(network: &Path, port: u16) -> anyhow::Result<TcpListener> {
    let (network, at) = (network.to_owned(), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    // Only the thread enters the namespace, not the process.
    let listen = move || -> anyhow::Result<TcpListener> {
        let namespace = File::open(&network).with_context(|| format!("opening {}", network.display()))?;
        setns(namespace, CloneFlags::CLONE_NEWNET).context("entering the network of the machines")?;
        TcpListener::bind(at).with_context(|| format!("listening at {at} on the network of the machines"))
    };
    thread::spawn(listen).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Passes connections on to an address on this process's own network.
fn pass_on(door: &TcpListener, address: SocketAddr) {
    for client in door.incoming() {
        let pass = move || -> std::io::Result<()> {
            let client = client?;
            forward::join(&client, &TcpStream::connect(address)?);
            Ok(())
        };
        thread::spawn(move || {
            if let Err(error) = pass() {
                eprintln!("passing a connection on to the vCenter: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::super::network::Network;
    use super::*;

    #[test]
    fn the_address_of_an_api_is_read() {
        assert_eq!(address("https://127.0.0.1:8989/sdk").unwrap(), SocketAddr::from(([127, 0, 0, 1], 8989)));
        for other in ["http://127.0.0.1:1/sdk", "https://vcenter/sdk", ""] {
            address(other).unwrap_err();
        }
    }

    #[test]
    fn own_options_come_before_the_fixed_ones() {
        let at = Path::new("/v");
        let options = ["-others", "1000"].map(str::to_owned);
        let keeper = Supervisor {
            program: Path::new("/bin/vcenter"),
            options: &options,
            directory: at,
            datastores: &at.join("datastores"),
            users: &at.join("users.json"),
            certificate: at,
            network: at,
        };
        let command = keeper.command(&["a program".to_owned(), "carry".to_owned()]).unwrap();
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_str().unwrap()).collect();
        let ours = ["-directory=/v/datastores", "-users", "/v/users.json", "-bodies", r#"["a program","carry"]"#];
        assert_eq!(arguments, [&["-others", "1000"], &ours[..]].concat());
    }

    /// Removes the network when dropped.
    struct Place(Network);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = self.0.remove();
        }
    }

    #[test]
    fn the_api_has_one_address_on_both_networks() {
        let place = Place(Network::of(&format!("door-{}", std::process::id())));
        place.0.create_without_bridge().unwrap();
        place.0.ensure_bridge("machines", Some("192.168.77.1/24")).unwrap();
        let api = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = api.local_addr().unwrap();
        thread::spawn(move || {
            for client in api.incoming() {
                client.unwrap().write_all(b"vCenter").unwrap();
            }
        });
        let door = open_door(&place.0.path(), address.port()).unwrap();
        thread::spawn(move || pass_on(&door, address));
        for at in [address, SocketAddr::from(([192, 168, 77, 1], address.port()))] {
            let namespace = place.0.path();
            let ask = move || {
                setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                let mut said = String::new();
                TcpStream::connect(at).unwrap().read_to_string(&mut said).unwrap();
                said
            };
            assert_eq!(thread::spawn(ask).join().unwrap(), "vCenter");
        }
    }
}
