//! metrics-server: what nodes and pods use, for `kubectl top` and for horizontal scaling. The objects follow upstream's
//! (`manifests/base`); both ends are verified: it checks the certificates of kubelets, which the cluster's authority has
//! signed, and the API server checks its, which is made here.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::image;
use contract::properties::CLUSTER_METRICS;
use contract::secret::Secret;
use serde_json::{Value, json};

use super::LABEL;
use super::objects::{Account, binding, cluster_binding, confined, deployment, on_control_nodes, rule};
use crate::cluster::pki::{self, CertificateWithKey, Leaf, RENEW_BEFORE};

pub(super) const IMAGE: &str = "metrics-server";
/// Of most of its objects.
const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
/// The Secret with its certificate and key.
pub const CERTIFICATE: &str = "metrics-server-certificate";
/// By which requests for metrics are led there.
const REGISTRATION: &str = "v1beta1.metrics.k8s.io";
/// Where its pod sees them.
const MOUNTED: &str = "/certificate";
/// Where its pod sees the cluster's authority.
const AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const PORT: u16 = 10250;

pub(super) fn objects() -> Vec<Value> {
    let labels = json!({"k8s-app": NAME});
    let account = Account {
        name: NAME,
        namespace: NAMESPACE,
        cluster_role: "system:metrics-server",
        everywhere: json!([rule("", "nodes/metrics", "get"), rule("", "pods,nodes", "get,list,watch")]),
        at_home: None,
    };
    let mut objects = account.objects();
    let delegator = cluster_binding("metrics-server:system:auth-delegator", "system:auth-delegator", NAME, NAMESPACE);
    let reader = binding("metrics-server-auth-reader", NAMESPACE, "extension-apiserver-authentication-reader", NAME);
    objects.extend([
        delegator,
        reader,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:aggregated-metrics-reader", "labels": {
                "rbac.authorization.k8s.io/aggregate-to-admin": "true",
                "rbac.authorization.k8s.io/aggregate-to-edit": "true",
                "rbac.authorization.k8s.io/aggregate-to-view": "true",
            }},
            "rules": [rule("metrics.k8s.io", "pods,nodes", "get,list,watch")],
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"selector": labels, "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": PORT}]},
        }),
        deployment(NAME, NAMESPACE, &labels, &pod()),
    ]);
    objects
}

fn pod() -> Value {
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": PORT, "scheme": "HTTPS"}, "periodSeconds": 10});
    let container = json!({
        "name": NAME,
        "image": image::reference(IMAGE, image::CARRIED),
        "imagePullPolicy": "IfNotPresent",
        "args": [
            format!("--secure-port={PORT}"),
            format!("--tls-cert-file={MOUNTED}/tls.crt"),
            format!("--tls-private-key-file={MOUNTED}/tls.key"),
            format!("--kubelet-certificate-authority={AUTHORITY}"),
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--metric-resolution=15s",
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}, "limits": {"memory": "400Mi"}},
        "ports": [{"containerPort": PORT, "name": "https", "protocol": "TCP"}],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        "securityContext": confined(),
        "volumeMounts": [{"name": "certificate", "mountPath": MOUNTED, "readOnly": true}],
    });
    let volumes = json!([{"name": "certificate", "secret": {"secretName": CERTIFICATE}}]);
    on_control_nodes(NAME, &container, &volumes)
}

/// What its certificate says: the name that the API server asks for.
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

/// A new certificate and key for it, and what leads requests for metrics there, with the authority that is to have signed it.
/// Nodes that do this at once do no harm: they have the same authority.
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

/// What leads requests for metrics to it, by kind and name alone.
pub fn registration() -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": REGISTRATION}})
}

/// What [`credentials`] makes, by kind and name alone.
pub fn beside() -> Vec<Value> {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CERTIFICATE, "namespace": NAMESPACE}});
    vec![secret, registration()]
}

/// Whether a Secret, as the API server has it, holds a certificate of this authority that is good for long.
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
    fn a_certificate_is_kept_until_it_ends_soon_or_another_authority_counts() {
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
    fn nothing_is_taken_unverified() {
        let said = format!(
            "{:?} {:?}",
            objects(),
            credentials(&CertificateAuthorities::make(SystemTime::now()).unwrap().kubernetes, SystemTime::now())
        );
        assert!(!said.contains("insecure"), "{said}");
        assert!(said.contains("--kubelet-certificate-authority="), "{said}");
    }
}
