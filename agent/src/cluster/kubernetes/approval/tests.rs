//! Decisions about requests of a worker, of a hostile root user on one, and of the holder of a join token.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::ports;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::cluster::join;
use crate::cluster::kubernetes::fake_api::FakeApi;
use crate::cluster::pki::{self, CertificateAuthorities};
use crate::host::fake_server;
use crate::intake::config::fixture::{in_a_tenant, three_nodes};

pub(super) fn config() -> ControlPlane {
    let mut config = in_a_tenant(three_nodes());
    let pool = |first, last| contract::properties::AddressRange {
        first: [10, 0, 0, first].into(),
        last: [10, 0, 0, last].into(),
    };
    config.cluster.add_ons.service_addresses = vec![pool(200, 219)];
    config.node.dns_servers = vec![[10, 0, 0, 2].into()];
    config.node.ntp_servers = vec!["10.0.0.3".to_owned(), "time.example.com".to_owned()];
    config
}

/// A Node object that came in this second.
pub(super) fn node(name: &str, addresses: &[&str], second: u8) -> Value {
    let hostname = json!({"type": "Hostname", "address": name});
    let internal = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address}));
    let addresses: Vec<Value> = [hostname].into_iter().chain(internal).collect();
    json!({
        "metadata": {"name": name, "uid": format!("{name}-{second}"), "creationTimestamp": format!("2026-01-31T12:00:{second:02}Z")},
        "status": {"addresses": addresses},
    })
}

pub(super) fn ready(mut node: Value) -> Value {
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    node
}

pub(super) fn nodes(of: Vec<Value>) -> Vec<Node> {
    serde_json::from_value(Value::from(of)).unwrap()
}

/// The request of a kubelet.
#[derive(Clone, Copy)]
pub(super) struct Serving<'a> {
    pub(super) user: &'a str,
    pub(super) common: &'a str,
    pub(super) names: &'a [&'a str],
    pub(super) addresses: &'a [&'a str],
    pub(super) usages: &'a [&'a str],
}

pub(super) const GOOD: Serving<'static> = Serving {
    user: "system:node:worker1",
    common: "system:node:worker1",
    names: &["worker1"],
    addresses: &["10.0.0.21"],
    usages: &["digital signature", "server auth"],
};

pub(super) fn spec(asked: &Serving<'_>) -> Spec {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, asked.common);
    let dns = asked.names.iter().map(|name| SanType::DnsName((*name).try_into().unwrap()));
    let addresses = asked.addresses.iter().map(|address| SanType::IpAddress(address.parse().unwrap()));
    params.subject_alt_names = dns.chain(addresses).collect();
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    Spec {
        request: Some(BASE64_STANDARD.encode(request)),
        signer_name: serving::SIGNER.to_owned(),
        username: asked.user.to_owned(),
        groups: vec!["system:nodes".to_owned(), "system:authenticated".to_owned()],
        usages: asked.usages.iter().map(|usage| (*usage).to_owned()).collect(),
    }
}

fn serves(asked: &Serving<'_>, of: Vec<Value>) -> Result<(), Refusal> {
    serving::judge(&spec(asked), &config(), &nodes(of), None).map(drop)
}

fn cluster() -> Vec<Value> {
    vec![node("node1", &["10.0.0.11"], 1), node("worker1", &["10.0.0.21"], 2), node("worker2", &["10.0.0.22"], 3)]
}

#[test]
fn kubelets_get_certificates_for_themselves_alone() {
    assert_eq!(serves(&GOOD, cluster()), Ok(()));
    for (asked, why) in [
        (Serving { user: "system:serviceaccount:x:y", ..GOOD }, "no node that asks"),
        (Serving { common: "system:node:worker2", ..GOOD }, "another one's"),
        (Serving { names: &["worker1", "worker2"], ..GOOD }, "it names worker2"),
        (Serving { addresses: &[], ..GOOD }, "no address"),
        (Serving { addresses: &["10.0.0.21", "::ffff:10.0.0.21"], ..GOOD }, "not IPv4"),
        (Serving { usages: &["server auth", "client auth"], ..GOOD }, "other uses"),
        (Serving { usages: &["digital signature"], ..GOOD }, "other uses"),
        (Serving { user: "system:node:node1", common: "system:node:node1", ..GOOD }, "a control-plane node's"),
        (Serving { user: "system:node:kubernetes", common: "system:node:kubernetes", ..GOOD }, "others are reached"),
        (Serving { user: "system:node:kubernetes.default.svc", ..GOOD }, "no node's name"),
    ] {
        let Err(Refusal::Never(said)) = serves(&asked, cluster()) else { panic!("{why}") };
        assert!(said.contains(why), "{said}");
    }
    for (asked, why) in [
        (
            Serving { user: "system:node:worker9", common: "system:node:worker9", names: &["worker9"], ..GOOD },
            "no such node",
        ),
        (Serving { addresses: &["10.0.0.11"], ..GOOD }, "it names 10.0.0.11"),
        (Serving { addresses: &["10.0.0.21", "10.0.0.23"], ..GOOD }, "it names 10.0.0.23"),
    ] {
        let Err(Refusal::Now(said)) = serves(&asked, cluster()) else { panic!("{why}") };
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_request_that_hides_another_one_is_denied() {
    let (honest, other) = (spec(&GOOD), spec(&Serving { addresses: &["10.0.0.10"], ..GOOD }));
    let text =
        |spec: &Spec| String::from_utf8(BASE64_STANDARD.decode(spec.request.as_ref().unwrap()).unwrap()).unwrap();
    let both = text(&honest).replace("END CERTIFICATE REQUEST", "END X") + &text(&other);
    let spec = Spec { request: Some(BASE64_STANDARD.encode(both)), ..honest };
    let refused = serving::judge(&spec, &config(), &nodes(cluster()), None);
    assert_eq!(refused, Err(Refusal::never("it is not one block of PEM and nothing else")));
}

#[test]
fn node_objects_give_no_reserved_addresses() {
    let with = |addresses: &[&str]| vec![node("worker1", addresses, 2), node("worker2", &["10.0.0.22"], 1)];
    for (address, why) in [
        ("10.0.0.10", "the virtual IP"),
        ("10.0.0.12", "a control-plane node's"),
        ("10.96.0.1", "a service's"),
        ("10.244.3.7", "a pod's"),
        ("10.0.0.207", "for services"),
        ("10.0.0.1", "a gateway's"),
        ("10.0.0.2", "a DNS server's"),
        ("10.0.0.3", "a time server's"),
        ("127.0.0.1", "no host's"),
        ("0.0.0.0", "no host's"),
        ("169.254.169.254", "no host's"),
        ("224.0.0.18", "no host's"),
        ("255.255.255.255", "no host's"),
        ("10.0.0.255", "no host's"),
        ("10.0.0.22", "node worker2, which is older"),
    ] {
        let asked = Serving { addresses: &[address], ..GOOD };
        let Err(Refusal::Now(said)) = serves(&asked, with(&[address])) else { panic!("{address} is approved") };
        assert!(said.contains(why), "{address}: {said}");
    }
    // The same in the form of IPv6, and next to an honest one: Go makes four bytes of such a name.
    for addresses in [&["::ffff:10.0.0.10"][..], &["10.0.0.21", "::ffff:10.0.0.10"], &["10.0.0.21", "10.96.0.1"], &[]] {
        let refused = serves(&GOOD, with(addresses));
        assert!(matches!(refused, Err(Refusal::Now(ref said)) if said.contains("exactly one")), "{refused:?}");
    }
    // A worker in a separate subnet, behind a router.
    assert_eq!(serves(&Serving { addresses: &["192.168.77.21"], ..GOOD }, with(&["192.168.77.21"])), Ok(()));
}

#[test]
fn the_older_of_two_nodes_keeps_an_address() {
    let with = |other: &[&str], second| vec![node("worker1", &["10.0.0.21"], 5), node("liar", other, second)];
    assert_eq!(serves(&GOOD, with(&["10.0.0.21"], 6)), Ok(()), "the liar came later");
    assert_eq!(serves(&GOOD, with(&["10.0.0.66", "10.0.0.21"], 4)), Ok(()), "nobody claims all addresses");
    for (address, second) in [("10.0.0.21", 4), ("10.0.0.21", 5), ("::ffff:10.0.0.21", 4)] {
        let Err(Refusal::Now(said)) = serves(&GOOD, with(&[address], second)) else { panic!("{address} is approved") };
        assert!(said.contains("node liar"), "{said}");
    }
}

pub(super) fn joins_as(name: &str) -> Spec {
    let object = join::object("kaas", name, &KeyPair::generate().unwrap()).unwrap();
    let mut spec = object["spec"].clone();
    spec["username"] = json!("system:bootstrap:abcdef");
    spec["groups"] = json!(["system:bootstrappers", contract::join_token::GROUP]);
    serde_json::from_value(spec).unwrap()
}

fn token(node: Option<&str>) -> joining::Token {
    let annotations: BTreeMap<_, _> = node.map(|node| (contract::join_token::NODE, node)).into_iter().collect();
    serde_json::from_value(json!({"metadata": {"annotations": annotations}, "data": {"expiration": "MjAyNg=="}}))
        .unwrap()
}

#[test]
fn tokens_admit_their_own_or_new_nodes() {
    let of = vec![ready(node("worker1", &["10.0.0.21"], 2)), node("lost", &["10.0.0.22"], 3)];
    let judge = |name: &str, token: Option<&joining::Token>| {
        joining::judge(&joins_as(name), token, &config(), &nodes(of.clone())).map(drop)
    };
    let (any, own, lost, at_work) = (token(None), token(Some("new")), token(Some("lost")), token(Some("worker1")));
    assert_eq!(judge("new", Some(&any)), Ok(()), "by kubeadm");
    assert_eq!(judge("new", Some(&own)), Ok(()));
    assert_eq!(judge("lost", Some(&lost)), Ok(()), "it joins again");
    for (name, token, why) in [
        ("node1", Some(&any), "a control-plane node's"),
        ("node3", Some(&token(Some("node3"))), "a control-plane node's"),
        ("kubernetes", Some(&any), "others are reached"),
        ("worker2", Some(&own), "its token is for new, and it asks to be worker2"),
        ("worker1", Some(&own), "its token is for new"),
        ("new", None, "no longer exists"),
    ] {
        let Err(Refusal::Never(said)) = judge(name, token) else { panic!("{name} is not denied") };
        assert!(said.contains(why), "{said}");
    }
    for (name, token, why) in [
        ("worker1", &any, "which is ready"),
        ("worker1", &at_work, "which is ready"),
        ("lost", &any, "kubectl delete node lost"),
    ] {
        let Err(Refusal::Now(said)) = judge(name, Some(token)) else { panic!("{name} does not wait") };
        assert!(said.contains(why), "{said}");
    }
    let endless: joining::Token =
        serde_json::from_value(json!({"metadata": {}, "data": {"token-id": "YQ=="}})).unwrap();
    let Err(Refusal::Never(said)) = judge("new", Some(&endless)) else { panic!("it is good forever") };
    assert!(said.contains("never expires"), "{said}");
    let stranger = Spec { groups: vec!["system:bootstrappers".to_owned()], ..joins_as("new") };
    assert!(matches!(joining::judge(&stranger, Some(&any), &config(), &[]), Err(Refusal::Never(_))));
    let server = Spec { usages: vec!["client auth".to_owned(), "server auth".to_owned()], ..joins_as("new") };
    assert!(matches!(joining::judge(&server, Some(&any), &config(), &[]), Err(Refusal::Never(_))));
    for (user, id) in
        [("system:bootstrap:abcdef", Some("abcdef")), ("system:bootstrap:../../x", None), ("system:node:w", None)]
    {
        assert_eq!(joining::token_of(&Spec { username: user.to_owned(), ..joins_as("new") }), id);
    }
}

pub(super) fn member_at(address: Ipv4Addr) -> (ControlPlane, TempDir, std::path::PathBuf) {
    let (root, mut config) = (tempfile::tempdir().unwrap(), config());
    config.node.interfaces[0].address = format!("{address}/24").parse::<ipnet::Ipv4Net>().unwrap().into();
    config.cluster.control_nodes[0].address = address;
    let (pki, now) = (root.path().join("pki"), std::time::SystemTime::now());
    CertificateAuthorities::make(now).unwrap().ensure(&pki).unwrap();
    pki::ensure_member(&config.cluster.control_nodes[0], &pki, now).unwrap();
    FakeApi::lay_kubeconfig(root.path(), &pki);
    (config, root, pki)
}

/// An API server with requests, which gives lists one by one.
struct Cluster {
    config: ControlPlane,
    root: TempDir,
    said: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Cluster {
    fn start(last: u8, requests: Vec<(&'static str, Spec)>) -> Self {
        let address = Ipv4Addr::new(127, 0, 92, last);
        let (config, root, pki) = member_at(address);
        let said = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&said);
        let listed: Vec<Value> = requests.into_iter().map(|(name, spec)| request(name, &spec)).collect();
        let answer = move |path: &str, body: &Value| {
            let (at, query) = path.split_once('?').unwrap_or((path, ""));
            let page = |all: &[Value]| {
                let from: usize = query.split_once("continue=").map_or(0, |(_, from)| from.parse().unwrap());
                let next = if from + 1 < all.len() { (from + 1).to_string() } else { String::new() };
                let items: Vec<&Value> = all.iter().skip(from).take(1).collect();
                (200, json!({"metadata": {"continue": next}, "items": items}))
            };
            match at {
                REQUESTS => {
                    let of = |one: &&Value| query.contains(one["spec"]["signerName"].as_str().unwrap());
                    page(&listed.iter().filter(of).cloned().collect::<Vec<_>>())
                }
                "/api/v1/nodes" => page(&cluster()),
                "/api/v1/namespaces/kube-system/configmaps/kaas-worker-records" => (404, json!({})),
                "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef" => {
                    (200, json!({"metadata": {}, "data": {"expiration": "MjAyNg=="}}))
                }
                // No status: the client does not accept that as an answer.
                path if path.contains("gone") => (0, json!({})),
                path if path.ends_with("/approval") => {
                    noted.lock().unwrap().push((path.replace(REQUESTS, ""), body["status"]["conditions"][0].clone()));
                    (if path.contains("bad") { 500 } else { 200 }, json!({"message": "no"}))
                }
                other => panic!("{other} is not asked of the API here"),
            }
        };
        fake_server::serve((address, ports::API).into(), &pki.join("etcd/server"), Box::new(answer));
        Self { config, root, said }
    }

    fn decide(&self) -> ApprovalReport {
        let api = Api::as_administrator(self.config.address(), self.root.path(), Duration::from_secs(60)).unwrap();
        let (decided, done) = api.approve_workers(&self.config, UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        done.unwrap();
        decided
    }
}

pub(super) fn request(name: &str, spec: &Spec) -> Value {
    json!({
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"},
        "spec": {"request": spec.request, "signerName": spec.signer_name, "username": spec.username,
            "groups": spec.groups, "usages": spec.usages},
    })
}

#[test]
fn decisions_are_independent_and_their_texts_plain() {
    let long = format!("a\u{1b}[2J{}", "x".repeat(5000));
    let strange = [long.as_str()];
    // Kubernetes renews those of control-plane nodes.
    let own = Serving { user: "system:node:node1", common: "system:node:node1", names: &["node1"], ..GOOD };
    let renewed = Spec { signer_name: joining::SIGNER.to_owned(), ..spec(&own) };
    let huge = Spec { request: Some("A".repeat(1 << 20)), ..spec(&GOOD) };
    let cluster = Cluster::start(
        1,
        vec![
            ("csr-bad", spec(&GOOD)),
            ("csr-long", spec(&Serving { names: &strange, ..GOOD })),
            ("csr-huge", huge),
            ("csr-good", spec(&GOOD)),
            ("csr-waits", spec(&Serving { addresses: &["10.0.0.23"], ..GOOD })),
            ("csr-renewed", renewed),
            ("kaas-new", joins_as("new")),
        ],
    );
    let decided = cluster.decide();
    assert_eq!(decided.approved, ["kaas-new of system:bootstrap:abcdef", "csr-good of system:node:worker1"]);
    assert_eq!(decided.denied.len(), 2, "{decided:?}");
    assert!(decided.denied.iter().all(|text| text.len() <= 300 && !text.contains('\u{1b}')), "{decided:?}");
    assert!(decided.denied[1].contains("longer than any kubelet's"), "{decided:?}");
    assert_eq!(decided.waiting.len(), 2, "{decided:?}");
    assert!(decided.waiting[0].contains("the API server answers 500: no"), "{decided:?}");
    let finding = decided.findings().iter().next().unwrap().clone();
    assert_eq!((finding.code.as_str(), decided.findings().has_errors()), ("worker.not-approved", false));
    assert!(finding.seen.contains("it names 10.0.0.23"), "{finding}");
    let said = cluster.said.lock().unwrap();
    let said: Vec<_> =
        said.iter().map(|(path, condition)| (path.as_str(), condition["type"].as_str().unwrap())).collect();
    assert_eq!(
        said,
        [
            ("/kaas-new/approval", "Approved"),
            ("/csr-bad/approval", "Approved"),
            ("/csr-long/approval", "Denied"),
            ("/csr-huge/approval", "Denied"),
            ("/csr-good/approval", "Approved"),
        ]
    );
}

#[test]
fn long_parts_of_requests_are_dropped() {
    let long = Spec { request: Some("A".repeat(LONGEST + 1)), ..spec(&GOOD) };
    let of = |name: &str, spec: &Spec| serde_json::from_value::<Request>(request(name, spec)).unwrap();
    let kept = of(&"a".repeat(LONGEST_NAME + 1), &long);
    assert_eq!((kept.metadata.name.as_str(), kept.spec.request.as_ref()), ("", None));
    assert!(!kept.has_plain_name());
    assert!(of(&"a".repeat(LONGEST_NAME), &spec(&GOOD)).has_plain_name());
}

#[test]
fn odd_request_names_delay_no_other_request() {
    let denied = || spec(&Serving { names: &["worker1", "worker2"], ..GOOD });
    let long: &str = format!("!{}", "A".repeat(66_000)).leak();
    let names = [long, r"..\..\..\..\api\v1\nodes\w1:9999\proxy\x?", "!\nkaas: fingerprints {}", "..", "a/../b", ""];
    let requests = names.map(|name| (name, denied())).into_iter().chain([("csr-good", spec(&GOOD))]).collect();
    let cluster = Cluster::start(2, requests);
    let decided = cluster.decide();
    assert_eq!((decided.approved.len(), decided.denied.len()), (1, 0), "{decided:?}");
    assert_eq!(decided.waiting, ["6 requests have names that no kubelet uses, and are ignored"]);
    let said = cluster.said.lock().unwrap();
    assert_eq!(said.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/csr-good/approval"]);
}

#[test]
fn decisions_before_an_error_are_reported() {
    let waits = spec(&Serving { addresses: &["10.0.0.23"], ..GOOD });
    let requests = vec![("csr-waits", waits), ("csr-gone", spec(&GOOD)), ("csr-good", spec(&GOOD))];
    let cluster = Cluster::start(3, requests);
    let api = Api::as_administrator(cluster.config.address(), cluster.root.path(), Duration::from_secs(60)).unwrap();
    let (decided, done) = api.approve_workers(&cluster.config, UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    assert!(format!("{:#}", done.unwrap_err()).contains("csr-gone/approval"));
    assert_eq!(decided.approved, ["csr-good of system:node:worker1"]);
    assert!(decided.findings().to_string().contains("it names 10.0.0.23"), "{decided:?}");
}

#[test]
fn frequent_requesters_wait_for_others() {
    let of = |number: usize, user: &str| {
        let mut one = request(&format!("csr-{number:04}"), &spec(&Serving { user, ..GOOD }));
        one["metadata"]["creationTimestamp"] = json!(format!("2026-01-31T12:{:02}:{:02}Z", number / 60, number % 60));
        serde_json::from_value::<Request>(one).unwrap()
    };
    let many = (0..1000).map(|number| of(number, "system:node:flood"));
    let turns = in_turn(many.chain([of(2000, "system:node:honest")]).collect());
    assert_eq!(turns.len(), 1001);
    assert_eq!(turns.iter().position(|one| one.spec.username.ends_with("honest")), Some(1));
    // A requester for many nodes waits, too.
    let many = (0..1000).map(|number| {
        let name = format!("w{number}");
        Request { spec: joins_as(&name), ..of(number, "system:bootstrap:abcdef") }
    });
    let turns = in_turn(many.chain([of(2000, "system:node:honest")]).collect());
    assert_eq!(turns.iter().position(|one| one.spec.username.ends_with("honest")), Some(AT_ONCE));
    // Of one token each node's first request comes before any node's second.
    let joins = |number: usize, name: &str| {
        let mut one = of(number, "system:bootstrap:abcdef");
        one.spec = joins_as(name);
        one
    };
    let turns = in_turn((0..1000).map(|number| joins(number, "flood")).chain([joins(2000, "honest")]).collect());
    assert_eq!(joining::node_of(&turns[1].spec).as_deref(), Some("honest"));
}

#[test]
fn young_requests_wait_without_a_finding() {
    let mut waits: Request = serde_json::from_value(request("csr", &spec(&GOOD))).unwrap();
    let made = humantime::parse_rfc3339("2026-01-31T12:00:00Z").unwrap();
    assert!(!waits.is_late(made + PATIENCE) && waits.is_late(made + PATIENCE + Duration::from_secs(1)));
    waits.metadata.creation_timestamp.clear();
    assert!(!waits.is_late(made + PATIENCE * 2));
    let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(named(&many), "0; 1; 2; and 997 more");
    assert_eq!(ApprovalReport::default().findings(), Findings::default());
}
