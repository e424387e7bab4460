//! Policies on the Node objects of workers, their requests for certificates, and the ranges of their pods. Control-plane nodes
//! record the workers that they admit ([`crate::cluster::kubernetes::approval::records`]).

use serde_json::{Value, json};

use super::manifest;
use crate::cluster::kubernetes::approval::{self, records};
use crate::intake::config::ControlPlane;

/// The policies and their bindings. None if the cluster takes no workers.
pub(super) fn objects(config: &ControlPlane) -> Vec<Value> {
    if !config.role.takes_workers() {
        return Vec::new();
    }
    let names: Vec<&str> = config.cluster.control_nodes.iter().map(|node| node.name.as_str()).collect();
    let users: Vec<String> = names.iter().map(|name| format!("system:node:{name}")).collect();
    manifest::objects(
        include_str!("node_admission.yaml"),
        [
            ("CONTROL_NODES", json!(names).to_string().into()),
            ("CONTROL_NODE_USERS", json!(users).to_string().into()),
            ("RECORDS", records::NAME.into()),
            ("COMPLETE", records::COMPLETE.into()),
            ("LONGEST_NAME", approval::LONGEST_NAME.into()),
            ("LONGEST_REQUEST", approval::LONGEST.into()),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::config::fixture::{in_a_tenant, three_nodes};

    #[test]
    fn policies_limit_workers_that_join() {
        assert!(objects(&three_nodes()).is_empty());
        let objects = objects(&in_a_tenant(three_nodes()));
        for pair in objects.chunks(2) {
            assert_eq!(pair[1]["spec"]["policyName"], pair[0]["metadata"]["name"]);
        }
        insta::assert_snapshot!(format!("{:#}", Value::from(objects)));
    }
}
