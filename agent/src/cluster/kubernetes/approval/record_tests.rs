//! Requests of a hostile root user on a worker and of removed workers, once control-plane nodes have recorded all workers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use contract::ports;
use serde_json::Value;
use tempfile::TempDir;

use super::tests::{GOOD, Serving, joins_as, member_at, node, ready, request, spec};
use super::*;
use crate::host::fake_server;
use crate::host::https;

const RECORDS: &str = "/api/v1/namespaces/kube-system/configmaps/kaas-worker-records";
const TOKEN: &str = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-";

/// The objects of the API server.
#[derive(Default)]
struct Store {
    requests: BTreeMap<String, Value>,
    nodes: Vec<Value>,
    records: Option<Value>,
    version: u64,
    token: Option<Value>,
    /// How often the token was asked for, or deleted: the server of the tests does not tell these apart.
    token_used: usize,
    /// Another control-plane node changes the records before the next change.
    overtaken: bool,
}

impl Store {
    fn answer(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let (at, query) = path.split_once('?').unwrap_or((path, ""));
        let list = |items: Vec<Value>| (200, json!({"metadata": {}, "items": items}));
        match at {
            REQUESTS => {
                let of = |one: &&Value| query.contains(one["spec"]["signerName"].as_str().unwrap());
                list(self.requests.values().filter(of).cloned().collect())
            }
            NODES => list(self.nodes.clone()),
            at if at.starts_with(NODES) => {
                let named = |node: &&Value| at.strip_prefix("/api/v1/nodes/") == node["metadata"]["name"].as_str();
                self.nodes.iter().find(named).map_or((404, json!({})), |node| (200, node.clone()))
            }
            at if at.starts_with(TOKEN) => {
                self.token_used += 1;
                // Some have ended.
                let token = self.token.clone().filter(|_| !at.ends_with("gonexx"));
                token.map_or((404, json!({})), |token| (200, token))
            }
            contract::worker_records::CONFIG_MAPS => {
                self.records = Some(json!({"metadata": {"creationTimestamp": "2026-01-31T12:00:00Z"}, "data": {}}));
                (201, json!({}))
            }
            RECORDS if body.is_null() => self.records().map_or((404, json!({})), |records| (200, records)),
            RECORDS => self.change(body),
            path => {
                let name = path.strip_prefix(REQUESTS).and_then(|rest| rest.strip_suffix("/approval"));
                let name = name.unwrap_or_else(|| panic!("{path} is not asked of the API here"));
                let request = self.requests.get_mut(name.trim_start_matches('/')).unwrap();
                request["status"]["conditions"] = body["status"]["conditions"].clone();
                (200, json!({}))
            }
        }
    }

    fn records(&self) -> Option<Value> {
        let mut records = self.records.clone()?;
        records["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Some(records)
    }

    fn change(&mut self, body: &Value) -> (u16, Value) {
        self.version += u64::from(std::mem::take(&mut self.overtaken));
        if body["metadata"]["resourceVersion"].as_str() != Some(self.version.to_string().as_str()) {
            return (409, json!({}));
        }
        self.version += 1;
        let data = self.records.as_mut().unwrap()["data"].as_object_mut().unwrap();
        for (name, record) in body["data"].as_object().unwrap() {
            match record {
                Value::Null => data.remove(name),
                record => data.insert(name.clone(), record.clone()),
            };
        }
        (200, self.records().unwrap())
    }
}

struct Cluster {
    config: ControlPlane,
    root: TempDir,
    store: Arc<Mutex<Store>>,
}

impl Cluster {
    fn start(last: u8, nodes: Vec<Value>) -> Self {
        let address = Ipv4Addr::new(127, 0, 93, last);
        let (config, root, pki) = member_at(address);
        let store = Arc::new(Mutex::new(Store { nodes, ..Store::default() }));
        let own = Arc::clone(&store);
        let answer = move |path: &str, body: &Value| own.lock().unwrap().answer(path, body);
        fake_server::serve((address, ports::API).into(), &pki.join("etcd/server"), Box::new(answer));
        Self { config, root, store }
    }

    fn api(&self) -> Api {
        Api::as_administrator(self.config.address(), self.root.path(), Duration::from_secs(60)).unwrap()
    }

    /// A cluster with complete records of these earlier workers.
    fn noting(last: u8, nodes: Vec<Value>) -> Self {
        let cluster = Self::start(last, nodes);
        assert_eq!(cluster.follow(), Vec::<String>::new());
        assert_eq!(cluster.follow(), Vec::<String>::new());
        assert!(cluster.noted("_complete").is_some());
        cluster
    }

    /// The findings, each as code and text.
    fn follow(&self) -> Vec<String> {
        let findings = self.api().follow_workers(&self.config, now()).unwrap();
        findings.iter().map(|finding| format!("{} {}", finding.code, finding.seen)).collect()
    }

    fn noted(&self, name: &str) -> Option<String> {
        let store = self.store.lock().unwrap();
        Some(store.records.as_ref()?["data"].get(name)?.as_str()?.to_owned())
    }

    /// The operator frees a name.
    fn free(&self, name: &str) {
        let mut store = self.store.lock().unwrap();
        store.records.as_mut().unwrap()["data"].as_object_mut().unwrap().remove(name);
    }

    /// The decision about a request.
    fn asks(&self, spec: &Spec) -> ApprovalReport {
        let name = format!("csr-{}", self.store.lock().unwrap().requests.len());
        self.store.lock().unwrap().requests.insert(name.clone(), request(&name, spec));
        self.decides(now())
    }

    fn decides(&self, now: SystemTime) -> ApprovalReport {
        let (decided, done) = self.api().approve_workers(&self.config, now);
        done.unwrap();
        decided
    }

    fn nodes(&self, nodes: Vec<Value>) {
        self.store.lock().unwrap().nodes = nodes;
    }

    fn token(&self, node: Option<&str>) {
        let annotations: BTreeMap<_, _> = node.map(|node| (join_token::NODE, node)).into_iter().collect();
        self.store.lock().unwrap().token = Some(json!({
            "metadata": {"annotations": annotations}, "data": {"expiration": "MjAyNg=="},
        }));
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn serving(name: &str, address: &str) -> Spec {
    let user = format!("system:node:{name}");
    spec(&Serving { user: &user, common: &user, names: &[name], addresses: &[address], ..GOOD })
}

fn renewal(name: &str) -> Spec {
    let user = format!("system:node:{name}");
    Spec { username: user, groups: vec!["system:nodes".to_owned()], ..joins_as(name) }
}

#[test]
fn older_nodes_cannot_claim_younger_nodes_addresses() {
    let honest = || vec![node("worker1", &["10.0.0.21"], 2), node("worker2", &["10.0.0.22"], 3)];
    let cluster = Cluster::noting(1, honest());
    // worker1 is older, and writes what it likes into its own object.
    cluster.nodes(vec![node("worker1", &["10.0.0.22"], 2), node("worker2", &["10.0.0.22"], 3)]);
    let lied = cluster.asks(&serving("worker1", "10.0.0.22"));
    assert!(lied.approved.is_empty() && lied.waiting[0].contains("the cluster knows it by 10.0.0.21"), "{lied:?}");
    assert_eq!(cluster.asks(&serving("worker2", "10.0.0.22")).approved.len(), 1, "it is not held up");
    // It does not get an unused address either: it keeps its own.
    cluster.nodes(vec![node("worker1", &["10.0.0.99"], 2), node("worker2", &["10.0.0.22"], 3)]);
    assert!(cluster.asks(&serving("worker1", "10.0.0.99")).approved.is_empty());
    cluster.nodes(honest());
    assert_eq!(cluster.asks(&serving("worker1", "10.0.0.21")).approved.len(), 1);
}

#[test]
fn the_older_worker_keeps_a_disputed_address() {
    let both =
        vec![node("worker1", &["10.0.0.21"], 2), node("liar", &["10.0.0.21"], 3), node("node1", &["10.0.0.11"], 1)];
    let cluster = Cluster::noting(2, both);
    assert!(cluster.noted("worker1").unwrap().contains("10.0.0.21"));
    assert!(!cluster.noted("liar").unwrap().contains("10.0.0.21"));
    assert_eq!(cluster.noted("node1"), None, "it is no worker");
    assert!(cluster.asks(&serving("liar", "10.0.0.21")).waiting[0].contains("which is node worker1's"));
}

#[test]
fn a_worker_keeps_its_first_approved_address() {
    let cluster = Cluster::noting(3, vec![node("worker1", &["10.0.0.21"], 2)]);
    cluster.token(Some("new"));
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    let there = |address: &str| vec![node("worker1", &["10.0.0.21"], 2), node("new", &[address], 9)];
    cluster.nodes(there("10.0.0.21"));
    assert!(cluster.asks(&serving("new", "10.0.0.21")).approved.is_empty(), "it is another one's");
    cluster.nodes(there("10.0.0.30"));
    assert_eq!(cluster.asks(&serving("new", "10.0.0.30")).approved.last().unwrap(), "csr-2 of system:node:new");
    let noted = cluster.noted("new").unwrap();
    assert!(noted.contains("10.0.0.30") && noted.contains("new-9") && !noted.contains("abcdef"), "{noted}");
    // A DHCP server has given it another one, and the operator a token.
    cluster.nodes(there("10.0.0.31"));
    assert!(!cluster.asks(&serving("new", "10.0.0.31")).approved.contains(&"csr-3 of system:node:new".to_owned()));
    assert_eq!(
        cluster.asks(&joins_as("new")).approved,
        ["csr-4 of system:bootstrap:abcdef", "csr-3 of system:node:new"]
    );
    assert!(cluster.noted("new").unwrap().contains("10.0.0.31"));
}

#[test]
fn a_removed_worker_gets_nothing_without_joining() {
    let cluster = Cluster::noting(4, vec![ready(node("worker1", &["10.0.0.21"], 2))]);
    assert_eq!(cluster.asks(&renewal("worker1")).approved, ["csr-0 of system:node:worker1"]);
    cluster.nodes(vec![]);
    assert!(cluster.asks(&renewal("worker1")).denied[0].contains("no longer has such a node"));
    // It makes its object again: at once, and after its removal was noted.
    cluster.nodes(vec![node("worker1", &["10.0.0.21"], 40)]);
    assert!(cluster.asks(&renewal("worker1")).denied[0].contains("without a join token"));
    assert!(cluster.asks(&serving("worker1", "10.0.0.21")).waiting[0].contains("was removed from the cluster"));
    for _ in 0..2 {
        assert!(cluster.follow()[0].starts_with("worker.unknown worker1: "));
        assert_eq!(cluster.noted("worker1"), None);
    }
    assert!(cluster.asks(&renewal("worker1")).denied[0].contains("needs a join token"));
    cluster.token(Some("worker1"));
    assert!(cluster.asks(&joins_as("worker1")).approved[0].contains("system:bootstrap"));
    assert_eq!(cluster.follow(), Vec::<String>::new());
    assert_eq!(cluster.asks(&renewal("worker1")).approved.iter().filter(|one| one.contains("node:worker1")).count(), 1);
}

#[test]
fn renewals_of_other_certificates_are_denied() {
    let cluster = Cluster::noting(5, vec![node("worker1", &["10.0.0.21"], 2), node("worker2", &["10.0.0.22"], 3)]);
    let other = Spec { username: "system:node:worker1".to_owned(), ..renewal("worker2") };
    assert!(cluster.asks(&other).denied[0].contains("another one's"));
    let server = Spec { usages: vec!["client auth".to_owned(), "server auth".to_owned()], ..renewal("worker1") };
    assert!(cluster.asks(&server).denied[0].contains("other uses"));
    let person = Spec { username: "somebody".to_owned(), ..renewal("worker1") };
    assert_eq!(cluster.asks(&person), ApprovalReport::default(), "it is not ours");
}

#[test]
fn a_named_token_ends_when_its_node_serves() {
    let there = vec![node("new", &["10.0.0.30"], 9)];
    for (last, of, gone) in [(6, Some("new"), true), (7, None, false)] {
        let cluster = Cluster::noting(last, vec![]);
        cluster.token(of);
        cluster.asks(&joins_as("new"));
        assert_eq!(cluster.noted("new").unwrap().contains("abcdef"), gone);
        cluster.nodes(there.clone());
        // No worker joins now, so no request needs the token.
        let used = || cluster.store.lock().unwrap().token_used;
        let before = used();
        assert_eq!(cluster.asks(&serving("new", "10.0.0.30")).approved.len(), 1);
        assert_eq!(used() > before, gone);
    }
}

#[test]
fn a_name_belongs_to_the_admitted_key() {
    let cluster = Cluster::noting(10, vec![]);
    cluster.token(Some("new"));
    let own = joins_as("new");
    assert_eq!(cluster.asks(&own).approved.len(), 1);
    assert!(cluster.noted("new").unwrap().contains(r#""key":""#));
    // After a power cut it asks with the same key. Another holder of the token has another one.
    assert_eq!(cluster.asks(&own).approved.len(), 1);
    let other = joins_as("new");
    assert!(cluster.asks(&other).waiting[0].contains("the same token has admitted another key as new"));
    // Its VM was created again, with a separate token. To Kubernetes both would be the same node, until the operator decides.
    let mut anew = other.clone();
    anew.username = "system:bootstrap:ghijkl".to_owned();
    cluster.store.lock().unwrap().requests.clear();
    assert!(cluster.asks(&anew).waiting[0].contains("another token for this name has admitted another key as new"));
    cluster.free("new");
    assert_eq!(cluster.decides(now()).approved, ["csr-0 of system:bootstrap:ghijkl"]);
    // Its Node object has come, and is not ready yet. Another holder of its token sees that, and is not admitted.
    cluster.nodes(vec![node("new", &["10.0.0.30"], 9)]);
    assert_eq!(cluster.follow(), Vec::<String>::new());
    let stolen = || Spec { username: "system:bootstrap:ghijkl".to_owned(), ..joins_as("new") };
    assert!(cluster.asks(&stolen()).waiting[0].contains("the same token and another key"));
    assert_eq!(cluster.asks(&anew).approved, ["csr-2 of system:bootstrap:ghijkl"], "it may ask again");
    assert!(cluster.asks(&stolen()).approved.is_empty(), "nor after that");
    // Once its kubelet serves, there is no such token, and it joins again by another one.
    cluster.store.lock().unwrap().requests.clear();
    assert_eq!(cluster.asks(&serving("new", "10.0.0.30")).approved, ["csr-0 of system:node:new"]);
    let noted = cluster.noted("new").unwrap();
    assert!(!noted.contains("key"), "it is the object's now");
    // The creator of its VM still sees which key was admitted.
    let key = anew.asked(&joining::USAGES).unwrap().key;
    let let_in = contract::worker_records::AdmittedWorker::read(&noted).unwrap();
    assert_eq!((let_in.key_of("new-9"), let_in.key_of("another")), (Some(key.as_str()), None));
    cluster.store.lock().unwrap().requests.clear();
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
}

#[test]
fn an_unserved_name_is_held_from_other_tokens() {
    let cluster = Cluster::noting(19, vec![node("worker1", &["10.0.0.21"], 2)]);
    cluster.token(Some("worker1"));
    // A thief of the first token asks before the VM does, and does nothing else that can be observed.
    assert_eq!(cluster.asks(&joins_as("worker1")).approved.len(), 1);
    let first = cluster.noted("worker1").unwrap();
    cluster.store.lock().unwrap().requests.clear();
    let mut own = joins_as("worker1");
    own.username = "system:bootstrap:ghijkl".to_owned();
    let waits = cluster.asks(&own);
    assert!(waits.approved.is_empty(), "{waits:?}");
    assert!(waits.waiting[0].contains("another token has admitted another key as worker1"), "{waits:?}");
    assert_eq!(cluster.noted("worker1").unwrap(), first, "it gives way");
    let told = |minutes: u64| {
        let at = now() + Duration::from_secs(minutes * 60);
        cluster.api().follow_workers(&cluster.config, at).unwrap().to_string()
    };
    assert!(!told(1).contains("worker.name-held"));
    let held = told(16);
    assert!(held.contains("worker.name-held") && held.contains("worker1 (its node exists"), "{held}");
    assert!(held.contains("remove that worker") && !held.contains("kubectl -n kube-system patch"), "it runs: {held}");
    // Its kubelet serves: it was its own.
    assert_eq!(cluster.asks(&serving("worker1", "10.0.0.21")).approved.len(), 1);
    assert!(!told(16).contains("worker.name-held"));
    assert_eq!(cluster.decides(now()).approved, ["csr-0 of system:bootstrap:ghijkl"]);
}

#[test]
fn unnamed_tokens_take_no_names_of_later_workers() {
    let cluster = Cluster::noting(11, vec![]);
    cluster.token(None);
    for number in 0..8 {
        assert_eq!(cluster.asks(&joins_as(&format!("w{number}"))).approved.len(), 1, "{number}");
    }
    assert!(cluster.asks(&joins_as("w8")).waiting[0].contains("8 workers are awaited"));
    // None of them creates a Node object. Weeks later the worker of that name joins with its own token.
    let later = now() + Duration::from_secs(30 * 24 * 3600);
    cluster.store.lock().unwrap().requests.clear();
    cluster.api().follow_workers(&cluster.config, later).unwrap();
    cluster.token(Some("w7"));
    let honest = |cluster: &Cluster| {
        cluster.store.lock().unwrap().requests.insert("csr-w7".to_owned(), request("csr-w7", &joins_as("w7")));
        cluster.decides(later)
    };
    assert!(honest(&cluster).waiting[0].contains("a token without a name has admitted another key as w7"));
    let held = cluster.api().follow_workers(&cluster.config, later).unwrap().to_string();
    assert!(held.contains("worker.name-held") && held.contains("w0; w1; w2; and 5 more"), "{held}");
    // Others may come again, and once that certificate has ended this one may.
    cluster.token(None);
    cluster.store.lock().unwrap().requests = [("csr-w9".to_owned(), request("csr-w9", &joins_as("w9")))].into();
    assert_eq!(cluster.decides(later).approved.len(), 1);
    let year = now() + Duration::from_secs(367 * 24 * 3600);
    cluster.api().follow_workers(&cluster.config, year).unwrap();
    assert_eq!(cluster.noted("w7"), None);
}

#[test]
fn a_certified_worker_that_was_off_stays_expected() {
    let cluster = Cluster::noting(12, vec![]);
    cluster.token(Some("new"));
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    let after = |hours: u64| now() + Duration::from_secs(hours * 3600);
    let told = |hours| cluster.api().follow_workers(&cluster.config, after(hours)).unwrap().to_string();
    assert!(!told(0).contains("worker.name-held"));
    // A thief of the token cannot wait for that unseen either.
    let held = told(1);
    assert!(held.contains("worker.name-held") && held.contains("new (by a token for this name)"), "{held}");
    assert!(held.contains("kubectl -n kube-system patch") && !held.contains("remove that worker"), "{held}");
    assert!(told(25).contains("worker.name-held"));
    assert!(cluster.noted("new").is_some(), "it has its certificate, and asks for no other one");
    // Its VM was lost. Another one comes with a separate token, once the operator has freed the name.
    let anew = Spec { username: "system:bootstrap:ghijkl".to_owned(), ..joins_as("new") };
    cluster.store.lock().unwrap().requests = [("csr-anew".to_owned(), request("csr-anew", &anew))].into();
    assert!(cluster.decides(after(25)).approved.is_empty());
    cluster.free("new");
    assert_eq!(cluster.decides(after(25)).approved.len(), 1);
    cluster.api().follow_workers(&cluster.config, after(367 * 24 + 25)).unwrap();
    assert_eq!(cluster.noted("new"), None, "its certificate has ended");
}

#[test]
fn waiting_requests_delay_no_joining_worker() {
    let mut there: Vec<Value> = (0..150).map(|number| node(&format!("lost{number}"), &[], 2)).collect();
    there.push(ready(node("busy", &["10.0.0.21"], 2)));
    let cluster = Cluster::noting(13, there);
    cluster.token(None);
    let mut spec = joins_as("busy");
    let mut requests: BTreeMap<String, Value> = BTreeMap::new();
    for number in 0..150 {
        let (user, name) = (format!("system:node:lost{number}"), format!("lost{number}"));
        let waits = self::spec(&Serving { user: &user, common: &user, names: &[&name], ..GOOD });
        requests.insert(format!("csr-a{number}"), request(&format!("csr-a{number}"), &waits));
        // With the same token as the honest one, and each with another key.
        spec.request = joins_as("busy").request;
        requests.insert(format!("csr-b{number}"), request(&format!("csr-b{number}"), &spec));
    }
    let mut honest = request("csr-c", &joins_as("new"));
    honest["metadata"]["creationTimestamp"] = json!("2026-01-31T12:30:00Z");
    requests.insert("csr-c".to_owned(), honest);
    let before = {
        let mut store = cluster.store.lock().unwrap();
        store.requests = requests;
        store.token_used
    };
    let decided = cluster.decides(now());
    assert_eq!(decided.approved, ["csr-c of system:bootstrap:abcdef"]);
    assert_eq!(decided.waiting.len(), 150 + pending::OF_NODE + 1);
    assert_eq!(cluster.store.lock().unwrap().token_used - before, 1, "one token is asked for once");
}

#[test]
fn a_long_node_object_hides_no_other_node() {
    let with = |words: String| {
        let mut long = node("worker1", &["10.0.0.21"], 2);
        long["status"]["conditions"] = json!([{"type": "Odd", "status": "True", "message": words}]);
        vec![ready(node("node1", &["10.0.0.11"], 1)), long, node("worker2", &["10.0.0.22"], 3)]
    };
    // As the API server writes what the store holds in a sixth of that.
    let cluster = Cluster::noting(14, with(r"\u003c".repeat(1_400_000)));
    let names: Vec<String> = cluster.api().nodes().unwrap().into_iter().map(|node| node.name).collect();
    assert_eq!(names, ["node1", "worker1", "worker2"]);
    cluster.token(Some("new"));
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    // If one is longer than any that is read, the control-plane node still knows itself.
    cluster.nodes(with("x".repeat(https::LONGEST)));
    assert!(cluster.api().nodes().unwrap_err().root_cause().to_string().contains("is too long"));
    let own = cluster.api().nodes_or("node1").unwrap();
    assert_eq!(own.iter().map(|node| (node.name.as_str(), node.ready)).collect::<Vec<_>>(), [("node1", true)]);
}

#[test]
fn names_held_by_unnamed_tokens_are_bounded() {
    let cluster = Cluster::noting(15, vec![]);
    let asks = |name: &str, day: u64| {
        let spec = joins_as(name);
        cluster.store.lock().unwrap().requests = [("csr".to_owned(), request("csr", &spec))].into();
        let at = now() + Duration::from_secs(day * 24 * 3600);
        cluster.api().follow_workers(&cluster.config, at).unwrap();
        cluster.decides(at)
    };
    cluster.token(None);
    {
        let mut store = cluster.store.lock().unwrap();
        let data = store.records.as_mut().unwrap()["data"].as_object_mut().unwrap();
        let joined = humantime::format_rfc3339_seconds(now()).to_string();
        let record = json!({"joined": joined, "key": "another one's"}).to_string();
        data.extend((0..31).map(|number| (format!("w{number}"), json!(record))));
    }
    assert_eq!(asks("w31", 3).approved.len(), 1, "those before are late, and no more are awaited");
    assert!(asks("w32", 100).waiting[0].contains("32 names are held"));
    cluster.token(Some("w32"));
    assert_eq!(asks("w32", 100).approved.len(), 1, "a token of its own takes a name that nobody has");
    // The owner of the other certificate does not exist: the operator frees the name.
    cluster.token(Some("w3"));
    let waits = asks("w3", 100);
    assert!(waits.waiting[0].contains("has admitted another key as w3"), "{waits:?}");
    cluster.free("w3");
    assert_eq!(asks("w3", 100).approved.len(), 1);
    let held = cluster.api().follow_workers(&cluster.config, now() + Duration::from_secs(101 * 24 * 3600)).unwrap();
    assert!(held.to_string().contains("w0; w1; w10; and 30 more"), "{held}");
}

#[test]
fn nodes_that_chose_their_pods_addresses_are_named() {
    let with = |name: &str, second, range: &str| {
        let mut node = ready(node(name, &[], second));
        node["spec"]["podCIDR"] = json!(range);
        node
    };
    let cluster = Cluster::start(16, vec![with("node1", 1, "10.244.0.0/24"), node("new", &[], 9)]);
    let told = |nodes: Vec<Value>| {
        cluster.nodes(nodes);
        cluster.api().follow_workers(&cluster.config, now()).unwrap()
    };
    assert_eq!(told(vec![with("node1", 1, "10.244.0.0/24"), node("new", &[], 9)]), Findings::default());
    let findings = told(vec![
        with("later", 8, "10.244.0.0/24"),
        with("node1", 1, "10.244.0.0/24"),
        with("outside", 2, "192.168.7.0/24"),
        with("wide", 3, "10.244.0.0/16"),
    ]);
    let finding = findings.iter().next().unwrap();
    assert_eq!(finding.code, "node.pod-range");
    assert_eq!(
        finding.seen,
        "outside: 192.168.7.0/24 is outside of 10.244.0.0/16; wide: 10.244.0.0/16 is no /24; later: 10.244.0.0/24 is \
         another node's"
    );
}

#[test]
fn nothing_is_approved_that_could_not_be_noted() {
    let cluster = Cluster::noting(8, vec![]);
    cluster.token(None);
    cluster.store.lock().unwrap().overtaken = true;
    assert_eq!(cluster.asks(&joins_as("new")), ApprovalReport::default());
    assert_eq!(cluster.noted("new"), None);
    let decided = cluster.decides(now());
    assert_eq!(decided.approved.len(), 1);
    assert!(cluster.noted("new").is_some());
}

#[test]
fn joining_workers_are_recorded_before_earlier_ones() {
    let cluster = Cluster::start(9, vec![node("worker1", &["10.0.0.21"], 2)]);
    let api = cluster.api();
    let early = humantime::parse_rfc3339("2026-01-31T12:00:30Z").unwrap();
    for _ in 0..2 {
        api.follow_workers(&cluster.config, early).unwrap();
        assert_eq!(cluster.noted("_complete"), None);
    }
    cluster.token(None);
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    assert!(cluster.noted("new").is_some());
    assert_eq!(cluster.asks(&serving("worker1", "10.0.0.21")).approved.len(), 1);
    assert_eq!(cluster.asks(&renewal("worker1")).approved.len(), 1);
    api.follow_workers(&cluster.config, now()).unwrap();
    assert!(cluster.noted("worker1").is_some() && cluster.noted("_complete").is_some());
}

#[test]
fn names_of_earlier_workers_belong_to_their_keys() {
    // Before the records began, and while they are incomplete.
    for (last, begun) in [(17, false), (18, true)] {
        let cluster = Cluster::start(last, vec![]);
        let early = humantime::parse_rfc3339("2026-01-31T12:00:30Z").unwrap();
        let follow = |at| cluster.api().follow_workers(&cluster.config, at).unwrap();
        if begun {
            follow(early);
        }
        cluster.token(Some("new"));
        assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
        if !begun {
            follow(early);
        }
        follow(now());
        assert!(cluster.noted("_complete").is_some());
        let noted = cluster.noted("new").unwrap();
        assert!(noted.contains(r#""key":""#) && noted.contains("abcdef"), "{noted}");
        let other = cluster.asks(&joins_as("new"));
        assert!(other.approved.is_empty(), "{other:?}");
        assert!(other.waiting[0].contains("the same token has admitted another key as"), "{other:?}");
    }
}

#[test]
fn serving_counts_while_records_are_incomplete() {
    let cluster = Cluster::start(31, vec![]);
    let early = humantime::parse_rfc3339("2026-01-31T12:00:30Z").unwrap();
    let follow = |at| cluster.api().follow_workers(&cluster.config, at).unwrap().to_string();
    follow(early);
    cluster.token(Some("new"));
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    cluster.nodes(vec![node("new", &["10.0.0.21"], 2)]);
    assert_eq!(cluster.asks(&serving("new", "10.0.0.21")).approved.len(), 1);
    assert!(!cluster.noted("new").unwrap().contains(r#""key""#));
    follow(now());
    assert!(cluster.noted("_complete").is_some() && cluster.noted("new").unwrap().contains("10.0.0.21"));
    let later = now() + Duration::from_secs(16 * 60);
    assert!(!follow(later).contains("worker.name-held"));
    // Its VM is created again.
    let again = || {
        cluster.store.lock().unwrap().requests.clear();
        let mut own = joins_as("new");
        own.username = "system:bootstrap:ghijkl".to_owned();
        cluster.asks(&own).approved.len()
    };
    // Or an earlier version has noted it, which left the key there.
    let mut noted: Value = serde_json::from_str(&cluster.noted("new").unwrap()).unwrap();
    assert_eq!(again(), 1);
    noted["key"] = "of an earlier one".into();
    noted["token"] = "abcdef".into();
    cluster.store.lock().unwrap().records.as_mut().unwrap()["data"]["new"] = noted.to_string().into();
    assert!(!follow(later).contains("worker.name-held"));
    assert_eq!(again(), 1);
}

#[test]
fn a_second_key_waits_also_without_records() {
    for (last, is_same_pass) in [(20, false), (21, true)] {
        let cluster = Cluster::start(last, vec![]);
        cluster.token(Some("new"));
        let both = [joins_as("new"), joins_as("new")];
        let decided = if is_same_pass {
            let mut store = cluster.store.lock().unwrap();
            store.requests.insert("csr-0".to_owned(), request("csr-0", &both[0]));
            drop(store);
            cluster.asks(&both[1])
        } else {
            assert_eq!(cluster.asks(&both[0]).approved.len(), 1);
            cluster.asks(&both[1])
        };
        assert!(cluster.noted("new").is_none(), "nothing is noted yet");
        assert_eq!(decided.approved.len(), usize::from(is_same_pass), "{decided:?}");
        assert!(decided.waiting[0].contains("the same token has admitted another key as new"), "{decided:?}");
    }
}

#[test]
fn a_serving_worker_keeps_its_name_without_records() {
    let cluster = Cluster::start(34, vec![]);
    cluster.token(Some("new"));
    assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
    cluster.nodes(vec![node("new", &["10.0.0.30"], 9)]);
    // The thief's first request is judged before the node's own, and the second after it.
    for (name, spec) in [("csr-a", joins_as("new")), ("csr-b", joins_as("new")), ("csr-c", serving("new", "10.0.0.30"))]
    {
        cluster.store.lock().unwrap().requests.insert(name.to_owned(), request(name, &spec));
    }
    let decided = cluster.decides(now());
    assert!(cluster.store.lock().unwrap().records.is_none(), "nothing is noted yet");
    assert_eq!(decided.approved, ["csr-c of system:node:new"]);
    assert_eq!(decided.waiting.len(), 2, "{decided:?}");
    assert!(decided.waiting.iter().all(|why| why.contains("with the same token and another key")), "{decided:?}");
}

#[test]
fn completing_the_records_deletes_used_tokens() {
    let there = || node("new", &["10.0.0.30"], 9);
    for (last, node, goes) in [(35, ready(there()), true), (36, there(), false)] {
        let cluster = Cluster::start(last, vec![]);
        cluster.token(Some("new"));
        assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
        cluster.nodes(vec![node]);
        cluster.follow();
        let used = || cluster.store.lock().unwrap().token_used;
        let before = used();
        cluster.follow();
        assert!(cluster.noted("_complete").is_some() && !cluster.noted("new").unwrap().contains("abcdef"));
        // It is looked at once, and deleted or left.
        assert_eq!(used() - before, 1 + usize::from(goes));
    }
}

#[test]
fn earlier_workers_keep_names_while_records_are_incomplete() {
    let early = humantime::parse_rfc3339("2026-01-31T12:00:30Z").unwrap();
    // No other worker is recorded meanwhile, or one is, after which the records are read again.
    for (last, others) in [(25, 0), (26, 1)] {
        let cluster = Cluster::start(last, vec![]);
        cluster.token(None);
        let own = joins_as("new");
        assert_eq!(cluster.asks(&own).approved.len(), 1);
        cluster.api().follow_workers(&cluster.config, early).unwrap();
        assert!(cluster.store.lock().unwrap().records.is_some() && cluster.noted("new").is_none());
        {
            let mut store = cluster.store.lock().unwrap();
            store
                .requests
                .extend((0..others).map(|_| ("csr-0-other".to_owned(), request("csr-0-other", &joins_as("other")))));
        }
        let second = cluster.asks(&joins_as("new"));
        assert_eq!(second.approved.len(), others, "{second:?}");
        assert!(second.waiting[0].contains("has admitted another key as new"), "{second:?}");
        // The admitted worker may ask again, and serves as ever.
        assert_eq!(cluster.asks(&own).approved.len(), 1);
        cluster.nodes(vec![node("new", &["10.0.0.30"], 9)]);
        let serves = cluster.asks(&serving("new", "10.0.0.30"));
        assert_eq!(serves.approved.iter().filter(|one| one.ends_with("system:node:new")).count(), 1, "{serves:?}");
        cluster.api().follow_workers(&cluster.config, now()).unwrap();
        let noted = cluster.noted("new").unwrap();
        assert!(noted.contains("10.0.0.30") && !noted.contains("is_disputed"), "{noted}");
        assert!(noted.contains(&own.asked(&joining::USAGES).unwrap().key), "{noted}");
    }
}

#[test]
fn two_keys_with_incomplete_records_are_reported() {
    let early = humantime::parse_rfc3339("2026-01-31T12:00:30Z").unwrap();
    let there = node("new", &["10.0.0.30"], 9);
    for (last, nodes) in [(27, vec![]), (28, vec![there.clone()])] {
        let cluster = Cluster::start(last, vec![]);
        cluster.token(Some("new"));
        cluster.api().follow_workers(&cluster.config, early).unwrap();
        assert_eq!(cluster.asks(&joins_as("new")).approved.len(), 1);
        // A control-plane node that had not seen the records yet has admitted another key.
        let mut other = request("csr-other", &joins_as("new"));
        other["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        cluster.store.lock().unwrap().requests.insert("csr-other".to_owned(), other);
        cluster.nodes(nodes);
        let told = cluster.follow();
        assert!(cluster.noted("_complete").is_some());
        assert!(told.len() == 1 && told[0].starts_with("worker.name-held new (two keys were admitted"), "{told:?}");
        cluster.nodes(vec![there.clone()]);
        assert_eq!(cluster.asks(&serving("new", "10.0.0.30")).approved.len(), 1);
        assert_eq!(cluster.follow(), told, "nor is that forgotten once it serves");
    }
}

#[test]
fn two_keys_of_an_earlier_image_are_reported() {
    for (last, nodes) in [(22, vec![]), (23, vec![node("new", &["10.0.0.30"], 9)])] {
        let cluster = Cluster::start(last, nodes);
        cluster.token(Some("new"));
        for number in 0..2 {
            let mut approved = request(&format!("csr-{number}"), &joins_as("new"));
            approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
            cluster.store.lock().unwrap().requests.insert(format!("csr-{number}"), approved);
        }
        cluster.follow();
        let told = cluster.follow();
        assert!(cluster.noted("_complete").is_some());
        assert!(told.len() == 1 && told[0].starts_with("worker.name-held new (two keys were admitted"), "{told:?}");
        // The finding stays when its Node object exists.
        cluster.nodes(vec![node("new", &["10.0.0.30"], 9)]);
        assert_eq!(cluster.follow(), told);
    }
}

#[test]
fn recreated_vms_with_another_token_are_no_dispute() {
    // The first token has expired, or still exists: then its holder may have asked.
    for (last, is_there) in [(32, false), (33, true)] {
        let cluster = Cluster::start(last, vec![node("new", &["10.0.0.30"], 9)]);
        cluster.token(Some("new"));
        let other = if is_there { "bcdefg" } else { "gonexx" };
        for (number, token) in [other, "abcdef"].into_iter().enumerate() {
            let name = format!("csr-{number}");
            let user = format!("system:bootstrap:{token}");
            let mut approved = request(&name, &Spec { username: user, ..joins_as("new") });
            approved["metadata"]["creationTimestamp"] = json!(format!("2026-01-31T12:0{number}:00Z"));
            approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
            cluster.store.lock().unwrap().requests.insert(name, approved);
        }
        cluster.follow();
        let told = cluster.follow();
        assert!(cluster.noted("_complete").is_some());
        assert_eq!(told.len(), usize::from(is_there), "{told:?}");
        assert_eq!(cluster.noted("new").unwrap().contains("is_disputed"), is_there);
    }
}

#[test]
fn requests_of_one_user_are_bounded() {
    let cluster = Cluster::noting(24, vec![ready(node("busy", &[], 2))]);
    cluster.token(Some("new"));
    let user = "system:node:busy";
    let waits = spec(&Serving { user, common: user, names: &["busy"], ..GOOD });
    let flood = (0..1000).map(|number| (format!("csr-a{number}"), request(&format!("csr-a{number}"), &waits)));
    cluster.store.lock().unwrap().requests.extend(flood);
    let decided = cluster.asks(&joins_as("new"));
    assert_eq!(decided.approved, ["csr-1000 of system:bootstrap:abcdef"]);
    assert_eq!(decided.waiting.len(), pending::OF_ONE + 1);
    assert!(decided.waiting[0].starts_with("system:node:busy has 700 more requests than are looked at"), "{decided:?}");
}

/// Four hundred requests alike, and after them an honest one by the same token.
fn flood(cluster: &Cluster, alike: &Spec) {
    let flood = (0..400).map(|number| (format!("csr-a{number}"), request(&format!("csr-a{number}"), alike)));
    let mut honest = request("csr-z", &joins_as("new"));
    honest["metadata"]["creationTimestamp"] = json!("2026-01-31T12:30:00Z");
    let mut store = cluster.store.lock().unwrap();
    store.requests.extend(flood);
    store.requests.insert("csr-z".to_owned(), honest);
}

#[test]
fn floods_for_an_existing_node_exclude_no_worker() {
    let cluster = Cluster::noting(29, vec![ready(node("busy", &[], 2))]);
    cluster.token(None);
    let in_vain = joins_as("busy");
    flood(&cluster, &in_vain);
    let decided = cluster.decides(now());
    assert_eq!(decided.approved, ["csr-z of system:bootstrap:abcdef"]);
    assert_eq!(decided.waiting.len(), pending::OF_NODE + 1);
    assert!(decided.waiting[0].starts_with("system:bootstrap:abcdef has 390 more requests"), "{decided:?}");
}

#[test]
fn floods_of_malformed_requests_exclude_no_worker() {
    let cluster = Cluster::noting(37, vec![]);
    cluster.token(None);
    let malformed = Spec { usages: vec!["client auth".to_owned(), "server auth".to_owned()], ..joins_as("new") };
    flood(&cluster, &malformed);
    let decided = cluster.decides(now());
    assert_eq!(decided.approved, ["csr-z of system:bootstrap:abcdef"]);
    assert_eq!(decided.denied.len(), pending::OF_NODE);
}

#[test]
fn requests_of_many_users_are_bounded() {
    let cluster = Cluster::noting(30, vec![]);
    cluster.token(None);
    let waits = spec(&GOOD);
    let flood = (0..3 * pending::OF_ALL).map(|number| {
        let name = format!("csr-{number:04}");
        // Two of each.
        let one = request(&name, &Spec { username: format!("system:node:w{}", number / 2), ..waits.clone() });
        (name, one)
    });
    let mut honest = request("csr-honest", &joins_as("new"));
    honest["metadata"]["creationTimestamp"] = json!("2026-01-31T11:30:00Z");
    {
        let mut store = cluster.store.lock().unwrap();
        store.requests.extend(flood);
        store.requests.insert("csr-honest".to_owned(), honest);
    }
    let open = cluster.api().open_requests().unwrap();
    let left = open.left();
    assert!(left.len() == pending::OF_ALL + 1 && left[pending::OF_ALL].starts_with("others have "), "{}", left.len());
    let held = open.into_requests();
    assert_eq!(held.len(), pending::OF_ALL);
    assert!(held.iter().any(|one| one.metadata.name == "csr-honest"));
    let of_who = |one: &Request| one.spec.username.clone();
    assert_eq!(held.iter().map(of_who).collect::<std::collections::BTreeSet<_>>().len(), pending::OF_ALL);
}

#[test]
fn long_users_and_unused_groups_are_dropped() {
    let long = Spec { username: "a".repeat(LONGEST_NAME + 1), ..spec(&GOOD) };
    let groups = [contract::join_token::GROUP.to_owned(), "system:nodes".to_owned(), "b".repeat(100_000)];
    let long = Spec { groups: groups.to_vec(), ..long };
    let kept: Request = serde_json::from_value(request("csr", &long)).unwrap();
    assert_eq!((kept.spec.username.as_str(), &kept.spec.groups[..]), ("", &groups[..2]));
}
