//! A member of etcd that reports that it is healthy while it stops.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::SystemTime;

use contract::ports;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::judgement::{ApiHealth, Look};
use super::{ApiProbe, HealthWatch, ReloadingApi};
use crate::cluster::etcd;
use crate::cluster::kubernetes::fake_api::FakeApi;
use crate::cluster::kubernetes::{ADMINISTRATOR, PKI, api};
use crate::cluster::pki::{self, CertificateAuthorities};
use crate::cluster::virtual_ip;
use crate::host::fake_server;
use crate::host::files;
use crate::host::fixture::{Namespace, eventually};
use crate::intake::config::ControlPlane;
use crate::intake::config::fixture::three_nodes;
use crate::status::{Reporter, Status};

/// A control-plane node below a directory. Its API and etcd report that they are healthy.
struct Node {
    directory: TempDir,
    config: ControlPlane,
}

impl Node {
    /// A node of so many control-plane nodes. The others are away.
    fn of(count: usize) -> Self {
        let (directory, now, mut config) = (tempfile::tempdir().unwrap(), SystemTime::now(), three_nodes());
        config.cluster.control_nodes.truncate(count);
        // Nothing here is ever late.
        config.timeout_factor = 3600;
        let (node, root) = (config.control_node().unwrap(), directory.path());
        let pki = files::below(root, PKI);
        CertificateAuthorities::make(now).unwrap().ensure(&pki).unwrap();
        pki::ensure_member(node, &pki, now).unwrap();
        FakeApi::lay_kubeconfig(root, &pki);
        fs::copy(files::below(root, ADMINISTRATOR), files::below(root, api::KUBECONFIG)).unwrap();
        let address = SocketAddr::from((node.address, ports::API));
        let answer = |path: &str, _: &Value| match path {
            "/readyz" => (200, json!("ok")),
            other => panic!("{other} is not asked of the API here"),
        };
        fake_server::serve(address, &pki.join("etcd/server"), Box::new(answer));
        serve_metrics();
        fs::create_dir_all(files::below(root, etcd::STOPPING).parent().unwrap()).unwrap();
        Self { directory, config }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// As systemd's unit does before it ends etcd, and before it starts it.
    fn etcd_is_stopping(&self, is: bool) {
        let file = files::below(self.root(), etcd::STOPPING);
        if is { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
    }

    /// The last health that keepalived was given.
    fn told(&self) -> String {
        fs::read_to_string(files::below(self.root(), virtual_ip::HEALTH)).unwrap_or_default()
    }
}

fn serve_metrics() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports::ETCD_METRICS)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
        }
    });
}

/// Runs a test where the first node's address is its own.
fn in_a_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    let namespace = Namespace::new(name);
    namespace.ip("link set lo up");
    namespace.ip("address add 10.0.0.11/32 dev lo");
    namespace.run(test);
}

#[test]
fn stopping_etcd_is_not_asked_for_its_health() {
    in_a_namespace("asked", || {
        let node = Node::of(3);
        let api = ReloadingApi::new(&node.config, files::below(node.root(), api::KUBECONFIG)).unwrap();
        let mut following = ApiProbe { api, judgement: ApiHealth::default(), asked: None };
        let mut ask = || following.ask(&node.config, node.root());
        assert_eq!(ask().0, Look::Serves);
        node.etcd_is_stopping(true);
        let (look, why) = ask();
        assert_eq!(look, Look::Stops);
        assert_eq!(why.unwrap().to_string(), "etcd on this node was asked to stop");
        node.etcd_is_stopping(false);
        assert_eq!(ask().0, Look::Serves);
    });
}

/// keepalived's health while etcd runs, then while etcd stops. The pause of the calm watch is an hour.
fn told_while_etcd_stops(node: &Node) -> (String, String) {
    let reporter = Reporter::new(node.root(), Status::default());
    let _watch = HealthWatch::start(&node.config, node.root(), reporter.clone()).unwrap();
    let serves = || reporter.status().health.is_some_and(|health| health.api);
    eventually("the first look", serves);
    let before = node.told();
    node.etcd_is_stopping(true);
    eventually("a look that sees etcd stop", || !serves());
    (before, node.told())
}

#[test]
fn address_leaves_a_node_whose_etcd_stops() {
    in_a_namespace("leaves", || {
        assert_eq!(told_while_etcd_stops(&Node::of(3)), ("0\n".to_owned(), "-254\n".to_owned()));
    });
}

#[test]
fn address_stays_on_a_single_node() {
    in_a_namespace("stays", || {
        assert_eq!(told_while_etcd_stops(&Node::of(1)), ("0\n".to_owned(), "0\n".to_owned()));
    });
}
