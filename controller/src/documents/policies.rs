//! Checks that the rules of a kind cannot make: policies of the API server, so that no webhook is needed.

use serde_json::{Value, json};

use super::rights::ACCOUNT;
use crate::decisions::{
    FORMER_KEYS_TYPE, KEYS_TYPE, KUBECONFIG_TYPE, MACHINE_FINALIZER, NAMESPACES_IN_USE, former_keys_secret,
    kubeconfig_secret,
};
use crate::objects::{CONFIRM_DELETE, DO, GROUP, SYSTEM};

/// The policies, each with its binding, by the names of their files.
pub(super) fn policies() -> Vec<(&'static str, [Value; 2])> {
    vec![
        ("confirm-delete", confirmation()),
        ("controller-secrets", secrets()),
        ("fixed-operations", operations()),
        ("kept-finalizers", finalizers()),
        ("kept-records", records()),
        ("kept-secrets", cluster_secrets()),
        ("named-secrets", named_secrets()),
        ("namespace-in-use", namespaces()),
        ("node-labels", labels()),
    ]
}

/// Deletes objects whose owner does not exist.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// Deletes all objects of a namespace that is being deleted.
const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// A cluster is deleted only with an annotation that names it.
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
    policy("confirm-delete", GROUP, &["DELETE"], &["tenantclusters"], vec![validation])
}

/// Only a controller removes its finalizers, after it has released VMs and addresses. Without the finalizer, VMs would run
/// unmanaged at addresses that others get. An administrator of the control cluster may remove one if no controller is left.
fn finalizers() -> [Value; 2] {
    let stays = format!(
        "!has(oldObject.metadata.finalizers) || oldObject.metadata.finalizers.all(kept, !kept.startsWith('{GROUP}/') || \
         (has(object.metadata.finalizers) && kept in object.metadata.finalizers))"
    );
    let message = format!(
        "the finalizer of {GROUP} is removed by the controller, once VMs and addresses are released; by hand only by \
         a user who may update the finalizers of this kind"
    );
    let validation = json!({"expression": format!("{stays} || {}", runs_all()), "message": message});
    let resources = ["nodepools", "tenantclusters"];
    let [mut policy, binding] = policy("kept-finalizers", GROUP, &["UPDATE"], &resources, vec![validation]);
    policy["spec"]["matchConditions"] = by_controller("not-of-the-controller", "!=");
    [policy, binding]
}

/// A namespace is not deleted while clusters use it: the deletion cannot be withdrawn, and nothing can be created there meanwhile.
/// `kaas-system` is not deleted while there is a cluster. If the list is missing, it is unknown which namespaces are in use, so
/// none is deleted until the controller creates the list again.
fn namespaces() -> [Value; 2] {
    let users = format!(
        "has(params.data) ? params.data.filter(key, oldObject.metadata.name == '{SYSTEM}' || \
         key.startsWith(oldObject.metadata.name + '.')) : []"
    );
    let message = "'clusters use the namespace ' + oldObject.metadata.name + ': first delete ' + \
                   variables.users.map(key, key.split('.')[0] + '/' + params.data[key]).join(', ') + \
                   ' with kaas cluster delete'";
    // An API server cuts off no message: it uses this one instead of a message over 5 KiB.
    let of_many = "clusters use the namespace: first delete each of them with kaas cluster delete";
    let validation =
        json!({"expression": "size(variables.users) == 0", "messageExpression": message, "message": of_many});
    let [mut policy, mut binding] = policy("namespace-in-use", "", &["DELETE"], &["namespaces"], vec![validation]);
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    policy["spec"]["variables"] = json!([{"name": "users", "expression": users}]);
    binding["spec"]["paramRef"] =
        json!({"name": NAMESPACES_IN_USE, "namespace": SYSTEM, "parameterNotFoundAction": "Deny"});
    [policy, binding]
}

/// Journals, addresses and Machines of control-plane nodes are deleted by the controller, or after their owner. A tenant may
/// delete the Machine of a worker: another worker replaces it. The deletion of a namespace deletes none of them, and no cluster
/// or pool.
fn records() -> [Value; 2] {
    let none = |resource: &str| format!("request.resource.resource != '{resource}'");
    let is_free = format!(
        "{} || oldObject.spec.role != 'ControlPlane' || !has(oldObject.metadata.finalizers) || \
         !('{MACHINE_FINALIZER}' in oldObject.metadata.finalizers)",
        none("machines")
    );
    let validations = [
        (
            format!("request.userInfo.username != '{NAMESPACE_CONTROLLER}'"),
            "the deletion of a namespace deletes no clusters, pools, Machines or Operations: first delete its clusters \
             with kaas cluster delete",
        ),
        (
            none("operations"),
            "an Operation is a journal and is deleted with its cluster: to end it, annotate it with kaas.local/do=abandon",
        ),
        (
            none("pooladdresses"),
            "the controller deletes a PoolAddress when no VM has the address: delete the cluster or the worker that has it",
        ),
        (
            is_free,
            "the Machine of a control-plane node is deleted with its cluster: to delete the cluster, use kaas cluster delete",
        ),
    ];
    let validations = validations.map(|(expression, message)| json!({"expression": expression, "message": message}));
    let resources = ["machines", "nodepools", "operations", "pooladdresses", "tenantclusters"];
    let [mut policy, binding] = policy("kept-records", GROUP, &["DELETE"], &resources, validations.to_vec());
    policy["spec"]["matchConditions"] = by_others();
    [policy, binding]
}

/// The deployer's key and the deployment secret exist once, so the Secret with them is deleted with the cluster. An owner that does
/// not exist would delete it too, so its owners stay. The Secret with the kubeconfig may be deleted: the controller writes another.
fn cluster_secrets() -> [Value; 2] {
    let is_former = is_of_cluster("oldObject", &[former_keys_secret("")]);
    let is_kept = format!("({is_former}) || (has(oldObject.type) && oldObject.type == '{KEYS_TYPE}')");
    let expression =
        format!("!({is_kept}) || (request.operation == 'UPDATE' && {})", same(".metadata", "ownerReferences"));
    let message = "the cluster is lost without this Secret, which is deleted with the cluster: to delete the cluster, use \
                   kaas cluster delete";
    let validation = json!({"expression": expression, "message": message});
    let [mut policy, binding] = policy("kept-secrets", "", &["UPDATE", "DELETE"], &["secrets"], vec![validation]);
    policy["spec"]["matchConditions"] = by_others();
    [policy, binding]
}

/// Whether a Secret is a cluster's own in the cluster's namespace: by its owner, and by its name, which has one of these endings.
fn is_of_cluster(secret: &str, endings: &[String]) -> String {
    let names: Vec<String> = endings.iter().map(|ending| format!("owner.name + '{ending}'")).collect();
    let names = names.join(", ");
    format!(
        "has({secret}.metadata.ownerReferences) && {secret}.metadata.ownerReferences.exists(owner, \
         owner.apiVersion.startsWith('{GROUP}/') && owner.kind == 'TenantCluster' && \
         {secret}.metadata.name in [{names}])"
    )
}

/// Whether the requester may administer the control cluster. The check is the right to update finalizers.
fn runs_all() -> String {
    format!(
        "authorizer.group('{GROUP}').resource(request.resource.resource).subresource('finalizers')\
         .namespace(request.namespace).check('update').allowed()"
    )
}

/// Whether a field of an object is unchanged.
fn same(place: &str, field: &str) -> String {
    let (now, before) = (format!("object{place}.{field}"), format!("oldObject{place}.{field}"));
    format!("has({now}) == has({before}) && (!has({now}) || {now} == {before})")
}

/// An Operation is the journal of changes to VMs, so its users may only set the annotation. A missing owner would delete it, a
/// finalizer would keep it, and labels and owners are used to find it.
fn operations() -> [Value; 2] {
    let stays = ["labels", "ownerReferences"].map(|field| same(".metadata", field)).join(" && ");
    let none_new = "(!has(object.metadata.finalizers) || object.metadata.finalizers.all(kept, \
                    has(oldObject.metadata.finalizers) && kept in oldObject.metadata.finalizers))";
    let of_both = format!(
        "variables.now.all(key, key == '{DO}' || (key in variables.before && variables.now[key] == variables.before[key])) && \
         variables.before.all(key, key == '{DO}' || key in variables.now)"
    );
    let message = format!("of an Operation nothing is changed by hand but the annotation {DO}: it is a journal");
    let expression = format!("({stays} && {none_new} && {of_both}) || {}", runs_all());
    let validation = json!({"expression": expression, "message": message});
    let [mut policy, binding] = policy("fixed-operations", GROUP, &["UPDATE"], &["operations"], vec![validation]);
    let annotations = |of: &str| format!("has({of}.metadata.annotations) ? {of}.metadata.annotations : {{}}");
    policy["spec"]["variables"] = json!([
        {"name": "now", "expression": annotations("object")},
        {"name": "before", "expression": annotations("oldObject")},
    ]);
    policy["spec"]["matchConditions"] = by_controller("not-of-the-controller", "!=");
    [policy, binding]
}

/// The places in a cluster's spec that name a Secret of its namespace.
const REFERENCES: [(&str, &str); 4] = [
    ("site", "consolePasswordRef"),
    ("backup", "credentialsRef"),
    ("restore", "recoveryKeyRef"),
    ("restore", "credentialsRef"),
];

/// A controller reads each Secret that a cluster names. Its content reaches the cluster's nodes and the server of its backups. So
/// a user who names a Secret must be allowed to read it. A Secret that was named before needs no such right, unless site, backup
/// or restore change. These decide who logs in to nodes, which proxies and CAs nodes trust, and where snapshots are sent. Names
/// of Secrets have no slash (RFC 1123).
fn named_secrets() -> [Value; 2] {
    let names = |of: &str| {
        let name = |(part, field)| {
            let place = format!("{of}.spec.{part}");
            format!("(has({place}) && has({place}.{field}) ? ['{part}.{field}/' + {place}.{field}.name] : [])")
        };
        REFERENCES.map(name).join(" + ")
    };
    let mut parts: Vec<&str> = REFERENCES.iter().map(|(part, _)| *part).collect();
    parts.dedup();
    let stays: Vec<String> = parts.into_iter().map(|part| same(".spec", part)).collect();
    let expression = "variables.named.all(named, (named in variables.before && !variables.isMoved) || \
                      authorizer.group('').resource('secrets').namespace(request.namespace).name(named.split('/')[1])\
                      .check('get').allowed())";
    let message = "who names a Secret in the spec, or changes site, backup or restore of a cluster that names one, has to be allowed to \
                   get it: what it holds comes to the cluster's nodes";
    let validation = json!({"expression": expression, "message": message});
    let mut made = policy("named-secrets", GROUP, &["CREATE", "UPDATE"], &["tenantclusters"], vec![validation]);
    made[0]["spec"]["variables"] = json!([
        {"name": "named", "expression": names("object")},
        {"name": "before", "expression": format!("request.operation == 'CREATE' ? [] : {}", names("oldObject"))},
        {"name": "isMoved", "expression": format!("request.operation == 'UPDATE' && !({})", stays.join(" && "))},
    ]);
    made
}

/// A domain (RFC 1035, section 2.3.4) and a slash or nothing, then a name.
const KEY: &str = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// Keys of labels that a node may not set itself, the same as `contract` checks in a node's OVF properties. Otherwise the node
/// would reject them after its VM was created. A rule of the kind cannot read keys: an API server estimates their length by that
/// of a request.
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
    policy("node-labels", GROUP, &["CREATE", "UPDATE"], &["nodepools"], validations.to_vec())
}

/// Kubernetes puts a token into a Secret that names a service account, whatever the rights of that account. With the rights to
/// create or change Secrets and to read them, the controller would also have those rights. RBAC cannot limit rights to names that
/// do not exist yet, or to types. A controller creates two Secrets for each cluster: the kubeconfig in the cluster's
/// namespace, and the keys in its own, with a separate type. It changes only the metadata of other Secrets there.
fn secrets() -> [Value; 2] {
    let keys = former_keys_secret("");
    let variables = json!([
        // The new or existing object. These fields cannot change in the same request.
        {"name": "secret", "expression": "request.operation == 'CREATE' ? object : oldObject"},
        {"name": "isHome", "expression": format!("request.namespace == '{SYSTEM}'")},
        {
            "name": "isKeys",
            "expression": format!(
                "variables.isHome && has(variables.secret.type) && variables.secret.type == '{KEYS_TYPE}'"
            ),
        },
        {"name": "isOwn", "expression": is_of_cluster("variables.secret", &[kubeconfig_secret(""), keys.clone()])},
        {
            "name": "isOfType",
            "expression": format!(
                "variables.secret.type == (variables.secret.metadata.name.endsWith('{keys}') ? '{FORMER_KEYS_TYPE}' : \
                 '{KUBECONFIG_TYPE}')"
            ),
        },
    ]);
    let stays = [("", "type"), ("", "data"), ("", "immutable"), (".metadata", "ownerReferences")];
    let stays = stays.map(|(place, field)| same(place, field)).join(" && ");
    let validations = [
        (
            "variables.isOwn || variables.isKeys || (variables.isHome && request.operation == 'UPDATE')".to_owned(),
            "a controller creates, changes and removes only the two Secrets of a cluster: one names it as its owner, the other has \
             the type of its keys",
        ),
        (
            "!variables.isOwn || request.operation == 'DELETE' || variables.isOfType".to_owned(),
            "a controller creates and changes only Secrets of its two types",
        ),
        (
            format!(
                "variables.isOwn || variables.isKeys || request.operation != 'UPDATE' || \
                 (object.type != 'kubernetes.io/service-account-token' && {stays})"
            ),
            "a controller changes nothing but metadata of the Secrets in its own namespace",
        ),
    ];
    let validations = validations.map(|(expression, message)| json!({"expression": expression, "message": message}));
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let [mut policy, binding] = policy("controller-secrets", "", &operations, &["secrets"], validations.to_vec());
    policy["spec"]["variables"] = variables;
    policy["spec"]["matchConditions"] = by_controller("of-the-controller", "==");
    [policy, binding]
}

/// Selects the requests of the controller's account, or all others.
fn by_controller(name: &str, is: &str) -> Value {
    json!([{"name": name, "expression": format!("request.userInfo.username {is} '{}'", account())}])
}

/// Selects the requests of all but the controller and the garbage collector.
fn by_others() -> Value {
    let expression = format!("!(request.userInfo.username in ['{}', '{COLLECTOR}'])", account());
    json!([{"name": "of-others", "expression": expression}])
}

fn account() -> String {
    format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}")
}

/// A policy for kinds of one group, with its binding.
fn policy(name: &str, group: &str, operations: &[&str], resources: &[&str], validations: Vec<Value>) -> [Value; 2] {
    let name = format!("{name}.{GROUP}");
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": operations,
                    "resources": resources,
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

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;

    use super::*;
    use crate::objects::TenantCluster;

    /// The fields below a schema that name a Secret, each with its part of the spec.
    fn references(part: &str, schema: &Value, found: &mut Vec<(String, String)>) {
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let says = below["description"].as_str().unwrap_or_default();
            if name.ends_with("Ref") && says.contains("Secret") {
                found.push((part.to_owned(), name.clone()));
            }
            references(if part.is_empty() { name.as_str() } else { part }, below, found);
        }
    }

    /// An API server asks each policy for each request to its kind.
    #[test]
    fn policies_are_at_most_twelve() {
        assert!(policies().len() <= 12, "{}", policies().len());
    }

    #[test]
    fn policy_covers_all_fields_that_name_secrets() {
        let kind = serde_json::to_value(TenantCluster::crd()).unwrap();
        let spec = &kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut found = Vec::new();
        references("", spec, &mut found);
        found.sort();
        let mut asked = REFERENCES.map(|(part, field)| (part.to_owned(), field.to_owned()));
        asked.sort();
        assert_eq!(found, asked);
    }
}
