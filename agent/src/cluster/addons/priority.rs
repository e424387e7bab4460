//! Keeps the priorities of the system's own pods from everybody else's: the scheduler makes room for such pods by ending
//! others, cluster DNS among them, and the kubelet evicts none of them, however full the disk is.

use contract::pod_security::PodSecurity;
use serde_json::Value;

use super::objects::{outside_privileged_namespaces, policy};

/// Of the policy and of its binding.
const NAME: &str = "kaas-system-priority";

/// The lowest priority of the system's own classes (`k8s.io/kubernetes/pkg/apis/scheduling`, `SystemCriticalPriority`). The
/// API server has filled a pod's in, and given nobody else's class such a one.
const SYSTEM: u32 = 2_000_000_000;

/// Who may make privileged pods in a namespace has its nodes anyway, and what needs a node to work is found there: so the
/// label that allows the one allows the other. None where namespaces without a label may do everything.
pub(super) fn objects(level: PodSecurity) -> Vec<Value> {
    match level {
        PodSecurity::Privileged => return Vec::new(),
        PodSecurity::Baseline | PodSecurity::Restricted => {}
    }
    let message = "pods of this priority are the system's own: they are for kube-system, and for namespaces with the label \
                   pod-security.kubernetes.io/enforce=privileged";
    let lower = format!("!has(object.spec.priority) || object.spec.priority < {SYSTEM}");
    let [mut policy, binding] = policy(NAME, "Fail", ("", "pods", &["CREATE"]), &[(&lower, message)]);
    policy["spec"]["matchConstraints"]["namespaceSelector"] = outside_privileged_namespaces();
    vec![policy, binding]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kube_system_and_privileged_namespaces_have_the_systems_priorities() {
        assert!(objects(PodSecurity::Privileged).is_empty());
        let objects = objects(PodSecurity::Baseline);
        assert_eq!(objects[1]["spec"]["policyName"], objects[0]["metadata"]["name"]);
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
