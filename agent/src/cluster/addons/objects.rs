//! Objects that add-ons have in common: who they are to the API server, what they may do there, and where they run.

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

/// A namespace whose pods may do everything.
pub(super) fn privileged_namespace(name: &str) -> Value {
    let level = PodSecurity::Privileged.name();
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/audit": level,
            "pod-security.kubernetes.io/warn": level,
        }},
    })
}

/// An admission policy and its binding. It judges the requests of these operations on a resource of a group: each expression must
/// be true, or its message is the error. `failure` says what happens when an expression cannot be evaluated.
pub(super) fn policy(
    name: &str,
    failure: &str,
    (group, resource, operations): (&str, &str, &[&str]),
    validations: &[(&str, &str)],
) -> [Value; 2] {
    let validations: Vec<Value> = validations
        .iter()
        .map(|(expression, message)| json!({"expression": expression, "message": message, "reason": "Forbidden"}))
        .collect();
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": failure,
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": operations,
                }]},
                "validations": validations,
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// A service account and what it may do: in the whole cluster, and in its own namespace.
pub(super) struct Account<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    /// The name of its cluster role.
    pub cluster_role: &'a str,
    pub everywhere: Value,
    /// No role of its own without any.
    pub at_home: Option<Value>,
}

impl Account<'_> {
    pub(super) fn objects(self) -> Vec<Value> {
        let Self { name, namespace, cluster_role, everywhere, at_home } = self;
        let home = json!({"name": name, "namespace": namespace});
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": cluster_role},
                "rules": everywhere,
            }),
            cluster_binding(cluster_role, cluster_role, name, namespace),
        ];
        if let Some(rules) = at_home {
            objects.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": home,
                "rules": rules,
            }));
            objects.push(binding(name, namespace, name, name));
        }
        objects
    }
}

/// Gives a cluster role to a service account.
pub(super) fn cluster_binding(name: &str, role: &str, account: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

/// Gives a role of a namespace to a service account of it.
pub(super) fn binding(name: &str, namespace: &str, role: &str, account: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

/// What a rule allows: `verbs` on `resources` of a group of the API, each separated by commas.
pub(super) fn rule(group: &str, resources: &str, verbs: &str) -> Value {
    let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    json!({"apiGroups": [group], "resources": words(resources), "verbs": words(verbs)})
}

/// A pod of which the cluster needs one, beside its control plane: workers come and go, and there may be none yet.
pub(super) fn on_control_nodes(account: &str, container: &Value, volumes: &Value) -> Value {
    json!({
        "priorityClassName": "system-cluster-critical",
        "serviceAccountName": account,
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        ],
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65534, "runAsGroup": 65534, "fsGroup": 65534},
        "containers": [container],
        "volumes": volumes,
    })
}

/// What a container may do that needs nothing of its node.
pub(super) fn confined() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// A Deployment of one pod, which is replaced by its next version only when that runs.
pub(super) fn deployment(name: &str, namespace: &str, labels: &Value, pod: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "progressDeadlineSeconds": 300,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}
