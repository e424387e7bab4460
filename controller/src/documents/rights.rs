//! The rights of a controller at an API server, and its account: only those that its work needs. Some apply in `kaas-system`
//! only.

use serde_json::{Value, json};

use crate::decisions::NAMESPACES_IN_USE;
use crate::objects::{GROUP, SYSTEM};

/// The service account of controllers in `kaas-system`, and the name of its roles and bindings.
pub const ACCOUNT: &str = "kaas-controller";
/// The roles of a Tenant's admins and users in its namespaces.
pub const TENANT_EDIT: &str = "kaas-tenant-edit";
pub const TENANT_VIEW: &str = "kaas-tenant-view";
/// The group of roles and bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group. Empty for the core group.
    pub group: &'static str,
    /// The resource, with a subresource after a slash.
    pub resource: &'static str,
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
    /// Whether it applies in `kaas-system` only.
    pub at_home: bool,
    /// The names that it is limited to. None means all.
    pub names: &'static [&'static str],
}

const fn everywhere(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { group, resource, verbs, at_home: false, names: &[] }
}

const fn at_home(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { group, resource, verbs, at_home: true, names: &[] }
}

/// All rights. Statuses are written through their own subresource. Of a user's object only the metadata is changed (finalizers,
/// labels, annotations), and the only right for that is `patch`.
pub const RIGHTS: &[Right] = &[
    everywhere(GROUP, "tenants", &["list", "patch", "watch"]),
    everywhere(GROUP, "tenants/status", &["patch"]),
    everywhere(GROUP, "catalogs", &["create", "delete", "list", "update"]),
    everywhere(GROUP, "providers", &["get", "list", "patch", "watch"]),
    everywhere(GROUP, "providers/status", &["patch"]),
    everywhere(GROUP, "ippools", &["list", "patch", "watch"]),
    everywhere(GROUP, "ippools/status", &["patch"]),
    everywhere(GROUP, "pooladdresses", &["create", "delete", "list", "patch", "watch"]),
    everywhere(GROUP, "vmclasses", &["get", "list", "patch", "watch"]),
    everywhere(GROUP, "nodeimages", &["get", "list", "patch", "watch"]),
    everywhere(GROUP, "nodeimages/status", &["patch"]),
    everywhere(GROUP, "tenantclusters", &["get", "list", "patch", "watch"]),
    everywhere(GROUP, "tenantclusters/status", &["patch", "update"]),
    // The pools of a cluster are deleted with it.
    everywhere(GROUP, "nodepools", &["delete", "get", "list", "patch", "watch"]),
    everywhere(GROUP, "nodepools/status", &["patch"]),
    everywhere(GROUP, "machines", &["create", "delete", "get", "list", "patch", "watch"]),
    everywhere(GROUP, "machines/status", &["patch"]),
    // The request of a user is an annotation, which the controller removes.
    everywhere(GROUP, "operations", &["create", "delete", "get", "list", "patch"]),
    everywhere(GROUP, "operations/status", &["patch", "update"]),
    // For a cluster's keys, its kubeconfig, and the Secrets that its spec names. They are read by name, never listed. The policy
    // `controller-secrets` limits which are created, changed and removed: RBAC cannot limit rights to future names.
    everywhere("", "secrets", &["create", "delete", "get", "patch"]),
    // The people of a Tenant. With `bind` on these two roles alone the controller gives nothing else.
    everywhere(RBAC, "rolebindings", &["create", "get", "patch"]),
    Right { names: &[TENANT_EDIT, TENANT_VIEW], ..everywhere(RBAC, "clusterroles", &["bind"]) },
    // The Role to read the kubeconfig of one cluster. The API server refuses a Role, and a binding to it, with rights that the
    // controller lacks.
    everywhere(RBAC, "roles", &["create"]),
    // Nodes of tenant clusters admit requests from the addresses of these nodes.
    everywhere("", "nodes", &["list"]),
    // Events for users, in the namespace of their object.
    everywhere("events.k8s.io", "events", &["create", "patch"]),
    // Secrets with the Providers' accounts.
    at_home("", "secrets", &["list", "watch"]),
    // The mark that a controller has led. It is not read, changed or removed. A right to create cannot be limited to names.
    at_home("", "configmaps", &["create"]),
    // The list of namespaces with clusters.
    Right { names: &[NAMESPACES_IN_USE], ..at_home("", "configmaps", &["get", "patch"]) },
    // The Leases of leadership, and of work on a cluster.
    at_home("coordination.k8s.io", "leases", &["create", "delete", "get", "list", "update"]),
];

impl Right {
    /// Whether it permits a request. Without a namespace, the request is for objects of all namespaces, or the kind has no
    /// namespace. The name of the object is not compared.
    pub fn permits(&self, verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> bool {
        (self.group, self.resource) == (group, resource)
            && self.verbs.contains(&verb)
            && (!self.at_home || namespace == Some(SYSTEM))
    }

    fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": self.verbs});
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

/// The rules of a role: the API group, resources of it, and verbs.
type Rules = &'static [(&'static str, &'static [&'static str], &'static [&'static str])];

/// The rights of tenants in a namespace, once an administrator binds the role. Tenants write nothing that a controller records. A
/// cluster's status decides which nodes get proof of the deployer, and Machines are found by their labels.
const TENANTS: [(&str, Rules); 2] = [
    (
        TENANT_EDIT,
        &[
            (GROUP, &["catalogs"], READ),
            // The policy `cluster-input` limits these to Secrets that a spec names. Tenants read none.
            ("", &["secrets"], &["create", "delete", "patch", "update"]),
            (GROUP, &["nodepools", "tenantclusters"], &["create", "delete", "get", "list", "patch", "update", "watch"]),
            (GROUP, &["nodepools/scale"], &["get", "patch", "update"]),
            (GROUP, &["machines"], &["delete", "get", "list", "watch"]),
            // A request to an upgrade is an annotation. The plan cannot change, tenants cannot write the status, and the policy
            // `fixed-operations` protects the rest.
            (GROUP, &["operations"], &["get", "list", "patch", "watch"]),
        ],
    ),
    (
        TENANT_VIEW,
        &[
            (GROUP, &["catalogs", "machines", "nodepools", "operations", "tenantclusters"], READ),
            (GROUP, &["nodepools/scale"], &["get"]),
        ],
    ),
];
const READ: &[&str] = &["get", "list", "watch"];

/// The namespace of controllers, their account and its rights, and the roles for tenants, in the order in which they can be
/// applied.
pub(super) fn rights() -> Vec<Value> {
    let rules = |at_home| RIGHTS.iter().filter(|right| right.at_home == at_home).map(Right::rule).collect::<Vec<_>>();
    let (version, home) = (format!("{RBAC}/v1"), json!({"name": ACCOUNT, "namespace": SYSTEM}));
    let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}]);
    let role = |kind: &str| json!({"apiGroup": RBAC, "kind": kind, "name": ACCOUNT});
    // The pods use the host's network, which only this level allows.
    let levels = ["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "privileged"));
    let labels = serde_json::Map::from_iter(levels.map(|(label, level)| (label, json!(level))));
    let tenants = TENANTS.map(|(name, rules)| {
        let rules = rules
            .iter()
            .map(|(group, resources, verbs)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}));
        let rules: Vec<Value> = rules.collect();
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    });
    let of_controller = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": home}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": ACCOUNT}, "rules": rules(false)}),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
            "roleRef": role("ClusterRole"), "subjects": subjects,
        }),
        json!({"apiVersion": version, "kind": "Role", "metadata": home, "rules": rules(true)}),
        json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": home,
            "roleRef": role("Role"), "subjects": subjects,
        }),
    ];
    of_controller.into_iter().chain(tenants).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_permits_only_its_verbs_resource_and_namespace() {
        let permits = |verb: &str, group: &str, resource: &str, namespace: Option<&str>| {
            RIGHTS.iter().any(|right| right.permits(verb, group, resource, namespace))
        };
        assert!(permits("get", "", "secrets", Some("team-blue")) && permits("list", "", "secrets", Some(SYSTEM)));
        assert!(permits("patch", GROUP, "machines/status", Some("team-blue")));
        let named: Vec<_> = RIGHTS.iter().filter(|right| right.names == [NAMESPACES_IN_USE]).map(Right::rule).collect();
        assert_eq!((named.len(), &named[0]["resourceNames"]), (1, &json!([NAMESPACES_IN_USE])));
        for (verb, group, resource, namespace) in [
            ("list", "", "secrets", Some("team-blue")),
            ("list", "", "secrets", None),
            ("create", "coordination.k8s.io", "leases", Some("kube-system")),
            ("create", "", "configmaps", Some("team-blue")),
            ("delete", "", "configmaps", Some(SYSTEM)),
            ("patch", "", "configmaps", Some("team-blue")),
            ("update", GROUP, "machines/status", Some("team-blue")),
            ("get", "", "machines", Some("team-blue")),
            ("delete", GROUP, "tenantclusters", Some("team-blue")),
        ] {
            assert!(!permits(verb, group, resource, namespace), "{verb} {resource} {namespace:?}");
        }
    }

    #[test]
    fn rights_are_unique_without_wildcards_or_escalation() {
        for (place, right) in RIGHTS.iter().enumerate() {
            assert!(right.verbs.is_sorted() && !right.verbs.is_empty(), "{right:?}");
            for text in right.verbs.iter().chain([&right.group, &right.resource]) {
                assert!(!text.contains('*') && !["escalate", "impersonate"].contains(text), "{right:?}");
            }
            let is_bind = right.verbs.contains(&"bind");
            assert!(!is_bind || (right.verbs.len() == 1 && right.names == [TENANT_EDIT, TENANT_VIEW]), "{right:?}");
            let is_role = (right.resource, right.verbs) == ("roles", &["create"][..]);
            assert!(right.group != RBAC || is_bind || is_role || right.resource == "rolebindings", "{right:?}");
            for verb in right.verbs {
                let again = RIGHTS[place + 1..].iter().filter(|other| {
                    (other.group, other.resource) == (right.group, right.resource) && other.verbs.contains(verb)
                });
                assert_eq!(again.count(), 0, "{verb} {right:?}");
            }
        }
    }

    #[test]
    fn tenants_write_nothing_that_a_controller_records() {
        for (name, rules) in TENANTS {
            for (group, resources, verbs) in rules {
                let writes = verbs.iter().any(|verb| !READ.contains(verb));
                for resource in *resources {
                    assert!(!resource.contains("status") && !resource.contains('*'), "{name}: {resource}");
                    let is_wanted = ["nodepools", "nodepools/scale", "tenantclusters"].contains(resource);
                    let is_deleted = *resource == "machines" && !verbs.contains(&"patch") && !verbs.contains(&"update");
                    // Only a controller creates or removes one. Rules of the kind protect its plan.
                    let is_told = *resource == "operations" && !verbs.contains(&"create") && !verbs.contains(&"delete");
                    // The policy `cluster-input` limits their types.
                    let is_input = *resource == "secrets" && !verbs.iter().any(|verb| READ.contains(verb));
                    assert_eq!(group.is_empty(), is_input, "{name}: {resource}");
                    let is_theirs = is_wanted || is_deleted || is_told || is_input;
                    assert!(!writes || name == "kaas-tenant-edit" && is_theirs, "{name}: {resource}");
                }
            }
        }
    }
}
