//! For the tests: members of etcd on loopback, one store for all of them, over real TLS. They
//! know who leads, and forget nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use contract::ports;
use contract::properties::ControlNode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::cluster::pki::{self, Authorities};
use crate::intake::config::Config;

/// All members.
#[derive(Clone, Default)]
pub(super) struct FakeEtcd(Arc<Mutex<Store>>);

#[derive(Default)]
struct Store {
    /// Keys and values, both in base64.
    pairs: BTreeMap<String, String>,
    leader: u64,
}

impl FakeEtcd {
    /// Starts a member for each control node of `config`, which gets addresses of its own, and
    /// lays keys for its clients into `pki`.
    pub(super) fn start(config: &mut Config, pki: &Path) -> Self {
        // Several tests of several processes run at once.
        static USED: AtomicU8 = AtomicU8::new(0);
        let block = USED.fetch_add(1, Ordering::SeqCst);
        let [.., high, low] = std::process::id().to_be_bytes();
        let etcd = Self::default();
        etcd.begin_anew();
        Authorities::make(SystemTime::now()).unwrap().ensure(pki).unwrap();
        for (node, id) in config.cluster.control_nodes.iter_mut().zip(1..) {
            node.address = Ipv4Addr::new(127, 64 | high & 63, block, (low & 63) * 4 + id);
            pki::ensure_member(node, pki, SystemTime::now()).unwrap();
            etcd.serve(node, id.into(), pki);
        }
        let own = config.control_node().unwrap().address;
        config.node.interfaces[0].address = ipnet::Ipv4Net::new(own, 8).unwrap();
        etcd
    }

    /// Forgets everything after all.
    pub(super) fn begin_anew(&self) {
        *self.0.lock().unwrap() = Store { leader: 1, ..Store::default() };
    }

    /// What is known of a node.
    pub(super) fn standing(&self, node: &str) -> Option<Value> {
        use base64::Engine as _;
        use base64::prelude::BASE64_STANDARD;
        let store = self.0.lock().unwrap();
        let value = store.pairs.get(&BASE64_STANDARD.encode(format!("/kaas/nodes/{node}")))?;
        serde_json::from_slice(&BASE64_STANDARD.decode(value).unwrap()).ok()
    }

    /// Which member leads: 1 for the first node's.
    pub(super) fn leader(&self) -> u64 {
        self.0.lock().unwrap().leader
    }

    fn serve(&self, node: &ControlNode, id: u64, pki: &Path) {
        let read = |name: &str| std::fs::read(pki.join("etcd").join(name)).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&read("server.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(tls.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind((node.address, ports::ETCD_CLIENT)).unwrap();
        let etcd = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let session = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
                // A client that goes away ends its connection; no more than that.
                let _ = etcd.answer(id, rustls::StreamOwned::new(session, stream));
            }
        });
    }

    fn answer(&self, id: u64, stream: rustls::StreamOwned<rustls::ServerConnection, TcpStream>) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let answer = self.told(id, path, &serde_json::from_slice(&body).unwrap_or_default()).to_string();
        let stream = stream.get_mut();
        write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
        stream.conn.send_close_notify();
        stream.flush()
    }

    fn told(&self, id: u64, path: &str, question: &Value) -> Value {
        let mut store = self.0.lock().unwrap();
        let text = |name: &str| question[name].as_str().unwrap_or_default().to_owned();
        match path {
            "/v3/kv/put" => {
                store.pairs.insert(text("key"), text("value"));
                json!({})
            }
            "/v3/kv/range" => {
                // Whoever asks for a range picks what is meant.
                let meant = |key: &str| question.get("range_end").is_some() || key == text("key");
                let pairs = store.pairs.iter().filter(|(key, _)| meant(key));
                let pairs = pairs.map(|(key, value)| json!({"key": key, "value": value}));
                json!({"kvs": pairs.collect::<Vec<_>>()})
            }
            // Put unless it is there: the one transaction that is asked for.
            "/v3/kv/txn" => {
                let put = &question["success"][0]["request_put"];
                let (key, value) = (put["key"].as_str().unwrap(), put["value"].as_str().unwrap());
                assert_eq!(
                    (&question["compare"][0]["create_revision"], &question["compare"][0]["key"]),
                    (&json!("0"), &put["key"])
                );
                store.pairs.entry(key.to_owned()).or_insert(value.to_owned());
                json!({})
            }
            "/v3/maintenance/status" => {
                json!({"header": {"member_id": id.to_string()}, "leader": store.leader.to_string(), "raftAppliedIndex": "7"})
            }
            "/v3/maintenance/transfer-leadership" => {
                store.leader = text("targetID").parse().unwrap();
                json!({})
            }
            other => panic!("{other} is not asked of etcd here"),
        }
    }
}
