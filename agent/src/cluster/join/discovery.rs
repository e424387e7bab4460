//! The identity of the cluster, from any server: the ConfigMap `cluster-info`. The pinned hash and the token's
//! signature prove it (Kubernetes, "Authenticating with Bootstrap Tokens", "ConfigMap Signing").

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use contract::codes;
use contract::deployer::Fingerprint;
use contract::finding::Finding;
use contract::kubeconfig;
use contract::properties;
use contract::secret::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use x509_parser::pem::Pem;

use super::{Error, refused_token};
use crate::cluster::kubernetes::api_server::authentication;
use crate::cluster::pki;

pub(super) const PATH: &str = authentication::CLUSTER_INFO;

/// How many hashes a finding shows: any server may have sent them.
const NAMED: usize = 3;

/// The prefix of a signature's name. The token's ID follows.
const SIGNATURE: &str = "jws-kubeconfig-";

pub(super) struct Token<'a> {
    pub whole: &'a Secret,
    id: &'a str,
    secret: &'a str,
}

impl<'a> Token<'a> {
    pub fn read(whole: &'a Secret) -> Option<Self> {
        let (id, secret) = whole.expose().split_once('.')?;
        Some(Self { whole, id, secret })
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The cluster's CA certificate in PEM, alone. The token must have signed it.
pub(super) fn verified_ca(info: &[u8], token: &Token<'_>, pinned: &str) -> Result<String, Error> {
    let (map, authority) = read(info, pinned)?;
    let text = map.data.get("kubeconfig").map_or("", String::as_str);
    match map.data.get(&format!("{SIGNATURE}{}", token.id)) {
        None => {
            Err(refused_token("the cluster knows no token of this name: it has expired, was deleted, or was mistyped")
                .into())
        }
        Some(signature) if !signed(text, token, signature) => {
            Err(refused_token("its secret half is not the cluster's").into())
        }
        Some(_) => Ok(authority),
    }
}

/// The pinned CA certificate in PEM, without a check of the signature. The server that this CA certifies is the
/// cluster.
pub(super) fn unsigned_ca(info: &[u8], pinned: &str) -> Result<String, Error> {
    read(info, pinned).map(|(_, authority)| authority)
}

fn read(info: &[u8], pinned: &str) -> Result<(ConfigMap, String), Error> {
    let waits = |what: &str| Error::Waiting(format!("the cluster has not published what proves it yet: {what}"));
    let map: ConfigMap = serde_json::from_slice(info).map_err(|_| waits("cluster-info is no ConfigMap"))?;
    let text = map.data.get("kubeconfig").ok_or_else(|| waits("cluster-info holds no kubeconfig"))?;
    let bundle = kubeconfig::authority(text).map_err(|error| waits(&error.to_string()))?;
    let authority = pinned_of(&bundle, pinned)?;
    Ok((map, authority))
}

/// The certificate of a bundle whose public key has this hash.
fn pinned_of(bundle: &str, pinned: &str) -> Result<String, Finding> {
    let mut seen = Vec::new();
    for pem in Pem::iter_from_buffer(bundle.as_bytes()).flatten() {
        let Ok(certificate) = pem.parse_x509() else { continue };
        let hash = Fingerprint::of(certificate.public_key().raw).to_string();
        if hash == pinned {
            return Ok(pki::pem("CERTIFICATE", &pem.contents));
        }
        seen.push(hash);
    }
    let more = match seen.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    seen.truncate(NAMED);
    let seen = if seen.is_empty() { "none at all".to_owned() } else { seen.join(", ") + &more };
    Err(codes::JOIN_WRONG_CA.finding(
        properties::CLUSTER_CA_HASH,
        format!("the cluster at the address shows {seen}"),
        "Correct the hash or the address; if both are right, something answers in the cluster's place",
    ))
}

/// The hash of the public key of a CA certificate in PEM, as kubeadm writes it. `None` if it is no certificate.
pub(super) fn hash_of(authority: &str) -> Option<String> {
    let pem = Pem::iter_from_buffer(authority.as_bytes()).next()?.ok()?;
    Fingerprint::of_key_of(&pem.contents).map(|hash| hash.to_string())
}

/// Whether the token has signed the text: a detached JWS (RFC 7515, appendix F) with HMAC-SHA-256.
fn signed(text: &str, token: &Token<'_>, signature: &str) -> bool {
    let mut parts = signature.split('.');
    let (Some(header), Some(""), Some(given), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(given) = BASE64_URL_SAFE_NO_PAD.decode(given) else { return false };
    let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(text));
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    hmac::verify(&key, input.as_bytes(), &given).is_ok()
}

#[cfg(test)]
pub(super) mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;
    use crate::fuzz::{Example, fuzz};

    /// The signature that a cluster's controller makes with a token.
    pub(crate) fn sign(text: &str, token: &str) -> (String, String) {
        let (id, secret) = token.split_once('.').unwrap();
        let header = BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
        let input = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(text));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), input.as_bytes());
        (format!("{SIGNATURE}{id}"), format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag.as_ref())))
    }

    #[test]
    fn many_foreign_cas_are_summarized_in_one_line() {
        let certificate = |_| {
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
        };
        let bundle: String = (0..10).map(certificate).collect();
        let finding = pinned_of(&bundle, "sha256:00").unwrap_err();
        assert!(finding.seen.ends_with(" and 7 others") && finding.seen.len() < 400, "{finding}");
        let three: String = (0..3).map(certificate).collect();
        assert!(!pinned_of(&three, "sha256:00").unwrap_err().seen.contains("others"));
    }

    #[test]
    fn signature_by_kubernetes_is_accepted() {
        // Kubernetes' own: k8s.io/cluster-bootstrap/token/jws, jws_test.go.
        let whole = Secret::new("joshua.my voice is my passcode".to_owned());
        let token = Token { whole: &whole, id: "joshua", secret: "my voice is my passcode" };
        let signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        assert!(signed("Hello from the other side. I must have called a thousand times.", &token, signature));
        for other in ["", "..", "a.b.c", &signature.replace("VShe", "VSHe"), &format!("{signature}.x")] {
            assert!(
                !signed("Hello from the other side. I must have called a thousand times.", &token, other),
                "{other}"
            );
        }
        assert!(!signed("Hello from this side.", &token, signature));
    }
    /// Any server at the pinned address answers before it has proved anything.
    #[test]
    fn fuzz_of_cluster_info() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let pinned = hash_of(&certificate.pem()).unwrap();
        let whole = Secret::new("abcdef.0123456789abcdef".to_owned());
        let token = Token::read(&whole).unwrap();
        let kubeconfig = |authority: &str| {
            let authority = BASE64_STANDARD.encode(authority);
            format!(
                "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    \
                 certificate-authority-data: {authority}\n    server: https://192.0.2.1:6443\n"
            )
        };
        let info = |text: String, of: &str| {
            let (name, signature) = sign(&text, of);
            serde_json::to_vec(&serde_json::json!({"data": {"kubeconfig": text, name: signature}})).unwrap()
        };
        let good = info(kubeconfig(&certificate.pem()), whole.expose());
        assert_eq!(verified_ca(&good, &token, &pinned).map_err(|_| ()), Ok(pki::pem("CERTIFICATE", certificate.der())));
        let foreign = info(kubeconfig(&certificate.pem()), "abcdef.fedcba9876543210");
        let other = kubeconfig(&rcgen::CertificateParams::default().self_signed(&key).unwrap().pem());
        let bundle = kubeconfig(&(other.clone() + &certificate.pem()));
        let examples = [good, foreign, info(other, whole.expose()), info(bundle, whole.expose()), b"{}".to_vec()];
        fuzz("what a cluster says of itself", 16 << 20, &examples.map(Example::new), |bytes| {
            // For any answer, the only possible result is the pinned CA.
            if let Ok(found) = verified_ca(bytes, &token, &pinned) {
                assert_eq!(hash_of(&found).as_ref(), Some(&pinned));
            }
        });
    }
}
