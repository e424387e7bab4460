//! The HTTPS server. It accepts connections in a separate thread, with one request on each, and limits the resources of
//! clients.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use contract::deployer::Session;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::EndpointContext;
use super::access::{AccessLevel, Caller};
use super::answer::Made;
use super::connection_slots::{ConnectionSlot, ConnectionSlots};
use super::deployer;
use super::idle_limit::IdleLimit;
use super::routes;
use crate::cluster::certificates::revocation_list;
use crate::host::tls;

/// The longest header, in bytes …
const HEADER: usize = 16 << 10;
/// … and how many lines it may have.
const HEADER_LINES: usize = 64;
/// How often the thread shows that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How many slow answers may be made at once, including reads of files.
const BLOCKING: usize = 4;
/// The pause after a connection could not be accepted, because too many files are open.
const EXHAUSTED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// How long the TLS handshake may take, and then the header.
    pub beginning: Duration,
    pub still: Duration,
}

impl Limits {
    pub(super) const USUAL: Self = Self { beginning: Duration::from_secs(10), still: Duration::from_secs(30) };
}

/// The configuration that the next connection gets.
pub(super) type Tls = Arc<RwLock<Arc<ServerConfig>>>;

/// A server that shows `certificate`, and asks its clients for one of `authority` without requiring it. All are PEM.
pub(super) fn tls(authority: &str, certificate: &str, key: &str) -> anyhow::Result<Arc<ServerConfig>> {
    let roots = tls::trust_in(authority)?;
    let chain = tls::certificates(certificate).context("reading the endpoint's certificate")?;
    let key = tls::key(key).context("reading the endpoint's key")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .context("trusting the cluster's CA")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .context("using the endpoint's certificate")?;
    // A session in the cache would outlive a renewal, and take memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Opens the port and serves in a separate thread. Returns the address.
pub(super) fn start(
    address: SocketAddr,
    tls: Tls,
    context: Arc<EndpointContext>,
    seats: Arc<ConnectionSlots>,
    limits: Limits,
) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
    thread::Builder::new()
        .name("endpoint".to_owned())
        .spawn(move || runtime.block_on(serve(listener, tls, context, seats, limits)))
        .context("starting a thread")?;
    Ok(address)
}

async fn serve(
    listener: std::net::TcpListener,
    tls: Tls,
    context: Arc<EndpointContext>,
    seats: Arc<ConnectionSlots>,
    limits: Limits,
) {
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
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                // Without a slot a connection is closed at once. A queue would block all callers while one holds on.
                let Some(seat) = seats.take(from.ip()) else { continue };
                let acceptor = TlsAcceptor::from(Arc::clone(&tls.read().unwrap_or_else(PoisonError::into_inner)));
                let context = Arc::clone(&context);
                tokio::spawn(async move {
                    let ended = tokio::select! {
                        ended = converse((stream, from), acceptor, &context, &seat, limits) => ended,
                        () = seat.is_taken_away() => Err(anyhow::anyhow!("its place was needed for another caller")),
                    };
                    if let Err(error) = ended {
                        log::debug!("the endpoint, with {from}: {error:#}");
                    }
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
    (stream, from): (TcpStream, SocketAddr),
    acceptor: TlsAcceptor,
    context: &Arc<EndpointContext>,
    seat: &ConnectionSlot,
    limits: Limits,
) -> anyhow::Result<()> {
    let stream = timeout(limits.beginning, acceptor.accept(IdleLimit::new(stream, limits.still)))
        .await
        .context("TLS handshake: too slow")?
        .context("TLS handshake")?;
    let connection = stream.get_ref().1;
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let right = certificate.map(|certificate| {
        let right = AccessLevel::of(certificate, || deployer::current_users(&context.root));
        // The list is read only for a certificate that would give rights.
        if right == AccessLevel::Anyone || !is_revoked(&context.root, certificate) {
            right
        } else {
            AccessLevel::Revoked
        }
    });
    if right > Some(AccessLevel::Anyone) {
        seat.hold();
    }
    // Over an older TLS a proof is not possible. All other requests are.
    let caller = Caller { right, session: Session::of(connection).ok(), from: Some(from) };
    exchange(stream, context, caller, limits).await
}

/// Whether a certificate was revoked. If that is unknown it counts as revoked, until maintenance has made the list again.
fn is_revoked(root: &Path, certificate: &[u8]) -> bool {
    revocation_list::refuses(root, certificate).unwrap_or_else(|error| {
        log::error!("a certificate is refused, for it may be revoked: {error:#}");
        true
    })
}

pub(super) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    context: &Arc<EndpointContext>,
    caller: Caller,
    limits: Limits,
) -> anyhow::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        let context = Arc::clone(context);
        let caller = caller.clone();
        async move { Made::Ok(routes::answer(context, request, caller).await) }
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
