//! Keeps a worker that was removed from making its Node object again with the certificate that it still has: it would get pods,
//! and with them their Secrets. Control nodes note whom they have let in ([`crate::cluster::kubernetes::approval::records`]).

use serde_json::{Value, json};

use crate::cluster::kubernetes::NODES;
use crate::cluster::kubernetes::approval::records;
use crate::intake::config::ControlPlane;

/// Of the policy and of its binding.
const NAME: &str = "kaas-nodes";

/// None where no workers join. As long as not all workers are noted, all may come. Then each that is let in makes one Node object:
/// its record has the UID of that from then on. A kubelet asks for it at each start, also where it is there, and takes "forbidden"
/// for that (`tryRegisterWithAPIServer`, since 1.32).
pub(super) fn objects(config: &ControlPlane) -> Vec<Value> {
    if !config.role.takes_workers() {
        return Vec::new();
    }
    let control: Vec<&str> = config.cluster.control_nodes.iter().map(|node| node.name.as_str()).collect();
    let conditions = [
        format!("!('{NODES}' in request.userInfo.groups)"),
        format!("object.metadata.name in {}", json!(control)),
        format!("!has(params.data) || !('{}' in params.data)", records::COMPLETE),
        r#"object.metadata.name in params.data && !params.data[object.metadata.name].contains('"uid"')"#.to_owned(),
    ];
    vec![
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": NAME},
            "spec": {
                // What cannot be judged is let in: no failure of this may keep all workers away.
                "failurePolicy": "Ignore",
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["CREATE"],
                }]},
                "validations": [{
                    "expression": conditions.join(" || "),
                    "message": "a worker makes its Node object once, when it has joined: one that was removed needs a join token",
                    "reason": "Forbidden",
                }],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": NAME},
            "spec": {
                "policyName": NAME,
                "paramRef": {
                    "name": records::NAME, "namespace": "kube-system", "parameterNotFoundAction": "Allow",
                },
                "validationActions": ["Deny"],
            },
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    #[test]
    fn only_control_nodes_and_workers_that_were_let_in_make_node_objects() {
        assert!(objects(&three_nodes()).is_empty());
        let objects = objects(&in_a_tenant(three_nodes()));
        assert_eq!(objects[1]["spec"]["policyName"], objects[0]["metadata"]["name"]);
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
