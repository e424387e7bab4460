//! What the API server refuses of pods and what it notes of requests: its files, its arguments for them, and what
//! of the host its pod sees for that.

use std::io;
use std::path::Path;

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

use crate::host::files;

/// Where both files are laid at each boot.
pub const DIRECTORY: &str = "/run/kaas/kube-apiserver";
/// What is refused (`AdmissionConfiguration`).
pub const ADMISSION: &str = "/run/kaas/kube-apiserver/admission.json";
/// What is noted (`Policy` of `audit.k8s.io/v1`).
pub const AUDIT: &str = "/run/kaas/kube-apiserver/audit.json";
/// Where it is noted.
pub const LOGS: &str = "/var/log/kubernetes";

/// The file that is written to, in [`LOGS`].
const LOG: &str = "audit.log";
/// A full file gives way to the next one at so many MB …
const LOG_SIZE: u32 = 20;
/// … of so many older ones stay …
const LOG_FILES: u32 = 4;
/// … for so many days at most.
const LOG_DAYS: u32 = 30;

/// Pods there are the appliance's own. In any other namespace, a label can say something else than the default.
const EXEMPT: [&str; 1] = ["kube-system"];

/// What the API server refuses of pods (`apiserver.config.k8s.io/v1`, `pod-security.admission.config.k8s.io/v1`).
fn admission(level: PodSecurity) -> Value {
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

/// What the API server notes: who did what to which object and when, never what was sent or answered. The first rule that
/// fits counts.
fn audit() -> Value {
    let components = [
        "system:apiserver",
        "system:kube-controller-manager",
        "system:kube-proxy",
        "system:kube-scheduler",
        "system:kaas:agent",
        "system:kaas:pod-network",
    ];
    let groups = ["system:nodes", "system:serviceaccounts:kube-system"];
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

/// Lays both files. Says whether one changed. The API server reads them when it starts.
///
/// # Errors
/// The file system's; laying again completes it.
pub fn lay(root: &Path, level: PodSecurity) -> io::Result<bool> {
    let mut changed = false;
    for (path, content) in [(ADMISSION, admission(level)), (AUDIT, audit())] {
        changed |= files::ensure_content(&files::below(root, path), format!("{content:#}\n").as_bytes(), 0o600)?;
    }
    Ok(changed)
}

/// The plugins of admission beyond those that are on by default. The first is kubeadm's own choice, which ours takes the
/// place of. The other one refuses external IPs of Services: whoever may write a Service would take over any address and
/// port with them, those of the nodes, of etcd and of DNS servers included.
const PLUGINS: [&str; 2] = ["NodeRestriction", "DenyServiceExternalIPs"];

/// The arguments that tell the API server what to refuse, and point it to its files: names and values.
pub fn arguments() -> Vec<(&'static str, String)> {
    vec![
        ("enable-admission-plugins", PLUGINS.join(",")),
        ("admission-control-config-file", ADMISSION.to_owned()),
        ("audit-policy-file", AUDIT.to_owned()),
        ("audit-log-path", format!("{LOGS}/{LOG}")),
        ("audit-log-maxsize", LOG_SIZE.to_string()),
        ("audit-log-maxbackup", LOG_FILES.to_string()),
        ("audit-log-maxage", LOG_DAYS.to_string()),
    ]
}

/// What its pod sees of the host for that (`HostPathMount` of `kubeadm.k8s.io/v1beta4`).
pub fn volumes() -> Value {
    json!([
        {"name": "kaas-policy", "hostPath": DIRECTORY, "mountPath": DIRECTORY, "readOnly": true, "pathType": "Directory"},
        {"name": "kaas-audit", "hostPath": LOGS, "mountPath": LOGS, "pathType": "DirectoryOrCreate"},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The level of the first rule that fits.
    fn noted(user: &str, group: &str, verb: &str, resource: (&str, &str)) -> String {
        let policy = audit();
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
        let rules = audit()["rules"].clone();
        let bodies = |rule: &Value| !["None", "Metadata"].contains(&rule["level"].as_str().unwrap());
        assert!(!rules.as_array().unwrap().iter().any(bodies), "bodies hold secrets: {rules:#}");
    }

    #[test]
    fn the_level_is_enforced_everywhere_but_in_kube_system_and_the_log_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        assert!(lay(root.path(), PodSecurity::Baseline).unwrap());
        assert!(!lay(root.path(), PodSecurity::Baseline).unwrap());
        let read =
            || -> Value { serde_json::from_slice(&fs::read(files::below(root.path(), ADMISSION)).unwrap()).unwrap() };
        let configuration = &read()["plugins"][0]["configuration"];
        assert_eq!(configuration["defaults"]["enforce"], "baseline");
        assert_eq!(configuration["exemptions"]["namespaces"], json!(["kube-system"]));
        assert!(lay(root.path(), PodSecurity::Restricted).unwrap());
        assert_eq!(read()["plugins"][0]["configuration"]["defaults"]["enforce"], "restricted");

        let arguments = arguments();
        let number =
            |name: &str| -> u32 { arguments.iter().find(|(known, _)| *known == name).unwrap().1.parse().unwrap() };
        // Zero would mean "without a limit".
        assert!((1..=100).contains(&(number("audit-log-maxsize") * (number("audit-log-maxbackup") + 1))));
        assert!(number("audit-log-maxage") > 0 && number("audit-log-maxbackup") > 0);
        // Each file that is named is below a directory that the pod sees.
        for (name, path) in arguments.iter().filter(|(_, value)| value.starts_with('/')) {
            let seen = |volume: &Value| path.starts_with(volume["mountPath"].as_str().unwrap());
            assert!(volumes().as_array().unwrap().iter().any(seen), "{name}: {path}");
        }
    }
}
