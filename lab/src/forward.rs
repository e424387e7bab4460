//! Forwards a port of the host's loopback interface to the Kubernetes API on the lab's network, for the operator's
//! own kubectl. A separate process does that, and runs as long as the lab.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use contract::kubeconfig::Kubeconfig;
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use super::credentials::USER;
use super::process::{ProcessId, start};
use super::wait::obtain;
use super::{Lab, records};

/// Interval of renewing the forwarded kubeconfig: credentials expire after a day.
const RENEWAL: Duration = Duration::from_secs(60 * 60);

#[derive(Serialize, Deserialize)]
struct PortForward {
    address: SocketAddr,
    process: ProcessId,
}

impl Lab {
    fn door(&self) -> PathBuf {
        self.directory.path().join("door.json")
    }

    /// Starts `command`, which must end in [`Lab::serve_port_forward`], and writes a kubeconfig for the forwarded port.
    /// The command's arguments must contain [`Lab::door_argument`]: the lab's end finds the process by it. Waits 20
    /// seconds at most until it listens.
    pub fn open_port_forward(&self, command: &mut Command) -> anyhow::Result<PathBuf> {
        let log = File::create(self.directory.path().join("door.log"))?;
        let process = start(command, log).context("starting the door to the API")?;
        let door: PortForward = obtain("the door to the API to open", Duration::from_secs(20), || {
            anyhow::ensure!(process.is_running(), "it ended; see door.log in {}", self.directory.path().display());
            let said: PortForward = records::load(&self.door())?;
            Ok((said.process == process).then_some(said))
        })?;
        self.write_kubeconfig_through(door.address)
    }

    fn write_kubeconfig_through(&self, door: SocketAddr) -> anyhow::Result<PathBuf> {
        let inside = Kubeconfig::parse(&fs::read_to_string(self.kubeconfig()?)?).context("reading the kubeconfig")?;
        let path = self.directory.path().join("kubeconfig.host");
        records::save_text(&path, &through_door(inside, door, self.plan().api).render(USER))?;
        Ok(path)
    }

    /// Renews the forwarded kubeconfig, forever.
    fn renew_kubeconfig(&self, door: SocketAddr) -> ! {
        loop {
            thread::sleep(RENEWAL);
            if let Err(error) = self.write_kubeconfig_through(door) {
                eprintln!("renewing the kubeconfig: {error:#}");
            }
        }
    }

    /// Argument that identifies the process of the port forward.
    pub fn door_argument(&self) -> String {
        self.door().display().to_string()
    }

    /// Runs the port forward: passes connections on forever, and renews the forwarded kubeconfig.
    pub fn serve_port_forward(&self) -> anyhow::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
        let process = ProcessId::of(std::process::id() as i32).context("looking at this process")?;
        let address = listener.local_addr()?;
        records::save(&self.door(), &PortForward { address, process })?;
        let lab = Self::assemble(self.directory.clone(), self.record.clone())?;
        thread::spawn(move || lab.renew_kubeconfig(address));
        let api = SocketAddr::from((self.plan().api, contract::ports::API));
        let namespace = self.network.path();
        loop {
            let (client, _) = listener.accept().context("accepting a connection")?;
            let namespace = namespace.clone();
            thread::spawn(move || {
                if let Err(error) = pass(&client, &namespace, api) {
                    eprintln!("{error:#}");
                }
            });
        }
    }

    pub(super) fn close_port_forward(&self) -> anyhow::Result<()> {
        ProcessId::with_argument(&self.door_argument()).iter().try_for_each(ProcessId::kill)
    }
}

/// Runs in a separate thread: only the thread enters the lab's network, and its socket stays there.
fn pass(client: &TcpStream, namespace: &Path, api: SocketAddr) -> anyhow::Result<()> {
    setns(File::open(namespace).context("finding the lab's network")?, CloneFlags::CLONE_NEWNET)
        .context("entering the lab's network")?;
    let server = TcpStream::connect_timeout(&api, Duration::from_secs(30)).context("reaching the API")?;
    join(client, &server);
    Ok(())
}

/// Passes both directions on until both have ended.
pub(super) fn join(client: &TcpStream, server: &TcpStream) {
    thread::scope(|scope| {
        scope.spawn(|| copy(client, server));
        copy(server, client);
    });
}

/// Passes one direction on until it ends, then ends the other side.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    // Either side may close the connection at any time. There is no client for the error.
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// The kubeconfig with the forwarded address in place of the API's. Clients still check the API's certificate against
/// its real address.
fn through_door(inside: Kubeconfig, door: SocketAddr, api: Ipv4Addr) -> Kubeconfig {
    Kubeconfig { server: format!("https://{door}"), server_name: Some(api.to_string()), ..inside }
}

#[cfg(test)]
mod tests {
    use contract::secret::Secret;

    use super::*;

    #[test]
    fn a_forwarded_kubeconfig_checks_the_apis_name() {
        let inside = Kubeconfig {
            server: "https://192.168.77.10:6443".into(),
            server_name: None,
            authority: "authority".into(),
            certificate: "certificate".into(),
            key: Secret::new("key".into()),
        };
        let door = SocketAddr::from((Ipv4Addr::LOCALHOST, 41001));
        let through = through_door(inside.clone(), door, Ipv4Addr::new(192, 168, 77, 10));
        assert_eq!(through.server, "https://127.0.0.1:41001");
        assert_eq!(through.server_name.as_deref(), Some("192.168.77.10"));
        assert_eq!(Kubeconfig { server: inside.server.clone(), server_name: None, ..through }, inside);
    }
}
