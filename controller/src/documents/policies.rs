//! Checks that the rules of a kind cannot make: policies of the API server, so that no webhook is needed.

use serde_json::{Value, json};

use super::rights::ACCOUNT;
use crate::decisions::{
    FORMER_KEYS_TYPE, INPUT_TYPE, KEYS_TYPE, KUBECONFIG_TYPE, MACHINE_FINALIZER, NAMESPACES_IN_USE, former_keys_secret,
    kubeconfig_secret,
};
use crate::objects::{CONFIRM_DELETE, DO, GROUP, HOST_IS_OFF, SYSTEM, VERSION};

/// The policies, each with its binding, by the names of their files.
pub(super) fn policies() -> Vec<(&'static str, [Value; 2])> {
    vec![
        ("cluster-input", cluster_input()),
        ("confirm-delete", confirmation()),
        ("controller-secrets", secrets()),
        ("fixed-operations", operations()),
        ("kept-finalizers", finalizers()),
        ("kept-records", records()),
        ("kept-secrets", cluster_secrets()),
        ("namespace-in-use", namespaces()),
        ("node-labels", labels()),
        ("provider-pods", tenant_pods("provider-pods", "Provider", OF_PROVIDERS)),
        ("tenant-pods", tenant_pods("tenant-pods", "Tenant", OF_TENANTS)),
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
/// Only such an administrator confirms that a host is off: a node whose VM still runs would otherwise be replaced.
fn finalizers() -> [Value; 2] {
    let stays = format!(
        "request.operation == 'CREATE' || !has(oldObject.metadata.finalizers) || \
         oldObject.metadata.finalizers.all(kept, !kept.startsWith('{GROUP}/') || \
         (has(object.metadata.finalizers) && kept in object.metadata.finalizers))"
    );
    let message = format!(
        "the finalizer of {GROUP} is removed by the controller, once VMs and addresses are released. By hand, a \
         user needs the right to update the finalizers of this kind"
    );
    let has = |of: &str| format!("has({of}.metadata.annotations) && '{HOST_IS_OFF}' in {of}.metadata.annotations");
    let is_confirmed = format!(
        "!({}) || (request.operation == 'UPDATE' && {} && \
         object.metadata.annotations['{HOST_IS_OFF}'] == oldObject.metadata.annotations['{HOST_IS_OFF}'])",
        has("object"),
        has("oldObject")
    );
    let of_operators = format!(
        "the annotation {HOST_IS_OFF} is set by an operator: by a user who may update the finalizers of this kind. Ask one to run \
         `kaas cluster replace-node` with --host-is-off"
    );
    let validations = [(stays, message), (is_confirmed, of_operators)].map(
        |(expression, message)| json!({"expression": format!("{expression} || {}", runs_all()), "message": message}),
    );
    let (operations, resources) = (["CREATE", "UPDATE"], ["nodepools", "tenantclusters"]);
    let [mut policy, binding] = policy("kept-finalizers", GROUP, &operations, &resources, validations.to_vec());
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
                   ' with `kaas cluster delete`'";
    // An API server cuts off no message: it uses this one instead of a message over 5 KiB.
    let of_many = "clusters use the namespace: first delete each of them with `kaas cluster delete`";
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
             with `kaas cluster delete`",
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
            "the Machine of a control-plane node is deleted with its cluster: to replace a lost node, use `kaas cluster \
             replace-node`; to delete the cluster, `kaas cluster delete`",
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
                   `kaas cluster delete`";
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

/// Users who may write Secrets and not read them, as `kaas-tenant-edit` allows, write only those that a cluster's spec names. A
/// Secret of another type could hold the token of a service account, or belong to the controller. The account of a component of
/// Kubernetes is not such a user.
fn cluster_input() -> [Value; 2] {
    let expression = format!(
        "variables.reads || ((request.operation == 'CREATE' || oldObject.type == '{INPUT_TYPE}') && \
         (request.operation == 'DELETE' || object.type == '{INPUT_TYPE}'))"
    );
    let message = format!(
        "a user who may not read Secrets here writes and deletes only those of the type {INPUT_TYPE}. Create one with \
         kubectl create secret generic NAME --type={INPUT_TYPE}"
    );
    let validation = json!({"expression": expression, "message": message});
    let operations = ["CREATE", "UPDATE", "DELETE"];
    let [mut policy, binding] = policy("cluster-input", "", &operations, &["secrets"], vec![validation]);
    let reads = "authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()";
    policy["spec"]["variables"] = json!([{"name": "reads", "expression": reads}]);
    policy["spec"]["matchConditions"] = json!([{
        "name": "not-of-kubernetes",
        "expression": "!request.userInfo.username.startsWith('system:serviceaccount:kube-system:')",
    }]);
    [policy, binding]
}

/// Namespaces of Kubernetes, the controller and add-ons. No Tenant or Provider stops their pods, not even while its object cannot
/// be read.
const OWN_NAMESPACES: [&str; 6] =
    ["kaas-system", "kube-node-lease", "kube-public", "kube-system", "local-path-storage", "metallb-system"];

/// The label by which an operator permits pods in a namespace that a Tenant or a Provider admits.
const PODS: &str = "kaas.local/pods";

/// No pod runs in a namespace for tenant clusters: it would run on a control-plane node of the control cluster, next to every
/// tenant's keys. Tenants cannot label namespaces. `admits` is whether the object in `params` admits the namespace.
fn tenant_pods(name: &str, kind: &str, admits: &str) -> [Value; 2] {
    let label = format!(
        "has(namespaceObject.metadata.labels) && '{PODS}' in namespaceObject.metadata.labels && \
         namespaceObject.metadata.labels['{PODS}'] == 'allowed'"
    );
    let message = format!(
        "'the namespace ' + request.namespace + ' of the control cluster is for tenant clusters, so no pod runs in it: run it in \
         a tenant cluster, or have an operator label the namespace {PODS}=allowed'"
    );
    let validation = json!({"expression": format!("!({admits}) || ({label})"), "messageExpression": message});
    let [mut policy, mut binding] = policy(name, "", &["CREATE"], &["pods"], vec![validation]);
    let rule = |operation: &str, resources: &[&str]| json!({"apiGroups": [""], "apiVersions": ["*"], "operations": [operation], "resources": resources});
    policy["spec"]["matchConstraints"] = json!({
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": OWN_NAMESPACES},
        ]},
        "resourceRules": [
            rule("CREATE", &["pods"]),
            rule("UPDATE", &["pods/ephemeralcontainers"]),
            rule("CONNECT", &["pods/attach", "pods/exec", "pods/portforward"]),
        ],
    });
    policy["spec"]["paramKind"] = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind});
    // Each object of the kind is asked. Without any, pods are admitted.
    binding["spec"]["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    [policy, binding]
}

/// Whether a Tenant, and whether a Provider, admits a namespace.
const OF_TENANTS: &str = "request.namespace in params.spec.namespaces";
const OF_PROVIDERS: &str = "has(params.spec.allowedNamespaces) && (params.spec.allowedNamespaces.from == 'All' || \
                            (has(params.spec.allowedNamespaces.names) && \
                            request.namespace in params.spec.allowedNamespaces.names))";

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
            "spec.labels has a key that is no label's: at most 63 letters, digits, dashes, underscores and dots, \
                           optionally after a domain and a slash",
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
            "a controller creates, changes and removes only the two Secrets of a cluster. One names it as its owner, the other has \
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
    use super::*;

    /// Each request to the API server asks all that match. Their number is a figure of the design.
    #[test]
    fn policies_are_few_and_named_like_their_files() {
        let all = policies();
        assert!(all.len() <= 12, "{}", all.len());
        for (file, [policy, binding]) in all {
            let name = format!("{file}.{GROUP}");
            assert_eq!((&policy["metadata"]["name"], &binding["spec"]["policyName"]), (&json!(name), &json!(name)));
        }
    }
}
