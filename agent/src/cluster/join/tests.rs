//! A worker that joins a cluster. The cluster answers as a tenant cluster's API server does, over real TLS.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::kubeconfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::cluster::kubernetes::{CA_CERTIFICATE, api, kubelet};
use crate::cluster::pki::{self, CertificateAuthorities, Leaf};
use crate::host::fake_server;
use crate::host::files;
use crate::intake::config::fixture::{image, three_nodes, worker};

const TOKEN: &str = "abcdef.0123456789abcdef";

/// The behavior of the cluster.
#[derive(Clone)]
struct Mood {
    publishes: bool,
    /// The token that has signed the cluster's identity, if any.
    signs_with: Option<&'static str>,
    /// The status code for requests with a token.
    code: u16,
    version: &'static str,
    nodes: Value,
    request: Value,
    asked: BTreeSet<String>,
}

struct Cluster {
    worker: Worker,
    mood: Arc<Mutex<Mood>>,
    root: TempDir,
    authorities: CertificateAuthorities,
}

impl Cluster {
    /// A cluster whose API is at an address of loopback that no other test uses.
    fn start(last: u8) -> Self {
        let (root, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
        let address = Ipv4Addr::new(127, 0, 91, last);
        let authorities = CertificateAuthorities::make(now).unwrap();
        let mut leaf = Leaf { server: true, ..Leaf::client("kube-apiserver") };
        leaf.addresses.insert(IpAddr::V4(address));
        leaf.ensure(&authorities.kubernetes, &root.path().join("server"), now).unwrap();
        let mut worker = worker();
        worker.cluster.api_address = address;
        worker.cluster.ca_hash = discovery::hash_of(&authorities.kubernetes.certificate).unwrap();
        let signed = Leaf::client("system:node:worker1").issue(&authorities.kubernetes, now).unwrap();
        let mood = Mood {
            publishes: true,
            signs_with: Some(TOKEN),
            code: 200,
            version: "v1.36.3",
            nodes: json!([]),
            request: json!({"certificate": BASE64_STANDARD.encode(signed.certificate)}),
            asked: BTreeSet::new(),
        };
        let cluster = Self { worker, mood: Arc::new(Mutex::new(mood)), root, authorities };
        cluster.serve(address);
        cluster
    }

    fn serve(&self, address: Ipv4Addr) {
        let (mood, published) = (Arc::clone(&self.mood), PublishedCluster::of(&three_nodes().cluster).object());
        let info = kubeconfig::without_user("https://nowhere", &self.authorities.kubernetes.certificate);
        let answer = move |path: &str, body: &Value| {
            let mut mood = mood.lock().unwrap();
            let code = mood.code;
            match path {
                _ if !mood.publishes => (404, json!({})),
                discovery::PATH => {
                    let mut data = json!({"kubeconfig": info});
                    if let Some((name, signature)) = mood.signs_with.map(|token| discovery::tests::sign(&info, token)) {
                        data[name] = json!(signature);
                    }
                    (200, json!({"data": data}))
                }
                _ if code != 200 => (code, json!({"message": "no"})),
                published::PATH => (200, published.clone()),
                "/version" => (200, json!({"gitVersion": mood.version})),
                path if path.starts_with("/api/v1/nodes?") => page(&mood.nodes, path),
                path if body.is_object() => {
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    assert!(path.ends_with("/certificatesigningrequests"), "{path}");
                    (if mood.asked.insert(name) { 201 } else { 409 }, json!({}))
                }
                path => {
                    let name = path.rsplit('/').next().unwrap();
                    assert!(mood.asked.contains(name), "{path}");
                    (200, json!({"status": mood.request}))
                }
            }
        };
        fake_server::serve((address, ports::API).into(), &self.root.path().join("server"), Box::new(answer));
    }

    fn is(&self, change: impl FnOnce(&mut Mood)) {
        change(&mut self.mood.lock().unwrap());
    }

    fn joining(&self) -> JoinContext<'_> {
        let (root, timeout) = (self.root.path(), Duration::from_secs(60));
        JoinContext { worker: &self.worker, image: IMAGE.get_or_init(image), machine: None, root, timeout }
    }

    /// One attempt, as the step makes it.
    fn join(&self) -> Result<Worker, Error> {
        let (joining, token) = (self.joining(), Secret::new(TOKEN.to_owned()));
        let admission = joining.discover(&token)?;
        let certificate = joining.certificate(&admission)?;
        credentials::lay(&joining, &admission.ca, &certificate)?;
        let mut worker = self.worker.clone();
        worker.cluster.learned = Some(admission.learned);
        Ok(worker)
    }

    fn refused(&self) -> Finding {
        match self.join() {
            Err(Error::Refused(finding)) => *finding,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&self) -> String {
        match self.join() {
            Err(Error::Waiting(what)) => what,
            other => panic!("{other:?}"),
        }
    }
}

/// The nodes one by one, for any limit.
fn page(nodes: &Value, path: &str) -> (u16, Value) {
    let from: usize = path.split_once("continue=").map_or(0, |(_, from)| from.parse().unwrap());
    let nodes = nodes.as_array().unwrap();
    let next = if from + 1 < nodes.len() { (from + 1).to_string() } else { String::new() };
    let items: Vec<&Value> = nodes.iter().skip(from).take(1).collect();
    (200, json!({"metadata": {"continue": next}, "items": items}))
}

static IMAGE: std::sync::OnceLock<ImageFacts> = std::sync::OnceLock::new();

#[test]
fn worker_joins_and_has_the_published_settings() {
    let cluster = Cluster::start(1);
    let (root, now) = (cluster.root.path(), SystemTime::now());
    assert_eq!(worker_membership(root, &cluster.worker, now), WorkerMembership::NotJoined);
    let joined = cluster.join().unwrap();
    let said = joined.cluster.learned.clone().unwrap();
    assert_eq!(said.kubernetes_minor, "1.36");
    assert_eq!(said.network, three_nodes().cluster.network());
    assert_eq!(said.control_nodes, three_nodes().cluster.control_nodes);
    assert_eq!(worker_membership(root, &joined, now), WorkerMembership::Member);
    for path in [kubelet::KUBECONFIG, api::KUBECONFIG] {
        let read = pki::read_kubeconfig(&files::below(root, path)).unwrap();
        assert_eq!(read.server, format!("https://{}:6443", joined.cluster.api_address), "{path}");
        assert_eq!(read.authority, fs::read_to_string(files::below(root, CA_CERTIFICATE)).unwrap());
    }
    assert!(!files::below(root, request::KEY).exists(), "the key is in use elsewhere");
    assert!(!credentials::renew(root, &joined, now).unwrap(), "nothing was renewed yet");

    let years = Duration::from_secs(400 * 24 * 60 * 60);
    assert!(matches!(worker_membership(root, &joined, now + years), WorkerMembership::Expired(_)));
    let mut another = joined.clone();
    another.cluster.ca_hash = worker().cluster.ca_hash;
    assert_eq!(worker_membership(root, &another, now), WorkerMembership::NotJoined, "it is another cluster's");
}

#[test]
fn expired_worker_is_no_member_after_its_start() {
    let cluster = Cluster::start(8);
    let (root, now) = (cluster.root.path(), SystemTime::now());
    let config = Config::Worker(cluster.join().unwrap());
    let records = Records::new(root);
    records.save_config(&config, &Secret::new(TOKEN.to_owned())).unwrap();
    let member = Progress { credentials: true, formed: true, ..Progress::default() };
    records.save_progress(member).unwrap();
    assert_eq!(progress(root, &config, now).unwrap(), member);
    let years = Duration::from_secs(400 * 24 * 60 * 60);
    let former = Progress { formed: false, ..member };
    assert_eq!(progress(root, &config, now + years).unwrap(), former);
    assert_eq!(records.progress().unwrap(), former, "its form counts from now on");
}

#[test]
fn all_programs_use_the_renewed_certificate() {
    let cluster = Cluster::start(2);
    let (root, now) = (cluster.root.path(), SystemTime::now());
    let joined = cluster.join().unwrap();
    let later = now + Duration::from_secs(24 * 60 * 60);
    let renewed = Leaf::client("system:node:worker1").issue(&cluster.authorities.kubernetes, later).unwrap();
    let current = files::below(root, "/var/lib/kubelet/pki/kubelet-client-current.pem");
    let pem = [renewed.certificate.as_str(), renewed.key.expose()].concat();
    files::write_atomically(&current, pem.as_bytes(), 0o600).unwrap();
    assert!(credentials::renew(root, &joined, now).unwrap());
    let read = pki::read_kubeconfig(&files::below(root, api::KUBECONFIG)).unwrap();
    assert_eq!(read.certificate, renewed.certificate);
    assert_eq!(credentials::end(root, now), pki::expiry(&renewed.certificate).ok());
    // The power was cut right after the renewal: the worker is a member by the former certificate.
    fs::rename(&current, current.with_file_name("kubelet-client-2026-01-01-00-00-00.pem")).unwrap();
    files::write_atomically(&current, b"", 0o600).unwrap();
    assert_eq!(credentials::end(root, now), pki::expiry(&renewed.certificate).ok());
    // It joins again: the kubelet's former certificates are gone.
    cluster.join().unwrap();
    assert!(!current.exists());
}

#[test]
fn token_of_another_cluster_is_refused() {
    let cluster = Cluster::start(3);
    let words = |seen: &str| {
        let finding = cluster.refused();
        assert_eq!(finding.code, "join.token-refused");
        assert!(finding.seen.contains(seen) && finding.action.contains("kubeadm token create"), "{finding}");
        assert!(!finding.to_string().contains("0123456789"), "{finding}");
    };
    // A server in the cluster's place can leave the signature out, or the cluster has not signed with a new token yet.
    cluster.is(|mood| mood.signs_with = None);
    let Err(Error::Waiting(what)) = cluster.join() else { panic!("it does not wait") };
    assert!(what.contains("not published yet"), "{what}");
    cluster.is(|mood| mood.code = 401);
    words("expired");
    cluster.is(|mood| mood.signs_with = Some("abcdef.fedcba9876543210"));
    words("secret half");
    cluster.is(|mood| (mood.signs_with, mood.code) = (Some(TOKEN), 401));
    words("does not take it");
    cluster.is(|mood| mood.code = 403);
    words("no right");
    assert!(!files::below(cluster.root.path(), CA_CERTIFICATE).exists(), "nothing was laid");
}

#[test]
fn unproved_answer_about_the_token_is_no_refusal() {
    let cluster = Cluster::start(11);
    cluster.is(|mood| (mood.signs_with, mood.code) = (None, 401));
    // The server has the cluster's public certificate, and none of its keys.
    let stranger = CertificateAuthorities::make(SystemTime::now()).unwrap();
    let mut leaf = Leaf { server: true, ..Leaf::client("kube-apiserver") };
    leaf.addresses.insert(IpAddr::V4(cluster.worker.cluster.api_address));
    let base = cluster.root.path().join("server");
    for end in ["crt", "key"] {
        fs::remove_file(base.with_extension(end)).unwrap();
    }
    leaf.ensure(&stranger.kubernetes, &base, SystemTime::now()).unwrap();
    let Err(Error::Waiting(what)) = cluster.join() else { panic!("it does not wait") };
    assert!(what.contains("has not proved to be the cluster"), "{what}");
}

#[test]
fn other_ca_is_refused_without_sending_the_token() {
    let mut cluster = Cluster::start(4);
    let true_hash = std::mem::replace(&mut cluster.worker.cluster.ca_hash, worker().cluster.ca_hash);
    // A request with the token would get this answer.
    cluster.is(|mood| mood.code = 401);
    let finding = cluster.refused();
    assert_eq!(finding.code, "join.wrong-ca");
    assert!(finding.seen.contains(&true_hash), "{finding}");
}

#[test]
fn each_refusal_of_the_cluster_has_its_code() {
    let mut cluster = Cluster::start(5);
    cluster.is(|mood| mood.version = "v1.30.0");
    assert_eq!(cluster.refused().code, "join.version-skew");
    cluster.is(|mood| {
        mood.version = "v1.36.3";
        mood.nodes = json!([{"metadata": {"name": "another"}}, {"metadata": {"name": "worker1"}}]);
    });
    assert_eq!(cluster.refused().code, "join.name-in-use");
    cluster.is(|mood| {
        mood.nodes = json!([{"metadata": {"name": "x"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.21"}]}}]);
    });
    assert_eq!(cluster.refused().code, "join.address-in-use");
    cluster.is(|mood| mood.nodes = json!([]));
    cluster.worker.cluster.name = "another".to_owned();
    assert_eq!(cluster.refused().code, "join.other-cluster");
}

#[test]
fn worker_waits_for_an_unready_cluster() {
    let mut cluster = Cluster::start(6);
    cluster.is(|mood| mood.publishes = false);
    assert!(cluster.waits().contains("is it a tenant cluster?"));
    cluster.is(|mood| (mood.publishes, mood.code) = (true, 503));
    assert!(cluster.waits().contains("503"));
    // Nothing listens there.
    cluster.worker.cluster.api_address = Ipv4Addr::new(127, 0, 91, 255);
    let waits = cluster.waits();
    assert!(waits.contains("waiting for the Kubernetes API at 127.0.91.255:6443"), "{waits}");
}

#[test]
fn interrupted_request_is_repeated_and_denied_one_replaced() {
    let cluster = Cluster::start(7);
    let signed = cluster.mood.lock().unwrap().request.clone();
    cluster.is(|mood| mood.request = json!({}));
    assert!(cluster.waits().contains("to sign"));
    assert!(cluster.waits().contains("to sign"));
    assert_eq!(cluster.mood.lock().unwrap().asked.len(), 1, "the same key");
    cluster.is(|mood| mood.request = json!({"conditions": [{"type": "Denied", "message": "not you"}]}));
    let finding = cluster.refused();
    assert_eq!(finding.code, "join.denied");
    assert!(finding.seen.contains("not you"), "{finding}");
    cluster.is(|mood| mood.request = signed);
    cluster.join().unwrap();
    assert_eq!(cluster.mood.lock().unwrap().asked.len(), 2);
}

#[test]
fn worker_reports_the_key_of_its_certificate() {
    let cluster = Cluster::start(12);
    let root = cluster.root.path();
    assert_eq!(credentials::key(root), None);
    let asks = cluster.joining().key().unwrap();
    assert_eq!((asks.len(), cluster.joining().key().unwrap()), (32, asks.clone()));
    cluster.join().unwrap();
    assert_eq!(credentials::key(root), Some(asks.clone()));
    // A renewal by the kubelet does not change it.
    let renewed =
        Leaf::client("system:node:worker1").issue(&cluster.authorities.kubernetes, SystemTime::now()).unwrap();
    let pem = [renewed.certificate.as_str(), renewed.key.expose()].concat();
    let current = files::below(root, "/var/lib/kubelet/pki/kubelet-client-current.pem");
    files::write_atomically(&current, pem.as_bytes(), 0o600).unwrap();
    assert_eq!(credentials::key(root), Some(asks.clone()));
    // It joins again with another one.
    assert_ne!(cluster.joining().key().unwrap(), asks);
}

#[test]
fn finding_without_a_token_has_the_reason() {
    assert_eq!(no_token(&WorkerMembership::NotJoined).code, "join.token-missing");
    let expired = no_token(&WorkerMembership::Expired(SystemTime::UNIX_EPOCH));
    assert_eq!((expired.code.as_str(), expired.subject.as_str()), ("join.certificate-expired", "join-token"));
    assert!(expired.seen.contains("ended 1970-01-01"), "{expired}");
}
