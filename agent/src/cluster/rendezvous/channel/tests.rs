//! Attacks from the middle, on real sockets.

use tokio::net::TcpListener;
use tokio::runtime::Builder;

use super::*;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn endpoint(secret: &str) -> Endpoint {
    Endpoint::new(&Proof::of(&Secret::new(secret.to_owned()))).unwrap()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(60), test).await.unwrap() })
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// TLS without any proof, as an attacker without the secret can use it.
async fn bare_connect(by: &Endpoint, to: SocketAddr) -> Channel {
    let stream = TcpStream::connect(to).await.unwrap();
    let stream = by.client.connect(ServerName::IpAddress(to.ip().into()), stream).await.unwrap();
    Channel { stream: stream.into() }
}

async fn bare_accept(by: &Endpoint, at: &TcpListener) -> Channel {
    let (stream, _) = at.accept().await.unwrap();
    Channel { stream: by.server.accept(stream).await.unwrap().into() }
}

async fn accept(by: &Endpoint, at: &TcpListener) -> Result<Channel, Error> {
    let (stream, _) = at.accept().await.unwrap();
    by.accept(stream).await
}

#[test]
fn holders_of_the_secret_talk() {
    run(async {
        let (a, b) = (endpoint("secret"), endpoint("secret"));
        let (listener, address) = listener().await;
        let (client, server) = tokio::join!(a.connect(LOCAL, address), accept(&b, &listener));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        client.send(&"hello").await.unwrap();
        assert_eq!(server.receive::<String>().await.unwrap(), "hello");
        server.send(&"good day").await.unwrap();
        assert_eq!(client.receive::<String>().await.unwrap(), "good day");
        client.finish().await;
        assert!(server.receive_or_end::<String>().await.unwrap().is_none());
    });
}

#[test]
fn a_wrong_secret_is_seen_on_both_sides() {
    run(async {
        let (a, b) = (endpoint("secret"), endpoint("secreT"));
        let (listener, address) = listener().await;
        let (client, server) = tokio::join!(a.connect(LOCAL, address), accept(&b, &listener));
        assert!(matches!(client, Err(Error::SecretMismatch)));
        assert!(matches!(server, Err(Error::SecretMismatch)));
    });
}

/// Terminates TLS on both sides and passes every message on.
#[test]
fn proofs_do_not_survive_an_attacker_in_between() {
    run(async {
        let (a, b, middle) = (endpoint("secret"), endpoint("secret"), endpoint("something else"));
        let (real, real_address) = listener().await;
        let (fake, fake_address) = listener().await;
        let pass_on = async {
            let (mut towards_a, mut towards_b) =
                tokio::join!(bare_accept(&middle, &fake), bare_connect(&middle, real_address));
            let proof: Claim = towards_a.receive().await.unwrap();
            assert!(matches!(proof, Claim::Proof(_)));
            towards_b.send(&proof).await.unwrap();
            let answer: Claim = towards_b.receive().await.unwrap();
            assert!(matches!(answer, Claim::Mismatch), "the server proves nothing to somebody in the middle");
            towards_a.send(&answer).await.unwrap();
        };
        let (client, server, ()) = tokio::join!(a.connect(LOCAL, fake_address), accept(&b, &real), pass_on);
        assert!(matches!(client, Err(Error::SecretMismatch)));
        assert!(matches!(server, Err(Error::SecretMismatch)));
    });
}

#[test]
fn a_proof_is_neither_replayed_nor_reflected() {
    run(async {
        let (a, b, thief) = (endpoint("secret"), endpoint("secret"), endpoint("something else"));
        let (fake, fake_address) = listener().await;
        let steal = async {
            let mut channel = bare_accept(&thief, &fake).await;
            let proof: Claim = channel.receive().await.unwrap();
            channel.send(&proof).await.unwrap();
            proof
        };
        let (client, proof) = tokio::join!(a.connect(LOCAL, fake_address), steal);
        assert!(matches!(client, Err(Error::SecretMismatch)), "the client's own proof, sent back");

        let (real, real_address) = listener().await;
        let replay = async {
            let mut channel = bare_connect(&thief, real_address).await;
            channel.send(&proof).await.unwrap();
            channel.receive::<Claim>().await.unwrap()
        };
        let (server, answer) = tokio::join!(accept(&b, &real), replay);
        assert!(matches!(server, Err(Error::SecretMismatch)));
        assert!(matches!(answer, Claim::Mismatch));
    });
}

#[test]
fn each_part_of_the_binding_counts() {
    let proof = |secret: &str, role, exporter, client, server| {
        let binding = Binding { exporter: Zeroizing::new([exporter; 32]), client: [client; 32], server: [server; 32] };
        let key = Proof::of(&Secret::new(secret.to_owned())).key();
        hex::lower(hmac::sign(&key, &transcript(role, &binding)).as_ref())
    };
    let one = proof("secret", Side::Client, 1, 2, 3);
    assert_eq!(one, proof("secret", Side::Client, 1, 2, 3));
    assert_eq!(one.len(), 64);
    for other in [
        proof("other", Side::Client, 1, 2, 3),
        proof("secret", Side::Server, 1, 2, 3),
        proof("secret", Side::Client, 0, 2, 3),
        proof("secret", Side::Client, 1, 0, 3),
        proof("secret", Side::Client, 1, 2, 0),
    ] {
        assert_ne!(one, other);
    }
}

#[test]
fn frames_are_limited_in_both_directions() {
    run(async {
        let (a, b) = (endpoint("secret"), endpoint("secret"));
        let (listener, address) = listener().await;
        let (client, server) = tokio::join!(a.connect(LOCAL, address), accept(&b, &listener));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        let large = "x".repeat(FRAME_LIMIT);
        assert!(matches!(client.send(&large).await, Err(Error::Oversize(_))));
        client.stream.write_all(&u32::MAX.to_be_bytes()).await.unwrap();
        client.stream.flush().await.unwrap();
        assert!(matches!(server.receive::<String>().await, Err(Error::Oversize(_))));
    });
}

/// Before the proof even small frames are too large, and anything that is not a
/// proof ends the connection.
#[test]
fn strangers_are_given_no_room() {
    run(async {
        let (b, stranger) = (endpoint("secret"), endpoint("something else"));
        let (listener, address) = listener().await;
        let large = async {
            let mut channel = bare_connect(&stranger, address).await;
            let sent = channel.send(&"x".repeat(1000)).await;
            drop(channel);
            sent
        };
        let (server, sent) = tokio::join!(accept(&b, &listener), large);
        assert!(matches!(server, Err(Error::Oversize(1002))));
        sent.unwrap();

        let odd = async { bare_connect(&stranger, address).await.send(&"mismatch").await };
        let (server, _) = tokio::join!(accept(&b, &listener), odd);
        assert!(matches!(server, Err(Error::SecretMismatch)));

        let lines = "\nkaas: fingerprints {}\n";
        let named = async { bare_connect(&stranger, address).await.send(&lines).await };
        let (server, _) = tokio::join!(accept(&b, &listener), named);
        let Err(error @ Error::Malformed(_)) = server else { panic!("it is taken") };
        assert!(!error.to_string().contains("fingerprints"), "{error}");

        let garbage = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
            // Whatever comes back is a TLS alert, then the end.
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        let (server, answer) = tokio::join!(accept(&b, &listener), garbage);
        assert!(matches!(server, Err(Error::Tls(_))));
        assert!(answer.len() < 16, "an alert of 7 bytes");
    });
}

#[test]
fn clients_need_certificates_and_current_tls() {
    run(async {
        let b = endpoint("secret");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let anyone = accept_any_certificate(&provider);
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(anyone.clone())
                .with_no_client_auth();
            config.alpn_protocols = vec![ALPN.to_vec()];
            let connector = TlsConnector::from(Arc::new(config));
            let (listener, address) = listener().await;
            let connect = async {
                let stream = TcpStream::connect(address).await.unwrap();
                if let Ok(mut stream) = connector.connect(ServerName::IpAddress(LOCAL.into()), stream).await {
                    let mut byte = [0];
                    assert!(stream.read_exact(&mut byte).await.is_err());
                }
            };
            let (server, ()) = tokio::join!(accept(&b, &listener), connect);
            assert!(matches!(server, Err(Error::Tls(_))));
        }
    });
}

/// Messages of a client that has not proved the secret, and messages of a node afterwards.
#[test]
fn fuzz_of_frames() {
    use super::super::message::{Facts, Hello, Membership, PeerRequest, Progress};
    use crate::fuzz::{Example, fuzz};
    use crate::intake::config::fixture::three_nodes;

    let frame = |message: &[u8]| {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        Example::new([&length, message].concat())
    };
    let json = |message: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        message(&mut bytes);
        frame(&bytes)
    };
    let runtime = Builder::new_current_thread().build().unwrap();
    let (key, cluster) = (Proof::of(&Secret::new("secret".to_owned())).key(), uuid::Uuid::max());
    let claims = [Claim::Proof(hex::lower(hmac::sign(&key, b"transcript").as_ref())), Claim::Mismatch];
    let claims = claims.map(|claim| json(&|bytes| serde_json::to_writer(bytes, &claim).unwrap()));
    // The length that is said decides nothing: what is taken is the limit at most, and that what is read.
    fuzz("frames before the proof", 4 << 10, &claims, |mut bytes| {
        let _ = runtime.block_on(read_frame::<Claim>(&mut bytes, PROOF_FRAME_LIMIT));
    });

    let hello = Hello {
        node: "cp1".to_owned(),
        instance: cluster,
        state: Membership::Forming(cluster),
        facts: Facts::of(&three_nodes(), "an image"),
        clock: 1_900_000_000,
        yours: Some(Progress::Joined),
    };
    let asks = [PeerRequest::Bundle, PeerRequest::Saved { cluster }];
    let mut messages: Vec<Example> =
        asks.iter().map(|ask| json(&|bytes| serde_json::to_writer(bytes, ask).unwrap())).collect();
    messages.push(json(&|bytes| serde_json::to_writer(bytes, &hello).unwrap()));
    let own = Facts::of(&three_nodes(), "an image");
    fuzz("frames after the proof", 4 << 20, &messages, |bytes| {
        let (mut as_ask, mut as_hello) = (bytes, bytes);
        let _ = runtime.block_on(read_frame::<PeerRequest>(&mut as_ask, FRAME_LIMIT));
        if let Ok(said) = runtime.block_on(read_frame::<Hello>(&mut as_hello, FRAME_LIMIT)) {
            let heard = super::super::meeting::check_hello("cp1", (&own, uuid::Uuid::nil(), 1_900_000_000), &said);
            let _ = heard.map_err(|why| why.to_string());
        }
    });
}
