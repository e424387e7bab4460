//! A member of etcd that says that all is well while it stops.

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

/// A control node below a directory whose API and etcd say that all is well.
struct Node {
    directory: TempDir,
    config: ControlPlane,
}

impl Node {
    /// Of so many control nodes; the others are away.
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

    /// What keepalived was told last.
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
fn an_etcd_that_was_told_to_stop_is_not_asked_whether_it_is_well() {
    in_a_namespace("asked", || {
        let node = Node::of(3);
        let api = ReloadingApi::new(&node.config, files::below(node.root(), api::KUBECONFIG)).unwrap();
        let mut following = ApiProbe { api, judgement: ApiHealth::default(), asked: None };
        let mut ask = || following.ask(&node.config, node.root());
        assert_eq!(ask().0, Look::Serves);
        node.etcd_is_stopping(true);
        let (look, why) = ask();
        assert_eq!(look, Look::Stops);
        assert_eq!(why.unwrap().to_string(), "etcd on this node was told to stop");
        node.etcd_is_stopping(false);
        assert_eq!(ask().0, Look::Serves);
    });
}

/// What keepalived was told when etcd was well, then when it was told to stop. The pause of the calm watch is an hour.
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
fn the_address_leaves_a_node_whose_etcd_is_told_to_stop_without_another_look() {
    in_a_namespace("leaves", || {
        assert_eq!(told_while_etcd_stops(&Node::of(3)), ("0\n".to_owned(), "-254\n".to_owned()));
    });
}

#[test]
fn the_address_stays_with_a_node_that_is_alone_while_its_etcd_restarts() {
    in_a_namespace("stays", || {
        assert_eq!(told_while_etcd_stops(&Node::of(1)), ("0\n".to_owned(), "0\n".to_owned()));
    });
}
