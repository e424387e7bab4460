//! Reads a publisher's key: a certificate or a public key in PEM.

use std::fs;
use std::path::Path;

use ::ova::signature::PublicKey;
use anyhow::Context;

/// The fingerprint of the key in a file.
pub fn fingerprint(file: &Path) -> anyhow::Result<String> {
    let pem = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let key = PublicKey::from_pem(&pem).with_context(|| format!("using {} as the publisher's key", file.display()))?;
    Ok(key.fingerprint().to_string())
}
