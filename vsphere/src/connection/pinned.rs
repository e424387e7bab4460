//! TLS with the server that shows the expected certificate. No CA counts.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::{ClientConfig, DEFAULT_VERSIONS};

use super::trust::Thumbprint;

/// A sum over a certificate in DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    Sha256([u8; 32]),
    /// vCenter before 9.0 gives no other sum of a host's certificate (`HttpNfcLeaseDeviceUrl.sslThumbprint`), over a
    /// verified connection. An attacker needs a second certificate of a given sum, which is harder than a collision.
    Sha1([u8; 20]),
}

impl Pin {
    /// Reads a lease's thumbprint: hexadecimal digits between colons, of SHA-1 or SHA-256.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> =
            text.trim().split(':').map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<_, _>>().ok()?;
        match digits.len() {
            20 => digits.try_into().ok().map(Self::Sha1),
            32 => digits.try_into().ok().map(Self::Sha256),
            _ => None,
        }
    }

    fn is_of(&self, certificate: &[u8]) -> bool {
        match self {
            Self::Sha256(sum) => ova::Sha256::of(certificate).0 == *sum,
            Self::Sha1(sum) => digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref() == sum,
        }
    }
}

/// A client's TLS with the server of this certificate. vCenter 7 and ESXi 7 have TLS 1.2 only.
pub(super) fn only(pin: Pin) -> Result<ClientConfig, rustls::Error> {
    tls_pin::client(DEFAULT_VERSIONS, move |shown| {
        if pin.is_of(shown) {
            return Ok(());
        }
        let sum = Thumbprint(ova::Sha256::of(shown).0);
        Err(format!("the server shows another certificate than the one that is trusted: {sum}"))
    })
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
