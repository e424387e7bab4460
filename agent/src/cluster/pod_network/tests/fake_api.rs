//! An API server that only has nodes: lists them, and streams their events to watches, over TLS with client
//! certificates.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::cluster::pki::{CertificateAuthorities, Leaf};
use crate::host::tls;

/// The nodes and their history.
#[derive(Clone)]
pub(super) struct FakeApi(Arc<Inner>);

struct Inner {
    state: Mutex<Objects>,
    /// The length of the history.
    version: watch::Sender<usize>,
}

#[derive(Default)]
struct Objects {
    nodes: std::collections::BTreeMap<String, Value>,
    events: Vec<String>,
    /// Versions before this one are forgotten.
    oldest: usize,
    lists: usize,
}

impl FakeApi {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { state: Mutex::default(), version: watch::Sender::new(0) }))
    }

    fn happen(&self, kind: &str, name: &str, node: Value) {
        let mut state = self.0.state.lock().unwrap();
        let mut node = node;
        node["metadata"] = json!({"name": name, "resourceVersion": (state.events.len() + 1).to_string()});
        state.events.push(json!({"type": kind, "object": node}).to_string());
        if kind == "DELETED" {
            state.nodes.remove(name);
        } else {
            state.nodes.insert(name.to_owned(), node);
        }
        self.0.version.send_replace(state.events.len());
    }

    pub(super) fn put(&self, name: &str, address: &str, range: &str) {
        let node = json!({
            "spec": {"podCIDR": range},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        self.happen("MODIFIED", name, node);
    }

    pub(super) fn delete(&self, name: &str) {
        self.happen("DELETED", name, json!({}));
    }

    /// Forgets the history: all watches get the error that requires a new list.
    pub(super) fn forget(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.events.push(json!({"type": "ERROR", "object": {"code": 410, "message": "too old"}}).to_string());
        state.oldest = state.events.len();
        self.0.version.send_replace(state.events.len());
    }

    /// How many lists of all nodes were requested.
    pub(super) fn lists(&self) -> usize {
        self.0.state.lock().unwrap().lists
    }

    pub(super) async fn serve(self, authorities: &CertificateAuthorities, address: SocketAddr) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let leaf = Leaf {
            common_name: "kube-apiserver".to_owned(),
            group: None,
            names: Default::default(),
            addresses: [address.ip()].into(),
            server: true,
            client: false,
        };
        let certified = leaf.issue(&authorities.kubernetes, SystemTime::now()).unwrap();
        let roots = tls::trust_in(&authorities.kubernetes.certificate).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
            .with_single_cert(
                tls::certificates(&certified.certificate).unwrap(),
                tls::key(certified.key.expose()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(address).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, api) = (acceptor.clone(), self.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    // A client that goes away ends its connection, and nothing else.
                    let _ = api.answer(BufReader::new(stream)).await;
                }
            });
        }
    }

    async fn answer<S>(&self, mut stream: BufReader<S>) -> std::io::Result<()>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        loop {
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                if stream.read_line(&mut request).await? == 0 {
                    return Ok(());
                }
            }
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            assert!(path.starts_with("/api/v1/nodes?"), "{path}");
            if path.contains("watch=1") {
                return self.watch(&mut stream, &path).await;
            }
            let body = {
                let mut state = self.0.state.lock().unwrap();
                state.lists += 1;
                let items: Vec<_> = state.nodes.values().collect();
                json!({"metadata": {"resourceVersion": state.events.len().to_string()}, "items": items}).to_string()
            };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
            stream.flush().await?;
        }
    }

    async fn watch<S>(&self, stream: &mut BufReader<S>, path: &str) -> std::io::Result<()>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let from = path.split("resourceVersion=").nth(1).unwrap();
        let mut next: usize = from.split('&').next().unwrap().parse().unwrap();
        let mut version = self.0.version.subscribe();
        if next < self.0.state.lock().unwrap().oldest {
            stream.write_all(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n").await?;
            return stream.flush().await;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
        loop {
            let new: Vec<_> = self.0.state.lock().unwrap().events[next..].to_vec();
            next += new.len();
            for event in new {
                stream.write_all(format!("{:x}\r\n{event}\n\r\n", event.len() + 1).as_bytes()).await?;
            }
            stream.flush().await?;
            if version.wait_for(|version| *version > next).await.is_err() {
                return Ok(());
            }
        }
    }
}
