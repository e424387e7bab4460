//! The trust of a connection.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The proof of a server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A certificate of a CA of the operating system.
    System,
    /// A certificate of a CA in this PEM file, and of no other.
    Authorities(PathBuf),
    /// A certificate of one of these CAs in PEM, and of no other.
    Certificates(String),
    /// The certificate with this thumbprint, by any issuer.
    Thumbprint(Thumbprint),
}

/// SHA-256 of a certificate in DER. Read and written as by vSphere Client and `openssl x509 -fingerprint -sha256`:
/// pairs of hexadecimal digits between colons. The colons may be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Thumbprint(pub [u8; 32]);

/// The text is not a thumbprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a thumbprint has 64 hexadecimal digits: it is the SHA-256 of the certificate")]
pub struct InvalidThumbprint;

impl FromStr for Thumbprint {
    type Err = InvalidThumbprint;

    fn from_str(text: &str) -> Result<Self, InvalidThumbprint> {
        let digits: String = text.trim().chars().filter(|&c| c != ':').collect();
        digits.parse::<ova::Sha256>().map(|digest| Self(digest.0)).map_err(|_| InvalidThumbprint)
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.map(|byte| format!("{byte:02X}")).join(":"))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thumbprint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbprint_is_read_with_and_without_colons() {
        let shown = Thumbprint(std::array::from_fn(|at| at as u8 * 8)).to_string();
        assert!(shown.starts_with("00:08:10:18:") && shown.ends_with(":F8"), "{shown}");
        let parsed: Thumbprint = shown.parse().unwrap();
        assert_eq!(shown.replace(':', "").to_lowercase().parse(), Ok(parsed));
        for wrong in ["", "00:08", &shown[3..], &format!("{shown}:00"), &shown.replace("08", "0x")] {
            assert_eq!(wrong.parse::<Thumbprint>(), Err(InvalidThumbprint), "{wrong}");
        }
    }
}
