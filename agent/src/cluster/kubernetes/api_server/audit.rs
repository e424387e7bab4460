//! What the API server notes of requests: its audit policy (`audit.k8s.io/v1`), and the log that it writes.

use serde_json::{Value, json};

pub const POLICY: &str = "/run/kaas/kube-apiserver/audit.json";
/// The directory of the log.
pub const LOGS: &str = "/var/log/kubernetes";

/// The file that is written to, in [`LOGS`].
const LOG: &str = "audit.log";
/// A full file gives way to the next one at so many MB …
const LOG_SIZE: u32 = 20;
/// … of so many older ones stay …
const LOG_FILES: u32 = 4;
/// … for so many days at most.
const LOG_DAYS: u32 = 30;

/// What the API server notes: who did what to which object and when, never what was sent or answered. The first rule that
/// fits counts.
pub(super) fn policy() -> Value {
    let components = [
        "system:apiserver",
        "system:kube-controller-manager",
        "system:kube-proxy",
        "system:kube-scheduler",
        "system:kaas:agent",
        "system:kaas:pod-network",
    ];
    let groups = ["system:nodes", "system:serviceaccounts:kube-system", "system:serviceaccounts:kaas-system"];
    let secrets = json!([
        {"group": "", "resources": ["secrets", "serviceaccounts/token"]},
        {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
    ]);
    let reading = ["get", "list", "watch"];
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/metrics", "/openapi*"]},
            // Whoever reads a Secret is noted, the system's own parts included.
            {"level": "Metadata", "resources": secrets},
            // Programs that are run in pods, and ways into them: over WebSocket these are `get`, as reading is.
            {"level": "Metadata", "resources": [
                {"group": "", "resources": ["pods/exec", "pods/attach", "pods/portforward", "nodes/proxy"]},
            ]},
            // What a cluster does all the time by itself.
            {"level": "None", "resources": [
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ]},
            {"level": "None", "userGroups": ["system:nodes"], "resources": [
                {"group": "", "resources": ["nodes/status", "pods/status"]},
            ]},
            {"level": "None", "users": components, "verbs": reading},
            {"level": "None", "userGroups": groups, "verbs": reading},
            {"level": "Metadata"},
        ],
    })
}

/// The arguments that point the API server to the policy and bound its log: names and values.
pub(super) fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("audit-policy-file", POLICY.to_owned()),
        ("audit-log-path", format!("{LOGS}/{LOG}")),
        ("audit-log-maxsize", LOG_SIZE.to_string()),
        ("audit-log-maxbackup", LOG_FILES.to_string()),
        ("audit-log-maxage", LOG_DAYS.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The level of the first rule that fits.
    fn noted(user: &str, group: &str, verb: &str, resource: (&str, &str)) -> String {
        let policy = policy();
        let has = |list: &Value, what: &str| list.as_array().is_some_and(|list| list.iter().any(|one| one == what));
        let fits = |rule: &&Value| {
            let names = |field: &str, what: &str| rule.get(field).is_none_or(|list| has(list, what));
            let resources = |list: &Value| {
                let mut list = list.as_array().unwrap().iter();
                list.any(|one| one["group"] == resource.0 && has(&one["resources"], resource.1))
            };
            rule.get("nonResourceURLs").is_none()
                && names("users", user)
                && names("userGroups", group)
                && names("verbs", verb)
                && rule.get("resources").is_none_or(resources)
        };
        policy["rules"].as_array().unwrap().iter().find(fits).unwrap()["level"].as_str().unwrap().to_owned()
    }

    #[test]
    fn people_and_readers_of_secrets_are_noted_and_the_clusters_own_noise_is_not() {
        let admins = "kubeadm:cluster-admins";
        let table = [
            ("anna", admins, "get", ("", "pods"), "Metadata"),
            ("anna", admins, "delete", ("apps", "deployments"), "Metadata"),
            ("anna", admins, "create", ("", "pods/exec"), "Metadata"),
            (
                "system:serviceaccount:kube-system:x",
                "system:serviceaccounts:kube-system",
                "get",
                ("", "pods/exec"),
                "Metadata",
            ),
            ("system:node:cp1", "system:nodes", "get", ("", "nodes/proxy"), "Metadata"),
            ("system:serviceaccount:kube-system:x", "system:serviceaccounts:kube-system", "get", ("", "pods"), "None"),
            ("system:node:cp1", "system:nodes", "get", ("", "secrets"), "Metadata"),
            ("system:kube-controller-manager", "", "list", ("", "secrets"), "Metadata"),
            ("system:kube-controller-manager", "", "list", ("", "pods"), "None"),
            ("system:kube-controller-manager", "", "create", ("", "pods"), "Metadata"),
            ("system:node:cp1", "system:nodes", "patch", ("", "nodes/status"), "None"),
            ("system:node:cp1", "system:nodes", "delete", ("", "pods"), "Metadata"),
            ("system:kube-scheduler", "", "update", ("coordination.k8s.io", "leases"), "None"),
        ];
        for (user, group, verb, resource, level) in table {
            assert_eq!(noted(user, group, verb, resource), level, "{user} {verb} {resource:?}");
        }
        let rules = policy()["rules"].clone();
        let bodies = |rule: &Value| !["None", "Metadata"].contains(&rule["level"].as_str().unwrap());
        assert!(!rules.as_array().unwrap().iter().any(bodies), "bodies hold secrets: {rules:#}");
    }
}
