//! How the API server encrypts Secrets: an `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`), beside the authorities on the
//! data disk. It looks at the file each minute and takes up another content without a restart.

use std::io;
use std::path::Path;

use contract::recovery::Keys;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::host::files;
use crate::host::hex;

/// The file, in the directory that the API server's pod sees anyway.
pub const CONFIGURATION: &str = "/etc/kubernetes/pki/encryption.json";

/// The arguments that point the API server to it: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("encryption-provider-config", CONFIGURATION.to_owned()),
        ("encryption-provider-config-automatic-reload", "true".to_owned()),
    ]
}

/// The file's content: Secrets are read by any of `keys`, and in clear if `clear` says so, and written with the key of the
/// name `written`, or in clear if it is none.
pub fn content(keys: &Keys, written: Option<&str>, clear: bool) -> Zeroizing<Vec<u8>> {
    // What stands first is written with. `secretbox` tries all of its keys in turn.
    let order = |id: &str| written != Some(id);
    let mut sorted: Vec<_> = keys.keys.iter().collect();
    sorted.sort_by_key(|key| order(&key.id));
    let named: Vec<Value> = sorted.iter().map(|key| json!({"name": key.id, "secret": key.secret.expose()})).collect();
    let identity = json!({"identity": {}});
    let mut providers = Vec::new();
    if !named.is_empty() {
        providers.push(json!({"secretbox": {"keys": named}}));
    }
    match written {
        None => providers.insert(0, identity),
        Some(_) if clear => providers.push(identity),
        Some(_) => {}
    }
    let whole = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    });
    Zeroizing::new(format!("{whole:#}\n").into_bytes())
}

/// Lays the file. Says whether it changed.
///
/// # Errors
/// The file system's; the old content then still stands.
pub fn lay(root: &Path, content: &[u8]) -> io::Result<bool> {
    files::ensure_content(&files::below(root, CONFIGURATION), content, 0o600)
}

/// The file's content as the API server names what it has loaded.
pub fn sum(content: &[u8]) -> String {
    hex::lower(&Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::recovery::Key;
    use contract::secret::Secret;

    #[test]
    fn what_is_written_with_stands_first_and_clear_text_is_read_as_long_as_there_may_be_some() {
        let key = |id: &str| Key { id: id.to_owned(), secret: Secret::new(format!("secret of {id}")) };
        let keys = Keys { keys: vec![key("k1"), key("k2")] };
        let shown = |keys: &Keys, written, clear| -> String {
            let whole: Value = serde_json::from_slice(&content(keys, written, clear)).unwrap();
            assert_eq!(whole["resources"][0]["resources"], json!(["secrets"]));
            let providers = whole["resources"][0]["providers"].as_array().unwrap();
            let names = |provider: &Value| match provider["secretbox"]["keys"].as_array() {
                Some(keys) => keys.iter().map(|key| key["name"].as_str().unwrap()).collect::<Vec<_>>().join("+"),
                None => "clear".to_owned(),
            };
            providers.iter().map(names).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&Keys::default(), None, true), "clear");
        assert_eq!(shown(&keys, None, true), "clear k1+k2");
        assert_eq!(shown(&keys, Some("k2"), true), "k2+k1 clear");
        assert_eq!(shown(&keys, Some("k1"), false), "k1+k2");
    }
}
