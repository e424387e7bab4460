//! The HTTPS server: accepts connections on a thread of its own, one request
//! on each, and bounds what anybody can take of this node.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::EndpointContext;
use super::access::Right;
use super::answer::Made;
use super::idle_limit::IdleLimit;
use super::routes;
use crate::host::tls;

/// How many connections there may be at once …
pub(super) const CONNECTIONS: usize = 64;
/// … and how many of them from one address.
pub(super) const PER_ADDRESS: usize = 16;
/// The longest header, in bytes …
const HEADER: usize = 16 << 10;
/// … and how many lines it may have.
const HEADER_LINES: usize = 64;
/// How often the thread shows that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How many answers that wait for something may be made at once, and files be read.
const BLOCKING: usize = 4;
/// The pause after a connection could not be accepted: there are too many files open.
const EXHAUSTED: Duration = Duration::from_secs(1);

/// How long clients are waited for.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// How long the TLS handshake may take, and then the header.
    pub beginning: Duration,
    /// How long a connection may stand still.
    pub still: Duration,
}

impl Limits {
    /// What every endpoint outside of tests has.
    pub(super) const USUAL: Self = Self { beginning: Duration::from_secs(10), still: Duration::from_secs(30) };
}

/// The configuration that the next connection gets.
pub(super) type Tls = Arc<RwLock<Arc<ServerConfig>>>;

/// A server that shows `certificate` and asks its clients for one of
/// `authority`, without insisting; all in PEM.
pub(super) fn tls(authority: &str, certificate: &str, key: &str) -> anyhow::Result<Arc<ServerConfig>> {
    let roots = tls::trust_in(authority)?;
    let chain = tls::certificates(certificate).context("reading the endpoint's certificate")?;
    let key = tls::key(key).context("reading the endpoint's key")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .context("trusting the authority")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .context("using the endpoint's certificate")?;
    // A session that was kept would outlive a renewal, and take memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Opens the port and serves on a thread of its own. Says which address it
/// got.
pub(super) fn start(
    address: SocketAddr,
    tls: Tls,
    context: Arc<EndpointContext>,
    limits: Limits,
) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
    thread::Builder::new()
        .name("endpoint".to_owned())
        .spawn(move || runtime.block_on(serve(listener, tls, context, limits)))
        .context("starting a thread")?;
    Ok(address)
}

async fn serve(listener: std::net::TcpListener, tls: Tls, context: Arc<EndpointContext>, limits: Limits) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("the endpoint cannot serve: {error}"),
    };
    let reporter = context.reporter.clone();
    tokio::spawn(async move {
        loop {
            reporter.alive("the status endpoint", 6 * SIGN_OF_LIFE);
            tokio::time::sleep(SIGN_OF_LIFE).await;
        }
    });
    let guests = Arc::new(Mutex::new(HashMap::new()));
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // Beyond the bound, connections are closed at once: waiting in
                // line would keep everybody out as long as somebody holds on.
                let Some(place) = Place::take(&guests, from.ip()) else { continue };
                let acceptor = TlsAcceptor::from(Arc::clone(&tls.read().unwrap_or_else(PoisonError::into_inner)));
                let context = Arc::clone(&context);
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, acceptor, &context, limits).await {
                        log::debug!("the endpoint, with {from}: {error:#}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!("the endpoint cannot accept a connection: {error}");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
}

/// One connection: handshake, one request, one answer.
async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    context: &Arc<EndpointContext>,
    limits: Limits,
) -> anyhow::Result<()> {
    let stream = timeout(limits.beginning, acceptor.accept(IdleLimit::new(stream, limits.still)))
        .await
        .context("TLS handshake: too slow")?
        .context("TLS handshake")?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let right = certificate.map(|certificate| Right::of(certificate));
    let service = service_fn(|request: Request<Incoming>| {
        let context = Arc::clone(context);
        async move { Made::Ok(routes::answer(context, request, right).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.beginning)
        .max_buf_size(HEADER)
        .max_headers(HEADER_LINES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .context("HTTP")
}

/// One of the bounded number of connections, while it lasts.
struct Place {
    guests: Arc<Mutex<HashMap<IpAddr, usize>>>,
    from: IpAddr,
}

impl Place {
    fn take(guests: &Arc<Mutex<HashMap<IpAddr, usize>>>, from: IpAddr) -> Option<Self> {
        let mut present = guests.lock().unwrap_or_else(PoisonError::into_inner);
        if present.values().sum::<usize>() >= CONNECTIONS || present.get(&from).is_some_and(|own| *own >= PER_ADDRESS) {
            return None;
        }
        *present.entry(from).or_default() += 1;
        Some(Self { guests: Arc::clone(guests), from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut present = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = present.get_mut(&self.from) {
            *own -= 1;
            if *own == 0 {
                present.remove(&self.from);
            }
        }
    }
}
