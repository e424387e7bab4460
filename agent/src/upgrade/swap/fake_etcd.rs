//! For the tests: members of etcd on loopback, one store for all of them, over real TLS. They
//! know who leads, and forget nothing.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use contract::ports;
use contract::properties::ControlNode;
use serde_json::{Value, json};

use super::fake_server;
use crate::cluster::etcd::client::HEALTH;
use crate::cluster::etcd::peer_url;
use crate::cluster::pki::{self, Authorities};
use crate::intake::config::ControlPlane;

/// All members.
#[derive(Clone, Default)]
pub(super) struct FakeEtcd(Arc<Mutex<Store>>);

#[derive(Default)]
struct Store {
    /// Keys and values, both in base64.
    pairs: BTreeMap<String, String>,
    leader: u64,
    /// Identity, name and peer URL of each.
    members: Vec<(u64, String, String)>,
    /// The member that is not well.
    ill: Option<u64>,
    /// Whether nobody can say who the members are.
    unlisted: bool,
}

/// Gives each control node of `config` an address of its own, where nothing listens, and lays keys for etcd's
/// clients into `pki`.
pub(super) fn off(config: &mut ControlPlane, pki: &Path) {
    lay(config, pki, |_, _| {});
}

/// The same. Each node has its turn while the keys are its own.
fn lay(config: &mut ControlPlane, pki: &Path, turn: impl Fn(&ControlNode, u64)) {
    // Several tests of several processes run at once.
    static USED: AtomicU8 = AtomicU8::new(0);
    let block = USED.fetch_add(1, Ordering::SeqCst);
    let [.., high, low] = std::process::id().to_be_bytes();
    Authorities::make(SystemTime::now()).unwrap().ensure(pki).unwrap();
    for (node, id) in config.cluster.control_nodes.iter_mut().zip(1..) {
        node.address = Ipv4Addr::new(127, 64 | high & 63, block, (low & 63) * 4 + id);
        pki::ensure_member(node, pki, SystemTime::now()).unwrap();
        turn(node, id.into());
    }
    let own = config.control_node().unwrap().address;
    config.node.interfaces[0].address = ipnet::Ipv4Net::new(own, 8).unwrap();
}

/// Checks that something failed because the member of the first node is off.
pub(super) fn is_off(config: &ControlPlane, error: &str) {
    let member = format!("/v3/kv/put at {}:{}", config.cluster.control_nodes[0].address, ports::ETCD_CLIENT);
    assert!(error.contains(&member) && error.contains("Connection refused"), "{error}");
}

impl FakeEtcd {
    /// Starts a member for each control node of `config`, which gets addresses of its own, and
    /// lays keys for its clients into `pki`.
    pub(super) fn start(config: &mut ControlPlane, pki: &Path) -> Self {
        let etcd = Self::default();
        etcd.begin_anew();
        lay(config, pki, |node, id| etcd.serve(node, id, pki));
        etcd
    }

    /// Forgets everything after all.
    pub(super) fn begin_anew(&self) {
        let mut store = self.0.lock().unwrap();
        let members = std::mem::take(&mut store.members);
        *store = Store { leader: 1, members, ..Store::default() };
    }

    /// From now on this member is not well; none is otherwise.
    pub(super) fn make_ill(&self, member: Option<u64>) {
        self.0.lock().unwrap().ill = member;
    }

    /// From now on nobody can say who the members are.
    pub(super) fn lose_list(&self) {
        self.0.lock().unwrap().unlisted = true;
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
        self.0.lock().unwrap().members.push((id, node.name.clone(), peer_url(node)));
        let etcd = self.clone();
        let address = SocketAddr::from((node.address, ports::ETCD_CLIENT));
        fake_server::serve(address, pki, Box::new(move |path, question| etcd.answer(id, path, question)));
    }

    fn answer(&self, id: u64, path: &str, question: &Value) -> (u16, Value) {
        let store = self.0.lock().unwrap();
        match path {
            HEALTH => (if store.ill == Some(id) { 503 } else { 200 }, json!({})),
            "/v3/cluster/member/list" if store.unlisted => (503, json!({"message": "no quorum"})),
            "/v3/cluster/member/list" => {
                let member = |(id, name, url): &(u64, String, String)| json!({"ID": id.to_string(), "name": name, "peerURLs": [url]});
                (200, json!({"members": store.members.iter().map(member).collect::<Vec<_>>()}))
            }
            _ => {
                drop(store);
                (200, self.told(id, path, question))
            }
        }
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
