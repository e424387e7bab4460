//! For tests: etcd members on loopback that share one store, over real TLS. They track the leader, and discard no
//! history.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::ports;
use contract::properties::ControlNode;
use serde_json::{Value, json};

use crate::cluster::etcd::client::HEALTH;
use crate::cluster::etcd::peer_url;
use crate::cluster::pki::{self, CertificateAuthorities};
use crate::host::fake_server;
use crate::intake::config::ControlPlane;

#[derive(Clone, Default)]
pub(crate) struct FakeEtcd(Arc<Mutex<Store>>);

#[derive(Default)]
struct Store {
    /// Keys; values in base64, each with the revision that changed it last.
    pairs: BTreeMap<Vec<u8>, (String, u64)>,
    revision: u64,
    leader: u64,
    /// Identity, name and peer URL of each.
    members: Vec<(u64, String, String)>,
    /// The member and the kind of each alarm.
    alarms: Vec<(String, String)>,
    ill: Option<u64>,
    unlisted: bool,
    /// The number of requests that are still answered. `None` if all are.
    left: Option<u32>,
}

impl Store {
    fn put(&mut self, key: Vec<u8>, value: String) {
        self.revision += 1;
        self.pairs.insert(key, (value, self.revision));
    }
}

fn bytes(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap()
}

/// Gives each control-plane node of `config` a separate address, where nothing listens, and writes keys for etcd's
/// clients into `pki`.
pub(crate) fn off(config: &mut ControlPlane, pki: &Path) {
    lay(config, pki, |_, _| {});
}

/// As [`off`], and calls `turn` for each node while the keys in `pki` are that node's.
fn lay(config: &mut ControlPlane, pki: &Path, turn: impl Fn(&ControlNode, u64)) {
    // Several tests of several processes run at once.
    static USED: AtomicU8 = AtomicU8::new(0);
    let block = USED.fetch_add(1, Ordering::SeqCst);
    let [.., high, low] = std::process::id().to_be_bytes();
    CertificateAuthorities::make(SystemTime::now()).unwrap().ensure(pki).unwrap();
    for (node, id) in config.cluster.control_nodes.iter_mut().zip(1..) {
        node.address = Ipv4Addr::new(127, 64 | high & 63, block, (low & 63) * 4 + id);
        pki::ensure_member(node, pki, SystemTime::now()).unwrap();
        turn(node, id.into());
    }
    let own = config.control_node().unwrap().address;
    config.node.interfaces[0].address = ipnet::Ipv4Net::new(own, 8).unwrap().into();
}

/// Checks that something failed because the member of the first node is off.
pub(crate) fn is_off(config: &ControlPlane, error: &str) {
    let member = format!("/v3/kv/put at {}:{}", config.cluster.control_nodes[0].address, ports::ETCD_CLIENT);
    assert!(error.contains(&member) && error.contains("Connection refused"), "{error}");
}

impl FakeEtcd {
    /// Starts a member for each control-plane node of `config`, which gets separate addresses, and writes keys for its
    /// clients into `pki`.
    pub(crate) fn start(config: &mut ControlPlane, pki: &Path) -> Self {
        let etcd = Self::default();
        etcd.begin_anew();
        lay(config, pki, |node, id| {
            // The keys of the next node replace them.
            let own = pki.join("members").join(&node.name);
            std::fs::create_dir_all(own.join("etcd")).unwrap();
            for file in ["etcd/server.crt", "etcd/server.key"] {
                std::fs::copy(pki.join(file), own.join(file)).unwrap();
            }
            etcd.serve(node, id, &own);
        });
        etcd
    }

    /// Starts the member of one node, with the keys that `pki` has at each connection.
    pub(crate) fn start_one(node: &ControlNode, pki: &Path) -> Self {
        let etcd = Self::default();
        etcd.begin_anew();
        etcd.serve(node, 1, pki);
        etcd
    }

    /// Discards all data and alarms, and makes the first node's member the leader. The members remain.
    pub(crate) fn begin_anew(&self) {
        let mut store = self.0.lock().unwrap();
        let members = std::mem::take(&mut store.members);
        *store = Store { leader: 1, members, ..Store::default() };
    }

    /// Sets the number of requests after which all members fail. `None` ends that.
    pub(crate) fn fail_after(&self, questions: Option<u32>) {
        self.0.lock().unwrap().left = questions;
    }

    pub(crate) fn set(&self, key: &str, value: &str) {
        self.0.lock().unwrap().put(key.as_bytes().to_vec(), BASE64_STANDARD.encode(value));
    }

    pub(crate) fn below(&self, prefix: &str) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let store = self.0.lock().unwrap();
        let all = store.pairs.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
        all.map(|(key, (value, _))| (text(key), text(&BASE64_STANDARD.decode(value).unwrap()))).collect()
    }

    pub(crate) fn make_ill(&self, member: Option<u64>) {
        self.0.lock().unwrap().ill = member;
    }

    pub(crate) fn lose_list(&self) {
        self.0.lock().unwrap().unlisted = true;
    }

    pub(crate) fn expel(&self, member: u64) {
        self.0.lock().unwrap().members.retain(|(id, ..)| *id != member);
    }

    pub(crate) fn raise(&self, member: u64, kind: &str) {
        self.0.lock().unwrap().alarms.push((member.to_string(), kind.to_owned()));
    }

    pub(crate) fn alarmed(&self) -> Vec<String> {
        self.0.lock().unwrap().alarms.iter().map(|(member, _)| member.clone()).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().members.iter().map(|(_, name, _)| name.clone()).collect()
    }

    pub(crate) fn standing(&self, node: &str) -> Option<Value> {
        let store = self.0.lock().unwrap();
        let (value, _) = store.pairs.get(format!("/kaas/nodes/{node}").as_bytes())?;
        serde_json::from_slice(&BASE64_STANDARD.decode(value).unwrap()).ok()
    }

    /// Which member leads: 1 for the first node's.
    pub(crate) fn leader(&self) -> u64 {
        self.0.lock().unwrap().leader
    }

    /// Starts another member, with the keys in `pki`.
    pub(crate) fn serve(&self, node: &ControlNode, id: u64, pki: &Path) {
        self.0.lock().unwrap().members.push((id, node.name.clone(), peer_url(node)));
        let etcd = self.clone();
        let address = SocketAddr::from((node.address, ports::ETCD_CLIENT));
        fake_server::serve(
            address,
            &pki.join("etcd/server"),
            Box::new(move |path, question| etcd.answer(id, path, question)),
        );
    }

    fn answer(&self, id: u64, path: &str, question: &Value) -> (u16, Value) {
        let mut store = self.0.lock().unwrap();
        match &mut store.left {
            Some(0) => return (503, json!({"message": "gone"})),
            Some(left) => *left -= 1,
            None => {}
        }
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
                store.put(bytes(&text("key")), text("value"));
                json!({})
            }
            "/v3/kv/range" => {
                let (from, end) = (bytes(&text("key")), question.get("range_end").map(|_| bytes(&text("range_end"))));
                let meant = |key: &Vec<u8>| end.as_ref().map_or(*key == from, |end| *key >= from && key < end);
                let limit = text("limit").parse().unwrap_or(usize::MAX);
                let pairs = store.pairs.iter().filter(|(key, _)| meant(key)).take(limit);
                let pairs = pairs.map(|(key, (value, revision))| {
                    json!({"key": BASE64_STANDARD.encode(key), "value": value, "mod_revision": revision.to_string()})
                });
                json!({"kvs": pairs.collect::<Vec<_>>()})
            }
            "/v3/kv/deleterange" => {
                store.pairs.remove(&bytes(&text("key")));
                json!({})
            }
            // Put if the key does not exist, or if it was not changed: the transactions that the agent uses.
            "/v3/kv/txn" => {
                let (put, compare) = (&question["success"][0]["request_put"], &question["compare"][0]);
                let (key, value) = (put["key"].as_str().unwrap(), put["value"].as_str().unwrap());
                let present = store.pairs.get(&bytes(key)).map_or(0, |(_, revision)| *revision);
                let expected = compare.get("create_revision").or(compare.get("mod_revision")).unwrap();
                assert_eq!((&compare["key"], compare["result"].as_str()), (&put["key"], Some("EQUAL")));
                let succeeded = *expected == json!(present.to_string());
                if succeeded {
                    store.put(bytes(key), value.to_owned());
                }
                json!({"succeeded": succeeded})
            }
            "/v3/cluster/member/remove" => {
                store.members.retain(|(member, ..)| member.to_string() != text("ID"));
                json!({})
            }
            "/v3/maintenance/alarm" => {
                if text("action") == "DEACTIVATE" {
                    store.alarms.retain(|(member, kind)| *member != text("memberID") || *kind != text("alarm"));
                }
                let alarm = |(member, kind): &(String, String)| json!({"memberID": member, "alarm": kind});
                json!({"alarms": store.alarms.iter().map(alarm).collect::<Vec<_>>()})
            }
            "/v3/maintenance/status" => {
                let error = |(member, kind): &(String, String)| format!("memberID:{member} alarm:{kind} ");
                let errors: Vec<String> = store.alarms.iter().map(error).collect();
                json!({
                    "header": {"member_id": id.to_string()}, "leader": store.leader.to_string(), "raftAppliedIndex": "7",
                    "errors": errors,
                })
            }
            "/v3/maintenance/transfer-leadership" => {
                store.leader = text("targetID").parse().unwrap();
                json!({})
            }
            other => panic!("{other} is not asked of etcd here"),
        }
    }
}
