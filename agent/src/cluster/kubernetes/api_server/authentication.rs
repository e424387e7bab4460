//! Whom the API server admits: what a request without a credential may reach, and how long tokens of service accounts are valid.

use serde_json::{Value, json};

/// The path of the ConfigMap from which a worker learns the CA (`kubeadm join`).
pub const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The configuration (`AuthenticationConfiguration`).
pub const CONFIGURATION: &str = "/run/kaas/kube-apiserver/authentication.json";

/// The paths, without a query, of requests that need no credential. Kubelets and load balancers probe them, and a worker reads
/// one before it knows the CA.
const ANONYMOUS: [&str; 4] = ["/livez", "/readyz", "/healthz", CLUSTER_INFO];

/// Whom the API server admits (`apiserver.config.k8s.io/v1`, which Kubernetes 1.34 and later read). A request without a
/// credential to any other path is answered with 401. The API server takes up another `jwt` without a restart, and refuses
/// another `anonymous`.
pub(super) fn configuration() -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": ANONYMOUS.map(|path| json!({"path": path}))},
    })
}

/// The arguments: names and values. `--anonymous-auth` and `--oidc-*` cannot be given with the first one.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("authentication-config", CONFIGURATION.to_owned()),
        // Without it, a pod's token is valid for a year instead of an hour.
        ("service-account-extend-token-expiration", "false".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_reach_health_and_discovery_only() {
        let configuration = configuration();
        let conditions = configuration["anonymous"]["conditions"].as_array().unwrap();
        let paths: Vec<_> = conditions.iter().map(|condition| condition["path"].as_str().unwrap()).collect();
        let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
        assert_eq!(paths, ["/livez", "/readyz", "/healthz", info]);
        let arguments = super::super::arguments();
        assert!(arguments.contains(&("service-account-extend-token-expiration", "false".to_owned())));
        assert!(arguments.iter().all(|(name, _)| !name.starts_with("oidc-") && *name != "anonymous-auth"));
    }
}
