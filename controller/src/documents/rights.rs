//! What a controller may do at an API server, and as whom: each right that its work needs and no other one. What is bound to its own
//! namespace is so in `kaas-system`.

use serde_json::{Value, json};

use crate::objects::{GROUP, SYSTEM};

/// The service account of controllers, in `kaas-system`, and all that gives it its rights.
pub const ACCOUNT: &str = "kaas-controller";

/// Verbs on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty is the core.
    pub group: &'static str,
    /// The resource, with a subresource behind a slash.
    pub resource: &'static str,
    /// The verbs, in alphabetical order.
    pub verbs: &'static [&'static str],
    /// Whether it holds in `kaas-system` alone.
    pub at_home: bool,
}

const fn everywhere(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { group, resource, verbs, at_home: false }
}

const fn at_home(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { group, resource, verbs, at_home: true }
}

/// All of them. Statuses are written by their own subresource, and an object that a person makes is changed in its metadata alone
/// (finalizers, labels, annotations): an API server has no right for that but `patch`.
pub const RIGHTS: &[Right] = &[
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
    // Those of a cluster that goes, go.
    everywhere(GROUP, "nodepools", &["delete", "get", "list", "patch", "watch"]),
    everywhere(GROUP, "nodepools/status", &["patch"]),
    everywhere(GROUP, "machines", &["create", "delete", "get", "list", "patch", "watch"]),
    everywhere(GROUP, "machines/status", &["patch"]),
    // What a person has asked of one is an annotation, which is taken away.
    everywhere(GROUP, "operations", &["create", "delete", "get", "list", "patch"]),
    everywhere(GROUP, "operations/status", &["patch", "update"]),
    // A cluster's keys and kubeconfig are beside it, and so are the Secrets that its spec names. None is looked for: names are known. Which
    // ones are made, changed and removed is bounded by the policy `controller-secrets`: a right knows no names of Secrets to come.
    everywhere("", "secrets", &["create", "delete", "get", "patch"]),
    // Nodes of clusters let themselves be asked from the addresses of the control cluster's.
    everywhere("", "nodes", &["list"]),
    // What people look for, where the object is.
    everywhere("events.k8s.io", "events", &["create", "patch"]),
    // Those of Providers' accounts.
    at_home("", "secrets", &["list", "watch"]),
    // The mark that one has led. None is read, changed or removed, and a right to make one knows no names.
    at_home("", "configmaps", &["create"]),
    // Who leads, and who works on a cluster.
    at_home("coordination.k8s.io", "leases", &["create", "delete", "get", "list", "update"]),
];

impl Right {
    /// Whether it permits this. Without a namespace objects of all are meant, or the kind is in none.
    pub fn permits(&self, verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> bool {
        (self.group, self.resource) == (group, resource)
            && self.verbs.contains(&verb)
            && (!self.at_home || namespace == Some(SYSTEM))
    }

    fn rule(&self) -> Value {
        json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": self.verbs})
    }
}

/// What a role permits: resources of the group, and verbs.
type Rules = &'static [(&'static [&'static str], &'static [&'static str])];

/// What who has clusters in a namespace may do there, once a person binds it: resources and verbs. Nothing of what a controller notes
/// is theirs to write: by a cluster's status its nodes are shown what proves the deployer, and Machines are known by their labels.
const TENANTS: [(&str, Rules); 2] = [
    (
        "kaas-tenant-edit",
        &[
            (&["nodepools", "tenantclusters"], &["create", "delete", "get", "list", "patch", "update", "watch"]),
            (&["nodepools/scale"], &["get", "patch", "update"]),
            (&["machines"], &["delete", "get", "list", "watch"]),
            // What a person says to an upgrade is an annotation; the plan is fixed, the status is not theirs, and the policy
            // `fixed-operations` keeps the rest as it is.
            (&["operations"], &["get", "list", "patch", "watch"]),
        ],
    ),
    (
        "kaas-tenant-view",
        &[(&["machines", "nodepools", "operations", "tenantclusters"], READ), (&["nodepools/scale"], &["get"])],
    ),
];
const READ: &[&str] = &["get", "list", "watch"];

/// The namespace of controllers, their account and what it may do, and roles for tenants, in an order in which they can be applied.
pub(super) fn rights() -> Vec<Value> {
    const API: &str = "rbac.authorization.k8s.io";
    let rules = |at_home| RIGHTS.iter().filter(|right| right.at_home == at_home).map(Right::rule).collect::<Vec<_>>();
    let (version, home) = (format!("{API}/v1"), json!({"name": ACCOUNT, "namespace": SYSTEM}));
    let subjects = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}]);
    let role = |kind: &str| json!({"apiGroup": API, "kind": kind, "name": ACCOUNT});
    // Its pods are on the host's network, which only this level allows.
    let levels = ["enforce", "audit", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), "privileged"));
    let labels = serde_json::Map::from_iter(levels.map(|(label, level)| (label, json!(level))));
    let tenants = TENANTS.map(|(name, rules)| {
        let rules = rules
            .iter()
            .map(|(resources, verbs)| json!({"apiGroups": [GROUP], "resources": resources, "verbs": verbs}));
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
    fn a_right_is_of_its_group_its_resource_its_verbs_and_its_namespace() {
        let permits = |verb: &str, group: &str, resource: &str, namespace: Option<&str>| {
            RIGHTS.iter().any(|right| right.permits(verb, group, resource, namespace))
        };
        assert!(permits("get", "", "secrets", Some("team-blue")) && permits("list", "", "secrets", Some(SYSTEM)));
        assert!(permits("patch", GROUP, "machines/status", Some("team-blue")));
        for (verb, group, resource, namespace) in [
            ("list", "", "secrets", Some("team-blue")),
            ("list", "", "secrets", None),
            ("create", "coordination.k8s.io", "leases", Some("kube-system")),
            ("create", "", "configmaps", Some("team-blue")),
            ("delete", "", "configmaps", Some(SYSTEM)),
            ("update", GROUP, "machines/status", Some("team-blue")),
            ("get", "", "machines", Some("team-blue")),
            ("delete", GROUP, "tenantclusters", Some("team-blue")),
        ] {
            assert!(!permits(verb, group, resource, namespace), "{verb} {resource} {namespace:?}");
        }
    }

    #[test]
    fn no_right_is_given_twice_or_for_all_there_is_and_none_makes_rights() {
        for (place, right) in RIGHTS.iter().enumerate() {
            assert!(right.verbs.is_sorted() && !right.verbs.is_empty(), "{right:?}");
            for text in right.verbs.iter().chain([&right.group, &right.resource]) {
                assert!(!text.contains('*') && !["bind", "escalate", "impersonate"].contains(text), "{right:?}");
            }
            assert_ne!(right.group, "rbac.authorization.k8s.io");
            for verb in right.verbs {
                let again = RIGHTS[place + 1..].iter().filter(|other| {
                    (other.group, other.resource) == (right.group, right.resource) && other.verbs.contains(verb)
                });
                assert_eq!(again.count(), 0, "{verb} {right:?}");
            }
        }
    }

    #[test]
    fn tenants_write_what_they_want_and_nothing_that_a_controller_notes() {
        for (name, rules) in TENANTS {
            for (resources, verbs) in rules {
                let writes = verbs.iter().any(|verb| !READ.contains(verb));
                for resource in *resources {
                    assert!(!resource.contains("status") && !resource.contains('*'), "{name}: {resource}");
                    let is_wanted = ["nodepools", "nodepools/scale", "tenantclusters"].contains(resource);
                    let is_deleted = *resource == "machines" && !verbs.contains(&"patch") && !verbs.contains(&"update");
                    // Nobody but a controller makes or removes one; its plan is fixed by rules of the kind.
                    let is_told = *resource == "operations" && !verbs.contains(&"create") && !verbs.contains(&"delete");
                    let is_theirs = is_wanted || is_deleted || is_told;
                    assert!(!writes || name == "kaas-tenant-edit" && is_theirs, "{name}: {resource}");
                }
            }
        }
    }
}
