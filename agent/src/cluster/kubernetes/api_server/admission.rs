//! What the API server refuses: the plugins of admission, and the level of Pod Security that one of them enforces.

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

/// The plugins' configuration (`AdmissionConfiguration`).
pub const CONFIGURATION: &str = "/run/kaas/kube-apiserver/admission.json";

/// Pods there are the appliance's own. In any other namespace, a label can say something else than the default.
const EXEMPT: [&str; 1] = ["kube-system"];

/// What the API server refuses of pods (`apiserver.config.k8s.io/v1`, `pod-security.admission.config.k8s.io/v1`).
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
                    // Whoever applies a Deployment learns from it that its pods will be refused.
                    "warn": level, "warn-version": "latest",
                },
                "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": EXEMPT},
            },
        }],
    })
}

/// The plugins of admission beyond those that are on by default. The first is kubeadm's own choice, which ours takes the
/// place of. The other one refuses external IPs of Services: whoever may write a Service would take over any address and
/// port with them, those of the nodes, of etcd and of DNS servers included.
const PLUGINS: [&str; 2] = ["NodeRestriction", "DenyServiceExternalIPs"];

/// The arguments that tell the API server which plugins to run, and point it to their configuration: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![("enable-admission-plugins", PLUGINS.join(",")), ("admission-control-config-file", CONFIGURATION.to_owned())]
}
