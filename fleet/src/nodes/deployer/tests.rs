//! A deployer with the expected nodes, and with others.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use contract::deployer::Request as Proof;
use contract::json;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use super::*;

const NODE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A CA, and the node that it has certified.
struct Cluster {
    authority: rcgen::Certificate,
    issuer: rcgen::KeyPair,
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Cluster {
    fn new() -> Self {
        let issuer = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&issuer).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        Self { authority, issuer, certificate, key }
    }

    /// The cluster, with a node whose certificate its CA has signed for this address.
    fn certified(self, address: &str) -> Self {
        let names = rcgen::CertificateParams::new(vec![address.to_owned()]).unwrap();
        let certificate = {
            let issuer = rcgen::Issuer::from_ca_cert_der(self.authority.der(), &self.issuer).unwrap();
            names.signed_by(&self.key, &issuer).unwrap()
        };
        Self { certificate, ..self }
    }

    /// The fingerprints that its hypervisor shows of the node.
    fn shown(&self) -> Fingerprints {
        let authority = Fingerprint::of_key_of(self.authority.der()).unwrap();
        Fingerprints { ca: authority, endpoint: Fingerprint::of(self.certificate.der()) }
    }

    /// The credentials that it issues for this key.
    fn issued(&self, key: &PrivateKey) -> Issued {
        let public = rcgen::SubjectPublicKeyInfo::from_der(&key.public().unwrap().der()).unwrap();
        let issuer = rcgen::Issuer::from_ca_cert_der(self.authority.der(), &self.issuer).unwrap();
        let certificate = rcgen::CertificateParams::default().signed_by(&public, &issuer).unwrap();
        Issued {
            ca: self.authority.pem(),
            certificate: certificate.pem(),
            server: "https://10.0.0.10:6443".to_owned(),
            cluster: "lab".to_owned(),
            ends: 0,
        }
    }

    /// Accepts one connection and responds with `answer`. Returns the request, with its session.
    fn serve(&self, answer: String, versions: &[&'static SupportedProtocolVersion]) -> (u16, Served) {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind((NODE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
            let mut sent = Vec::new();
            let mut part = [0; 4096];
            let body = loop {
                let read = stream.read(&mut part).ok()?;
                sent.extend_from_slice(&part[..read]);
                let text = String::from_utf8_lossy(&sent);
                match text.split_once("\r\n\r\n") {
                    Some((_, body)) if body.ends_with('}') => break body.to_owned(),
                    _ if read == 0 => return None,
                    _ => {}
                }
            };
            let session = Session::of(&stream.conn).unwrap();
            // The client may have read enough.
            let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.flush());
            stream.conn.send_close_notify();
            let _ = stream.flush();
            Some((session, json::read_strictly(body.as_bytes()).unwrap()))
        });
        (port, served)
    }
}

/// The request that a node received, if any.
type Served = JoinHandle<Option<(Session, Proof)>>;

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn deployer(key: &PrivateKey, port: u16) -> Deployer {
    let network = Some(Arc::new(Network::start(None).unwrap()));
    let key = Arc::new(PrivateKey::of_pem(key.pem().expose()).unwrap());
    Deployer { key, network, bodies: None, port }
}

/// The deployer's result for a node that responds with `said` if the hypervisor shows `shown`, and the request that the node
/// received.
fn asked(
    node: &Cluster,
    key: &PrivateKey,
    said: String,
    shown: &Fingerprints,
) -> (Result<Credentials, DeployerError>, Option<(Session, Proof)>) {
    let (port, served) = node.serve(said, rustls::DEFAULT_VERSIONS);
    let deployer = deployer(key, port);
    (deployer.wait(deployer.credentials(NODE, shown)), served.join().unwrap())
}

fn said(error: &DeployerError) -> String {
    match error {
        DeployerError::Failed(error) => format!("{error:#}"),
        refused => refused.to_string(),
    }
}

#[test]
fn a_deployer_proves_its_key_and_gets_credentials() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let issued = serde_json::to_string(&cluster.issued(&key)).unwrap();
    let (credentials, sent) = asked(&cluster, &key, answer("200 OK", &issued), &cluster.shown());
    let kubeconfig = Kubeconfig::parse(&credentials.unwrap().kubeconfig("deployer")).unwrap();
    assert_eq!(kubeconfig.server, "https://10.0.0.10:6443");
    assert_eq!(kubeconfig.authority, cluster.authority.pem());
    assert_eq!(kubeconfig.key.expose(), key.pem().expose());
    let (session, proof) = sent.unwrap();
    let public = key.public().unwrap();
    assert!(session.is_proved(&proof, &public, &cluster.shown().ca));
    assert!(!session.is_proved(&proof, &public, &Cluster::new().shown().ca));
}

// Finding 1 of controller.md: the deployer's key is in no kubeconfig.
#[test]
fn each_request_names_a_fresh_key() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let issued = serde_json::to_string(&cluster.issued(&key)).unwrap();
    let holders = [(); 2].map(|()| {
        let (_, sent) = asked(&cluster, &key, answer("200 OK", &issued), &cluster.shown());
        sent.unwrap().1.holder.unwrap().parse::<contract::deployer::PublicKey>().unwrap()
    });
    assert!(holders[0] != holders[1] && !holders.contains(&key.public().unwrap()));
    let own = PrivateKey::draw().unwrap();
    let accepted = deployer(&key, 0).accept(cluster.issued(&own), cluster.shown().ca, &own).unwrap();
    let kubeconfig = Kubeconfig::parse(&accepted.kubeconfig("deployer")).unwrap();
    assert_eq!(kubeconfig.key.expose(), own.pem().expose());
}

#[test]
fn an_unshown_node_is_sent_nothing() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let issued = serde_json::to_string(&cluster.issued(&key)).unwrap();
    // A node in between, with another certificate, even if the same CA has signed it.
    let shown = Fingerprints { endpoint: Cluster::new().shown().endpoint, ..cluster.shown() };
    let (refused, sent) = asked(&cluster, &key, answer("200 OK", &issued), &shown);
    assert!(sent.is_none(), "the node was sent {sent:?}", sent = sent.map(|(_, proof)| proof));
    let refused = said(&refused.unwrap_err());
    assert!(refused.contains("and the hypervisor shows sha256:"), "{refused}");
}

/// Finding 6 of controller.md: a hypervisor that does not answer ends no credentials.
#[test]
fn credentials_are_renewed_without_the_hypervisor() {
    let (cluster, key) = (Cluster::new().certified("127.0.0.1"), PrivateKey::draw().unwrap());
    let issued = answer("200 OK", &serde_json::to_string(&cluster.issued(&key)).unwrap());
    let (former, _) = asked(&cluster, &key, issued.clone(), &cluster.shown());
    let former = former.unwrap();
    let renewed = |node: &Cluster| {
        let (port, served) = node.serve(issued.clone(), rustls::DEFAULT_VERSIONS);
        let deployer = deployer(&key, port);
        (deployer.wait(deployer.renewed(NODE, &former)), served.join().unwrap())
    };
    let (credentials, sent) = renewed(&cluster);
    let kubeconfig = Kubeconfig::parse(&credentials.unwrap().kubeconfig("deployer")).unwrap();
    assert_eq!(kubeconfig.authority, cluster.authority.pem());
    let (session, proof) = sent.unwrap();
    assert!(session.is_proved(&proof, &key.public().unwrap(), &cluster.shown().ca));
    // A node of another cluster, another address of this one, and a certificate that no CA has signed.
    let elsewhere = Cluster::new().certified("127.0.0.1");
    let moved = Cluster { authority: cluster.authority, issuer: cluster.issuer, ..Cluster::new() };
    for node in [elsewhere, moved.certified("127.0.0.2"), Cluster::new()] {
        let (refused, sent) = renewed(&node);
        assert!(refused.is_err() && sent.is_none(), "the node was sent {sent:?}", sent = sent.map(|(_, proof)| proof));
    }
}

#[test]
fn a_ca_that_is_not_shown_is_refused() {
    let (cluster, other, key) = (Cluster::new(), Cluster::new(), PrivateKey::draw().unwrap());
    let issued = serde_json::to_string(&other.issued(&key)).unwrap();
    let (refused, _) = asked(&cluster, &key, answer("200 OK", &issued), &cluster.shown());
    let refused = said(&refused.unwrap_err());
    assert!(refused.contains("it is another cluster's"), "{refused}");
    // In addition to the right one.
    let both = Issued { ca: cluster.authority.pem() + &other.authority.pem(), ..cluster.issued(&key) };
    let both = serde_json::to_string(&both).unwrap();
    let (refused, _) = asked(&cluster, &key, answer("200 OK", &both), &cluster.shown());
    assert!(said(&refused.unwrap_err()).contains("it gives 2 CAs"));
}

#[test]
fn a_certificate_for_another_key_is_refused() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let wrong = [
        (cluster.issued(&PrivateKey::draw().unwrap()), "the certificate is not for the deployer's key"),
        (Issued { certificate: String::new(), ..cluster.issued(&key) }, "it gives 0 certificates"),
        (Issued { server: "https://example.com:6443".to_owned(), ..cluster.issued(&key) }, "no address"),
        (Issued { server: "http://10.0.0.10:6443".to_owned(), ..cluster.issued(&key) }, "no address"),
    ];
    for (issued, words) in wrong {
        let issued = serde_json::to_string(&issued).unwrap();
        let (refused, _) = asked(&cluster, &key, answer("200 OK", &issued), &cluster.shown());
        let refused = said(&refused.unwrap_err());
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_refusal_keeps_its_code_and_plain_words() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let refusal = r#"{"code": "deployer.other-key", "reason": "this node\u001b[2J has another key"}"#;
    let (refused, _) = asked(&cluster, &key, answer("403 Forbidden", refusal), &cluster.shown());
    match refused.unwrap_err() {
        DeployerError::Refused { node, refused } => {
            assert_eq!((node, refused.code.as_str()), (NODE, "deployer.other-key"));
            assert_eq!(refused.reason, "this node [2J has another key");
        }
        DeployerError::Failed(error) => panic!("{error:#}"),
    }
    // A server that is no node.
    let (unknown, _) = asked(&cluster, &key, answer("404 Not Found", "there is nothing here"), &cluster.shown());
    assert!(said(&unknown.unwrap_err()).contains("127.0.0.1 answered 404 Not Found: there is nothing here"));
    let (long, _) = asked(&cluster, &key, answer("200 OK", &"x".repeat(1 << 20)), &cluster.shown());
    assert!(said(&long.unwrap_err()).contains("longer than 64 KiB"));
    let (cut, _) = asked(&cluster, &key, answer("200 OK", "{}").replace(": 2", ": 200"), &cluster.shown());
    assert!(matches!(cut, Err(DeployerError::Failed(_))));
}

#[test]
fn an_older_tls_version_is_refused() {
    let (cluster, key) = (Cluster::new(), PrivateKey::draw().unwrap());
    let (port, served) = cluster.serve(String::new(), &[&rustls::version::TLS12]);
    let deployer = deployer(&key, port);
    assert!(deployer.wait(deployer.credentials(NODE, &cluster.shown())).is_err());
    assert!(served.join().unwrap().is_none());
}

#[test]
fn credentials_list_the_cas_of_servers() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let key = PrivateKey::draw().unwrap();
    let Issued { ca: authority, certificate, server, .. } = cluster.issued(&key);
    let of = |authority: String| {
        let (server, certificate, key) = (server.clone(), certificate.clone(), key.pem());
        Credentials::of(Kubeconfig { server, server_name: None, authority, certificate, key })
    };
    let shown = [&cluster, &other].map(|cluster| cluster.shown().ca);
    assert_eq!(of(authority.clone()).authorities().unwrap(), [shown[0]]);
    // While CAs are exchanged there are two.
    assert_eq!(of(authority.clone() + &other.authority.pem()).authorities().unwrap(), shown);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    assert!(of(authority + &broken).authorities().is_err(), "an unreadable part is not left out");
}
