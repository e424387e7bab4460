//! Reads keys from files: the publisher's, and the deployer's.

use std::fs;
use std::path::Path;

use anyhow::Context;
use contract::deployer::PrivateKey;
use ova::signature::PublicKey;
use zeroize::Zeroizing;

/// The fingerprint of the publisher's key in a file: a certificate or a public key in PEM.
pub fn publisher_fingerprint(file: &Path) -> anyhow::Result<String> {
    let pem = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let key = PublicKey::from_pem(&pem).with_context(|| format!("using {} as the publisher's key", file.display()))?;
    Ok(key.fingerprint().to_string())
}

/// The deployer's key. `None` if its file is missing.
pub fn existing_deployer_key(path: &Path) -> anyhow::Result<Option<PrivateKey>> {
    if !path.try_exists().with_context(|| format!("looking for {}", path.display()))? {
        return Ok(None);
    }
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let key = PrivateKey::of_pem(&Zeroizing::new(text));
    key.map(Some).with_context(|| format!("understanding the deployer's key {}", path.display()))
}
