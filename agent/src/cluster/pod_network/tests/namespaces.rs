//! Two nodes in network namespaces of the kernel, with a cable between them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use tokio::sync::Notify;

use super::fake_api::FakeApi;
use crate::cluster::pki::{CertificateAuthorities, Leaf, ensure_kubeconfig};
use crate::cluster::pod_network::changes::changes;
use crate::cluster::pod_network::desired::{Settings, desired};
use crate::cluster::pod_network::node::{Node, Nodes};
use crate::cluster::pod_network::observed::Observed;
use crate::cluster::pod_network::{cni, follow};
use crate::host::command::Host;
use crate::host::fixture::{Namespace, eventually};

const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 6443);

/// A pod network that runs in a namespace until this is dropped.
struct Running {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn spawn(namespace: &Namespace, work: impl Future<Output = ()> + Send + 'static) -> Self {
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread = namespace.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = work => {}
                    () = stopped.notified() => {}
                }
            });
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn settings(number: u8) -> Settings {
    Settings {
        node: format!("node-{number}"),
        address: Ipv4Addr::new(10, 77, 0, number),
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        port: 8472,
    }
}

/// Sends from a local address to a server in another namespace, and returns the source address that the server saw.
fn seen_as(from: &Namespace, local: [u8; 4], to: &Namespace, remote: [u8; 4]) -> IpAddr {
    let listener = to.run(move || TcpListener::bind(SocketAddr::from((remote, 7000))).unwrap());
    let server = to.spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut bytes = vec![0; 100_000];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(b"!").unwrap();
        peer.ip()
    });
    from.run(move || {
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::empty(),
            None,
        )
        .unwrap();
        use std::os::fd::AsRawFd;
        let address =
            |ip: [u8; 4], port| nix::sys::socket::SockaddrIn::from(std::net::SocketAddrV4::new(ip.into(), port));
        nix::sys::socket::bind(socket.as_raw_fd(), &address(local, 0)).unwrap();
        nix::sys::socket::connect(socket.as_raw_fd(), &address(remote, 7000)).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(&vec![1; 100_000]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    });
    server.join().unwrap()
}

#[test]
fn pods_of_two_nodes_reach_each_other() {
    let (one, two) = (Namespace::new("1"), Namespace::new("2"));
    one.ip(&format!("link add eth0 type veth peer name eth0 netns {}", two.0));
    for (namespace, number) in [(&one, 1), (&two, 2)] {
        namespace.ip("link set lo up");
        namespace.ip(&format!("address add 10.77.0.{number}/24 dev eth0"));
        namespace.ip("link set eth0 up");
        // Stands for the device of a pod.
        namespace.ip("link add veth7 type veth peer name pod");
        namespace.ip(&format!("address add 10.244.{number}.1/32 dev veth7"));
        namespace.ip("link set veth7 up");
    }
    let directory = tempfile::tempdir().unwrap();
    let authorities = CertificateAuthorities::make(SystemTime::now()).unwrap();
    let kubeconfig = directory.path().join("pod-network.conf");
    ensure_kubeconfig(&kubeconfig, &format!("https://{API}"), &Leaf::pod_network(), &authorities, SystemTime::now())
        .unwrap();

    let api = FakeApi::new();
    let serving = {
        let (api, authorities) = (api.clone(), authorities.clone());
        Running::spawn(&one, async move { api.serve(&authorities, API).await })
    };
    let roots: Vec<PathBuf> = ["one", "two"].iter().map(|name| directory.path().join(name)).collect();
    let start = |namespace: &Namespace, number: u8| {
        let (root, kubeconfig) = (roots[usize::from(number) - 1].clone(), kubeconfig.clone());
        Running::spawn(namespace, async move { follow(&settings(number), kubeconfig, &root, &Host).await })
    };
    api.put("node-1", "10.77.0.1", "10.244.1.0/24");
    let running = [start(&one, 1), start(&two, 2)];
    let has_cni = |number: usize| roots[number - 1].join(cni::PATH).exists();
    eventually("node-1's CNI configuration", || has_cni(1));
    assert!(!has_cni(2), "node-2 has no range yet");
    api.put("node-2", "10.77.0.2", "10.244.2.0/24");
    eventually("node-2's CNI configuration", || has_cni(2));
    let mode = roots[0].join(cni::PATH).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is for root alone");

    let reached = |number: u8, expected: &'static [(u8, u8)]| {
        let nodes: Nodes = expected
            .iter()
            .map(|(node, range)| {
                let pod_cidr = format!("10.244.{range}.0/24").parse().unwrap();
                (
                    format!("node-{node}"),
                    Node { address: Ipv4Addr::new(10, 77, 0, *node), pod_cidr, created: String::new() },
                )
            })
            .collect();
        let namespace = if number == 1 { &one } else { &two };
        eventually(&format!("node-{number}'s view of {expected:?}"), || {
            let (nodes, settings) = (nodes.clone(), settings(number));
            namespace.run(move || {
                let observed = Observed::look(&Host, settings.address).unwrap();
                let wanted = desired(&settings, observed.underlay.as_ref().unwrap(), &nodes).0.unwrap();
                changes(&wanted, &observed).is_empty()
            })
        });
    };
    reached(1, &[(1, 1), (2, 2)]);
    reached(2, &[(1, 1), (2, 2)]);

    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    // From pod to pod, through the tunnel, with their own addresses.
    assert_eq!(seen_as(&one, [10, 244, 1, 1], &two, [10, 244, 2, 1]), ip("10.244.1.1"));
    assert_eq!(seen_as(&two, [10, 244, 2, 1], &one, [10, 244, 1, 1]), ip("10.244.2.1"));
    // From node to pod, with an address that is routed back through the tunnel.
    assert_eq!(seen_as(&one, [0, 0, 0, 0], &two, [10, 244, 2, 1]), ip("10.244.1.0"));
    // From pod to the outside, with the node's address.
    assert_eq!(seen_as(&one, [10, 244, 1, 1], &two, [10, 77, 0, 2]), ip("10.77.0.1"));

    // Nodes come, change and go. The history is lost once meanwhile.
    api.put("node-3", "10.77.0.3", "10.244.3.0/24");
    reached(1, &[(1, 1), (2, 2), (3, 3)]);
    let lists = api.lists();
    api.forget();
    api.put("node-3", "10.77.0.3", "10.244.33.0/24");
    reached(2, &[(1, 1), (2, 2), (3, 33)]);
    assert!(api.lists() > lists);
    api.delete("node-3");
    reached(1, &[(1, 1), (2, 2)]);

    // Two nodes swap their ranges, one after the other, and swap them back.
    let swaps: [&'static [(u8, u8)]; 2] = [&[(1, 2), (2, 1)], &[(1, 1), (2, 2)]];
    for nodes in swaps {
        for (node, range) in nodes {
            api.put(&format!("node-{node}"), &format!("10.77.0.{node}"), &format!("10.244.{range}.0/24"));
        }
        reached(1, nodes);
        reached(2, nodes);
    }

    // Without the process the network continues to work. A new process finds nothing to do, except to repair changes
    // that were made in between.
    drop(running);
    assert_eq!(seen_as(&one, [10, 244, 1, 1], &two, [10, 244, 2, 1]), ip("10.244.1.1"));
    one.ip("route delete 10.244.2.0/24 dev kaas.vxlan");
    let again = start(&one, 1);
    reached(1, &[(1, 1), (2, 2)]);
    drop((again, serving));
}
