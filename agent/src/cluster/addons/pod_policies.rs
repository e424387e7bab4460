//! Policies on new pods. A namespace whose pods may do everything is exempt: its pods control their nodes anyway.

use contract::pod_security::PodSecurity;
use serde_json::{Value, json};

use super::objects::policy;

/// The lowest priority of the system's own classes (`k8s.io/kubernetes/pkg/apis/scheduling`, `SystemCriticalPriority`). The
/// scheduler ends other pods for such a pod, cluster DNS among them, and the kubelet never evicts it. The API server fills in
/// the priority, and admits no other class with such a value.
const SYSTEM: u32 = 2_000_000_000;

/// The policies and their bindings. `level` is that of namespaces without a label.
pub fn objects(level: PodSecurity) -> Vec<Value> {
    let lower = format!("!has(object.spec.priority) || object.spec.priority < {SYSTEM}");
    let priority = of_pods(
        "kaas-system-priority",
        level,
        &lower,
        "pods of this priority are the system's own: they are for kube-system, and for namespaces with the label \
         pod-security.kubernetes.io/enforce=privileged",
    );
    // The kubelet runs iscsiadm as root against the target of an inline volume, which the level `baseline` of Pod Security
    // allows. A malicious target writes files on the node (CVE-2026-44943, CVE-2026-18724).
    let volumes = of_pods(
        "kaas-inline-volumes",
        level,
        "!has(object.spec.volumes) || object.spec.volumes.all(volume, !has(volume.iscsi))",
        "inline iscsi volumes are refused: use a PersistentVolume, or a namespace with the label \
         pod-security.kubernetes.io/enforce=privileged",
    );
    [priority, volumes].concat()
}

fn of_pods(name: &str, level: PodSecurity, expression: &str, message: &str) -> [Value; 2] {
    let label = "pod-security.kubernetes.io/enforce";
    let restricting = match level {
        PodSecurity::Privileged => json!({"key": label, "operator": "In", "values": ["baseline", "restricted"]}),
        // Also matches a namespace without the label.
        PodSecurity::Baseline | PodSecurity::Restricted => {
            json!({"key": label, "operator": "NotIn", "values": ["privileged"]})
        }
    };
    let [mut policy, binding] = policy(name, "Fail", ("", "pods", &["CREATE"]), &[(expression, message)]);
    policy["spec"]["matchConstraints"]["namespaceSelector"] = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
        restricting,
    ]});
    [policy, binding]
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
