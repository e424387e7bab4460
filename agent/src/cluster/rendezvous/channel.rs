//! A channel on which both sides have proved the deployment secret.
//!
//! TLS 1.3 gives secrecy and integrity. Its certificates are made at each start and prove nothing. Therefore each side
//! first proves that it has the deployment secret. The proofs are bound to this very channel:
//!
//! ```text
//! key   = HKDF-SHA256(salt "kaas rendezvous 1", deployment secret, info "proof")
//! proof = HMAC-SHA256(key, side ‖ exporter ‖ SHA-256(client's certificate) ‖ SHA-256(server's certificate))
//! ```
//!
//! - The exporter (RFC 8446 §7.5) differs on the two legs of an attacker that terminates TLS in between. A proof that
//!   is passed on is therefore worthless, as is a recorded one. The exporter covers the handshake up to the server's
//!   Finished only, before the client's certificate. Therefore both certificates are in the proof as well.
//! - With the side, a proof cannot be sent back to its maker.
//! - The client proves first, and the server answers no other client: a stranger that connects learns nothing that
//!   depends on the secret. An attacker that takes over a node's address gets a client's proof. It is of use only for
//!   guessing, and validation requires a secret of 128 bits or more.
//! - The cluster's name is not in the key, so that a mistyped name is reported as such, not as a wrong secret.
//!
//! Frames follow the proofs: a 32-bit big-endian length and that many bytes of JSON.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use aws_lc_rs::{constant_time, hkdf, hmac};
use contract::secret::Secret;
use contract::session;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tls_pin::Verifier;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use zeroize::Zeroizing;

use crate::host::hex;

/// The largest frame between nodes that have proved the secret, in bytes.
pub const FRAME_LIMIT: usize = 1 << 20;

/// The largest frame before that.
const PROOF_FRAME_LIMIT: usize = 256;

const SALT: &[u8] = b"kaas rendezvous 1";
const EXPORTER_LABEL: &[u8] = b"EXPORTER-kaas-rendezvous";
const ALPN: &[u8] = b"kaas-rendezvous/1";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(String),
    /// The other side does not have the deployment secret, or reports that this side does not.
    #[error("the deployment secret differs")]
    SecretMismatch,
    #[error("a message of {0} bytes is too large")]
    Oversize(usize),
    #[error("an unintelligible message: {0}")]
    Malformed(String),
}

/// This process's side of any channel: a certificate made at the start, and the key made from the deployment secret.
pub struct Endpoint {
    client: TlsConnector,
    server: TlsAcceptor,
    certificate: [u8; 32],
    proof_key: hmac::Key,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Claim {
    /// Hex digits.
    Proof(String),
    /// The other side's proof is wrong.
    Mismatch,
}

type AnyCertificate = Verifier<fn(&[u8]) -> Result<(), String>>;

fn accept_any_certificate(provider: &CryptoProvider) -> Arc<AnyCertificate> {
    Arc::new(Verifier::new(&[&rustls::version::TLS13], provider, |_| Ok(())))
}

impl Endpoint {
    /// Makes a key and a certificate for this process.
    pub fn new(proof: &Proof) -> Result<Self, Error> {
        let tls = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| tls(&error))?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let certificate = params.self_signed(&key).map_err(|error| tls(&error))?;
        let chain = vec![certificate.der().clone()];
        let key = || PrivateKeyDer::Pkcs8(key.serialize_der().into());

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let anyone = accept_any_certificate(&provider);
        let mut client = ClientConfig::builder_with_provider(Arc::<CryptoProvider>::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| tls(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::<AnyCertificate>::clone(&anyone))
            .with_client_auth_cert(chain.clone(), key())
            .map_err(|error| tls(&error))?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| tls(&error))?
            .with_client_cert_verifier(anyone)
            .with_single_cert(chain, key())
            .map_err(|error| tls(&error))?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Self {
            client: TlsConnector::from(Arc::new(client)),
            server: TlsAcceptor::from(Arc::new(server)),
            certificate: certificate_hash(certificate.der()),
            proof_key: proof.key(),
        })
    }

    /// Connects from `local` to `remote` and exchanges proofs. The caller limits the time. After an error only this
    /// side's proof has been sent.
    pub async fn connect(&self, local: Ipv4Addr, remote: SocketAddr) -> Result<Channel, Error> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((local, 0).into())?;
        let stream = socket.connect(remote).await?;
        let name = ServerName::IpAddress(remote.ip().into());
        let stream = self.client.connect(name, stream).await.map_err(handshake)?;
        let mut channel = Channel { stream: stream.into() };
        let binding = channel.binding(self.certificate)?;
        channel.send(&Claim::Proof(self.proof(Side::Client, &binding))).await?;
        let claim: Claim = channel.claim().await?;
        self.check(Side::Server, &binding, &claim)?;
        Ok(channel)
    }

    /// Accepts a connection and exchanges proofs. The caller limits the time. After an error no more than "mismatch"
    /// has been sent.
    pub async fn accept(&self, stream: TcpStream) -> Result<Channel, Error> {
        let stream = self.server.accept(stream).await.map_err(handshake)?;
        let mut channel = Channel { stream: stream.into() };
        let binding = channel.binding(self.certificate)?;
        let claim: Claim = channel.claim().await?;
        if let Err(error) = self.check(Side::Client, &binding, &claim) {
            channel.send(&Claim::Mismatch).await?;
            channel.finish().await;
            return Err(error);
        }
        channel.send(&Claim::Proof(self.proof(Side::Server, &binding))).await?;
        Ok(channel)
    }

    fn proof(&self, side: Side, binding: &Binding) -> String {
        hex::lower(hmac::sign(&self.proof_key, &transcript(side, binding)).as_ref())
    }

    fn check(&self, side: Side, binding: &Binding, claim: &Claim) -> Result<(), Error> {
        let Claim::Proof(proof) = claim else { return Err(Error::SecretMismatch) };
        constant_time::verify_slices_are_equal(self.proof(side, binding).as_bytes(), proof.as_bytes())
            .map_err(|_| Error::SecretMismatch)
    }
}

/// The key of proofs. It comes from a secret one way, so that the secret need not be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Proof(Secret);

impl Proof {
    pub fn of(secret: &Secret) -> Self {
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret.expose().as_bytes());
        let mut key = Zeroizing::new([0; 32]);
        extracted
            .expand(&[b"proof"], hmac::HMAC_SHA256)
            .and_then(|expanded| expanded.fill(&mut *key))
            .expect("HKDF-SHA256 gives up to 255 × 32 bytes (RFC 5869 §2.3), 32 are asked for");
        Self(Secret::new(hex::lower(&*key)))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.0.expose().as_bytes())
    }
}

struct Binding {
    exporter: Zeroizing<[u8; 32]>,
    client: [u8; 32],
    server: [u8; 32],
}

fn transcript(side: Side, binding: &Binding) -> Zeroizing<Vec<u8>> {
    let side: &[u8; 6] = match side {
        Side::Client => b"client",
        Side::Server => b"server",
    };
    let parts: [&[u8]; 4] = [side, &*binding.exporter, &binding.client, &binding.server];
    Zeroizing::new(parts.concat())
}

/// A channel between two holders of the deployment secret.
pub struct Channel {
    stream: TlsStream<TcpStream>,
}

impl Channel {
    /// The data that the proofs are bound to. `ours` is the hash of this side's certificate.
    fn binding(&self, ours: [u8; 32]) -> Result<Binding, Error> {
        let tls = |error: rustls::Error| Error::Tls(error.to_string());
        let exporter = match &self.stream {
            TlsStream::Client(stream) => session::exporter(stream.get_ref().1, EXPORTER_LABEL),
            TlsStream::Server(stream) => session::exporter(stream.get_ref().1, EXPORTER_LABEL),
        };
        let exporter = exporter.map_err(tls)?;
        let theirs = self.stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let theirs =
            certificate_hash(theirs.ok_or_else(|| Error::Tls("the other side has no certificate".to_owned()))?);
        Ok(match &self.stream {
            TlsStream::Client(_) => Binding { exporter, client: ours, server: theirs },
            TlsStream::Server(_) => Binding { exporter, client: theirs, server: ours },
        })
    }

    /// Sends one message. [`Error::Oversize`] before anything is sent.
    pub async fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        // Large enough for any bundle: a buffer that grows would leave a copy of a key behind.
        let mut frame = Zeroizing::new(Vec::with_capacity(64 << 10));
        frame.extend_from_slice(&[0; 4]);
        serde_json::to_writer(&mut *frame, message).map_err(|error| Error::Malformed(error.to_string()))?;
        let length = frame.len() - 4;
        if length > FRAME_LIMIT {
            return Err(Error::Oversize(length));
        }
        let prefix = u32::try_from(length).map_err(|_| Error::Oversize(length))?.to_be_bytes();
        frame[..4].copy_from_slice(&prefix);
        self.stream.write_all(&frame).await?;
        Ok(self.stream.flush().await?)
    }

    /// Receives one message. The caller limits the time. After an error the channel is of no further use.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        self.receive_up_to(FRAME_LIMIT).await
    }

    /// As [`Channel::receive`], or `None` when the other side has ended the channel in order.
    pub async fn receive_or_end<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        match self.receive().await {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            other => other.map(Some),
        }
    }

    /// The message of a stranger. Its text is never repeated, because consoles show why a node waits.
    async fn claim(&mut self) -> Result<Claim, Error> {
        match self.receive_up_to(PROOF_FRAME_LIMIT).await {
            Err(Error::Malformed(_)) => Err(Error::Malformed("it is no proof of the secret".to_owned())),
            claim => claim,
        }
    }

    async fn receive_up_to<T: DeserializeOwned>(&mut self, limit: usize) -> Result<T, Error> {
        read_frame(&mut self.stream, limit).await
    }

    /// Ends the channel in order. The other side may be gone already.
    pub async fn finish(mut self) {
        if let Err(error) = self.stream.shutdown().await {
            log::debug!("ending a rendezvous channel: {error}");
        }
    }
}

/// Reads one frame of at most `limit` bytes.
async fn read_frame<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin), limit: usize) -> Result<T, Error> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Error::Oversize(length));
    }
    let mut frame = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut frame).await?;
    serde_json::from_slice(&frame).map_err(|error| Error::Malformed(error.to_string()))
}

fn certificate_hash(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

/// A TLS handshake that failed. rustls has the reason inside of an I/O error.
fn handshake(error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => Error::Tls(inner.to_string()),
        None => Error::Io(error),
    }
}

#[cfg(test)]
mod tests;
