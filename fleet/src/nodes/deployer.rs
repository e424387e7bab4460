//! The deployer of a cluster, and how it gets credentials: see [`contract::deployer`]. The first time it trusts the fingerprints
//! that the hypervisor shows. Later it trusts the CA of the credentials that it has.

mod pinned;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use contract::deployer::{self, Fingerprint, Fingerprints, Issued, PATH, PrivateKey, Session};
use contract::kubeconfig::Kubeconfig;
use contract::ports;
use contract::swap::Rejection;
use hyper::body::Body as _;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::network::Network;
use super::{Answer, Bodies, Client, Credentials};

/// How long a request may take in all.
const LIMIT: Duration = Duration::from_secs(15);

/// The largest response, in bytes.
const LARGEST: usize = 64 << 10;

/// The deployer of a cluster, with its private key. Clones share it.
#[derive(Clone)]
pub struct Deployer {
    key: Arc<PrivateKey>,
    /// The thread of its connections. `None` if they live in the caller's runtime.
    network: Option<Arc<Network>>,
    /// The room that large responses share if its credentials are used. `None` if the clusters belong to the caller.
    bodies: Option<Bodies>,
    port: u16,
}

/// Why a deployer did not get credentials.
#[derive(Debug, thiserror::Error)]
pub enum DeployerError {
    /// The node refuses, for the reason of this code.
    #[error("{node} refuses: {} [{}]", refused.reason, refused.code)]
    Refused { node: Ipv4Addr, refused: Rejection },
    /// The node cannot be reached, is not one of the cluster, or sends something else.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

impl Deployer {
    /// A deployer for a program that has a runtime: its connections live there.
    pub fn new(key: PrivateKey) -> Self {
        Self { key: Arc::new(key), network: None, bodies: None, port: ports::NODE }
    }

    /// As [`Deployer::new`], from inside a network namespace: a lab's.
    pub fn from_inside(key: PrivateKey, namespace: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { network: Some(Arc::new(Network::start(Some(namespace))?)), ..Self::new(key) })
    }

    /// Fingerprint of its public key.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.key.fingerprint().ok()
    }

    /// A client with issued credentials. Its connections live where the deployer's do.
    pub fn client(&self, credentials: &Credentials) -> anyhow::Result<Client> {
        Ok(Client { network: self.network.clone(), bodies: self.bodies.clone(), ..Client::new(credentials)? })
    }

    /// The deployer with shared room for large responses of its clusters.
    #[must_use]
    pub fn within(self, bodies: Bodies) -> Self {
        Self { bodies: Some(bodies), ..self }
    }

    /// Waits for a response, for callers that are not asynchronous.
    ///
    /// # Panics
    /// It was created with [`Deployer::new`]: the caller has a runtime to wait in.
    pub fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.network.as_ref().expect("a deployer with a thread").wait(asking)
    }

    /// Asks a node for an administrator's credentials, valid for a day. `shown` are the fingerprints that the hypervisor shows of
    /// it ([`crate::hypervisor::Hypervisor::fingerprints`]).
    ///
    /// # Errors
    /// [`DeployerError`]. Only the node that the hypervisor shows may have been sent anything then.
    pub async fn credentials(&self, node: Ipv4Addr, shown: &Fingerprints) -> Result<Credentials, DeployerError> {
        self.issue(node, shown.ca, pinned::only(shown.endpoint)?).await
    }

    /// Asks a node for new credentials in place of these, without the hypervisor. The node has to show a certificate that the CA
    /// of the former credentials has issued for its address.
    ///
    /// # Errors
    /// [`DeployerError`]. Only a node of the cluster may have been sent anything then.
    pub async fn renewed(&self, node: Ipv4Addr, former: &Credentials) -> Result<Credentials, DeployerError> {
        let (ca, fingerprint) = former.ca()?;
        self.issue(node, fingerprint, pinned::by(ca)?).await
    }

    async fn issue(&self, node: Ipv4Addr, ca: Fingerprint, trust: ClientConfig) -> Result<Credentials, DeployerError> {
        let (deployer, trust) = (self.clone(), Arc::new(trust));
        let own = PrivateKey::draw().map_err(anyhow::Error::from)?;
        let holder = own.public().map_err(anyhow::Error::from)?.to_string();
        let asked = async move {
            let both = async {
                let answer = deployer.ask(node, ca, trust.clone(), Some(holder)).await?;
                // An older node knows no holder.
                match answer.status == StatusCode::BAD_REQUEST.as_u16() {
                    true => deployer.ask(node, ca, trust.clone(), None).await,
                    false => Ok(answer),
                }
            };
            let limited = tokio::time::timeout(LIMIT, both).await;
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
        // Parsed as it was sent: a cut certificate is invalid.
        let issued = serde_json::from_slice(&answer.body).context("understanding the answer");
        let understood = issued.and_then(|issued| self.accept(issued, ca, &own));
        Ok(understood.with_context(|| format!("taking credentials from {node}"))?)
    }

    async fn ask(
        &self,
        node: Ipv4Addr,
        ca: Fingerprint,
        trust: Arc<ClientConfig>,
        holder: Option<String>,
    ) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(SocketAddr::from((node, self.port))).await?;
        let connector = TlsConnector::from(trust);
        let stream = connector.connect(ServerName::IpAddress(node.into()), stream).await?;
        // Only now it is known that this is a node of the cluster.
        let request = deployer::Request { holder, ..Session::of(stream.get_ref().1)?.request(&self.key, &ca)? };
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
            // A complete response counts, however the connection has ended.
            ended = &mut connection => exchange.await.map_err(|error| ended.err().map_or(error, anyhow::Error::from)),
        }
    }

    /// The issued credentials, if they are of the cluster with this CA. Their key is `own`, or the deployer's key if the node is
    /// older.
    fn accept(&self, issued: Issued, ca: Fingerprint, own: &PrivateKey) -> anyhow::Result<Credentials> {
        let authorities = certificates(&issued.ca).context("reading the CA")?;
        let [authority] = authorities.as_slice() else { bail!("it gives {} CAs, not one", authorities.len()) };
        let fingerprint = Fingerprint::of_key_of(authority).context("its CA is no certificate")?;
        ensure!(fingerprint == ca, "its CA is {fingerprint}, not {ca}: it is another cluster's");
        let chain = certificates(&issued.certificate).context("reading the certificate")?;
        ensure!(chain.len() == 1, "it gives {} certificates, not one", chain.len());
        let fits = |key: &PrivateKey| -> anyhow::Result<()> {
            let pem = key.pem();
            let der = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).context("reading the key")?;
            let made = CertifiedKey::from_der(chain.clone(), der, &rustls::crypto::aws_lc_rs::default_provider());
            made.map(drop).context("the certificate is not for the deployer's key")
        };
        let key = match fits(own) {
            Ok(()) => own.pem(),
            Err(_) => fits(&self.key).map(|()| self.key.pem())?,
        };
        let address = issued.server.strip_prefix("https://").and_then(|address| address.parse::<SocketAddr>().ok());
        ensure!(address.is_some(), "it names no address of the Kubernetes API");
        let Issued { ca: authority, certificate, server, .. } = issued;
        Ok(Credentials::of(Kubeconfig { server, server_name: None, authority, certificate, key }))
    }
}

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?)
}

/// The error of a response that is not 200.
fn refusal(node: Ipv4Addr, answer: &Answer) -> DeployerError {
    if let Ok(refused) = answer.json::<Rejection>() {
        return DeployerError::Refused { node, refused };
    }
    anyhow::anyhow!("{node} answered {}", answer.refusal()).into()
}

#[cfg(test)]
mod tests;
