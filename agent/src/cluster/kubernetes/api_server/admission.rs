//! The admission plugins of the API server, and the level of Pod Security that one of them enforces.

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

/// The plugins' configuration (`AdmissionConfiguration`).
pub const CONFIGURATION: &str = "/run/kaas/kube-apiserver/admission.json";

/// Its pods are the appliance's. In any other namespace, a label can override the default.
const EXEMPT: [&str; 1] = ["kube-system"];

/// The levels for pods (`apiserver.config.k8s.io/v1`, `pod-security.admission.config.k8s.io/v1`).
pub(super) fn configuration(level: PodSecurity) -> Value {
    let level = level.name();
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{
            "name": "PodSecurity",
            "configuration": {
                "apiVersion": "pod-security.admission.config.k8s.io/v1",
                "kind": "PodSecurityConfiguration",
                "defaults": {
                    "enforce": level, "enforce-version": "latest",
                    "audit": level, "audit-version": "latest",
                    // A client that applies a Deployment gets the warning that its pods will be refused.
                    "warn": level, "warn-version": "latest",
                },
                "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": EXEMPT},
            },
        }],
    })
}

/// Admission plugins in addition to the default ones. The first is kubeadm's own choice, which this list replaces. The
/// second refuses external IPs of Services. With them, a writer of Services could take over any address and port,
/// including those of nodes, etcd and DNS servers.
const PLUGINS: [&str; 2] = ["NodeRestriction", "DenyServiceExternalIPs"];

/// The arguments with the plugins and the path of their configuration: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![("enable-admission-plugins", PLUGINS.join(",")), ("admission-control-config-file", CONFIGURATION.to_owned())]
}
