//! Digests of texts with secrets, for places that others can read: HMAC-SHA256 (RFC 2104) under a key that only the deployer
//! has. Without the key, a guess at the text cannot be checked.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

/// The purpose of the derived key, which signs nothing else. Digests are stored: another text here would change all of them.
const PURPOSE: &str = concat!("kaas digests of what a deployer has told ", "his", " nodes");

/// Makes digests. Clones make the same ones.
#[derive(Clone)]
pub struct Digests(Key);

impl Digests {
    /// Under a secret of at least 128 bits.
    pub fn of(secret: &[u8]) -> Self {
        let derived = sign(&Key::new(HMAC_SHA256, secret), PURPOSE.as_bytes());
        Self(Key::new(HMAC_SHA256, derived.as_ref()))
    }

    /// The digest of a text, in hexadecimal digits. Texts of different kinds never have the same one.
    pub fn digest(&self, kind: &str, text: &str) -> String {
        let tag = sign(&self.0, format!("{} {kind} {text}", kind.len()).as_bytes());
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Without the key.
impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digests")
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrivateKey;
    use super::*;

    #[test]
    fn digests_depend_on_key_kind_and_text() {
        let (key, other) = (PrivateKey::draw().unwrap(), PrivateKey::draw().unwrap());
        let digest = |key: &PrivateKey, kind, text| key.digests().unwrap().digest(kind, text);
        let one = digest(&key, "form", "a=b");
        assert_eq!(one.len(), 64);
        let again = PrivateKey::of_pem(key.pem().expose()).unwrap();
        assert_eq!(digest(&again, "form", "a=b"), one, "the same key, read again");
        for different in [digest(&other, "form", "a=b"), digest(&key, "secret", "a=b"), digest(&key, "form", "a=c")] {
            assert_ne!(different, one);
        }
        assert_ne!(digest(&key, "a", "b c"), digest(&key, "a b", "c"));
        assert_eq!(format!("{:?}", key.digests().unwrap()), "Digests");
    }

    /// Versions compare their digests with those that earlier versions stored.
    #[test]
    fn digests_stay_what_they_are() {
        let digest = Digests::of(b"a secret of the deployer's").digest("form", "a=b");
        assert_eq!(digest, "997e32e8b304dbb7d70da350adba32ca3fd4a90afef7a5ec753fe61dbf084e39");
    }
}
