//! Encryption keys that come with a snapshot of another cluster. Its nodes were lost, and the operator has opened the
//! keys that the nodes had sealed to the operator's public key. Knows nothing of their later use.

use std::path::Path;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::recovery::{Key, Keys};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::cluster::records::Entry;
use crate::host::files;

/// Keys that the operator has opened and given to a restore. They are kept until the store has them wrapped by this
/// cluster's CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecoveredKeys(pub Keys);

impl Entry for RecoveredKeys {
    const FILE: &'static str = "recovered-keys.json";
    const WHAT: &'static str = "the recovered encryption keys";
}

/// Reads the file of `kaas recovery-key open`. Refuses keys that no API server accepts.
pub fn read(file: &Path) -> anyhow::Result<RecoveredKeys> {
    let keys: Keys = files::read_record(file)?.with_context(|| format!("there is no file {}", file.display()))?;
    let fits = |key: &Key| {
        let id = !key.id.is_empty() && key.id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let bytes = BASE64_STANDARD.decode(key.secret.expose()).map(Zeroizing::new);
        id && bytes.is_ok_and(|bytes| bytes.len() == 32)
    };
    ensure!(!keys.keys.is_empty() && keys.keys.iter().all(fits), "{} holds no encryption keys", file.display());
    Ok(RecoveredKeys(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_for_api_servers_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.json");
        let good = BASE64_STANDARD.encode([7; 32]);
        std::fs::write(&file, format!(r#"{{"keys":[{{"id":"k1","secret":"{good}"}}]}}"#)).unwrap();
        assert_eq!(read(&file).unwrap().0.ids().collect::<Vec<_>>(), ["k1"]);
        let short = BASE64_STANDARD.encode([7; 16]);
        for (id, secret) in [("k1", short.as_str()), ("", &good), ("k:1", &good)] {
            std::fs::write(&file, format!(r#"{{"keys":[{{"id":"{id}","secret":"{secret}"}}]}}"#)).unwrap();
            let refused = format!("{:#}", read(&file).unwrap_err());
            assert!(refused.ends_with("holds no encryption keys") && !refused.contains(secret), "{refused}");
        }
        std::fs::write(&file, r#"{"keys":[]}"#).unwrap();
        assert!(read(&file).is_err() && read(&directory.path().join("none")).is_err());
    }
}
