//! What an API server judges of an object that the rules of its kind cannot: policies of its own, so that no webhook has to answer.

use serde_json::{Value, json};

use crate::objects::{CONFIRM_DELETE, GROUP};

/// The policies, each with its binding, by the names of their files.
pub(super) fn policies() -> Vec<(&'static str, [Value; 2])> {
    vec![("confirm-delete", confirmation()), ("node-labels", labels())]
}

/// Whoever deletes a cluster names it. Deleting its namespace is held up by this as well.
fn confirmation() -> [Value; 2] {
    let expression = format!(
        "has(oldObject.metadata.annotations) && '{CONFIRM_DELETE}' in oldObject.metadata.annotations && \
         oldObject.metadata.annotations['{CONFIRM_DELETE}'] == oldObject.metadata.name"
    );
    let message = format!(
        "'a cluster is deleted with its VMs and their disks: confirm it with kubectl annotate --namespace ' + \
         oldObject.metadata.namespace + ' tenantcluster ' + oldObject.metadata.name + ' {CONFIRM_DELETE}=' + \
         oldObject.metadata.name"
    );
    let validation = json!({"expression": expression, "messageExpression": message});
    policy("confirm-delete", &["DELETE"], "tenantclusters", vec![validation])
}

/// A domain (RFC 1035, section 2.3.4) and a slash or nothing, then a name.
const KEY: &str = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// Keys of labels that a node may not give itself, as `contract` has it of the form of a node, which would be refused otherwise
/// after its VM was made. A rule of the kind cannot look into keys: an API server takes them for as long as a request may be.
fn labels() -> [Value; 2] {
    let all = |expression: &str| format!("!has(object.spec.labels) || object.spec.labels.all(key, {expression})");
    let is_key = format!(
        "size(key) <= 317 && key.matches(r'{KEY}') && key.indexOf('/') <= 253 && !key.matches(r'^([^/]*\\.)?[0-9]+/')"
    );
    let is_own = "!key.startsWith('kaas.local/') && (!key.matches(r'^([^/]*\\.)?(kubernetes|k8s)\\.io/') || \
                  key.matches(r'^([^/]*\\.)?(kubelet|node)\\.kubernetes\\.io/') || \
                  key in ['topology.kubernetes.io/zone', 'topology.kubernetes.io/region'])";
    let validations = [
        (
            is_key.as_str(),
            "spec.labels has a key that is no label's: at most 63 letters, digits, dashes, underscores and dots, and \
                           before them a domain and a slash or nothing",
        ),
        (
            is_own,
            "spec.labels has a key that is not a node's own to set: leave it out, and label nodes with kubectl once they have \
                  joined",
        ),
    ];
    let validations =
        validations.map(|(expression, message)| json!({"expression": all(expression), "message": message}));
    policy("node-labels", &["CREATE", "UPDATE"], "nodepools", validations.to_vec())
}

/// A policy for one kind, and what has it refuse.
fn policy(name: &str, operations: &[&str], resource: &str, validations: Vec<Value>) -> [Value; 2] {
    let name = format!("{name}.{GROUP}");
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [GROUP],
                    "apiVersions": ["*"],
                    "operations": operations,
                    "resources": [resource],
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
