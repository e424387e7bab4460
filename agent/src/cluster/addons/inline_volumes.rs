//! Keeps pods from naming iSCSI targets. The kubelet runs iscsiadm as root against the target of an inline volume, which the
//! level `baseline` of Pod Security allows. A malicious target writes files on the node (CVE-2026-44943, CVE-2026-18724).

use contract::pod_security::PodSecurity;
use serde_json::Value;

use super::objects::{outside_privileged_namespaces, policy};

/// The name of the policy and of its binding.
const NAME: &str = "kaas-inline-volumes";

/// None if namespaces without a label may do everything.
pub(super) fn objects(level: PodSecurity) -> Vec<Value> {
    match level {
        PodSecurity::Privileged => return Vec::new(),
        PodSecurity::Baseline | PodSecurity::Restricted => {}
    }
    let message = "inline iscsi volumes are refused: use a PersistentVolume, or a namespace with the label \
                   pod-security.kubernetes.io/enforce=privileged";
    let without = "!has(object.spec.volumes) || object.spec.volumes.all(volume, !has(volume.iscsi))";
    let [mut policy, binding] = policy(NAME, "Fail", ("", "pods", &["CREATE"]), &[(without, message)]);
    policy["spec"]["matchConstraints"]["namespaceSelector"] = outside_privileged_namespaces();
    vec![policy, binding]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_name_no_iscsi_targets_outside_privileged_namespaces() {
        assert!(objects(PodSecurity::Privileged).is_empty());
        let objects = objects(PodSecurity::Baseline);
        assert_eq!(objects[1]["spec"]["policyName"], objects[0]["metadata"]["name"]);
        let expression = objects[0]["spec"]["validations"][0]["expression"].as_str().unwrap();
        assert!(expression.contains("has(volume.iscsi)"), "{expression}");
        let selected = &objects[0]["spec"]["matchConstraints"]["namespaceSelector"];
        assert_eq!(*selected, outside_privileged_namespaces());
    }
}
