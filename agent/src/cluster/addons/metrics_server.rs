//! metrics-server: usage of nodes and pods, for `kubectl top` and for horizontal scaling. It verifies the certificates of kubelets,
//! which the cluster's CA has signed. The API server verifies its certificate, which is issued here.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::properties::CLUSTER_METRICS;
use contract::secret::Secret;
use serde_json::{Value, json};

use super::{LABEL, manifest};
use crate::cluster::pki::{self, CertificateWithKey, Leaf, RENEW_BEFORE};

pub(super) const IMAGE: &str = "metrics-server";
const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
/// The Secret with its certificate and key.
pub const CERTIFICATE: &str = "metrics-server-certificate";
/// The APIService that routes requests for metrics to it.
const REGISTRATION: &str = "v1beta1.metrics.k8s.io";

pub(super) fn objects() -> Vec<Value> {
    manifest::objects(include_str!("metrics_server.yaml"), [("CERTIFICATE", CERTIFICATE.into())])
}

/// The contents of its certificate, with the name that the API server requests.
fn leaf() -> Leaf {
    Leaf {
        common_name: NAME.to_owned(),
        group: None,
        names: [format!("{NAME}.{NAMESPACE}.svc")].into(),
        addresses: [].into(),
        server: true,
        client: false,
    }
}

/// A Secret with a new certificate and key for it, and the APIService with the CA that signed it. Nodes may do this at the same
/// time: they have the same CA.
pub fn credentials(authority: &CertificateWithKey, now: SystemTime) -> Result<Vec<Value>, pki::Error> {
    let made = leaf().issue(authority, now)?;
    let labels = json!({LABEL: CLUSTER_METRICS});
    Ok(vec![
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": CERTIFICATE, "namespace": NAMESPACE, "labels": labels},
            "data": {"tls.crt": STANDARD.encode(&made.certificate), "tls.key": STANDARD.encode(made.key.expose())},
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": REGISTRATION, "labels": labels},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "service": {"name": NAME, "namespace": NAMESPACE},
                "caBundle": STANDARD.encode(&authority.certificate),
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }),
    ])
}

/// Its APIService, by kind and name only.
pub fn registration() -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": REGISTRATION}})
}

/// The objects of [`credentials`], by kind and name only.
pub fn beside() -> Vec<Value> {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATE, "namespace": NAMESPACE}});
    vec![secret, registration()]
}

/// Whether a Secret, as JSON of the API server, has a certificate of this CA that does not expire before [`RENEW_BEFORE`].
pub fn holds(secret: &[u8], authority: &CertificateWithKey, now: SystemTime) -> bool {
    let Ok(secret) = serde_json::from_slice::<Value>(secret) else { return false };
    let text = |name: &str| String::from_utf8(STANDARD.decode(secret["data"][name].as_str()?).ok()?).ok();
    let (Some(certificate), Some(key)) = (text("tls.crt"), text("tls.key")) else { return false };
    let present = CertificateWithKey { certificate, key: Secret::new(key) };
    pki::verified(&present, authority, now).is_ok_and(|ends| ends > now + RENEW_BEFORE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::pki::CertificateAuthorities;
    use std::time::Duration;

    #[test]
    fn certificate_is_kept_until_expiry_or_another_ca() {
        let now = SystemTime::now();
        let authority = CertificateAuthorities::make(now).unwrap().kubernetes;
        let made = credentials(&authority, now).unwrap();
        let secret = made[0].to_string().into_bytes();
        assert!(holds(&secret, &authority, now));
        assert!(!holds(&secret, &authority, now + Duration::from_secs(300 * 24 * 60 * 60)));
        assert!(!holds(&secret, &CertificateAuthorities::make(now).unwrap().kubernetes, now));
        assert!(!holds(b"", &authority, now), "there is none");
        let bundle = STANDARD.decode(made[1]["spec"]["caBundle"].as_str().unwrap()).unwrap();
        assert_eq!(bundle, authority.certificate.as_bytes());
    }

    #[test]
    fn certificates_are_verified() {
        let said = format!(
            "{:?} {:?}",
            objects(),
            credentials(&CertificateAuthorities::make(SystemTime::now()).unwrap().kubernetes, SystemTime::now())
        );
        assert!(!said.contains("insecure"), "{said}");
        assert!(said.contains("--kubelet-certificate-authority="), "{said}");
    }
}
