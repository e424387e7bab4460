//! The API server's encryption of Secrets: an `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`) in the directory of
//! the CAs on the data disk. The API server reads the file each minute and applies a changed content without a restart.

use std::io;
use std::path::Path;

use contract::recovery::Keys;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::host::files;
use crate::host::hex;

/// The file, in a directory that the API server's pod mounts.
pub const CONFIGURATION: &str = "/etc/kubernetes/pki/encryption.json";

/// The API server's arguments for the file: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("encryption-provider-config", CONFIGURATION.to_owned()),
        ("encryption-provider-config-automatic-reload", "true".to_owned()),
    ]
}

/// The content of the file. Secrets are read with any of `keys`, and written with the key of the name `written`.
pub fn content(keys: &Keys, written: &str) -> Zeroizing<Vec<u8>> {
    // The first key writes. `secretbox` tries all of its keys in turn.
    let mut sorted: Vec<_> = keys.keys.iter().collect();
    sorted.sort_by_key(|key| key.id != written);
    let named: Vec<Value> = sorted.iter().map(|key| json!({"name": key.id, "secret": key.secret.expose()})).collect();
    let whole = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": named}}]}],
    });
    Zeroizing::new(format!("{whole:#}\n").into_bytes())
}

/// Writes the file. Returns whether it changed.
///
/// # Errors
/// An error of the file system. The file then has its old content.
pub fn lay(root: &Path, content: &[u8]) -> io::Result<bool> {
    files::ensure_content(&files::below(root, CONFIGURATION), content, 0o600)
}

/// The name by which the API server reports the loaded content.
pub fn sum(content: &[u8]) -> String {
    hex::lower(&Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::recovery::Key;
    use contract::secret::Secret;

    #[test]
    fn key_that_writes_is_first() {
        let key = |id: &str| Key { id: id.to_owned(), secret: Secret::new(format!("secret of {id}")) };
        let keys = Keys { keys: vec![key("k1"), key("k2")] };
        for (written, order) in [("k1", ["k1", "k2"]), ("k2", ["k2", "k1"])] {
            let whole: Value = serde_json::from_slice(&content(&keys, written)).unwrap();
            let resource = &whole["resources"][0];
            assert_eq!(resource["resources"], json!(["secrets"]));
            let names: Vec<&str> = resource["providers"][0]["secretbox"]["keys"]
                .as_array()
                .unwrap()
                .iter()
                .map(|key| key["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, order);
        }
    }
}
