//! Fingerprints of a cluster that its hypervisor shows: not secret, and protected against forgery on the network.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::console;

/// The beginning of a fingerprint, as in kubeadm's `--discovery-token-ca-cert-hash`.
const SCHEME: &str = "sha256:";

/// Longer texts are no fingerprints of a node, in bytes.
const LONGEST: usize = 1024;

/// SHA-256 of a public key or a certificate. Written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Self(hash)
    }

    /// The fingerprint of the public key (SubjectPublicKeyInfo) of a certificate in DER, as kubeadm identifies a CA. `None` if
    /// it is no certificate.
    pub fn of_key_of(certificate: &[u8]) -> Option<Self> {
        let (rest, certificate) = X509Certificate::from_der(certificate).ok()?;
        rest.is_empty().then(|| Self::of(certificate.public_key().raw))
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits.
    pub fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.digits())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not sha256: with 64 hexadecimal digits")]
pub struct ParseFingerprintError;

impl FromStr for Fingerprint {
    type Err = ParseFingerprintError;

    fn from_str(text: &str) -> Result<Self, ParseFingerprintError> {
        let digits = text.strip_prefix(SCHEME).filter(|digits| digits.len() == 64).ok_or(ParseFingerprintError)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(ParseFingerprintError);
            // Two digits are a byte.
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).map_err(|_| ParseFingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = ParseFingerprintError;

    fn try_from(text: String) -> Result<Self, ParseFingerprintError> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

/// The fingerprints that a node shows through its hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprints {
    /// The fingerprint of the public key of the cluster's CA.
    #[serde(rename = "authority")]
    pub ca: Fingerprint,
    /// The fingerprint of the endpoint's certificate.
    pub endpoint: Fingerprint,
}

impl Fingerprints {
    /// The variable of a VMware VM with the fingerprints.
    pub const GUESTINFO: &str = "guestinfo.kaas.fingerprints";

    /// Reads a node's text. `None` if it has another form.
    pub fn read(text: &[u8]) -> Option<Self> {
        if text.len() > LONGEST { None } else { serde_json::from_slice(text).ok() }
    }

    /// The last fingerprints on a node's console. `None` if it has shown none since its power-on.
    pub fn last_said(text: &str) -> Option<Self> {
        let said = |line: &str| Self::read(console::said(line, Self::SAID)?.as_bytes());
        text.lines().rev().find_map(said)
    }

    /// The beginning of the line on the console.
    const SAID: &str = "kaas: fingerprints ";

    /// The line for the console.
    pub fn line(&self) -> String {
        format!("{}{self}", Self::SAID)
    }
}

/// JSON in one line.
impl fmt::Display for Fingerprints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{{"authority":"{}","endpoint":"{}"}}"#, self.ca, self.endpoint)
    }
}
