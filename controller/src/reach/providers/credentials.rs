//! The user and the password of a Provider, from its Secret.

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};

use super::unavailable::UnavailableReason;
use crate::objects::{ProviderSpec, SYSTEM};
use crate::reach::{Objects, kinds};

/// No format shows the password.
pub struct Credentials {
    /// Such as `kaas@vsphere.local`.
    pub user: String,
    pub password: vsphere::Secret,
    /// A SHA-256 digest of both. It changes if either of them changes.
    pub digest: [u8; 32],
}

/// Reads the current credentials.
pub async fn credentials(objects: &dyn Objects, provider: &ProviderSpec) -> Result<Credentials, UnavailableReason> {
    let name = &provider.credentials_ref.name;
    let secret = kinds::find::<Secret>(objects, Some(SYSTEM), name).await.map_err(UnavailableReason::NotKnown)?;
    let secret = secret.ok_or_else(|| UnavailableReason::Secret(format!("there is no Secret {name} in {SYSTEM}")))?;
    of(&secret).map_err(|words| UnavailableReason::Secret(format!("the Secret {name} in {SYSTEM} {words}")))
}

fn of(secret: &Secret) -> Result<Credentials, String> {
    let text = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key)).filter(|value| !value.0.is_empty());
        let value = value.ok_or_else(|| format!("has no {key}"))?;
        std::str::from_utf8(&value.0).map(str::to_owned).map_err(|_| format!("has a {key} that is no text"))
    };
    // A line break at the end of a file is not part of the value: vCenter accepts neither with one.
    let [user, password] =
        [text("username")?, text("password")?].map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
    let mut digest = Sha256::new();
    digest.update((user.len() as u64).to_le_bytes());
    digest.update(user.as_bytes());
    digest.update(password.as_bytes());
    Ok(Credentials { user, password: vsphere::Secret::new(password), digest: digest.finalize().into() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(entries: &[(&str, &[u8])]) -> Secret {
        let data = entries.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
        Secret { data: Some(data.collect::<BTreeMap<_, _>>()), ..Secret::default() }
    }

    #[test]
    fn the_digest_changes_with_user_or_password() {
        let read = |user: &str, password: &str| {
            of(&secret(&[("username", user.as_bytes()), ("password", password.as_bytes())]))
        };
        let own = read("kaas@vsphere.local\n", "geheim").unwrap();
        assert_eq!(own.user, "kaas@vsphere.local");
        assert_eq!(own.digest, read("kaas@vsphere.local", "geheim\r\n").unwrap().digest);
        for (user, password) in [("kaas@vsphere.local", "other"), ("kaas", "geheim"), ("kaas@vsphere.localg", "eheim")]
        {
            assert_ne!(own.digest, read(user, password).unwrap().digest);
        }
        let wrong = |entries: &[(&str, &[u8])]| of(&secret(entries)).err().unwrap();
        assert_eq!(wrong(&[("username", b"x")]), "has no password");
        assert_eq!(wrong(&[("password", b"x"), ("username", b"")]), "has no username");
        assert_eq!(wrong(&[("username", b"\xff"), ("password", b"x")]), "has a username that is no text");
        assert_eq!(of(&Secret::default()).err().unwrap(), "has no username");
    }
}
