//! Whoever deployed a cluster, and how he gets his credentials: see [`contract::deployer`]. He trusts what he was shown
//! through the hypervisor, and nothing that the network says.

mod pinned;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::deployer::{Fingerprint, Fingerprints, Issued, PATH, PrivateKey, Session};
use contract::kubeconfig::Kubeconfig;
use contract::ports;
use contract::swap::Rejection;
use hyper::body::Body as _;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::network::Network;
use super::{Answer, Bodies, Client, Credentials};

/// How long asking may take in all.
const LIMIT: Duration = Duration::from_secs(15);

/// What an answer may have at most, in bytes.
const LARGEST: usize = 64 << 10;

/// Whoever deployed a cluster, with his private key. Clones share it.
#[derive(Clone)]
pub struct Deployer {
    key: Arc<PrivateKey>,
    /// Where its connections live; none if that is wherever it is asked from.
    network: Option<Arc<Network>>,
    /// The room that large answers share by the credentials that he was given; none where clusters are his own.
    bodies: Option<Bodies>,
    port: u16,
}

/// Why a deployer did not get credentials.
#[derive(Debug, thiserror::Error)]
pub enum DeployerError {
    /// The node refuses, for the reason of this code.
    #[error("{node} refuses: {} [{}]", refused.reason, refused.code)]
    Refused { node: Ipv4Addr, refused: Rejection },
    /// It cannot be reached, is another one than the hypervisor shows, or answers with something else.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl Deployer {
    /// A deployer for a program that has a runtime: his connections live there.
    pub fn new(key: PrivateKey) -> Self {
        Self { key: Arc::new(key), network: None, bodies: None, port: ports::NODE }
    }

    /// The same, asking from inside a network namespace: a lab's.
    pub fn from_inside(key: PrivateKey, namespace: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { network: Some(Arc::new(Network::start(Some(namespace))?)), ..Self::new(key) })
    }

    /// A client with credentials that he was given, whose connections live where his do.
    ///
    /// # Errors
    /// When the credentials are no certificate and its key.
    pub fn client(&self, credentials: &Credentials) -> anyhow::Result<Client> {
        Ok(Client { network: self.network.clone(), bodies: self.bodies.clone(), ..Client::new(credentials)? })
    }

    /// The same, whose clusters' large answers wait for room that others share with them.
    #[must_use]
    pub fn within(self, bodies: Bodies) -> Self {
        Self { bodies: Some(bodies), ..self }
    }

    /// Waits for an answer, for callers that are not asynchronous.
    ///
    /// # Panics
    /// It was made with [`Deployer::new`]: whoever asks has a runtime to wait in.
    pub fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.network.as_ref().expect("a deployer with a thread of his own").wait(asking)
    }

    /// Asks a node for an administrator's credentials, good for a day. `shown` is what the hypervisor shows of it
    /// ([`crate::hypervisor::Hypervisor::fingerprints`]).
    ///
    /// # Errors
    /// [`DeployerError`]. Nobody but the node that the hypervisor shows has been sent anything then.
    pub async fn credentials(&self, node: Ipv4Addr, shown: &Fingerprints) -> Result<Credentials, DeployerError> {
        let (deployer, shown) = (self.clone(), *shown);
        let asked = async move {
            let limited = tokio::time::timeout(LIMIT, deployer.ask(node, &shown)).await;
            limited.unwrap_or_else(|_| bail!("it has not answered after {} s", LIMIT.as_secs()))
        };
        let answer = match &self.network {
            Some(network) => network.run(asked).await,
            None => asked.await,
        };
        let answer = answer.with_context(|| format!("asking {node} for a deployer's credentials"))?;
        if answer.status != StatusCode::OK.as_u16() {
            return Err(refusal(node, &answer));
        }
        // As it was sent: a certificate that is cut is none.
        let issued = serde_json::from_slice(&answer.body).context("understanding the answer");
        let understood = issued.and_then(|issued| self.accept(issued, &shown));
        Ok(understood.with_context(|| format!("taking credentials from {node}"))?)
    }

    async fn ask(&self, node: Ipv4Addr, shown: &Fingerprints) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(SocketAddr::from((node, self.port))).await?;
        let connector = TlsConnector::from(Arc::new(pinned::only(shown.endpoint)?));
        let stream = connector.connect(ServerName::IpAddress(node.into()), stream).await?;
        // Only now is it known that this is the node that the hypervisor shows.
        let request = Session::of(stream.get_ref().1)?.request(&self.key, &shown.ca)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(PATH)
            .header(HOST, node.to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_string(&request)?)?;
        let exchange = async {
            let mut answer = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            let mut body = Vec::new();
            while let Some(frame) = poll_fn(|context| Pin::new(answer.body_mut()).poll_frame(context)).await {
                if let Ok(part) = frame?.into_data() {
                    body.extend_from_slice(&part);
                }
                ensure!(body.len() <= LARGEST, "the answer is longer than {} KiB", LARGEST >> 10);
            }
            anyhow::Ok(Answer::of(status, body))
        };
        tokio::pin!(exchange, connection);
        tokio::select! {
            answer = &mut exchange => answer,
            // What has come whole by then counts, however the connection has ended.
            ended = &mut connection => exchange.await.map_err(|error| ended.err().map_or(error, anyhow::Error::from)),
        }
    }

    /// What was issued, if it is of the cluster that the hypervisor shows, and for this deployer's key.
    fn accept(&self, issued: Issued, shown: &Fingerprints) -> anyhow::Result<Credentials> {
        let authorities = certificates(&issued.ca).context("reading the authority")?;
        let [authority] = authorities.as_slice() else { bail!("it gives {} authorities, not one", authorities.len()) };
        let fingerprint = Fingerprint::of_key_of(authority).context("its authority is no certificate")?;
        ensure!(
            fingerprint == shown.ca,
            "its authority is {fingerprint}, and the hypervisor shows {}: it is another cluster's",
            shown.ca
        );
        let key = self.key.pem();
        let chain = certificates(&issued.certificate).context("reading the certificate")?;
        ensure!(chain.len() == 1, "it gives {} certificates, not one", chain.len());
        let der = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).context("reading the deployer's key")?;
        CertifiedKey::from_der(chain, der, &rustls::crypto::aws_lc_rs::default_provider())
            .context("the certificate is not for the deployer's key")?;
        let address = issued.server.strip_prefix("https://").and_then(|address| address.parse::<SocketAddr>().ok());
        ensure!(address.is_some(), "it names no address of the Kubernetes API");
        let Issued { ca: authority, certificate, server, .. } = issued;
        Ok(Credentials::of(Kubeconfig { server, server_name: None, authority, certificate, key }))
    }
}

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?)
}

/// What an answer that is not 200 says. A node of before knows nothing of deployers.
fn refusal(node: Ipv4Addr, answer: &Answer) -> DeployerError {
    if let Ok(refused) = answer.json::<Rejection>() {
        return DeployerError::Refused { node, refused };
    }
    anyhow::anyhow!("{node} answers {}: {}", answer.status, answer.words()).into()
}

#[cfg(test)]
mod tests;
