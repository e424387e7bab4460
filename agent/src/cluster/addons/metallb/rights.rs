//! What MetalLB may do, after upstream's `config/rbac`, without what only webhooks and BGP's own objects need.

use serde_json::{Value, json};

use super::super::objects::{Account, rule};

const READ: &str = "get,list,watch";
const GROUP: &str = "metallb.io";

pub(super) fn controller(namespace: &str, name: &str, key: &str) -> Vec<Value> {
    let mut own_deployment = rule("apps", "deployments", "get");
    own_deployment["resourceNames"] = json!([name]);
    let mut own_key = rule("", "secrets", "get,list,watch,update,delete");
    own_key["resourceNames"] = json!([key]);
    Account {
        name,
        namespace,
        cluster_role: "metallb-system:controller",
        everywhere: json!([
            rule("", "services,namespaces", READ),
            rule("", "nodes", "list"),
            rule("", "services/status", "update"),
            rule("", "events", "create,patch"),
        ]),
        at_home: Some(json!([
            own_deployment,
            own_key,
            // Names say nothing of what is made or listed.
            rule("", "secrets", "create,list,watch"),
            rule(GROUP, "bfdprofiles,bgpadvertisements,bgppeers,communities,ipaddresspools,l2advertisements", READ),
            rule(GROUP, "ipaddresspools/status", "update"),
        ])),
    }
    .objects()
}

pub(super) fn speaker(namespace: &str, name: &str) -> Vec<Value> {
    let statuses = "servicel2statuses,servicel2statuses/status,servicebgpstatuses,servicebgpstatuses/status";
    Account {
        name,
        namespace,
        cluster_role: "metallb-system:speaker",
        everywhere: json!([
            rule("", "services,nodes,namespaces", READ),
            rule("discovery.k8s.io", "endpointslices", READ),
            rule("", "events", "create,patch"),
            rule(GROUP, "servicel2statuses,servicel2statuses/status", "*"),
        ]),
        at_home: Some(json!([
            rule("", "pods", "get,list"),
            rule("", "secrets,configmaps", READ),
            rule(GROUP, "bfdprofiles,bgpadvertisements,bgppeers,communities,ipaddresspools,l2advertisements", READ),
            rule(GROUP, statuses, "*"),
        ])),
    }
    .objects()
}
