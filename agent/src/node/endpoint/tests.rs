//! Real TLS over loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::cluster::certificates::renew::{self, Renewal};
use crate::cluster::certificates::revocation_list;
use crate::cluster::pki::{self, CertificateWithKey};
use crate::cluster::records::Records;
use crate::host::{files, tls};
use crate::intake::config::fixture::three_nodes;
use crate::status::{Health, Status};

/// After so long a test counts as hanging. No test depends on how long things take.
pub(super) const HANGS: Duration = Duration::from_secs(600);

/// An endpoint on a free port, and the CAs that its clients need.
pub(super) struct Stage {
    _root: tempfile::TempDir,
    pub(super) endpoint: Endpoint,
    pub(super) reporter: Reporter,
    pub(super) authorities: CertificateAuthorities,
    address: SocketAddr,
}

pub(super) fn stage() -> Stage {
    stage_with(HANGS)
}

/// With a server that limits the handshake, and then the header, to this time.
fn stage_with(beginning: Duration) -> Stage {
    stage_opened(beginning, |endpoint, now| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (changed, address) = endpoint.open_at(address, &leaf(&three_nodes()), now).unwrap();
        assert!(changed);
        address
    })
}

/// The same with `open`, which opens the endpoint and returns its address.
fn stage_opened(beginning: Duration, open: impl FnOnce(&Endpoint, SystemTime) -> SocketAddr) -> Stage {
    let root = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let authorities = CertificateAuthorities::make(now).unwrap();
    authorities.ensure(&root.path().join("etc/kubernetes/pki")).unwrap();
    let reporter = Reporter::new(root.path(), Status::default());
    let limits = server::Limits { beginning, still: HANGS };
    let endpoint = Endpoint::with_limits(root.path(), reporter.clone(), limits, || Ok(()));
    let address = open(&endpoint, now);
    Stage { _root: root, endpoint, reporter, authorities, address }
}

impl Stage {
    pub(super) fn client(&self, group: Option<&str>) -> CertificateWithKey {
        let leaf = Leaf { group: group.map(str::to_owned), ..Leaf::client("somebody") };
        leaf.issue(&self.authorities.kubernetes, SystemTime::now()).unwrap()
    }

    pub(super) fn root(&self) -> &Path {
        self._root.path()
    }

    pub(super) fn connect(
        &self,
        client: Option<&CertificateWithKey>,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        self.connect_over(rustls::DEFAULT_VERSIONS, client)
    }

    fn connect_over(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        client: Option<&CertificateWithKey>,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        self.secured(versions, client, stream)
    }

    /// TLS over an open connection.
    fn secured(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        client: Option<&CertificateWithKey>,
        stream: TcpStream,
    ) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        let roots = tls::trust_in(&self.authorities.kubernetes.certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(client) => config
                .with_client_auth_cert(
                    tls::certificates(&client.certificate).unwrap(),
                    tls::key(client.key.expose()).unwrap(),
                )
                .unwrap(),
        };
        let name = ServerName::from(self.address.ip());
        rustls::StreamOwned::new(rustls::ClientConnection::new(Arc::new(config), name).unwrap(), stream)
    }

    /// Sends a text and returns all that comes back.
    pub(super) fn send(&self, client: Option<&CertificateWithKey>, text: &str) -> std::io::Result<String> {
        self.send_over(rustls::DEFAULT_VERSIONS, client, text)
    }

    /// The same with one of these versions of TLS.
    pub(super) fn send_over(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        client: Option<&CertificateWithKey>,
        text: &str,
    ) -> std::io::Result<String> {
        let mut stream = self.connect_over(versions, client);
        stream.write_all(text.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8(answer).unwrap())
    }

    pub(super) fn get(&self, client: Option<&CertificateWithKey>, path: &str) -> (u16, String) {
        let answer = self.send(client, &format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n")).unwrap();
        let (header, body) = answer.split_once("\r\n\r\n").expect(&answer);
        assert!(header.to_lowercase().contains("cache-control: no-store"), "{header}");
        (header[9..12].parse().unwrap(), body.to_owned())
    }
}

#[test]
fn livez_follows_the_api_and_needs_no_certificate() {
    let stage = stage();
    let (code, body) = stage.get(None, "/livez");
    assert_eq!(code, 503);
    assert!(body.starts_with("the Kubernetes API on this node does not serve"), "{body}");
    stage.reporter.update(|status| status.health = Some(Health { api: true, ..Health::default() }));
    assert_eq!(stage.get(None, "/livez"), (200, "ok\n".into()));
}

#[test]
fn the_status_is_for_monitoring_and_administrators() {
    let stage = stage();
    let (code, body) = stage.get(None, "/v1/status");
    assert_eq!(code, 401);
    assert!(body.contains("client certificate of the cluster's CA"), "{body}");
    for nobody in [None, Some("system:nodes"), Some("kaas:monitoring ")] {
        let (code, body) = stage.get(Some(&stage.client(nobody)), "/v1/status");
        assert_eq!(code, 403, "{nobody:?}");
        assert!(body.contains("kaas:monitoring"), "{body}");
    }
    for group in ["kaas:monitoring", "kubeadm:cluster-admins", "system:masters"] {
        let (code, body) = stage.get(Some(&stage.client(Some(group))), "/v1/status");
        assert_eq!(code, 200, "{group}");
        assert_eq!(serde_json::from_str::<Status>(&body).unwrap(), stage.reporter.status());
    }
}

#[test]
fn next_connection_refuses_a_revoked_certificate() {
    let stage = stage();
    let (administrator, other) = (stage.client(Some("kubeadm:cluster-admins")), stage.client(Some("kaas:monitoring")));
    assert_eq!(stage.get(Some(&administrator), "/v1/status").0, 200);
    let serial = pki::serial(&administrator.certificate).unwrap();
    fs::create_dir_all(stage.root().join("data/kaas")).unwrap();
    revocation_list::revoke(stage.root(), &revocation_list::name(&serial).unwrap()).unwrap();
    let (code, body) = stage.get(Some(&administrator), "/v1/status");
    assert_eq!(code, 403);
    assert!(body.starts_with("this certificate was revoked: "), "{body}");
    assert_eq!(stage.get(Some(&other), "/v1/status").0, 200);
    revocation_list::revoke(stage.root(), "user/somebody").unwrap();
    assert_eq!(stage.get(Some(&other), "/v1/status").0, 403);
    // If the list cannot be read, a client without a certificate is served as before.
    fs::write(stage.root().join("data/kaas/revoked.json"), "{").unwrap();
    assert_eq!(stage.get(Some(&stage.client(Some("kaas:monitoring"))), "/v1/status").0, 403);
    assert_eq!(stage.get(None, "/livez").0, 503);
}

#[test]
fn only_administrators_can_request_a_renewal() {
    let stage = stage();
    fs::create_dir_all(stage.root().join("data/kaas")).unwrap();
    let post = |client: &CertificateWithKey, body: &str| {
        let length = body.len();
        let text = format!("POST /v1/certificates HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n\r\n{body}");
        stage.send(Some(client), &text).unwrap()[9..12].to_owned()
    };
    let administrator = stage.client(Some("kubeadm:cluster-admins"));
    let id = uuid::Uuid::from_u128(7);
    let body = format!(r#"{{"id": "{id}"}}"#);
    assert_eq!(post(&stage.client(Some("kaas:monitoring")), &body), "403");
    assert_eq!(post(&administrator, "{}"), "400");
    let records = Records::new(stage.root());
    assert_eq!(records.entry::<Renewal>().unwrap(), None);
    assert_eq!(post(&administrator, &body), "202");
    assert_eq!(records.entry::<Renewal>().unwrap(), Some(Renewal { id, stage: renew::Stage::Asked }));
    records.update_entry(&Renewal { id, stage: renew::Stage::Done }).unwrap();
    assert_eq!(post(&administrator, &body), "200");
}

#[test]
fn a_snapshot_is_for_administrators_alone() {
    let stage = stage();
    assert_eq!(stage.get(None, "/v1/snapshot").0, 401);
    for nobody in [None, Some("system:nodes"), Some("kaas:monitoring")] {
        assert_eq!(stage.get(Some(&stage.client(nobody)), "/v1/snapshot").0, 403, "{nobody:?}");
    }
    let administrator = stage.client(Some("kubeadm:cluster-admins"));
    assert_eq!(stage.get(Some(&administrator), "/v1/snapshot").0, 202);
    // There is no etcd here.
    let until = std::time::Instant::now() + HANGS;
    let said = loop {
        match stage.get(Some(&administrator), "/v1/snapshot") {
            (202, _) if std::time::Instant::now() < until => std::thread::yield_now(),
            said => break said,
        }
    };
    assert_eq!(said, (503, "no snapshot could be taken: this node has no configuration yet\n".to_owned()));
}

#[test]
fn certificate_of_another_ca_is_refused() {
    let stage = stage();
    let foreign = CertificateAuthorities::make(SystemTime::now()).unwrap();
    let leaf = Leaf { group: Some("system:masters".into()), ..Leaf::client("somebody") };
    let certificate = leaf.issue(&foreign.kubernetes, SystemTime::now()).unwrap();
    let error = stage.send(Some(&certificate), "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap_err();
    // Another key under the same name.
    assert!(error.to_string().contains("alert: DecryptError"), "{error}");

    let year = Duration::from_secs(400 * 24 * 60 * 60);
    let expired = leaf.issue(&stage.authorities.kubernetes, SystemTime::now() - year).unwrap();
    let error = stage.send(Some(&expired), "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap_err();
    assert!(error.to_string().contains("Expired"), "{error}");
}

#[test]
fn invalid_requests_get_the_right_status() {
    let stage = stage();
    let (code, body) = stage.get(None, "/");
    assert_eq!(code, 404);
    assert!(body.contains("/livez"), "{body}");
    let answer = stage.send(None, "DELETE /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let answer = stage.send(None, "HEAD /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = stage.send(None, "nonsense\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn only_administrators_can_request_swaps() {
    let stage = stage();
    let request = include_str!("../../../../contract/testdata/swap-request.json");
    let ask = |client: Option<&CertificateWithKey>, line: &str, body: &str| {
        let text = format!("{line} HTTP/1.1\r\nHost: node\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answer = stage.send(client, &text).unwrap();
        let (header, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (header[9..12].parse::<u16>().unwrap(), body.to_owned())
    };
    let monitoring = stage.client(Some("kaas:monitoring"));
    let id = "22222222-2222-4222-8222-222222222222";
    let (withdraw, back) = (format!("DELETE /v1/swap/{id}"), format!("DELETE /v1/evacuate/{id}"));
    let reads = ["GET /v1/node", "GET /v1/disks"];
    let routes = ["POST /v1/swap", &withdraw, "POST /v1/commit", "POST /v1/evacuate", &back];
    let routes = reads.iter().chain(&routes).copied();
    for line in routes {
        assert_eq!(ask(None, line, request).0, 401, "{line}");
        assert_eq!(ask(Some(&monitoring), line, request).0, 403, "{line}");
    }
    let administrator = stage.client(Some("kubeadm:cluster-admins"));
    let ask = |line: &str, body: &str| ask(Some(&administrator), line, body);
    // The boot flow has not opened the swaps here.
    assert_eq!((ask("GET /v1/node", "").0, ask("GET /v1/disks", "").0), (503, 503));
    let evacuation = include_str!("../../../../contract/testdata/evacuation-request.json");
    let (code, body) = ask("POST /v1/evacuate", evacuation);
    assert!(code == 409 && body.contains("swap.not-ready"), "{code} {body}");
    assert_eq!((ask("POST /v1/evacuate", "{}").0, ask(&back, "").0), (400, 200));
    assert_eq!(ask("POST /v1/evacuate", &evacuation.replace(": 120", ": 1000000")).0, 400);
    let (code, body) = ask("POST /v1/swap", request);
    let refused: contract::swap::Rejection = serde_json::from_str(&body).unwrap();
    assert_eq!((code, refused.code.as_str()), (409, "swap.not-ready"));
    assert_eq!(ask(&format!("DELETE /v1/swap/{id}"), "").0, 200);
    assert_eq!(ask("DELETE /v1/swap/x", "").0, 400);
    assert_eq!(ask("DELETE /v1/swap/", "").0, 404);
    assert_eq!(ask("PUT /v1/swap", request).0, 405);
    assert_eq!(ask("POST /v1/swap", "{}").0, 400);
    let long =
        format!("POST /v1/swap HTTP/1.1\r\nHost: node\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(20 << 10));
    if let Ok(answer) = stage.send(Some(&administrator), &long) {
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
}

// Finding 5 of controller.md.
#[test]
fn only_administrators_can_replace_a_member() {
    let stage = stage();
    let ask = |client: Option<&CertificateWithKey>, body: &str| {
        let length = body.len();
        let text = format!("POST /v1/replace-member HTTP/1.1\r\nHost: node\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = stage.send(client, &text).unwrap();
        let (header, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (header[9..12].parse::<u16>().unwrap(), body.to_owned())
    };
    let (monitoring, administrator) =
        (stage.client(Some("kaas:monitoring")), stage.client(Some("kubeadm:cluster-admins")));
    let request = r#"{"node":"node3"}"#;
    assert_eq!((ask(None, request).0, ask(Some(&monitoring), request).0), (401, 403));
    assert_eq!(ask(Some(&administrator), r#"{"node":"node3","force":true}"#).0, 400);
    // The stage has no configuration.
    let (code, body) = ask(Some(&administrator), request);
    let refused: contract::swap::Rejection = serde_json::from_str(&body).unwrap();
    assert_eq!((code, refused.code.as_str()), (409, "member.replacement-refused"));
    assert!(refused.reason.contains("no configuration yet"), "{body}");
}

/// All nodes start together, one of them with an old copy of its data disk. No etcd runs yet.
#[test]
fn peer_without_etcd_recognizes_an_old_disk_copy() {
    use crate::cluster::records::{DiskCounter, Records};
    use crate::host::disk::{self, DiskState, Identity};
    use crate::upgrade::swap::manager::tests::context;
    use crate::upgrade::swap::peers::{self, Verdict};

    let mut config = three_nodes();
    let low = std::process::id().to_be_bytes();
    for (node, last) in config.cluster.control_nodes.iter_mut().zip(1..) {
        node.address = Ipv4Addr::new(127, 128 | low[2] & 63, low[3], last);
    }
    let (root, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
    let pki = root.path().join("etc/kubernetes/pki");
    CertificateAuthorities::make(now).unwrap().ensure(&pki).unwrap();
    let identity = Identity { node: "node1".into(), state: DiskState::Formed, ..disk::fixture::identity() };
    let judged = |counter| {
        let root = tempfile::tempdir().unwrap();
        let records = Records::new(root.path());
        records.save_disk_counter(DiskCounter { counter }).unwrap();
        peers::judge(&config, &identity, "b", &records, &pki).unwrap()
    };
    assert_eq!(judged(9), Verdict::Unknown, "nobody answers yet");

    // The second node's agent, which remembers the last records of its member.
    let second = config.cluster.control_nodes[1].clone();
    let endpoint = Endpoint::new(root.path(), Reporter::new(root.path(), Status::default()));
    let mut own = context(root.path(), None);
    own.config.node.name.clone_from(&second.name);
    endpoint.swaps().open(own).unwrap();
    let of_second = Leaf { addresses: [IpAddr::V4(second.address)].into(), ..leaf(&config) };
    endpoint.open_at(SocketAddr::from((second.address, ports::NODE)), &of_second, now).unwrap();
    let known = serde_json::json!({"nodes": {"node1": {
        "disk": identity.disk, "generation": identity.generation, "holder": identity.holder,
        "build": "b", "counter": 9, "restored": null,
    }}});
    fs::write(root.path().join("data/kaas/known-disks.json"), known.to_string()).unwrap();
    assert_eq!((judged(9), judged(12)), (Verdict::True, Verdict::True));
    let Verdict::Refused(findings) = judged(8) else { panic!("an old copy is let in") };
    assert!(findings.to_string().contains("disk.stale"), "{findings}");
}

#[test]
fn a_header_is_bounded_in_length_and_lines() {
    let stage = stage();
    let long = format!("GET /livez HTTP/1.1\r\nHost: node\r\nLong: {}\r\n\r\n", "x".repeat(32 << 10));
    // Unread bytes may break the connection before the answer is read.
    if let Ok(answer) = stage.send(None, &long) {
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    let answer = stage.send(None, &many).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(stage.get(None, "/livez").0, 503);
}

#[test]
fn idle_connections_do_not_block_other_callers() {
    let stage = stage();
    let livez = "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n";
    let mut idle: Vec<TcpStream> =
        (0..connection_slots::PER_ADDRESS).map(|_| TcpStream::connect(stage.address).unwrap()).collect();
    // A slow administrator from the same address.
    let mut slow = stage.connect(Some(&stage.client(Some("system:masters"))));
    slow.write_all(b"GET /v1/status HTTP/1.1\r\n").unwrap();
    for _ in 0..3 * connection_slots::PER_ADDRESS {
        let answer = stage.send(None, livez).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    let mut first = idle.remove(0);
    first.set_read_timeout(Some(HANGS)).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0)), "who has waited longest has given way");
    slow.write_all(b"Host: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn open_endpoint_keeps_slots_for_cluster_nodes() {
    let low = std::process::id().to_be_bytes();
    let address = |last: u8| Ipv4Addr::new(127, 64 | low[2] & 63, low[3], last);
    let mut config = three_nodes();
    for (node, last) in config.cluster.control_nodes.iter_mut().zip(1..) {
        node.address = address(last);
    }
    config.node.interfaces[0].address = ipnet::Ipv4Net::new(address(1), 24).unwrap().into();
    let stage = stage_opened(HANGS, |endpoint, now| {
        assert!(endpoint.open(&config, now).unwrap());
        SocketAddr::from((address(1), ports::NODE))
    });
    let comes_from = |last: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address(last), 0)).into()).unwrap();
        socket.connect(&stage.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(HANGS)).unwrap();
        stream
    };
    // The node waits longest, and more strangers connect than there are slots.
    let node = comes_from(2);
    let strangers = u8::try_from(connection_slots::CONNECTIONS).unwrap() + 1;
    let mut strangers: Vec<TcpStream> = (100..100 + strangers).map(comes_from).collect();
    assert!(matches!(strangers[0].read(&mut [0]), Ok(0)), "who has waited longest of the strangers has given way");
    let mut node = stage.secured(rustls::DEFAULT_VERSIONS, None, node);
    node.write_all(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    node.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[test]
fn a_client_that_says_nothing_is_sent_away() {
    let stage = stage_with(Duration::from_secs(2));
    // The stream ends or breaks. A timeout of this test's own limits does not count.
    let sent_away = |stream: &mut dyn Read| match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    };
    let mut stream = TcpStream::connect(stage.address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    assert!(sent_away(&mut stream), "during the handshake");

    // A busy machine may take longer than the limit for a handshake, and is disconnected too early.
    let mut stream = loop {
        let mut stream = stage.connect(None);
        if stream.write_all(b"GET /livez HTTP/1.1\r\nHo").is_ok() {
            break stream;
        }
    };
    assert!(sent_away(&mut stream), "during the header");
}

#[test]
fn next_connection_shows_the_renewed_certificate() {
    let stage = stage();
    let shown = || {
        let mut stream = stage.connect(None);
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown();
    let open = |now| stage.endpoint.open_at(stage.address, &leaf(&three_nodes()), now).unwrap();
    let now = SystemTime::now();
    assert_eq!(open(now), (false, stage.address));
    assert_eq!(before, shown());
    // As if made when the clock was two hundred days behind: it expires too soon.
    let base = files::below(stage._root.path(), CERTIFICATE);
    fs::remove_file(base.with_extension("crt")).unwrap();
    assert_eq!(open(now), (true, stage.address));
    assert_ne!(before, shown());
}

#[tokio::test]
async fn shortened_file_closes_the_connection() {
    use hyper::body::Body;
    use std::future::poll_fn;
    use std::pin::Pin;

    let collect = |mut content: answer::Content| async move {
        let mut all = Vec::new();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut content).poll_frame(context)).await {
            all.extend_from_slice(&frame?.into_data().unwrap());
        }
        Ok::<_, std::io::Error>(all)
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let content: Vec<u8> = (0..200_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
    fs::write(&path, &content).unwrap();
    let answer = answer::file(fs::File::open(&path).unwrap(), "application/octet-stream").unwrap();
    assert_eq!(answer.body().size_hint().exact(), Some(200_000));
    assert_eq!(collect(answer.into_body()).await.unwrap(), content);

    let answer = answer::file(fs::File::open(&path).unwrap(), "application/octet-stream").unwrap();
    fs::write(&path, "short").unwrap();
    assert_eq!(collect(answer.into_body()).await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

/// Requests of a stranger over TLS. No answer may contain anything that is not public, and no request may change anything.
#[test]
fn fuzz_of_requests_without_a_certificate() {
    use crate::fuzz::{Example, fuzz};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let examples = [
        "GET /livez HTTP/1.1\r\nHost: node\r\n\r\n",
        "HEAD /livez HTTP/1.0\r\n\r\n",
        "GET /v1/status?full=yes HTTP/1.1\r\nHost: node:9441\r\nAccept: application/json\r\nUser-Agent: x/1.0\r\n\r\n",
        "POST /v1/swap HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/deployer HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/commit HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "DELETE /v1/swap/22222222-2222-4222-8222-222222222222 HTTP/1.1\r\nHost: node\r\nExpect: 100-continue\r\n\r\n",
        "GET https://node:9441/metrics HTTP/1.1\r\nHost: node\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    ];
    let root = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::new(root.path(), Reporter::new(root.path(), Status::default()));
    let context = &endpoint.shared.context;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = server::Limits { beginning: HANGS, still: HANGS };
    fuzz("requests without a certificate", 1 << 20, &examples.map(Example::new), |bytes| {
        let answer = runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(1 << 20);
            client.write_all(bytes).await.unwrap();
            client.shutdown().await.unwrap();
            // Errors in a request do not matter here, only the answer.
            let _ = server::exchange(server, context, access::Caller::default(), limits).await;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let code = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        // 503 is the answer of /livez here. 100 asks for the body of a request.
        let told: [&[u8]; 9] = [b"400", b"401", b"404", b"405", b"413", b"414", b"431", b"503", b"505"];
        assert!(answer.is_empty() || code.is_some_and(|code| told.contains(&code)), "{}", answer.escape_ascii());
        let body = answer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| &answer[at + 4..]);
        assert!(!body.is_some_and(|body| body.contains(&b'{')), "{}", answer.escape_ascii());
    });
}
