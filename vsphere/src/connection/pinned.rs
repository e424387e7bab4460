//! TLS with the one server that shows a certificate that is known, whoever has signed it.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

/// What is known of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// SHA-256 over it in DER.
    Sha256([u8; 32]),
    /// SHA-1 over it: all that vCenter before 9.0 tells of a host's certificate, over a connection that has been proved
    /// (`HttpNfcLeaseDeviceUrl.sslThumbprint`). Another certificate of the same sum would have to be found, not two.
    Sha1([u8; 20]),
}

impl Pin {
    /// A thumbprint as a lease has it: hexadecimal digits between colons, of SHA-1 or SHA-256.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> =
            text.trim().split(':').map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<_, _>>().ok()?;
        match digits.len() {
            20 => digits.try_into().ok().map(Self::Sha1),
            32 => digits.try_into().ok().map(Self::Sha256),
            _ => None,
        }
    }

    fn is_of(&self, certificate: &CertificateDer<'_>) -> bool {
        match self {
            Self::Sha256(sum) => digest(&SHA256, certificate).as_ref() == sum,
            Self::Sha1(sum) => digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref() == sum,
        }
    }
}

/// A client's TLS (1.2, which vCenter 7 and ESXi 7 speak, or 1.3) with this server alone.
pub(super) fn only(pin: Pin) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = verifier(pin, &provider);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // A session that goes on from another one shows no certificate.
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn verifier(pin: Pin, provider: &CryptoProvider) -> Pinned {
    Pinned { pin, algorithms: provider.signature_verification_algorithms }
}

#[derive(Debug)]
struct Pinned {
    pin: Pin,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pin.is_of(shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let sum: String =
            digest(&SHA256, shown).as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");
        Err(rustls::Error::General(format!("the server shows another certificate than the one that is trusted: {sum}")))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_names_a_certificate_by_either_sum() {
        assert_eq!(Pin::parse(&["0a"; 20].join(":")), Some(Pin::Sha1([10; 20])));
        assert_eq!(Pin::parse(&["0A"; 32].join(":")), Some(Pin::Sha256([10; 32])));
        for wrong in ["", "0a", &["0g"; 20].join(":"), &["0a"; 21].join(":")] {
            assert_eq!(Pin::parse(wrong), None, "{wrong}");
        }
    }
}
