//! TLS with a peer that is known by its own certificate, not by a CA. Knows nothing of networks.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme, SupportedProtocolVersion,
};

/// Verifies a peer by its leaf certificate and the handshake's signature. Ignores chain, names and validity.
///
/// `judge` gets the leaf in DER. Its error becomes the handshake's.
pub struct Verifier<J> {
    accepts_tls12: bool,
    judge: J,
    algorithms: WebPkiSupportedAlgorithms,
}

impl<J: Fn(&[u8]) -> Result<(), String>> Verifier<J> {
    pub fn new(versions: &[&SupportedProtocolVersion], provider: &CryptoProvider, judge: J) -> Self {
        let accepts_tls12 = versions.contains(&&rustls::version::TLS12);
        Self { accepts_tls12, judge, algorithms: provider.signature_verification_algorithms }
    }

    fn check(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        (self.judge)(leaf).map_err(Error::General)
    }
}

/// A client's TLS with a server whose leaf certificate `judge` accepts. The client has no certificate.
///
/// # Errors
/// [`rustls`] does not support the versions.
pub fn client(
    versions: &[&'static SupportedProtocolVersion],
    judge: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(Verifier::new(versions, &provider, judge));
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    // In a resumed session the server shows no certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

impl<J> fmt::Debug for Verifier<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// The checks that are equal for servers and clients.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            if !self.accepts_tls12 {
                return Err(Error::General("only TLS 1.3 is spoken here".to_owned()));
            }
            verify_tls12_signature(message, certificate, signed, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl<J: Fn(&[u8]) -> Result<(), String> + Send + Sync> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(leaf).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl<J: Fn(&[u8]) -> Result<(), String> + Send + Sync> ClientCertVerifier for Verifier<J> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(leaf).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}
