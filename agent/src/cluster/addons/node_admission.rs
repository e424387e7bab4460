//! Keeps a worker that was removed from making its Node object again with the certificate that it still has: it would get pods,
//! and with them their Secrets; and from asking for certificates. Control nodes note whom they have let in
//! ([`crate::cluster::kubernetes::approval::records`]). Keeps every node from choosing which addresses its pods have.

use serde_json::{Value, json};

use crate::cluster::kubernetes::NODES;
use crate::cluster::kubernetes::approval::{self, records};
use crate::intake::config::ControlPlane;

use super::objects::policy;

/// A policy of Node objects, of requests for certificates, and of nodes' pod ranges; and of its binding.
const NODE_OBJECTS: &str = "kaas-nodes";
const REQUESTS: &str = "kaas-certificate-requests";
const RANGES: &str = "kaas-pod-ranges";

/// The group of whoever has shown a bootstrap token (Kubernetes, "Authenticating with Bootstrap Tokens").
const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// None where no workers join. As long as not all workers are noted, all may come. Then each that is let in makes one Node object:
/// its record has the UID of that from then on. A kubelet asks for it at each start, also where it is there, and takes "forbidden"
/// for that (`tryRegisterWithAPIServer`, since 1.32).
pub(super) fn objects(config: &ControlPlane) -> Vec<Value> {
    if !config.role.takes_workers() {
        return Vec::new();
    }
    let control: Vec<&str> = config.cluster.control_nodes.iter().map(|node| node.name.as_str()).collect();
    let users: Vec<String> = control.iter().map(|name| format!("system:node:{name}")).collect();
    let is_no_node = format!("!('{NODES}' in request.userInfo.groups)");
    let is_begun = format!("!has(params.data) || !('{}' in params.data)", records::COMPLETE);
    let nodes = [
        is_no_node.clone(),
        format!("object.metadata.name in {}", json!(control)),
        is_begun.clone(),
        r#"object.metadata.name in params.data && !params.data[object.metadata.name].contains('"uid"')"#.to_owned(),
    ];
    // Who is of the group of nodes is called system:node:NAME: certificates of others are signed by nobody.
    let requests = [
        is_no_node.clone(),
        format!("request.userInfo.username in {}", json!(users)),
        is_begun,
        "request.userInfo.username.startsWith('system:node:') && request.userInfo.username.substring(12) in params.data"
            .to_owned(),
    ];
    // Control nodes read them all, and kubelets' are short. The length first: CEL counts what matching costs.
    let is_short = format!(
        "!('{NODES}' in request.userInfo.groups || '{BOOTSTRAPPERS}' in request.userInfo.groups) || \
         size(object.metadata.name) <= {} && object.metadata.name.matches('^[-A-Za-z0-9_.]+$') && \
         size(object.spec.request) <= {}",
        approval::LONGEST_NAME,
        approval::LONGEST
    );
    // Kubernetes gives them (kube-controller-manager's node-ipam). With a range outside of the cluster's it does not start again
    // (`NewCIDRRangeAllocator`), and one that holds others' takes these away.
    let same = |field: &str, none: &str| {
        let of = |object: &str| format!("{object}.?spec.?{field}.orValue({none})");
        format!("{} == (oldObject == null ? {none} : {})", of("object"), of("oldObject"))
    };
    let ranges = format!("{is_no_node} || {} && {}", same("podCIDR", "''"), same("podCIDRs", "[]"));
    [
        by_records(NODE_OBJECTS, "", "nodes", &[(&nodes.join(" || "), TWICE)]),
        by_records(
            REQUESTS,
            "certificates.k8s.io",
            "certificatesigningrequests",
            &[(&requests.join(" || "), REMOVED), (&is_short, LONG)],
        ),
        policy(RANGES, IGNORE, ("", "nodes", &["CREATE", "UPDATE"]), &[(&ranges, CHOSEN)]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A request that cannot be judged is admitted: no failure of this may keep all workers away.
const IGNORE: &str = "Ignore";

const TWICE: &str = "a worker makes its Node object once, when it has joined: one that was removed needs a join token";
const REMOVED: &str = "a worker that was removed asks for no certificates: it needs a join token";
const LONG: &str = "a node's request for a certificate is short, and its name is of letters, digits, dots and dashes";
const CHOSEN: &str = "a node does not choose the addresses of its pods: the cluster gives it its range";

fn by_records(name: &str, group: &str, resource: &str, validations: &[(&str, &str)]) -> [Value; 2] {
    let [mut policy, mut binding] = policy(name, IGNORE, (group, resource, &["CREATE"]), validations);
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    binding["spec"]["paramRef"] =
        json!({"name": records::NAME, "namespace": "kube-system", "parameterNotFoundAction": "Allow"});
    [policy, binding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    #[test]
    fn only_control_nodes_and_workers_that_were_let_in_come_and_ask_and_none_chooses_its_pods_range() {
        assert!(objects(&three_nodes()).is_empty());
        let objects = objects(&in_a_tenant(three_nodes()));
        for pair in objects.chunks(2) {
            assert_eq!(pair[1]["spec"]["policyName"], pair[0]["metadata"]["name"]);
        }
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
