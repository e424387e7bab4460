//! Policies on new pods.

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

use super::manifest;

/// The policies and their bindings. `level` is that of namespaces without a label.
pub fn objects(level: PodSecurity) -> Vec<Value> {
    let label = "pod-security.kubernetes.io/enforce";
    let restricted = match level {
        PodSecurity::Privileged => json!({"key": label, "operator": "In", "values": ["baseline", "restricted"]}),
        // Also matches a namespace without the label.
        PodSecurity::Baseline | PodSecurity::Restricted => {
            json!({"key": label, "operator": "NotIn", "values": ["privileged"]})
        }
    };
    manifest::objects(include_str!("pod_policies.yaml"), [("RESTRICTED", restricted)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_spare_namespaces_whose_pods_may_do_everything() {
        let objects = objects(PodSecurity::Baseline);
        for [policy, binding] in objects.as_chunks().0 {
            assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        }
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }

    /// A namespace that is labelled `baseline` keeps its protection in a cluster whose level is `privileged`.
    #[test]
    fn labelled_namespaces_are_protected_at_each_level() {
        let objects = objects(PodSecurity::Privileged);
        assert_eq!(objects.len(), 4);
        for [policy, _] in objects.as_chunks().0 {
            let selected = &policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"][1];
            assert_eq!(
                (&selected["operator"], &selected["values"]),
                (&json!("In"), &json!(["baseline", "restricted"]))
            );
        }
    }
}
